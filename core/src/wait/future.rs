//! Waits that can be awaited, on any runtime or none.
//!
//! A future registers with its timelines on the first poll and is woken by whoever makes the value
//! reached, failed or pending, as a parked thread is. Dropped, it takes its registrations back, and its
//! waker is not called any more, unless a signal that is being made at that moment has it in hand already.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::base::sync::Mutex;
use crate::timeline::point::KeptPoints;
use crate::timeline::point::{KeptPoint, Point};
use crate::timeline::state::Registered;
use crate::wait::{Quantity, decide, refresh_all};

/// Completes once every one of its points is reached, or pending if it came from [`Point::pending`]; with an
/// error as soon as one cannot be. Made by awaiting a [`Point`], and by [`all`].
///
/// It owns what it needs of its timelines, but not the right to signal them. Polling it may ask a driver for a
/// value and never blocks.
///
/// # Errors
/// As for [`wait_all`](crate::wait_all), but there is no time-out: drop it instead.
#[must_use = "futures do nothing unless polled"]
pub struct WaitAll(Waiting);

/// Completes once any of its points is reached, with the lowest index of those that are. Made by [`any`].
///
/// # Errors
/// As for [`wait_any`](crate::wait_any), but there is no time-out: drop it instead.
#[must_use = "futures do nothing unless polled"]
pub struct WaitAny(Waiting);

/// A future of all `points`: see [`wait_all`](crate::wait_all). Points of any backends and devices may be mixed.
pub fn all(points: &[Point<'_>]) -> WaitAll {
    WaitAll(Waiting::new(points, Quantity::All, Stage::Reached))
}

/// A future of any of `points`: see [`wait_any`](crate::wait_any). Points of any backends and devices may be mixed.
pub fn any(points: &[Point<'_>]) -> WaitAny {
    WaitAny(Waiting::new(points, Quantity::Any, Stage::Reached))
}

impl Point<'_> {
    /// A future of the value being pending: see [`Point::wait_pending`].
    pub fn pending(self) -> WaitAll {
        WaitAll(Waiting::new(&[self], Quantity::All, Stage::Pending))
    }
}

impl IntoFuture for Point<'_> {
    type Output = Result<()>;
    type IntoFuture = WaitAll;

    fn into_future(self) -> WaitAll {
        all(&[self])
    }
}

impl IntoFuture for KeptPoint {
    type Output = Result<()>;
    type IntoFuture = WaitAll;

    fn into_future(self) -> WaitAll {
        all(&[self.point()])
    }
}

impl Future for WaitAll {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll(context).map_ok(|_| ())
    }
}

impl Future for WaitAny {
    type Output = Result<usize>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<usize>> {
        self.0.poll(context)
    }
}

impl fmt::Debug for WaitAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "all of {:?}", self.0.points)
    }
}

impl fmt::Debug for WaitAny {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "any of {:?}", self.0.points)
    }
}

/// Who is to be woken; nobody once the future is gone.
struct Task(Mutex<Option<Waker>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Waiting {
    points: KeptPoints,
    quantity: Quantity,
    stage: Stage,
    listening: Option<Listening>,
}

/// While the future is pending. The fields are dropped in this order: first the waker, so that a wake that has not
/// got as far as that finds nobody.
struct Listening {
    task: Listener,
    _registered: Registered,
}

/// The future's own handle of its task.
struct Listener(Arc<Task>);

impl Drop for Listener {
    fn drop(&mut self) {
        // An executor's code: not under the lock.
        let waker = self.0.0.lock().take();
        drop(waker);
    }
}

impl Waiting {
    fn new(points: &[Point<'_>], quantity: Quantity, stage: Stage) -> Self {
        Self {
            points: points.iter().map(|point| point.keep()).collect(),
            quantity,
            stage,
            listening: None,
        }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<usize>> {
        if let Some(ended) = self.look() {
            self.listening = None;
            return Poll::Ready(ended);
        }
        match &self.listening {
            // The waker goes in before the second look: from then on nothing is missed. What has fired since
            // the last poll is settled, and the rest is still registered.
            Some(listening) => {
                // Cloned and dropped without the lock: both are an executor's own code.
                let waker = context.waker().clone();
                let before = listening.task.0.0.lock().replace(waker);
                drop(before);
            }
            None => self.register(context.waker()),
        }
        match self.look() {
            Some(ended) => {
                self.listening = None;
                Poll::Ready(ended)
            }
            None => Poll::Pending,
        }
    }

    fn register(&mut self, waker: &Waker) {
        let task = Arc::new(Task(Mutex::new(Some(waker.clone()))));
        let mut registered = Registered::default();
        for point in &self.points {
            if let Some(of) = &point.of {
                registered.add(of.clone(), point.value, self.stage, task.clone());
            }
        }
        self.listening = Some(Listening {
            task: Listener(task),
            _registered: registered,
        });
    }

    fn look(&self) -> Option<Result<usize>> {
        let points: SmallVec<[Point<'_>; 4]> = self.points.iter().map(KeptPoint::point).collect();
        if points.is_empty() && self.quantity == Quantity::Any {
            return Some(Err(Error::NothingToWaitFor));
        }
        let looked = refresh_all(&points, self.stage)
            .and_then(|()| decide(&points, self.quantity, self.stage));
        looked.transpose()
    }
}
