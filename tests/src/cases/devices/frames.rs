//! T2, Q2, E1, E2: frames of another library, which signals the semaphore of a frame, too.
//!
//! The frames have the shape of FFmpeg's `AVVkFrame`: a semaphore, its value, and a lock. Each
//! submission waits for the value and signals the next one, under the lock.

#![allow(unsafe_code, reason = "another library's handles are raw")]

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use syncline::Error;
use syncline::vulkan::Device;
use syncline::vulkan::ash::vk;

use super::adopted::corrupted;
use super::vulkan::{application_makes, counter, vulkan_device};
use crate::blocked::join;
use crate::case::{Stop, Verdict, check, check_error, equipped_cases, wrong};
use crate::user::{Point, Queue, Timeline};
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

/// The frame of another library, which knows nothing of Syncline, and its timeline here.
struct Frame<'w> {
    device: &'w Device,
    /// Both use one `VkQueue`, and its lock.
    queue: Queue<Equipped>,
    semaphore: vk::Semaphore,
    line: Timeline<Equipped>,
}

impl<'w> Frame<'w> {
    fn new(world: &'w World<Equipped>) -> Result<Self, Stop> {
        let device = vulkan_device(world)?;
        let queue = world.left_queue("queue")?;
        let semaphore = application_makes(device, vk::SemaphoreType::TIMELINE)?;
        // SAFETY: a timeline semaphore of the device. The case destroys it at its end. The library
        // signals it as the function demands, except where a case breaks a promise.
        let (port, value) = unsafe { device.adopt_semaphore(semaphore, false) }?;
        let ports = |_| Ok([port].into_iter().collect());
        let line = world
            .left
            .own(syncline::Timeline::new("frame", value, ports)?);
        Ok(Self {
            device,
            queue,
            semaphore,
            line,
        })
    }

    /// Makes the other library submit a wait for `wait` and a signal of `signal`.
    fn submit(&self, wait: u64, signal: u64) -> syncline::Result<()> {
        let syncline::Queue::Vulkan(queue) = self.queue.library() else {
            return Err(crate::cases::cause("not a queue of Vulkan"));
        };
        let (semaphores, waits, signals) = ([self.semaphore], [wait], [signal]);
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

    /// The other library signals the first value, and promises it here.
    fn begin(&self) -> syncline::Result<()> {
        self.submit(FIRST, 6)?;
        self.line.signalled_by_others(6)
    }

    /// Checks the counter as the other library sees it.
    #[track_caller]
    fn is_at(&self, value: u64) -> Verdict {
        let seen = counter(self.device, self.semaphore)?;
        if seen != value {
            return wrong(
                format!("the counter is {seen}, not {value}"),
                format_args!(""),
            );
        }
        Ok(())
    }

    /// Waits for a value as the other library does.
    fn wait(&self, value: u64) -> Verdict {
        let (semaphores, values) = ([self.semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default()
            .semaphores(&semaphores)
            .values(&values);
        let limit = patience().as_nanos() as u64;
        // SAFETY: a live timeline semaphore, and its value.
        match unsafe { self.device.raw().wait_semaphores(&info, limit) } {
            Err(vk::Result::TIMEOUT) => self.is_at(value),
            code => Ok(code.map_err(Error::work)?),
        }
    }

    /// Waits until all work is done, and destroys the semaphore after its timeline.
    ///
    /// Until the timeline is gone, the device's watching thread may be in a wait for the semaphore.
    /// The drop of the timeline waits for that thread, at most 50 ms.
    fn end(self) -> Verdict {
        self.queue.idle(patience())?;
        drop(self.line);
        let syncline::Queue::Vulkan(queue) = self.queue.library() else {
            return Stop::fail("not a queue of Vulkan");
        };
        let (guard, raw) = (queue.lock()?, self.device.raw());
        // SAFETY: the queue is locked, and no submission uses the semaphore after that.
        unsafe {
            raw.queue_wait_idle(guard.raw()).map_err(Error::work)?;
            raw.destroy_semaphore(self.semaphore, None);
        }
        Ok(())
    }
}

/// Checks that a wait times out, and that the error has this text.
#[track_caller]
fn times_out(point: Point<'_, Equipped>, text: &str) -> Verdict {
    match point.wait(Duration::from_millis(1)) {
        Err(error @ Error::TimedOut { .. }) if error.to_string().contains(text) => Ok(()),
        other => wrong(
            format!("{other:?}, not a time-out with {text:?}"),
            format_args!(""),
        ),
    }
}

/// Another library and this engine use one frame 300 times each, on two threads.
///
/// Every submission waits for the one before and signals the next value.
fn frames(world: &World<Equipped>) -> Verdict {
    const FRAMES: u64 = 300;
    let frame = Frame::new(world)?;
    let (line, value) = (&frame.line, Mutex::new(FIRST));
    let by_turns = |signal: &(dyn Fn(u64) -> syncline::Result<()> + Sync)| {
        (0..FRAMES).try_for_each(|_| {
            let mut value = value.lock().unwrap_or_else(PoisonError::into_inner);
            signal(*value)?;
            *value += 1;
            Ok::<_, Error>(())
        })
    };
    let (others, own) = thread::scope(|scope| {
        let others = scope.spawn(|| by_turns(&|value| frame.submit(value, value + 1)));
        let own = by_turns(&|value| {
            line.signalled_by_others(value)?;
            let signal = line.signal_at(value + 1);
            let submitted = frame.queue.submit_empty(&[line.at(value)], &[signal])?;
            submitted.wait_submitted(patience())
        });
        (join(others), own)
    });
    own?;
    others??;
    let last = FIRST + 2 * FRAMES;
    line.signalled_by_others(last)?;
    line.at(last).wait(patience())?;
    frame.is_at(last)?;
    frame.end()
}

/// A wait for a value without a promise is held, and its time-out says so.
fn promised(world: &World<Equipped>) -> Verdict {
    let (frame, stall) = (Frame::new(world)?, world.left.stall()?);
    let (line, waiting) = (&frame.line, world.left_queue("waiting")?);
    let after = waiting.submit_empty(&[line.at(6)], &[line.signal_at(7)])?;
    check!(after.is_held());
    times_out(after.end(), "to 6 by something outside the engine")?;
    frame.queue.block(&stall)?;
    frame.begin()?;
    // The promise releases it, and not the value.
    after.wait_submitted(patience())?;
    check!(!line.at(6).is_reached()?);
    times_out(line.at(6), "others have promised it up to 6")?;
    stall.release()?;
    line.at(7).wait(patience())?;
    waiting.idle(patience())?;
    frame.end()
}

/// The other library waits for 7 on the `VkQueue`, before that signal of ours is pending there.
///
/// It breaks the rule of the lock. Both stand still, and each time-out names the missing promise.
/// The host's signal in place of the skipped submission ends it.
fn foreign_wait(world: &World<Equipped>) -> Verdict {
    let (frame, gate) = (Frame::new(world)?, world.timeline("gate")?);
    let line = &frame.line;
    let held = frame
        .queue
        .submit_empty(&[gate.at(1), line.at(6)], &[line.signal_at(7)])?;
    frame.submit(7, 8)?;
    for (point, missing) in [(held.end(), 6), (line.at(7), 6), (line.at(8), 8)] {
        times_out(
            point,
            &format!("to {missing} by something outside the engine"),
        )?;
    }
    frame.is_at(FIRST)?;
    gate.fail(Error::NothingToWaitFor);
    check_error!(held.wait_submitted(patience()), Skipped);
    // The other library signals 6 from elsewhere, and gets 7 from the host.
    let info = vk::SemaphoreSignalInfo::default()
        .semaphore(frame.semaphore)
        .value(6);
    // SAFETY: a live timeline semaphore below that value.
    unsafe { frame.device.raw().signal_semaphore(&info) }.map_err(Error::work)?;
    frame.wait(8)?;
    frame.end()
}

/// The other library signals 8, while 7 is a held signal of this engine.
fn broken(world: &World<Equipped>) -> Verdict {
    let (frame, gate) = (Frame::new(world)?, world.timeline("gate")?);
    let (line, queue) = (&frame.line, &frame.queue);
    frame.begin()?;
    let held = queue.submit_empty(&[gate.at(1)], &[line.signal_at(7)])?;
    frame.submit(6, 8)?;
    frame.wait(8)?;
    gate.signal(1)?;
    corrupted(held.wait_submitted(patience()), 8)?;
    check!(line.at(7).wait(patience()).is_err());
    queue.submit_empty(&[], &[])?.end().wait(patience())?;
    frame.is_at(8)?;
    frame.end()
}

/// The driver has refused 6 once. It is held again, and the other library signals it.
fn refused(world: &World<Equipped>) -> Verdict {
    let (frame, gate) = (Frame::new(world)?, world.timeline("gate")?);
    let line = &frame.line;
    let fails = |_: &mut syncline::Recorder<'_>| Err(crate::cases::cause("refused once"));
    check_error!(
        frame.queue.submit(&[], fails, &[line.signal_at(6)]),
        Error::Work(_)
    );
    frame
        .queue
        .submit_empty(&[gate.at(1)], &[line.signal_at(6)])?;
    frame.submit(FIRST, 6)?;
    frame.wait(6)?;
    corrupted(line.at(6).wait(patience()), 6)?;
    gate.signal(1)?;
    frame.end()
}

/// Submissions of this engine are skipped, while the other library waits for their signals.
///
/// The failure stays on this side. Each signal comes after the one before it.
fn skipped(world: &World<Equipped>) -> Verdict {
    let (frame, gate) = (Frame::new(world)?, world.timeline("gate")?);
    let (line, queue) = (&frame.line, &frame.queue);
    let (other, stall) = (world.left_queue("other")?, world.left.stall()?);
    let held = queue.submit_empty(&[gate.at(1), line.at(6)], &[line.signal_at(7)])?;
    let next = other.submit_empty(&[line.at(7)], &[line.signal_at(8)])?;
    gate.fail(Error::NothingToWaitFor);
    for skipped in [held, next] {
        check_error!(skipped.wait_submitted(patience()), Skipped);
    }
    check_error!(line.at(7).wait(patience()), Failed);
    // A value that the other library has not signalled yet is not passed.
    queue.block(&stall)?;
    frame.submit(FIRST, 6)?;
    frame.is_at(FIRST)?;
    frame.submit(8, 9)?;
    stall.release()?;
    frame.wait(9)?;
    check_error!(
        queue.submit_empty(&[gate.at(1)], &[line.signal_at(10)]),
        Failed
    );
    frame.end()
}

/// The application drops the failed timeline, while the other library waits for its signal.
fn dropped(world: &World<Equipped>) -> Verdict {
    let (frame, gate) = (Frame::new(world)?, world.timeline("gate")?);
    frame.begin()?;
    let signals = [frame.line.signal_at(7)];
    let held = frame.queue.submit_empty(&[gate.at(1)], &signals)?;
    gate.fail(Error::NothingToWaitFor);
    check_error!(held.wait_submitted(patience()), Skipped);
    let mut frame = frame;
    // In its place, a timeline that nothing uses.
    drop(std::mem::replace(
        &mut frame.line,
        world.timeline("another")?,
    ));
    frame.submit(7, 8)?;
    frame.wait(8)?;
    frame.end()
}

/// A later submission is skipped, while the work before it runs.
///
/// The signal of that work comes after the work, although the timeline has failed.
fn after_the_work(world: &World<Equipped>) -> Verdict {
    let (frame, other) = (Frame::new(world)?, world.left_queue("other")?);
    let (gate, never) = (world.timeline("gate")?, world.timeline("never")?);
    let (line, stall) = (&frame.line, world.left.stall()?);
    frame.begin()?;
    line.at(6).wait(patience())?;
    let latch = stall.latch();
    let work = move |recorder: &mut syncline::Recorder<'_>| latch.block(recorder);
    let work = frame
        .queue
        .submit(&[gate.at(1)], work, &[line.signal_at(7)])?;
    let next = other.submit_empty(&[never.at(1)], &[line.signal_at(8)])?;
    never.fail(Error::NothingToWaitFor);
    check_error!(next.wait_submitted(patience()), Skipped);
    gate.signal(1)?;
    work.wait_submitted(patience())?;
    // A signal in place of the work would come in this time.
    thread::sleep(Duration::from_millis(300));
    frame.is_at(6)?;
    stall.release()?;
    frame.wait(8)?;
    frame.end()
}
