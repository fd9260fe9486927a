//! T2, Q2, E1, E2: frames of another library, which signals the semaphore of a frame, too.
//!
//! The frames have the shape of FFmpeg's `AVVkFrame`: a semaphore, its value, and a lock. Each
//! submission waits for the value and signals the next one, under the lock.

#![allow(unsafe_code, reason = "another library's handles are raw")]

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use syncline::vulkan::Device;
use syncline::vulkan::ash::vk;
use syncline::{Error, Timeline};

use super::vulkan::{application_makes, counter, vulkan_device};
use crate::blocked::join;
use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::user;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "adopted.frames_of_another_library": [T2 T3 D5] => frames;
    "adopted.a_promise_releases_what_waits": [T2 Q2 Q4] => promised;
    "adopted.a_foreign_wait_before_a_held_signal": [T2 Q2 Q4 E2] => foreign_wait;
    "adopted.a_broken_promise_signals_nothing": [T2 E1] => broken;
    "adopted.a_refused_signal_counts_as_not_made": [T2 Q5] => refused;
    "adopted.others_get_the_signal_of_skipped_work": [E2] => skipped;
    "adopted.others_get_a_signal_after_the_timeline_is_dropped": [E2] => dropped;
    "adopted.others_get_a_signal_after_its_work": [E2] => after_the_work;
}

/// The value that [`application_makes`] gives a semaphore.
const FIRST: u64 = 5;

/// A frame of another library.
struct Frame {
    semaphore: vk::Semaphore,
    value: Mutex<u64>,
}

/// Another library, which knows nothing of Syncline. It has a lock for the `VkQueue`.
struct Library<'w> {
    device: &'w Device,
    queue: &'w user::Queue<Equipped>,
}

impl<'w> Library<'w> {
    fn new(device: &'w Device, queue: &'w user::Queue<Equipped>) -> Self {
        Self { device, queue }
    }

    /// Submits a wait for `wait` and a signal of `signal`.
    fn submit(&self, semaphore: vk::Semaphore, wait: u64, signal: u64) -> syncline::Result<()> {
        let syncline::Queue::Vulkan(queue) = self.queue.library() else {
            return Err(crate::cases::cause("not a queue of Vulkan"));
        };
        let (semaphores, waits, signals) = ([semaphore], [wait], [signal]);
        let mut values = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&waits)
            .signal_semaphore_values(&signals);
        let submit = vk::SubmitInfo::default()
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&[vk::PipelineStageFlags::ALL_COMMANDS])
            .signal_semaphores(&semaphores)
            .push_next(&mut values);
        let guard = queue.lock()?;
        // SAFETY: the queue is locked, and the case keeps the semaphore until the queue is idle.
        unsafe {
            let raw = self.device.raw();
            raw.queue_submit(guard.raw(), &[submit], vk::Fence::null())
        }
        .map_err(Error::work)
    }

    /// Uses a frame.
    fn use_frame(&self, frame: &Frame) -> syncline::Result<()> {
        let mut value = frame.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.submit(frame.semaphore, *value, *value + 1)?;
        *value += 1;
        Ok(())
    }
}

/// Adopts the semaphore of a frame, which the case destroys.
fn adopt(
    world: &World<Equipped>,
    device: &Device,
    semaphore: vk::Semaphore,
) -> syncline::Result<user::Timeline<Equipped>> {
    // SAFETY: a timeline semaphore of the device. The case destroys it at its end. The library
    // signals it as the function demands, except where a case breaks a promise.
    let (port, value) = unsafe { device.adopt_semaphore(semaphore, false) }?;
    let mut port = Some(port);
    let line = Timeline::new("frame", value, |_| Ok(port.take().into_iter().collect()))?;
    Ok(world.left.own(line))
}

/// Waits until all work is done, and destroys the semaphore after its timeline.
///
/// Until the timeline is gone, the device's watching thread may be in a wait for the semaphore. The
/// drop of the timeline waits for that thread, at most 50 ms.
fn destroy(
    device: &Device,
    queue: &user::Queue<Equipped>,
    line: Option<user::Timeline<Equipped>>,
    semaphore: vk::Semaphore,
) -> Verdict {
    queue.idle(patience())?;
    drop(line);
    if let syncline::Queue::Vulkan(queue) = queue.library() {
        let guard = queue.lock()?;
        // SAFETY: the queue is locked, and no submission uses the semaphore after that.
        unsafe {
            device
                .raw()
                .queue_wait_idle(guard.raw())
                .map_err(Error::work)?;
            device.raw().destroy_semaphore(semaphore, None);
        }
    }
    Ok(())
}

/// Waits for a value as the other library does.
fn wait_natively(device: &Device, semaphore: vk::Semaphore, value: u64) -> Verdict {
    let (semaphores, values) = ([semaphore], [value]);
    let info = vk::SemaphoreWaitInfo::default()
        .semaphores(&semaphores)
        .values(&values);
    let limit = patience().as_nanos() as u64;
    // SAFETY: a live timeline semaphore, and its value.
    match unsafe { device.raw().wait_semaphores(&info, limit) } {
        Ok(()) => Ok(()),
        Err(vk::Result::TIMEOUT) => Stop::fail(format!(
            "the other library waits for {value} in vain: it is at {}",
            counter(device, semaphore)?
        )),
        Err(code) => Err(Error::work(code).into()),
    }
}

/// Another library and this engine use one frame 300 times each, on two threads.
///
/// Every submission waits for the one before and signals the next value.
fn frames(world: &World<Equipped>) -> Verdict {
    const FRAMES: u64 = 300;
    let device = vulkan_device(world)?;
    let queue = world.left_queue("queue")?;
    let frame = Frame {
        semaphore: application_makes(device, vk::SemaphoreType::TIMELINE)?,
        value: Mutex::new(FIRST),
    };
    let line = adopt(world, device, frame.semaphore)?;
    let theirs = Library::new(device, &queue);
    let used = thread::scope(|scope| {
        let others = scope.spawn(|| (0..FRAMES).try_for_each(|_| theirs.use_frame(&frame)));
        let own = (0..FRAMES).try_for_each(|_| {
            let mut value = frame.value.lock().unwrap_or_else(PoisonError::into_inner);
            line.signalled_by_others(*value)?;
            let (wait, signal) = (line.at(*value), line.signal_at(*value + 1));
            let submitted = queue.submit(&[wait], |_| Ok(()), &[signal])?;
            submitted.wait_submitted(patience())?;
            *value += 1;
            Ok(())
        });
        (join(others), own)
    });
    let (others, own): (Result<syncline::Result<()>, Stop>, syncline::Result<()>) = used;
    own?;
    others??;
    let last = FIRST + 2 * FRAMES;
    line.signalled_by_others(last)?;
    line.at(last).wait(patience())?;
    let seen = counter(device, frame.semaphore)?;
    check!(
        seen == last,
        "after {FRAMES} frames of both it is at {seen}"
    );
    destroy(device, &queue, Some(line), frame.semaphore)
}

/// A wait for a value without a promise is held, and its time-out says so.
fn promised(world: &World<Equipped>) -> Verdict {
    let device = vulkan_device(world)?;
    let (queue, stall) = (world.left_queue("queue")?, world.left.stall()?);
    let semaphore = application_makes(device, vk::SemaphoreType::TIMELINE)?;
    let line = adopt(world, device, semaphore)?;
    let waiting = world.left_queue("waiting")?;
    let after = waiting.submit(&[line.at(6)], |_| Ok(()), &[line.signal_at(7)])?;
    check!(
        after.is_held(),
        "a wait for a value without a promise is with the driver"
    );
    let late = match after.end().wait(Duration::from_millis(1)) {
        Err(error @ Error::TimedOut { .. }) => error.to_string(),
        other => return Stop::fail(format!("no time-out: {other:?}")),
    };
    check!(
        late.contains("to 6 by something outside the engine"),
        "the missing promise is not in {late:?}"
    );
    queue.block(&stall)?;
    Library::new(device, &queue).submit(semaphore, FIRST, 6)?;
    line.signalled_by_others(6)?;
    // The promise releases it, and not the value.
    after.wait_submitted(patience())?;
    check!(
        !line.at(6).is_reached()?,
        "the queue stands, and 6 is reached"
    );
    let late = match line.at(6).wait(Duration::from_millis(1)) {
        Err(error @ Error::TimedOut { .. }) => error.to_string(),
        other => return Stop::fail(format!("no time-out: {other:?}")),
    };
    check!(
        late.contains("others have promised it up to 6"),
        "the promise is not in {late:?}"
    );
    stall.release()?;
    line.at(7).wait(patience())?;
    waiting.idle(patience())?;
    destroy(device, &queue, Some(line), semaphore)
}

/// The other library waits for 7 on the `VkQueue`, before that signal of ours is pending there.
///
/// It breaks the rule of the lock. Both stand still, and each time-out names the missing promise.
/// The host's signal in place of the skipped submission ends it.
fn foreign_wait(world: &World<Equipped>) -> Verdict {
    let device = vulkan_device(world)?;
    let (queue, gate) = (world.left_queue("queue")?, world.timeline("gate")?);
    let semaphore = application_makes(device, vk::SemaphoreType::TIMELINE)?;
    let line = adopt(world, device, semaphore)?;
    let held = queue.submit(&[gate.at(1), line.at(6)], |_| Ok(()), &[line.signal_at(7)])?;
    let theirs = Library::new(device, &queue);
    theirs.submit(semaphore, 7, 8)?;
    for (point, missing) in [
        (held.end().keep(), 6),
        (line.at(7).keep(), 6),
        (line.at(8).keep(), 8),
    ] {
        let late = match point.point().wait(Duration::from_millis(1)) {
            Err(error @ Error::TimedOut { .. }) => error.to_string(),
            other => return Stop::fail(format!("no time-out: {other:?}")),
        };
        let expected = format!("to {missing} by something outside the engine");
        check!(late.contains(&expected), "{expected:?} is not in {late:?}");
    }
    let seen = counter(device, semaphore)?;
    check!(seen == FIRST, "the counter is at {seen} before any signal");
    gate.fail(Error::NothingToWaitFor);
    check_error!(held.wait_submitted(patience()), Error::Skipped { .. });
    // The other library signals 6 from elsewhere, and gets 7 from the host.
    let info = vk::SemaphoreSignalInfo::default()
        .semaphore(semaphore)
        .value(6);
    // SAFETY: a live timeline semaphore below that value.
    unsafe { device.raw().signal_semaphore(&info) }.map_err(Error::work)?;
    wait_natively(device, semaphore, 8)?;
    destroy(device, &queue, Some(line), semaphore)
}

/// The other library signals 8, while 7 is a held signal of this engine.
fn broken(world: &World<Equipped>) -> Verdict {
    let device = vulkan_device(world)?;
    let queue = world.left_queue("queue")?;
    let semaphore = application_makes(device, vk::SemaphoreType::TIMELINE)?;
    let (line, gate) = (adopt(world, device, semaphore)?, world.timeline("gate")?);
    let theirs = Library::new(device, &queue);
    theirs.submit(semaphore, FIRST, 6)?;
    line.signalled_by_others(6)?;
    let held = queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(7)])?;
    theirs.submit(semaphore, 6, 8)?;
    wait_natively(device, semaphore, 8)?;
    gate.signal(1)?;
    let refused = held.wait_submitted(patience());
    check!(
        matches!(&refused, Err(error) if matches!(error.root(), Error::Corrupted { found: 8, .. })),
        "7 is to be signalled after 8: {refused:?}"
    );
    let seen = line.at(7).wait(patience());
    check!(
        seen.is_err(),
        "7 counts as reached, and nothing has signalled it"
    );
    queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    let seen = counter(device, semaphore)?;
    check!(seen == 8, "the counter fell from 8 to {seen}");
    destroy(device, &queue, Some(line), semaphore)
}

/// The driver has refused 6 once. It is held again, and the other library signals it.
fn refused(world: &World<Equipped>) -> Verdict {
    let device = vulkan_device(world)?;
    let queue = world.left_queue("queue")?;
    let semaphore = application_makes(device, vk::SemaphoreType::TIMELINE)?;
    let (line, gate) = (adopt(world, device, semaphore)?, world.timeline("gate")?);
    let fails = |_: &mut syncline::Recorder<'_>| Err(crate::cases::cause("refused once"));
    let refused = queue.submit(&[], fails, &[line.signal_at(6)]);
    check_error!(refused, Error::Work(_));
    let _held = queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(6)])?;
    Library::new(device, &queue).submit(semaphore, FIRST, 6)?;
    wait_natively(device, semaphore, 6)?;
    let seen = line.at(6).wait(patience());
    check!(
        matches!(&seen, Err(error) if matches!(error.root(), Error::Corrupted { found: 6, .. })),
        "the other library has signalled a claimed value: {seen:?}"
    );
    gate.signal(1)?;
    destroy(device, &queue, Some(line), semaphore)
}

/// Submissions of this engine are skipped, while the other library waits for their signals.
///
/// The failure stays on this side. Each signal comes after the one before it.
fn skipped(world: &World<Equipped>) -> Verdict {
    let device = vulkan_device(world)?;
    let (queue, other) = (world.left_queue("queue")?, world.left_queue("other")?);
    let (gate, stall) = (world.timeline("gate")?, world.left.stall()?);
    let semaphore = application_makes(device, vk::SemaphoreType::TIMELINE)?;
    let line = adopt(world, device, semaphore)?;
    let theirs = Library::new(device, &queue);
    let held = queue.submit(&[gate.at(1), line.at(6)], |_| Ok(()), &[line.signal_at(7)])?;
    let next = other.submit(&[line.at(7)], |_| Ok(()), &[line.signal_at(8)])?;
    gate.fail(Error::NothingToWaitFor);
    for skipped in [held, next] {
        check_error!(skipped.wait_submitted(patience()), Error::Skipped { .. });
    }
    check_error!(line.at(7).wait(patience()), Error::Failed { .. });
    // A value that the other library has not signalled yet is not passed.
    queue.block(&stall)?;
    theirs.submit(semaphore, FIRST, 6)?;
    let seen = counter(device, semaphore)?;
    check!(
        seen == FIRST,
        "the counter is at {seen} before the signal of 6"
    );
    theirs.submit(semaphore, 8, 9)?;
    stall.release()?;
    wait_natively(device, semaphore, 9)?;
    let refused = queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(10)]);
    check_error!(refused, Error::Failed { .. });
    destroy(device, &queue, Some(line), semaphore)
}

/// The application drops the failed timeline, while the other library waits for its signal.
fn dropped(world: &World<Equipped>) -> Verdict {
    let device = vulkan_device(world)?;
    let (queue, gate) = (world.left_queue("queue")?, world.timeline("gate")?);
    let semaphore = application_makes(device, vk::SemaphoreType::TIMELINE)?;
    let line = adopt(world, device, semaphore)?;
    let theirs = Library::new(device, &queue);
    theirs.submit(semaphore, FIRST, 6)?;
    line.signalled_by_others(6)?;
    let held = queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(7)])?;
    gate.fail(Error::NothingToWaitFor);
    check_error!(held.wait_submitted(patience()), Error::Skipped { .. });
    drop(line);
    theirs.submit(semaphore, 7, 8)?;
    wait_natively(device, semaphore, 8)?;
    destroy(device, &queue, None, semaphore)
}

/// A later submission is skipped, while the work before it runs.
///
/// The signal of that work comes after the work, although the timeline has failed.
fn after_the_work(world: &World<Equipped>) -> Verdict {
    let device = vulkan_device(world)?;
    let (queue, other) = (world.left_queue("queue")?, world.left_queue("other")?);
    let (gate, never) = (world.timeline("gate")?, world.timeline("never")?);
    let stall = world.left.stall()?;
    let semaphore = application_makes(device, vk::SemaphoreType::TIMELINE)?;
    let line = adopt(world, device, semaphore)?;
    Library::new(device, &queue).submit(semaphore, FIRST, 6)?;
    line.signalled_by_others(6)?;
    line.at(6).wait(patience())?;
    let latch = stall.latch();
    let work = queue.submit(
        &[gate.at(1)],
        move |recorder| latch.block(recorder),
        &[line.signal_at(7)],
    )?;
    let next = other.submit(&[never.at(1)], |_| Ok(()), &[line.signal_at(8)])?;
    never.fail(Error::NothingToWaitFor);
    check_error!(next.wait_submitted(patience()), Error::Skipped { .. });
    gate.signal(1)?;
    work.wait_submitted(patience())?;
    // A signal in place of the work would come in this time.
    thread::sleep(Duration::from_millis(300));
    let seen = counter(device, semaphore)?;
    check!(
        seen == 6,
        "the counter is at {seen} while the work before 7 runs"
    );
    stall.release()?;
    wait_natively(device, semaphore, 8)?;
    destroy(device, &queue, Some(line), semaphore)
}
