//! Processor time of frames.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Queue, QueueKind, Timeline};

use super::{Call, Floor, RECORDED, Row};
use crate::cpu;
use crate::lab::Lab;
use crate::machine::On;
use crate::raw::channel::{Counter, Job, Patience, Worker};
use crate::side::{Outcome, Side, Stop};

/// Time-out of all waits of this row.
const LONG: Duration = Duration::from_secs(20);

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
    ours: "processor time of the whole process for one frame: 20 submissions without work to two queues in turns, each of which waits for the one before it and signals. Before a frame the host waits for the third frame before it, with the default wait",
    raw: "the same by hand, and a wait that sleeps: cuStreamWaitEvent, cuEventRecord and cuEventSynchronize of events for that; vkQueueSubmit and vkWaitSemaphores; on the host boxed closures through channels to two threads, and a condition variable, for which both threads sleep at once; looking (host only): the same, but they poll for as long as ours before they sleep",
    floor: Floor::Unmeasured("how long a wait polls before it sleeps is a choice"),
    limits: RECORDED,
    on: &[On::Each],
    variants: &[],
    run: frames,
}];

/// Two queues that take submissions in turns, each behind the one before it.
trait Queues {
    /// Makes the submission with this number, counted from 1.
    fn submit(&self, number: u64) -> Outcome<()>;

    /// Waits until this submission has finished.
    fn wait(&self, number: u64) -> Outcome<()>;
}

/// Through Syncline.
struct Ours {
    queues: [Queue; 2],
    timeline: Timeline,
}

impl Queues for Ours {
    fn submit(&self, number: u64) -> Outcome<()> {
        let (wait, signal) = (
            self.timeline.at(number - 1),
            self.timeline.signal_at(number),
        );
        self.queues[(number % 2) as usize].submit(&[wait], |_| Ok(()), &[signal])?;
        Ok(())
    }

    fn wait(&self, number: u64) -> Outcome<()> {
        Ok(self.timeline.at(number).wait(LONG)?)
    }
}

/// Worker threads by hand.
struct Workers {
    workers: [Worker; 2],
    counter: Arc<Counter>,
}

impl Workers {
    fn new(patience: Patience) -> Self {
        Self {
            workers: [(); 2].map(|()| Worker::start(patience)),
            counter: Arc::new(Counter::new(patience)),
        }
    }
}

impl Queues for Workers {
    fn submit(&self, number: u64) -> Outcome<()> {
        let job = Job {
            wait: (self.counter.clone(), number - 1),
            work: Box::new(|| ()),
            signal: (self.counter.clone(), number),
        };
        if self.workers[(number % 2) as usize].send(job) {
            return Ok(());
        }
        Err(Stop::Failed("a worker by hand has ended".into()))
    }

    fn wait(&self, number: u64) -> Outcome<()> {
        self.counter.wait(number);
        Ok(())
    }
}

#[cfg(feature = "cuda")]
mod on_cuda {
    use super::{IN_FLIGHT, Outcome, Queues, SUBMISSIONS};
    use crate::raw::cuda::{Event, Hand, Stream};

    /// An event for each submission in flight, and for the frame before those.
    const EVENTS: u64 = SUBMISSIONS * (IN_FLIGHT + 1);

    pub(super) struct ByHand {
        hand: Hand,
        streams: [Stream; 2],
        events: Vec<Event>,
    }

    impl ByHand {
        pub(super) fn new(device: &syncline::cuda::Device) -> Outcome<Self> {
            let hand = Hand::new(device)?;
            let events = (0..EVENTS).map(|_| hand.blocking_event());
            Ok(Self {
                streams: [hand.stream()?, hand.stream()?],
                events: events.collect::<Outcome<_>>()?,
                hand,
            })
        }

        const fn event(&self, number: u64) -> Event {
            self.events.as_slice()[(number % EVENTS) as usize]
        }
    }

    impl Queues for ByHand {
        fn submit(&self, number: u64) -> Outcome<()> {
            let stream = self.streams[(number % 2) as usize];
            self.hand.wait_event(stream, self.event(number - 1))?;
            self.hand.record(self.event(number), stream)
        }

        fn wait(&self, number: u64) -> Outcome<()> {
            self.hand.synchronize(self.event(number))
        }
    }
}

#[cfg(feature = "vulkan")]
mod on_vulkan {
    use syncline::QueueKind;
    use syncline::backend::Device as _;

    use super::{Outcome, Queues};
    use crate::raw::vulkan::{Hand, Semaphore};

    pub(super) struct ByHand {
        /// The first hand owns the semaphore.
        hands: [Hand; 2],
        semaphore: Semaphore,
    }

    impl ByHand {
        pub(super) fn new(device: &syncline::vulkan::Device) -> Outcome<Self> {
            let queue = || device.queue(QueueKind::Compute, "by hand");
            // Both are alive at once, so that they use two queues of the driver if it has two.
            let queues = [queue()?, queue()?];
            let hands = queues.map(|queue| Hand::new(device, queue.family(), queue.index()));
            Ok(Self {
                semaphore: hands[0].semaphore(false)?,
                hands,
            })
        }
    }

    impl Queues for ByHand {
        fn submit(&self, number: u64) -> Outcome<()> {
            let hand = &self.hands[(number % 2) as usize];
            let semaphore = [self.semaphore.raw];
            let (waits, signals) = ([number - 1], [number]);
            hand.submit(&hand.lock()?, (&semaphore, &waits), (&semaphore, &signals))
        }

        fn wait(&self, number: u64) -> Outcome<()> {
            self.hands[0].expect(self.semaphore, number);
            self.hands[0].wait(self.semaphore.raw, number)
        }
    }

    impl Drop for ByHand {
        fn drop(&mut self) {
            // The first hand destroys the semaphore, but only waits for its own queue.
            let _ = self.hands[1].settle();
        }
    }
}

/// Makes `count` frames after the first `made`, and waits for their end.
fn make(queues: &dyn Queues, made: u64, count: u64) -> Outcome<()> {
    for frame in made..made + count {
        // The last submission of the third frame before.
        queues.wait(frame.saturating_sub(IN_FLIGHT - 1) * SUBMISSIONS)?;
        for at in 1..=SUBMISSIONS {
            queues.submit(frame * SUBMISSIONS + at)?;
        }
    }
    queues.wait((made + count) * SUBMISSIONS)
}

fn frames(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.device(call.subject.indices[0])?;
    let queue = || device.queue(QueueKind::Compute, "frames");
    let ours = Ours {
        queues: [queue()?, queue()?],
        timeline: device.timeline("frames")?,
    };
    let raw: Box<dyn Queues> = match &device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => Box::new(on_cuda::ByHand::new(device)?),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => Box::new(on_vulkan::ByHand::new(device)?),
        _ => Box::new(Workers::new(Patience::NONE)),
    };
    let run = |queues: &dyn Queues, made: &Cell<u64>, count: u64| -> Outcome<Duration> {
        let took = cpu::spent_on(|| make(queues, made.get(), count))?;
        made.set(made.get() + count);
        Ok(took)
    };
    let looking = matches!(device, Device::Host(_)).then(|| Workers::new(Patience::OURS));
    let made = [const { Cell::new(0) }; 3];
    let mut sides = vec![
        Side::ours(|count| run(&ours, &made[0], count)).step(FRAMES),
        Side::raw(|count| run(&*raw, &made[1], count)).step(FRAMES),
    ];
    if let Some(looking) = &looking {
        let run = |count| run(looking, &made[2], count);
        sides.push(Side::new("looking", run).step(FRAMES));
    }
    lab.race(sides)?;
    lab.note("of all threads of the process, also those of software drivers".into());
    Ok(())
}
