//! Identity of processes.
#![allow(
    unsafe_code,
    reason = "registers a fork handler, and leaks values after a fork"
)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::base::error::{Error, Object, Result};
use crate::base::exiting::{DriverCalls, TeardownGuard};

/// The identity of one process of this machine.
///
/// The system reuses process ids. The id together with the start time is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The process id, in the PID namespace of the process that reported it.
    pub id: u32,
    /// The start time, in the kernel's clock ticks since boot; 0 if unknown. See
    /// proc_pid_stat(5), field 22.
    pub started: u64,
}

impl Process {
    /// The calling process.
    ///
    /// Its start time is 0 as long as the process has no descriptor or memory to read it.
    #[must_use]
    pub fn this() -> Self {
        Self::try_this().unwrap_or_else(|_| Self {
            id: std::process::id(),
            started: 0,
        })
    }

    /// Same as [`Process::this`], with an error if a resource is short.
    ///
    /// Reads the start time once, so that all answers after the first are equal. Later there may be
    /// no descriptor to read it.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE` or `ENOMEM`.
    pub fn try_this() -> Result<Self, Errno> {
        // A mutex of std: it is only tried, and outside of loom models, too.
        static KNOWN: Mutex<Option<Process>> = Mutex::new(None);
        let id = std::process::id();
        // In a forked process, the lock may be held by a thread that does not exist.
        let mut known = KNOWN.try_lock().ok();
        match known.as_deref() {
            // A forked process has the memory of its parent.
            Some(Some(this)) if this.id == id => Ok(*this),
            _ => {
                let started = match started("self") {
                    Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno),
                    started => started.unwrap_or(0),
                };
                let this = Self { id, started };
                if let Some(known) = &mut known {
                    **known = Some(this);
                }
                Ok(this)
            }
        }
    }

    /// The process that has this id at present.
    #[must_use]
    pub fn with_id(id: u32) -> Self {
        let started = started(&id.to_string()).unwrap_or(0);
        Self { id, started }
    }

    /// True for the calling process. If a start time is unknown, only the id is compared.
    #[must_use]
    pub fn is_this(self) -> bool {
        let this = Self::this();
        let unknown = self.started == 0 || this.started == 0;
        self.id == this.id && (unknown || self.started == this.started)
    }
}

/// The process that made an object, to recognize the copy of that object in a forked child.
///
/// A child that fork(2) makes is recognized. A child of a raw clone(2) without `CLONE_VM`, or of
/// `_Fork`, is not, because the C library runs no fork handler there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MakerProcess(u64);

/// The calling process: the number of forks that led to it, and its id in the lower half.
///
/// 0 until the first object is made. Only the fork handler changes it after that. No other thread
/// runs then, so no access needs an order. Loom does not model it.
static THIS: AtomicU64 = AtomicU64::new(0);

/// The step of [`THIS`] from a process to a forked child.
const GENERATION: u64 = 1 << 32;

impl MakerProcess {
    /// Equal to no process. For tests of what a forked child does.
    pub const NONE: Self = Self(0);

    /// The calling process.
    #[must_use]
    pub fn this() -> Self {
        match THIS.load(Ordering::Relaxed) {
            0 => Self::first(),
            this => Self(this),
        }
    }

    /// Registers the fork handler.
    ///
    /// Two threads may both do so. Then each fork counts twice, which has no effect.
    #[cold]
    fn first() -> Self {
        // SAFETY: the handler calls getpid(2) and writes atomics, which is allowed in a forked
        // child. The C library removes it if this library is unloaded. Without memory for the
        // handler, forked children are not recognized.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
        let this = GENERATION | u64::from(std::process::id());
        let before = THIS.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed);
        Self(before.map_or_else(|known| known, |_| this))
    }

    /// True in the process that made the object. One load, without a system call.
    #[inline]
    #[must_use]
    pub fn is_this(self) -> bool {
        self.0 == THIS.load(Ordering::Relaxed)
    }

    /// A guard for a drop that calls a driver. An exit waits for it.
    ///
    /// `None` in a forked child, and once the process exits. Then the drop leaves the driver's
    /// object as it is (D1, P3).
    #[inline]
    #[must_use]
    pub fn for_destroy(self) -> Option<DriverCalls> {
        self.is_this().then(DriverCalls::begin).flatten()
    }

    /// Refuses an object of another process.
    ///
    /// # Errors
    /// [`Error::MadeBeforeFork`] in a forked child.
    #[inline]
    pub fn require(self, object: &Object) -> Result<()> {
        if self.is_this() {
            return Ok(());
        }
        Err(self.refusal(object))
    }

    /// The error for the use of `object` in a forked child.
    #[cold]
    #[must_use]
    pub fn refusal(self, object: &Object) -> Error {
        // The lower half is the process id.
        Error::made_before_fork(object, (self.0 % GENERATION) as u32)
    }
}

impl Default for MakerProcess {
    fn default() -> Self {
        Self::this()
    }
}

/// The fork handler of the child.
extern "C" fn note_fork() {
    let generation = THIS.load(Ordering::Relaxed) / GENERATION;
    // The generation wraps after 2^32 nested forks.
    let next = generation.wrapping_add(1).wrapping_mul(GENERATION);
    THIS.store(next | u64::from(std::process::id()), Ordering::Relaxed);
    TeardownGuard::forget_other_threads();
}

/// A value that only the process that made it drops, and only before it exits.
///
/// An exit waits for a drop that has begun.
///
/// A forked child leaks its copy. There a drop could call a driver, or wait for a lock that a
/// thread of the parent held. A process that exits leaks the value, because a driver may still use
/// it.
#[derive(Debug)]
pub struct DroppedByMaker<T> {
    maker: MakerProcess,
    value: ManuallyDrop<T>,
}

impl<T> DroppedByMaker<T> {
    /// Wraps a value of the calling process.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self {
            maker: MakerProcess::this(),
            value: ManuallyDrop::new(value),
        }
    }

    /// The process that made it.
    #[inline]
    #[must_use]
    pub const fn maker(&self) -> MakerProcess {
        self.maker
    }
}

impl<T> Deref for DroppedByMaker<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for DroppedByMaker<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Default> Default for DroppedByMaker<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Drop for DroppedByMaker<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(_calls) = self.maker.for_destroy() {
            // SAFETY: dropped once, here, and not used after that.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// The start time of the process in the directory `process` of `/proc`; 0 if that has none.
fn started(process: &str) -> Result<u64, Errno> {
    // The second field is a file name in brackets. It may contain any bytes, also brackets and
    // bytes that are not UTF-8.
    let stat = std::fs::read(format!("/proc/{process}/stat"))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let after_name = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    let after_name = String::from_utf8_lossy(after_name);
    let started = after_name.split_whitespace().nth(19);
    Ok(started.and_then(|ticks| ticks.parse().ok()).unwrap_or(0))
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit status of a forked child that runs `child`.
    fn status_of(child: impl FnOnce() -> bool) -> libc::c_int {
        // SAFETY: the child runs no other thread's code, and ends below.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            let status = i32::from(!child());
            // SAFETY: the child ends here.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: the child's id, and memory for its status.
        let ended = unsafe { libc::waitpid(forked, &raw mut status, 0) };
        assert_eq!(ended, forked);
        status
    }

    #[test]
    fn a_forked_child_and_its_child_are_other_processes() {
        let parent = MakerProcess::this();
        let status = status_of(|| {
            let child = MakerProcess::this();
            let grandchild = || !parent.is_this() && !child.is_this();
            !parent.is_this() && child.is_this() && status_of(grandchild) == 0
        });
        assert_eq!(status, 0);
        assert!(parent.is_this());
    }

    #[test]
    fn a_forked_child_leaks_what_its_parent_has_made() {
        let shared = std::sync::Arc::new(());
        let mut made = Some(DroppedByMaker::new(shared.clone()));
        let mut count = || {
            made = None;
            std::sync::Arc::strong_count(&shared)
        };
        assert_eq!(status_of(|| count() == 2), 0);
        assert_eq!(count(), 1);
    }

    #[test]
    fn a_forked_child_waits_for_no_guard_of_its_parent() {
        let (held, is_held) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let holder = std::thread::spawn(move || {
            let _guard = TeardownGuard::begin();
            held.send(()).unwrap();
            let _ = ends.recv();
        });
        is_held.recv().unwrap();
        assert_eq!(status_of(|| !TeardownGuard::is_any_held()), 0);
        assert!(TeardownGuard::is_any_held());
        drop(end);
        holder.join().unwrap();
    }

    #[test]
    fn is_this_compares_the_id_and_the_start_time() {
        let this = Process::this();
        assert!(this.is_this());
        let reused = Process {
            started: this.started.wrapping_add(1),
            ..this
        };
        assert!(!reused.is_this() || this.started == 0 || reused.started == 0);
        let unknown = Process { started: 0, ..this };
        assert!(unknown.is_this());
        let other = Process {
            id: this.id ^ 1,
            started: 0,
        };
        assert!(!other.is_this());
    }
}
