//! A device that exports a counter which another timeline has, too.

use syncline_core::backend::{Attachment, Sharing};
use syncline::error::Object;
use syncline::handle::TimelineFd;
use syncline::{Result, vulkan};

struct Relabelled(vulkan::Device, Object);

impl Sharing for Relabelled { //~ requires an `unsafe impl`
    fn name(&self) -> &Object {
        &self.1
    }

    fn export_timeline(
        &self,
        initial: u64,
        handles: usize,
    ) -> Result<(Attachment, Vec<TimelineFd>)> {
        Sharing::export_timeline(&self.0, initial, handles)
    }
}

fn main() {}
