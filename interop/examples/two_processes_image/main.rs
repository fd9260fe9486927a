//! An image of two processes: CUDA writes it in one, and Vulkan reads it in the other.
//!
//! Usage: `two_processes_image [--no-sync]`. The program starts itself as the second process.

#![allow(unsafe_code, reason = "trusts handles of another process")]

mod frames;

use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::Duration;

use syncline::Device;
use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::negotiate::{Needs, Party};
use syncline::prelude::*;
use syncline::process::Endpoint;

const PATIENCE: Duration = Duration::from_secs(30);
const INFO: ImageInfo = ImageInfo::d2(Format::Rgba8Unorm, 640, 360, ImageUsage::SAMPLED);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let has = |option: &str| std::env::args().any(|argument| argument == option);
    let (writes, no_sync) = (has("--writes"), has("--no-sync"));
    let (endpoint, child) = if writes {
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        (Endpoint::open(socket, "reader", PATIENCE)?, None)
    } else {
        let (ours, theirs) = Endpoint::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args().skip(1)).arg("--writes");
        let child = command.stdin(theirs).spawn()?;
        (Endpoint::open(ours, "writer", PATIENCE)?, Some(child))
    };
    // SAFETY: the other process is this same program, which sends the handles that it says.
    unsafe { endpoint.trust_handles() };
    let (cuda, vulkan) = Inventory::probe(&ProbeOptions::default()).pair()?;
    let device = match writes {
        true => Device::from(cuda),
        false => Device::from(vulkan),
    };
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let (own, devices) = (Party::of(&device).needing(Needs::MEMORY), [device]);
    let line = |label, signals| {
        let own = own.clone();
        let own = if signals { own.signals() } else { own.waits() };
        endpoint.timeline(label, own, &devices, PATIENCE)
    };
    // The same two in one order. Vulkan makes the image, because CUDA exports none.
    let (read, written) = (line("read", !writes)?, line("written", writes)?);
    let plan = read.plan();
    let image = plan.image_across("image", &INFO, &devices, &[&endpoint], PATIENCE)?;
    let (id, image) = &image[0]; // of the only device here
    let Some(mut child) = child else {
        let (read, written) = (read.wait_only(*id)?, written.signal_only(*id)?);
        return Ok(frames::write(&queue, image, &read, &written, no_sync)?);
    };
    let (read, written) = (read.signal_only(*id)?, written.wait_only(*id)?);
    frames::read(&queue, image, &read, &written, no_sync)?;
    child.wait()?;
    Ok(())
}
