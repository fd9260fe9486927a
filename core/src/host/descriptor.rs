//! Descriptors that can be polled, as ports, and the watch of them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use smallvec::SmallVec;

use crate::backend::{ByEngine, Port, Watch, Watcher};
use crate::base::file_kind::file_kind;
use crate::base::sync_file;
use crate::{Error, Result, error::Object};

/// How long a watch sleeps if the system could not poll.
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// What a descriptor refers to, as far as its poll events depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A pipe or a socket, which is readable at its end, too.
    Stream,
    /// An object without a file, such as an eventfd or a sync file.
    Anonymous,
    /// A device file.
    Other,
}

impl Kind {
    /// Refuses a descriptor that never becomes readable or always is.
    pub(super) fn of(fd: BorrowedFd<'_>, device: &Object) -> Result<Self> {
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
pub(super) struct Descriptor {
    object: Object,
    kind: Kind,
    /// The final result. The descriptor is not polled any more once it is set.
    end: OnceLock<Result<()>>,
    /// Closed when the last point of the fence is gone.
    fd: OwnedFd,
}

impl Descriptor {
    pub(super) const fn new(object: Object, kind: Kind, fd: OwnedFd) -> Self {
        Self {
            object,
            kind,
            end: OnceLock::new(),
            fd,
        }
    }

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
        let descriptors: SmallVec<[&Descriptor; 8]> = ports
            .iter()
            .filter_map(|(port, _)| (*port as &dyn std::any::Any).downcast_ref())
            .collect();
        let mut asked: SmallVec<[PollFd<'_>; 9]> =
            descriptors.iter().map(|d| d.poll_fd()).collect();
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
        let port = Descriptor::new(object, Kind::Anonymous, fd);
        let until = Instant::now() + Duration::from_secs(20);
        poller.watch(&[(&port, 1)], until).unwrap();
        // Drained after the watch and before the engine's poll.
        rustix::io::read(&theirs, &mut [0; 8]).unwrap();
        assert_eq!(port.poll().unwrap(), Some(1));
    }

    #[test]
    fn any_status_of_a_sync_file_is_reported() {
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let port = Descriptor::new(Object::new("descriptor", "odd"), Kind::Anonymous, fd);
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
