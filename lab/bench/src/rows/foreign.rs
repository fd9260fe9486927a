//! Vulkan: frames of another library, which signals semaphores of its own.
#![allow(unsafe_code, reason = "adopts semaphores, as an application does")]

use std::ops::Range;
use std::sync::Mutex;

use ash::vk;
use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::Device;
use syncline::{QueueKind, Timeline};

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::vulkan::{Hand, Semaphore};
use crate::row::{Call, LONG, Question, Row, lock};
use crate::side::{OURS, Outcome, RAW, Side};

/// Number of frames of a pool. A burst uses each of them once.
const FRAMES: usize = 16;

/// Name of the side whose timelines are Syncline's own.
const CLAIM: &str = "claim";

pub(super) const ROWS: &[Row] = &[Row {
    id: "foreign.frames",
    question: Question::Frame,
    ours: "a frame of another library: its lock, a promise of the other library's signal, a submission that waits for it and signals the next value, and wait_submitted; a pool of 16 frames, without their end and without the other library's submissions. claim: the same on timelines of Syncline's own, with a claim in place of the promise",
    raw: "vkQueueSubmit with the same wait and the same signal, behind a mutex",
    limits: &[Limit::Figure("ratio_to_claim", 1.1)],
    on: &[On::Vulkan],
    variants: &[],
    run: frames,
}];

/// A frame. The other library signals odd values, and this row signals even ones.
struct Frame {
    semaphore: vk::Semaphore,
    /// The same semaphore, if a hand has made it.
    by_hand: Option<Semaphore>,
    /// Absent from the side that goes past Syncline.
    line: Option<Timeline>,
    /// The value that the last submission with this frame signals.
    value: Mutex<u64>,
}

impl Frame {
    /// A frame with a semaphore of the other library, and perhaps a timeline over it.
    fn new(device: &Device, hand: &Hand, is_adopted: bool) -> Outcome<Self> {
        let semaphore = hand.semaphore(false)?;
        let adopt = || -> syncline::Result<_> {
            // SAFETY: a timeline semaphore of this device. Its hand keeps it until it has the
            // values that submissions signal. The other library's signals are promised before each
            // of ours.
            let (port, value) = unsafe { device.adopt_semaphore(semaphore.raw, false) }?;
            let mut port = Some(port);
            Timeline::new("frame", value, |_| Ok(port.take().into_iter().collect()))
        };
        Ok(Self {
            semaphore: semaphore.raw,
            by_hand: Some(semaphore),
            line: is_adopted.then(adopt).transpose()?,
            value: Mutex::new(0),
        })
    }

    /// A frame with a timeline of Syncline's own.
    fn own(device: &Device) -> Outcome<Self> {
        let line = device.timeline("frame")?;
        Ok(Self {
            semaphore: device.semaphore_of(&line)?,
            by_hand: None,
            line: Some(line),
            value: Mutex::new(0),
        })
    }
}

/// A pool of frames.
fn pool(frame: impl Fn() -> Outcome<Frame>) -> Outcome<Vec<Frame>> {
    (0..FRAMES).map(|_| frame()).collect()
}

/// Submits a wait for the frame's value and a signal of the next one, by hand.
fn use_frame(hand: &Hand, frame: &Frame) -> Outcome<()> {
    let mut value = lock(&frame.value);
    let (semaphore, next) = ([frame.semaphore], *value + 1);
    hand.submit((&semaphore, &[*value]), (&semaphore, &[next]))?;
    *value = next;
    Ok(())
}

fn frames(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.vulkan(call.subject)?;
    let queue = device.queue(QueueKind::Compute, "frames")?;
    let hand = Hand::new(&device, &queue)?;
    let adopted = pool(|| Frame::new(&device, &hand, true))?;
    let own = pool(|| Frame::own(&device))?;
    let raw = pool(|| Frame::new(&device, &hand, false))?;
    let at = |value: u64| value as usize % FRAMES;
    let by_hand = |pool: &[Frame], mut values: Range<u64>| {
        values.try_for_each(|value| use_frame(&hand, &pool[at(value)]))
    };
    let drain = |pool: &[Frame]| -> Outcome<()> {
        for frame in pool {
            let value = *lock(&frame.value);
            if let Some(semaphore) = frame.by_hand {
                hand.expect(semaphore, value);
            }
            hand.wait(frame.semaphore, value)?;
        }
        Ok(queue.idle(LONG)?)
    };
    // Uses a frame. `note` tells the engine of the other library's signal.
    type Note = fn(&Timeline, u64) -> syncline::Result<()>;
    let consume = |frame: &Frame, note: Note| -> Outcome<()> {
        let Some(line) = &frame.line else {
            return Ok(());
        };
        let mut value = lock(&frame.value);
        note(line, *value)?;
        let (wait, next) = (line.at(*value), *value + 1);
        let submitted = queue.submit(&[wait], |_| Ok(()), &[line.signal_at(next)])?;
        *value = next;
        Ok(submitted.wait_submitted(LONG)?)
    };
    let claim: Note = |line, value| line.claim(value)?.submitted();
    let burst = FRAMES as u64;
    lab.race(vec![
        Side::gated(
            OURS,
            burst,
            |values| by_hand(&adopted, values),
            |value| consume(&adopted[at(value)], Timeline::signalled_by_others),
            |_| drain(&adopted),
        ),
        Side::gated(
            CLAIM,
            burst,
            |values| by_hand(&own, values),
            |value| consume(&own[at(value)], claim),
            |_| drain(&own),
        ),
        Side::gated(
            RAW,
            burst,
            |values| by_hand(&raw, values),
            |value| use_frame(&hand, &raw[at(value)]),
            |_| drain(&raw),
        ),
    ])
}
