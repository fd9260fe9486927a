//! D4, D5, D6, Q8: what an application already has, and gives or lends.

#![allow(unsafe_code, reason = "an application's own handles are raw")]

use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Error, QueueKind};

use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "adopted.handles_of_an_application": [D4 D5] => adopted;
    "adopted.own_submission_takes_part": [D5 Q8 T2] => own_submission;
    #[cfg(feature = "cuda")]
    "adopted.default_streams": [D6] => default_streams;
}

fn adopted(world: &World<Equipped>) -> Verdict {
    match world.left.library() {
        Device::Host(_) => Stop::skip("the host has no handles"),
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            let queue = device.queue(QueueKind::Compute, "owner")?;
            // SAFETY: the stream is alive, and its owner outlives the queue made of it.
            let adopted =
                unsafe { device.adopt_raw_stream(queue.stream().raw(), None, "adopted") }?;
            both_work(world, &queue, &adopted)
        }
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => {
            let queue = device.queue(QueueKind::Compute, "owner")?;
            // One of the two users at a time: this one has the lock, the other submits.
            let guard = queue.lock();
            let info = syncline::vulkan::AdoptInfo {
                entry: device.entry().clone(),
                instance: device.instance().clone(),
                physical: device.physical(),
                device: device.raw().clone(),
                queues: vec![(guard.family(), guard.index(), guard.raw())],
                owner: Some(std::sync::Arc::new(device.clone())),
                enabled: device.enabled(),
            };
            // SAFETY: handles of a device that the owner keeps; the queue is locked for the adopted one.
            let adopted = unsafe { syncline::vulkan::Device::adopt(info) }?;
            let second = adopted.queue_of_family(guard.family(), "adopted")?;
            let line = adopted.timeline("line")?;
            let held = queue.submit(&[line.at(1)], |_| Ok(()), &[])?;
            second.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
            line.at(1).wait(patience())?;
            check!(
                !held.end().is_reached()?,
                "submitted although the application holds the queue"
            );
            drop(guard);
            held.end().wait(patience())?;
            second.idle(patience())?;
            drop((second, line, adopted));
            queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
            Ok(())
        }
    }
}

#[cfg(feature = "cuda")]
fn both_work(
    world: &World<Equipped>,
    queue: &syncline::cuda::Queue,
    adopted: &syncline::cuda::Queue,
) -> Verdict {
    let line = world.timeline("line")?;
    let line = line.library();
    adopted.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    queue.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    adopted.submit(&[line.at(2)], |_| Ok(()), &[line.signal_at(3)])?;
    line.at(3).wait(patience())?;
    Ok(())
}

/// The application claims a value, submits by itself, and says so.
fn own_submission(world: &World<Equipped>) -> Verdict {
    if matches!(world.left.library(), Device::Host(_)) {
        check_error!(
            world.timeline("host")?.claim(1, 0),
            Error::Unsupported { .. }
        );
        return Stop::skip("the host has no raw queue, and says so");
    }
    let line = world.timeline("line")?;
    let right = world.right_queue("waiting")?;
    let gate = world.timeline("gate")?;
    // Behind somebody else's claim that is still held: not ready.
    right.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
    let mut claim = line.claim(2, 0)?;
    check!(
        claim.predecessor() == 1,
        "the claim starts above {}",
        claim.predecessor()
    );
    check_error!(claim.submitted(), Error::NotPending { value: 1, .. });
    check_error!(
        claim.wait_ready(Duration::from_millis(1)),
        Error::TimedOut { value: 1, .. }
    );
    let waiting = right.submit(&[line.at(2)], |_| Ok(()), &[])?;
    gate.signal(1)?;
    line.at(1).wait(patience())?;
    claim.wait_ready(patience())?;
    check!(
        waiting.is_held() && !waiting.end().is_reached()?,
        "a claim alone released a waiter"
    );
    match world.left.library() {
        Device::Host(_) => {}
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            let queue = device.queue(QueueKind::Compute, "application")?;
            if line.devices().next() != Some(device.id()) {
                return Stop::skip("the timeline has no events on this device to signal with");
            }
            // SAFETY: the claim is of this timeline, and the stream is alive.
            unsafe { device.submit_claimed(line.library(), &mut claim, queue.stream().raw()) }?;
        }
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => {
            use syncline::vulkan::ash::vk;
            let queue = device.queue(QueueKind::Compute, "application")?;
            let (semaphores, values) = ([device.semaphore_of(line.library())?], [claim.value()]);
            let mut timeline =
                vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
            let submit = vk::SubmitInfo::default()
                .signal_semaphores(&semaphores)
                .push_next(&mut timeline);
            let guard = queue.lock();
            // SAFETY: the queue is locked; the semaphore lives until the wait below has ended.
            unsafe {
                device
                    .raw()
                    .queue_submit(guard.raw(), &[submit], vk::Fence::null())
            }
            .map_err(Error::work)?;
            claim.submitted()?;
            // Until its own submission has ended, the application keeps what that uses.
            // SAFETY: the queue is locked.
            unsafe { device.raw().queue_wait_idle(guard.raw()) }.map_err(Error::work)?;
            drop(guard);
        }
    }
    waiting.end().wait(patience())?;
    check!(line.value()? == 2, "the value is {}", line.value()?);
    Ok(())
}

#[cfg(feature = "cuda")]
fn default_streams(world: &World<Equipped>) -> Verdict {
    let Device::Cuda(device) = world.left.library() else {
        return Stop::skip("only CUDA has default streams");
    };
    let per_thread = std::ptr::without_provenance_mut(2);
    // SAFETY: a special handle, always valid.
    let refused = unsafe { device.adopt_raw_stream(per_thread, None, "per-thread") };
    check_error!(refused, Error::Unsupported { .. });
    // SAFETY: null is the legacy default stream, always valid.
    let legacy = unsafe { device.adopt_raw_stream(std::ptr::null_mut(), None, "legacy") }?;
    legacy
        .submit(&[], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    Ok(())
}
