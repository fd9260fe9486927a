//! Work on memory of either side, and a relay on the host, for the cases of shared memory.

use std::sync::atomic::Ordering::Relaxed;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Buffer, QueueKind, Recorder, Result, SharedBuffer, host};

use crate::Subject as _;
use crate::case::Stop;
use crate::user::{Point, Timeline};
use crate::workload::Equipped;

/// Does the same as [`Subject::fill`](crate::Subject::fill), also for another device's memory.
///
/// That is memory which the host can address.
pub(super) fn fill(recorder: &mut Recorder<'_>, memory: &Buffer, value: u32) -> Result<()> {
    match (recorder, memory.words().is_some()) {
        (Recorder::Host(recorder), true) => {
            let memory = memory.clone();
            recorder.run(move || {
                let words = memory.words().unwrap_or_default().iter();
                words.for_each(|word| word.store(value, Relaxed));
            });
            Ok(())
        }
        (recorder, _) => Equipped::fill(recorder, memory, value),
    }
}

/// Does the same as [`Subject::copy`](crate::Subject::copy), also for another device's memory.
///
/// That is memory which the host can address.
pub(super) fn copy(recorder: &mut Recorder<'_>, from: &Buffer, to: &Buffer) -> Result<()> {
    match recorder {
        Recorder::Host(recorder) => {
            let (from, to) = (from.clone(), to.clone());
            recorder.run(move || {
                let words = from.words().unwrap_or_default().iter();
                for (from, to) in words.zip(to.words().unwrap_or_default()) {
                    to.store(from.load(Relaxed), Relaxed);
                }
            });
            Ok(())
        }
        #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
        recorder => Equipped::copy(recorder, from, to),
    }
}

/// Returns work that does [`fill`].
pub(super) fn filling(
    memory: &Buffer,
    value: u32,
) -> impl FnOnce(&mut Recorder<'_>) -> Result<()> + Send + 'static {
    let memory = memory.clone();
    move |recorder| fill(recorder, &memory, value)
}

/// Returns work that does [`copy`].
pub(super) fn copying(
    from: &Buffer,
    to: &Buffer,
) -> impl FnOnce(&mut Recorder<'_>) -> Result<()> + Send + 'static {
    let (from, to) = (from.clone(), to.clone());
    move |recorder| copy(recorder, &from, &to)
}

/// A worker that copies the left side's data to the right side, if they share no memory.
pub(super) struct Relay(host::Queue);

impl Relay {
    pub(super) fn new() -> Result<Self> {
        let queue = host::Device::new().queue(QueueKind::Transfer, "relay")?;
        Ok(Self(queue))
    }

    /// Returns the point after which the right side finds the left side's data of `after`.
    ///
    /// It is a point of `carried` if the buffers are copied.
    pub(super) fn bring<'t>(
        &self,
        buffers: &[SharedBuffer],
        after: Point<'t, Equipped>,
        carried: &'t Timeline<Equipped>,
    ) -> Result<Point<'t, Equipped>, Stop> {
        if !buffers.iter().any(SharedBuffer::is_relayed) {
            return Ok(after);
        }
        let buffers = buffers.to_vec();
        let work = move |recorder: &mut host::Recorder<'_>| {
            recorder.run(move || buffers.iter().for_each(SharedBuffer::relay));
            Ok(())
        };
        self.0
            .submit(&[after.library()], work, &[carried.signal_at(1)])?;
        Ok(carried.at(1))
    }

    /// Waits until it has done everything.
    pub(super) fn idle(&self) -> Result<()> {
        self.0.idle(crate::patience())
    }
}
