//! H1: operations of each frame. They must not allocate after they have been done a few times.
//!
//! This file has the operations. The counting is elsewhere: in a test whose allocator counts, and
//! in `syncline bench`.

use std::any::Any;
use std::array::from_fn;
#[cfg(feature = "cuda")]
use std::cell::OnceCell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{JoinHandle, park, park_timeout, spawn};
use std::time::Duration;

#[cfg(feature = "cuda")]
use syncline::cuda;
use syncline::info::DeviceId;
use syncline::{
    Device, Error, Fence, Point, Queue, QueueKind, Recorder, Result, Timeline, WaitMode, host,
    wait_all, wait_any,
};
use syncline_core::backend::{Attachment, ByEngine, Device as _, Port, Queue as _};
use syncline_core::internal::{Page, SharedTimes};

#[cfg(feature = "cuda")]
use crate::cases::slots;

/// How often each operation is done before counting, and in each window.
pub const TIMES: u64 = 1000;

/// Largest number of windows.
const WINDOWS: usize = 5;

const PATIENCE: Duration = Duration::from_secs(10);

/// The objects of the operations: two queues of one device, with all their threads started.
struct Bench {
    left: Queue,
    right: Queue,
    line: Timeline,
    gate: Timeline,
    fence: Fence,
    timed: [Fence; 2],
    /// With timestamps, if the device has a clock.
    clocked: Timeline,
    /// With a page that other processes would read.
    published: Timeline,
    /// The device's side of a bridge, and the host's.
    bridged: [Timeline; 2],
    /// A timeline that tells other processes its times, and the same one as another process has it.
    told: Timeline,
    heard: Timeline,
    /// A timeline that others signal, too, and its counter.
    promised: (Timeline, Arc<AtomicU64>),
    /// As many as a wait without an allocation can have.
    eight: [Timeline; 8],
    opener: Opener,
    kept: Arc<dyn Any + Send + Sync>,
    shared: Shared,
    /// Made by the first launch.
    #[cfg(feature = "cuda")]
    graph: OnceCell<(cuda::Graph, [cuda::Slot; 2])>,
}

/// More shared buffers than the driver is told of at once, if the device exports buffers.
#[cfg(feature = "vulkan")]
type Shared = Arc<[syncline::vulkan::Buffer]>;
#[cfg(not(feature = "vulkan"))]
type Shared = Arc<[()]>;

/// A thread that signals the gate a little later than it is asked, so that a wait parks.
struct Opener {
    /// The value to signal. [`CLOSED`] ends the thread.
    asked: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

const CLOSED: u64 = u64::MAX;

impl Opener {
    fn new(gate: &Timeline) -> Self {
        let asked = Arc::new(AtomicU64::new(0));
        let (next, gate) = (asked.clone(), gate.clone());
        let open = move || {
            let mut opened = 0;
            loop {
                let asked = next.load(Ordering::SeqCst);
                if asked == CLOSED {
                    return;
                }
                if asked == opened {
                    park();
                    continue;
                }
                // Longer than a wait spins. After an early return a wait only parks less often.
                park_timeout(Duration::from_micros(60));
                // After an error the waiting thread times out.
                let _ = gate.signal(asked);
                opened = asked;
            }
        };
        Self {
            asked,
            thread: Some(spawn(open)),
        }
    }

    fn ask(&self, value: u64) {
        self.asked.store(value, Ordering::SeqCst);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.ask(CLOSED);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Bench {
    fn new(device: &Device) -> Result<Self> {
        let (told, heard) = told_elsewhere(device)?;
        let gate = device.timeline("gate")?;
        let eight: Vec<_> = (0..8)
            .map(|_| device.timeline("of eight"))
            .collect::<Result<_>>()?;
        let bench = Self {
            left: device.queue(QueueKind::Compute, "left")?,
            right: device.queue(QueueKind::Compute, "right")?,
            line: device.timeline("line")?,
            opener: Opener::new(&gate),
            gate,
            eight: eight.try_into().map_err(|_| Error::NothingToWaitFor)?,
            fence: device.fence("fence"),
            timed: [device.timed_fence("start"), device.timed_fence("end")],
            clocked: clocked(device)?,
            published: published(device)?,
            bridged: bridged(device)?,
            told,
            heard,
            promised: promised()?,
            kept: Arc::new(0_u64),
            shared: shared(device)?,
            #[cfg(feature = "cuda")]
            graph: OnceCell::new(),
        };
        bench.start()?;
        Ok(bench)
    }

    /// Starts all threads, and parks this thread once on each timeline.
    ///
    /// The operations rarely park. Without this, the first registration of a wait could allocate
    /// while allocations are counted.
    fn start(&self) -> Result<()> {
        let [here, there] = &self.bridged;
        let (told, heard) = (&self.told, &self.heard);
        for line in [&self.clocked, &self.published, here, there, told, heard] {
            times_out(line.at(1))?;
        }
        let gate = self.left.device().timeline("start")?;
        for (value, of) in [(1, &self.line), (2, &self.gate)] {
            for queue in [&self.left, &self.right] {
                queue.submit(&[gate.at(value)], work(0), &[])?;
            }
            self.left
                .submit(&[gate.at(value)], work(0), &[of.signal_at(1)])?;
            let positions = [of.at(1), self.left.position(), self.right.position()];
            for point in positions {
                times_out(point)?;
            }
            std::thread::scope(|scope| {
                let waiters = positions
                    .map(|point| scope.spawn(move || point.wait_with(WaitMode::Block, PATIENCE)));
                std::thread::sleep(Duration::from_millis(2));
                gate.signal(value)?;
                for waiter in waiters {
                    let waited = waiter.join();
                    waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                }
                Ok::<_, syncline::Error>(())
            })?;
        }
        Ok(())
    }
}

/// Waits for a point that is not reached. The wait registers, parks and times out.
fn times_out(point: Point<'_>) -> Result<()> {
    match point.wait_with(WaitMode::Block, Duration::from_millis(1)) {
        Err(Error::TimedOut { .. }) => Ok(()),
        Err(other) => Err(other),
        Ok(()) => Err(Error::NothingToWaitFor),
    }
}

/// Creates a timeline with a page beside it.
fn published(device: &Device) -> Result<Timeline> {
    let (_, page) = host::Device::new().exportable_port(0)?;
    let line = device.timeline("published")?;
    line.publish(page.counter().clone(), Page::Beside)?;
    Ok(line)
}

/// A counter that others signal, too.
struct OfOthers(Arc<AtomicU64>);

impl Port for OfOthers {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::SeqCst)))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.store(value, Ordering::SeqCst);
        Ok(())
    }
}

/// Creates a timeline that others signal, too.
fn promised() -> Result<(Timeline, Arc<AtomicU64>)> {
    let counter = Arc::new(AtomicU64::new(0));
    let port = OfOthers(counter.clone());
    let home = Attachment::new(DeviceId::new::<OfOthers>(), 0, port).signalled_elsewhere(true);
    let line = Timeline::new("promised", 0, |_| Ok([home].into_iter().collect()))?;
    Ok((line, counter))
}

/// Creates five shared buffers on a device of Vulkan that exports buffers.
#[cfg(feature = "vulkan")]
fn shared(device: &Device) -> Result<Shared> {
    let Device::Vulkan(device) = device else {
        return Ok(Shared::default());
    };
    let made = (0..5).map(|_| device.export_buffer(4));
    match made.collect::<Result<Vec<_>>>() {
        Err(Error::Unsupported { .. }) => Ok(Shared::default()),
        made => Ok(made?.into_iter().map(|(buffer, _)| buffer).collect()),
    }
}

#[cfg(not(feature = "vulkan"))]
#[allow(clippy::unnecessary_wraps, reason = "other devices fail")]
fn shared(_: &Device) -> Result<Shared> {
    Ok(Shared::default())
}

/// Creates a bridge from the device to the host.
fn bridged(device: &Device) -> Result<[Timeline; 2]> {
    let sides = [device.port(0), host::Device::new().port(0)];
    let made = Timeline::bridged("bridged", 0, sides)?;
    made.try_into().map_err(|_| Error::NothingToWaitFor)
}

/// Work with 64 bytes of captures for a worker of the host. Elsewhere it is empty.
fn work(
    number: u64,
) -> impl for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()> + Send + 'static {
    let captured = [number; 8];
    move |recorder: &mut Recorder<'_>| {
        #[allow(
            irrefutable_let_patterns,
            reason = "refutable with more than one backend"
        )]
        if let Recorder::Host(recorder) = recorder {
            recorder.run(move || {
                black_box(captured);
            });
        }
        Ok(())
    }
}

/// Creates a timeline with timestamps, if the device has a clock.
fn clocked(device: &Device) -> Result<Timeline> {
    match device.clocked_timeline("clocked") {
        Err(Error::Unsupported { .. }) => device.timeline("not clocked"),
        clocked => clocked,
    }
}

/// Whether a driver reads the device's clock together with the host's in one call.
///
/// Otherwise each sample submits work or starts a thread. That allocates up to ten times a second,
/// but not for each signal.
fn reads_its_clock(device: &Device) -> bool {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) => false,
        device => device.info().capabilities.calibrated_clock,
    }
}

/// Creates a timeline that tells other processes its times, and the same one as they have it.
fn told_elsewhere(device: &Device) -> Result<(Timeline, Timeline)> {
    let host = syncline::host::Device::new();
    let (_, exporter) = host.exportable_port(0)?;
    let port = host.import_timeline(exporter.export()?)?;
    let told = clocked(device)?;
    let mut heard = Timeline::new("heard", 0, |_| Ok([port].into_iter().collect()))?;
    if told.is_clocked() && reads_its_clock(device) {
        let times = SharedTimes::new()?;
        told.tell_times(times.clone())?;
        heard = heard.clocked_elsewhere(times)?;
    }
    told.publish(exporter.counter().clone(), Page::Beside)?;
    Ok((told, heard))
}

/// Reads the time of a reached `point`, or the error if there are no times.
fn told(point: Point<'_>) -> Result<()> {
    match point.time() {
        Ok(time) => {
            black_box(time.nanoseconds());
            Ok(())
        }
        Err(Error::TimesNotEnabled { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

/// An operation that must not allocate, or only for a reason. It is given its number, from 2.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Its name in a few words.
    pub name: &'static str,
    /// The most allocations.
    ///
    /// More than 0 if it submits before a signal that its submission waits for: the work of a held
    /// submission, its waits and signals, and a longer list of signals. Or if it keeps more than
    /// two objects: their list.
    pub most: u64,
    run: fn(&Bench, u64) -> Result<()>,
}

const fn operation(name: &'static str, run: fn(&Bench, u64) -> Result<()>) -> Operation {
    let most = 0;
    Operation { name, most, run }
}

const fn allocating(
    name: &'static str,
    most: u64,
    run: fn(&Bench, u64) -> Result<()>,
) -> Operation {
    Operation { name, most, run }
}

/// All operations.
pub const OPERATIONS: [Operation; 20] = [
    operation("signal", |bench, n| bench.line.signal(n)),
    operation("promise", |bench, n| {
        let (line, counter) = &bench.promised;
        let (a, b) = (2 * n - 3, 2 * n - 2);
        line.signalled_by_others(a)?;
        counter.store(a, Ordering::SeqCst);
        line.at(a).wait(PATIENCE)?;
        // After a look at the counter.
        line.signal(b)
    }),
    operation("query", |bench, n| {
        bench.line.signal(n)?;
        black_box(bench.line.value()?);
        black_box(bench.line.at(n + 1).is_reached()?);
        black_box(bench.line.at(n + 1).is_pending()?);
        black_box(bench.fence.is_complete()?);
        Ok(())
    }),
    operation("submit", |bench, n| {
        let line = &bench.line;
        bench
            .left
            .submit(&[line.at(n - 1)], work(n), &[line.signal_at(n)])?;
        line.at(n).wait(PATIENCE)
    }),
    operation("submit_to_two_queues", |bench, n| {
        let line = &bench.line;
        let (a, b) = (2 * n - 2, 2 * n - 1);
        bench
            .left
            .submit(&[line.at(a - 1)], work(n), &[line.signal_at(a)])?;
        bench
            .right
            .submit(&[line.at(a)], work(n), &[line.signal_at(b)])?;
        line.at(b).wait(PATIENCE)
    }),
    allocating("submit_before_the_signal", 2, |bench, n| {
        let (line, gate) = (&bench.line, &bench.gate);
        bench
            .left
            .submit(&[gate.at(n)], work(n), &[line.signal_at(n)])?;
        gate.signal(n)?;
        line.at(n).wait(PATIENCE)
    }),
    allocating("submit_the_consumer_first", 2, |bench, n| {
        let line = &bench.line;
        let (a, b) = (2 * n - 2, 2 * n - 1);
        bench
            .right
            .submit(&[line.at(a)], work(n), &[line.signal_at(b)])?;
        bench.left.submit(&[], work(n), &[line.signal_at(a)])?;
        line.at(b).wait(PATIENCE)
    }),
    allocating("wait_parked", 2, |bench, n| {
        let (line, gate) = (&bench.line, &bench.gate);
        bench
            .left
            .submit(&[gate.at(n)], work(n), &[line.signal_at(n)])?;
        gate.signal(n)?;
        line.at(n).wait_with(WaitMode::Block, PATIENCE)
    }),
    operation("wait_for_several", |bench, n| {
        let (line, gate) = (&bench.line, &bench.gate);
        bench
            .left
            .submit(&[], work(n), &[line.signal_at(n), gate.signal_at(n)])?;
        wait_any(&[line.at(n), gate.at(n)], PATIENCE)?;
        wait_all(&[line.at(n), gate.at(n), Point::EMPTY], PATIENCE)
    }),
    allocating("wait_for_eight_parked", 3, |bench, n| {
        let (gate, eight) = (&bench.gate, &bench.eight);
        let signals: [_; 8] = from_fn(|at| eight[at].signal_at(n));
        bench.left.submit(&[gate.at(n)], work(n), &signals)?;
        bench.opener.ask(n);
        let points: [_; 8] = from_fn(|at| eight[at].at(n));
        if n % 2 == 0 {
            wait_any(&points, PATIENCE)?;
        }
        wait_all(&points, PATIENCE)
    }),
    operation("record", |bench, _| {
        bench.left.record(&bench.fence)?;
        bench.right.wait(&bench.fence)?;
        bench.fence.wait(PATIENCE)?;
        bench.right.idle(PATIENCE)
    }),
    operation("record_with_time", |bench, n| {
        let [start, end] = &bench.timed;
        bench.left.record(start)?;
        bench.left.submit(&[], work(n), &[])?;
        bench.left.record(end)?;
        end.wait(PATIENCE)?;
        black_box(end.elapsed_since(start)?);
        Ok(())
    }),
    operation("signal_with_time", |bench, n| {
        let line = &bench.clocked;
        line.signal(n)?;
        told(line.at(n))
    }),
    operation("submit_with_time", |bench, n| {
        let line = &bench.clocked;
        let (a, b) = (2 * n - 3, 2 * n - 2);
        bench.left.submit(&[], work(n), &[line.signal_at(a)])?;
        // After another queue's value.
        bench.right.submit(&[], work(n), &[line.signal_at(b)])?;
        line.at(b).wait(PATIENCE)?;
        told(line.at(b))
    }),
    allocating("submit_with_time_before_the_signal", 2, |bench, n| {
        let (line, gate) = (&bench.clocked, &bench.gate);
        bench
            .left
            .submit(&[gate.at(n)], work(n), &[line.signal_at(n)])?;
        gate.signal(n)?;
        line.at(n).wait(PATIENCE)?;
        told(line.at(n))
    }),
    operation("submit_after_another_queue", |bench, n| {
        let (a, b) = (2 * n - 3, 2 * n - 2);
        let first: [_; 8] = from_fn(|at| bench.eight[at].signal_at(a));
        let then: [_; 8] = from_fn(|at| bench.eight[at].signal_at(b));
        bench.left.submit(&[], work(n), &first)?;
        bench.right.submit(&[], work(n), &then)?;
        bench.eight[7].at(b).wait(PATIENCE)
    }),
    operation("signal_published", |bench, n| {
        let line = &bench.published;
        let (a, b) = (2 * n - 3, 2 * n - 2);
        bench.left.submit(&[], work(n), &[line.signal_at(a)])?;
        line.at(a).wait(PATIENCE)?;
        line.signal(b)
    }),
    operation("signal_bridged", |bench, n| {
        let [here, there] = &bench.bridged;
        let (a, b) = (2 * n - 3, 2 * n - 2);
        bench.left.submit(&[], work(n), &[here.signal_at(a)])?;
        there.at(a).wait(PATIENCE)?;
        there.signal(b)?;
        here.at(b).wait(PATIENCE)
    }),
    operation("tell_times_elsewhere", |bench, n| {
        let (a, b) = (2 * n - 3, 2 * n - 2);
        bench
            .left
            .submit(&[], work(n), &[bench.told.signal_at(a)])?;
        bench.heard.at(a).wait(PATIENCE)?;
        bench.told.signal(b)?;
        bench.heard.at(b).wait(PATIENCE)?;
        told(bench.heard.at(a))
    }),
    operation("keep", |bench, _| {
        let kept = bench.kept.clone();
        let keep = move |recorder: &mut Recorder<'_>| {
            recorder.keep(kept);
            Ok(())
        };
        bench.left.submit(&[], keep, &[])?;
        bench.left.idle(PATIENCE)
    }),
];

/// A submission that acquires five shared buffers, on Vulkan. The barriers need no list.
pub const ACQUIRES: Operation = allocating("acquire_buffers", 1, |bench, _| {
    let shared = bench.shared.clone();
    let acquire = move |recorder: &mut Recorder<'_>| {
        #[cfg(feature = "vulkan")]
        if let Recorder::Vulkan(recorder) = recorder {
            for buffer in shared.iter() {
                recorder.acquire(buffer)?;
            }
        }
        let _ = (recorder, shared);
        Ok(())
    };
    bench.left.submit(&[], acquire, &[])?;
    bench.left.idle(PATIENCE)
});

/// A launch of a graph with two slots, on CUDA. It allocates the launch.
#[cfg(feature = "cuda")]
pub const LAUNCHES: Operation = allocating("launch_with_slots", 1, |bench, n| {
    let (line, gate) = (&bench.line, &bench.gate);
    let Queue::Cuda(left) = &bench.left else {
        return Err(Error::work("only CUDA launches graphs"));
    };
    bench.right.submit(&[], work(n), &[line.signal_at(n)])?;
    if bench.graph.get().is_none() {
        let made = slots::passing_on(left, line, gate);
        let made = made.map_err(|stop| Error::work(format!("{stop:?}")))?;
        let _ = bench.graph.set(made);
    }
    if let Some((graph, [waits, signals])) = bench.graph.get() {
        left.launch(graph, &[waits.at(n), signals.at(n)])?;
    }
    gate.at(n).wait(PATIENCE)
});

/// An operation that breaks H1, because it allocates. A count must find it.
pub const ALLOCATES: Operation = operation("allocate", |bench, n| {
    bench.line.signal(n)?;
    drop(black_box(Box::new(n)));
    Ok(())
});

/// An operation that breaks H1, because it makes a forbidden system call. A count must find it.
pub const CALLS: Operation = operation("call", |bench, n| {
    bench.line.signal(n)?;
    black_box(rustix::process::getppid());
    Ok(())
});

/// The counts of an operation, for each window of [`TIMES`] repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    windows: Vec<u64>,
}

impl Counted {
    /// Whether each of the last two windows has at most `most` per operation.
    ///
    /// Windows are counted until that is so. What is done for the first time may come late, but a
    /// list that grows for ever grows in one of any two windows.
    #[must_use]
    pub fn is_within(&self, most: u64) -> bool {
        let last = self.last_two();
        last.len() == 2 && last.iter().all(|&count| count <= most * TIMES)
    }

    /// All windows.
    #[must_use]
    pub fn windows(&self) -> &[u64] {
        &self.windows
    }

    /// Returns the average count per operation over the last two windows.
    #[must_use]
    pub fn each(&self) -> f64 {
        let last = self.last_two();
        let times = TIMES * last.len().max(1) as u64;
        last.iter().sum::<u64>() as f64 / times as f64
    }

    fn last_two(&self) -> &[u64] {
        &self.windows[self.windows.len().saturating_sub(2)..]
    }
}

/// Repeats `operation` on `device` and counts how much `so_far` rises meanwhile.
///
/// `so_far` returns the number of allocations and reallocations in this process, on all threads.
/// Ends early once the operation [is within](Counted::is_within) `most`.
///
/// # Errors
/// The device's.
pub fn count(
    device: &Device,
    operation: Operation,
    most: u64,
    so_far: &dyn Fn() -> u64,
) -> Result<Counted> {
    let bench = Bench::new(device)?;
    // 1 is reached.
    let mut next = 2;
    let mut window = || {
        let before = so_far();
        for n in next..next + TIMES {
            (operation.run)(&bench, n)?;
        }
        next += TIMES;
        Ok::<_, syncline::Error>(so_far() - before)
    };
    window()?;
    let mut counted = Counted {
        // Nothing may grow while it is counted.
        windows: Vec::with_capacity(WINDOWS),
    };
    while counted.windows.len() < WINDOWS && !counted.is_within(most) {
        counted.windows.push(window()?);
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(windows: &[u64]) -> Counted {
        Counted {
            windows: windows.to_vec(),
        }
    }

    #[test]
    fn two_windows_in_a_row_must_be_within_the_limit() {
        let (few, more) = (3 * TIMES, 3 * TIMES + 1);
        for (most, within) in [(0, &[0, 0][..]), (0, &[7, 3, 0, 0]), (3, &[more, 0, few])] {
            assert!(counted(within).is_within(most), "{within:?}");
        }
        for (most, some) in [
            (0, &[][..]),
            (0, &[0]),
            (0, &[1, 0]),
            (0, &[0, 1, 0, 1, 0]),
            (3, &[few, more]),
            (3, &[more, few]),
        ] {
            assert!(!counted(some).is_within(most), "{some:?}");
        }
    }

    #[test]
    fn the_last_two_windows_tell_how_many_each_time() {
        assert_eq!(counted(&[5000, 3000, 1000]).each(), 2.0);
        assert_eq!(counted(&[9, 0, 0]).each(), 0.0);
        assert_eq!(counted(&[0, 1]).each(), 1.0 / 2000.0);
    }

    /// An application that allocates is counted. The counter here rises with each query.
    #[test]
    fn what_is_counted_is_told() {
        let host = syncline::host::Device::new();
        let looks = std::cell::Cell::new(0);
        let rising = || {
            looks.set(looks.get() + 1);
            looks.get()
        };
        let device = Device::Host(host);
        let counted = count(&device, OPERATIONS[0], 0, &rising).expect("counted");
        assert_eq!(counted.windows(), [1; WINDOWS]);
        assert!(!counted.is_within(0));
    }
}
