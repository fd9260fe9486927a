#![allow(clippy::unwrap_used, reason = "a test's")]

use std::sync::atomic::{AtomicU64, Ordering};

use rstest::rstest;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{QueueKind, Timeline, host};

use super::*;
use crate::driver::emulated::{
    Call, device, device_with, external_calls, finish, import_timeline, memory_calls, put,
    refuse_writes, write,
};
use crate::driver::table::{Code, Optional};
use crate::queue::submission::Queue;

/// A timeline with its home on the host and a port on `device`.
fn shared(device: &Device, initial: u64) -> (Timeline, Arc<Counter>) {
    let mut counter = None;
    let line = Timeline::new("shared", initial, |initial| {
        let (home, handle) = host::Device::new().export_timeline(initial)?;
        let here = device.import_counter(handle).map_err(|r| r.error)?;
        let port = here.port::<CounterPort>();
        counter = port.map(|port| port.counter.clone());
        Ok([home, here].into_iter().collect())
    });
    (line.unwrap(), counter.unwrap())
}

/// Signals as another process does, visible in the page.
#[allow(unsafe_code, reason = "writes what another process would")]
fn signal_elsewhere(counter: &Counter, value: u64) {
    counter.announce(value).unwrap();
    let word = counter.address().wrapping_byte_add(Counter::REACHED);
    // SAFETY: the page is mapped as long as the counter, and all accesses to the word are atomic.
    let reached = unsafe { AtomicU64::from_ptr(word.cast()) };
    reached.store(value, Ordering::SeqCst);
}

fn queue(device: &Device, label: &str) -> Queue {
    device.queue(QueueKind::Compute, label).unwrap()
}

fn through(queue: &Queue) {
    finish(queue, put(queue));
}

#[test]
fn one_wait_and_one_signal_are_one_call_each() {
    let device = device();
    let (line, counter) = shared(&device, 0);
    assert_eq!(memory_calls(), [Call::Register(4096)]);
    let (from, to) = (queue(&device, "from"), queue(&device, "to"));
    // The waiting submission first: no driver call before the signal is pending.
    let waiting = to.submit(&[line.at(5)], |_| Ok(()), &[]).unwrap();
    assert!(waiting.is_held());
    assert_eq!(memory_calls(), []);
    from.submit(&[], |_| Ok(()), &[line.signal_at(5)]).unwrap();
    assert_eq!(memory_calls(), [Call::Write(5), Call::Wait(5)]);
    assert!(counter.is_pending(5) && !line.at(5).is_reached().unwrap());
    write(&from);
    // The host must not act on the value before the event behind it.
    assert_eq!(counter.value().unwrap(), 5);
    assert!(!line.at(5).is_reached().unwrap());
    through(&from);
    assert!(line.at(5).is_reached().unwrap());
    // A reached value needs no driver call.
    to.submit(&[line.at(5)], |_| Ok(()), &[]).unwrap();
    assert_eq!(memory_calls(), []);
    through(&to);
    to.idle(std::time::Duration::ZERO).unwrap();
}

/// Checks that `calls` batches contain exactly the `expected` operations.
#[track_caller]
fn batched(made: &[Call], calls: usize, expected: impl Iterator<Item = Call>) {
    let ops = made.iter().flat_map(|call| match call {
        Call::Batch(ops) => ops.clone(),
        other => panic!("{other:?} is no batch"),
    });
    assert!(ops.eq(expected));
    assert_eq!(made.len(), calls);
}

#[rstest]
#[case::one_batch(2, 1)]
#[case::the_largest_batch(255, 1)]
#[case::one_more(256, 2)]
#[case::two_batches(300, 2)]
fn several_operations_are_batches_of_fewer_than_256(#[case] count: usize, #[case] calls: usize) {
    let device = device();
    let (from, to) = (queue(&device, "from"), queue(&device, "to"));
    let shared: Vec<_> = (0..count).map(|_| shared(&device, 0)).collect();
    memory_calls();
    // The second batch is over timelines and queues that have had one.
    for round in 1..=2 {
        let value = |at: usize| 1000 * round + 2 * at as u64;
        let used = || shared.iter().enumerate();
        let signals: Vec<_> = used().map(|(at, (l, _))| l.signal_at(value(at))).collect();
        from.submit(&[], |_| Ok(()), &signals).unwrap();
        let writes = (0..count).map(|at| Call::Write(value(at)));
        batched(&memory_calls(), calls, writes);
        write(&from);
        through(&from);
        // Now another signaller announces the next values.
        for (at, (line, counter)) in used() {
            assert_eq!(line.value().unwrap(), value(at));
            let mut claim = line.claim(value(at) + 1).unwrap();
            counter.announce(value(at) + 1).unwrap();
            counter.note_pending(value(at) + 1);
            claim.submitted().unwrap();
        }
        let waits: Vec<_> = used()
            .map(|(at, (line, _))| line.at(value(at) + 1))
            .collect();
        to.submit(&waits, |_| Ok(()), &[]).unwrap();
        let waits = (0..count).map(|at| Call::Wait(value(at) + 1));
        batched(&memory_calls(), calls, waits);
        through(&to);
        for (at, (line, counter)) in used() {
            signal_elsewhere(counter, value(at) + 1);
            line.at(value(at) + 1)
                .wait(std::time::Duration::ZERO)
                .unwrap();
        }
    }
}

/// One call for each mechanism, and one event behind both.
#[test]
fn semaphores_and_counters_share_one_submission() {
    let device = device();
    let (from, to) = (queue(&device, "from"), queue(&device, "to"));
    let (line, counter) = shared(&device, 0);
    let semaphore = Timeline::new("semaphore", 0, |initial| {
        let here = import_timeline(&device)?;
        // Any home that the host can read will do.
        let (home, _) = host::Device::new().exportable_port(initial)?;
        Ok([home, here].into_iter().collect())
    });
    let semaphore = semaphore.unwrap();
    let own = device.timeline("events").unwrap();
    memory_calls();
    let signals = [line.signal_at(1), semaphore.signal_at(2), own.signal_at(3)];
    from.submit(&[], |_| Ok(()), &signals).unwrap();
    to.submit(&[own.at(3), semaphore.at(2), line.at(1)], |_| Ok(()), &[])
        .unwrap();
    assert_eq!(memory_calls(), [Call::Write(1), Call::Wait(1)]);
    assert_eq!(external_calls(), [("signal", vec![2]), ("wait", vec![2])]);
    // A semaphore, a word, and the event.
    assert_eq!(put(&from), 3);
    write(&from);
    assert_eq!(counter.value().unwrap(), 1);
    assert!(!line.at(1).is_reached().unwrap() && !own.at(3).is_reached().unwrap());
    through(&from);
    assert!(line.at(1).is_reached().unwrap() && own.at(3).is_reached().unwrap());
    through(&to);
}

#[test]
fn a_refused_signal_is_withdrawn() {
    let device = device();
    let (line, counter) = shared(&device, 0);
    let from = queue(&device, "from");
    refuse_writes(1);
    let refused = from.submit(&[], |_| Ok(()), &[line.signal_at(4)]).map(drop);
    assert!(
        matches!(refused, Err(Error::Native { code: 1, .. })),
        "{refused:?}"
    );
    assert!(!counter.is_pending(4));
    // The claim is free again, and the withdrawn signal does not delay later ones.
    from.submit(&[], |_| Ok(()), &[line.signal_at(3)]).unwrap();
    write(&from);
    through(&from);
    assert_eq!(line.value().unwrap(), 3);
}

/// This covers a timeline that failed in this process and a counter that another process failed.
#[test]
fn failed_timelines_are_not_written() {
    let device = device();
    let from = queue(&device, "from");
    let (ours, counter) = shared(&device, 0);
    memory_calls();
    let gate = device.timeline("gate").unwrap();
    from.submit(&[gate.at(1)], |_| Ok(()), &[ours.signal_at(1)])
        .unwrap();
    gate.fail(Error::NothingToWaitFor);
    assert!(matches!(ours.value(), Err(Error::Failed { .. })));
    assert_eq!(memory_calls(), []);
    assert_eq!(counter.value().unwrap(), 0);

    let (theirs, counter) = shared(&device, 0);
    memory_calls();
    counter.fail(0, 9, "elsewhere");
    let refused = from
        .submit(&[], |_| Ok(()), &[theirs.signal_at(1)])
        .map(drop);
    assert!(
        matches!(refused, Err(Error::FailedElsewhere { code: 9, .. })),
        "{refused:?}"
    );
    assert_eq!(memory_calls(), []);
}

#[test]
fn the_page_stays_registered_until_the_stream_has_finished() {
    let device = device();
    let from = queue(&device, "from");
    let (line, counter) = shared(&device, 0);
    let page = Arc::downgrade(&counter);
    drop(counter);
    from.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
    drop(line);
    assert_eq!(memory_calls(), [Call::Register(4096), Call::Write(1)]);
    // The stream still writes to the page.
    assert!(page.upgrade().is_some());
    write(&from);
    through(&from);
    // The registration is dropped where the thread must not block, so it is deferred.
    from.idle(std::time::Duration::ZERO).unwrap();
    let gate = device.timeline("gate").unwrap();
    for _ in 0..3 {
        from.submit(&[], |_| Ok(()), &[]).unwrap();
    }
    device.free_what_is_due().unwrap();
    assert_eq!(memory_calls(), [Call::Unregister(4096)]);
    assert!(page.upgrade().is_none());
    drop(gate);
}

#[test]
fn an_unused_import_is_unregistered_at_once() {
    let device = device();
    let (line, _) = shared(&device, 0);
    drop(line);
    assert_eq!(
        memory_calls(),
        [Call::Register(4096), Call::Unregister(4096)]
    );
}

#[test]
fn a_device_without_memory_operations_returns_the_handle() {
    let device = device_with(Optional::none());
    let can = &device.info().capabilities;
    assert!(!can.stream_memory_ops && !can.imports.contains(&HandleKind::CounterMemfd));
    let (_home, handle) = host::Device::new().export_timeline(0).unwrap();
    let rejected = device.import_counter(handle).unwrap_err();
    let Error::Unsupported { reason, .. } = &rejected.error else {
        panic!("{}", rejected.error);
    };
    assert!(
        reason.contains("the driver has no cuStreamWaitValue64_v2"),
        "{reason}"
    );
    assert_eq!(memory_calls(), []);
    host::Device::new()
        .import_timeline(rejected.handle)
        .map_err(|r| r.error)
        .unwrap();
}

/// T7. At a larger distance the device would treat the value as reached.
#[test]
fn values_too_far_apart_are_refused() {
    let device = device();
    let (line, _) = shared(&device, 5);
    let from = queue(&device, "from");
    let far = 5 + (1 << 63);
    memory_calls();
    let refused = from.submit(&[line.at(far)], |_| Ok(()), &[]).map(drop);
    assert!(
        matches!(refused, Err(Error::ValueOutOfRange { .. })),
        "{refused:?}"
    );
    let refused = from
        .submit(&[], |_| Ok(()), &[line.signal_at(far)])
        .map(drop);
    assert!(
        matches!(refused, Err(Error::ValueOutOfRange { .. })),
        "{refused:?}"
    );
    from.submit(&[], |_| Ok(()), &[line.signal_at(far - 1)])
        .unwrap();
    assert_eq!(memory_calls(), [Call::Write(far - 1)]);
    write(&from);
    through(&from);
    assert_eq!(line.value().unwrap(), far - 1);
}

/// Signals that the lost device still owed fail in the page, for every process.
///
/// Timelines that it only waited for do not fail.
#[test]
fn a_lost_device_fails_the_counters_that_it_owes() {
    let device = device();
    let [(owed, failed), (made, done), (waited, kept)] = [0; 3].map(|_| shared(&device, 0));
    let queue = queue(&device, "queue");
    queue.submit(&[], |_| Ok(()), &[made.signal_at(1)]).unwrap();
    write(&queue);
    through(&queue);
    made.at(1).wait(std::time::Duration::ZERO).unwrap();
    waited.signal(1).unwrap();
    queue
        .submit(&[waited.at(1)], |_| Ok(()), &[owed.signal_at(1)])
        .unwrap();
    assert!(owed.at(1).is_pending().unwrap());
    let call = "cuEventQuery";
    let lost = device.context().error(Code { call, code: 700 });
    assert!(matches!(lost, Error::DeviceLost { .. }), "{lost:?}");
    // Another thread fails the counter.
    while failed.check().is_ok() {
        std::thread::yield_now();
    }
    let waited_for = owed.at(1).wait(std::time::Duration::from_secs(10));
    let Err(Error::Failed { cause, .. }) = waited_for else {
        panic!("{waited_for:?}")
    };
    assert!(
        matches!(&*cause, Error::FailedElsewhere { code: 700, cause, .. } if cause.contains(call)),
        "{cause}"
    );
    for (line, counter) in [(&made, &done), (&waited, &kept)] {
        counter.check().unwrap();
        assert_eq!(line.frozen_value(), counter.value().unwrap());
    }
}
