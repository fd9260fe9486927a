//! The cases, one file per family, written once for every subject.

use std::time::{Duration, Instant};

use crate::case::{Stop, Verdict, check, note, wrong};
use crate::subject::RecorderOf;
use crate::{Case, Subject, World, patience};

mod bridges;
mod clocks;
mod cost;
mod cycles;
mod descriptors;
mod failure;
mod fences;
mod futures;
mod kinds;
mod ports;
mod queues;
mod rejections;
mod spies;
mod stopwatch;
mod stress;
mod time;
mod timelines;
mod times;
mod waits;
mod work;

#[cfg(feature = "vulkan")]
pub mod binaries;
#[cfg(feature = "cuda")]
pub mod captures;
pub mod counters;
pub mod devices;
#[cfg(feature = "vulkan")]
pub mod handles;
pub mod merged;
pub mod processes;
pub mod sharing;
#[cfg(feature = "cuda")]
pub mod slots;
#[cfg(feature = "vulkan")]
pub(crate) mod sync_files;

/// How long the first device is kept busy, so that a missing wait is detected.
pub(crate) const DELAY: Duration = Duration::from_millis(30);

/// Delay for cases that need work to be unfinished.
///
/// It is long enough for a thread of this process to be kept from its core meanwhile.
pub(crate) const LONG_DELAY: Duration = Duration::from_millis(250);

/// Repeats a control until it returns true, but five times at most.
///
/// A control shows what goes wrong without a wait, or that work is unfinished for a while. A thread
/// or a device that is busy with other processes can miss that.
///
/// # Errors
/// Those of the control. A failure with the reason `otherwise` if it never returns true.
pub(crate) fn shows(mut control: impl FnMut() -> Result<bool, Stop>, otherwise: &str) -> Verdict {
    for _ in 0..5 {
        if control()? {
            return Ok(());
        }
    }
    Stop::fail(otherwise)
}

/// Number of words of the test buffers.
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
        bridges::cases(),
        rejections::cases(),
        work::cases(),
        time::cases(),
        clocks::cases(),
        times::cases(),
        stopwatch::cases(),
        cost::cases(),
        fences::cases(),
        failure::cases(),
        descriptors::cases(),
        stress::cases(),
    ];
    families.into_iter().flatten().collect()
}

/// Returns how many of `what` a case makes: `full`, or `linked` if the engine links the sides.
///
/// Threads of the host carry all signals of such a pair, and fewer of them show the same. The
/// report mentions the lower number.
pub(crate) fn unless_linked<S: Subject>(
    world: &World<S>,
    what: &str,
    full: usize,
    linked: usize,
) -> syncline::Result<usize> {
    if !world.is_pair() || world.timeline("link")?.devices().count() == 2 {
        return Ok(full);
    }
    note(format!("{linked} {what} instead of {full}"));
    Ok(linked)
}

/// The same for cases that are slow on every pair.
pub(crate) fn unless_pair<S: Subject>(
    world: &World<S>,
    what: &str,
    full: usize,
    pair: usize,
) -> usize {
    if !world.is_pair() {
        return full;
    }
    note(format!("{pair} {what} instead of {full}"));
    pair
}

/// Returns work that sets every word of `buffer` to `value`.
pub(crate) fn filling<S: Subject>(
    buffer: &S::Buffer,
    value: u32,
) -> impl for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, S>) -> syncline::Result<()> + Send + 'static {
    let buffer = buffer.clone();
    move |recorder| S::fill(recorder, &buffer, value)
}

/// Returns work that copies `from` to `to`, both of one device.
pub(crate) fn copying<S: Subject>(
    from: &S::Buffer,
    to: &S::Buffer,
) -> impl for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, S>) -> syncline::Result<()> + Send + 'static {
    let (from, to) = (from.clone(), to.clone());
    move |recorder| S::copy(recorder, &from, &to)
}

/// Waits until a condition holds.
///
/// # Errors
/// Those of the condition. A failure if it does not come to hold.
#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> Result<bool, Stop>) -> Verdict {
    let start = Instant::now();
    while !holds()? {
        if start.elapsed() > patience() {
            return wrong("it is waited for in vain", format_args!(""));
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// Waits until the owner of handles is dropped.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
#[track_caller]
pub(crate) fn let_go<T: ?Sized>(owner: &std::sync::Weak<T>) -> Verdict {
    until(|| Ok(owner.strong_count() == 0))
}

/// Makes as many of something.
pub(crate) fn several<T>(
    count: usize,
    make: impl FnMut(usize) -> syncline::Result<T>,
) -> syncline::Result<Vec<T>> {
    (0..count).map(make).collect()
}

/// Whether every word of `buffer` is `value`.
pub(crate) fn is_filled<S: Subject>(buffer: &S::Buffer, value: u32) -> bool {
    S::read(buffer).iter().all(|&word| word == value)
}

/// Checks that every word of `buffer` is `value`. `what` is the buffer or its work.
#[track_caller]
pub(crate) fn filled<S: Subject>(
    buffer: &S::Buffer,
    value: u32,
    what: impl std::fmt::Display,
) -> Verdict {
    match S::read(buffer).into_iter().find(|&word| word != value) {
        None => Ok(()),
        Some(word) => wrong(
            format_args!("{word} instead of {value}"),
            format_args!("{what}"),
        ),
    }
}

/// Checks that `time` of a device, in nanoseconds, lies between two times of the host.
///
/// The tolerance is what the clocks need: they differ by less than one part in a thousand, and are
/// read in steps.
pub(crate) fn within(time: i64, least: Duration, most: Duration) -> Verdict {
    let room = |time: Duration| time / 1000 + Duration::from_micros(100);
    let from = least.saturating_sub(room(least)).as_nanos() as i64;
    let to = (most + room(most)).as_nanos() as i64;
    check!(
        (from..=to).contains(&time),
        "{time} ns, but the host saw between {least:?} and {most:?}"
    );
    Ok(())
}

/// Returns an error with this text, to fail timelines with.
pub(crate) fn cause(text: &str) -> syncline::Error {
    syncline::Error::work(std::io::Error::other(text.to_owned()))
}

/// Returns work that only counts its calls.
pub(crate) fn count<S: Subject>(
    ran: &std::sync::Arc<std::sync::atomic::AtomicU32>,
) -> impl FnOnce(&mut crate::RecorderOf<'_, S>) -> syncline::Result<()> + Send + 'static + use<S> {
    let ran = ran.clone();
    move |_| {
        ran.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }
}
