//! A producer for machines without CUDA.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Buffer, Device, Point, QueueKind, Result, Signal, host};

use crate::produced;

/// A worker thread that writes frames as the kernel of `produce.ptx` does.
#[derive(Debug)]
pub struct Host(host::Queue);

impl Host {
    /// Creates a queue if `device` is the host.
    ///
    /// # Errors
    /// None are expected.
    pub fn new(device: &Device) -> Result<Option<Self>> {
        match device {
            Device::Host(host) => host
                .queue(QueueKind::Compute, "produce")
                .map(|q| Some(Self(q))),
            _ => Ok(None),
        }
    }

    /// Waits for `waits`, writes a frame after the delay `late`, and makes `signal`.
    ///
    /// # Errors
    /// Same errors as [`Queue::submit`](syncline::backend::Queue::submit).
    pub fn produce(
        &self,
        frame: u32,
        memory: &Buffer,
        late: Duration,
        waits: &[Point<'_>],
        signal: Signal<'_>,
    ) -> Result<()> {
        let memory = memory.clone();
        let write = move || {
            sleep(late);
            for (index, word) in (0..).zip(memory.words().unwrap_or_default()) {
                word.store(produced(frame, index), Ordering::Relaxed);
            }
        };
        let submitted = self.0.submit(
            waits,
            |recorder| {
                recorder.run(write);
                Ok(())
            },
            &[signal],
        );
        submitted.map(|_| ())
    }

    /// Waits until all frames are written.
    ///
    /// # Errors
    /// Same errors as [`Queue::idle`](syncline::backend::Queue::idle).
    pub fn idle(&self, timeout: Duration) -> Result<()> {
        self.0.idle(timeout)
    }
}
