//! Words of the application's memory as timelines of CUDA.
#![allow(unsafe_code, reason = "adopts a word, as an application does")]

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::Word;

use super::{Call, Floor, Row, Variant};
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::cuda::{Hand, has_memory_operations};
use crate::side::{Outcome, Side, Stop, gated_bursts};

/// Time-out of all waits of this row.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of outstanding submissions of a side.
const BURST: u64 = 64;

const WRITE: u64 = 0;
const WAIT: u64 = 1;

/// The words of the sides.
const OURS: usize = 0;
const RAW: usize = 1;
const FLOOR: usize = 2;

pub(super) const ROWS: &[Row] = &[Row {
    id: "cuda.word",
    ours: "a submission to a stream that writes an adopted word in mapped host memory, or waits for it, 64 at a time, without their end; what they wait for is promised, and the host writes it after the timed part",
    raw: "cuStreamWriteValue64, or cuStreamWaitValue64, 64 at a time",
    floor: Floor::Side(
        "the same call, and cuEventRecord: behind a write only the event says that the writes before it are visible to the host (Q9), and behind a wait another thread may wait for the end of the submission (Q7)",
    ),
    limits: &[Limit::OverFloor(200.0)],
    on: &[On::Cuda],
    variants: &[Variant::new("write", WRITE), Variant::new("wait", WAIT)],
    run: word,
}];

fn word(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.cuda(call.subject)?;
    if !has_memory_operations(&device) {
        let reason = "this device's streams have no memory operations";
        return Err(Stop::Skipped(reason.into()));
    }
    let waits = call.n == WAIT;
    let hand = Hand::new(&device)?;
    let words = hand.words(3)?;
    let adopted = Word::Bits64(words.address(OURS));
    // SAFETY: the memory lives until all work of this row has ended. The host writes promised
    // values only, and in the other variant only the timeline writes the word.
    let line = unsafe { device.adopt_word(adopted, 0, None, "word") }?;
    let queue = device.queue(QueueKind::Compute, "words")?;
    let (raw_stream, floor_stream) = (hand.stream()?, hand.stream()?);
    let events = hand.events(BURST, false)?;
    let values = [Cell::new(0), Cell::new(0), Cell::new(0)];
    let next = |side: usize, count| values[side].get() + 1..=values[side].get() + count;
    let by_hand = |side: usize, stream, value| {
        if waits {
            hand.wait_value(stream, &words, side, value)
        } else {
            hand.write_value(stream, &words, side, value)
        }
    };
    // The host writes what the burst has waited for.
    let open = |side: usize| {
        if waits {
            let word = words.word(side);
            word.store(values[side].get(), Ordering::Release);
        }
    };
    lab.race(vec![
        Side::ours(|n| {
            gated_bursts(
                n,
                BURST,
                |count| match waits {
                    true => Ok(line.signalled_by_others(values[OURS].get() + count)?),
                    false => Ok(()),
                },
                |count| {
                    let values_of_burst = next(OURS, count);
                    values[OURS].set(*values_of_burst.end());
                    for value in values_of_burst {
                        if waits {
                            queue.submit(&[line.at(value)], |_| Ok(()), &[])?;
                        } else {
                            queue.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
                        }
                    }
                    Ok(())
                },
                || {
                    open(OURS);
                    Ok(queue.idle(LONG)?)
                },
            )
        })
        .step(BURST),
        Side::raw(|n| {
            gated_bursts(
                n,
                BURST,
                |_| Ok(()),
                |count| {
                    let mut values_of_burst = next(RAW, count);
                    values[RAW].set(*values_of_burst.end());
                    values_of_burst.try_for_each(|value| by_hand(RAW, raw_stream, value))
                },
                || {
                    open(RAW);
                    hand.finish(raw_stream)
                },
            )
        })
        .step(BURST),
        Side::floor(|n| {
            gated_bursts(
                n,
                BURST,
                |_| Ok(()),
                |count| {
                    let values_of_burst = next(FLOOR, count);
                    values[FLOOR].set(*values_of_burst.end());
                    for (value, event) in values_of_burst.zip(&events) {
                        by_hand(FLOOR, floor_stream, value)?;
                        hand.record(*event, floor_stream)?;
                    }
                    Ok(())
                },
                || {
                    open(FLOOR);
                    hand.finish(floor_stream)
                },
            )
        })
        .step(BURST),
    ])
}
