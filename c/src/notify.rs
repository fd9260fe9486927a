//! Notification of an event loop.

use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};

use syncline::handle::Rejected;

use crate::handle::{Handle, sl_notification};
use crate::result::{Refused, call, optional, sl_result};
use crate::timeline::sl_point;

/// Adds 1 to an eventfd once a point is reached, or once it is known that it never will be.
///
/// sl_point_is_reached tells which. If that is so already, this call adds it. After success the
/// descriptor is the library's, which closes it: pass a duplicate to keep one, or to use one
/// eventfd for several points. After an error it is still the program's. Does not block.
///
/// `notification` gets a handle with which the request can be cancelled. If it is null, the request
/// stays as long as the timeline. SL_ERROR_UNSUPPORTED if the descriptor is not an eventfd.
///
/// # Safety
///
/// `eventfd` is an open descriptor that the program owns, and that nothing else closes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_point_notify(
    point: sl_point,
    eventfd: i32,
    notification: *mut sl_notification,
) -> sl_result {
    call(|| {
        if eventfd < 0 {
            return Err(Refused::argument("eventfd", format!("is {eventfd}")));
        }
        let place = optional(notification, "notification")?;
        let timeline = point.timeline.get()?;
        let point = timeline.at(point.value)?;
        // SAFETY: by the contract of this function.
        let eventfd = unsafe { OwnedFd::from_raw_fd(eventfd) };
        let made = point.notify(eventfd);
        let made = made.map_err(|Rejected { handle, error }| {
            // Stays open: it is the program's.
            let _ = handle.into_raw_fd();
            error
        })?;
        match place {
            Some(place) => place.set(sl_notification::new(made)),
            None => made.detach(),
        }
        Ok(())
    })
}

/// Cancels a request, and closes its descriptor.
///
/// If another thread is adding to the eventfd at that moment, that thread closes it afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn sl_notification_free(notification: sl_notification) -> sl_result {
    call(|| notification.free())
}
