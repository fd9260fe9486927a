//! Notification of an event loop through an eventfd.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;

use crate::base::error::{Error, Object, Result};
use crate::base::file_kind::file_kind;
use crate::base::handle::Rejected;
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::timeline::point::Point;
use crate::timeline::state::Shared;
use crate::timeline::waiters::Ticket;

impl Point<'_> {
    /// Adds 1 to `eventfd` once the point is reached, or once it is known that it never will be.
    ///
    /// [`Point::is_reached`] tells which. If that is so already, the call itself adds it. The
    /// descriptor is closed afterwards. To use one eventfd for many points, pass a duplicate for
    /// each point.
    ///
    /// See eventfd(2). Linux has the same for its own timelines: `DRM_IOCTL_SYNCOBJ_EVENTFD`.
    ///
    /// # Errors
    /// Each error returns the descriptor, still open. [`Error::Import`] if it is not an eventfd.
    /// [`Error::ValueOutOfRange`] if no device can compare the value (T7).
    pub fn notify(self, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        self.notify_at(Stage::Reached, eventfd)
    }

    /// Same as [`Point::notify`], but adds 1 once the point is pending.
    ///
    /// # Errors
    /// Same errors as [`Point::notify`].
    pub fn notify_pending(self, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        self.notify_at(Stage::Pending, eventfd)
    }

    fn notify_at(self, stage: Stage, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        let usable = require_eventfd(&eventfd).map_err(|reason| {
            let object = self
                .of
                .map_or_else(|| Object::new("empty point", ""), |of| of.object().clone());
            Error::import(
                object,
                format!("descriptor {} to notify", eventfd.as_raw_fd()),
                reason,
            )
        });
        let legal = usable.and_then(|()| {
            let Some(of) = self.of else { return Ok(()) };
            of.require_maker()?;
            of.check_wait(self.value)
        });
        if let Err(error) = legal {
            return Err(Rejected {
                handle: eventfd,
                error,
            });
        }
        let event_fd = Arc::new(EventFd(eventfd));
        let Some(of) = self.of else {
            event_fd.wake();
            return Ok(Notification(None));
        };
        of.refresh_for(stage, self.value);
        match of.register(self.value, stage, event_fd.clone()) {
            Some(ticket) => Ok(Notification(Some((of.clone(), ticket)))),
            None => {
                event_fd.wake();
                Ok(Notification(None))
            }
        }
    }
}

/// Refuses a descriptor that is not an eventfd.
///
/// Writes 0 to it, which changes nothing in an eventfd. The kernel's other objects without a file
/// type refuse the write. Descriptors with a file type are refused before.
fn require_eventfd(fd: &OwnedFd) -> Result<(), String> {
    let kind = file_kind(fd.as_fd()).map_err(|errno| format!("it cannot be used: {errno}"))?;
    if kind != FileType::Unknown {
        return Err("it is not an eventfd".into());
    }
    match rustix::io::write(fd, &0_u64.to_ne_bytes()) {
        Ok(8) => Ok(()),
        _ => Err("it is not an eventfd".into()),
    }
}

/// A requested notification. Dropping it cancels the request and closes the eventfd.
///
/// If another thread is writing to the eventfd at that moment, that thread closes it afterwards.
#[must_use = "dropping a notification cancels it"]
pub struct Notification(Option<(Arc<Shared>, Ticket)>);

impl Notification {
    /// Gives up the right to cancel. The request stays registered with its timeline.
    pub fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for Notification {
    fn drop(&mut self) {
        if let Some((of, ticket)) = self.0.take() {
            of.unregister(ticket);
        }
    }
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some((of, _)) => write!(f, "Notification({})", of.object()),
            None => f.write_str("Notification(made)"),
        }
    }
}

/// Adds 1 to the eventfd when it is woken.
struct EventFd(OwnedFd);

impl Wake for EventFd {
    fn wake(self: Arc<Self>) {
        let mut polled = [PollFd::new(&self.0, PollFlags::OUT)];
        // Polls first, because a write to a blocking eventfd with a full counter would block this
        // thread. A full counter is readable already.
        if let Ok(1) = poll(&mut polled, Some(&Timespec::default()))
            && polled[0].revents().contains(PollFlags::OUT)
        {
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }
    }

    fn is_prompt(&self) -> bool {
        true
    }
}
