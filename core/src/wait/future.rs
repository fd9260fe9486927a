//! Waits as futures, for any executor.
//!
//! A future registers with its timelines on its first poll. The thread that makes the value
//! reached, failed or pending wakes it, after the threads that sleep and in turn with work that the
//! value releases (T4). Dropping the future
//! removes its registrations. Its waker is not called after that, unless a signalling thread has
//! taken it already (T8).
//!
//! ```
//! # extern crate syncline_core as syncline;
//! use syncline::wait::future;
//! use syncline::{Result, Timeline};
//!
//! async fn both(left: &Timeline, right: &Timeline, frame: u64) -> Result<()> {
//!     left.at(frame).await?;
//!     future::all(&[left.at(frame + 1), right.at(frame + 1)]).await
//! }
//! ```

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::base::exiting::{exit_error, is_exiting};
use crate::base::process::DroppedByMaker;
use crate::base::run::{Wake, run_contained};
use crate::base::stage::Stage;
use crate::base::sync::Mutex;
use crate::timeline::point::{KeptPoint, Point};
use crate::timeline::state::Registered;
use crate::wait::blocking::{Quantity, decide, refresh_all, require_maker};

/// A future that completes once all its points are reached.
///
/// Awaiting a [`Point`] makes one, and so does [`all`]. If it comes from [`Point::pending`], it
/// completes once the point is pending. It completes with an error as soon as a point can no longer
/// be reached. It keeps the memory of its timelines, but not the right to signal them. Polling it
/// may call a driver and never blocks.
///
/// # Errors
/// Same errors as [`wait_all`](crate::wait_all), except a time-out. Drop the future to end the
/// wait.
#[must_use = "futures do nothing unless polled"]
pub struct WaitAll(Waiting);

/// A future that completes once any of its points is reached. [`any`] makes it.
///
/// Its output is the lowest index of the reached points.
///
/// # Errors
/// Same errors as [`wait_any`](crate::wait_any), except a time-out. Drop the future to end the
/// wait.
#[must_use = "futures do nothing unless polled"]
pub struct WaitAny(Waiting);

/// A future that waits until all `points` are reached. See [`wait_all`](crate::wait_all).
pub fn all(points: &[Point<'_>]) -> WaitAll {
    WaitAll(Waiting::new(points, Quantity::All, Stage::Reached))
}

/// A future that waits until any of `points` is reached. See [`wait_any`](crate::wait_any).
pub fn any(points: &[Point<'_>]) -> WaitAny {
    WaitAny(Waiting::new(points, Quantity::Any, Stage::Reached))
}

impl Point<'_> {
    /// A future that waits until the value is pending. See [`Point::wait_pending`].
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

/// The waker of the future's task. Empty once it was called or the future was dropped.
struct WakerSlot(Mutex<Option<Waker>>);

impl Wake for WakerSlot {
    fn wake(self: Arc<Self>) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct Waiting {
    points: SmallVec<[KeptPoint; 8]>,
    quantity: Quantity,
    stage: Stage,
    registration: Option<Registration>,
}

/// The registration of a pending future.
///
/// The order of the fields matters. The waker is dropped first, so a wake that begins later does
/// nothing.
struct Registration {
    slot: DroppedByMaker<OwnedSlot>,
    _registered: Registered,
}

/// The future's handle of the slot. Dropping it removes the waker.
struct OwnedSlot(Arc<WakerSlot>);

impl Drop for OwnedSlot {
    fn drop(&mut self) {
        // The waker's drop is code of the executor. So it is not called under the lock, and its
        // panic must not end the drop of the other registrations.
        let waker = self.0.0.lock().take();
        run_contained(|| drop(waker));
    }
}

impl Waiting {
    fn new(points: &[Point<'_>], quantity: Quantity, stage: Stage) -> Self {
        Self {
            points: points.iter().map(|point| point.keep()).collect(),
            quantity,
            stage,
            registration: None,
        }
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Result<usize>> {
        if let Some(ended) = self.check() {
            return self.end(ended);
        }
        match &self.registration {
            // The waker is stored before the second check, so no later signal is missed. Points
            // whose registration was removed since the last poll have come. The others are still
            // registered.
            Some(registration) => {
                // Cloning and dropping a waker is code of the executor, so the lock is not held.
                let waker = context.waker().clone();
                let before = registration.slot.0.0.lock().replace(waker);
                drop(before);
            }
            None => self.register(context.waker()),
        }
        match self.check() {
            Some(ended) => self.end(ended),
            None if is_exiting() => self.end(Err(self.exit_error())),
            None => Poll::Pending,
        }
    }

    /// The error for a point that cannot be awaited while the process exits.
    #[cold]
    fn exit_error(&self) -> Error {
        let timeline = self.points.iter().find_map(|point| point.of.as_ref());
        timeline.map_or(Error::NothingToWaitFor, |of| {
            exit_error(of.object(), "be waited for")
        })
    }

    fn end(&mut self, ended: Result<usize>) -> Poll<Result<usize>> {
        self.registration = None;
        #[cfg(feature = "tracing")]
        crate::base::events::waited(&self.points, ended.as_ref().err());
        Poll::Ready(ended)
    }

    fn register(&mut self, waker: &Waker) {
        let slot = Arc::new(WakerSlot(Mutex::new(Some(waker.clone()))));
        let mut registered = Registered::default();
        for point in &self.points {
            if let Some(of) = &point.of {
                registered.add(of.clone(), point.value, self.stage, slot.clone());
            }
        }
        self.registration = Some(Registration {
            slot: DroppedByMaker::new(OwnedSlot(slot)),
            _registered: registered,
        });
    }

    fn check(&self) -> Option<Result<usize>> {
        let points: SmallVec<[Point<'_>; 8]> = self.points.iter().map(KeptPoint::point).collect();
        if points.is_empty() && self.quantity == Quantity::Any {
            return Some(Err(Error::NothingToWaitFor));
        }
        let decided = require_maker(&points, self.quantity, self.stage)
            .and_then(|()| refresh_all(&points, self.stage))
            .and_then(|()| decide(&points, self.quantity, self.stage));
        decided.transpose()
    }
}
