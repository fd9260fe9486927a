//! Stopwatches: the time that work takes, on one queue or from one queue to another.

use std::fmt;
use std::time::{Duration, Instant};

use crate::api::{Device, Queue};
use crate::base::error::{Error, Result};
use crate::base::sync::{AtomicBool, Ordering};
use crate::clock::{Elapsed, Time};
use crate::fence::Fence;
use crate::queue::Submitted;
use crate::timeline::point::{Point, Signal};

/// Measures the time of a submission, or the time between positions of two queues.
///
/// The queues may be of different devices and APIs, such as CUDA and Vulkan. The stopwatch consists
/// of two fences with times ([`Device::clocked_fence`]). The devices write the times when they get
/// to the positions. So the result contains neither the time to launch work nor the time to wake a
/// thread.
///
/// The result ([`Elapsed`]) is in nanoseconds. It states its error and the clock on which the times
/// were compared. A stopwatch may be started and stopped repeatedly. The result is then that of the
/// latest start and the stop after it.
///
/// Any thread may use it. If two threads start it at the same time, the later record counts. Only
/// [`Stopwatch::wait`] blocks on a device. [`Time::since`] says what it
/// costs to read the result.
///
/// ```
/// # extern crate syncline_core as syncline;
/// use std::time::Duration;
/// use syncline::backend::Device as _;
/// use syncline::{QueueKind, Stopwatch, host};
///
/// # fn main() -> syncline::Result<()> {
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
/// println!("{took}"); // 5.1ms ± 60ns, on one clock
/// # Ok(())
/// # }
/// ```
pub struct Stopwatch {
    start: Fence,
    stop: Fence,
    /// True once it was stopped after the latest start.
    stopped: AtomicBool,
}

impl Stopwatch {
    /// Makes a stopwatch for queues of one device.
    ///
    /// # Errors
    /// Same errors as [`Device::clock`].
    pub fn new<D: Device>(device: &D, label: &str) -> Result<Self> {
        Self::between(device, device, label)
    }

    /// Makes a stopwatch that starts on queues of device `start` and stops on queues of `stop`.
    ///
    /// # Errors
    /// Same errors as [`Device::clock`], for both devices.
    pub fn between<S: Device, E: Device>(start: &S, stop: &E, label: &str) -> Result<Self> {
        Ok(Self {
            start: start.clocked_fence(&format!("{label} (start)"))?,
            stop: stop.clocked_fence(&format!("{label} (stop)"))?,
            stopped: AtomicBool::new(false),
        })
    }

    /// Starts at the present position of `queue`: once everything submitted to it is finished.
    ///
    /// The previous result is lost.
    ///
    /// # Errors
    /// Same errors as [`Queue::record`]. The previous result stays then.
    pub fn start<Q: Queue>(&self, queue: &Q) -> Result<()> {
        self.restart(|| queue.record(&self.start))
    }

    fn restart<T>(&self, record: impl FnOnce() -> Result<T>) -> Result<T> {
        // Before the record, so that no thread pairs an earlier stop with this start.
        let before = self.stopped.swap(false, Ordering::AcqRel);
        record().inspect_err(|_| self.stopped.store(before, Ordering::Release))
    }

    /// Stops at the present position of `queue`.
    ///
    /// The time is negative if the device of `queue` gets there before the start. Waits between the
    /// two queues prevent that.
    ///
    /// # Errors
    /// Same errors as [`Queue::record`].
    pub fn stop<Q: Queue>(&self, queue: &Q) -> Result<()> {
        queue.record(&self.stop)?;
        self.stopped.store(true, Ordering::Release);
        Ok(())
    }

    /// Submits to `queue` like [`Queue::submit`], and measures the time of the submission there.
    ///
    /// - The time starts once all `waits` are reached and everything submitted before is finished.
    /// - It stops once the work is finished, and before the signals. What the signals release does
    ///   not count. Neither does a wait for lower values of their timelines (T3).
    /// - Both times can be read once the submission has ended.
    /// - If the work does not run, because a wait fails, there is no time.
    ///
    /// # Errors
    /// Same errors as [`Queue::submit_timed`]. The previous result stays then.
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
        let times = [&self.start, &self.stop];
        let submitted = self.restart(|| queue.submit_timed(waits, work, signals, times))?;
        self.stopped.store(true, Ordering::Release);
        Ok(submitted)
    }

    /// The time from the start to the stop. Never blocks on work.
    ///
    /// # Errors
    /// - [`Error::NotRecorded`] unless it was started and then stopped, or if the work of
    ///   [`Stopwatch::time`] did not run.
    /// - [`Error::NotReady`] until the devices have got to both positions.
    /// - An earlier fault, as for [`Fence::elapsed_since`].
    /// - Same errors as [`Time::since`].
    pub fn elapsed(&self) -> Result<Elapsed> {
        self.require_stopped()?;
        self.stop.time()?.since(&self.start.time()?)
    }

    /// The time of the latest start, which [`Time::to_host`] converts to the host's clock.
    ///
    /// # Errors
    /// - [`Error::NotRecorded`] unless it was started.
    /// - [`Error::NotReady`] until the device has got to the position.
    /// - An earlier fault, as for [`Fence::time`].
    pub fn start_time(&self) -> Result<Time> {
        self.start.time()
    }

    /// The time of the stop after the latest start. See [`Stopwatch::start_time`].
    ///
    /// # Errors
    /// Same errors as [`Stopwatch::start_time`], for the stop.
    pub fn stop_time(&self) -> Result<Time> {
        self.require_stopped()?;
        self.stop.time()
    }

    /// Blocks until the devices have got to both positions, then returns the time between them.
    ///
    /// Blocks for at most `timeout`.
    ///
    /// # Errors
    /// - [`Error::TimedOut`].
    /// - Same errors as [`Stopwatch::elapsed`], except [`Error::NotReady`].
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
