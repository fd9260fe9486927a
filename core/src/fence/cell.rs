//! Fences: what a fence holds, and what its records write.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::base::sync::{AtomicBool, Mutex, Ordering};
use crate::base::timing::Timing;
use crate::clock::{Clock, Time};
use crate::fence::mark::NativeMark;
use crate::port::Stamp;
use crate::timeline::point::{KeptPoint, Point};
use crate::wait::blocking::WaitMode;

/// A cell that holds a position of a queue, and that can be recorded and waited for repeatedly.
///
/// A fence that was never recorded is complete. Recording stores the position of the queue at the
/// call. A later record does not move waits that were issued already. Dropping or recording a
/// pending fence is legal. Handles are cheap to clone, and any thread may use them.
///
/// A fence is no barrier between queues: recorded on a second queue, it forgets the first one.
///
/// On every backend the semantics are those of `CUevent` (CUDA driver API, event management).
///
/// A fence can also stand for an object of another API, such as a descriptor
/// ([`host::Device::import_descriptor`](crate::host::Device::import_descriptor)). It is waited for
/// like any other fence, but it cannot be recorded.
#[derive(Clone)]
pub struct Fence(Arc<Cell>);

struct Cell {
    object: Object,
    device: DeviceId,
    owner: Object,
    timing: Timing,
    /// The clock of its times, for [`Timing::Clock`].
    clock: Option<Clock>,
    /// The fence stands for an object of another API or process, and can never be recorded.
    foreign: bool,
    /// The mark is or was [`Mark::Native`].
    native: AtomicBool,
    mark: Mutex<Mark>,
    /// The last stamp that could not be written, and the error.
    unwritten: Mutex<Option<(Arc<dyn Stamp>, Error)>>,
}

/// What a fence holds.
#[derive(Clone)]
enum Mark {
    /// The fence was never recorded.
    Empty,
    /// A position of a queue.
    Recorded {
        point: KeptPoint,
        stamp: Option<Arc<dyn Stamp>>,
        /// The stamp of an earlier record on the same queue, to be reused.
        spare: Option<Arc<dyn Stamp>>,
    },
    /// An object that only the backend understands, such as a node of a captured graph.
    Native(Arc<dyn NativeMark>),
    /// An object of another API. The fence never holds anything else.
    Foreign(KeptPoint),
}

impl Fence {
    pub(crate) fn new(device: DeviceId, owner: &Object, label: &str, timing: Timing) -> Self {
        Cell::new(device, owner, label, (timing, None), Mark::Empty).into()
    }

    pub(crate) fn clocked(device: DeviceId, owner: &Object, label: &str, clock: Clock) -> Self {
        let timing = (Timing::Clock, Some(clock));
        Cell::new(device, owner, label, timing, Mark::Empty).into()
    }

    /// A fence that stands for an object of another API. It cannot be recorded.
    ///
    /// It is complete once `point` is reached, and fails with it. For backends: `device`, named
    /// `owner`, has imported the object.
    #[must_use]
    pub fn foreign(device: DeviceId, owner: &Object, label: &str, point: KeptPoint) -> Self {
        let mark = Mark::Foreign(point);
        Cell::new(device, owner, label, (Timing::None, None), mark).into()
    }

    /// Same as [`Fence::foreign`], for an object that can get another point later.
    ///
    /// A wait for the fence waits for the point that `mark` returns at the time of the wait.
    #[must_use]
    pub fn foreign_native(
        device: DeviceId,
        owner: &Object,
        label: &str,
        mark: Arc<dyn NativeMark>,
    ) -> Self {
        let mark = Mark::Native(mark);
        let cell = Cell::new(device, owner, label, (Timing::None, None), mark);
        Cell {
            foreign: true,
            ..cell
        }
        .into()
    }

    /// A fence that holds a native mark from the start, in place of a position.
    ///
    /// Queues of `device`, named `owner`, record it natively. See
    /// [`SubmissionQueue::record_natively`](crate::backend::SubmissionQueue::record_natively).
    #[must_use]
    pub fn native(
        device: DeviceId,
        owner: &Object,
        label: &str,
        mark: Arc<dyn NativeMark>,
    ) -> Self {
        let mark = Mark::Native(mark);
        Cell::new(device, owner, label, (Timing::None, None), mark).into()
    }
}

impl From<Cell> for Fence {
    fn from(cell: Cell) -> Self {
        Self(Arc::new(cell))
    }
}

impl Cell {
    fn new(
        device: DeviceId,
        owner: &Object,
        label: &str,
        (timing, clock): (Timing, Option<Clock>),
        mark: Mark,
    ) -> Self {
        Self {
            object: Object::new("fence", label),
            device,
            owner: owner.clone(),
            timing,
            clock,
            foreign: matches!(mark, Mark::Foreign(_)),
            native: AtomicBool::new(matches!(mark, Mark::Native(_))),
            mark: Mutex::new(mark),
            unwritten: Mutex::new(None),
        }
    }
}

impl Fence {
    /// The fence's name in errors and reports.
    #[must_use]
    #[inline]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// True if it was ever recorded, or if it stands for an object of another API.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        match &*self.0.mark.lock() {
            Mark::Empty => false,
            Mark::Recorded { .. } | Mark::Foreign(_) => true,
            Mark::Native(mark) => mark.is_recorded(),
        }
    }

    /// True if its records write a time of any kind.
    #[must_use]
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.0.timing != Timing::None
    }

    /// The kind of time that its records write.
    #[must_use]
    #[inline]
    pub fn timing(&self) -> Timing {
        self.0.timing
    }

    /// The position that the fence holds now. Later records do not move the returned point.
    ///
    /// The point is empty, and so reached, if the fence was never recorded.
    ///
    /// # Errors
    /// [`Error::Captured`] or [`Error::CaptureEnded`] if the fence was recorded in a stream
    /// capture, where it has no position. A driver error, if the backend must ask the driver.
    pub fn point(&self) -> Result<KeptPoint> {
        let mark = match &*self.0.mark.lock() {
            Mark::Empty => return Ok(KeptPoint::default()),
            Mark::Recorded { point, .. } | Mark::Foreign(point) => return Ok(point.clone()),
            Mark::Native(mark) => mark.clone(),
        };
        // Not under the lock, because it may call a driver.
        mark.point(self.object())
    }

    /// The native mark, if the fence holds one instead of a position.
    #[must_use]
    #[inline]
    pub fn native_mark(&self) -> Option<Arc<dyn NativeMark>> {
        if !self.0.native.load(Ordering::Acquire) {
            return None;
        }
        self.load_native_mark()
    }

    #[cold]
    fn load_native_mark(&self) -> Option<Arc<dyn NativeMark>> {
        match &*self.0.mark.lock() {
            Mark::Native(mark) => Some(mark.clone()),
            _ => None,
        }
    }

    /// True if everything before the record has finished. Never blocks.
    ///
    /// Also true if the fence was never recorded.
    ///
    /// # Errors
    /// The failure of the queue on which it was recorded. [`Error::Captured`].
    /// [`Error::CaptureEnded`].
    pub fn is_complete(&self) -> Result<bool> {
        match self.native_mark() {
            None if self.is_known_complete() => Ok(true),
            None => self.point()?.point().is_reached(),
            Some(mark) => mark.is_complete(self.object()),
        }
    }

    /// True if it is known to be complete. Calls no driver and clones no reference.
    fn is_known_complete(&self) -> bool {
        match &*self.0.mark.lock() {
            Mark::Empty => true,
            Mark::Recorded { point, .. } | Mark::Foreign(point) => point.is_known_reached(),
            Mark::Native(_) => false,
        }
    }

    /// Blocks the calling thread until the record that the fence holds at the call is complete.
    ///
    /// # Errors
    /// [`Error::TimedOut`]. Same errors as [`Fence::is_complete`].
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.wait_with(WaitMode::Adaptive, timeout)
    }

    /// Same as [`Fence::wait`], with a given [`WaitMode`].
    ///
    /// # Errors
    /// Same errors as [`Fence::wait`].
    pub fn wait_with(&self, mode: WaitMode, timeout: Duration) -> Result<()> {
        self.point()?.point().wait_with(mode, timeout)
    }

    /// The time on the device from `start` to this fence, in nanoseconds. Never blocks.
    ///
    /// Negative if `start` is the later one, and 0 if both hold the same record. Both fences must
    /// be of one device, have the same kind of timing, and be recorded and complete.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::TimingDisabled`], [`Error::TimingDiffers`],
    /// [`Error::NotRecorded`], [`Error::NotReady`], [`Error::Captured`] or [`Error::CaptureEnded`].
    /// An earlier fault: the failure of the queue, or the error that kept a held record from
    /// writing its time.
    pub fn elapsed_since(&self, start: &Self) -> Result<i64> {
        if start.0.device != self.0.device {
            return Err(Error::wrong_device(
                start.object(),
                &start.0.owner,
                self.object(),
            ));
        }
        let (from, to) = (start.stamp()?, self.stamp()?);
        if start.timing() != self.timing() {
            return Err(Error::TimingDiffers {
                start: start.object().clone(),
                start_timing: start.timing(),
                end: self.object().clone(),
                end_timing: self.timing(),
            });
        }
        if Arc::ptr_eq(&from, &to) {
            Ok(0)
        } else {
            to.nanoseconds_since(&*from)
                .map_err(|error| self.never_written(error))
        }
    }

    /// The time on the device's clock that the last record wrote at its position on the queue.
    ///
    /// The fence must be made with a clock
    /// ([`Device::clocked_fence`](crate::backend::Device::clocked_fence)), and be recorded and
    /// complete.
    ///
    /// The call never blocks, except that it takes a sample of the clock in two cases:
    ///
    /// * The clock of a Vulkan device has no sample yet.
    /// * Fewer than 64 bits of a timestamp are valid, so timestamps wrap around, and the clock's
    ///   last sample is more than some 60 wraparounds before or after the record. Where a
    ///   wraparound takes a minute, 60 of them take an hour.
    ///
    /// The number of wraparounds is right under two conditions. The device writes the time less
    /// than nine tenths of a wraparound after the engine has recorded the command for it. The
    /// device's clock and the host's clock drift by less than 1/16 of a wraparound between the
    /// record and the last sample. That holds for 125 wraparounds at least, and for about a
    /// thousand as a rule.
    ///
    /// # Errors
    /// [`Error::TimingDisabled`], [`Error::NotRecorded`] (also for a record in a submission that
    /// did not run), [`Error::NotReady`], [`Error::Captured`] or [`Error::CaptureEnded`]. An
    /// earlier fault, as for [`Fence::elapsed_since`].
    pub fn time(&self) -> Result<Time> {
        let disabled = || Error::TimingDisabled {
            fence: self.object().clone(),
            asked: Timing::Clock,
        };
        let clock = self.0.clock.clone().ok_or_else(disabled)?;
        let nanoseconds = self.stamp()?.time();
        let nanoseconds = nanoseconds.map_err(|error| self.never_written(error))?;
        Ok(Time::new(clock, nanoseconds.ok_or_else(disabled)?))
    }

    /// The error of a stamp whose position is reached: without a time by then, it never gets one.
    ///
    /// So it is with the work of a submission that failed or was skipped.
    fn never_written(&self, error: Error) -> Error {
        match error {
            Error::NotReady { .. } => Error::NotRecorded {
                fence: self.object().clone(),
            },
            error => error,
        }
    }

    /// Refuses a fence that the queue `asked` of `device` cannot record.
    #[inline]
    pub(crate) fn require_recordable(&self, device: DeviceId, asked: &Object) -> Result<()> {
        if self.0.foreign {
            return Err(Error::ForeignFence {
                fence: self.object().clone(),
            });
        }
        if self.0.device == device {
            return Ok(());
        }
        Err(Error::wrong_device(self.object(), &self.0.owner, asked))
    }

    /// Stores a record: the queue's position `at`, and the stamp that it writes.
    #[inline]
    pub(crate) fn record_at(&self, at: Point<'_>, stamp: Option<Arc<dyn Stamp>>) {
        let mut mark = self.0.mark.lock();
        // The usual case is another record on the same queue, which changes no reference count.
        if let Mark::Recorded {
            point,
            stamp: held,
            spare,
        } = &mut *mark
            && point.is_of(at)
        {
            point.value = at.value;
            let mut before = std::mem::replace(held, stamp);
            if before.is_some() {
                before = std::mem::replace(spare, before);
            }
            drop(mark);
            // Not under the lock, because the drop returns the stamp to its pool.
            drop(before);
            return;
        }
        let recorded = Mark::Recorded {
            point: at.keep(),
            stamp,
            spare: None,
        };
        let before = std::mem::replace(&mut *mark, recorded);
        drop(mark);
        drop(before);
    }

    /// Takes the stamp of the record before the last one, to be reused by the next record.
    ///
    /// `None` unless both records were on the queue of `position`.
    #[inline]
    pub(crate) fn take_spare_stamp(&self, position: Point<'_>) -> Option<Arc<dyn Stamp>> {
        match &mut *self.0.mark.lock() {
            Mark::Recorded { point, spare, .. } if point.is_of(position) => spare.take(),
            _ => None,
        }
    }

    pub(crate) fn record_native(&self, mark: Arc<dyn NativeMark>) {
        self.0.native.store(true, Ordering::Release);
        let before = std::mem::replace(&mut *self.0.mark.lock(), Mark::Native(mark));
        drop(before);
    }

    /// Notes that `stamp` will not be written, because recording its commands has failed.
    ///
    /// May be called before the fence's record is stored.
    pub(crate) fn note_unwritten(&self, stamp: Arc<dyn Stamp>, cause: Error) {
        let before = self.0.unwritten.lock().replace((stamp, cause));
        drop(before);
    }

    /// The reason why `stamp` will never be written, if so.
    fn unwritten_cause(&self, stamp: &Arc<dyn Stamp>) -> Option<Error> {
        let unwritten = self.0.unwritten.lock();
        let (of, cause) = unwritten.as_ref()?;
        Arc::ptr_eq(of, stamp).then(|| cause.clone())
    }

    /// The stamp of the last record, if that record is complete and was written.
    fn stamp(&self) -> Result<Arc<dyn Stamp>> {
        let fence = || self.object().clone();
        let disabled = || Error::TimingDisabled {
            fence: fence(),
            asked: Timing::Interval,
        };
        if !self.is_timed() {
            return Err(disabled());
        }
        let mark = self.0.mark.lock().clone();
        let (complete, stamp) = match mark {
            Mark::Recorded { point, stamp, .. } => (point.point().is_reached()?, stamp),
            // A native mark has no time. It may return the reason as its error.
            Mark::Native(mark) => (mark.is_complete(self.object())?, None),
            Mark::Empty | Mark::Foreign(_) => return Err(Error::NotRecorded { fence: fence() }),
        };
        if !complete {
            return Err(Error::not_ready(fence()));
        }
        let stamp = stamp.ok_or_else(disabled)?;
        self.unwritten_cause(&stamp).map_or(Ok(stamp), Err)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = &self.0.object;
        match &*self.0.mark.lock() {
            Mark::Empty => write!(f, "{object} (never recorded)"),
            Mark::Recorded { point, .. } | Mark::Foreign(point) => {
                write!(f, "{object} ({point:?})")
            }
            Mark::Native(_) => write!(f, "{object} (of its backend)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Device as _;

    /// A mark that is complete once its flag is set.
    struct FlagMark(AtomicBool);

    impl NativeMark for FlagMark {
        fn point(&self, _: &Object) -> Result<KeptPoint> {
            Ok(KeptPoint::default())
        }

        fn is_complete(&self, _: &Object) -> Result<bool> {
            Ok(self.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn native_fences_can_be_recorded_unless_they_are_foreign() {
        let device = crate::host::Device::new();
        let (id, owner) = (device.id(), device.object());
        let mark = Arc::new(FlagMark(AtomicBool::new(false)));
        let own = Fence::native(id, owner, "own", mark.clone());
        let foreign = Fence::foreign_native(id, owner, "foreign", mark.clone());
        for fence in [&own, &foreign] {
            assert!(fence.native_mark().is_some() && fence.is_recorded());
            assert!(!fence.is_timed() && !fence.is_complete().unwrap());
        }
        mark.0.store(true, Ordering::SeqCst);
        assert!(own.is_complete().unwrap() && foreign.is_complete().unwrap());
        let asked = Object::new("queue", "q");
        own.require_recordable(id, &asked).unwrap();
        let elsewhere = crate::host::Device::new().id();
        let refused = own.require_recordable(elsewhere, &asked);
        assert!(matches!(refused, Err(Error::WrongDevice { .. })));
        for device in [id, elsewhere] {
            let refused = foreign.require_recordable(device, &asked);
            assert!(matches!(refused, Err(Error::ForeignFence { .. })));
        }
    }

    /// A stamp that sets a flag when it is dropped.
    struct DropStamp(Arc<AtomicBool>);

    impl Stamp for DropStamp {
        fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
            Ok(7)
        }
    }

    impl Drop for DropStamp {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn fence_holds_the_last_record_and_drops_earlier_ones() {
        let device = crate::host::Device::new();
        let (one, other) = (
            device.timeline("one").unwrap(),
            device.timeline("other").unwrap(),
        );
        let fence = device.timed_fence("fence");
        let dropped = Arc::new(AtomicBool::new(false));
        let stamp = || Arc::new(DropStamp(dropped.clone())) as Arc<dyn Stamp>;
        fence.record_at(one.at(1), Some(stamp()));
        assert!(!fence.is_complete().unwrap());
        let native = Arc::new(FlagMark(AtomicBool::new(false)));
        fence.record_native(native.clone());
        assert!(dropped.swap(false, Ordering::SeqCst));
        assert!(fence.native_mark().is_some() && !fence.is_complete().unwrap());
        native.0.store(true, Ordering::SeqCst);
        assert!(fence.is_complete().unwrap());
        for (at, complete) in [(one.at(1), false), (one.at(2), false), (other.at(0), true)] {
            fence.record_at(at, Some(stamp()));
            assert!(fence.native_mark().is_none());
            assert_eq!(fence.point().unwrap().value, at.value);
            assert!(fence.point().unwrap().is_of(at));
            assert_eq!(fence.is_complete().unwrap(), complete);
        }
        // Records on different queues do not keep the earlier stamp.
        assert!(dropped.swap(false, Ordering::SeqCst));
        fence.record_at(other.at(1), None);
        assert!(fence.take_spare_stamp(one.at(1)).is_none());
        drop(fence);
        assert!(dropped.load(Ordering::SeqCst));
    }

    #[test]
    fn stamps_are_reused_on_the_same_queue() {
        let device = crate::host::Device::new();
        let (one, other) = (
            device.timeline("one").unwrap(),
            device.timeline("other").unwrap(),
        );
        let fence = device.timed_fence("fence");
        let stamps: Vec<_> = (0..4)
            .map(|_| Arc::new(DropStamp(Arc::new(AtomicBool::new(false)))) as Arc<dyn Stamp>)
            .collect();
        assert!(fence.take_spare_stamp(one.at(1)).is_none());
        for (value, stamp) in (1..).zip(&stamps[..2]) {
            fence.record_at(one.at(value), Some(stamp.clone()));
        }
        // Another queue cannot reuse the stamp.
        assert!(fence.take_spare_stamp(other.at(1)).is_none());
        let spare = fence.take_spare_stamp(one.at(9)).unwrap();
        assert!(Arc::ptr_eq(&spare, &stamps[0]) && fence.take_spare_stamp(one.at(9)).is_none());
        // Of three stamps, one is in use and one is spare.
        for (value, stamp) in (3..).zip([&stamps[0], &stamps[2]]) {
            fence.record_at(one.at(value), Some(stamp.clone()));
        }
        let spare = fence.take_spare_stamp(one.at(9)).unwrap();
        assert!(Arc::ptr_eq(&spare, &stamps[0]));
        assert_eq!(Arc::strong_count(&stamps[1]), 1);
        // A record on another queue drops both.
        fence.record_at(other.at(1), Some(stamps[3].clone()));
        assert_eq!(Arc::strong_count(&stamps[2]), 1);
        assert!(fence.take_spare_stamp(other.at(1)).is_none());
    }
}
