//! Descriptors that can be polled, as fences: one-shot timelines that somebody outside signals.

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
use crate::{Error, Fence, Object, Rejected, Result, SyncFd};

/// How long a watch sleeps where the system could not poll for it.
const NAP: Duration = Duration::from_millis(1);

impl Device {
    /// A fence that is complete once `descriptor` can be read: a sync file, an eventfd, a timerfd, a pidfd,
    /// the reading end of a pipe, a socket. `None`, the −1 with which APIs say that there is nothing to wait
    /// for, is complete. Queues of every device and the host can wait for it, with any others.
    ///
    /// * Nothing is ever read from the descriptor. A readiness that was seen stays: once complete, the fence is
    ///   complete, also if somebody drains an eventfd later. One that comes and goes while nobody asks or
    ///   waits is not seen.
    /// * A sync file with an error fails the fence, as does a pipe or socket whose other end closes before it
    ///   became readable.
    /// * Recording it is refused. The descriptor is closed when nobody uses the fence any more.
    ///
    /// See poll(2), eventfd(2), and `SYNC_IOC_FILE_INFO` of the kernel's sync files.
    ///
    /// # Errors
    /// [`Error::Import`], and the descriptor, still open: it is not open, cannot be polled (a regular file, a
    /// directory, `/dev/null`), or can only be written; [`Error::Native`] if the system has no descriptor left.
    pub fn import_descriptor(
        &self,
        descriptor: Option<OwnedFd>,
        label: &str,
    ) -> Result<Fence, Rejected<OwnedFd>> {
        let fence = |point| Fence::foreign(self.id(), self.object(), label, point);
        let Some(descriptor) = descriptor else {
            return Ok(fence(KeptPoint::default()));
        };
        let prepared = self
            .poller()
            .and_then(|poller| Ok((poller, Kind::of(descriptor.as_fd(), self.object())?)));
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
        // Whoever holds the other end is the signaller, and has the only claim there ever is.
        let claimed = of.claim(1, 0);
        debug_assert!(claimed.is_ok(), "a fresh timeline can be claimed");
        of.close();
        Ok(fence(KeptPoint {
            of: Some(of),
            value: 1,
        }))
    }

    /// A fence for the signal that a sync file stands for, as [`Device::import_descriptor`] makes it: complete at once where that is
    /// signalled already. The signal is not consumed, so duplicates of the descriptor may become other fences, or payloads.
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

/// What a descriptor stands for, as far as the meaning of its states depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A pipe or a socket: readable at its end too.
    Stream,
    /// An object without a file, such as an eventfd or a sync file.
    Anonymous,
    /// A device file.
    Other,
}

impl Kind {
    /// Refuses what can never be waited for.
    fn of(fd: BorrowedFd<'_>, device: &Object) -> Result<Self> {
        let refuse = |reason: String| Error::Import {
            object: device.clone(),
            what: format!("descriptor {}", fd.as_raw_fd()),
            reason,
        };
        let unusable = |errno: Errno| refuse(format!("it cannot be used: {errno}"));
        let kind = match file_kind(fd).map_err(unusable)? {
            FileType::Fifo | FileType::Socket => Self::Stream,
            // No file at all, which is what the kernel's own objects look like.
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
        // The one question that tells a file which can be polled from one which always says yes.
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

/// The port of one descriptor: 1 once it was seen to be readable.
struct Descriptor {
    object: Object,
    kind: Kind,
    /// How it ended, once it has: never asked again.
    end: OnceLock<Result<()>>,
    /// Closed when the last point of the fence is gone.
    fd: OwnedFd,
}

impl Descriptor {
    fn question(&self) -> PollFd<'_> {
        PollFd::new(&self.fd, PollFlags::IN | PollFlags::RDHUP)
    }

    /// Takes a look, without waiting.
    fn look(&self) {
        if self.end.get().is_some() {
            return;
        }
        let mut asked = [self.question()];
        // A look that is interrupted, or for which the system has no memory, is repeated by whoever waits.
        if let Ok(1) = poll(&mut asked, Some(&Timespec::default())) {
            self.note(asked[0].revents());
        }
    }

    /// Notes what poll(2) answered. Any answer but 'nothing' ends it, so no watch looks at it in a loop.
    fn note(&self, found: PollFlags) {
        if !found.is_empty() {
            self.end.get_or_init(|| self.judge(found));
        }
    }

    fn judge(&self, found: PollFlags) -> Result<()> {
        let readable = found.contains(PollFlags::IN);
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        match self.kind {
            Kind::Stream if found.intersects(gone) => {
                // Its end can be read too, as no bytes.
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

    /// The status of a sync file; anything else has none and is fine.
    fn sync_file_status(&self) -> Result<()> {
        match sync_file::status(self.fd.as_fd()) {
            Ok(status) if status < 0 => Err(self.signalled_with(status)),
            _ => Ok(()),
        }
    }

    /// The error with which a sync file was signalled. Drivers choose it, and need not choose one that the system has a number
    /// for: so it is no [`Errno`] here, which takes no other.
    fn signalled_with(&self, status: i32) -> Error {
        let error = std::io::Error::from_raw_os_error(status.saturating_neg());
        Error::Native {
            object: self.object.clone(),
            call: "SYNC_IOC_FILE_INFO",
            code: i64::from(status),
            name: format!("the sync file was signalled with an error: {error}"),
        }
    }

    fn failed(&self, found: PollFlags, name: &str) -> Error {
        Error::Native {
            object: self.object.clone(),
            call: "poll",
            code: i64::from(found.bits()),
            name: name.into(),
        }
    }
}

impl Port for Descriptor {
    fn poll(&self) -> Result<Option<u64>> {
        self.look();
        match self.end.get() {
            None => Ok(Some(0)),
            Some(Ok(())) => Ok(Some(1)),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Never called: nobody has a handle of the timeline.
    fn signal(&self, _value: u64, _: ByEngine<'_>) -> Result<()> {
        Err(Error::Unsupported {
            object: self.object.clone(),
            asked: "be signalled from the host".into(),
            reason: "whoever holds the other end signals it".into(),
        })
    }
}

/// Watches the descriptors of one device while somebody waits for them.
#[derive(Debug)]
pub(crate) struct Poller {
    watcher: Watcher,
    /// An eventfd that is polled as well.
    nudge: OwnedFd,
}

impl Poller {
    /// # Errors
    /// If the system gives no eventfd.
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

    /// Notes what it finds in the ports themselves, which keep it whatever becomes of the descriptor.
    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let descriptors: Vec<&Descriptor> = ports
            .iter()
            .filter_map(|(port, _)| (*port as &dyn std::any::Any).downcast_ref())
            .collect();
        let mut asked: Vec<PollFd<'_>> = descriptors.iter().map(|d| d.question()).collect();
        asked.push(PollFd::new(&self.nudge, PollFlags::IN));
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut asked, Some(&left)) {
            Ok(_) => {
                for (descriptor, found) in descriptors.iter().zip(&asked) {
                    descriptor.note(found.revents());
                }
            }
            // The engine asks each of them now, and then watches again.
            Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(NAP),
        }
        // Empty if nobody has nudged.
        let _ = rustix::io::read(&self.nudge, &mut [0; 8]);
        Ok(())
    }

    fn nudge(&self) {
        // Full only if it is readable already.
        let _ = rustix::io::write(&self.nudge, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_watch_saw_stays_in_the_port() {
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
        // Drained after the watch and before the engine asks.
        rustix::io::read(&theirs, &mut [0; 8]).unwrap();
        assert_eq!(port.poll().unwrap(), Some(1));
    }

    #[test]
    fn any_status_of_a_sync_file_is_told() {
        let port = Descriptor {
            object: Object::new("descriptor", "odd"),
            kind: Kind::Anonymous,
            end: OnceLock::new(),
            fd: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        };
        for status in [-5, -4095, -4096, -0x10000, i32::MIN] {
            let told = port.signalled_with(status);
            assert!(
                matches!(&told, Error::Native { code, .. } if *code == status.into()),
                "{told}"
            );
        }
        let told = port.signalled_with(-62).to_string();
        assert!(told.contains("os error 62"), "{told}");
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
