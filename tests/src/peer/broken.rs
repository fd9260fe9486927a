//! Loses the device of one process.

use syncline::backend::{Device as _, Queue as _};
use syncline::{Error, SignalOnly};

use super::half::Half;
use crate::case::Stop;
use crate::patience;
use crate::subject::Subject as _;

impl Half {
    /// Loses the device. `signal` is submitted after the work that does so.
    pub(super) fn lose(&mut self, signal: Option<(SignalOnly, u64)>) -> Result<String, Stop> {
        let device = self.device.clone();
        if !matches!(
            device.device().info().backend,
            syncline::info::BackendKind::Cuda
        ) {
            return Stop::skip("only CUDA's devices can be lost on purpose");
        }
        let breaks = device.clone();
        let work = move |recorder: &mut syncline::Recorder<'_>| breaks.fault(recorder);
        let queue = self.queue()?;
        match &signal {
            Some((line, value)) => queue.submit(&[], work, &[line.signal_at(*value)])?,
            None => queue.submit(&[], work, &[])?,
        };
        let idle = queue.idle(patience());
        match device.device().check() {
            Err(Error::DeviceLost { .. }) => Ok(String::new()),
            other => Stop::fail(format!("the device is as it was: {other:?}, {idle:?}")),
        }
    }
}
