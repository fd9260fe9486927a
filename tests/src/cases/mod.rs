//! The cases, one file per family, written once for every subject.

use std::time::Duration;

use crate::subject::RecorderOf;
use crate::{Case, Subject};

mod cost;
mod cycles;
mod descriptors;
mod failure;
mod fences;
mod futures;
mod kinds;
mod planted;
mod ports;
mod queues;
mod rejections;
mod stress;
mod time;
mod timelines;
mod waits;
mod work;

#[cfg(feature = "vulkan")]
pub mod binaries;
#[cfg(feature = "cuda")]
pub mod captures;
pub mod devices;
#[cfg(feature = "vulkan")]
pub mod handles;
pub mod sharing;

/// How long the device that comes first is kept busy, so that a missing wait shows.
pub(crate) const DELAY: Duration = Duration::from_millis(30);

/// The same where the case is that something is *not* finished yet: long enough for a thread of this
/// process to be kept from its core meanwhile.
pub(crate) const LONG_DELAY: Duration = Duration::from_millis(250);

/// How many words the test buffers have.
pub(crate) const WORDS: usize = 1024;

/// Every case that any subject can run.
#[must_use]
pub fn all<S: Subject>() -> Vec<Case<S>> {
    let families = [
        ports::cases(),
        timelines::cases(),
        waits::cases(),
        futures::cases(),
        cycles::cases(),
        queues::cases(),
        rejections::cases(),
        work::cases(),
        time::cases(),
        cost::cases(),
        fences::cases(),
        failure::cases(),
        planted::cases(),
        descriptors::cases(),
        stress::cases(),
    ];
    families.into_iter().flatten().collect()
}

/// Work: every word of `buffer` becomes `value`.
pub(crate) fn filling<S: Subject>(
    buffer: &S::Buffer,
    value: u32,
) -> impl for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, S>) -> syncline::Result<()> + Send + 'static {
    let buffer = buffer.clone();
    move |recorder| S::fill(recorder, &buffer, value)
}

/// Work: `to` becomes a copy of `from`, both of one device.
pub(crate) fn copying<S: Subject>(
    from: &S::Buffer,
    to: &S::Buffer,
) -> impl for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, S>) -> syncline::Result<()> + Send + 'static {
    let (from, to) = (from.clone(), to.clone());
    move |recorder| S::copy(recorder, &from, &to)
}

/// True if every word of `buffer` is `value`.
pub(crate) fn is_filled<S: Subject>(buffer: &S::Buffer, value: u32) -> bool {
    S::read(buffer).iter().all(|&word| word == value)
}

/// An error to fail things with, to be recognized by its text.
pub(crate) fn cause(text: &str) -> syncline::Error {
    syncline::Error::work(std::io::Error::other(text.to_owned()))
}

/// Work that only counts that it was called.
pub(crate) fn count<S: Subject>(
    ran: &std::sync::Arc<std::sync::atomic::AtomicU32>,
) -> impl FnOnce(&mut crate::RecorderOf<'_, S>) -> syncline::Result<()> + Send + 'static + use<S> {
    let ran = ran.clone();
    move |_| {
        ran.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }
}
