//! A minimal executor for cases that await: wakers that count, and a thread that waits for them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::case::Stop;
use crate::{Waiting, patience};

/// Counts how often it is woken, and unparks the thread that created it.
#[derive(Debug)]
pub struct Count {
    woken: AtomicUsize,
    thread: Thread,
}

impl Count {
    /// Creates a counter at 0.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            woken: AtomicUsize::new(0),
            thread: thread::current(),
        })
    }

    /// Returns how often it was woken.
    #[must_use]
    pub fn woken(&self) -> usize {
        self.woken.load(Ordering::SeqCst)
    }

    /// Parks the calling thread, which must have created this, until it was woken `times` times.
    ///
    /// # Errors
    /// A failure if that does not happen in time.
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

/// Polls once, with `count` as the waker.
pub fn poll<T>(future: &mut Waiting<T>, count: &Arc<Count>) -> Poll<syncline::Result<T>> {
    let waker = Waker::from(count.clone());
    future.as_mut().poll(&mut Context::from_waker(&waker))
}

/// Runs a future to its end on this thread. Polls it only after it was woken.
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
