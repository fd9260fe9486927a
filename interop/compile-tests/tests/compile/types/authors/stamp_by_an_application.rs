//! A stamp that the work of another queue writes, maybe of another device.

use std::sync::Arc;

use syncline_core::backend::{Enqueue, Home, Queue as _};
use syncline::{Result, vulkan};

type Feed = <vulkan::Device as Home>::Enqueue;
type Stamp = <Feed as Enqueue>::Stamp;

fn written_elsewhere(queue: &vulkan::Queue, stamp: Arc<Stamp>) -> Result<()> {
    let work = move |recorder: &mut vulkan::Recorder<'_>| {
        Feed::write_stamp(recorder, &stamp) //~ mismatched types
    };
    queue.submit(&[], work, &[]).map(|_| ())
}

fn main() {}
