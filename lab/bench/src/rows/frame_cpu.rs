//! Processor time of frames.

use std::sync::Arc;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, QueueKind};

use crate::cpu;
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::channel::{Counter, Worker};
use crate::row::{Call, LONG, Question, Row};
use crate::side::{OURS, Outcome, RAW, Side};

/// Submissions of one frame.
const SUBMISSIONS: u64 = 20;

/// Frames in flight.
const IN_FLIGHT: u64 = 3;

/// Batches are whole multiples of this many frames.
///
/// So that mostly three frames are in flight, also in a short run.
const FRAMES: u64 = 24;

pub(super) const ROWS: &[Row] = &[Row {
    id: "frame.cpu",
    question: Question::Frame,
    ours: "processor time of the whole process for one frame: 20 submissions without work to two queues in turns, each of which waits for the one before it and signals. Before a frame the host waits for the third frame before it, with the default wait",
    raw: "the same by hand, and a wait that sleeps: cuStreamWaitEvent, cuEventRecord and cuEventSynchronize of events for that; vkQueueSubmit and vkWaitSemaphores; on the host boxed closures through channels to two threads, and a condition variable",
    // 300 ns for each submission.
    limits: &[Limit::OverRaw(300.0 * SUBMISSIONS as f64)],
    on: &[On::Each],
    variants: &[],
    run: frames,
}];

/// Two queues that take submissions in turns, each behind the one before it.
struct Queues<'q> {
    /// Makes the submission with this number, counted from 1.
    submit: Box<dyn Fn(u64) -> Outcome<()> + 'q>,
    /// Waits until this submission has finished.
    wait: Box<dyn Fn(u64) -> Outcome<()> + 'q>,
}

fn ours(device: &Device) -> Outcome<Queues<'static>> {
    let queue = || device.queue(QueueKind::Compute, "frames");
    let queues = [queue()?, queue()?];
    let timeline = Arc::new(device.timeline("frames")?);
    let awaited = timeline.clone();
    Ok(Queues {
        submit: Box::new(move |number| {
            let (wait, signal) = (timeline.at(number - 1), timeline.signal_at(number));
            queues[(number % 2) as usize].submit(&[wait], |_| Ok(()), &[signal])?;
            Ok(())
        }),
        wait: Box::new(move |number| Ok(awaited.at(number).wait(LONG)?)),
    })
}

fn workers() -> Queues<'static> {
    let workers = [Worker::start(), Worker::start()];
    let counter = Arc::new(Counter::default());
    let awaited = counter.clone();
    Queues {
        submit: Box::new(move |number| {
            workers[(number % 2) as usize].step(&counter, number - 1, || ())
        }),
        wait: Box::new(move |number| {
            awaited.wait(number);
            Ok(())
        }),
    }
}

#[cfg(feature = "cuda")]
fn on_cuda(hand: &crate::raw::cuda::Hand) -> Outcome<Queues<'_>> {
    use crate::raw::cuda::{record, synchronize, wait_event};

    /// An event for each submission in flight, and for the frame before those.
    const EVENTS: u64 = SUBMISSIONS * (IN_FLIGHT + 1);

    let streams = [hand.stream()?, hand.stream()?];
    let events = (0..EVENTS).map(|_| hand.blocking_event());
    let events = events.collect::<Outcome<Vec<_>>>()?;
    let event = move |number: u64| events[(number % EVENTS) as usize];
    let awaited = event.clone();
    Ok(Queues {
        submit: Box::new(move |number| {
            let stream = streams[(number % 2) as usize];
            wait_event(stream, event(number - 1))?;
            record(event(number), stream)
        }),
        wait: Box::new(move |number| synchronize(awaited(number))),
    })
}

#[cfg(feature = "vulkan")]
fn on_vulkan(hands: &[crate::raw::vulkan::Hand; 2]) -> Outcome<Queues<'_>> {
    let semaphore = hands[0].semaphore(false)?;
    Ok(Queues {
        submit: Box::new(move |number| {
            let (of, wait, signal) = ([semaphore.raw], [number - 1], [number]);
            hands[(number % 2) as usize].submit((&of, &wait), (&of, &signal))
        }),
        wait: Box::new(move |number| {
            hands[0].expect(semaphore, number);
            hands[0].wait(semaphore.raw, number)
        }),
    })
}

/// Makes `count` frames after the first `made`, and waits for their end.
fn make(queues: &Queues<'_>, made: u64, count: u64) -> Outcome<()> {
    for frame in made..made + count {
        // The last submission of the third frame before.
        (queues.wait)(frame.saturating_sub(IN_FLIGHT - 1) * SUBMISSIONS)?;
        for at in 1..=SUBMISSIONS {
            (queues.submit)(frame * SUBMISSIONS + at)?;
        }
    }
    (queues.wait)((made + count) * SUBMISSIONS)
}

fn side<'q>(name: &'static str, queues: Queues<'q>) -> Side<'q> {
    let mut made = 0;
    let run = move |count| {
        made += count;
        cpu::spent_on(|| make(&queues, made - count, count))
    };
    Side::new(name, run).step(FRAMES)
}

fn frames(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.device(call.subject.indices[0])?;
    let ours = side(OURS, ours(&device)?);
    match &device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            let hand = crate::raw::cuda::Hand::new(device)?;
            lab.race(vec![ours, side(RAW, on_cuda(&hand)?)])
        }
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => {
            // Both are alive at once, so that they use two queues of the driver if it has two.
            let queue = || device.queue(QueueKind::Compute, "by hand");
            let queues = [queue()?, queue()?];
            let hand = |queue| crate::raw::vulkan::Hand::new(device, queue);
            let hands = [hand(&queues[0])?, hand(&queues[1])?];
            let raced = lab.race(vec![ours, side(RAW, on_vulkan(&hands)?)]);
            // The first hand destroys the semaphore, but only waits for its own queue.
            hands[1].settle().and(raced)
        }
        _ => lab.race(vec![ours, side(RAW, workers())]),
    }?;
    lab.note("of all threads of the process, also those of software drivers".into());
    Ok(())
}
