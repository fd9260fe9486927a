#![allow(clippy::unwrap_used, reason = "a test's")]

use std::any::Any;

use rstest::rstest;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{QueueKind, Timeline};

use super::*;
use crate::Word;
use crate::device::open::Device;
use crate::driver::emulated::{
    Call, Pointed, device, device_with, every_address_is, finish, finish_stream, memory_calls, put,
    refuse_writes, write,
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
    let most = OBSERVED as u64;
    for value in 1..=most {
        promise(&line, value).unwrap();
        assert_eq!(memory_calls(), [Call::Wait(value)]);
    }
    let refused = promise(&line, most + 1).unwrap_err();
    assert!(
        refused.to_string().contains("wait for one of them first"),
        "{refused}"
    );
    assert!(memory_calls().is_empty() && !line.at(most + 1).is_pending().unwrap());
    // A wait and a record for each value.
    observer(port, |stream| finish_stream(stream, 5));
    assert_eq!(line.value().unwrap(), 2);
    promise(&line, most + 1).unwrap();
    observer(port, |stream| finish_stream(stream, 2 * (most + 1)));
    assert_eq!(line.value().unwrap(), most + 1);
    assert_eq!(port.last_polled(), most + 1);
    let refused = line.signal(most + 2).unwrap_err();
    assert!(refused.to_string().contains("device memory"), "{refused}");
}

#[test]
fn a_refused_write_leaves_the_word_as_it_was() {
    let device = device();
    let Adopted { line, .. } = adopt(&device, 64, PINNED, 0).unwrap();
    let queue = queue(&device, "queue");
    refuse_writes(1);
    let refused = queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]);
    assert!(matches!(refused.map(drop), Err(Error::Native { .. })));
    assert_eq!(port(&line, &device).word.visibility.outstanding(), 0);
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
    write(&queue);
    finish(&queue, put(&queue));
    assert_eq!(line.value().unwrap(), 1);
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
        if !drops_before {
            observer(port(&line, &device), |stream| finish_stream(stream, 2));
        }
        drop(line);
        assert_eq!(owners(), usize::from(drops_before));
        // Waits for the stream.
        device.free_what_is_due().unwrap();
        assert_eq!(owners(), 0);
    }
}
