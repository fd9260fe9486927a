//! Timelines: make, signal, fail, query, wait.

use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use syncline::backend::Device as _;
use syncline::{Error, Point, Timeline, wait_all, wait_any};

use crate::handle::{Handle, sl_device, sl_timeline};
use crate::result::{Refused, call, list, out, sl_result, text};

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

/// The timelines of points, which these point into.
pub(crate) struct Points(Vec<(Arc<Timeline>, u64)>);

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
        let own = |point: &sl_point| Ok((point.timeline.get()?, point.value));
        points.iter().map(own).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Timeline, u64)> {
        self.0.iter().map(|(timeline, value)| (&**timeline, *value))
    }

    pub(crate) fn points(&self) -> Vec<Point<'_>> {
        self.iter()
            .map(|(timeline, value)| timeline.at(value))
            .collect()
    }
}

/// Makes a timeline of a device, which begins at 0.
///
/// `label` is a name for error texts, or null. Free the timeline with sl_timeline_free.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_timeline_make(
    device: sl_device,
    label: *const c_char,
    timeline: *mut sl_timeline,
) -> sl_result {
    call(|| {
        let timeline = out(timeline, "timeline")?;
        // SAFETY: by the contract of this function.
        let label = unsafe { text(label, "label")? };
        timeline.set(sl_timeline::new(device.get()?.timeline(label)?));
        Ok(())
    })
}

/// Signals a value from the host. It must be above the present one, and not claimed.
///
/// Submissions that were held for the value go to their drivers on the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn sl_timeline_signal(timeline: sl_timeline, value: u64) -> sl_result {
    call(|| Ok(timeline.get()?.signal(value)?))
}

/// Fails a timeline: all present and later waits for values that are not reached end with an error.
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
        let reason = unsafe { text(reason, "reason")? };
        let cause = Error::work(std::io::Error::other(reason.to_owned()));
        timeline.get()?.fail(cause);
        Ok(())
    })
}

/// The value that a timeline has reached. Asks the driver.
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
/// If it was the last one, values that nothing has claimed can never come: waits for them on other
/// threads, and submissions that wait for them, end with SL_ERROR_CANCELLED.
#[unsafe(no_mangle)]
pub extern "C" fn sl_timeline_free(timeline: sl_timeline) -> sl_result {
    call(|| timeline.free())
}

/// Whether a point is reached. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_is_reached(point: sl_point, reached: *mut bool) -> sl_result {
    call(|| {
        let reached = out(reached, "reached")?;
        reached.set(point.timeline.get()?.at(point.value).is_reached()?);
        Ok(())
    })
}

/// Whether the signal of a point is with its driver, so that a driver may wait for it.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_is_pending(point: sl_point, pending: *mut bool) -> sl_result {
    call(|| {
        let pending = out(pending, "pending")?;
        pending.set(point.timeline.get()?.at(point.value).is_pending()?);
        Ok(())
    })
}

/// Blocks until a point is reached, at most `nanoseconds`.
///
/// The text of a time-out names the signals that are missing and what they wait for.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_wait(point: sl_point, nanoseconds: u64) -> sl_result {
    call(|| {
        Ok(point
            .timeline
            .get()?
            .at(point.value)
            .wait(limit(nanoseconds))?)
    })
}

/// Blocks until the signal of a point is with its driver, at most `nanoseconds`.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_wait_pending(point: sl_point, nanoseconds: u64) -> sl_result {
    call(|| {
        Ok(point
            .timeline
            .get()?
            .at(point.value)
            .wait_pending(limit(nanoseconds))?)
    })
}

/// Blocks until all points are reached, at most `nanoseconds`.
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
