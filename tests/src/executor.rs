//! Just enough of an executor for cases that await: wakers that count, and a thread that waits for
//! one.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::case::Stop;
use crate::{Waiting, patience};

/// Counts how often it is woken, and unparks the thread that made it.
#[derive(Debug)]
pub struct Count {
    woken: AtomicUsize,
    thread: Thread,
}

impl Count {
    /// Not woken yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            woken: AtomicUsize::new(0),
            thread: thread::current(),
        })
    }

    /// How often it was woken.
    #[must_use]
    pub fn woken(&self) -> usize {
        self.woken.load(Ordering::SeqCst)
    }

    /// Parks this thread, which must be the one that made it, until it has been woken that often.
    ///
    /// # Errors
    /// A failure if that never comes.
    pub fn wait_for(&self, times: usize) -> Result<(), Stop> {
        let deadline = Instant::now() + patience();
        while self.woken() < times {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Stop::fail("a future that could go on was not woken");
            }
            thread::park_timeout(left);
        }
        Ok(())
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Polls once, to be told by `count`.
pub fn poll<T>(future: &mut Waiting<T>, count: &Arc<Count>) -> Poll<syncline::Result<T>> {
    let waker = Waker::from(count.clone());
    future.as_mut().poll(&mut Context::from_waker(&waker))
}

/// Runs a future to its end on this thread, and polls it only when it was woken.
///
/// # Errors
/// A failure if it is not woken in time.
pub fn block_on<F: Future>(future: F) -> Result<F::Output, Stop> {
    let mut future = pin!(future);
    let count = Count::new();
    let waker = Waker::from(count.clone());
    loop {
        let before = count.woken();
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(done);
        }
        count.wait_for(before + 1)?;
    }
}
