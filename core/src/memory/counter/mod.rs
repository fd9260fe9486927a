//! Counters in shared memory: timelines of several processes, and of devices that write and wait for words of memory.
//!
//! | file | what is in it |
//! |---|---|
//! | `page` | the page that a counter lies in, byte by byte |
//! | `bell` | how threads sleep on pages, and are woken |
//!
//! Nothing that stands in a page is believed: another process may write anything there at any time.

mod bell;
mod fd;
mod page;

pub use fd::CounterFd;

use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::base::error::{Error, Object, Result};
use crate::memory::{Mapping, Sealed, make};
use page::{Cause, Loss, Page, Standing};

pub(crate) use bell::Sleeper;

/// A 64-bit counter in a page of memory that several processes have, as one port of this process has it.
///
/// It only grows, and no value shows that was not [announced](Counter::announce) before: whatever else is found there is an error, and the end of
/// the timeline. Its calls read and write memory; [`Counter::ring`], [`Counter::fail`] and [`Counter::note_pending`] also wake threads.
pub struct Counter {
    object: Object,
    page: Mapped,
    /// The highest value that it was seen to have.
    seen: AtomicU64,
    /// What was last found to be said to be pending; `u64::MAX` as long as nobody here wants to hear of that.
    told: AtomicU64,
    /// When it was first seen that somebody who says why it has failed does not come to an end with that.
    unsaid: OnceLock<Instant>,
}

/// For so long it is left to others to say why a page has failed whose failure was begun and not written down.
pub(crate) const UNSAID: Duration = Duration::from_millis(400);

impl Counter {
    /// The size of the page, from [`Counter::address`] on.
    pub const BYTES: usize = page::BYTES;

    /// Where in the page the counter itself lies: 64 bits, which a device waits for and writes.
    pub const REACHED: usize = page::REACHED;

    /// A fresh one at `initial`, and the file that it lies in.
    ///
    /// # Errors
    /// [`Error::Native`] if the system gives no memory, or no descriptor; [`Error::ValueOutOfRange`] for `u64::MAX`.
    pub(crate) fn make(initial: u64) -> Result<(Self, OwnedFd)> {
        let object = Object::new("counter", "");
        if initial == u64::MAX {
            return Err(Error::ValueOutOfRange {
                timeline: object,
                asked: initial,
                reached: 0,
                largest: u64::MAX - 1,
            });
        }
        let native = |(call, errno): (&'static str, Errno)| Error::system(&object, call, errno);
        let file = file().map_err(native)?;
        let page = Mapping::of(Sealed::fresh(&file, page::BYTES as u64));
        let page = Mapped(page.map_err(|errno| native(("mmap", errno)))?);
        page.format(initial);
        let counter = Self {
            object,
            page,
            seen: AtomicU64::new(initial),
            told: AtomicU64::new(u64::MAX),
            unsaid: OnceLock::new(),
        };
        Ok((counter, file))
    }

    /// The counter that `handle` carries, mapped. The handle stays open, and can be closed.
    ///
    /// # Errors
    /// [`Error::Import`] if `importer` does not find a counter there any more: whoever has the page may have written over its head;
    /// [`Error::Native`] if it cannot be mapped.
    pub fn open(handle: &CounterFd, importer: &Object) -> Result<Self> {
        let file = judge(handle.as_fd()).map_err(|reason| Error::Import {
            object: importer.clone(),
            what: "a counter in shared memory".into(),
            reason,
        })?;
        let object = Object::new("counter", "");
        let page = Mapping::of(file).map_err(|errno| Error::system(&object, "mmap", errno))?;
        let page = Mapped(page);
        let counter = Self {
            object,
            page,
            seen: AtomicU64::new(0),
            told: AtomicU64::new(u64::MAX),
            unsaid: OnceLock::new(),
        };
        Ok(counter)
    }

    /// Its name in errors.
    #[must_use]
    pub const fn object(&self) -> &Object {
        &self.object
    }

    /// Where the page lies in this process: [`Counter::BYTES`] bytes, which stay there as long as this lives. To be registered with a device, and
    /// reached through atomics only.
    #[must_use]
    pub const fn address(&self) -> *mut c_void {
        self.page.0.address()
    }

    /// The value reached: what is written before it is signalled is visible to who sees it. Two loads mostly.
    ///
    /// # Errors
    /// [`Error::Corrupted`] if it shows what no signaller leaves there: all ones, less than it has been, more than was announced;
    /// [`Error::FailedElsewhere`] or [`Error::PeerLost`] once somebody has failed it, and no higher value is there to be told first.
    #[inline]
    pub fn value(&self) -> Result<u64> {
        // In this order: what is seen here was on the page before.
        let seen = self.seen.load(Ordering::Acquire);
        let value = self.page.reached.load(Ordering::SeqCst);
        if value == seen && !self.page.is_failed() {
            return Ok(value);
        }
        self.judge(value, seen)
    }

    #[inline(never)]
    fn judge(&self, value: u64, seen: u64) -> Result<u64> {
        let not_to_come = self.unsaid.get().is_some();
        // What was reached before it failed may have come since the value was read.
        let again = || self.page.reached.load(Ordering::SeqCst);
        let (standing, value) = self.page.standing_with(not_to_come, value, again);
        let frozen = match standing {
            Standing::Failed(frozen) => Some(frozen),
            // What is there counts, as nobody has said where it ends.
            Standing::Failing => Some(u64::MAX),
            Standing::Sound => None,
        };
        let corrupted = |reason: String| Error::Corrupted {
            counter: self.object.clone(),
            found: value,
            reason,
        };
        if value == u64::MAX {
            return Err(corrupted("all ones are no value".into()));
        }
        if value < seen {
            return Err(corrupted(format!("it has gone back from {seen}")));
        }
        // After the value: who signals announces that first.
        let announced = self.page.announced.load(Ordering::Acquire);
        if value > announced {
            return Err(corrupted(format!(
                "signals up to {announced} were announced, and none above"
            )));
        }
        // Values that were reached before it failed stay so; what a device has written since does not count.
        let counts = frozen.map_or(value, |frozen| value.min(frozen));
        if counts > seen {
            self.seen.fetch_max(counts, Ordering::AcqRel);
            return Ok(counts);
        }
        match standing {
            Standing::Sound => Ok(value),
            Standing::Failing if !self.is_unsaid_for_long() => Ok(value),
            _ => Err(self.failure()),
        }
    }

    /// Somebody died while he said why it has failed. Who knows of his death says so.
    fn is_unsaid_for_long(&self) -> bool {
        self.unsaid.get_or_init(Instant::now).elapsed() > UNSAID
    }

    /// The highest value that it was seen to have, and which counts.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Whether it can still be signalled: a load.
    ///
    /// # Errors
    /// [`Error::FailedElsewhere`]; [`Error::PeerLost`] if a process was lost, and another one has failed it for that.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.page.is_failed() {
            return Err(self.failure());
        }
        Ok(())
    }

    #[cold]
    fn failure(&self) -> Error {
        let cause = self.page.cause();
        match cause.lost {
            Some(Loss { process, how }) => Error::PeerLost {
                endpoint: self.object.clone(),
                process,
                how,
            },
            None => Error::FailedElsewhere {
                counter: self.object.clone(),
                code: cause.code,
                cause: cause.words,
            },
        }
    }

    /// Says that `value` is about to be signalled: to be called before the signal is given to whoever makes it. It may show from here on.
    ///
    /// # Errors
    /// What [`Counter::check`] tells: the signal must not be made; [`Error::Corrupted`], too, for what [`Counter::value`] tells.
    pub fn announce(&self, value: u64) -> Result<()> {
        self.check()?;
        let reached = self.value()?;
        if value <= reached {
            return Err(self.overtaken(reached, value));
        }
        self.page.announced.fetch_max(value, Ordering::SeqCst);
        Ok(())
    }

    fn overtaken(&self, reached: u64, value: u64) -> Error {
        Error::Corrupted {
            counter: self.object.clone(),
            found: reached,
            reason: format!("somebody else has signalled that while {value} was to be signalled"),
        }
    }

    /// Says that the announced signal of `value` is with a driver, and so is everything that it waits for: no host is needed any more. A system
    /// call if somebody sleeps.
    pub fn note_pending(&self, value: u64) {
        // Sequentially consistent, against a thread that marks the page and then looks.
        if self.page.pending.fetch_max(value, Ordering::SeqCst) < value {
            self.wake_sleepers();
        }
    }

    /// Up to where signals are said to be [pending](Counter::note_pending). From the first call on, threads that sleep on the page are woken when that
    /// changes, too.
    ///
    /// # Errors
    /// [`Error::Corrupted`] if that is more than was announced, or all ones.
    pub fn pending(&self) -> Result<u64> {
        // In this order: who says it has announced it first.
        let pending = self.page.pending.load(Ordering::SeqCst);
        let announced = self.page.announced.load(Ordering::Acquire);
        if pending <= announced && pending != u64::MAX {
            self.told.store(pending, Ordering::Release);
            return Ok(pending);
        }
        let reason = match pending {
            u64::MAX => "all ones are no value that may be pending".into(),
            _ => format!(
                "so much is said to be pending, and signals up to {announced} were announced"
            ),
        };
        Err(Error::Corrupted {
            counter: self.object.clone(),
            found: pending,
            reason,
        })
    }

    /// For the page beside an object that others signal, which only one process does: says how far that has come. Less than before changes
    /// nothing.
    pub(crate) fn tell(&self, pending: u64, reached: u64) {
        self.page.announced.fetch_max(pending, Ordering::SeqCst);
        self.note_pending(pending);
        if self.page.reached.fetch_max(reached, Ordering::SeqCst) < reached {
            self.wake_sleepers();
        }
    }

    /// Says that what was said to be pending does not come any more: to be called before it is [failed](Counter::fail) for that.
    pub(crate) fn note_lost(&self) {
        self.page.lost.store(1, Ordering::SeqCst);
    }

    /// As [`Counter::fail`], for the reason that whoever signals is gone, at the value that it has: what was said to be pending does not come any more. The native code
    /// beneath `cause` goes along.
    pub fn fail_as_lost(&self, cause: &Error) {
        let frozen = self.value().unwrap_or_else(|_| self.seen());
        self.note_lost();
        self.fail_for(frozen, cause);
    }

    /// True if it has failed, and what was said to be pending does not come any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.page.is_failed() && self.page.lost.load(Ordering::SeqCst) != 0
    }

    /// How many have asked before: in this order they let go whoever waits for what a dead process has said to be pending, once they have
    /// [failed](Counter::fail) it.
    pub(crate) fn recovery_turn(&self) -> u32 {
        self.page.released.fetch_add(1, Ordering::AcqRel)
    }

    /// Lets go whatever waits natively for the counter itself, up to `value`, which never comes: to be called when it has failed.
    pub(crate) fn recover(&self, value: u64) {
        self.page.reached.fetch_max(value, Ordering::SeqCst);
        self.ring();
    }

    fn wake_sleepers(&self) {
        if self.page.sleepers.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    /// True if more is said to be pending than [`Counter::pending`] has found, and somebody here wants to hear of that.
    fn has_news(&self) -> bool {
        // Mostly nobody does.
        let told = self.told.load(Ordering::Acquire);
        if told == u64::MAX {
            return false;
        }
        // Once for each: whoever is told looks, or does not want to.
        let pending = self.page.pending.load(Ordering::SeqCst);
        pending > told && self.told.fetch_max(pending, Ordering::AcqRel) < pending
    }

    /// True if whoever signals `value` has said that it is [pending](Counter::note_pending), or it is reached. What another process says is not
    /// checked: it may lie.
    #[must_use]
    pub fn is_pending(&self, value: u64) -> bool {
        let pending = self.page.pending.load(Ordering::Acquire);
        pending.max(self.page.reached.load(Ordering::Acquire)) >= value
    }

    /// Signals from the host: announced and stored, and a system call if somebody sleeps.
    ///
    /// # Errors
    /// [`Error::Corrupted`] if it does not show a lower value that may stand there: somebody signals besides, and nothing was stored;
    /// what [`Counter::check`] tells.
    pub(crate) fn signal(&self, value: u64) -> Result<()> {
        self.announce(value)?;
        let mut before = self.seen.load(Ordering::Acquire);
        let reached = &self.page.reached;
        // Sequentially consistent, against a thread that marks the page and then looks.
        while let Err(found) =
            reached.compare_exchange(before, value, Ordering::SeqCst, Ordering::Acquire)
        {
            before = self.judge(found, before)?;
            if before >= value {
                return Err(self.overtaken(before, value));
            }
        }
        // Less than this it must never show again.
        self.seen.fetch_max(value, Ordering::AcqRel);
        self.wake_sleepers();
        Ok(())
    }

    /// Fails it for every process that has it, unless somebody has before. What is above `frozen` does not count from then on, but for who has seen it
    /// already: a device that still writes to it lets nobody think that it goes on. Of the cause's words 512 bytes go.
    pub fn fail(&self, frozen: u64, code: i64, cause: &str) {
        self.fail_with(
            frozen,
            &Cause {
                code,
                words: cause.into(),
                lost: None,
            },
        );
    }

    /// As [`Counter::fail`], with the native code beneath `cause`, if there is one; who reads of a process that was lost has the same error.
    pub(crate) fn fail_for(&self, frozen: u64, cause: &Error) {
        let code = match cause {
            Error::Native { code, .. }
            | Error::DeviceLost { code, .. }
            | Error::FailedElsewhere { code, .. } => *code,
            _ => 0,
        };
        let lost = match *cause {
            Error::PeerLost { process, how, .. } => Some(Loss { process, how }),
            _ => None,
        };
        let words = cause.to_string();
        self.fail_with(frozen, &Cause { code, words, lost });
    }

    fn fail_with(&self, frozen: u64, cause: &Cause) {
        if self.page.fail(frozen, cause) {
            self.ring();
        }
    }

    /// Says that somebody may signal from here on who rings no bell: threads that sleep for it look by themselves from time to time.
    pub fn expect_quiet_signals(&self) {
        self.page.quiet.store(1, Ordering::SeqCst);
        // Those that sleep already do not know.
        self.ring();
    }
}

/// The page, in this process's memory.
struct Mapped(Mapping<Page>);

impl Deref for Mapped {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        self.0.first()
    }
}

/// The file of a fresh page.
fn file() -> Result<OwnedFd, (&'static str, Errno)> {
    make("syncline-counter", page::BYTES as u64)
}

/// Judges the file of a page, and what the page begins with. Reads from it, and changes nothing.
///
/// # Errors
/// What was found instead of a counter's page, in words.
pub(crate) fn judge(file: BorrowedFd<'_>) -> Result<Sealed<'_>, String> {
    let file = Sealed::judge(file)?;
    let (found, expected) = (file.bytes(), page::BYTES);
    if found != expected as u64 {
        return Err(format!("it has {found} bytes, and a page has {expected}"));
    }
    page::judge(file.begins()?)?;
    Ok(file)
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = self.page.reached.load(Ordering::Relaxed);
        write!(f, "{} (reached {reached})", self.object)
    }
}

/// Why this system makes no counters in shared memory, if so.
pub(crate) fn unavailable() -> Option<String> {
    let (call, errno) = file().err()?;
    Some(format!(
        "the system makes no sealed memory to share: {call} says {errno}"
    ))
}

#[cfg(test)]
mod tests;
