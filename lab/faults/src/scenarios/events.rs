//! Eventfds and futures, as an event loop uses them.

use std::future::IntoFuture;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use syncline::Point;

use super::{Stop, Verdict};

/// An eventfd.
pub(super) struct EventFd(OwnedFd);

impl EventFd {
    pub(super) fn new() -> Verdict<Self> {
        let made = eventfd(0, EventfdFlags::CLOEXEC).map_err(own_call)?;
        Ok(Self(made))
    }

    pub(super) fn signal(&self) -> Verdict {
        let written = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        written.map(drop).map_err(own_call)
    }

    pub(super) fn duplicate(&self) -> Verdict<OwnedFd> {
        self.0.try_clone().map_err(own_call)
    }

    /// Waits until it is readable. A point that fails makes it readable, too.
    pub(super) fn wait(&self, patience: Duration, point: &Point<'_>) -> Verdict {
        let mut files = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: 0,
        };
        match poll(&mut files, Some(&limit)) {
            Ok(0) => Err(lost("an eventfd", point)),
            Ok(_) => Ok(()),
            Err(error) => Err(own_call(error)),
        }
    }
}

fn own_call(error: impl std::fmt::Display) -> Stop {
    Stop::Own(error.to_string())
}

fn lost(what: &str, point: &Point<'_>) -> Stop {
    let known = point.is_reached();
    Stop::Wrong(format!(
        "{what} was not woken; asked then, the point says {known:?}"
    ))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future of the point on this thread, once for each wake.
pub(super) fn block_on(point: Point<'_>, patience: Duration) -> Verdict {
    let until = Instant::now() + patience;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(point.into_future());
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Ok(result?);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(lost("a future", &point));
        }
        thread::park_timeout(left);
    }
}
