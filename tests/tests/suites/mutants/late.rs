//! Late answers, for bugs that a plain call cannot show.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use syncline::backend::Device as _;
use syncline::{Error, Fence, KeptPoint, Point, Result};
use syncline_conformance::Waiting;

use super::backend::PlantedDevice;

/// Long enough for a mutant's background work, and short enough to end soon.
pub(crate) const A_WHILE: Duration = Duration::from_secs(5);

/// Ignores the wake-up, and polls again when the time is over.
pub(crate) fn sleep_through(point: Point<'_>, timeout: Duration) -> Result<()> {
    let early = point.wait(Duration::ZERO);
    if !matches!(early, Err(Error::TimedOut { .. })) {
        return early;
    }
    thread::sleep(timeout.min(A_WHILE));
    point.wait(Duration::ZERO)
}

/// Returns a point that follows the fence's latest record.
pub(crate) fn follow(device: &PlantedDevice, fence: &Fence) -> Result<KeptPoint> {
    let late = device.timeline("late")?;
    let point = late.at(1).keep();
    let fence = fence.clone();
    thread::spawn(move || {
        let start = Instant::now();
        while !fence.is_complete().unwrap_or(true) && start.elapsed() < A_WHILE {
            thread::sleep(Duration::from_millis(1));
        }
        late.signal(1)
    });
    Ok(point)
}

/// A future that is polled, and never wakes its task.
pub(crate) struct Sleeper<T>(pub(crate) Waiting<T>);

impl<T> Future for Sleeper<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<T>> {
        let waker = Waker::noop();
        self.0.as_mut().poll(&mut Context::from_waker(waker))
    }
}

/// A future that stays registered when it is dropped.
pub(crate) struct Leaky {
    inner: Option<Waiting<()>>,
    waker: Option<Waker>,
}

impl Leaky {
    pub(crate) fn new(inner: Waiting<()>) -> Self {
        Self {
            inner: Some(inner),
            waker: None,
        }
    }
}

impl Future for Leaky {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.waker = Some(context.waker().clone());
        match &mut self.inner {
            None => Poll::Pending,
            Some(inner) => {
                let polled = inner.as_mut().poll(context);
                if polled.is_ready() {
                    self.inner = None;
                }
                polled
            }
        }
    }
}

impl Drop for Leaky {
    fn drop(&mut self) {
        let (Some(mut inner), Some(waker)) = (self.inner.take(), self.waker.take()) else {
            return;
        };
        thread::spawn(move || {
            let start = Instant::now();
            let mut context = Context::from_waker(Waker::noop());
            while inner.as_mut().poll(&mut context).is_pending() && start.elapsed() < A_WHILE {
                thread::sleep(Duration::from_millis(1));
            }
            waker.wake();
        });
    }
}
