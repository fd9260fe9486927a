//! Words of the application's memory as timelines of CUDA.
#![allow(unsafe_code, reason = "adopts a word, as an application does")]

use std::sync::atomic::Ordering;

use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::Word;

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::cuda::{Hand, Words, finish, has_memory_operations};
use crate::row::{BURST, Call, LONG, Question, Row, Variant};
use crate::side::{self, Outcome, Side, Stop};

const WRITE: u64 = 0;
const WAIT: u64 = 1;

/// The words of the sides.
const OURS: usize = 0;
const RAW: usize = 1;

pub(super) const ROWS: &[Row] = &[Row {
    id: "cuda.word",
    question: Question::Submission,
    ours: "a submission to a stream that writes an adopted word in mapped host memory, or waits for it, 64 at a time, without their end; what they wait for is promised, and the host writes it after the timed part",
    raw: "cuStreamWriteValue64, or cuStreamWaitValue64, 64 at a time",
    limits: &[],
    on: &[On::Cuda],
    variants: &[
        Variant::new("write", WRITE).with_limits(&[Limit::OverRaw(550.0)]),
        Variant::new("wait", WAIT).with_limits(&[Limit::OverRaw(550.0)]),
    ],
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
    let words = Words::new(&hand, 2)?;
    let adopted = Word::Bits64(words.address(OURS));
    // SAFETY: the memory lives until all work of this row has ended. The host writes promised
    // values only, and in the other variant only the timeline writes the word.
    let line = unsafe { device.adopt_word(adopted, 0, None, "word") }?;
    let queue = device.queue(QueueKind::Compute, "words")?;
    let stream = hand.stream()?;
    // The host writes what the burst has waited for.
    let open = |side: usize, value| {
        if waits {
            words.word(side).store(value, Ordering::Release);
        }
    };
    lab.race(vec![
        Side::gated(
            side::OURS,
            BURST,
            |values| match waits {
                true => Ok(line.signalled_by_others(values.end - 1)?),
                false => Ok(()),
            },
            |value| {
                if waits {
                    queue.submit(&[line.at(value)], |_| Ok(()), &[])?;
                } else {
                    queue.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
                }
                Ok(())
            },
            |last| {
                open(OURS, last);
                Ok(queue.idle(LONG)?)
            },
        ),
        Side::values(
            side::RAW,
            BURST,
            |value| match waits {
                true => words.wait(stream, RAW, value),
                false => words.write(stream, RAW, value),
            },
            |last| {
                open(RAW, last);
                finish(stream)
            },
        ),
    ])
}
