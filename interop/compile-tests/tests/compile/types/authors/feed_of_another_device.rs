//! A device whose queues have the driver's half of another backend, with positions of its own.

use syncline_core::backend::{Attachment, Home};
use syncline::{Result, vulkan};

struct Lying(vulkan::Device);

impl Home for Lying {
    type Enqueue = <vulkan::Device as Home>::Enqueue; //~ type mismatch resolving

    fn port(&self, initial: u64) -> Result<Attachment> {
        self.0.port(initial)
    }
}

fn main() {}
