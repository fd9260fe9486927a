//! What a case runs on: devices with some neutral work.

use std::time::Duration;

use syncline::backend::{Device, Queue};
use syncline::{QueueKind, Result, Timeline};

/// What work of `S` is recorded into.
pub type RecorderOf<'a, S> = <<S as Device>::Queue as Queue>::Recorder<'a>;

/// A device under test, with the little work that synchronization can be seen by. The author of a
/// backend implements this, and the whole suite runs.
///
/// Buffers hold 32-bit words that the host can read at any time; a word that is being written may
/// read as old or new.
pub trait Subject: Device {
    /// Words that queues of this device write and the host reads.
    type Buffer: Clone + Send + Sync + 'static;

    /// Called once before the first case, with the device idle.
    ///
    /// # Errors
    /// The backend's; no case runs then.
    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// A buffer of zeroes.
    ///
    /// # Errors
    /// The backend's.
    fn buffer(&self, words: usize) -> Result<Self::Buffer>;

    /// What the buffer holds now.
    fn read(buffer: &Self::Buffer) -> Vec<u32>;

    /// Records: every word becomes `value`.
    ///
    /// # Errors
    /// The backend's.
    fn fill(recorder: &mut RecorderOf<'_, Self>, buffer: &Self::Buffer, value: u32) -> Result<()>;

    /// Records: `to` becomes a copy of `from`, of the same length.
    ///
    /// # Errors
    /// The backend's.
    fn copy(
        recorder: &mut RecorderOf<'_, Self>,
        from: &Self::Buffer,
        to: &Self::Buffer,
    ) -> Result<()>;

    /// Records: the device is busy for at least about `time`, before anything recorded later starts.
    ///
    /// # Errors
    /// The backend's.
    fn busy(&self, recorder: &mut RecorderOf<'_, Self>, time: Duration) -> Result<()>;

    /// A timeline for queues of this device and of `other`: natively shared where that is possible.
    ///
    /// # Errors
    /// The backend's.
    fn timeline_with(&self, other: &Self, label: &str, initial: u64) -> Result<Timeline> {
        let _ = other;
        self.timeline_from(label, initial)
    }
}

/// One or two devices that a case runs on. With one, both sides are it.
#[derive(Debug, Clone)]
pub struct World<S> {
    /// The side that signals first.
    pub left: S,
    /// The side that waits.
    pub right: S,
}

impl<S: Subject> World<S> {
    /// A timeline at 0 for both sides.
    ///
    /// # Errors
    /// The backend's.
    pub fn timeline(&self, label: &str) -> Result<Timeline> {
        self.timeline_from(label, 0)
    }

    /// A timeline at `initial` for both sides.
    ///
    /// # Errors
    /// The backend's.
    pub fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        self.left.timeline_with(&self.right, label, initial)
    }

    /// A queue of the left side.
    ///
    /// # Errors
    /// The backend's.
    pub fn left_queue(&self, label: &str) -> Result<S::Queue> {
        self.left.queue(QueueKind::Compute, label)
    }

    /// A queue of the right side.
    ///
    /// # Errors
    /// The backend's.
    pub fn right_queue(&self, label: &str) -> Result<S::Queue> {
        self.right.queue(QueueKind::Compute, label)
    }

    /// True if the sides are two devices.
    #[must_use]
    pub fn is_pair(&self) -> bool {
        self.left.id() != self.right.id()
    }
}
