//! Objects that live until the peer process has ended, whatever happens to the endpoint.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use syncline_core::backend::kit::{Mutex, TeardownGuard};
use syncline_core::{Error, Result, error::Object};

use super::guard::POLL_RETRY;
use super::peer::Peer;
use super::poll::{Deadline, native, wait};

type Kept = Arc<dyn Any + Send + Sync>;
type List = Arc<Mutex<Vec<Kept>>>;

/// What the peer uses without a reference that the system counts.
///
/// A thread of its own waits for the end of the peer process and then drops the objects. The
/// thread of the endpoint cannot do that, because it ends with the endpoint. If the system does not
/// let the process be watched, the objects are leaked.
#[derive(Default)]
pub(super) struct KeptForPeer(Mutex<Option<List>>);

impl KeptForPeer {
    /// Keeps `object` until the process of `peer` has ended. Keeps the same object once.
    ///
    /// # Errors
    /// [`Error::Native`] if the system has no descriptor or no thread. Nothing is kept then.
    pub(super) fn keep(&self, endpoint: &Object, peer: &Peer, object: Kept) -> Result<()> {
        let mut kept = self.0.lock();
        let list = match &*kept {
            Some(list) => list,
            None => kept.insert(watched(endpoint, peer)?),
        };
        let mut list = list.lock();
        if !list.iter().any(|known| Arc::ptr_eq(known, &object)) {
            list.push(object);
        }
        Ok(())
    }
}

/// A list whose objects are dropped by a thread once the process of `peer` has ended.
fn watched(endpoint: &Object, peer: &Peer) -> Result<List> {
    let list = List::default();
    let until_the_end = list.clone();
    let process = match peer.duplicate_watched() {
        Ok(process) => process,
        Err(None) => {
            std::mem::forget(until_the_end);
            return Ok(list);
        }
        Err(Some(errno)) => return Err(native(endpoint, "fcntl(F_DUPFD_CLOEXEC)", errno)),
    };
    let thread = std::thread::Builder::new().name("syncline-kept".into());
    let started = thread.spawn(move || {
        wait_for_end(&process);
        let kept = std::mem::take(&mut *until_the_end.lock());
        TeardownGuard::drop_owner(kept);
    });
    started.map_err(|error| Error::no_thread(endpoint, &error))?;
    Ok(list)
}

/// Waits until the process has ended.
fn wait_for_end(process: &OwnedFd) {
    loop {
        let mut polled = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        match wait(&mut polled, Deadline::after(std::time::Duration::MAX)) {
            Ok(()) if polled[0].revents().is_empty() => {}
            Ok(()) => return,
            Err(_) => std::thread::sleep(POLL_RETRY),
        }
    }
}
