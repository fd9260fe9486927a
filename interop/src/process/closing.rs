//! Descriptors that the peer process has sent, and the thread that closes them.
//!
//! The peer decides how long close(2) takes. It may run the file system behind a descriptor (FUSE),
//! which then never answers the flush, and no signal ends that. It may have set `SO_LINGER` on a
//! socket. The same holds for the endpoint's own socket: messages that nobody has read hold
//! descriptors, and closing the socket releases them.
//!
//! So each endpoint and each listener has a thread that does nothing but close. It is never joined.
#![allow(unsafe_code, reason = "a descriptor leaves its owner in `drop`")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::io::Errno;
use syncline_core::{Object, Rejected, Result};

use super::message::MOST_DESCRIPTORS;
use super::socket::native;

/// Descriptors of one peer that may be open here at once. Those that wait to be closed count.
pub(super) const MOST_OPEN: usize = 64;

/// Descriptors of one peer that may be open here, however many other peers have sent.
///
/// So hostile peers that take up [`MOST_IN_PROCESS`] do not keep an honest one from passing
/// objects.
const RESERVED: usize = MOST_DESCRIPTORS;

/// Descriptors of all peers together that may be open in this process, beside the
/// [reserved](RESERVED) ones of each endpoint.
///
/// A thread that hangs in close(2) outlives its endpoint, so the limit of each endpoint is not
/// enough. Threads that receive at the same moment do not see each other's descriptors: each may
/// bring 16 more. At this number listeners accept no client, so that peers do not get more reserved
/// descriptors by connecting again.
const MOST_IN_PROCESS: usize = 256;

/// Descriptors of all peers that are open in this process.
static IN_PROCESS: AtomicUsize = AtomicUsize::new(0);

/// The thread that closes the descriptors of one peer. It ends once this and every [`Foreign`] of
/// it is gone.
#[derive(Debug)]
pub(super) struct Closer {
    queue: SyncSender<OwnedFd>,
    /// Descriptors in its care that are open, those in the queue included.
    open: Arc<AtomicUsize>,
}

impl Closer {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Native`] if the system gives no thread.
    pub(super) fn start(object: &Object) -> Result<Arc<Self>> {
        // More than are ever in its care: `room` bounds what messages bring, and the socket comes
        // on top.
        let (queue, closed) = sync_channel::<OwnedFd>(2 * MOST_OPEN);
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        let started = std::thread::Builder::new()
            .name("syncline-close".into())
            .spawn(move || {
                for fd in closed {
                    drop(fd);
                    released(&counted);
                }
            });
        match started {
            Ok(_) => Ok(Arc::new(Self { queue, open })),
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
                Err(native(object, "pthread_create", errno))
            }
        }
    }

    /// How many descriptors the next message may bring.
    pub(super) fn room(&self) -> usize {
        let open = self.open.load(Ordering::Acquire);
        let in_process = IN_PROCESS.load(Ordering::Acquire);
        let shared = MOST_IN_PROCESS.saturating_sub(in_process);
        let reserved = RESERVED.saturating_sub(open);
        MOST_OPEN
            .saturating_sub(open)
            .min(shared.max(reserved))
            .min(MOST_DESCRIPTORS)
    }

    /// Whether a listener may accept one more client: its own limit and the process's leave room.
    pub(super) fn accepts(&self) -> bool {
        self.open.load(Ordering::Acquire) < MOST_OPEN
            && IN_PROCESS.load(Ordering::Acquire) < MOST_IN_PROCESS
    }

    /// Takes a descriptor into its care that the peer has sent.
    pub(super) fn keep(self: &Arc<Self>, fd: OwnedFd) -> PeerFd {
        self.count();
        let mut kept = self.keep_socket(fd);
        kept.is_counted = true;
        kept
    }

    /// Takes a socket into its care to which the peer is connected. It counts once it is to be
    /// closed.
    pub(super) fn keep_socket(self: &Arc<Self>, socket: OwnedFd) -> PeerFd {
        PeerFd {
            fd: ManuallyDrop::new(socket),
            is_counted: false,
            closer: Some(self.clone()),
        }
    }

    fn count(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
        IN_PROCESS.fetch_add(1, Ordering::AcqRel);
    }
}

/// One descriptor less is open.
fn released(open: &AtomicUsize) {
    open.fetch_sub(1, Ordering::AcqRel);
    IN_PROCESS.fetch_sub(1, Ordering::AcqRel);
}

/// A descriptor that another process has sent, or a socket that may hold such descriptors. Dropped,
/// it is closed by its [`Closer`]'s thread. Dropping it never blocks.
pub(super) struct PeerFd {
    fd: ManuallyDrop<OwnedFd>,
    is_counted: bool,
    /// `None` once the descriptor has been given away.
    closer: Option<Arc<Closer>>,
}

impl PeerFd {
    /// The descriptor itself, for a caller that knows that close(2) does not block, or that lets
    /// the application decide.
    pub(super) fn into_fd(mut self) -> OwnedFd {
        if let Some(closer) = self.closer.take().filter(|_| self.is_counted) {
            released(&closer.open);
        }
        // SAFETY: `drop` does not touch the descriptor any more, as there is no closer, and nothing
        // else can: `self` ends here.
        unsafe { ManuallyDrop::take(&mut self.fd) }
    }

    /// What `judge` makes of the descriptor. One that it refuses is closed by the thread.
    ///
    /// # Errors
    /// Those of `judge`.
    pub(super) fn convert<T>(
        self,
        convert: impl FnOnce(OwnedFd) -> Result<T, Rejected<OwnedFd>>,
    ) -> Result<T> {
        let closer = self.closer.clone();
        convert(self.into_fd()).map_err(|Rejected { handle, error }| {
            if let Some(closer) = closer {
                drop(closer.keep(handle));
            }
            error
        })
    }
}

impl Drop for PeerFd {
    fn drop(&mut self) {
        let Some(closer) = self.closer.take() else {
            return;
        };
        if !self.is_counted {
            closer.count();
        }
        // SAFETY: the closer was there, so the descriptor has not been taken; `self` ends here.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if let Err(full) = closer.queue.try_send(fd) {
            // The thread is gone, as in a child after fork(2). The descriptor stays open, and
            // counted.
            std::mem::forget(full);
        }
    }
}

impl AsFd for PeerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for PeerFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.fd, f)
    }
}
