//! What applications call: the traits of devices and queues, and the stopwatch.

pub(crate) mod author;
pub(crate) mod sharing;
pub(crate) mod stopwatch;

use std::time::Duration;

use smallvec::SmallVec;

use crate::api::sharing::Sharing;
use crate::base::blockers::Blockers;
use crate::base::error::{Object, Result};
use crate::base::info::{DeviceId, Info, Pooled, QueueKind};
use crate::base::timing::Timing;
use crate::clock::Clock;
use crate::fence::Fence;
use crate::port::attachment::Attachment;
use crate::queue::{Held, Submitted, Traceable};
use crate::timeline::Timeline;
use crate::timeline::point::{Point, Signal};

/// A device of any backend: a CUDA context, a `VkDevice`, or the host's worker threads.
///
/// A handle is cheap to clone, and any thread may use it. Every object that a device makes keeps
/// the device alive (D4).
pub trait Device: Clone + Send + Sync + 'static {
    /// The type of its queues.
    type Queue: Queue<Device = Self>;

    /// Its id in this process.
    fn id(&self) -> DeviceId;

    /// Its name in errors and reports.
    fn object(&self) -> &Object;

    /// What it is (D2) and what it can do (D3).
    fn info(&self) -> &Info;

    /// Makes a counter of this device at `initial`, to be the home of a new timeline.
    ///
    /// Use [`Device::timeline_from`] for a timeline with this counter alone.
    ///
    /// # Errors
    /// A driver error.
    fn port(&self, initial: u64) -> Result<Attachment>;

    /// Makes a queue that can run `kind`.
    ///
    /// There may be any number of queues. Several of them may share one queue of the driver.
    ///
    /// # Errors
    /// - [`Error::Unsupported`](crate::Error::Unsupported) if no queue of the device runs `kind`.
    /// - A driver error.
    fn queue(&self, kind: QueueKind, label: &str) -> Result<Self::Queue>;

    /// Checks whether the device is lost. Never blocks.
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost).
    fn check(&self) -> Result<()>;

    /// Gives back driver objects that the device keeps for later use and nothing uses now (H2).
    ///
    /// Pools grow to what is outstanding, and shrink by this call only. Call it after a burst, from
    /// any thread, also while other threads submit. It does not wait for the device. What is in use
    /// stays, and the result says how much that is. Objects of a queue's own, such as its command
    /// buffers, end with the queue.
    ///
    /// Memory whose free would wait for the device stays too. Free it with
    /// `cuda::Device::free_what_is_due`.
    fn trim(&self) -> Pooled {
        Pooled::default()
    }

    /// The clock of its timestamps, for conversion to the host's clock (M2, M3).
    ///
    /// Every call returns the same clock. The first call makes it. That takes milliseconds, or up
    /// to a second while the device is busy.
    ///
    /// # Errors
    /// - [`Error::Unsupported`](crate::Error::Unsupported) with the reason if the device's clock
    ///   cannot be read together with the host's.
    /// - A driver error.
    fn clock(&self) -> Result<Clock> {
        Err(crate::base::error::Error::unsupported(
            self.object(),
            "read its clock",
            "its backend does not read clocks",
        ))
    }

    /// Exports and imports of the device's counters, or `None` if it shares none natively.
    fn sharing(&self) -> Option<&dyn Sharing> {
        None
    }

    /// Makes a timeline at 0 with its home on this device.
    ///
    /// # Errors
    /// A driver error.
    fn timeline(&self, label: &str) -> Result<Timeline> {
        self.timeline_from(label, 0)
    }

    /// Makes a timeline at `initial` with its home on this device.
    ///
    /// # Errors
    /// - [`Error::ValueOutOfRange`](crate::Error::ValueOutOfRange) for `u64::MAX`.
    /// - A driver error.
    fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        Timeline::new(label, initial, |initial| {
            Ok(SmallVec::from_iter([self.port(initial)?]))
        })
    }

    /// Makes a timeline at 0 whose points return the time at which they were reached (M6).
    ///
    /// The timeline's home is this device. Read the times with [`Point::time`]. Signals of this
    /// device's queues have times on the device's [clock](Device::clock). The first call makes that
    /// clock, like [`Device::clock`].
    ///
    /// # Errors
    /// Same errors as [`Device::clocked_timeline_from`].
    fn clocked_timeline(&self, label: &str) -> Result<Timeline> {
        self.clocked_timeline_from(label, 0)
    }

    /// Same as [`Device::clocked_timeline`], but starts at `initial`.
    ///
    /// A point at or below `initial` has no time.
    ///
    /// # Errors
    /// Same errors as [`Device::clock`] and [`Device::timeline_from`].
    fn clocked_timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        let clock = self.clock()?;
        self.timeline_from(label, initial)?
            .clocked([(self.id(), clock)])
    }

    /// Makes a fence for queues of this device.
    ///
    /// It is complete until it is recorded (F1).
    fn fence(&self, label: &str) -> Fence {
        Fence::new(self.id(), self.object(), label, Timing::None)
    }

    /// Makes a fence whose records also write a time, for [`Fence::elapsed_since`].
    ///
    /// This is the cheapest way to measure intervals on one device.
    fn timed_fence(&self, label: &str) -> Fence {
        Fence::new(self.id(), self.object(), label, Timing::Interval)
    }

    /// Makes a fence whose records also write a time on the device's [clock](Device::clock).
    ///
    /// Read the time with [`Fence::time`]. It can be converted to the host's clock, and compared
    /// with times of other devices and APIs. There is no interval between such a fence and a
    /// [timed fence](Device::timed_fence), because their times may be of different counters (F5).
    /// The first call makes the clock, like [`Device::clock`].
    ///
    /// # Errors
    /// Same errors as [`Device::clock`].
    fn clocked_fence(&self, label: &str) -> Result<Fence> {
        let clock = self.clock()?;
        Ok(Fence::clocked(self.id(), self.object(), label, clock))
    }
}

/// A queue of any backend: a CUDA stream, a `VkQueue`, or a host worker.
///
/// It runs its submissions in order.
///
/// A handle is cheap to clone, and any thread may use it.
pub trait Queue: Clone + Send + Sync + 'static {
    /// The device it belongs to.
    type Device: Device<Queue = Self>;
    /// What the work of a submission records with, such as a CUDA stream or a command buffer.
    type Recorder<'a>;

    /// The device it belongs to.
    fn device(&self) -> Self::Device;

    /// Its name in errors and reports.
    fn object(&self) -> &Object;

    /// Submits `waits`, then `work`, then `signals` (Q1). Never blocks on the device.
    ///
    /// - The device runs the work that `work` records once all `waits` are reached.
    /// - The `signals` complete after this work and after all earlier submissions to this queue.
    /// - Both lists and the work may be empty.
    /// - The submission is held on the host while a wait may not go to the driver yet (Q2, Q3).
    ///
    /// `work` is called at most once (Q6): by this call, or, if the submission is held, later by
    /// the thread that releases it. It must not block. It may submit to other queues, but not to
    /// this one.
    ///
    /// A wait for a timeline that has failed is not an error of this call, whether the timeline
    /// failed before the call or fails later (E2). The submission does not run then, and the
    /// timelines of its signals fail with the same cause.
    ///
    /// # Errors
    /// The submission is refused and nothing has changed (Q5):
    /// - [`Error::SignalNotAboveReached`](crate::Error::SignalNotAboveReached),
    ///   [`Error::SignalOverlapsClaim`](crate::Error::SignalOverlapsClaim),
    ///   [`Error::SignalBehindOwnWait`](crate::Error::SignalBehindOwnWait),
    ///   [`Error::DuplicateSignal`](crate::Error::DuplicateSignal) or
    ///   [`Error::ValueOutOfRange`](crate::Error::ValueOutOfRange) if a signal's value is not legal
    ///   (T2, T7).
    /// - [`Error::Failed`](crate::Error::Failed) if a timeline of the signals has failed.
    /// - [`Error::Unsupported`](crate::Error::Unsupported) for a signal of a
    ///   [timeline with timestamps](Device::clocked_timeline) if the queue writes no timestamps.
    /// - [`Error::Circular`](crate::Error::Circular) if held submissions would wait for each other
    ///   in a circle (Q4).
    /// - [`Error::Reentrant`](crate::Error::Reentrant) from within work of this queue.
    /// - [`Error::DeviceLost`](crate::Error::DeviceLost).
    /// - The error that `work` returned. If the submission was held, this call has succeeded
    ///   already. Then the timelines of `signals` fail with the error instead (E1).
    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()> + Send + 'static;

    /// Same as [`Queue::submit`], and records two fences in it: before and after the work.
    ///
    /// The device writes the time of the first after the waits, and that of the second before the
    /// signals. What the signals release is in neither. Both fences are complete once the
    /// submission has ended. If the work does not run to its end, the second has no time
    /// ([`Error::NotRecorded`](crate::Error::NotRecorded)), and the first may have none. They
    /// should be two different fences. [`Stopwatch::time`](crate::Stopwatch::time) calls this.
    ///
    /// # Errors
    /// Same errors as [`Queue::submit`] and [`Queue::record`], and
    /// [`Error::TimingDisabled`](crate::Error::TimingDisabled) for a fence without times. The
    /// fences are unchanged then.
    fn submit_timed<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
        times: [&Fence; 2],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()> + Send + 'static;

    /// Records `fence` at the queue's present position, behind held submissions too.
    ///
    /// Waits that were issued for an earlier record stay as they are (F2).
    ///
    /// # Errors
    /// The fence is unchanged:
    /// - [`Error::WrongDevice`](crate::Error::WrongDevice) for a fence of another device (F4).
    /// - [`Error::ForeignFence`](crate::Error::ForeignFence) for a fence that stands for an object
    ///   of another API (F8).
    /// - [`Error::Unsupported`](crate::Error::Unsupported) for a fence with times if the queue
    ///   writes no timestamps (M1).
    /// - [`Error::Reentrant`](crate::Error::Reentrant) from within work of this queue.
    /// - A driver error.
    fn record(&self, fence: &Fence) -> Result<()>;

    /// Makes everything submitted later wait for `fence` as it is now (F2).
    ///
    /// A fence that was never recorded adds no wait (F1). A fence of a graph capture becomes an
    /// edge of that graph (F7).
    ///
    /// This wait is an empty submission. If the fence fails, only this submission fails, and later
    /// work runs. Work that must not run then has the fence's [`point`](Fence::point) among its own
    /// waits.
    ///
    /// # Errors
    /// - Same errors as [`Queue::submit`].
    /// - [`Error::Captured`](crate::Error::Captured) for a fence of a capture in which the queue
    ///   takes no part.
    /// - [`Error::CaptureEnded`](crate::Error::CaptureEnded) if that capture has ended.
    fn wait(&self, fence: &Fence) -> Result<()> {
        submit_wait(self, fence)
    }

    /// The present position: reached once everything submitted so far is finished.
    fn position(&self) -> Point<'_>;

    /// The submissions that are held on the host.
    fn held(&self) -> Held;

    /// What the present position waits for: the chain of waits down to each missing signal.
    ///
    /// See [`Point::blockers`].
    fn blockers(&self) -> Blockers {
        self.position().blockers()
    }

    /// Blocks until everything submitted so far is finished, for at most `timeout`.
    ///
    /// - Drops the objects that these submissions kept. Without this call, a later submission or
    ///   the drop of the queue drops them. The thread that sees the work finished may also drop
    ///   them, such as the device's watching thread. If the queue shares an in-flight budget, a
    ///   submission to another queue of the budget may drop them.
    /// - All signals of these submissions are made then, also those that the host makes. They count
    ///   in every process that has their timelines, even if this process ends.
    /// - A signal that the host makes may wait for a predecessor that the application signals later
    ///   (T3). This call waits for that, too.
    /// - A call from work, from a waker or from the drop of a kept object does not wait for signals
    ///   that the host makes.
    ///
    /// # Errors
    /// - [`Error::TimedOut`](crate::Error::TimedOut).
    /// - [`Error::Failed`](crate::Error::Failed) if the queue has failed.
    fn idle(&self, timeout: Duration) -> Result<()>;

    /// Blocks until everything submitted so far is with the driver, for at most `timeout` (Q8).
    ///
    /// Raw work that the application gives to the driver next then comes behind it.
    ///
    /// # Errors
    /// - [`Error::TimedOut`](crate::Error::TimedOut).
    /// - [`Error::Failed`](crate::Error::Failed) if the queue has failed.
    fn settle(&self, timeout: Duration) -> Result<()> {
        self.position().wait_pending(timeout)
    }

    /// The queue in the form that a [`Trace`](crate::trace::Trace) records.
    ///
    /// [`SubmissionQueue::traceable`](crate::backend::SubmissionQueue::traceable) returns it. The
    /// first call makes the device's clock, like [`Device::clock`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the backend's queues cannot be traced.
    fn traceable(&self) -> Result<Traceable> {
        Err(crate::base::error::Error::unsupported(
            self.object(),
            "be traced",
            "its backend does not let a trace follow it",
        ))
    }
}

/// Submits a wait for `fence` as it is now, without work.
fn submit_wait<Q: Queue>(queue: &Q, fence: &Fence) -> Result<()> {
    let point = fence.point()?;
    if point.is_empty() {
        return Ok(());
    }
    let sent = queue.submit(&[point.point()], |_| Ok(()), &[]);
    sent.map(|_| ())
}
