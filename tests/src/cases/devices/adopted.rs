//! D4, D5, D6, Q8: objects that an application has, and gives or lends.

#![allow(unsafe_code, reason = "an application's own handles are raw")]

use std::sync::Weak;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Claim, Device, Error, Point, Queue, QueueKind, Timeline};

use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases, wrong};
use crate::cases::clocks::Seen;
use crate::cases::work::unheard;
use crate::cases::{WORDS, filling, is_filled};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "adopted.handles_of_an_application": [D4 D5] => adopted;
    "adopted.owners_are_kept_while_needed": [D4] => owners;
    "adopted.own_submission_takes_part": [D5 Q8 T2] => own_submission;
    "adopted.own_submission_has_no_time": [M6 T2 T3] => own_submission_has_no_time;
    "adopted.guard_tells_what_is_held": [Q8] => guard_tells;
    "adopted.no_raw_event_of_a_held_fence": [Q8 F2] => no_raw_event;
    #[cfg(feature = "cuda")]
    "adopted.default_streams": [D6] => default_streams;
}

fn adopted(world: &World<Equipped>) -> Verdict {
    match world.left.library() {
        Device::Host(_) => Stop::skip("the host has no handles"),
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            let queue = device.queue(QueueKind::Compute, "owner")?;
            let raw = queue.stream().raw();
            // SAFETY: the stream is live, and its owner outlives the queue made of it.
            let adopted = unsafe { device.adopt_raw_stream(raw, None, "adopted") }?;
            check_eq!(adopted.stream().raw(), raw);
            both_work(world, &queue, &adopted)?;
            // The stream was only lent, so its owner must outlive the work.
            adopted.idle(patience())?;
            drop(adopted);
            check_eq!(queue.stream().raw(), raw);
            both_work(world, &queue, &queue)?;
            queue.idle(patience())?;
            Ok(())
        }
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => {
            let queue = device.queue(QueueKind::Compute, "owner")?;
            let guard = queue.lock()?;
            let owner = std::sync::Arc::new(device.clone());
            let adopted = super::vulkan::adopt(device, &guard, owner)?;
            check_eq!(adopted.raw().handle(), device.raw().handle());
            check_eq!(adopted.physical(), device.physical());
            let second = adopted.queue_of_family(guard.family(), "adopted")?;
            let queue_raw = guard.raw();
            let line = adopted.timeline("line")?;
            // The lock is one for both, and no thread takes it twice.
            check_error!(second.lock(), Reentrant);
            check_error!(queue.lock(), Reentrant);
            let held = queue.submit(&[line.at(1)], |_| Ok(()), &[])?;
            let signal = second.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
            check!(signal.is_held() && guard.held() == 2 && !line.at(1).is_pending()?);
            drop(guard);
            held.end().wait(patience())?;
            let locked_again = second.lock()?;
            check_eq!(locked_again.raw(), queue_raw);
            drop(locked_again);
            second.idle(patience())?;
            drop((second, line, adopted));
            queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
            Ok(())
        }
        _ => Stop::skip("the backend has no handles"),
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

/// The owner of an adopted handle is kept while anything can use the handle, and then dropped.
///
/// A panic of the drop does not reach the call that drops the last object.
fn owners(world: &World<Equipped>) -> Verdict {
    unheard(|| match world.left.library() {
        Device::Host(_) => Stop::skip("the host has no handles"),
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => super::cuda::owners(world, device),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => super::vulkan::owners(device),
        _ => Stop::skip("the backend has no handles"),
    })
}

/// An owner whose drop panics, after it has dropped what it owns.
pub(super) struct PanicsInDrop<T>(Option<T>);

impl<T> PanicsInDrop<T> {
    pub(super) const fn new(owned: T) -> Self {
        Self(Some(owned))
    }
}

impl<T> Drop for PanicsInDrop<T> {
    #[allow(clippy::panic, reason = "the behaviour under test")]
    fn drop(&mut self) {
        drop(self.0.take());
        panic!("the drop of an owner");
    }
}

/// Checks that `owner` is there, after another handle was dropped.
#[track_caller]
pub(super) fn kept<T: ?Sized>(owner: &Weak<T>, after: &str) -> Verdict {
    match owner.strong_count() {
        0 => wrong("the owner is gone", format_args!("after {after}")),
        _ => Ok(()),
    }
}

/// Checks for a wait that failed because of the value that was found.
#[track_caller]
pub(super) fn corrupted(waited: syncline::Result<()>, value: u64) -> Verdict {
    match waited.as_ref().map_err(Error::root) {
        Err(Error::Corrupted { found, .. }) if *found == value => Ok(()),
        _ => wrong(
            format!("{waited:?}, not corrupted by {value}"),
            format_args!(""),
        ),
    }
}

/// The guard of a raw queue counts the submissions that the driver does not have yet.
fn guard_tells(world: &World<Equipped>) -> Verdict {
    let queue = world.left_queue("left")?;
    let gate = world.timeline("gate")?;
    let held = || match queue.library() {
        #[cfg(feature = "cuda")]
        Queue::Cuda(queue) => Ok(queue.stream().held()),
        #[cfg(feature = "vulkan")]
        Queue::Vulkan(queue) => Ok(queue.lock()?.held()),
        _ => Stop::skip("the host has no raw queue"),
    };
    let now = held()?;
    check!(now == 0, "{now} are held before anything was submitted");
    // The second submission waits only for its turn.
    let waits = [gate.at(1)];
    for (waits, held_now) in [(&waits[..], 1), (&[], 2)] {
        queue.submit(waits, |_| Ok(()), &[])?;
        let told = held()?;
        check_eq!(told, held_now);
    }
    gate.signal(1)?;
    queue.settle(patience())?;
    let now = held()?;
    check!(now == 0, "{now} are held after all has settled");
    queue.idle(patience())?;
    Ok(())
}

/// There is no raw object of a fence while its record is held.
///
/// Once the driver has the record, the raw object agrees with the fence.
fn no_raw_event(world: &World<Equipped>) -> Verdict {
    match world.left.library() {
        Device::Host(_) => Stop::skip("the host has no raw events"),
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => super::cuda::no_raw_event(world, device),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => super::vulkan::no_raw_event(world, device),
        _ => Stop::skip("the backend has no handles"),
    }
}

/// The record of a fence is held, then before work that blocks, then complete.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub(super) fn raw_object_agrees<R>(
    world: &World<Equipped>,
    raw_of: impl Fn(Point<'_>) -> syncline::Result<R>,
    is_reached: impl Fn(&R, Point<'_>) -> Result<bool, Stop>,
) -> Verdict {
    let (hold, still) = (world.timeline("hold")?, world.left.stall()?);
    let (queue, fence) = (world.left_queue("left")?, world.left.fence("fence"));
    let latch = still.latch();
    queue.submit(&[hold.at(1)], move |recorder| latch.block(recorder), &[])?;
    queue.record(&fence)?;
    let mark = fence.point()?;
    let point = mark.point().library();
    check_error!(raw_of(point), Error::NotPending { value, .. } if value == point.value());
    // The same for a point that is not claimed.
    let line = world.left.timeline("line")?;
    check_error!(raw_of(line.at(1).library()), NotPending);
    hold.signal(1)?;
    queue.settle(patience())?;
    let raw = raw_of(point)?;
    check!(!is_reached(&raw, point)? && !fence.is_complete()?);
    still.release()?;
    fence.wait(patience())?;
    check!(is_reached(&raw, point)?);
    queue.idle(patience())?;
    Ok(())
}

/// The application claims a value, submits itself, and reports the submission.
fn own_submission(world: &World<Equipped>) -> Verdict {
    if matches!(world.left.library(), Device::Host(_)) {
        check_error!(world.timeline("host")?.claim(1), Unsupported);
        return Stop::skip("the host has no raw queue, and says so");
    }
    let line = world.timeline("line")?;
    let right = world.right_queue("waiting")?;
    let gate = world.timeline("gate")?;
    // Not ready, because the claim of another queue is still held.
    right.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
    let mut claim = line.claim(2)?;
    check_eq!(claim.predecessor(), 1);
    check_error!(claim.submitted(), Error::NotPending { value: 1, .. });
    check_error!(
        claim.wait_ready(Duration::from_millis(1)),
        Error::TimedOut { value: 1, .. }
    );
    let waiting = right.submit(&[line.at(2)], |_| Ok(()), &[])?;
    gate.signal(1)?;
    line.at(1).wait(patience())?;
    claim.wait_ready(patience())?;
    check!(waiting.is_held() && !waiting.end().is_reached()?);
    let queue = world.left_queue("application")?;
    submit_by_oneself(queue.library(), line.library(), &mut claim)?;
    finish_by_oneself(queue.library())?;
    waiting.end().wait(patience())?;
    check!(line.value()? == 2, "the value is {}", line.value()?);
    Ok(())
}

/// Signals the claimed value with a submission of the application's own, after `queue`'s work.
fn submit_by_oneself(queue: &Queue, line: &Timeline, claim: &mut Claim) -> Verdict {
    match queue {
        Queue::Host(_) => {}
        #[cfg(feature = "cuda")]
        Queue::Cuda(queue) => {
            let device = queue.device();
            if line.devices().next() != Some(device.id()) {
                return Stop::skip("the timeline has no events on this device to signal with");
            }
            // SAFETY: the claim is of this timeline, and the stream is live.
            unsafe { device.submit_claimed(line, claim, queue.stream().raw()) }?;
        }
        #[cfg(feature = "vulkan")]
        Queue::Vulkan(queue) => {
            use syncline::vulkan::ash::vk;
            let device = queue.device();
            let (semaphores, values) = ([device.semaphore_of(line)?], [claim.value()]);
            let mut timeline =
                vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
            let submit = vk::SubmitInfo::default()
                .signal_semaphores(&semaphores)
                .push_next(&mut timeline);
            let guard = queue.lock()?;
            // SAFETY: the queue is locked. The semaphore lives until `finish_by_oneself` has ended.
            unsafe {
                device
                    .raw()
                    .queue_submit(guard.raw(), &[submit], vk::Fence::null())
            }
            .map_err(Error::work)?;
            claim.submitted()?;
        }
        _ => {}
    }
    Ok(())
}

/// Waits for the application's own submission, which uses objects of the application.
fn finish_by_oneself(queue: &Queue) -> Verdict {
    #[cfg(feature = "vulkan")]
    if let Queue::Vulkan(queue) = queue {
        let (guard, device) = (queue.lock()?, queue.device());
        // SAFETY: the queue is locked.
        unsafe { device.raw().queue_wait_idle(guard.raw()) }.map_err(Error::work)?;
    }
    let _ = queue;
    Ok(())
}

/// The application's own submission writes no time of its signal.
///
/// The next signal of a queue has a time, which is after that signal, although its work ended
/// earlier.
fn own_submission_has_no_time(world: &World<Equipped>) -> Verdict {
    if matches!(world.left.library(), Device::Host(_)) {
        return Stop::skip("the host has no raw queue");
    }
    let line = world.left.clocked_timeline("line")?;
    let (queue, other) = (world.left_queue("application")?, world.left_queue("other")?);
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    line.at(1).wait(patience())?;
    let first = line.at(1).time()?.nanoseconds();
    let stall = world.left.stall()?;
    queue.block(&stall)?;
    let mut claim = line.claim(3)?;
    submit_by_oneself(queue.library(), line.library(), &mut claim)?;
    check_error!(line.at(3).time(), Error::NotReached { reached: 1, .. });
    let buffer = world.left.buffer(WORDS)?;
    other.submit(&[], filling::<Equipped>(&buffer, 7), &[line.signal_at(4)])?;
    other.submit(&[], |_| Ok(()), &[line.signal_at(5)])?;
    let host = world.left.clock()?.host_clock();
    let (between, ended) = Seen::around(host, || -> syncline::Result<()> {
        stall.release()?;
        line.at(5).wait(patience())
    });
    ended?;
    for none in [2, 3] {
        let name = line.object();
        check_error!(
            line.at(none).time(),
            Error::NoTime { timeline, value, reason, .. }
                if timeline == *name && value == none && !reason.is_empty()
        );
    }
    for value in [4, 5] {
        let time = line.at(value).time()?;
        between.allows("a signal behind the application's", time.to_host()?)?;
    }
    check_eq!(line.at(1).time()?.nanoseconds(), first);
    check!(is_filled::<Equipped>(&buffer, 7), "the work did not run");
    finish_by_oneself(queue.library())?;
    other.idle(patience())?;
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
    check_error!(refused, Unsupported);
    // SAFETY: null is the legacy default stream, always valid.
    let legacy = unsafe { device.adopt_raw_stream(std::ptr::null_mut(), None, "legacy") }?;
    legacy
        .submit(&[], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    Ok(())
}
