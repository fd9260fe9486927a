//! Submissions that use shared memory which their device does not own.
#![allow(unsafe_code, reason = "calls Vulkan")]

use ash::vk;

use crate::Case;
use crate::gpu::{BYTES, Driver, Gpu};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("ownership_is_followed", followed),
    ("misused_memory_fails_the_submission", misused),
    ("a_failed_submission_signals_nothing", signals),
];

const REFUSED: Result<(), vk::Result> = Err(vk::Result::ERROR_VALIDATION_FAILED_EXT);
const FOREIGN: u32 = vk::QUEUE_FAMILY_FOREIGN_EXT;
const EXTERNAL: u32 = vk::QUEUE_FAMILY_EXTERNAL;
const IGNORED: u32 = vk::QUEUE_FAMILY_IGNORED;

fn submit(gpu: &Gpu, commands: &[vk::CommandBuffer]) -> Result<(), vk::Result> {
    gpu.try_submit(&[], commands, &[], vk::Fence::null())
}

/// A transfer by `vkCmdPipelineBarrier2`, of all of the buffer.
fn transfer2(gpu: &Gpu, buffer: vk::Buffer, from: u32, to: u32) -> vk::CommandBuffer {
    let barrier = vk::BufferMemoryBarrier2::default()
        .buffer(buffer)
        .size(BYTES)
        .src_queue_family_index(from)
        .dst_queue_family_index(to);
    let barriers = [barrier];
    let info = vk::DependencyInfo::default().buffer_memory_barriers(&barriers);
    // SAFETY: a command buffer in recording, and a live buffer.
    gpu.record(|commands| unsafe { gpu.device.cmd_pipeline_barrier2(commands, &info) })
}

fn followed(driver: &Driver) {
    let (ours, theirs) = driver.open_two();
    let buffer = ours.buffer(None);
    let other = theirs.buffer(Some(ours.export_memory(&buffer)));
    let seen = theirs.buffer(None);
    // Each command buffer is submitted again and again, also twice in one batch.
    let (fill, copy) = (ours.fill(&buffer, 7), theirs.copy(&other, &seen));
    for _ in 0..3 {
        assert_eq!(submit(&ours, &[fill, fill]), Ok(()));
        ours.idle();
        assert_eq!(submit(&theirs, &[copy]), Ok(()));
        theirs.idle();
    }
    assert_eq!(theirs.read(&seen), 7);
    // All kinds of transfers, of which those within the device are none.
    let take = transfer2(&theirs, other.raw, FOREIGN, IGNORED);
    let none = transfer2(&theirs, other.raw, IGNORED, IGNORED);
    let give = transfer2(&theirs, other.raw, 0, EXTERNAL);
    let read = theirs.record(|commands| theirs.add_copy(commands, &other, &seen));
    assert_eq!(submit(&theirs, &[take, none, read, give]), Ok(()));
    assert_eq!(submit(&theirs, &[none, read]), REFUSED);
    theirs.idle();
}

fn misused(driver: &Driver) {
    let (ours, theirs) = driver.open_two();
    let buffer = ours.buffer(None);
    let other = theirs.buffer(Some(ours.export_memory(&buffer)));
    let seen = theirs.buffer(None);
    let read = theirs.record(|commands| theirs.add_copy(commands, &other, &seen));
    let take = theirs.record(|commands| theirs.acquire(commands, &other));
    let write = theirs.record(|commands| theirs.add_fill(commands, &other, 9));
    let give = theirs.record(|commands| theirs.release(commands, &other));
    // What is imported is of others.
    assert_eq!(submit(&theirs, &[read]), REFUSED);
    assert_eq!(submit(&theirs, &[take, take]), REFUSED);
    assert_eq!(submit(&theirs, &[take, read, write]), Ok(()));
    // What was written and not released.
    assert_eq!(submit(&theirs, &[take, read]), REFUSED);
    assert_eq!(submit(&theirs, &[give, give]), REFUSED);
    assert_eq!(submit(&theirs, &[give]), Ok(()));
    assert_eq!(submit(&theirs, &[read]), REFUSED);
    assert_eq!(submit(&theirs, &[take, read]), Ok(()));
    theirs.idle();
    assert_eq!(theirs.read(&seen), 9);
}

fn signals(driver: &Driver) {
    let gpu = driver.open();
    let (buffer, frames) = (gpu.buffer(None), gpu.shared_timeline(0));
    let take = gpu.record(|commands| gpu.acquire(commands, &buffer));
    let none = vk::Fence::null();
    let told = gpu.try_submit(&[], &[take, take], &[(frames, 1)], none);
    assert_eq!((told, gpu.value(frames)), (REFUSED, 0));
    gpu.submit(&[], &[take], &[(frames, 1)]);
    gpu.wait(frames, 1);
}
