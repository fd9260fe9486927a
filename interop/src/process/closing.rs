//! Descriptors that the peer process has sent, and the thread that closes them.
//!
//! The peer decides how long close(2) takes. It may run the file system behind a descriptor (FUSE),
//! which then never answers the flush, and no signal ends that. It may have set `SO_LINGER` on a
//! socket. The same holds for the endpoint's own socket: unread messages hold descriptors, and
//! closing the socket releases them.
//!
//! So each endpoint and each listener has a thread that only closes descriptors. It is never
//! joined.
#![allow(unsafe_code, reason = "a descriptor leaves its owner in `drop`")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use syncline_core::{Error, Result, error::Object, handle::Rejected};

use super::message::MAX_DESCRIPTORS;

/// Descriptors of one peer that may be open here at once, including those waiting to be closed.
pub(super) const MAX_OPEN: usize = 64;

/// Descriptors of one peer that may be open here however many other peers have sent.
///
/// So hostile peers that use up [`MAX_IN_PROCESS`] do not keep an honest peer from passing
/// objects.
const RESERVED: usize = MAX_DESCRIPTORS;

/// Descriptors of all peers that may be open in this process.
///
/// The [reserved](RESERVED) descriptors of each endpoint may come on top. A thread that hangs in
/// close(2) outlives its endpoint, so the limit of each endpoint is not enough. Threads that
/// receive at the same moment do not see each other's descriptors: each may bring 16 more. At this
/// number, listeners accept no client, so that peers do not get more reserved descriptors by
/// connecting again.
const MAX_IN_PROCESS: usize = 256;

/// Descriptors of all peers that are open in this process.
static IN_PROCESS: AtomicUsize = AtomicUsize::new(0);

/// The thread that closes the descriptors of one peer.
///
/// It ends once this handle and every [`PeerFd`] with it are dropped.
#[derive(Debug)]
pub(super) struct Closer {
    queue: SyncSender<OwnedFd>,
    /// Open descriptors that it counts, including those in the queue.
    open: Arc<AtomicUsize>,
}

impl Closer {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Error::Native` if the system refuses a thread.
    pub(super) fn start(object: &Object) -> Result<Arc<Self>> {
        // More than it ever has: `free_descriptors` bounds what messages bring, and the socket
        // comes on top.
        let (queue, closed) = sync_channel::<OwnedFd>(2 * MAX_OPEN);
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
        started.map_err(|error| Error::no_thread(object, &error))?;
        Ok(Arc::new(Self { queue, open }))
    }

    /// How many descriptors the next message may bring.
    pub(super) fn free_descriptors(&self) -> usize {
        let open = self.open.load(Ordering::Acquire);
        let in_process = IN_PROCESS.load(Ordering::Acquire);
        let shared = MAX_IN_PROCESS.saturating_sub(in_process);
        let reserved = RESERVED.saturating_sub(open);
        MAX_OPEN
            .saturating_sub(open)
            .min(shared.max(reserved))
            .min(MAX_DESCRIPTORS)
    }

    /// True if a listener may accept one more client, by its own limit and that of the process.
    pub(super) fn accepts(&self) -> bool {
        self.open.load(Ordering::Acquire) < MAX_OPEN
            && IN_PROCESS.load(Ordering::Acquire) < MAX_IN_PROCESS
    }

    /// Wraps a descriptor that the peer has sent, and counts it.
    pub(super) fn keep(self: &Arc<Self>, fd: OwnedFd) -> PeerFd {
        self.count();
        let mut kept = self.keep_socket(fd);
        kept.is_counted = true;
        kept
    }

    /// Wraps a socket to which the peer is connected. It counts from its drop until it is closed.
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

/// Counts a descriptor as closed.
fn released(open: &AtomicUsize) {
    open.fetch_sub(1, Ordering::AcqRel);
    IN_PROCESS.fetch_sub(1, Ordering::AcqRel);
}

/// A descriptor that another process has sent, or a socket that may hold such descriptors.
///
/// The thread of its [`Closer`] closes it after the drop, which never blocks.
pub(super) struct PeerFd {
    fd: ManuallyDrop<OwnedFd>,
    is_counted: bool,
    /// `None` once the descriptor was taken out.
    closer: Option<Arc<Closer>>,
}

impl PeerFd {
    /// Takes the descriptor out.
    ///
    /// The caller must know that close(2) of it does not block, or hand it to the application.
    pub(super) fn into_fd(mut self) -> OwnedFd {
        if let Some(closer) = self.closer.take().filter(|_| self.is_counted) {
            released(&closer.open);
        }
        // SAFETY: without a closer, `drop` does not touch the descriptor, and nothing else can,
        // because `self` ends here.
        unsafe { ManuallyDrop::take(&mut self.fd) }
    }

    /// Converts the descriptor with `convert`. The thread closes a descriptor that `convert`
    /// refuses.
    ///
    /// # Errors
    /// The error of `convert`.
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
        // SAFETY: the closer was there, so the descriptor has not been taken out, and `self` ends
        // here.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        if let Err(full) = closer.queue.try_send(fd) {
            // The queue is full, or its thread has ended. The descriptor stays open and counted. In
            // a child of fork(2) no thread empties the queue.
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
