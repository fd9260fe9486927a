//! Waiting in poll(2): deadlines, wake-ups, and the errors of system calls.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use syncline_core::{Error, Result, error::Object};

/// The error of a system call on `object`.
pub(super) fn native(object: &Object, call: &'static str, errno: Errno) -> Error {
    Error::native(
        object,
        call,
        i64::from(errno.raw_os_error()),
        errno.to_string(),
    )
}

/// The time until which a call waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    since: Instant,
    /// `None` without limit.
    until: Option<Instant>,
}

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Self {
        let since = Instant::now();
        let until = since.checked_add(timeout);
        Self { since, until }
    }

    /// The same deadline, or `limit` from now if that is sooner.
    pub(super) fn at_most(self, limit: Duration) -> Self {
        let limit = Self::after(limit);
        let until = match (self.until, limit.until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            since: limit.since,
            until,
        }
    }

    /// The same deadline, or `least` from now if that is later.
    pub(super) fn at_least(self, least: Duration) -> Self {
        let least = Self::after(least);
        Self {
            since: self.since,
            until: self
                .until
                .zip(least.until)
                .map(|(one, other)| one.max(other)),
        }
    }

    /// True if the call checks once and does not wait.
    pub(super) fn is_poll(self) -> bool {
        self.until.is_some_and(|until| until <= self.since)
    }

    pub(super) fn waited(self) -> Duration {
        self.since.elapsed()
    }

    /// The remaining time. `None` without limit.
    pub(super) fn remaining(self) -> Option<Duration> {
        let until = self.until?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    pub(super) fn has_passed(self) -> bool {
        self.remaining() == Some(Duration::ZERO)
    }
}

/// Waits until one of `fds` has its event, or until the deadline. A signal handler also ends the
/// wait.
///
/// The caller must check its condition again.
pub(super) fn wait(fds: &mut [PollFd<'_>], deadline: Deadline) -> Result<(), Errno> {
    // A time that the system cannot represent is replaced by a long one.
    let left = deadline.remaining().map(|left| {
        Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: 1 << 30,
            tv_nsec: 0,
        })
    });
    match poll(fds, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// An eventfd that wakes a polling thread.
#[derive(Debug)]
pub(super) struct WakeFd(OwnedFd);

impl WakeFd {
    pub(super) fn new(object: &Object) -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).map_err(|errno| native(object, "eventfd", errno))?;
        Ok(Self(fd))
    }

    pub(super) fn wake(&self) {
        // Fails only if the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        // Fails only if the counter is zero.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    pub(super) fn readable(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::IN)
    }
}
