#![allow(clippy::unwrap_used, reason = "a test's")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use syncline_core::backend::kit::Counter;
use syncline_core::backend::{ByEngine, Device as _, Port, Queue as _, Recovered};
use syncline_core::internal::RecoveryMode;
use syncline_core::{Error, QueueKind, Timeline, host, info::DeviceId};

use super::*;
use crate::driver::emulated::{
    device, external_calls, finish, import_timeline, import_timeline_to_signal, put,
    semaphores_gone, timeline_fd,
};
use crate::queue::submission::Queue;

/// The exporter's semaphore value.
struct Home(Arc<AtomicU64>);

impl Port for Home {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::SeqCst)))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.store(value, Ordering::SeqCst);
        Ok(())
    }
}

fn shared(device: &Device) -> (Timeline, Arc<AtomicU64>) {
    let counter = Arc::new(AtomicU64::new(0));
    let imported = import_timeline(device);
    let home = Attachment::new(DeviceId::new::<()>(), 0, Home(counter.clone()));
    let timeline = Timeline::new("shared", 0, |_| Ok([home, imported?].into_iter().collect()));
    (timeline.unwrap(), counter)
}

/// One call has all waits or signals, in order with their values.
#[test]
fn waits_and_signals_of_a_submission_are_one_call_each() {
    let device = device();
    let from = device.queue(QueueKind::Compute, "from").unwrap();
    let to = device.queue(QueueKind::Compute, "to").unwrap();
    let shared: Vec<_> = (0..10).map(|_| shared(&device)).collect();
    for (round, count) in (1..).zip([1, 2, 8, 9, 10]) {
        let value = |at: usize| 100 * round + at as u64;
        let used = || shared[..count].iter().enumerate();
        let signals: Vec<_> = used()
            .map(|(at, (line, _))| line.signal_at(value(at)))
            .collect();
        let waits: Vec<_> = used().map(|(at, (line, _))| line.at(value(at))).collect();
        let values: Vec<_> = (0..count).map(value).collect();
        from.submit(&[], |_| Ok(()), &signals).unwrap();
        to.submit(&waits, |_| Ok(()), &[]).unwrap();
        assert_eq!(
            external_calls(),
            [("signal", values.clone()), ("wait", values)]
        );
        // The semaphore may show the value before the event behind it is complete.
        for (at, (line, counter)) in used() {
            counter.store(value(at), Ordering::SeqCst);
            assert!(line.value().unwrap() < value(at));
        }
        finish(&from, put(&from));
        for (at, (line, _)) in used() {
            assert_eq!(line.value().unwrap(), value(at));
        }
        assert!(!to.position().is_reached().unwrap());
        finish(&to, put(&to));
        assert!(to.position().is_reached().unwrap());
    }
}

/// A semaphore works only in the context that imported it, whatever device its attachment names.
#[test]
fn a_semaphore_of_another_context_is_refused() {
    let (ours, theirs) = (device(), device());
    let port = theirs.import_port(timeline_fd(theirs.info()));
    let port = port.map_err(|rejected| rejected.error).unwrap();
    let home = Attachment::new(DeviceId::new::<()>(), 0, Home(Arc::default()));
    let port = Attachment::imported(ours.id(), port);
    let line = Timeline::new("line", 0, |_| Ok([home, port].into_iter().collect())).unwrap();
    let queue = ours.queue(QueueKind::Compute, "ours").unwrap();
    let refused = queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]);
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert_eq!(external_calls(), []);
}

/// A timeline that only this device signals has its home here.
#[test]
fn a_timeline_that_only_this_device_signals_is_read_by_events() {
    let device = device();
    let queue = device.queue(QueueKind::Compute, "signals").unwrap();
    let line = Timeline::new("alone", 7, |initial| {
        let port = import_timeline_to_signal(&device, initial)?;
        Ok([port].into_iter().collect())
    });
    let line = line.unwrap();
    assert_eq!(line.value().unwrap(), 7);
    for value in [9, 10, 20] {
        queue
            .submit(&[], |_| Ok(()), &[line.signal_at(value)])
            .unwrap();
        assert!(line.value().unwrap() < value);
    }
    assert_eq!(
        external_calls(),
        [
            ("signal", vec![9]),
            ("signal", vec![10]),
            ("signal", vec![20])
        ]
    );
    finish(&queue, put(&queue));
    assert_eq!(line.value().unwrap(), 20);
    // Signals of the host go to the semaphore through a stream.
    line.signal(21).unwrap();
    assert_eq!(external_calls(), [("signal", vec![21])]);
    assert_eq!(line.value().unwrap(), 21);
    // A signal without an event would never be seen.
    let mut claim = line.claim(30).unwrap();
    let error = claim.submitted().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

/// CUDA must not destroy a semaphore with an outstanding signal.
///
/// Dropping the timeline does not block on it.
#[test]
fn a_semaphore_outlives_signals_of_the_host() {
    let device = device();
    let alone = || {
        let line = Timeline::new("alone", 0, |initial| {
            let port = import_timeline_to_signal(&device, initial)?;
            Ok([port].into_iter().collect())
        });
        line.unwrap()
    };
    let (unused, signalled) = (alone(), alone());
    signalled.signal(1).unwrap();
    assert!(!device.context().deferred_frees().is_any());
    drop(unused);
    assert_eq!(semaphores_gone(), 1);
    drop(signalled);
    assert_eq!(semaphores_gone(), 0, "its signal is outstanding");
    device.free_what_is_due().unwrap();
    assert_eq!(semaphores_gone(), 1);
    // The context destroys the remaining ones.
    let last = alone();
    last.signal(1).unwrap();
    drop(last);
    assert_eq!(semaphores_gone(), 0);
    drop(device);
    assert_eq!(semaphores_gone(), 1);
}

/// E3. A lost device owes a signal above a pending signal of this device.
///
/// The engine makes the missing signal after the pending one, although the host cannot read the
/// counter here.
#[test]
fn a_signal_for_a_lost_device_comes_after_those_of_this_device() {
    let device = device();
    let queue = device.queue(QueueKind::Compute, "signals").unwrap();
    let (line, _) = shared(&device);
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
    assert_eq!(external_calls(), [("signal", vec![1])]);
    let port = line.port::<ExternalPort>(device.id()).unwrap();
    assert_eq!(port.recover_after(1, 2).unwrap(), Recovered::NotYet);
    assert_eq!(external_calls(), []);
    finish(&queue, put(&queue));
    assert_eq!(port.recover_after(1, 2).unwrap(), Recovered::Signalled);
    assert_eq!(external_calls(), [("signal", vec![2])]);
}

/// A timeline whose page and semaphore another process signals.
fn signalled_elsewhere(device: &Device) -> (Timeline, Arc<Counter>) {
    let exporter = host::Device::new().exportable_port(0).unwrap().1;
    let line = Timeline::new("elsewhere", 0, |_| {
        let home = host::Device::new().import_timeline(exporter.export()?)?;
        Ok([home, import_timeline(device)?].into_iter().collect())
    });
    (line.unwrap(), exporter.counter().clone())
}

/// E3. The signalling process ends.
///
/// The engine makes the missing signal after all timelines that depend on it have failed, directly
/// or indirectly. Other timelines go on.
#[test]
fn dependents_of_a_dead_process_fail_before_the_signal_is_made() {
    let device = device();
    let (line, counter) = signalled_elsewhere(&device);
    let queue = |label| device.queue(QueueKind::Compute, label).unwrap();
    let (first, second, third) = (queue("first"), queue("second"), queue("third"));
    let made = |label| device.timeline(label).unwrap();
    let (shaded, copied, whole, apart) =
        (made("shaded"), made("copied"), made("whole"), made("apart"));
    counter.announce(2).unwrap();
    counter.note_pending(2);
    // `whole` does not fail: what it waits for is reached before the peer ends.
    let submit = |on: &Queue, wait, signal| {
        on.submit(&[wait], |_| Ok(()), &[signal]).map(drop).unwrap();
    };
    submit(&first, line.at(1), whole.signal_at(1));
    submit(&first, line.at(2), shaded.signal_at(1));
    submit(&second, shaded.at(1), copied.signal_at(1));
    submit(&third, whole.at(1), apart.signal_at(1));
    // Held because its wait is not pending.
    let held = made("held");
    submit(&third, line.at(3), held.signal_at(1));
    assert_eq!(external_calls(), [("wait", vec![1]), ("wait", vec![2])]);
    reach(&counter, 1);
    assert_eq!(line.value().unwrap(), 1);
    line.downgrade().lose(
        &counter,
        Error::work(std::io::Error::other("the process has died")),
        RecoveryMode::Alone,
    );
    assert_eq!(external_calls(), [("signal", vec![2])]);
    for lost in [&shaded, &copied, &held] {
        let error = lost.at(1).require_pending().unwrap_err().to_string();
        assert!(error.contains("has died"), "{lost:?}: {error}");
    }
    for queue in [&first, &second, &third] {
        finish(queue, put(queue));
    }
    for fine in [&whole, &apart] {
        assert!(fine.at(1).is_reached().unwrap(), "{fine:?}");
    }
    assert!(shaded.at(1).is_reached().is_err());
    // The queues still work.
    let next = made("next");
    submit(&first, whole.at(1), next.signal_at(1));
    finish(&first, put(&first));
    assert!(next.at(1).is_reached().unwrap());
    // After the failure, waits for the timeline do not go to the driver.
    submit(&first, line.at(2), next.signal_at(2));
    assert_eq!(external_calls(), []);
    assert!(next.at(2).is_reached().is_err());
}

/// Writes to the page that the semaphore has reached `value`, as the signalling process does.
#[allow(unsafe_code, reason = "writes what another process would")]
fn reach(counter: &Counter, value: u64) {
    let word = counter.address().wrapping_byte_add(Counter::REACHED);
    // SAFETY: the page is mapped as long as the counter, and all accesses to the word are atomic.
    let reached = unsafe { AtomicU64::from_ptr(word.cast()) };
    reached.store(value, Ordering::SeqCst);
}

/// A third process learns of the end from the page only, and fails dependent timelines itself.
#[test]
fn a_failed_page_fails_dependents_in_this_process() {
    let device = device();
    let (line, counter) = signalled_elsewhere(&device);
    counter.announce(2).unwrap();
    counter.note_pending(2);
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let shaded = device.timeline("shaded").unwrap();
    assert!(line.at(2).is_pending().unwrap());
    queue
        .submit(&[line.at(2)], |_| Ok(()), &[shaded.signal_at(1)])
        .unwrap();
    assert_eq!(external_calls(), [("wait", vec![2])]);
    counter.fail_as_lost(&Error::work(std::io::Error::other("the process has died")));
    assert!(line.value().is_err());
    let error = shaded.at(1).is_reached().unwrap_err().to_string();
    assert!(error.contains("has died"), "{error}");
    // Another thread signals the semaphore later, so that other processes can fail their timelines
    // first.
    assert_eq!(external_calls(), []);
}
