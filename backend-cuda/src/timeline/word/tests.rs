#![allow(clippy::unwrap_used, reason = "a test's")]

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rstest::rstest;
use syncline_core::backend::{Device as _, Queue as _, Watch as _};
use syncline_core::{QueueKind, Timeline};

use super::*;
use crate::Word;
use crate::device::open::Device;
use crate::driver::emulated::{
    Call, Pointed, before_the_next_is_put, device, device_with, every_address_is, finish,
    finish_raw, finish_stream, memory_calls, put, queries_find_a_loss, refuse_records,
    refuse_writes, while_asked, write,
};
use crate::driver::table::Optional;
use crate::queue::submission::Queue;

/// A word of the host's memory, and its timeline.
struct Adopted {
    word: Arc<AtomicU64>,
    line: Timeline,
}

/// What the driver says of pinned memory of the device's context, unless it is changed.
const PINNED: Pointed = Pointed {
    kind: 1,
    managed: 0,
    context: 0,
    left: 64,
};

fn adopt(device: &Device, bits: u32, pointed: Pointed, reached: u64) -> Result<Adopted> {
    every_address_is(pointed);
    let word = Arc::new(AtomicU64::new(reached));
    let address = word.as_ptr().expose_provenance() as u64;
    let owner: Arc<dyn Any + Send + Sync> = word.clone();
    let at = match bits {
        32 => Word::Bits32(address),
        _ => Word::Bits64(address),
    };
    // SAFETY: the owner keeps the word.
    let line = unsafe { device.adopt_word(at, reached, Some(owner), "word") }?;
    Ok(Adopted { word, line })
}

fn queue(device: &Device, label: &str) -> Queue {
    device.queue(QueueKind::Compute, label).unwrap()
}

fn promise(line: &Timeline, value: u64) -> Result<()> {
    line.signalled_by_others(value)
}

fn port<'l>(line: &'l Timeline, device: &Device) -> &'l WordPort {
    line.port(device.id()).unwrap()
}

#[rstest]
#[case::wide(64, Call::Wait(5), Call::Write(6))]
#[case::narrow(32, Call::Batch(vec![Call::Wait(5)]), Call::Batch(vec![Call::Write(6)]))]
fn a_wait_and_a_signal_are_one_call_each(
    #[case] bits: u32,
    #[case] wait: Call,
    #[case] signal: Call,
) {
    let device = device();
    let Adopted { word, line } = adopt(&device, bits, PINNED, 0).unwrap();
    let queue = queue(&device, "queue");
    let held = queue.submit(&[line.at(5)], |_| Ok(()), &[line.signal_at(6)]);
    assert!(held.unwrap().is_held() && memory_calls().is_empty());
    promise(&line, 5).unwrap();
    assert_eq!(memory_calls(), [wait, signal]);
    word.store(5, Ordering::SeqCst);
    assert_eq!(line.value().unwrap(), 5);
    write(&queue);
    // The word shows 6, and the event behind the write is not complete yet.
    assert_eq!(word.load(Ordering::SeqCst), 6);
    assert_eq!(line.value().unwrap(), 5);
    finish(&queue, put(&queue));
    assert_eq!(line.value().unwrap(), 6);
}

#[test]
fn a_promise_costs_no_call_where_the_host_reads_the_word() {
    let device = device();
    let Adopted { word, line } = adopt(&device, 64, PINNED, 3).unwrap();
    promise(&line, 4).unwrap();
    assert!(memory_calls().is_empty() && port(&line, &device).is_read_by_host());
    assert!(!line.at(4).is_reached().unwrap());
    word.store(4, Ordering::SeqCst);
    assert!(line.at(4).is_reached().unwrap());
}

/// Counts the event queries of this thread from now on.
fn event_queries() -> Rc<Cell<u32>> {
    fn count(queries: Rc<Cell<u32>>) {
        while_asked(move || {
            queries.set(queries.get() + 1);
            count(queries);
        });
    }
    let queries = Rc::default();
    count(Rc::clone(&queries));
    queries
}

/// T2: the word tells whether others have signalled, and no event behind it.
#[test]
fn a_signal_reads_the_word_and_no_event() {
    let device = device();
    let Adopted { word, line } = adopt(&device, 64, PINNED, 0).unwrap();
    let queue = queue(&device, "queue");
    let queries = event_queries();
    for value in 1..=64 {
        let signals = [line.signal_at(value)];
        queue.submit(&[], |_| Ok(()), &signals).unwrap();
        write(&queue);
    }
    assert_eq!(queries.get(), 0);
    memory_calls();
    // Others write without a promise. The events behind the writes are not complete yet.
    word.store(70, Ordering::SeqCst);
    let sent = queue.submit(&[], |_| Ok(()), &[line.signal_at(65)]);
    let refused = sent.map(drop).unwrap_err();
    assert!(
        matches!(refused, Error::Corrupted { found: 70, .. }),
        "{refused}"
    );
    assert!(memory_calls().is_empty());
    // So the host may act on none of these values.
    assert_eq!(line.frozen_value(), 0);
}

/// The stream of the engine that waits for promised values.
fn observer(port: &WordPort, use_it: impl FnOnce(&Stream)) {
    let Reading::Observed(stream) = &port.word.reading else {
        panic!("the host reads it");
    };
    use_it(stream.lock().as_ref().unwrap());
}

#[test]
fn in_device_memory_a_stream_waits_for_promised_values() {
    let device = device();
    let pointed = Pointed { kind: 2, ..PINNED };
    let Adopted { line, .. } = adopt(&device, 64, pointed, 0).unwrap();
    let port = port(&line, &device);
    assert!(!port.is_read_by_host());
    for value in 1..=3 {
        promise(&line, value).unwrap();
        assert_eq!(memory_calls(), [Call::Wait(value)]);
    }
    // A wait and a record for each value.
    observer(port, |stream| finish_stream(stream, 5));
    assert_eq!(line.value().unwrap(), 2);
    observer(port, |stream| finish_stream(stream, 6));
    assert_eq!((line.value().unwrap(), port.last_polled()), (3, 3));
}

/// They share the commands that the driver takes before it blocks the caller.
#[test]
fn all_words_of_a_device_have_one_limit() {
    let device = device();
    let pointed = Pointed { kind: 2, ..PINNED };
    let [first, second] = [(); 2].map(|()| adopt(&device, 64, pointed, 0).unwrap().line);
    let half = OBSERVED as u64 / 2;
    for value in 1..=half {
        promise(&first, value).unwrap();
        promise(&second, value).unwrap();
    }
    memory_calls();
    let refused = promise(&second, half + 1).unwrap_err().to_string();
    assert!(refused.contains("wait for one of them first"), "{refused}");
    assert!(memory_calls().is_empty() && !second.at(half + 1).is_pending().unwrap());
    observer(port(&first, &device), |stream| finish_stream(stream, 2));
    promise(&second, half + 1).unwrap();
    promise(&second, half + 2).unwrap_err();
    drop(first);
    promise(&second, half + 2).unwrap();
}

/// The refusal changes nothing.
#[test]
fn the_host_signals_no_word_in_device_memory() {
    let device = device();
    let pointed = Pointed { kind: 2, ..PINNED };
    let Adopted { line, .. } = adopt(&device, 64, pointed, 0).unwrap();
    let worker = syncline_core::host::Device::new();
    let worker = worker.queue(QueueKind::Compute, "worker").unwrap();
    let refused = [
        line.signal(1).unwrap_err(),
        worker
            .submit(&[], |_| Ok(()), &[line.signal_at(1)])
            .map(drop)
            .unwrap_err(),
    ];
    for refused in refused {
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    }
    let queue = queue(&device, "queue");
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
    finish(&queue, put(&queue));
    assert_eq!(line.value().unwrap(), 1);
}

/// No driver call for the word would tell it.
#[test]
fn a_watch_finds_that_the_device_is_lost() {
    let device = device();
    let Adopted { line, .. } = adopt(&device, 64, PINNED, 0).unwrap();
    promise(&line, 1).unwrap();
    queries_find_a_loss(true);
    let until = Instant::now() + Duration::from_secs(10);
    let watched = device.inner().watch(&[(port(&line, &device), 1)], until);
    queries_find_a_loss(false);
    assert!(
        matches!(watched, Err(Error::DeviceLost { .. })),
        "{watched:?}"
    );
}

#[test]
fn a_refused_write_leaves_the_word_as_it_was() {
    let device = device();
    let Adopted { line, .. } = adopt(&device, 64, PINNED, 0).unwrap();
    let queue = queue(&device, "queue");
    refuse_writes(1);
    let refused = queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]);
    assert!(matches!(refused.map(drop), Err(Error::Native { .. })));
    assert_eq!(
        port(&line, &device)
            .word
            .visibility
            .reached(device.context())
            .unwrap(),
        0
    );
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
    write(&queue);
    finish(&queue, put(&queue));
    assert_eq!(line.value().unwrap(), 1);
}

/// Q5: the stream makes the signal, although the event behind it was refused.
#[rstest]
fn a_signal_that_the_stream_has_is_not_refused(#[values(false, true)] held: bool) {
    let device = device();
    let Adopted { word, line } = adopt(&device, 64, PINNED, 0).unwrap();
    let queue = queue(&device, "queue");
    let wait = line.at(u64::from(held));
    let submit = || queue.submit(&[wait], |_| Ok(()), &[line.signal_at(2)]);
    let submitted = held.then(submit);
    refuse_records(1);
    // The device is so fast that the word shows the value before the engine goes on.
    let shows = word.clone();
    before_the_next_is_put(move || shows.store(2, Ordering::SeqCst));
    if held {
        promise(&line, 1).unwrap();
    }
    let submitted = submitted.unwrap_or_else(submit).unwrap();
    submitted.wait_submitted(Duration::ZERO).unwrap();
    let written = memory_calls();
    assert_eq!(written.last(), Some(&Call::Write(2)), "{written:?}");
    // The host does not know that the memory before it is visible, so it ends its waits.
    let failed = line.at(2).wait(Duration::ZERO).unwrap_err();
    let cause = failed.root().to_string();
    assert!(cause.contains("cuEventRecord"), "{failed}");
    let again = queue.submit(&[], |_| Ok(()), &[line.signal_at(2)]);
    assert!(matches!(again, Err(Error::Failed { .. })), "{again:?}");
    assert!(memory_calls().is_empty());
    // The queue goes on.
    finish(&queue, put(&queue));
    queue.idle(Duration::ZERO).unwrap();
}

/// The same for a submission of the application's own.
#[test]
fn a_claimed_signal_that_the_stream_has_is_made_once() {
    let device = device();
    let Adopted { line, .. } = adopt(&device, 64, PINNED, 0).unwrap();
    let queue = queue(&device, "queue");
    let mut claim = line.claim(1).unwrap();
    refuse_records(1);
    let stream = queue.queue_stream().stream().raw();
    // SAFETY: the queue keeps the stream.
    let made = unsafe { device.submit_claimed(&line, &mut claim, stream) };
    assert!(matches!(made, Err(Error::Native { .. })), "{made:?}");
    // SAFETY: the queue keeps the stream.
    let again = unsafe { device.submit_claimed(&line, &mut claim, stream) };
    assert!(matches!(again, Err(Error::Failed { .. })), "{again:?}");
    assert_eq!(memory_calls(), [Call::Write(1)]);
}

#[rstest]
#[case::unknown(Pointed { kind: 0, ..PINNED }, "was not registered")]
#[case::managed(Pointed { managed: 1, ..PINNED }, "managed memory")]
#[case::array(Pointed { kind: 3, ..PINNED }, "another kind")]
#[case::end(Pointed { left: 4, ..PINNED }, "the allocation ends at")]
#[case::of_another_context(Pointed { context: 77, ..PINNED }, "0x4d")]
fn what_the_driver_says_of_an_address_decides(#[case] pointed: Pointed, #[case] reason: &str) {
    let refused = adopt(&device(), 64, pointed, 0).map(drop).unwrap_err();
    assert!(refused.to_string().contains(reason), "{refused}");
}

#[test]
fn a_driver_without_the_functions_has_no_words() {
    let device = device_with(Optional::none());
    let refused = adopt(&device, 64, PINNED, 0).map(drop).unwrap_err();
    assert!(
        refused.to_string().contains("cuStreamWaitValue64_v2"),
        "{refused}"
    );
}

#[test]
fn the_owner_outlives_the_waits_for_promised_values() {
    let device = device();
    let pointed = Pointed { kind: 2, ..PINNED };
    for drops_before in [true, false] {
        let Adopted { word, line } = adopt(&device, 64, pointed, 0).unwrap();
        promise(&line, 1).unwrap();
        let owners = || Arc::strong_count(&word) - 1;
        let mut raw = None;
        observer(port(&line, &device), |stream| {
            raw = Some(stream.raw());
            if !drops_before {
                finish_stream(stream, 2);
            }
        });
        drop(line);
        assert_eq!(owners(), usize::from(drops_before));
        // Waits for nothing.
        device.free_what_is_due().unwrap();
        assert_eq!(owners(), usize::from(drops_before));
        if drops_before {
            finish_raw(raw.unwrap(), 2);
        }
        device.free_what_is_due().unwrap();
        assert_eq!(owners(), 0);
    }
}

/// Others may never write the word.
#[test]
fn the_end_of_a_device_waits_briefly_for_promised_values() {
    let device = device();
    let pointed = Pointed { kind: 2, ..PINNED };
    let Adopted { word, line } = adopt(&device, 64, pointed, 0).unwrap();
    promise(&line, 1).unwrap();
    drop(line);
    drop(device);
    // The stream still waits, so the owner stays.
    assert_eq!(Arc::strong_count(&word), 2);
}
