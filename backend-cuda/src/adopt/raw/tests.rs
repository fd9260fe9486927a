//! Each raw stream has one lock, held from the capture query to the next command (D5, F7).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's")]

use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rstest::rstest;
use syncline_core::QueueKind;

use super::*;
use crate::driver::emulated::{
    another_over, before_the_next_is_put, begin_capture, capture_questions, current_context,
    device, end_capture, finish, make_current, once_destroyed, put, use_handle_again,
};

/// Only matters if a test fails.
const LIMIT: Duration = Duration::from_secs(30);

fn queue_of(device: &Device) -> Queue {
    device.queue(QueueKind::Compute, "made").unwrap()
}

fn adopted(device: &Device, raw: sys::CUstream) -> Queue {
    // SAFETY: the tests keep the stream longer.
    unsafe { device.adopt_raw_stream(raw, None, "adopted") }.unwrap()
}

/// Signals as an application does that has a raw handle and no queue.
fn signal_claimed_in(device: &Device, timeline: &Timeline, raw: sys::CUstream) -> Result<()> {
    let mut claim = timeline.claim(1)?;
    // SAFETY: the claim belongs to this timeline, and the tests keep the stream longer.
    unsafe { device.submit_claimed(timeline, &mut claim, raw) }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LIMIT, "never comes");
        thread::yield_now();
    }
}

/// Stops this thread before its next command, while another thread does `action` to the queue.
///
/// This thread goes on when the other has finished, or blocks on the stream's lock.
fn meanwhile<T: Send + 'static>(
    queue: &Queue,
    action: impl FnOnce(&Queue) -> T + Send + 'static,
) -> Receiver<JoinHandle<T>> {
    let (sender, receiver) = channel();
    let queue = queue.clone();
    before_the_next_is_put(move || {
        let through = Arc::new(AtomicBool::new(false));
        let (other, is_through) = (queue.clone(), through.clone());
        let thread = thread::spawn(move || {
            let done = action(&other);
            is_through.store(true, Ordering::SeqCst);
            done
        });
        let lock = queue.queue_stream().stream().stream_lock();
        wait_until(|| through.load(Ordering::SeqCst) || lock.has_waiters());
        sender.send(thread).unwrap();
    });
    receiver
}

fn ended<T>(thread: &Receiver<JoinHandle<T>>) -> T {
    thread.try_recv().unwrap().join().unwrap()
}

/// D5. Two queues of two devices and a raw handle share the lock.
#[test]
fn a_raw_stream_has_one_lock() {
    let device = device();
    let other_device = another_over(&device);
    let made = queue_of(&device);
    let raw = made.stream().raw();
    let (twin, there) = (adopted(&device, raw), adopted(&other_device, raw));
    for other in [&twin, &there] {
        assert!(std::ptr::eq(
            made.queue_stream().stream().stream_lock(),
            other.queue_stream().stream().stream_lock()
        ));
    }
    let guard = there.stream();
    // The guard stops both queues, but not this thread's signal of a claim.
    for queue in [&made, &twin] {
        let submitted = queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert!(submitted.is_held());
    }
    let done = device.timeline("done").unwrap();
    signal_claimed_in(&device, &done, raw).unwrap();
    assert_eq!(put(&made), 1);
    drop(guard);
    made.settle(LIMIT).unwrap();
    twin.settle(LIMIT).unwrap();
    finish(&made, put(&made));
    assert!(done.at(1).is_reached().unwrap());
    // The last user destroys the stream.
    drop(made);
    drop(twin);
    there.submit(&[], |_| Ok(()), &[]).unwrap();
}

/// E5. The label in an error is that of the queue or call that meets it.
#[test]
fn an_error_names_the_queue_that_meets_it() {
    let device = device();
    let made = queue_of(&device);
    let raw = made.stream().raw();
    // SAFETY: `made` keeps the stream longer.
    let again = unsafe { device.adopt_raw_stream(raw, None, "adopted again") }.unwrap();
    let queues = [made, adopted(&device, raw), again];
    let labels = ["made", "adopted", "adopted again"];
    let done = device.timeline("done").unwrap();
    // The label does not change the order domain.
    let domains = queues
        .each_ref()
        .map(|queue| queue.queue_stream().stream().domain());
    assert_eq!(domains, [domains[0]; 3]);
    begin_capture(raw);
    for (queue, label) in queues.iter().zip(labels) {
        let refused = queue.submit(&[], |_| Ok(()), &[]).map(drop);
        let Err(Error::Capturing { object, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(object.label(), label);
    }
    let refused = signal_claimed_in(&device, &done, raw);
    let Err(Error::Capturing { object, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(object.label(), "the application's");
    end_capture(raw);
}

/// D6. Each context has its own legacy default stream, with two handles for it.
#[test]
fn legacy_default_streams_of_two_contexts_are_two() {
    let (device, elsewhere) = (device(), device());
    let legacy = without_provenance_mut(1);
    let (null, named) = (adopted(&device, null_mut()), adopted(&device, legacy));
    let another = adopted(&elsewhere, null_mut());
    let lock =
        |queue: &Queue| std::ptr::from_ref(queue.queue_stream().stream().stream_lock()).addr();
    assert_eq!(lock(&null), lock(&named));
    assert_ne!(lock(&null), lock(&another));
    let done = device.timeline("done").unwrap();
    let guard = another.stream();
    signal_claimed_in(&device, &done, null_mut()).unwrap();
    drop(guard);
}

#[test]
fn a_claim_is_not_signalled_in_a_foreign_stream() {
    let (device, elsewhere) = (device(), device());
    let done = device.timeline("done").unwrap();
    let per_thread = signal_claimed_in(&device, &done, without_provenance_mut(2));
    assert!(
        matches!(per_thread, Err(Error::Unsupported { .. })),
        "{per_thread:?}"
    );
    // Also if the stream is in use there.
    let queue = queue_of(&elsewhere);
    let raw = queue.stream().raw();
    let foreign = signal_claimed_in(&device, &done, raw);
    assert!(
        matches!(foreign, Err(Error::WrongDevice { .. })),
        "{foreign:?}"
    );
    assert!(!done.at(1).is_pending().unwrap());
}

/// D5.
#[test]
fn no_submission_gets_between_a_claims_check_and_its_signal() {
    let device = device();
    let queue = queue_of(&device);
    let raw = queue.stream().raw();
    let (claimed, other) = (
        device.timeline("claimed").unwrap(),
        device.timeline("other").unwrap(),
    );
    let signalled = other.clone();
    let submitted = meanwhile(&queue, move |queue| {
        let signals = [signalled.signal_at(1)];
        let submitted = queue.submit(&[], |_| Ok(()), &signals);
        submitted.unwrap().is_held()
    });
    signal_claimed_in(&device, &claimed, raw).unwrap();
    assert!(ended(&submitted), "another submission got in between");
    queue.settle(LIMIT).unwrap();
    // The submission comes after the signal.
    finish(&queue, 1);
    assert!(claimed.at(1).is_reached().unwrap() && !other.at(1).is_reached().unwrap());
    finish(&queue, put(&queue));
    assert!(other.at(1).is_reached().unwrap());
}

/// D5.
#[test]
fn no_capture_begins_between_a_claims_check_and_its_signal() {
    let device = device();
    let queue = queue_of(&device);
    let raw = queue.stream().raw();
    let done = device.timeline("done").unwrap();
    let begun = meanwhile(&queue, |queue| begin_capture(queue.stream().raw()));
    signal_claimed_in(&device, &done, raw).unwrap();
    ended(&begun);
    assert_eq!(end_capture(raw), 0, "the signal went into a graph");
    finish(&queue, put(&queue));
    assert!(done.at(1).is_reached().unwrap());
    // In a capture it fails and changes nothing.
    begin_capture(raw);
    let mut claim = done.claim(2).unwrap();
    // SAFETY: as above.
    let refused = unsafe { device.submit_claimed(&done, &mut claim, raw) };
    assert!(matches!(refused, Err(Error::Capturing { .. })));
    assert_eq!(end_capture(raw), 0);
    assert!(!done.at(2).is_pending().unwrap());
    // SAFETY: as above.
    unsafe { device.submit_claimed(&done, &mut claim, raw) }.unwrap();
    finish(&queue, put(&queue));
    assert!(done.at(2).is_reached().unwrap());
}

/// F7.
#[rstest]
#[case::record(Queue::record)]
#[case::record_external(Queue::record_external)]
#[case::wait_external(Queue::wait_external)]
fn a_capture_does_not_end_before_a_call_has_used_it(
    #[case] use_in: fn(&Queue, &Fence) -> Result<()>,
) {
    let device = device();
    let queue = queue_of(&device);
    let end = |queue: &Queue| end_capture(queue.stream().raw());
    let fence = device.fence("captured");
    begin_capture(queue.stream().raw());
    let calls = meanwhile(&queue, end);
    use_in(&queue, &fence).unwrap();
    assert_eq!(ended(&calls), 1, "the capture ended before");
    assert_eq!(put(&queue), 0);
}

/// F7.
#[test]
fn a_capture_does_not_end_before_a_stream_has_joined_it() {
    let device = device();
    let (first, second) = (queue_of(&device), queue_of(&device));
    let place = device.fence("place");
    begin_capture(first.stream().raw());
    first.record(&place).unwrap();
    let calls = meanwhile(&first, |first| end_capture(first.stream().raw()));
    second.wait(&place).unwrap();
    assert_eq!(ended(&calls), 1);
    let refused = second.wait(&place);
    assert!(
        matches!(refused, Err(Error::CaptureEnded { .. })),
        "{refused:?}"
    );
}

/// F7. NVIDIA's driver has crashed when a capture ended while another thread queried it.
#[test]
fn the_capture_of_a_locked_stream_is_not_queried() {
    let device = device();
    let (first, second) = (queue_of(&device), queue_of(&device));
    let raw = first.stream().raw();
    let place = device.fence("place");
    begin_capture(raw);
    first.record(&place).unwrap();
    thread::scope(|scope| {
        let guard = first.stream();
        let asked = capture_questions(raw);
        let joined = scope.spawn(|| second.wait(&place));
        let lock = first.queue_stream().stream().stream_lock();
        wait_until(|| capture_questions(raw) > asked || lock.has_waiters());
        assert_eq!(capture_questions(raw), asked, "asked meanwhile");
        end_capture(raw);
        drop(guard);
        let refused = joined.join().unwrap();
        assert!(
            matches!(refused, Err(Error::CaptureEnded { .. })),
            "{refused:?}"
        );
    });
}

/// D5. A destroyed stream leaves no state to a new stream with the same handle.
#[test]
fn a_handle_that_is_used_again_is_another_stream() {
    let device = device();
    let first = Stream::new(device.context(), "first").unwrap();
    let (raw, domain) = (first.raw(), first.domain());
    // Never unlocked.
    std::mem::forget(first.stream_lock().lock());
    // Another thread gets the handle at once, before the first stream's drop has returned.
    let (sender, receiver) = channel();
    let (again, handle) = (device.clone(), Raw(raw));
    once_destroyed(move || {
        let make = move || {
            use_handle_again(handle);
            queue_of(&again)
        };
        sender.send(thread::spawn(make).join().unwrap()).unwrap();
    });
    drop(first);
    let second: Queue = receiver.try_recv().unwrap();
    let stream = second.queue_stream().stream();
    assert_eq!(stream.raw(), raw);
    assert_ne!(stream.domain(), domain);
    assert!(!second.submit(&[], |_| Ok(()), &[]).unwrap().is_held());
    let twin = adopted(&device, raw);
    assert!(std::ptr::eq(
        stream.stream_lock(),
        twin.queue_stream().stream().stream_lock()
    ));
}

/// Q8. This covers each queue of the stream.
#[test]
fn a_guard_counts_held_submissions() {
    let device = device();
    let made = queue_of(&device);
    let twin = adopted(&device, made.stream().raw());
    let gate = device.timeline("gate").unwrap();
    for _ in 0..2 {
        made.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
    }
    assert_eq!((made.stream().held(), twin.stream().held()), (2, 0));
    let unsettled = made.settle(Duration::from_millis(1)).unwrap_err();
    assert!(unsettled.is_timeout(), "{unsettled}");
    // Submissions released while a guard lives are held until the guard is dropped.
    let guard = twin.stream();
    gate.signal(1).unwrap();
    assert_eq!(made.stream().held(), 2);
    assert_eq!(put(&made), 0);
    drop(guard);
    made.settle(LIMIT).unwrap();
    assert_eq!(made.stream().held(), 0);
    assert_eq!(put(&made), 2);
}

/// D5.
#[test]
fn calls_for_lent_streams_leave_the_current_context() {
    let device = device();
    let (queue, joins) = (queue_of(&device), queue_of(&device));
    let raw = queue.stream().raw();
    let (place, external) = (device.fence("place"), device.fence("external"));
    for before in [null_mut(), without_provenance_mut(8), device.raw_context()] {
        make_current(before);
        let left = |call: &str| assert_eq!(current_context(), before, "{call}");
        let done = device.timeline("done").unwrap();
        signal_claimed_in(&device, &done, raw).unwrap();
        left("submit_claimed");
        drop(adopted(&device, raw));
        left("adopt_raw_stream");
        let event = device.event(done.at(1)).unwrap().unwrap();
        // SAFETY: a live event that is in no capture.
        let fence = unsafe { device.adopt_event(event.raw(), "adopted") }.unwrap();
        left("adopt_event");
        queue.submit(&[done.at(1)], |_| Ok(()), &[]).unwrap();
        left("submit");
        queue.wait(&fence).unwrap();
        left("wait");
        begin_capture(raw);
        queue.record(&place).unwrap();
        left("record");
        joins.wait(&place).unwrap();
        left("wait for a place in a capture");
        queue.record_external(&external).unwrap();
        queue.wait_external(&external).unwrap();
        left("record_external");
        let refused = signal_claimed_in(&device, &device.timeline("refused").unwrap(), raw);
        assert!(matches!(refused, Err(Error::Capturing { .. })));
        left("a refused signal");
        end_capture(raw);
        assert!(joins.wait(&place).is_err());
        left("a wait for a capture that has ended");
    }
    make_current(null_mut());
}

/// F7.
#[test]
fn a_record_during_a_guard_is_not_captured() {
    let device = device();
    let queue = queue_of(&device);
    let fence = device.fence("recorded meanwhile");
    let guard = queue.stream();
    begin_capture(guard.raw());
    thread::scope(|scope| {
        let recorded = scope.spawn(|| queue.record(&fence));
        recorded.join().unwrap().unwrap();
    });
    assert_eq!(queue.stream().held(), 1);
    assert_eq!(end_capture(guard.raw()), 0);
    assert!(!fence.is_complete().unwrap());
    drop(guard);
    queue.settle(LIMIT).unwrap();
    finish(&queue, put(&queue));
    assert!(fence.is_complete().unwrap());
}
