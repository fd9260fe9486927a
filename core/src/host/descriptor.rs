//! Fences for descriptors that can be polled. Each is a timeline that is signalled outside the
//! engine.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::backend::{Attachment, ByEngine, Device as _, Port, Watch, Watcher};
use crate::base::file_kind::file_kind;
use crate::base::sync_file;
use crate::host::Device;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::Shared;
use crate::{
    Error, Fence, Result,
    error::Object,
    handle::{Rejected, SyncFd},
};

/// How long a watch sleeps if the system could not poll.
const RETRY_DELAY: Duration = Duration::from_millis(1);

impl Device {
    /// A fence that is complete once `descriptor` is readable.
    ///
    /// The descriptor may be a sync file, an eventfd, a timerfd, a pidfd, the reading end of a
    /// pipe, or a socket. `None`, the −1 of other APIs, makes a complete fence. Queues of every
    /// device and the host can wait for the fence.
    ///
    /// * Nothing is ever read from the descriptor. Once seen readable, the fence stays complete,
    ///   even if an eventfd is drained later. Readiness that comes and goes between two polls is
    ///   not seen.
    /// * A sync file with an error fails the fence. So does a pipe or a socket whose other end
    ///   closes before it is readable.
    /// * Recording it is refused. The descriptor is closed once the fence is no longer used.
    ///
    /// See poll(2), eventfd(2), and `SYNC_IOC_FILE_INFO` of the kernel's sync files.
    ///
    /// # Errors
    /// Each error returns the descriptor, still open. [`Error::Import`] if it is not open, cannot
    /// be polled (a regular file, a directory, `/dev/null`), or is write-only. [`Error::Native`] if
    /// the system has no descriptor left.
    pub fn import_descriptor(
        &self,
        descriptor: Option<OwnedFd>,
        label: &str,
    ) -> Result<Fence, Rejected<OwnedFd>> {
        let fence = |point| Fence::foreign(self.id(), self.object(), label, point);
        let Some(descriptor) = descriptor else {
            return Ok(fence(KeptPoint::default()));
        };
        let prepared = self.poller().and_then(|poller| {
            let kind = Kind::of(descriptor.as_fd(), self.object())?;
            let started = poller.watcher().start();
            started.map_err(|error| Error::no_thread(self.object(), &error))?;
            Ok((poller, kind))
        });
        let (poller, kind) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                return Err(Rejected {
                    handle: descriptor,
                    error,
                });
            }
        };
        let object = Object::new("descriptor", label);
        let port = Descriptor {
            object: object.clone(),
            kind,
            end: OnceLock::new(),
            fd: descriptor,
        };
        let attachment = Attachment::new(self.id(), 0, port)
            .watched_by(poller)
            .signalled_elsewhere(true);
        let of = Arc::new(Shared::new(object, 0, attachment, Box::default()));
        // The holder of the other end signals it. This is the only claim that the timeline ever
        // has.
        let claimed = of.claim(1, 0);
        debug_assert!(claimed.is_ok(), "a fresh timeline can be claimed");
        of.close();
        Ok(fence(KeptPoint {
            of: Some(of),
            value: 1,
        }))
    }

    /// A fence for the signal of a sync file. See [`Device::import_descriptor`].
    ///
    /// The fence is complete at once if the signal has been made. The signal is not consumed, so
    /// duplicates of the descriptor may become other fences or payloads.
    ///
    /// # Errors
    /// The handle, and [`Error::Native`] if the system has no descriptor left.
    pub fn import_sync_fd(&self, handle: SyncFd, label: &str) -> Result<Fence, Rejected<SyncFd>> {
        self.import_descriptor(handle.into_fd(), label)
            .map_err(|Rejected { handle, error }| Rejected {
                handle: SyncFd::known(Some(handle)),
                error,
            })
    }
}

/// What a descriptor refers to, as far as its poll events depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A pipe or a socket, which is readable at its end, too.
    Stream,
    /// An object without a file, such as an eventfd or a sync file.
    Anonymous,
    /// A device file.
    Other,
}

impl Kind {
    /// Refuses a descriptor that never becomes readable or always is.
    fn of(fd: BorrowedFd<'_>, device: &Object) -> Result<Self> {
        let refuse = |reason: String| Error::Import {
            object: device.clone(),
            what: format!("descriptor {}", fd.as_raw_fd()),
            reason,
        };
        let unusable = |errno: Errno| refuse(format!("it cannot be used: {errno}"));
        let kind = match file_kind(fd).map_err(unusable)? {
            FileType::Fifo | FileType::Socket => Self::Stream,
            // The kernel's own objects have no file type.
            FileType::Unknown => Self::Anonymous,
            FileType::CharacterDevice => Self::Other,
            FileType::RegularFile => return Err(refuse("a file is always ready".into())),
            FileType::Directory => return Err(refuse("a directory is always ready".into())),
            other => return Err(refuse(format!("a {other:?} cannot be waited for"))),
        };
        let flags = rustix::fs::fcntl_getfl(fd).map_err(unusable)?;
        if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::WRONLY {
            return Err(refuse(
                "it cannot be read, so it never becomes readable".into(),
            ));
        }
        // Only epoll tells a file that can be polled from one that is always ready.
        let asked = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|errno| Error::system(device, "epoll_create1", errno))?;
        match epoll::add(&asked, fd, EventData::new_u64(0), EventFlags::IN) {
            Ok(()) => Ok(kind),
            Err(Errno::PERM) => Err(refuse(
                "it is always ready: files of its kind cannot be polled".into(),
            )),
            Err(errno) => Err(unusable(errno)),
        }
    }
}

/// The port of one descriptor. Its value is 1 once the descriptor was seen readable.
struct Descriptor {
    object: Object,
    kind: Kind,
    /// The final result. The descriptor is not polled any more once it is set.
    end: OnceLock<Result<()>>,
    /// Closed when the last point of the fence is gone.
    fd: OwnedFd,
}

impl Descriptor {
    fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.fd, PollFlags::IN | PollFlags::RDHUP)
    }

    /// Polls the descriptor without blocking.
    fn poll_now(&self) {
        if self.end.get().is_some() {
            return;
        }
        let mut asked = [self.poll_fd()];
        // The waiter repeats a poll that was interrupted or for which the system has no memory.
        if let Ok(1) = poll(&mut asked, Some(&Timespec::default())) {
            self.note_events(asked[0].revents());
        }
    }

    /// Notes the result of poll(2). Any event sets the final result, so that a watch does not spin
    /// on it.
    fn note_events(&self, found: PollFlags) {
        if !found.is_empty() {
            self.end.get_or_init(|| self.judge(found));
        }
    }

    fn judge(&self, found: PollFlags) -> Result<()> {
        let readable = found.contains(PollFlags::IN);
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        match self.kind {
            Kind::Stream if found.intersects(gone) => {
                // A stream is readable at its end, too, with no bytes.
                let bytes = rustix::io::ioctl_fionread(&self.fd).unwrap_or(0);
                if readable && bytes > 0 {
                    return Ok(());
                }
                Err(self.failed(found, "the other end was closed before it became readable"))
            }
            Kind::Anonymous if readable => self.sync_file_status(),
            _ if readable => Ok(()),
            _ if found.contains(PollFlags::NVAL) => Err(self.failed(found, "it is not open")),
            _ => Err(self.failed(found, "it has failed and was never readable")),
        }
    }

    /// The status of a sync file. Any other object has none, which is no error.
    fn sync_file_status(&self) -> Result<()> {
        match sync_file::status(self.fd.as_fd()) {
            Ok(status) if status < 0 => Err(self.signalled_with(status)),
            _ => Ok(()),
        }
    }

    /// The error with which a sync file was signalled.
    ///
    /// A driver may choose a number that the system has no name for. So this does not use
    /// [`Errno`], which refuses those.
    fn signalled_with(&self, status: i32) -> Error {
        let error = std::io::Error::from_raw_os_error(status.saturating_neg());
        Error::native(
            &self.object,
            "SYNC_IOC_FILE_INFO",
            i64::from(status),
            format!("the sync file was signalled with an error: {error}"),
        )
    }

    fn failed(&self, found: PollFlags, name: &str) -> Error {
        Error::native(&self.object, "poll", i64::from(found.bits()), name)
    }
}

impl Port for Descriptor {
    fn poll(&self) -> Result<Option<u64>> {
        self.poll_now();
        match self.end.get() {
            None => Ok(Some(0)),
            Some(Ok(())) => Ok(Some(1)),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Never called, because the timeline has no handle.
    fn signal(&self, _value: u64, _: ByEngine<'_>) -> Result<()> {
        Err(Error::unsupported(
            &self.object,
            "be signalled from the host",
            "the holder of its other end signals it",
        ))
    }
}

/// Watches the imported descriptors of one device while there are waiters.
#[derive(Debug)]
pub(crate) struct Poller {
    watcher: Watcher,
    /// An eventfd, polled with the descriptors.
    nudge: OwnedFd,
}

impl Poller {
    /// Makes a poller without descriptors.
    ///
    /// # Errors
    /// [`Error::Native`] if the system gives no eventfd.
    pub(crate) fn new(device: &Object) -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let nudge = eventfd(0, flags).map_err(|errno| Error::system(device, "eventfd", errno))?;
        Ok(Self {
            watcher: Watcher::default(),
            nudge,
        })
    }
}

impl Watch for Poller {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// Stores events in the ports, which keep them whatever happens to the descriptors.
    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let descriptors: Vec<&Descriptor> = ports
            .iter()
            .filter_map(|(port, _)| (*port as &dyn std::any::Any).downcast_ref())
            .collect();
        let mut asked: Vec<PollFd<'_>> = descriptors.iter().map(|d| d.poll_fd()).collect();
        asked.push(PollFd::new(&self.nudge, PollFlags::IN));
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut asked, Some(&left)) {
            Ok(_) => {
                for (descriptor, found) in descriptors.iter().zip(&asked) {
                    descriptor.note_events(found.revents());
                }
            }
            // The engine polls each port next, and then watches again.
            Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(RETRY_DELAY),
        }
        // Fails if there was no nudge.
        let _ = rustix::io::read(&self.nudge, &mut [0; 8]);
        Ok(())
    }

    fn nudge(&self) {
        // Fails only if the eventfd is readable already.
        let _ = rustix::io::write(&self.nudge, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_the_watch_saw_stays_in_the_port() {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(1, flags).unwrap();
        let theirs = fd.try_clone().unwrap();
        let object = Object::new("descriptor", "drained");
        let poller = Poller::new(&object).unwrap();
        let port = Descriptor {
            object,
            kind: Kind::Anonymous,
            end: OnceLock::new(),
            fd,
        };
        let until = Instant::now() + Duration::from_secs(20);
        poller.watch(&[(&port, 1)], until).unwrap();
        // Drained after the watch and before the engine's poll.
        rustix::io::read(&theirs, &mut [0; 8]).unwrap();
        assert_eq!(port.poll().unwrap(), Some(1));
    }

    #[test]
    fn any_status_of_a_sync_file_is_reported() {
        let port = Descriptor {
            object: Object::new("descriptor", "odd"),
            kind: Kind::Anonymous,
            end: OnceLock::new(),
            fd: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        };
        for status in [-5, -4095, -4096, -0x10000, i32::MIN] {
            let error = port.signalled_with(status);
            assert!(
                matches!(&error, Error::Native { code, .. } if *code == status.into()),
                "{error}"
            );
        }
        let error = port.signalled_with(-62).to_string();
        assert!(error.contains("os error 62"), "{error}");
    }

    #[test]
    fn a_nudge_ends_the_present_watch_or_the_next() {
        let object = Object::new("device", "host");
        let poller = Poller::new(&object).unwrap();
        let far = Instant::now() + Duration::from_secs(1000);
        poller.nudge();
        poller.watch(&[], far).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| poller.nudge());
            poller.watch(&[], far).unwrap();
        });
    }
}
