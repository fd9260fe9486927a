//! Two queues over one driver's half, and so over one own timeline.

use syncline_core::backend::{Backend, EngineQueue};
use syncline::error::Object;
use syncline::{QueueKind, Result, vulkan};

fn two_queues(vk: &vulkan::Device) -> Result<()> {
    let object = Object::new("queue", "fed");
    let feed = Backend::enqueue(vk, QueueKind::Compute, &object)?;
    let _first = EngineQueue::new(object.clone(), feed)?;
    let _second = EngineQueue::new(object, feed)?; //~ use of moved value: `feed`
    Ok(())
}

fn main() {}
