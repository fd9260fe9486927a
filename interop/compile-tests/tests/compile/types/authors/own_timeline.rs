//! A queue whose own timeline the application signals. The kept buffers were freed too early.

use syncline_core::backend::{Backend, Device as _, EngineQueue};
use syncline::error::Object;
use syncline::{QueueKind, Result, vulkan};

fn own_timeline_of_a_queue(vk: &vulkan::Device) -> Result<()> {
    let own = vk.timeline("own")?;
    let object = Object::new("queue", "fed");
    let feed = Backend::enqueue(vk, QueueKind::Compute, &object)?;
    let _queue = EngineQueue::new(object, feed, own.clone())?; //~ takes 2 arguments but 3
    own.signal(1_000_000)
}

fn main() {}
