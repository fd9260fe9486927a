use std::time::Duration;

use syncline::backend::{Candidate as _, Device as _, Queue as _};
use syncline::{Inventory, ProbeOptions, QueueKind::Compute, Result, connect};
use syncline_opencl::Adapter;

fn main() -> Result<()> {
    let opencl = Adapter::all()?[0].open()?;
    let inventory = Inventory::probe(&ProbeOptions::default());
    let vulkan = inventory.select("vulkan")?.open()?;
    let producer = opencl.queue(Compute, "producer")?;
    let consumer = vulkan.queue(Compute, "consumer")?;
    let buffer = opencl.buffer(1024)?;

    let frames = connect(&opencl, &vulkan).timeline("frames")?;
    let work = move |recorder: &mut syncline_opencl::Recorder<'_>| recorder.fill(&buffer, 7);
    producer.submit(&[], work, &[frames.signal_at(1)])?;
    consumer.submit(&[frames.at(1)], |_| Ok(()), &[frames.signal_at(2)])?;
    frames.at(2).wait(Duration::from_secs(1))
}
