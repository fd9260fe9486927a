//! Timelines: make, signal, fail, query, wait.

use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use syncline::backend::Device as _;
use syncline::error::Object;
use syncline::negotiate::Made;
use syncline::{
    Error, KeptPoint, Point, Signal, SignalOnly, Timeline, WaitOnly, wait_all, wait_any,
};

use crate::handle::{Handle, sl_device, sl_timeline};
use crate::raw::{VkSemaphore, from_vk};
use crate::result::{Refused, call, list, out, sl_result, told};

/// A time limit without an end.
pub const SL_FOREVER: u64 = u64::MAX;

/// A timeline and a value. It can be waited for, and signalled.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_point {
    /// The timeline.
    pub timeline: sl_timeline,
    /// The value.
    pub value: u64,
}

pub(crate) const fn limit(nanoseconds: u64) -> Duration {
    match nanoseconds {
        SL_FOREVER => Duration::MAX,
        some => Duration::from_nanos(some),
    }
}

/// A timeline, or the access to one that processes share.
#[derive(Clone)]
#[expect(dead_code, reason = "what the processes have made is only kept")]
pub(crate) enum Line {
    /// With what its processes have made, if there are several.
    Own(Timeline, Option<Made>),
    /// Another process signals it.
    Waits(WaitOnly, Made),
    /// This process signals it, for another one.
    Signals(SignalOnly, Made),
}

impl From<Timeline> for Line {
    fn from(timeline: Timeline) -> Self {
        Self::Own(timeline, None)
    }
}

impl Line {
    pub(crate) fn object(&self) -> &Object {
        match self {
            Self::Own(line, _) => line.object(),
            Self::Waits(line, _) => line.object(),
            Self::Signals(line, _) => line.object(),
        }
    }

    fn cannot(&self, asked: &str, reason: &str) -> Error {
        Error::unsupported(self.object(), asked, reason)
    }

    fn cannot_wait(&self) -> Error {
        let reason = "this process only signals it: ask for SL_ACCESS_BOTH";
        self.cannot("be waited for", reason)
    }

    fn cannot_signal(&self) -> Error {
        self.cannot("be signalled", "another process signals it")
    }

    /// The timeline, for what all of it is needed.
    pub(crate) fn own(&self) -> syncline::Result<&Timeline> {
        match self {
            Self::Own(line, _) => Ok(line),
            _ => {
                let reason = "this process may only wait for it, or only signal it";
                Err(self.cannot("be used by raw handles", reason))
            }
        }
    }

    pub(crate) fn at(&self, value: u64) -> syncline::Result<Point<'_>> {
        match self {
            Self::Own(line, _) => Ok(line.at(value)),
            Self::Waits(line, _) => Ok(line.at(value)),
            Self::Signals(..) => Err(self.cannot_wait()),
        }
    }

    fn signal_at(&self, value: u64) -> syncline::Result<Signal<'_>> {
        match self {
            Self::Own(line, _) => Ok(line.signal_at(value)),
            Self::Signals(line, _) => Ok(line.signal_at(value)),
            Self::Waits(..) => Err(self.cannot_signal()),
        }
    }

    fn signal(&self, value: u64) -> syncline::Result<()> {
        match self {
            Self::Own(line, _) => line.signal(value),
            Self::Signals(line, _) => line.signal(value),
            Self::Waits(..) => Err(self.cannot_signal()),
        }
    }

    fn fail(&self, cause: Error) -> syncline::Result<()> {
        match self {
            Self::Own(line, _) => line.fail(cause),
            Self::Signals(line, _) => line.fail(cause),
            Self::Waits(..) => return Err(self.cannot_signal()),
        }
        Ok(())
    }

    fn value(&self) -> syncline::Result<u64> {
        match self {
            Self::Own(line, _) => line.value(),
            Self::Waits(line, _) => line.value(),
            Self::Signals(..) => Err(self.cannot_wait()),
        }
    }
}

impl sl_point {
    /// The point, without a handle of its timeline.
    ///
    /// A thread that waits must not have the right to signal, or the wait would never be cancelled
    /// (T9).
    pub(crate) fn keep(&self) -> Result<KeptPoint, Refused> {
        Ok(self.timeline.get()?.at(self.value)?.keep())
    }
}

/// A list without an allocation, if it is short.
type List<T> = SmallVec<[T; 8]>;

/// Points to wait for.
pub(crate) struct Points(List<KeptPoint>);

impl Points {
    /// # Safety
    /// `points` has `count` elements.
    pub(crate) unsafe fn read(
        points: *const sl_point,
        count: usize,
        name: &'static str,
    ) -> Result<Self, Refused> {
        // SAFETY: by the contract of this function.
        let points = unsafe { list(points, count, name)? };
        let kept = points.iter().map(sl_point::keep);
        kept.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn points(&self) -> List<Point<'_>> {
        self.0.iter().map(KeptPoint::point).collect()
    }
}

/// Points to signal, with their timelines.
pub(crate) struct Signals(List<(Arc<Line>, u64)>);

impl Signals {
    /// # Safety
    /// `points` has `count` elements.
    pub(crate) unsafe fn read(points: *const sl_point, count: usize) -> Result<Self, Refused> {
        // SAFETY: by the contract of this function.
        let points = unsafe { list(points, count, "signals")? };
        let own = |point: &sl_point| Ok((point.timeline.get()?, point.value));
        points.iter().map(own).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn signals(&self) -> Result<List<Signal<'_>>, Refused> {
        let signals = self.0.iter();
        let signals = signals.map(|(timeline, value)| timeline.signal_at(*value));
        Ok(signals.collect::<Result<_, _>>()?)
    }
}

/// Makes a timeline of a device, which begins at `initial`.
///
/// Queues of other devices may wait for it and signal it, through the host. sl_link_timeline makes
/// one for two devices, without the host if possible. `label` is a name for error texts, or null.
/// Free the timeline with sl_timeline_free. SL_ERROR_INVALID_VALUE if `initial` is UINT64_MAX.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_timeline_make(
    device: sl_device,
    label: *const c_char,
    initial: u64,
    timeline: *mut sl_timeline,
) -> sl_result {
    call(|| {
        let timeline = out(timeline, "timeline")?;
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        let made = device.get()?.timeline_from(label, initial)?;
        timeline.set(sl_timeline::new(made.into()));
        Ok(())
    })
}

/// Makes a timeline whose points have the time at which they were reached (sl_point_time).
///
/// As sl_timeline_make. The first call on a device makes its clock, which takes milliseconds, or up
/// to a second while the device is busy.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_timeline_make_clocked(
    device: sl_device,
    label: *const c_char,
    initial: u64,
    timeline: *mut sl_timeline,
) -> sl_result {
    call(|| {
        let timeline = out(timeline, "timeline")?;
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        let made = device.get()?.clocked_timeline_from(label, initial)?;
        timeline.set(sl_timeline::new(made.into()));
        Ok(())
    })
}

/// Makes another handle of a timeline, for another owner. Each handle is freed once.
#[unsafe(no_mangle)]
pub extern "C" fn sl_timeline_clone(timeline: sl_timeline, clone: *mut sl_timeline) -> sl_result {
    call(|| {
        let clone = out(clone, "clone")?;
        let timeline = Line::clone(&*timeline.get()?);
        clone.set(sl_timeline::new(timeline));
        Ok(())
    })
}

/// The VkSemaphore of a timeline on a Vulkan device, for a submission that signals a claim.
///
/// Syncline destroys it: free the timeline after the submission has finished.
/// SL_ERROR_UNSUPPORTED if the timeline has none there: make it by a link whose first device is
/// this one.
#[unsafe(no_mangle)]
pub extern "C" fn sl_timeline_vk_semaphore(
    timeline: sl_timeline,
    device: sl_device,
    semaphore: *mut VkSemaphore,
) -> sl_result {
    call(|| {
        let place = out(semaphore, "semaphore")?;
        let (timeline, device) = (timeline.get()?, device.get()?);
        let semaphore = device.vulkan()?.semaphore_of(timeline.own()?)?;
        place.set(from_vk(semaphore));
        Ok(())
    })
}

/// The VkSemaphore with which a submission of the program waits for a point.
///
/// The submission waits for the value of the point. SL_ERROR_NOT_READY while the point is not
/// pending, because a driver that gets the wait first could block the signal: call
/// sl_point_wait_pending before. For the rest see sl_timeline_vk_semaphore.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_vk_semaphore(
    point: sl_point,
    device: sl_device,
    semaphore: *mut VkSemaphore,
) -> sl_result {
    call(|| {
        let place = out(semaphore, "semaphore")?;
        let (timeline, device) = (point.timeline.get()?, device.get()?);
        let semaphore = device.vulkan()?.semaphore(timeline.at(point.value)?)?;
        place.set(from_vk(semaphore));
        Ok(())
    })
}

/// Signals a value from the host. It must be above the present one, and not claimed.
///
/// Submissions that were held for the value go to their drivers on the calling thread.
/// SL_ERROR_INVALID_VALUE for another value, SL_ERROR_FAILED if the timeline has failed, and
/// SL_ERROR_UNSUPPORTED if another process signals the timeline.
#[unsafe(no_mangle)]
pub extern "C" fn sl_timeline_signal(timeline: sl_timeline, value: u64) -> sl_result {
    call(|| Ok(timeline.get()?.signal(value)?))
}

/// Fails a timeline: all present and later waits for values that are not reached end with an error.
///
/// Submissions that wait for it are skipped on the calling thread. SL_ERROR_UNSUPPORTED if another
/// process signals the timeline.
///
/// # Safety
///
/// `reason` is null, or a text that ends with a zero byte. It is in the error of the waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_timeline_fail(
    timeline: sl_timeline,
    reason: *const c_char,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let reason = unsafe { told(reason) };
        let cause = Error::work(std::io::Error::other(reason.into_owned()));
        Ok(timeline.get()?.fail(cause)?)
    })
}

/// The value that a timeline has reached. Asks the driver.
///
/// SL_ERROR_UNSUPPORTED if this process only signals the timeline (SL_ACCESS_SIGNAL).
#[unsafe(no_mangle)]
pub extern "C" fn sl_timeline_value(timeline: sl_timeline, value: *mut u64) -> sl_result {
    call(|| {
        let value = out(value, "value")?;
        value.set(timeline.get()?.value()?);
        Ok(())
    })
}

/// Frees a handle of a timeline.
///
/// If it was the last one, values that nothing has claimed can never come. Waits for them on other
/// threads end with SL_ERROR_CANCELLED. Submissions that wait for them are skipped, and what these
/// signal fails (SL_ERROR_FAILED). The call may then block for up to 50 ms.
#[unsafe(no_mangle)]
pub extern "C" fn sl_timeline_free(timeline: sl_timeline) -> sl_result {
    call(|| timeline.free())
}

/// Whether a point is reached. SL_ERROR_FAILED if it never will be.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_is_reached(point: sl_point, reached: *mut bool) -> sl_result {
    call(|| {
        let reached = out(reached, "reached")?;
        reached.set(point.timeline.get()?.at(point.value)?.is_reached()?);
        Ok(())
    })
}

/// Whether the signal of a point is with its driver, so that a driver may wait for it.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_is_pending(point: sl_point, pending: *mut bool) -> sl_result {
    call(|| {
        let pending = out(pending, "pending")?;
        pending.set(point.timeline.get()?.at(point.value)?.is_pending()?);
        Ok(())
    })
}

/// Blocks until a point is reached, at most `nanoseconds`.
///
/// SL_ERROR_TIMED_OUT after that time; the text names the signals that are missing, and what they
/// wait for. SL_ERROR_FAILED if the timeline fails before, and SL_ERROR_CANCELLED if nothing can
/// signal the value any more.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_wait(point: sl_point, nanoseconds: u64) -> sl_result {
    call(|| Ok(point.keep()?.point().wait(limit(nanoseconds))?))
}

/// Blocks until the signal of a point is with its driver, at most `nanoseconds`.
///
/// Same errors as sl_point_wait.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_wait_pending(point: sl_point, nanoseconds: u64) -> sl_result {
    call(|| Ok(point.keep()?.point().wait_pending(limit(nanoseconds))?))
}

/// Blocks until all points are reached, at most `nanoseconds`. Same errors as sl_point_wait.
///
/// # Safety
///
/// `points` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_wait_all(
    points: *const sl_point,
    count: usize,
    nanoseconds: u64,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let points = unsafe { Points::read(points, count, "points")? };
        Ok(wait_all(&points.points(), limit(nanoseconds))?)
    })
}

/// Blocks until one of the points is reached, at most `nanoseconds`. `index` is its place.
///
/// Same errors as sl_point_wait, and SL_ERROR_DEADLOCK for an empty list.
///
/// # Safety
///
/// `points` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_wait_any(
    points: *const sl_point,
    count: usize,
    nanoseconds: u64,
    index: *mut usize,
) -> sl_result {
    call(|| {
        let index = out(index, "index")?;
        // SAFETY: by the contract of this function.
        let points = unsafe { Points::read(points, count, "points")? };
        index.set(wait_any(&points.points(), limit(nanoseconds))?);
        Ok(())
    })
}
