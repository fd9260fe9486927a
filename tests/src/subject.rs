//! The interface of a device under test: some neutral work, and everything that a user does.

#![allow(
    clippy::missing_errors_doc,
    reason = "the errors are those of the method that a hook forwards to"
)]

use std::any::Any;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use syncline::clock::{Clock, Elapsed, Estimate, Time};
use syncline::{
    Claim, Error, Fence, KeptPoint, Point, QueueKind, Result, Signal, Stopwatch, Timeline,
    WaitMode,
    error::Object,
    handle::Rejected,
    wait::{Blockers, Notification},
};
use syncline::{Held, Submitted};
use syncline_core::backend::{Device, Port, Queue};

/// The queues of `S`.
pub type QueueOf<S> = <<S as Subject>::Device as Device>::Queue;

/// The recorder of `S`.
pub type RecorderOf<'a, S> = <QueueOf<S> as Queue>::Recorder<'a>;

/// A wait as a future.
pub type Waiting<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A device under test.
///
/// The author of a backend implements the first part, a little work that makes synchronization
/// visible. Then the whole suite runs.
///
/// The second part is what a case does with the library. Its methods only forward to the library,
/// and a mutant overrides one of them to plant a bug where a user would see it. There is no method
/// for plain properties (names, values of points, the devices of a timeline), for an existing
/// [`Claim`], and for what single cases do with their devices' own types.
///
/// Buffers hold 32-bit words that the host can read at any time. A word that is being written may
/// read as old or new.
pub trait Subject: Clone + Send + Sync + 'static {
    /// The device.
    type Device: Device;

    /// Words that queues of this device write and the host reads.
    type Buffer: Clone + Send + Sync + 'static;

    /// The object that [`Subject::block`] waits for.
    type Latch: Clone + Send + Sync + 'static;

    // --- Neutral work -------------------------------------------------------------------------

    /// The device.
    fn device(&self) -> &Self::Device;

    /// Creates a buffer of zeroes.
    ///
    /// # Errors
    /// Errors of the backend.
    fn buffer(&self, words: usize) -> Result<Self::Buffer>;

    /// Returns the present content of the buffer.
    fn read(buffer: &Self::Buffer) -> Vec<u32>;

    /// Records a command that sets every word to `value`.
    ///
    /// # Errors
    /// Errors of the backend.
    fn fill(recorder: &mut RecorderOf<'_, Self>, buffer: &Self::Buffer, value: u32) -> Result<()>;

    /// Records a command that copies `from` to `to`, which has the same length.
    ///
    /// Two copies in one submission, `b` to `c` and then `a` to `b`, show work that runs twice.
    ///
    /// # Errors
    /// Errors of the backend.
    fn copy(
        recorder: &mut RecorderOf<'_, Self>,
        from: &Self::Buffer,
        to: &Self::Buffer,
    ) -> Result<()>;

    /// Records a command that keeps the device busy for at least about `time`.
    ///
    /// Commands that are recorded later start after it.
    ///
    /// # Errors
    /// Errors of the backend.
    fn busy(&self, recorder: &mut RecorderOf<'_, Self>, time: Duration) -> Result<()>;

    /// Makes the recorder keep `object` until the submission has finished.
    fn keep(recorder: &mut RecorderOf<'_, Self>, object: Arc<dyn Any + Send + Sync>);

    /// Creates a closed latch, for work that blocks until the host opens it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason, if the device cannot be blocked. Cases that need it
    /// are skipped then. Also errors of the backend.
    fn latch(&self) -> Result<Self::Latch>;

    /// Records a command that blocks the *device* until the latch is opened.
    ///
    /// Commands that are recorded later do not run before that.
    ///
    /// # Errors
    /// Errors of the backend.
    fn block(recorder: &mut RecorderOf<'_, Self>, latch: &Self::Latch) -> Result<()>;

    /// Opens a latch for good. Opening it again does nothing.
    ///
    /// # Errors
    /// Errors of the backend.
    fn open(latch: &Self::Latch) -> Result<()>;

    /// Records work that fails with [`Error::Work`] while the device runs it.
    ///
    /// Override it if work can fail while its queue goes on, as closures on threads can.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason, which is the default. Cases that need it are skipped
    /// then.
    fn fail_work(&self, recorder: &mut RecorderOf<'_, Self>) -> Result<()> {
        let _ = recorder;
        Err(no_failing_work(self.device().object()))
    }

    /// Creates a timeline for queues of this device and of `other`, natively shared if possible.
    ///
    /// The default has a port on this device only, and queues of `other` take part through the
    /// engine. Override it if two devices can share.
    ///
    /// # Errors
    /// Errors of the backend.
    fn timeline_with(&self, other: &Self, label: &str, initial: u64) -> Result<Timeline> {
        let _ = other;
        self.device().timeline_from(label, initial)
    }

    // --- What a user does, in the library's words ---------------------------------------------

    /// [`Device::queue`].
    fn queue(&self, kind: QueueKind, label: &str) -> Result<QueueOf<Self>> {
        self.device().queue(kind, label)
    }

    /// [`Device::fence`] or [`Device::timed_fence`].
    fn fence(&self, label: &str, timed: bool) -> Fence {
        if timed {
            self.device().timed_fence(label)
        } else {
            self.device().fence(label)
        }
    }

    /// [`Device::clocked_timeline_from`].
    fn clocked_timeline(&self, label: &str, initial: u64) -> Result<Timeline> {
        self.device().clocked_timeline_from(label, initial)
    }

    /// [`Point::time`].
    fn point_time(&self, point: Point<'_>) -> Result<Time> {
        point.time()
    }

    /// [`Device::clocked_fence`].
    fn clocked_fence(&self, label: &str) -> Result<Fence> {
        self.device().clocked_fence(label)
    }

    /// [`Clock::to_host`].
    fn to_host(&self, clock: &Clock, device: i64) -> Result<Estimate> {
        clock.to_host(device)
    }

    /// [`Time::to_host`].
    fn time_to_host(&self, time: &Time) -> Result<Estimate> {
        time.to_host()
    }

    /// [`Clock::to_device`].
    fn to_device(&self, clock: &Clock, host: i64) -> Result<Estimate> {
        clock.to_device(host)
    }

    /// [`Fence::time`].
    fn time(&self, fence: &Fence) -> Result<Time> {
        fence.time()
    }

    /// [`Time::since`].
    fn since(&self, start: &Time, end: &Time) -> Result<Elapsed> {
        end.since(start)
    }

    /// [`Stopwatch::start`].
    fn start(&self, stopwatch: &Stopwatch, queue: &QueueOf<Self>) -> Result<()> {
        stopwatch.start(queue)
    }

    /// [`Stopwatch::stop`].
    fn stop(&self, stopwatch: &Stopwatch, queue: &QueueOf<Self>) -> Result<()> {
        stopwatch.stop(queue)
    }

    /// [`Stopwatch::time`].
    fn time_submission<'q, W>(
        &self,
        stopwatch: &Stopwatch,
        queue: &'q QueueOf<Self>,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, Self>) -> Result<()> + Send + 'static,
    {
        stopwatch.time(queue, waits, work, signals)
    }

    /// [`Stopwatch::elapsed`].
    fn stopwatch_elapsed(&self, stopwatch: &Stopwatch) -> Result<Elapsed> {
        stopwatch.elapsed()
    }

    /// [`Stopwatch::wait`].
    fn wait_stopwatch(&self, stopwatch: &Stopwatch, timeout: Duration) -> Result<Elapsed> {
        stopwatch.wait(timeout)
    }

    /// [`Timeline::at`].
    fn at<'t>(&self, of: &'t Timeline, value: u64) -> Point<'t> {
        of.at(value)
    }

    /// [`Timeline::signal_at`].
    fn signal_at<'t>(&self, of: &'t Timeline, value: u64) -> Signal<'t> {
        of.signal_at(value)
    }

    /// [`Timeline::value`].
    fn value(&self, of: &Timeline) -> Result<u64> {
        of.value()
    }

    /// [`Timeline::frozen_value`].
    fn frozen_value(&self, of: &Timeline) -> u64 {
        of.frozen_value()
    }

    /// [`Timeline::signal`].
    fn signal(&self, of: &Timeline, value: u64) -> Result<()> {
        of.signal(value)
    }

    /// [`Timeline::fail`].
    fn fail(&self, of: &Timeline, cause: Error) {
        of.fail(cause);
    }

    /// [`Timeline::claim`].
    fn claim(&self, of: &Timeline, value: u64, own_wait: u64) -> Result<Claim> {
        of.claim_after(value, own_wait)
    }

    /// The port of a counter that others signal, too, as the engine gets it.
    fn counter_of_others(&self, port: Box<dyn Port>) -> Box<dyn Port> {
        port
    }

    /// [`Timeline::signalled_by_others`].
    fn signalled_by_others(&self, of: &Timeline, value: u64) -> Result<()> {
        of.signalled_by_others(value)
    }

    /// [`Point::is_reached`].
    fn is_reached(&self, point: Point<'_>) -> Result<bool> {
        point.is_reached()
    }

    /// [`Point::is_pending`].
    fn is_pending(&self, point: Point<'_>) -> Result<bool> {
        point.is_pending()
    }

    /// [`Point::require_pending`].
    fn require_pending(&self, point: Point<'_>) -> Result<()> {
        point.require_pending()
    }

    /// [`Point::notify`].
    fn notify(
        &self,
        point: Point<'_>,
        eventfd: OwnedFd,
    ) -> Result<Notification, Rejected<OwnedFd>> {
        point.notify(eventfd)
    }

    /// [`Point::wait_with`].
    fn wait(&self, point: Point<'_>, mode: WaitMode, timeout: Duration) -> Result<()> {
        point.wait_with(mode, timeout)
    }

    /// [`Point::wait_pending`].
    fn wait_pending(&self, point: Point<'_>, timeout: Duration) -> Result<()> {
        point.wait_pending(timeout)
    }

    /// [`syncline::wait_all`].
    fn wait_all(&self, points: &[Point<'_>], timeout: Duration) -> Result<()> {
        syncline::wait_all(points, timeout)
    }

    /// [`syncline::wait_any`].
    fn wait_any(&self, points: &[Point<'_>], timeout: Duration) -> Result<usize> {
        syncline::wait_any(points, timeout)
    }

    /// Awaiting a [`Point`], and [`syncline::wait::future::all`].
    fn await_all(&self, points: &[Point<'_>]) -> Waiting<()> {
        Box::pin(syncline::wait::future::all(points))
    }

    /// [`syncline::wait::future::any`].
    fn await_any(&self, points: &[Point<'_>]) -> Waiting<usize> {
        Box::pin(syncline::wait::future::any(points))
    }

    /// [`Point::pending`].
    fn await_pending(&self, point: Point<'_>) -> Waiting<()> {
        Box::pin(point.pending())
    }

    /// [`Point::blockers`].
    fn blockers(&self, point: Point<'_>) -> Blockers {
        point.blockers()
    }

    /// [`Queue::submit`].
    fn submit<'q, W>(
        &self,
        queue: &'q QueueOf<Self>,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, Self>) -> Result<()> + Send + 'static,
    {
        queue.submit(waits, work, signals)
    }

    /// [`Submitted::wait_submitted`].
    fn wait_submitted(&self, submitted: Submitted<'_>, timeout: Duration) -> Result<()> {
        submitted.wait_submitted(timeout)
    }

    /// [`Submitted::is_held`].
    fn is_held(&self, submitted: Submitted<'_>) -> bool {
        submitted.is_held()
    }

    /// [`Queue::record`].
    fn record(&self, queue: &QueueOf<Self>, fence: &Fence) -> Result<()> {
        queue.record(fence)
    }

    /// [`Queue::wait`].
    fn wait_on(&self, queue: &QueueOf<Self>, fence: &Fence) -> Result<()> {
        queue.wait(fence)
    }

    /// [`Queue::position`].
    fn position<'q>(&self, queue: &'q QueueOf<Self>) -> Point<'q> {
        queue.position()
    }

    /// [`Queue::held`].
    fn held(&self, queue: &QueueOf<Self>) -> Held {
        queue.held()
    }

    /// [`Queue::idle`].
    fn idle(&self, queue: &QueueOf<Self>, timeout: Duration) -> Result<()> {
        queue.idle(timeout)
    }

    /// [`Queue::settle`].
    fn settle(&self, queue: &QueueOf<Self>, timeout: Duration) -> Result<()> {
        queue.settle(timeout)
    }

    /// [`Fence::point`].
    fn fence_point(&self, fence: &Fence) -> Result<KeptPoint> {
        fence.point()
    }

    /// [`Fence::is_complete`].
    fn is_complete(&self, fence: &Fence) -> Result<bool> {
        fence.is_complete()
    }

    /// [`Fence::wait_with`].
    fn wait_fence(&self, fence: &Fence, mode: WaitMode, timeout: Duration) -> Result<()> {
        fence.wait_with(mode, timeout)
    }

    /// [`Fence::elapsed_since`].
    fn elapsed(&self, start: &Fence, end: &Fence) -> Result<i64> {
        end.elapsed_since(start)
    }

    /// [`host::Device::import_descriptor`](syncline::host::Device::import_descriptor).
    fn import_descriptor(
        &self,
        descriptor: Option<OwnedFd>,
        label: &str,
    ) -> Result<Fence, Rejected<OwnedFd>> {
        syncline::host::Device::new().import_descriptor(descriptor, label)
    }
}

/// What [`Subject::fail_work`] asks for.
pub(crate) const FAILING_WORK: &str = "run work that fails";

/// The error of a device whose work cannot fail.
pub(crate) fn no_failing_work(device: &Object) -> Error {
    let reason = "its commands end well, or the device is lost";
    Error::unsupported(device, FAILING_WORK, reason)
}

/// Implements the first part of [`Subject`] for a type that wraps another one in `$inner`.
///
/// The part ends with [`Subject::timeline_with`]. Use it in an `impl Subject`, beside the hooks
/// that the wrapper overrides.
#[macro_export]
macro_rules! same_work {
    ($inner:ident: $subject:ty) => {
        type Device = <$subject as $crate::Subject>::Device;
        type Buffer = <$subject as $crate::Subject>::Buffer;
        type Latch = <$subject as $crate::Subject>::Latch;

        fn device(&self) -> &Self::Device {
            $crate::Subject::device(&self.$inner)
        }

        fn buffer(&self, words: usize) -> ::syncline::Result<Self::Buffer> {
            $crate::Subject::buffer(&self.$inner, words)
        }

        fn read(buffer: &Self::Buffer) -> Vec<u32> {
            <$subject as $crate::Subject>::read(buffer)
        }

        fn fill(
            recorder: &mut $crate::RecorderOf<'_, Self>,
            buffer: &Self::Buffer,
            value: u32,
        ) -> ::syncline::Result<()> {
            <$subject as $crate::Subject>::fill(recorder, buffer, value)
        }

        fn copy(
            recorder: &mut $crate::RecorderOf<'_, Self>,
            from: &Self::Buffer,
            to: &Self::Buffer,
        ) -> ::syncline::Result<()> {
            <$subject as $crate::Subject>::copy(recorder, from, to)
        }

        fn busy(
            &self,
            recorder: &mut $crate::RecorderOf<'_, Self>,
            time: ::std::time::Duration,
        ) -> ::syncline::Result<()> {
            $crate::Subject::busy(&self.$inner, recorder, time)
        }

        fn keep(
            recorder: &mut $crate::RecorderOf<'_, Self>,
            object: ::std::sync::Arc<dyn ::std::any::Any + Send + Sync>,
        ) {
            <$subject as $crate::Subject>::keep(recorder, object);
        }

        fn latch(&self) -> ::syncline::Result<Self::Latch> {
            $crate::Subject::latch(&self.$inner)
        }

        fn block(
            recorder: &mut $crate::RecorderOf<'_, Self>,
            latch: &Self::Latch,
        ) -> ::syncline::Result<()> {
            <$subject as $crate::Subject>::block(recorder, latch)
        }

        fn open(latch: &Self::Latch) -> ::syncline::Result<()> {
            <$subject as $crate::Subject>::open(latch)
        }

        fn fail_work(&self, recorder: &mut $crate::RecorderOf<'_, Self>) -> ::syncline::Result<()> {
            $crate::Subject::fail_work(&self.$inner, recorder)
        }

        fn timeline_with(
            &self,
            other: &Self,
            label: &str,
            initial: u64,
        ) -> ::syncline::Result<::syncline::Timeline> {
            $crate::Subject::timeline_with(&self.$inner, &other.$inner, label, initial)
        }
    };
}
