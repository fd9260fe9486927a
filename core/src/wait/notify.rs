//! Event loops that learn of a point through an eventfd.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;

use crate::base::error::{Error, Object, Result};
use crate::base::handle::Rejected;
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::timeline::point::Point;
use crate::timeline::state::Shared;
use crate::timeline::waiters::Ticket;

impl Point<'_> {
    /// Adds 1 to `eventfd` once the point is reached, or never will be: then ask the point
    /// ([`Point::is_reached`]) which. At once if that is so already. The descriptor is then closed; to hear
    /// through one eventfd of many points, give each a duplicate of it.
    ///
    /// See eventfd(2); what Linux offers for its own timelines as `DRM_IOCTL_SYNCOBJ_EVENTFD`.
    ///
    /// # Errors
    /// With the descriptor, still open: [`Error::Import`] if it is not an eventfd, [`Error::ValueOutOfRange`] if
    /// no device can tell the value from others.
    pub fn notify(self, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        self.notify_at(Stage::Reached, eventfd)
    }

    /// As [`Point::notify`], once the point is pending: on its way with no more host action.
    ///
    /// # Errors
    /// As [`Point::notify`].
    pub fn notify_pending(self, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        self.notify_at(Stage::Pending, eventfd)
    }

    fn notify_at(self, stage: Stage, eventfd: OwnedFd) -> Result<Notification, Rejected<OwnedFd>> {
        let usable = require_eventfd(&eventfd).map_err(|reason| {
            let object = self
                .of
                .map_or_else(|| Object::new("empty point", ""), |of| of.object.clone());
            Error::Import {
                object,
                what: format!("descriptor {} to notify", eventfd.as_raw_fd()),
                reason,
            }
        });
        let legal = usable.and_then(|()| self.of.map_or(Ok(()), |of| of.check_wait(self.value)));
        if let Err(error) = legal {
            return Err(Rejected {
                handle: eventfd,
                error,
            });
        }
        let listener = Arc::new(Listener(eventfd));
        let Some(of) = self.of else {
            listener.wake();
            return Ok(Notification(None));
        };
        of.refresh_for(stage, self.value);
        match of.register(self.value, stage, listener.clone()) {
            Some(ticket) => Ok(Notification(Some((of.clone(), ticket)))),
            None => {
                listener.wake();
                Ok(Notification(None))
            }
        }
    }
}

/// Adding nothing changes nothing, and only an eventfd takes it: the kernel's other objects without a file
/// refuse to be written, and everything else is refused before.
fn require_eventfd(fd: &OwnedFd) -> Result<(), String> {
    let status = rustix::fs::fstat(fd).map_err(|errno| format!("it cannot be used: {errno}"))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Unknown {
        return Err("it is not an eventfd".into());
    }
    match rustix::io::write(fd, &0_u64.to_ne_bytes()) {
        Ok(8) => Ok(()),
        _ => Err("it is not an eventfd".into()),
    }
}

/// A notification that has been asked for. Dropping it takes it back, and closes the eventfd; one that another
/// thread is just making is made, and the eventfd closed behind it.
#[must_use = "a notification that is dropped is taken back"]
pub struct Notification(Option<(Arc<Shared>, Ticket)>);

impl Notification {
    /// Lets it come without being kept. It is registered with its timeline until then.
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
            Some((of, _)) => write!(f, "Notification({})", of.object),
            None => f.write_str("Notification(made)"),
        }
    }
}

struct Listener(OwnedFd);

impl Wake for Listener {
    fn wake(self: Arc<Self>) {
        let mut room = [PollFd::new(&self.0, PollFlags::OUT)];
        // A counter that is full already tells whoever listens, and a blocking eventfd would stop this thread.
        if let Ok(1) = poll(&mut room, Some(&Timespec::default()))
            && room[0].revents().contains(PollFlags::OUT)
        {
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }
    }

    fn is_prompt(&self) -> bool {
        true
    }
}
