//! D1–D6: what devices tell, and what an application brings along.

use syncline::{BackendKind, Inventory, ProbeOptions, QueueKind};

use crate::case::{Case, Stop, Verdict, check};
use crate::workload::Equipped;
use crate::{Settings, World, patience};

/// The cases of this family; they need the devices of this project.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    vec![
        Case {
            id: "device.two_users_do_not_meet",
            rules: &["D1"],
            run: two_users,
        },
        Case {
            id: "device.unknown_names_are_answered",
            rules: &["D1", "E5"],
            run: unknown_name,
        },
        Case {
            id: "device.identity",
            rules: &["D2"],
            run: identity,
        },
        Case {
            id: "device.capabilities",
            rules: &["D3"],
            run: capabilities,
        },
        #[cfg(any(feature = "cuda", feature = "vulkan"))]
        Case {
            id: "adopted.handles_of_an_application",
            rules: &["D4", "D5"],
            run: raw::adopted,
        },
        #[cfg(any(feature = "cuda", feature = "vulkan"))]
        Case {
            id: "adopted.own_submission_takes_part",
            rules: &["D5", "Q8", "T2"],
            run: raw::own_submission,
        },
        #[cfg(feature = "cuda")]
        Case {
            id: "adopted.default_streams",
            rules: &["D6"],
            run: raw::default_streams,
        },
    ]
}

/// A second inventory, with devices of its own, beside the one that this case came from.
fn two_users(world: &World<Equipped>) -> Verdict {
    let inventory = Inventory::probe(&crate::inventory::options(&Settings::from_env()));
    let info = world.left.info();
    let same = |found: &&syncline::Found| {
        found.info().backend == info.backend
            && found.info().name == info.name
            && found.info().uuid == info.uuid
    };
    let Some(found) = inventory.devices().iter().find(same) else {
        return Stop::fail("a second look does not find the device");
    };
    let other = crate::user::Device::new(Equipped::new(found.open()?)?);
    check!(other.id() != world.left.id(), "two users got one device");
    let line = other.timeline("other")?;
    let (ours, theirs) = (
        world.left_queue("ours")?,
        other.queue(QueueKind::Compute, "theirs")?,
    );
    ours.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    theirs.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    line.at(2).wait(patience())?;
    theirs.idle(patience())?;
    // Only a device that goes shows what it leaves behind.
    drop((theirs, line, other));
    let said = inventory.validation_errors();
    check!(said.is_empty(), "validation: {}", said.join("; "));
    drop(inventory);
    world.left.check()?;
    ours.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    Ok(())
}

fn unknown_name(_: &World<Equipped>) -> Verdict {
    let inventory = Inventory::probe(&ProbeOptions::default());
    for asked in ["no such device", "", "4711", "-1"] {
        match inventory.select(asked) {
            Err(error @ syncline::Error::NoSuchDevice { .. }) => {
                let text = error.to_string();
                for found in inventory.devices() {
                    check!(
                        text.contains(&found.info().name),
                        "{text} does not name {}",
                        found.info().name
                    );
                }
            }
            Err(other) => return Err(other.into()),
            Ok(found) => return Stop::fail(format!("{asked:?} is {}", found.info().name)),
        }
    }
    Ok(())
}

fn identity(world: &World<Equipped>) -> Verdict {
    for device in [&world.left, &world.right] {
        let info = device.info();
        check!(
            !info.name.is_empty() && !info.vendor.is_empty(),
            "no name or no vendor"
        );
        check!(!info.driver.is_empty(), "no driver version");
        check!(
            info.uuid.is_some() == (info.backend != BackendKind::Host),
            "a GPU has a UUID and the host has none, but: {:?}",
            info.uuid
        );
        device.check()?;
    }
    let gpus = (world.left.info().uuid, world.right.info().uuid);
    let same = world.left.info().same_gpu(world.right.info());
    check!(
        same == (gpus.0.is_some() && gpus.0 == gpus.1),
        "GPUs are matched by something else than UUIDs"
    );
    Ok(())
}

fn capabilities(world: &World<Equipped>) -> Verdict {
    for device in [&world.left, &world.right] {
        let can = &device.info().capabilities;
        check!(
            can.max_value_difference > 1 << 30,
            "values may differ by {} only",
            can.max_value_difference
        );
        check!(!can.queues.is_empty(), "no queues");
        check!(
            can.timestamp_bits == 0 || can.timestamp_period_ns > 0.0,
            "timestamps without a period"
        );
        for (what, reason) in &can.limits {
            check!(
                !what.is_empty() && reason.len() > 8,
                "{what:?} is missing for no reason: {reason:?}"
            );
        }
        // What it says it has, it makes.
        for family in &can.queues {
            let queue = device.queue(family.kind, "as promised")?;
            queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
        }
    }
    Ok(())
}

#[cfg(any(feature = "cuda", feature = "vulkan"))]
mod raw {
    #![allow(unsafe_code, reason = "an application's own handles are raw")]

    use std::time::Duration;

    use syncline::backend::{Device as _, Queue as _};
    use syncline::{Device, Error};

    use super::*;
    use crate::case::check_error;

    pub(super) fn adopted(world: &World<Equipped>) -> Verdict {
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
    pub(super) fn own_submission(world: &World<Equipped>) -> Verdict {
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
                let (semaphores, values) =
                    ([device.semaphore_of(line.library())?], [claim.value()]);
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
    pub(super) fn default_streams(world: &World<Equipped>) -> Verdict {
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
}
