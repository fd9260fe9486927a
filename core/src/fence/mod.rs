//! Fences: re-recordable marks of a queue's position, with the semantics of CUDA events.

pub(crate) mod mark;

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
use crate::wait::WaitMode;

/// A cell that holds a position of a queue: recorded, waited for, and recorded again.
///
/// A fence that was never recorded is complete. Recording captures the queue's position at the call;
/// a later record does not move waits already issued. Handles are cheap to clone and usable from any
/// thread; dropping or re-recording a pending fence is legal.
///
/// The semantics are those of `CUevent` (CUDA driver API, event management) on every backend.
///
/// A fence can also stand for an object of another API, such as a descriptor
/// ([`host::Device::import_descriptor`](crate::host::Device::import_descriptor)). It is waited for like any
/// other; recording it is refused.
#[derive(Clone)]
pub struct Fence(Arc<Cell>);

struct Cell {
    object: Object,
    device: DeviceId,
    owner: Object,
    timing: Timing,
    /// What its times are on, with [`Timing::Clock`].
    clock: Option<Clock>,
    /// It stands for an object of another API, or of another process, for ever: it is never recorded.
    foreign: bool,
    /// It has held [`Mark::Native`], and perhaps does.
    native: AtomicBool,
    mark: Mutex<Mark>,
    /// The last stamp that could not be written, and why.
    lost: Mutex<Option<(Arc<dyn Stamp>, Error)>>,
}

/// What a fence holds.
#[derive(Clone)]
enum Mark {
    /// It was never recorded.
    Empty,
    /// A position of a queue.
    Recorded {
        point: KeptPoint,
        stamp: Option<Arc<dyn Stamp>>,
        /// That of the record before, if it was on the same queue: to be used again.
        spare: Option<Arc<dyn Stamp>>,
    },
    /// What only its backend understands, such as a place in a graph that is being captured.
    Native(Arc<dyn NativeMark>),
    /// Another API's object, for ever.
    Foreign(KeptPoint),
}

impl Fence {
    pub(crate) fn new(device: DeviceId, owner: &Object, label: &str, timing: Timing) -> Self {
        Cell::holding(device, owner, label, (timing, None), Mark::Empty).into()
    }

    pub(crate) fn clocked(device: DeviceId, owner: &Object, label: &str, clock: Clock) -> Self {
        let timing = (Timing::Clock, Some(clock));
        Cell::holding(device, owner, label, timing, Mark::Empty).into()
    }

    /// A fence that stands for an object of another API: complete once `point` is reached, failed if that
    /// fails, and never to be recorded. For backends, whose devices (`device`, named `owner`) import such objects.
    #[must_use]
    pub fn foreign(device: DeviceId, owner: &Object, label: &str, point: KeptPoint) -> Self {
        let mark = Mark::Foreign(point);
        Cell::holding(device, owner, label, (Timing::None, None), mark).into()
    }

    /// As [`Fence::foreign`], for an object that changes: what waits for the fence waits for the position that `mark` tells then.
    #[must_use]
    pub fn foreign_native(
        device: DeviceId,
        owner: &Object,
        label: &str,
        mark: Arc<dyn NativeMark>,
    ) -> Self {
        let mark = Mark::Native(mark);
        let cell = Cell::holding(device, owner, label, (Timing::None, None), mark);
        Cell {
            foreign: true,
            ..cell
        }
        .into()
    }

    /// A fence that holds something of its backend's own from the start, in place of a position. Queues of `device`, named `owner`, record it as
    /// their backend has it (see [`SubmissionQueue::record_natively`](crate::SubmissionQueue::record_natively)).
    #[must_use]
    pub fn native(
        device: DeviceId,
        owner: &Object,
        label: &str,
        mark: Arc<dyn NativeMark>,
    ) -> Self {
        let mark = Mark::Native(mark);
        Cell::holding(device, owner, label, (Timing::None, None), mark).into()
    }
}

impl From<Cell> for Fence {
    fn from(cell: Cell) -> Self {
        Self(Arc::new(cell))
    }
}

impl Cell {
    fn holding(
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
            lost: Mutex::new(None),
        }
    }
}

impl Fence {
    /// Its name in errors and reports.
    #[must_use]
    #[inline]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// True if it was ever recorded, or stands for an object of another API.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        match &*self.0.mark.lock() {
            Mark::Empty => false,
            Mark::Recorded { .. } | Mark::Foreign(_) => true,
            Mark::Native(mark) => mark.is_recorded(),
        }
    }

    /// True if its records write a time, of whatever kind.
    #[must_use]
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.0.timing != Timing::None
    }

    /// What its records write.
    #[must_use]
    #[inline]
    pub fn timing(&self) -> Timing {
        self.0.timing
    }

    /// The position it holds now, to be waited for by a submission or with others; empty, and so
    /// reached, if it was never recorded. Later records do not move it.
    ///
    /// # Errors
    /// [`Error::Captured`] and [`Error::CaptureEnded`]: it was recorded into a graph capture, where it has no
    /// position. A driver error, if the driver has to be asked for the position.
    pub fn point(&self) -> Result<KeptPoint> {
        let mark = match &*self.0.mark.lock() {
            Mark::Empty => return Ok(KeptPoint::default()),
            Mark::Recorded { point, .. } | Mark::Foreign(point) => return Ok(point.clone()),
            Mark::Native(mark) => mark.clone(),
        };
        // It may ask a driver, so not under the lock.
        mark.point(self.object())
    }

    /// What its backend has put there instead of a position, if that is what it holds.
    #[must_use]
    #[inline]
    pub fn native_mark(&self) -> Option<Arc<dyn NativeMark>> {
        if !self.0.native.load(Ordering::Acquire) {
            return None;
        }
        self.held_native_mark()
    }

    #[cold]
    fn held_native_mark(&self) -> Option<Arc<dyn NativeMark>> {
        match &*self.0.mark.lock() {
            Mark::Native(mark) => Some(mark.clone()),
            _ => None,
        }
    }

    /// True if everything before the record has finished, or if it was never recorded. Never blocks.
    ///
    /// # Errors
    /// The failure of the queue it was recorded on; [`Error::Captured`]; [`Error::CaptureEnded`].
    pub fn is_complete(&self) -> Result<bool> {
        match self.native_mark() {
            None if self.is_known_complete() => Ok(true),
            None => self.point()?.point().is_reached(),
            Some(mark) => mark.is_complete(self.object()),
        }
    }

    /// True if that shows without a reference to what it holds, and without asking anybody.
    fn is_known_complete(&self) -> bool {
        match &*self.0.mark.lock() {
            Mark::Empty => true,
            Mark::Recorded { point, .. } | Mark::Foreign(point) => point.is_known_reached(),
            Mark::Native(_) => false,
        }
    }

    /// Blocks this thread until the fence, as recorded at the call, is complete.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; the failure of the queue it was recorded on; [`Error::Captured`]; [`Error::CaptureEnded`].
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.wait_with(WaitMode::Adaptive, timeout)
    }

    /// As [`Fence::wait`], with the way to wait chosen by the caller.
    ///
    /// # Errors
    /// As [`Fence::wait`].
    pub fn wait_with(&self, mode: WaitMode, timeout: Duration) -> Result<()> {
        self.point()?.point().wait_with(mode, timeout)
    }

    /// Nanoseconds on the device from `start` to this fence, negative if `start` is the later one,
    /// 0 against itself. Both must be timed, in the same way, recorded and complete. Never blocks.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::TimingDisabled`], [`Error::TimingDiffers`], [`Error::NotRecorded`], [`Error::NotReady`],
    /// [`Error::Captured`], [`Error::CaptureEnded`], or an earlier fault, which is not hidden: the failure of the
    /// queue, or what kept a held record from writing its time.
    pub fn elapsed_since(&self, start: &Self) -> Result<i64> {
        if start.0.device != self.0.device {
            return Err(Error::WrongDevice {
                object: start.object().clone(),
                owner: start.0.owner.clone(),
                asked: self.object().clone(),
            });
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
        }
    }

    /// When it was reached, on its device's clock: what its last record wrote there, at its position on the queue. It must be
    /// made with a clock ([`Device::clocked_fence`](crate::backend::Device::clocked_fence)), recorded and complete. Never
    /// blocks, except where timestamps come round (fewer than 64 bits of them are valid) and the clock was not sampled for long before or after the
    /// record, some 60 rounds: an hour, where a round lasts a minute. Then it is sampled, which takes as long as that does. It tells the right
    /// round if it is asked before the two clocks have parted by a sixteenth of one: for 125 rounds at least, and as a rule for a thousand.
    ///
    /// # Errors
    /// [`Error::TimingDisabled`], [`Error::NotRecorded`], [`Error::NotReady`], [`Error::Captured`], [`Error::CaptureEnded`],
    /// or an earlier fault, as for [`Fence::elapsed_since`].
    pub fn time(&self) -> Result<Time> {
        let disabled = || Error::TimingDisabled {
            fence: self.object().clone(),
            asked: Timing::Clock,
        };
        let clock = self.0.clock.clone().ok_or_else(disabled)?;
        let nanoseconds = self.stamp()?.time()?.ok_or_else(disabled)?;
        Ok(Time::new(clock, nanoseconds))
    }

    /// Refuses what a queue of `device`, named `asked`, cannot record.
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
        Err(Error::WrongDevice {
            object: self.object().clone(),
            owner: self.0.owner.clone(),
            asked: asked.clone(),
        })
    }

    #[inline]
    pub(crate) fn mark(&self, at: Point<'_>, stamp: Option<Arc<dyn Stamp>>) {
        let mut mark = self.0.mark.lock();
        // Mostly it was recorded on the same queue before: then no reference is counted up, and none down.
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
            // A stamp goes back to its pool outside of the lock.
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

    /// Where the time of the record before the last one was written, if both were on the queue of which `position` is one: for the
    /// next.
    #[inline]
    pub(crate) fn take_spare(&self, position: Point<'_>) -> Option<Arc<dyn Stamp>> {
        match &mut *self.0.mark.lock() {
            Mark::Recorded { point, spare, .. } if point.is_of(position) => spare.take(),
            _ => None,
        }
    }

    pub(crate) fn mark_natively(&self, mark: Arc<dyn NativeMark>) {
        self.0.native.store(true, Ordering::Release);
        let before = std::mem::replace(&mut *self.0.mark.lock(), Mark::Native(mark));
        drop(before);
    }

    /// The recorded submission that was to write `stamp` has been refused. Perhaps before the record returns.
    pub(crate) fn lose(&self, stamp: Arc<dyn Stamp>, cause: Error) {
        let before = self.0.lost.lock().replace((stamp, cause));
        drop(before);
    }

    /// Why `stamp` will never be written, if that is so.
    fn loss(&self, stamp: &Arc<dyn Stamp>) -> Option<Error> {
        let lost = self.0.lost.lock();
        let (of, cause) = lost.as_ref()?;
        Arc::ptr_eq(of, stamp).then(|| cause.clone())
    }

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
            // It tells why there is no time, or has none to tell.
            Mark::Native(mark) => (mark.is_complete(self.object())?, None),
            Mark::Empty | Mark::Foreign(_) => return Err(Error::NotRecorded { fence: fence() }),
        };
        if !complete {
            return Err(Error::NotReady { fence: fence() });
        }
        let stamp = stamp.ok_or_else(disabled)?;
        self.loss(&stamp).map_or(Ok(stamp), Err)
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

    /// Complete when it is told so.
    struct Told(AtomicBool);

    impl NativeMark for Told {
        fn point(&self, _: &Object) -> Result<KeptPoint> {
            Ok(KeptPoint::default())
        }

        fn is_complete(&self, _: &Object) -> Result<bool> {
            Ok(self.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn what_is_native_from_the_start_is_recorded_unless_it_is_foreign() {
        let device = crate::host::Device::new();
        let (id, owner) = (device.id(), device.object());
        let told = Arc::new(Told(AtomicBool::new(false)));
        let own = Fence::native(id, owner, "own", told.clone());
        let foreign = Fence::foreign_native(id, owner, "foreign", told.clone());
        for fence in [&own, &foreign] {
            assert!(fence.native_mark().is_some() && fence.is_recorded());
            assert!(!fence.is_timed() && !fence.is_complete().unwrap());
        }
        told.0.store(true, Ordering::SeqCst);
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

    /// A time that says when it is dropped.
    struct Noted(Arc<AtomicBool>);

    impl Stamp for Noted {
        fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
            Ok(7)
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_a_fence_holds_is_what_it_was_given_last() {
        let device = crate::host::Device::new();
        let (one, other) = (
            device.timeline("one").unwrap(),
            device.timeline("other").unwrap(),
        );
        let fence = device.timed_fence("fence");
        let dropped = Arc::new(AtomicBool::new(false));
        let stamp = || Arc::new(Noted(dropped.clone())) as Arc<dyn Stamp>;
        fence.mark(one.at(1), Some(stamp()));
        assert!(!fence.is_complete().unwrap());
        let native = Arc::new(Told(AtomicBool::new(false)));
        fence.mark_natively(native.clone());
        assert!(dropped.swap(false, Ordering::SeqCst));
        assert!(fence.native_mark().is_some() && !fence.is_complete().unwrap());
        native.0.store(true, Ordering::SeqCst);
        assert!(fence.is_complete().unwrap());
        for (at, complete) in [(one.at(1), false), (one.at(2), false), (other.at(0), true)] {
            fence.mark(at, Some(stamp()));
            assert!(fence.native_mark().is_none());
            assert_eq!(fence.point().unwrap().value, at.value);
            assert!(fence.point().unwrap().is_of(at));
            assert_eq!(fence.is_complete().unwrap(), complete);
        }
        // Each new one has let the one before go.
        assert!(dropped.swap(false, Ordering::SeqCst));
        fence.mark(other.at(1), None);
        assert!(fence.take_spare(one.at(1)).is_none());
        drop(fence);
        assert!(dropped.load(Ordering::SeqCst));
    }

    #[test]
    fn the_place_of_a_time_is_used_again_on_the_same_queue() {
        let device = crate::host::Device::new();
        let (one, other) = (
            device.timeline("one").unwrap(),
            device.timeline("other").unwrap(),
        );
        let fence = device.timed_fence("fence");
        let stamps: Vec<_> = (0..4)
            .map(|_| Arc::new(Noted(Arc::new(AtomicBool::new(false)))) as Arc<dyn Stamp>)
            .collect();
        assert!(fence.take_spare(one.at(1)).is_none());
        for (value, stamp) in (1..).zip(&stamps[..2]) {
            fence.mark(one.at(value), Some(stamp.clone()));
        }
        // That of another queue is none of this one's.
        assert!(fence.take_spare(other.at(1)).is_none());
        let spare = fence.take_spare(one.at(9)).unwrap();
        assert!(Arc::ptr_eq(&spare, &stamps[0]) && fence.take_spare(one.at(9)).is_none());
        // Of three there is one in use, and one spare.
        for (value, stamp) in (3..).zip([&stamps[0], &stamps[2]]) {
            fence.mark(one.at(value), Some(stamp.clone()));
        }
        let spare = fence.take_spare(one.at(9)).unwrap();
        assert!(Arc::ptr_eq(&spare, &stamps[0]));
        assert_eq!(Arc::strong_count(&stamps[1]), 1);
        // Another queue's record lets go of both.
        fence.mark(other.at(1), Some(stamps[3].clone()));
        assert_eq!(Arc::strong_count(&stamps[2]), 1);
        assert!(fence.take_spare(other.at(1)).is_none());
    }
}
