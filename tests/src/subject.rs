//! What a case runs on: a device, with some neutral work, and everything a user does with it.

use std::any::Any;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use syncline::backend::{Device, Held, Queue, Submitted};
use syncline::clock::{Clock, Elapsed, Estimate, Sampled, Time};
use syncline::{
    Blockers, Claim, Error, Fence, KeptPoint, Notification, Point, QueueKind, Rejected, Result,
    Signal, Stopwatch, Timeline, WaitMode,
};

/// The queues of `S`.
pub type QueueOf<S> = <<S as Subject>::Device as Device>::Queue;

/// What work of `S` is recorded into.
pub type RecorderOf<'a, S> = <QueueOf<S> as Queue>::Recorder<'a>;

/// A wait that is awaited.
pub type Waiting<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A device under test. The author of a backend implements its first part, the little work that
/// synchronization can be seen by, and the whole suite runs.
///
/// What a case does with the library goes through the second part, whose methods only forward to
/// it. A mutant overrides one of them to plant a bug where a user would see it. There is none for
/// what only says what something is (names, values of points, the devices of a timeline), for a
/// [`Claim`] once it is made, and for what single cases do besides with their devices' own types.
///
/// Buffers hold 32-bit words that the host can read at any time; a word that is being written may
/// read as old or new.
pub trait Subject: Clone + Send + Sync + 'static {
    /// The device.
    type Device: Device;

    /// Words that queues of this device write and the host reads.
    type Buffer: Clone + Send + Sync + 'static;

    /// What [`Subject::block`] waits for.
    type Latch: Clone + Send + Sync + 'static;

    // --- Neutral work -------------------------------------------------------------------------

    /// The device.
    fn device(&self) -> &Self::Device;

    /// A buffer of zeroes.
    ///
    /// # Errors
    /// The backend's.
    fn buffer(&self, words: usize) -> Result<Self::Buffer>;

    /// What the buffer holds now.
    fn read(buffer: &Self::Buffer) -> Vec<u32>;

    /// Records: every word becomes `value`.
    ///
    /// # Errors
    /// The backend's.
    fn fill(recorder: &mut RecorderOf<'_, Self>, buffer: &Self::Buffer, value: u32) -> Result<()>;

    /// Records: `to` becomes a copy of `from`, of the same length. Two copies in one submission,
    /// `b` to `c` and then `a` to `b`, show work that runs twice.
    ///
    /// # Errors
    /// The backend's.
    fn copy(
        recorder: &mut RecorderOf<'_, Self>,
        from: &Self::Buffer,
        to: &Self::Buffer,
    ) -> Result<()>;

    /// Records: the device is busy for at least about `time`, before anything recorded later
    /// starts.
    ///
    /// # Errors
    /// The backend's.
    fn busy(&self, recorder: &mut RecorderOf<'_, Self>, time: Duration) -> Result<()>;

    /// Has the recorder keep `object` until the submission has finished.
    fn keep(recorder: &mut RecorderOf<'_, Self>, object: Arc<dyn Any + Send + Sync>);

    /// A closed latch, for work that the host holds up.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with the reason why the device cannot be held up: cases that need it
    /// are skipped; the backend's.
    fn latch(&self) -> Result<Self::Latch>;

    /// Records: the *device* does nothing that is recorded later until the latch is opened.
    ///
    /// # Errors
    /// The backend's.
    fn block(recorder: &mut RecorderOf<'_, Self>, latch: &Self::Latch) -> Result<()>;

    /// Opens a latch, for good. More often than once is harmless.
    ///
    /// # Errors
    /// The backend's.
    fn open(latch: &Self::Latch) -> Result<()>;

    /// A timeline for queues of this device and of `other`: natively shared where that is possible.
    /// As it stands here it has a port on this device alone, and queues of `other` take part
    /// through the engine; override it if two devices can do better.
    ///
    /// # Errors
    /// The backend's.
    fn timeline_with(&self, other: &Self, label: &str, initial: u64) -> Result<Timeline> {
        let _ = other;
        self.device().timeline_from(label, initial)
    }

    // --- What a user does, in the library's words ---------------------------------------------

    /// [`Device::queue`].
    ///
    /// # Errors
    /// As there.
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

    /// [`Device::clocked_fence`].
    ///
    /// # Errors
    /// As there.
    fn clocked_fence(&self, label: &str) -> Result<Fence> {
        self.device().clocked_fence(label)
    }

    /// [`Device::clocked_timeline_from`].
    ///
    /// # Errors
    /// As there.
    fn clocked_timeline(&self, label: &str, initial: u64) -> Result<Timeline> {
        self.device().clocked_timeline_from(label, initial)
    }

    /// [`Timeline::clocked`], of what [`Subject::timeline_with`] makes.
    ///
    /// # Errors
    /// As there; those of [`Device::clock`] for each device that has a port of it.
    fn clocked_timeline_with(&self, other: &Self, label: &str, initial: u64) -> Result<Timeline> {
        let line = self.timeline_with(other, label, initial)?;
        let mut clocks = Vec::new();
        for id in line.devices() {
            let both = [self.device(), other.device()];
            if let Some(device) = both.into_iter().find(|device| device.id() == id) {
                clocks.push((id, device.clock()?));
            }
        }
        line.clocked(clocks)
    }

    /// [`Point::time`].
    ///
    /// # Errors
    /// As there.
    fn point_time(&self, point: Point<'_>) -> Result<Time> {
        point.time()
    }

    /// [`Device::clock`].
    ///
    /// # Errors
    /// As there.
    fn clock(&self) -> Result<Clock> {
        self.device().clock()
    }

    /// [`Clock::sample`].
    ///
    /// # Errors
    /// As there.
    fn sample(&self, clock: &Clock) -> Result<Sampled> {
        clock.sample()
    }

    /// [`Clock::to_host`] and [`Time::to_host`].
    ///
    /// # Errors
    /// As there.
    fn to_host(&self, clock: &Clock, device: i64) -> Result<Estimate> {
        clock.to_host(device)
    }

    /// [`Clock::to_device`].
    ///
    /// # Errors
    /// As there.
    fn to_device(&self, clock: &Clock, host: i64) -> Result<Estimate> {
        clock.to_device(host)
    }

    /// [`Fence::time`].
    ///
    /// # Errors
    /// As there.
    fn time(&self, fence: &Fence) -> Result<Time> {
        fence.time()
    }

    /// [`Time::since`].
    ///
    /// # Errors
    /// As there.
    fn since(&self, start: &Time, end: &Time) -> Result<Elapsed> {
        end.since(start)
    }

    /// [`Stopwatch::between`] this device and `to`.
    ///
    /// # Errors
    /// As there.
    fn stopwatch(&self, to: &Self, label: &str) -> Result<Stopwatch> {
        Stopwatch::between(self.device(), to.device(), label)
    }

    /// [`Stopwatch::start`].
    ///
    /// # Errors
    /// As there.
    fn start(&self, stopwatch: &Stopwatch, queue: &QueueOf<Self>) -> Result<()> {
        stopwatch.start(queue)
    }

    /// [`Stopwatch::stop`].
    ///
    /// # Errors
    /// As there.
    fn stop(&self, stopwatch: &Stopwatch, queue: &QueueOf<Self>) -> Result<()> {
        stopwatch.stop(queue)
    }

    /// [`Stopwatch::time`].
    ///
    /// # Errors
    /// As there.
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
    ///
    /// # Errors
    /// As there.
    fn stopwatch_elapsed(&self, stopwatch: &Stopwatch) -> Result<Elapsed> {
        stopwatch.elapsed()
    }

    /// [`Stopwatch::wait`].
    ///
    /// # Errors
    /// As there.
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
    ///
    /// # Errors
    /// As there.
    fn value(&self, of: &Timeline) -> Result<u64> {
        of.value()
    }

    /// [`Timeline::frozen_value`].
    fn frozen_value(&self, of: &Timeline) -> u64 {
        of.frozen_value()
    }

    /// [`Timeline::signal`].
    ///
    /// # Errors
    /// As there.
    fn signal(&self, of: &Timeline, value: u64) -> Result<()> {
        of.signal(value)
    }

    /// [`Timeline::fail`].
    fn fail(&self, of: &Timeline, cause: Error) {
        of.fail(cause);
    }

    /// [`Timeline::claim`].
    ///
    /// # Errors
    /// As there.
    fn claim(&self, of: &Timeline, value: u64, own_wait: u64) -> Result<Claim> {
        of.claim(value, own_wait)
    }

    /// [`Point::is_reached`].
    ///
    /// # Errors
    /// As there.
    fn is_reached(&self, point: Point<'_>) -> Result<bool> {
        point.is_reached()
    }

    /// [`Point::is_pending`].
    ///
    /// # Errors
    /// As there.
    fn is_pending(&self, point: Point<'_>) -> Result<bool> {
        point.is_pending()
    }

    /// [`Point::require_pending`].
    ///
    /// # Errors
    /// As there.
    fn require_pending(&self, point: Point<'_>) -> Result<()> {
        point.require_pending()
    }

    /// [`Point::notify`].
    ///
    /// # Errors
    /// As there.
    fn notify(
        &self,
        point: Point<'_>,
        eventfd: OwnedFd,
    ) -> Result<Notification, Rejected<OwnedFd>> {
        point.notify(eventfd)
    }

    /// [`Point::notify_pending`].
    ///
    /// # Errors
    /// As there.
    fn notify_pending(
        &self,
        point: Point<'_>,
        eventfd: OwnedFd,
    ) -> Result<Notification, Rejected<OwnedFd>> {
        point.notify_pending(eventfd)
    }

    /// [`Point::wait_with`].
    ///
    /// # Errors
    /// As there.
    fn wait(&self, point: Point<'_>, mode: WaitMode, timeout: Duration) -> Result<()> {
        point.wait_with(mode, timeout)
    }

    /// [`Point::wait_pending`].
    ///
    /// # Errors
    /// As there.
    fn wait_pending(&self, point: Point<'_>, timeout: Duration) -> Result<()> {
        point.wait_pending(timeout)
    }

    /// [`syncline::wait_all`].
    ///
    /// # Errors
    /// As there.
    fn wait_all(&self, points: &[Point<'_>], timeout: Duration) -> Result<()> {
        syncline::wait_all(points, timeout)
    }

    /// [`syncline::wait_any`].
    ///
    /// # Errors
    /// As there.
    fn wait_any(&self, points: &[Point<'_>], timeout: Duration) -> Result<usize> {
        syncline::wait_any(points, timeout)
    }

    /// Awaiting a [`Point`], and [`syncline::future::all`].
    fn await_all(&self, points: &[Point<'_>]) -> Waiting<()> {
        Box::pin(syncline::future::all(points))
    }

    /// [`syncline::future::any`].
    fn await_any(&self, points: &[Point<'_>]) -> Waiting<usize> {
        Box::pin(syncline::future::any(points))
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
    ///
    /// # Errors
    /// As there.
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
    ///
    /// # Errors
    /// As there.
    fn wait_submitted(&self, submitted: Submitted<'_>, timeout: Duration) -> Result<()> {
        submitted.wait_submitted(timeout)
    }

    /// [`Submitted::is_held`].
    fn is_held(&self, submitted: Submitted<'_>) -> bool {
        submitted.is_held()
    }

    /// [`Queue::record`].
    ///
    /// # Errors
    /// As there.
    fn record(&self, queue: &QueueOf<Self>, fence: &Fence) -> Result<()> {
        queue.record(fence)
    }

    /// [`Queue::wait`].
    ///
    /// # Errors
    /// As there.
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
    ///
    /// # Errors
    /// As there.
    fn idle(&self, queue: &QueueOf<Self>, timeout: Duration) -> Result<()> {
        queue.idle(timeout)
    }

    /// [`Queue::settle`].
    ///
    /// # Errors
    /// As there.
    fn settle(&self, queue: &QueueOf<Self>, timeout: Duration) -> Result<()> {
        queue.settle(timeout)
    }

    /// [`Fence::point`].
    ///
    /// # Errors
    /// As there.
    fn fence_point(&self, fence: &Fence) -> Result<KeptPoint> {
        fence.point()
    }

    /// [`Fence::is_complete`].
    ///
    /// # Errors
    /// As there.
    fn is_complete(&self, fence: &Fence) -> Result<bool> {
        fence.is_complete()
    }

    /// [`Fence::wait_with`].
    ///
    /// # Errors
    /// As there.
    fn wait_fence(&self, fence: &Fence, mode: WaitMode, timeout: Duration) -> Result<()> {
        fence.wait_with(mode, timeout)
    }

    /// [`Fence::elapsed_since`].
    ///
    /// # Errors
    /// As there.
    fn elapsed(&self, start: &Fence, end: &Fence) -> Result<i64> {
        end.elapsed_since(start)
    }

    /// [`host::Device::import_descriptor`](syncline::host::Device::import_descriptor).
    ///
    /// # Errors
    /// As there.
    fn import_descriptor(
        &self,
        descriptor: Option<OwnedFd>,
        label: &str,
    ) -> Result<Fence, Rejected<OwnedFd>> {
        syncline::host::Device::new().import_descriptor(descriptor, label)
    }
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
