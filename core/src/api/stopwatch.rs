//! Stopwatches: how long work takes, on one queue or from one queue to another.

use std::fmt;
use std::time::{Duration, Instant};

use crate::api::{Device, Queue};
use crate::base::error::{Error, Result};
use crate::base::sync::{AtomicBool, Ordering};
use crate::clock::Elapsed;
use crate::fence::Fence;
use crate::queue::Submitted;
use crate::timeline::point::{Point, Signal};

/// Two fences with times on a clock, for the common cases: how long a submission takes, and what passes between two positions, also
/// when one is on CUDA and the other on Vulkan.
///
/// Devices write the times when they get there ([`Device::clocked_fence`]), so neither the way to the device nor a thread that wakes late
/// is part of what is told. It can be started and stopped again and again; then it tells of the latest start and the stop
/// after it. What it tells is in nanoseconds, with an error and where that comes from ([`Elapsed`]).
///
/// Any thread may use it; two that start it at once get what comes of their order. Nothing but [`Stopwatch::wait`] blocks on a
/// device; what a time may cost is said at [`Time::since`](crate::clock::Time::since).
///
/// ```
/// use std::time::Duration;
/// use syncline_core::backend::Device as _;
/// use syncline_core::{QueueKind, Stopwatch, host};
///
/// # fn main() -> syncline_core::Result<()> {
/// let device = host::Device::new();
/// let queue = device.queue(QueueKind::Compute, "worker")?;
/// let stopwatch = Stopwatch::new(&device, "pass")?;
/// let work = |recorder: &mut host::Recorder<'_>| {
///     recorder.run(|| std::thread::sleep(Duration::from_millis(5)));
///     Ok(())
/// };
/// stopwatch.time(&queue, &[], work, &[])?;
/// let took = stopwatch.wait(Duration::from_secs(10))?;
/// assert!(took.nanoseconds >= 5_000_000);
/// println!("{} ns, give or take {} ns, {}", took.nanoseconds, took.error, took.axis);
/// # Ok(())
/// # }
/// ```
pub struct Stopwatch {
    start: Fence,
    stop: Fence,
    /// It was stopped since it was started last.
    stopped: AtomicBool,
}

impl Stopwatch {
    /// For queues of one device.
    ///
    /// # Errors
    /// Those of [`Device::clock`].
    pub fn new<D: Device>(device: &D, label: &str) -> Result<Self> {
        Self::between(device, device, label)
    }

    /// To be started on queues of one device and stopped on those of another, of any two backends.
    ///
    /// # Errors
    /// Those of [`Device::clock`], for both.
    pub fn between<S: Device, E: Device>(start: &S, stop: &E, label: &str) -> Result<Self> {
        Ok(Self {
            start: start.clocked_fence(&format!("{label} (start)"))?,
            stop: stop.clocked_fence(&format!("{label} (stop)"))?,
            stopped: AtomicBool::new(false),
        })
    }

    /// Starts when `queue` gets to its present position: once everything that was submitted to it is finished. What it told before is
    /// gone.
    ///
    /// # Errors
    /// As [`Queue::record`]: [`Error::WrongDevice`], [`Error::Unsupported`] on a queue without timestamps,
    /// [`Error::Reentrant`], a driver error.
    pub fn start<Q: Queue>(&self, queue: &Q) -> Result<()> {
        // Before, so that nobody takes an earlier stop for this start's.
        let before = self.stopped.swap(false, Ordering::AcqRel);
        queue
            .record(&self.start)
            .inspect_err(|_| self.stopped.store(before, Ordering::Release))
    }

    /// Stops when `queue` gets to its present position. That may be before it starts, if nothing orders the two: the time is negative then.
    ///
    /// # Errors
    /// As [`Stopwatch::start`].
    pub fn stop<Q: Queue>(&self, queue: &Q) -> Result<()> {
        queue.record(&self.stop)?;
        self.stopped.store(true, Ordering::Release);
        Ok(())
    }

    /// Submits to `queue`, and tells how long that takes there: from when all `waits` are reached, and all that was submitted
    /// before is finished, to when the work is finished and the signals are made. On a timeline that other queues signal, too, that includes the
    /// wait for their lower values. See [`Queue::submit`].
    ///
    /// The waits are submitted by themselves first, to start behind them. If the submission is refused after that, they stay. Where a wait
    /// fails the work does not run, and the time tells nothing.
    ///
    /// # Errors
    /// As [`Queue::submit`] and [`Stopwatch::start`]. If it cannot be stopped, which takes a driver error where it could be
    /// started, the submission has been accepted all the same.
    pub fn time<'q, Q, W>(
        &self,
        queue: &'q Q,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        Q: Queue,
        W: for<'r, 'a> FnOnce(&'r mut Q::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        if !waits.is_empty() {
            queue.submit(waits, |_| Ok(()), &[])?;
        }
        self.start(queue)?;
        // Again, and reached by then: if one of them fails, this must not run.
        let submitted = queue.submit(waits, work, signals)?;
        self.stop(queue)?;
        Ok(submitted)
    }

    /// What passed from the start to the stop. Never blocks on work.
    ///
    /// # Errors
    /// [`Error::NotRecorded`] unless it was started, and stopped after that; [`Error::NotReady`] until the device
    /// has got to both; the failure of a queue; those of [`Time::since`](crate::clock::Time::since).
    pub fn elapsed(&self) -> Result<Elapsed> {
        self.require_stopped()?;
        self.stop.time()?.since(&self.start.time()?)
    }

    /// As [`Stopwatch::elapsed`], once both are there: blocks this thread for at most `timeout` until then.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; otherwise as there.
    pub fn wait(&self, timeout: Duration) -> Result<Elapsed> {
        self.require_stopped()?;
        let started = Instant::now();
        self.start.wait(timeout)?;
        self.stop.wait(timeout.saturating_sub(started.elapsed()))?;
        self.elapsed()
    }

    fn require_stopped(&self) -> Result<()> {
        let fence = match (
            self.start.is_recorded(),
            self.stopped.load(Ordering::Acquire),
        ) {
            (true, true) => return Ok(()),
            (false, _) => &self.start,
            (true, false) => &self.stop,
        };
        Err(Error::NotRecorded {
            fence: fence.object().clone(),
        })
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} to {:?}", self.start, self.stop)
    }
}
