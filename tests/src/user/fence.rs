//! Fences.

use std::fmt;
use std::time::Duration;

use syncline::{Result, WaitMode, error::Object};

use super::{KeptPoint, Time};
use crate::Subject;

/// [`syncline::Fence`].
#[derive(Clone)]
pub struct Fence<S> {
    on: S,
    library: syncline::Fence,
}

impl<S: Subject> Fence<S> {
    pub(super) fn new(on: &S, library: syncline::Fence) -> Self {
        let on = on.clone();
        Self { on, library }
    }

    /// The library's fence.
    #[must_use]
    pub const fn library(&self) -> &syncline::Fence {
        &self.library
    }

    /// [`syncline::Fence::object`].
    #[must_use]
    pub fn object(&self) -> &Object {
        self.library.object()
    }

    /// [`syncline::Fence::is_timed`].
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.library.is_timed()
    }

    /// [`syncline::Fence::point`].
    pub fn point(&self) -> Result<KeptPoint<S>> {
        let point = self.on.fence_point(&self.library)?;
        Ok(KeptPoint::new(&self.on, point))
    }

    /// [`syncline::Fence::is_complete`].
    pub fn is_complete(&self) -> Result<bool> {
        self.on.is_complete(&self.library)
    }

    /// [`syncline::Fence::wait`].
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.wait_with(WaitMode::Adaptive, timeout)
    }

    /// [`syncline::Fence::wait_with`].
    pub fn wait_with(&self, mode: WaitMode, timeout: Duration) -> Result<()> {
        self.on.wait_fence(&self.library, mode, timeout)
    }

    /// [`syncline::Fence::elapsed_since`].
    pub fn elapsed_since(&self, start: &Self) -> Result<i64> {
        self.on.elapsed(&start.library, &self.library)
    }

    /// [`syncline::Fence::time`].
    pub fn time(&self) -> Result<Time<S>> {
        let time = self.on.time(&self.library)?;
        Ok(Time::new(&self.on, time))
    }
}

impl<S> fmt::Debug for Fence<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.library, f)
    }
}
