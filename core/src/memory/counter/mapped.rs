//! A counter in shared memory, as one process has mapped it.

use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::fd::CounterFd;
use super::page::{self, Cause, Loss, PageLayout, PageState};
use super::page_file::{check_page_file, make_page_file};
use crate::base::error::{Error, Object, Result};
use crate::memory::file::Sealed;
use crate::memory::mapping::Mapping;

/// One process's mapping of a 64-bit counter in a page of shared memory.
///
/// The counter only grows. A value counts only if it was [announced](Counter::announce) before. Any
/// other value is an error and ends the timeline. Most calls only read and write memory. Calls that
/// change what waiters see also wake threads.
pub struct Counter {
    object: Object,
    page: Mapped,
    /// The highest value that this process has seen and that counts.
    seen: AtomicU64,
    /// The last pending value that this process knows. `u64::MAX` before the first call of
    /// [`Counter::pending`].
    last_pending: AtomicU64,
    /// When this process first saw that the writer of the failure did not complete it.
    failing_since: OnceLock<Instant>,
}

/// How long a reader waits for another process to replace an incomplete failure.
///
/// After that time the reader treats the counter as failed without a reason.
pub(crate) const FAILING_TIMEOUT: Duration = Duration::from_millis(400);

impl Counter {
    /// The size in bytes of the page at [`Counter::address`].
    pub const BYTES: usize = page::BYTES;

    /// The offset in bytes of the counter itself in the page.
    ///
    /// The counter has 64 bits. Devices wait for it and write it.
    pub const REACHED: usize = page::REACHED;

    /// Makes a counter at `initial`. Returns it with the file of its page.
    ///
    /// # Errors
    /// [`Error::Native`] if the system gives no memory or no descriptor.
    /// [`Error::ValueOutOfRange`] for `u64::MAX`.
    pub(crate) fn make(initial: u64) -> Result<(Self, OwnedFd)> {
        let object = Object::new("counter", "");
        if initial == u64::MAX {
            return Err(Error::value_out_of_range(object, initial, 0, u64::MAX - 1));
        }
        let native = |(call, errno): (&'static str, Errno)| Error::system(&object, call, errno);
        let file = make_page_file().map_err(native)?;
        let page = Mapping::of(Sealed::new_unchecked(&file, page::BYTES as u64));
        let page = Mapped(page.map_err(|errno| native(("mmap", errno)))?);
        page.format(initial);
        Ok((Self::over(page, initial), file))
    }

    /// The counter of `page`. This process has seen the value `seen`.
    fn over(page: Mapped, seen: u64) -> Self {
        Self {
            object: Object::new("counter", ""),
            page,
            seen: AtomicU64::new(seen),
            last_pending: AtomicU64::new(u64::MAX),
            failing_since: OnceLock::new(),
        }
    }

    /// Maps the counter of `handle`. The handle stays open and may be closed afterwards.
    ///
    /// # Errors
    /// [`Error::Import`], which names `importer`, if the page is not a counter any more. Any
    /// process that has the page can write over its header. [`Error::Native`] if it cannot be
    /// mapped.
    pub fn open(handle: &CounterFd, importer: &Object) -> Result<Self> {
        let file = check_page_file(handle.as_fd()).map_err(|reason| Error::Import {
            object: importer.clone(),
            what: "a counter in shared memory".into(),
            reason,
        })?;
        let object = Object::new("counter", "");
        let page = Mapping::of(file).map_err(|errno| Error::system(&object, "mmap", errno))?;
        Ok(Self::over(Mapped(page), 0))
    }

    /// The counter's name in errors.
    #[must_use]
    pub const fn object(&self) -> &Object {
        &self.object
    }

    /// The address of the page in this process, to register it with a device.
    ///
    /// The [`Counter::BYTES`] bytes stay mapped until the counter is dropped. Access them through
    /// atomics only.
    #[must_use]
    pub const fn address(&self) -> *mut c_void {
        self.page.0.address()
    }

    /// The page in this process's memory.
    #[inline]
    pub(super) fn page(&self) -> &PageLayout {
        &self.page
    }

    /// The reached value. Usually three loads, two of them of the page.
    ///
    /// What was written before a value was signalled is visible to the thread that reads the value.
    /// Once the counter has failed, the first call returns a higher reached value, if there is one,
    /// and the next call the error.
    ///
    /// # Errors
    /// [`Error::Corrupted`] if the page holds `u64::MAX`, a value below an earlier one, or a value
    /// above what was announced. [`Error::FailedElsewhere`] or [`Error::PeerLost`] if the counter
    /// has failed.
    #[inline]
    pub fn value(&self) -> Result<u64> {
        // In this order, so that the page had the value in `seen` before it is read here.
        let seen = self.seen.load(Ordering::Acquire);
        let value = self.page.reached.load(Ordering::SeqCst);
        if value == seen && !self.page.is_failed() {
            return Ok(value);
        }
        self.check_value(value, seen)
    }

    /// Checks a value that was read from the page, and returns the value that counts.
    #[inline(never)]
    fn check_value(&self, value: u64, seen: u64) -> Result<u64> {
        let is_writer_dead = self.failing_since.get().is_some();
        // Values that were reached before the failure may have come since `value` was read.
        let read_again = || self.page.reached.load(Ordering::SeqCst);
        let (state, value) = self
            .page
            .state_and_reached(is_writer_dead, value, read_again);
        let frozen = match state {
            PageState::Failed(frozen) => Some(frozen),
            // Every value counts, because the frozen value is not written.
            PageState::Failing => Some(u64::MAX),
            PageState::NotFailed => None,
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
        // Read after the value, because a signaller announces a value before it signals it.
        let announced = self.page.announced.load(Ordering::Acquire);
        if value > announced {
            return Err(corrupted(format!(
                "signals up to {announced} were announced, and none above"
            )));
        }
        // Values that were reached before the failure stay reached. Later writes of a device do not
        // count.
        let counts = frozen.map_or(value, |frozen| value.min(frozen));
        if counts > seen {
            self.seen.fetch_max(counts, Ordering::AcqRel);
            return Ok(counts);
        }
        match state {
            PageState::NotFailed => Ok(value),
            PageState::Failing if !self.is_failing_timed_out() => Ok(value),
            _ => Err(self.failure()),
        }
    }

    /// True if the failure has been incomplete for longer than [`FAILING_TIMEOUT`].
    ///
    /// Its writer is dead. A process that knows of the death would have replaced the failure by
    /// now.
    fn is_failing_timed_out(&self) -> bool {
        self.failing_since.get_or_init(Instant::now).elapsed() > FAILING_TIMEOUT
    }

    /// The highest value that this process has seen and that counts.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Refuses a counter that has failed and so cannot be signalled. A load.
    ///
    /// # Errors
    /// [`Error::FailedElsewhere`]. [`Error::PeerLost`] if a process failed the counter because
    /// another process was lost.
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
            Some(Loss { process, how }) => Error::peer_lost(&self.object, process, how),
            None => Error::failed_elsewhere(&self.object, cause.code, cause.text),
        }
    }

    /// Announces that `value` is about to be signalled. The value may be reached from then on.
    ///
    /// Call it before the signal is given to a driver or made.
    ///
    /// # Errors
    /// Same errors as [`Counter::check`] and [`Counter::value`]. [`Error::Corrupted`] if `value` is
    /// reached already. The signal must not be made after an error.
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
            reason: format!(
                "another signaller has signalled that while {value} was to be signalled"
            ),
        }
    }

    /// Reports that the announced signal of `value` is pending. A system call if a thread sleeps.
    ///
    /// The signal and everything that it waits for are with a driver and need no host any more.
    pub fn note_pending(&self, value: u64) {
        // `SeqCst` pairs with a thread that sets `sleepers` and then checks the page.
        if self.page.pending.fetch_max(value, Ordering::SeqCst) < value {
            self.wake_sleepers();
        }
    }

    /// The highest value that signallers report as [pending](Counter::note_pending).
    ///
    /// From the first call on, a change of this value also wakes threads of this process that sleep
    /// on the page. A value that a call has returned usually wakes them no more, so the caller
    /// passes it on to the waiters.
    ///
    /// # Errors
    /// [`Error::Corrupted`] if the page holds `u64::MAX` or a value above what was announced.
    pub fn pending(&self) -> Result<u64> {
        // In this order, because a signaller announces a value before it reports it as pending.
        let pending = self.page.pending.load(Ordering::SeqCst);
        let announced = self.page.announced.load(Ordering::Acquire);
        if pending <= announced && pending != u64::MAX {
            self.last_pending.store(pending, Ordering::Release);
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

    /// Publishes the state of a timeline whose counter is another object. Values never go down.
    ///
    /// Only one process calls this for a page.
    pub(crate) fn publish(&self, pending: u64, reached: u64) {
        self.page.announced.fetch_max(pending, Ordering::SeqCst);
        self.note_pending(pending);
        if self.page.reached.fetch_max(reached, Ordering::SeqCst) < reached {
            self.wake_sleepers();
        }
    }

    /// Reports that pending signals will never complete. Call it before a [failure](Counter::fail)
    /// for this reason.
    pub(crate) fn note_lost(&self) {
        self.page.lost.store(1, Ordering::SeqCst);
    }

    /// Fails the counter at its present value, because its signaller is gone.
    ///
    /// Signals that were reported as pending will never complete. Stores `cause`, with its native
    /// code if it has one.
    pub fn fail_as_lost(&self, cause: &Error) {
        let frozen = self.value().unwrap_or_else(|_| self.seen());
        self.note_lost();
        self.fail_for(frozen, cause);
    }

    /// True if the counter has failed and its pending signals will never complete.
    pub(crate) fn is_lost(&self) -> bool {
        self.page.is_failed() && self.page.lost.load(Ordering::SeqCst) != 0
    }

    /// Takes a turn to make the signals that a lost process still owes.
    ///
    /// Returns the number of earlier turns. Call it once the counter has [failed](Counter::fail).
    /// The surviving processes release native waits in the order of their turns.
    pub(crate) fn recovery_turn(&self) -> u32 {
        self.page.recovery_turns.fetch_add(1, Ordering::AcqRel)
    }

    /// Releases native waits for values of the counter up to `value`, which will not be signalled.
    ///
    /// Call it once the counter has failed. Wakes sleeping threads. False without any effect if the
    /// counter is below `after`.
    pub(crate) fn recover(&self, after: u64, value: u64) -> bool {
        if self.page.reached.load(Ordering::SeqCst) < after {
            return false;
        }
        self.page.reached.fetch_max(value, Ordering::SeqCst);
        self.wake_all();
        true
    }

    /// True, once for each value, if the page reports more pending than was last read.
    ///
    /// False in a process that has never called [`Counter::pending`].
    ///
    /// A watch ends once for each value, even if the engine does not read the value then. Only the
    /// watch of the counter's one timeline calls this, and one thread at a time watches a device.
    /// So no second caller misses the value.
    pub(super) fn has_new_pending(&self) -> bool {
        let last = self.last_pending.load(Ordering::Acquire);
        if last == u64::MAX {
            return false;
        }
        let pending = self.page.pending.load(Ordering::SeqCst);
        pending > last && self.last_pending.fetch_max(pending, Ordering::AcqRel) < pending
    }

    /// True if `value` is reached, or reported as [pending](Counter::note_pending).
    ///
    /// Reports of other processes are not checked here, and may be wrong.
    #[must_use]
    pub fn is_pending(&self, value: u64) -> bool {
        let pending = self.page.pending.load(Ordering::Acquire);
        pending.max(self.page.reached.load(Ordering::Acquire)) >= value
    }

    /// Announces and signals `value` from the host. A system call if a thread sleeps.
    ///
    /// # Errors
    /// [`Error::Corrupted`] if the page does not hold a legal value below `value`, because another
    /// signaller signals it too. Same errors as [`Counter::check`]. The value is not stored then.
    pub(crate) fn signal(&self, value: u64) -> Result<()> {
        self.announce(value)?;
        let mut before = self.seen.load(Ordering::Acquire);
        let reached = &self.page.reached;
        // `SeqCst` pairs with a thread that sets `sleepers` and then checks the page.
        while let Err(found) =
            reached.compare_exchange(before, value, Ordering::SeqCst, Ordering::Acquire)
        {
            before = self.check_value(found, before)?;
            if before >= value {
                return Err(self.overtaken(before, value));
            }
        }
        // From now on a lower value is an error.
        self.seen.fetch_max(value, Ordering::AcqRel);
        self.wake_sleepers();
        Ok(())
    }

    /// Fails the counter in every process that has it, unless it has failed already.
    ///
    /// Values above `frozen` do not count from then on, even if a device still writes them. They
    /// stay reached in a process that has seen them already. At most 512 bytes of `cause` are
    /// stored.
    pub fn fail(&self, frozen: u64, code: i64, cause: &str) {
        self.fail_with(
            frozen,
            &Cause {
                code,
                text: cause.into(),
                lost: None,
            },
        );
    }

    /// Same as [`Counter::fail`], with the text of `cause` and its native code, if it has one.
    ///
    /// Readers get [`Error::PeerLost`] again if that is the cause.
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
        let text = cause.to_string();
        self.fail_with(frozen, &Cause { code, text, lost });
    }

    fn fail_with(&self, frozen: u64, cause: &Cause) {
        if self.page.fail(frozen, cause) {
            self.wake_all();
        }
    }
}

/// The page in this process's memory.
struct Mapped(Mapping<PageLayout>);

impl Deref for Mapped {
    type Target = PageLayout;

    #[inline]
    fn deref(&self) -> &PageLayout {
        self.0.first()
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reached = self.page.reached.load(Ordering::Relaxed);
        write!(f, "{} (reached {reached})", self.object)
    }
}

#[cfg(test)]
mod tests;
