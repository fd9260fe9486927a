//! Words of memory that streams and nodes of graphs wait for and write.
#![allow(unsafe_code, reason = "talks to the driver")]

use syncline_core::Result;

use crate::device::context::Context;
use crate::device::stream::Stream;
use crate::driver::memory_ops::{self, Valued};
use crate::driver::table::MemOp;
use crate::timeline::imported::Imported;

/// A word of memory that streams and nodes of graphs wait for and write.
///
/// It stays valid as long as the implementing type lives.
pub(crate) trait NodeWord: Send + Sync {
    fn context(&self) -> &Context;

    /// The word with a value.
    fn at(&self, value: u64) -> Valued;

    /// True if waits flush remote writes.
    fn flushes(&self) -> bool;

    /// The operation by which a node waits for `value`.
    fn wait_op(&self, value: u64) -> MemOp {
        self.at(value).wait_op(self.flushes())
    }

    /// The operation by which a node signals `value`.
    fn write_op(&self, value: u64) -> MemOp {
        self.at(value).write_op()
    }

    /// Adds a wait to the graph that is captured on `stream`.
    ///
    /// # Errors
    /// A driver error.
    fn capture_wait(&self, stream: &Stream) -> Result<()> {
        let (driver, word) = (self.context().driver(), [self.at(0)]);
        // SAFETY: the launches keep the word, which the implementing type guarantees. The stream is
        // alive.
        unsafe { memory_ops::wait_all(driver, stream.raw(), 1, word.into_iter(), self.flushes()) }
            .map_err(|code| self.context().error(code))
    }

    /// Adds a signal to the graph that is captured on `stream`.
    ///
    /// # Errors
    /// A driver error.
    fn capture_write(&self, stream: &Stream) -> Result<()> {
        let (driver, word) = (self.context().driver(), [self.at(0)]);
        // SAFETY: as for waits.
        unsafe { memory_ops::write_all(driver, stream.raw(), 1, word.into_iter()) }
            .map_err(|code| self.context().error(code))
    }
}

/// [`Imported::wait_all`] of a port whose object is a word.
///
/// # Errors
/// A driver error.
pub(super) fn wait_all<'p, P: Imported<Object: NodeWord>>(
    stream: &Stream,
    count: usize,
    ports: impl Iterator<Item = (&'p P, u64)>,
) -> Result<()> {
    let mut ports = ports.peekable();
    let flush = ports
        .peek()
        .is_some_and(|(port, _)| port.object().flushes());
    let words = ports.map(|(port, value)| port.object().at(value));
    let context = stream.context();
    // SAFETY: see `MappedCounter` and `AdoptedWord`. The stream is alive.
    unsafe { memory_ops::wait_all(context.driver(), stream.raw(), count, words, flush) }
        .map_err(|code| context.error(code))
}

/// [`Imported::signal_all`] of a port whose object is a word.
///
/// # Errors
/// A driver error.
pub(super) fn signal_all<'p, P: Imported<Object: NodeWord>>(
    stream: &Stream,
    count: usize,
    ports: impl Iterator<Item = (&'p P, u64)>,
) -> Result<()> {
    let words = ports.map(|(port, value)| port.object().at(value));
    let context = stream.context();
    // SAFETY: as for waits.
    unsafe { memory_ops::write_all(context.driver(), stream.raw(), count, words) }
        .map_err(|code| context.error(code))
}
