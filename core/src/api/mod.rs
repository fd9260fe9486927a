//! What an application calls: the traits of devices and queues, and the stopwatch.

pub(crate) mod author;
pub(crate) mod sharing;
pub(crate) mod stopwatch;

use std::time::Duration;

use smallvec::SmallVec;

use crate::api::sharing::Sharing;
use crate::base::blockers::Blockers;
use crate::base::error::{Object, Result};
use crate::base::info::{DeviceId, Info, QueueKind};
use crate::base::timing::Timing;
use crate::clock::Clock;
use crate::fence::Fence;
use crate::port::attachment::Attachment;
use crate::queue::{Held, Submitted, Traceable};
use crate::timeline::Timeline;
use crate::timeline::point::{Point, Signal};

/// One backend's execution context: a CUDA context, a `VkDevice`, the host's worker threads.
///
/// Handles are cheap to clone and usable from any thread. Every object made from a device keeps it alive.
pub trait Device: Clone + Send + Sync + 'static {
    /// The queues it makes.
    type Queue: Queue<Device = Self>;

    /// Its identity in this process.
    fn id(&self) -> DeviceId;

    /// Its name in errors and reports.
    fn object(&self) -> &Object;

    /// What it is and what it can do.
    fn info(&self) -> &Info;

    /// A fresh counter of this device at `initial`, for a timeline that has its home here.
    ///
    /// # Errors
    /// A driver error, typed.
    fn port(&self, initial: u64) -> Result<Attachment>;

    /// A queue that can run `kind`. Any number may be made; they may share driver queues.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if no queue of the device can run `kind`; a driver error.
    fn queue(&self, kind: QueueKind, label: &str) -> Result<Self::Queue>;

    /// Asks whether the device still answers. Never blocks.
    ///
    /// # Errors
    /// [`Error::DeviceLost`](crate::Error::DeviceLost).
    fn check(&self) -> Result<()>;

    /// The clock that its timestamps count, beside the host's. Always the same one; the first call may take milliseconds, and a second where
    /// the device is busy.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported), with the reason, if it cannot be read together with the host's; a driver
    /// error.
    fn clock(&self) -> Result<Clock> {
        Err(crate::base::error::Error::Unsupported {
            object: self.object().clone(),
            asked: "read its clock".into(),
            reason: "its backend does not read clocks".into(),
        })
    }

    /// How the device shares timelines natively, or `None` if it does not.
    fn sharing(&self) -> Option<&dyn Sharing> {
        None
    }

    /// A timeline with its home on this device, starting at 0.
    ///
    /// # Errors
    /// A driver error, typed.
    fn timeline(&self, label: &str) -> Result<Timeline> {
        self.timeline_from(label, 0)
    }

    /// A timeline with its home on this device, starting at `initial`.
    ///
    /// # Errors
    /// [`Error::ValueOutOfRange`](crate::Error::ValueOutOfRange) for `u64::MAX`; a driver error, typed.
    fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        Timeline::new(label, initial, |initial| {
            Ok(SmallVec::from_iter([self.port(initial)?]))
        })
    }

    /// A timeline with its home on this device, starting at 0, whose points tell when they were reached ([`Point::time`]): on the device's
    /// [clock](Device::clock), where its queues signal it. The first call makes the clock, if nobody has asked for that yet.
    ///
    /// # Errors
    /// As [`Device::clocked_timeline_from`].
    fn clocked_timeline(&self, label: &str) -> Result<Timeline> {
        self.clocked_timeline_from(label, 0)
    }

    /// As [`Device::clocked_timeline`], starting at `initial`. A point at or below that tells no time.
    ///
    /// # Errors
    /// Those of [`Device::clock`]; those of [`Device::timeline_from`].
    fn clocked_timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        let clock = self.clock()?;
        self.timeline_from(label, initial)?
            .clocked([(self.id(), clock)])
    }

    /// A fence for queues of this device, never recorded yet and therefore complete.
    fn fence(&self, label: &str) -> Fence {
        Fence::new(self.id(), self.object(), label, Timing::None)
    }

    /// A fence whose records also write a time, for [`Fence::elapsed_since`]: the cheapest way to measure intervals on a
    /// device.
    fn timed_fence(&self, label: &str) -> Fence {
        Fence::new(self.id(), self.object(), label, Timing::Interval)
    }

    /// A fence whose records also write a time on the device's [clock](Device::clock), for [`Fence::time`]: one that can be
    /// told on the host's clock, and compared with those of other devices and APIs. It takes no part in
    /// intervals with [timed fences](Device::timed_fence), which may count on nothing but themselves. The first call makes the
    /// clock, if nobody has asked for that yet.
    ///
    /// # Errors
    /// Those of [`Device::clock`].
    fn clocked_fence(&self, label: &str) -> Result<Fence> {
        let clock = self.clock()?;
        Ok(Fence::clocked(self.id(), self.object(), label, clock))
    }
}

/// Runs submissions in order: a CUDA stream, a Vulkan queue, a host worker.
pub trait Queue: Clone + Send + Sync + 'static {
    /// The device it belongs to.
    type Device: Device<Queue = Self>;
    /// Records the work of one submission. See [`Enqueue::Recorder`](crate::backend::Enqueue::Recorder).
    type Recorder<'a>;

    /// A handle of the device it belongs to.
    fn device(&self) -> Self::Device;

    /// Its name in errors and reports.
    fn object(&self) -> &Object;

    /// Submits: once all `waits` are reached, run what `work` records, then make all `signals`,
    /// which also come after everything submitted to this queue before. Empty lists and empty work
    /// are legal. Never blocks on the device.
    ///
    /// `work` runs at most once: on this thread before the call returns, or, if a wait's signal is not
    /// yet on its way, later on the thread that makes it so. It must not block, and it may submit to
    /// other queues but not to this one.
    ///
    /// # Errors
    /// If the submission is refused nothing has changed:
    /// [`Error::SignalNotAboveReached`](crate::Error::SignalNotAboveReached),
    /// [`Error::SignalOverlapsClaim`](crate::Error::SignalOverlapsClaim),
    /// [`Error::SignalBehindOwnWait`](crate::Error::SignalBehindOwnWait),
    /// [`Error::DuplicateSignal`](crate::Error::DuplicateSignal) and
    /// [`Error::ValueOutOfRange`](crate::Error::ValueOutOfRange) for values out of order,
    /// [`Error::Failed`](crate::Error::Failed) for a signal of a timeline that has failed,
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a signal of a [timeline with timestamps](Device::clocked_timeline) on a queue
    /// that writes none,
    /// [`Error::Circular`](crate::Error::Circular), [`Error::Reentrant`](crate::Error::Reentrant), a device that is
    /// lost, an error that `work` returned. A wait on a timeline that has failed is no error here,
    /// whether it failed before or after the call, and whatever the submission signals: it does not run, and the
    /// timelines that it would have signalled fail with the same cause.
    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Self::Recorder<'a>) -> Result<()> + Send + 'static;

    /// Records `fence` at the queue's present position, held submissions included. Waits already
    /// issued on an earlier record are not moved.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice); [`Error::ForeignFence`](crate::Error::ForeignFence);
    /// [`Error::Unsupported`](crate::Error::Unsupported) for a time on a queue without timestamps;
    /// [`Error::Reentrant`](crate::Error::Reentrant); a driver error. The fence is unchanged then.
    fn record(&self, fence: &Fence) -> Result<()>;

    /// Lets everything submitted later wait for `fence` as it is now; adds nothing if it was never recorded. A
    /// fence of a graph capture becomes an edge of that graph.
    ///
    /// A fence that fails holds nothing back: like every failed wait it ends the one submission that waits, which
    /// here is empty. Work that must not run then names the fence's [`point`](Fence::point) among its own waits.
    ///
    /// # Errors
    /// As [`Queue::submit`]; [`Error::Captured`](crate::Error::Captured) where the queue has no part in
    /// that capture, [`Error::CaptureEnded`](crate::Error::CaptureEnded) after it.
    fn wait(&self, fence: &Fence) -> Result<()> {
        submit_wait(self, fence)
    }

    /// The position of the queue now: reached once everything submitted before is finished.
    fn position(&self) -> Point<'_>;

    /// Submissions that wait on the host.
    fn held(&self) -> Held;

    /// What its position waits for, and who waits for whom until then. See [`Point::blockers`].
    fn blockers(&self) -> Blockers {
        self.position().blockers()
    }

    /// Blocks until everything submitted so far is finished, and drops what it kept (which otherwise
    /// happens in later submissions). Then the signals of these submissions are made, also those that the host makes; and they count in every process that
    /// has their timelines, whatever becomes of this one.
    ///
    /// Inside a call of the engine's (work, a waker, or the drop of what a submission kept) it does not wait for signals that the host makes.
    ///
    /// Such a signal may wait for a predecessor that the application makes only later. Then a call with an endless
    /// timeout does not end before that.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut), or the queue's failure.
    fn idle(&self, timeout: Duration) -> Result<()>;

    /// Blocks until everything submitted so far is with the driver, so that raw work which the
    /// application submits next comes behind it.
    ///
    /// # Errors
    /// [`Error::TimedOut`](crate::Error::TimedOut), or the queue's failure.
    fn settle(&self, timeout: Duration) -> Result<()> {
        self.position().wait_pending(timeout)
    }

    /// The queue as a [`Trace`](crate::trace::Trace) follows it: of
    /// [`SubmissionQueue::traceable`](crate::backend::SubmissionQueue::traceable).
    ///
    /// Asks the device for its clock, which makes the clock if there is none yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the backend's queues cannot be traced.
    fn traceable(&self) -> Result<Traceable> {
        Err(crate::base::error::Error::Unsupported {
            object: self.object().clone(),
            asked: "be traced".into(),
            reason: "its backend does not let a trace follow it".into(),
        })
    }
}

/// Submits a wait for `fence` as it is now, without work. A fence never recorded adds nothing (F1).
fn submit_wait<Q: Queue>(queue: &Q, fence: &Fence) -> Result<()> {
    let point = fence.point()?;
    if point.is_empty() {
        return Ok(());
    }
    let sent = queue.submit(&[point.point()], |_| Ok(()), &[]);
    sent.map(|_| ())
}
