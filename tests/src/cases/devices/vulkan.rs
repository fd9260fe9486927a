//! D5, Q8: what only Vulkan has: binary semaphores, its own fences, semaphores of points, queues under a lock.

#![allow(unsafe_code, reason = "an application's own handles are raw")]

use std::sync::Barrier;
use std::thread;

use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::ash::vk;
use syncline::vulkan::{BinarySemaphore, Device};
use syncline::{Error, QueueKind, Recorder};

use crate::blocked::join;
use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::cases::{DELAY, WORDS};
use crate::user::Queue;
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

equipped_cases! {
    "adopted.binary_semaphores_and_fences_ride_along": [Q8] => ride_along;
    "adopted.no_raw_event_of_a_held_fence": [Q8 F2] => no_raw_event;
    "adopted.guards_race_with_submissions": [D5 Q8] => guards;
}

/// A fence of the application's own.
struct OwnFence {
    device: Device,
    raw: vk::Fence,
}

impl OwnFence {
    fn new(device: &Device) -> syncline::Result<Self> {
        // SAFETY: a live device; destroyed on drop.
        let raw = unsafe { device.raw().create_fence(&Default::default(), None) };
        Ok(Self {
            device: device.clone(),
            raw: raw.map_err(Error::work)?,
        })
    }

    /// Waits for it, and makes it ready for its next use.
    fn wait(&self) -> Verdict {
        let limit = patience().as_nanos() as u64;
        // SAFETY: alive, and used by one submission at most.
        unsafe {
            let waited = self.device.raw().wait_for_fences(&[self.raw], true, limit);
            match waited {
                Ok(()) => {}
                Err(vk::Result::TIMEOUT) => return Stop::fail("the fence was never signalled"),
                Err(code) => return Err(Error::work(code).into()),
            }
            self.device
                .raw()
                .reset_fences(&[self.raw])
                .map_err(Error::work)?;
        }
        Ok(())
    }
}

impl Drop for OwnFence {
    fn drop(&mut self) {
        // SAFETY: waited for, or never given to a driver; a case that fails before leaves the device to its
        // process's end.
        unsafe { self.device.raw().destroy_fence(self.raw, None) };
    }
}

fn vulkan_device(world: &World<Equipped>) -> Result<&Device, Stop> {
    match world.left.library() {
        syncline::Device::Vulkan(device) => Ok(device),
        _ => Stop::skip("only Vulkan has them"),
    }
}

/// A chain of submissions that only binary semaphores link, which each of them carries along; the last
/// carries a fence. Twice, on one queue and across several: every signal is consumed.
fn ride_along(world: &World<Equipped>) -> Verdict {
    const LINKS: usize = 32;
    let device = vulkan_device(world)?;
    for count in [1, 4] {
        let queues = (0..count)
            .map(|_| world.left_queue("linked"))
            .collect::<syncline::Result<Vec<_>>>()?;
        let links = (0..LINKS)
            .map(|_| device.binary_semaphore("link"))
            .collect::<syncline::Result<Vec<_>>>()?;
        let buffers = (0..=LINKS)
            .map(|_| world.left.buffer(WORDS))
            .collect::<syncline::Result<Vec<_>>>()?;
        let fence = OwnFence::new(device)?;
        for word in [1, 2] {
            let (busy, to) = (world.left.clone(), buffers[0].clone());
            let first = links[0].clone();
            queues[0].submit(
                &[],
                move |recorder| {
                    busy.busy(recorder, DELAY)?;
                    Equipped::fill(recorder, &to, word)?;
                    carry(recorder, None, Some(&first), vk::Fence::null())
                },
                &[],
            )?;
            for link in 0..LINKS {
                let (from, to) = (buffers[link].clone(), buffers[link + 1].clone());
                let (before, after) = (links[link].clone(), links.get(link + 1).cloned());
                // The last one signals the fence instead.
                let own = if after.is_none() {
                    fence.raw
                } else {
                    vk::Fence::null()
                };
                let queue: &Queue<Equipped> = &queues[(link + 1) % count];
                let submitted = queue.submit(
                    &[],
                    move |recorder| {
                        Equipped::copy(recorder, &from, &to)?;
                        carry(recorder, Some(&before), after.as_ref(), own)
                    },
                    &[],
                )?;
                check!(!submitted.is_held(), "a submission without waits is held");
            }
            fence.wait()?;
            let words = Equipped::read(&buffers[LINKS]);
            let wrong = words.iter().filter(|&&found| found != word).count();
            check!(
                wrong == 0,
                "{wrong} words are wrong at the end of {LINKS} links"
            );
        }
        for queue in &queues {
            queue.idle(patience())?;
        }
    }
    Ok(())
}

/// Adds what only the driver understands to a submission.
fn carry(
    recorder: &mut Recorder<'_>,
    wait: Option<&BinarySemaphore>,
    signal: Option<&BinarySemaphore>,
    fence: vk::Fence,
) -> syncline::Result<()> {
    let Recorder::Vulkan(recorder) = recorder else {
        return Err(crate::cases::cause("not a recorder of Vulkan"));
    };
    // SAFETY: each signal is submitted before its one wait, and consumed before the next round signals
    // again; semaphores and fence outlive the submission, whose end the case waits for.
    unsafe {
        if let Some(wait) = wait {
            recorder.wait_binary(wait.raw(), vk::PipelineStageFlags::ALL_COMMANDS);
        }
        if let Some(signal) = signal {
            recorder.signal_semaphore(signal)?;
        }
        if fence != vk::Fence::null() {
            recorder.fence(fence);
        }
    }
    Ok(())
}

/// The raw semaphore behind a fence is not given while its record is held; once it is with the driver,
/// the semaphore says what the fence says.
fn no_raw_event(world: &World<Equipped>) -> Verdict {
    let device = vulkan_device(world)?;
    let queue = world.left_queue("left")?;
    let gate = world.timeline("gate")?;
    let fence = world.left.fence("fence");
    queue.submit(&[gate.at(1)], |_| Ok(()), &[])?;
    queue.record(&fence)?;
    let mark = fence.point()?;
    let point = mark.point().library();
    check_error!(
        device.semaphore(point),
        Error::NotPending { value, .. } if value == point.value()
    );
    // So for a point that nobody has claimed.
    let line = world.left.timeline("line")?;
    check_error!(
        device.semaphore(line.at(1).library()),
        Error::NotPending { .. }
    );
    gate.signal(1)?;
    queue.settle(patience())?;
    let raw = device.semaphore(point)?;
    let value = || {
        // SAFETY: a semaphore of this device, kept by the fence's point.
        unsafe { device.raw().get_semaphore_counter_value(raw) }.map_err(Error::work)
    };
    let seen = value()?;
    let complete = fence.is_complete()?;
    check!(
        complete || seen < point.value() || value()? >= point.value(),
        "the semaphore is at {seen}, and the fence at {} is not complete",
        point.value()
    );
    fence.wait(patience())?;
    check!(
        value()? >= point.value(),
        "the fence is complete, and the semaphore only at {}",
        value()?
    );
    Ok(())
}

/// Threads lock a queue and submit raw work to it while others submit through the library.
fn guards(world: &World<Equipped>) -> Verdict {
    const EACH: u64 = 50;
    let device = vulkan_device(world)?;
    let one = device.queue(QueueKind::Compute, "one")?;
    let other = device.queue_on(one.family(), one.index(), "other")?;
    let lines = [device.timeline("one")?, device.timeline("other")?];
    let start = Barrier::new(4);
    let raw = || -> Verdict {
        start.wait();
        for _ in 0..EACH {
            let guard = one.lock();
            // SAFETY: the queue is locked; nothing is submitted that would have to live on.
            unsafe {
                let nothing = [vk::SubmitInfo::default()];
                device
                    .raw()
                    .queue_submit(guard.raw(), &nothing, vk::Fence::null())
            }
            .map_err(Error::work)?;
        }
        Ok(())
    };
    let through = |queue: &syncline::vulkan::Queue, own: usize| -> Verdict {
        start.wait();
        for value in 1..=EACH {
            // Each waits for the other's last: whoever finds the queue locked must be let go.
            let waits = [lines[1 - own].at(value - 1)];
            queue.submit(&waits, |_| Ok(()), &[lines[own].signal_at(value)])?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads = [
            scope.spawn(raw),
            scope.spawn(raw),
            scope.spawn(|| through(&one, 0)),
            scope.spawn(|| through(&other, 1)),
        ];
        threads.into_iter().try_for_each(|thread| join(thread)?)
    })?;
    for line in &lines {
        line.at(EACH).wait(patience())?;
    }
    let guard = one.lock();
    check!(guard.held() == 0, "{} are held at the end", guard.held());
    // SAFETY: the queue is locked.
    unsafe { device.raw().queue_wait_idle(guard.raw()) }.map_err(Error::work)?;
    drop(guard);
    one.idle(patience())?;
    other.idle(patience())?;
    Ok(())
}
