//! Errors: the request, the finding, the object, and the driver's result code.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::blockers::Blockers;
use crate::base::handle::kind::PayloadUse;
use crate::base::info::BackendKind;
pub use crate::base::object::Object;
use crate::base::peer::PeerLoss;
use crate::base::run::catch_panic;
use crate::base::stage::Stage;
use crate::base::sync::contain;
use crate::base::timing::Timing;

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The first failure of a timeline. All waits and submissions that fail because of it share it.
pub(crate) type Failure = Arc<Error>;

/// The largest number of sources that the text of an application's error contains.
const MAX_SOURCES: usize = 16;

/// An error of the application, with its text.
///
/// The text is read once, when this is made. So no later report of a failure runs code of the
/// application, on whatever thread it is written.
struct Foreign {
    /// Taken out by the drop.
    error: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// The texts of the error and of its sources, in one line.
    chain: String,
    /// The length of the error's own text, with which the chain begins.
    own: usize,
}

impl Foreign {
    fn new(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        let mut chain = text_of(&*error);
        let own = chain.len();
        if let Err(message) = catch_panic(|| append_sources(&mut chain, &*error)) {
            chain =
                format!("{chain}: its sources are not known, because `source` panicked: {message}");
        }
        Self {
            error: Some(error),
            chain,
            own,
        }
    }

    fn error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        match &self.error {
            Some(error) => &**error,
            // Not reached: only `drop` takes the error out.
            None => &fmt::Error,
        }
    }

    fn text(&self) -> &str {
        self.chain.get(..self.own).unwrap_or(&self.chain)
    }
}

impl Drop for Foreign {
    /// The last clone may be dropped by a queue's worker, or by a thread that submits. A
    /// panic must not reach that thread. The panic hook still reports it.
    fn drop(&mut self) {
        let error = self.error.take();
        contain(|| drop(error));
    }
}

/// The text of an error of the application. Says why, if the error has none.
fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    match catch_panic(|| fmt::write(&mut text, format_args!("{error}"))) {
        Ok(Ok(())) => text,
        Ok(Err(fmt::Error)) => "an error without a text: its `Display` failed".into(),
        Err(message) => format!("an error without a text: its `Display` panicked: {message}"),
    }
}

/// Appends the texts of all sources of `error`.
///
/// A source is left out if the text before it already contains its text.
fn append_sources(chain: &mut String, error: &(dyn std::error::Error + 'static)) {
    let sources = std::iter::successors(error.source(), |&source| source.source());
    for source in sources.take(MAX_SOURCES) {
        let source = text_of(source);
        if !chain.contains(&source) {
            chain.push_str(": ");
            chain.push_str(&source);
        }
    }
}

/// An error from outside the engine. Dereferences to that error.
///
/// It is an application's own error as its work returned it, or a `Conflict` of a negotiation.
/// `downcast_ref` finds it by its type, and `source` returns its own sources. `Display` writes the
/// text that the error had when this was made.
#[derive(Clone)]
pub struct WrappedError {
    error: Arc<Foreign>,
    queue: Option<Object>,
}

impl WrappedError {
    /// Wraps an error. Reads its text, and those of its sources.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            error: Arc::new(Foreign::new(error.into())),
            queue: None,
        }
    }

    /// The queue whose work returned the error; `None` for others, and for each conflict.
    #[must_use]
    pub const fn queue(&self) -> Option<&Object> {
        self.queue.as_ref()
    }

    fn place(&self) -> String {
        let queue = self.queue.as_ref();
        queue.map_or_else(String::new, |queue| format!(" on {queue}"))
    }

    /// The error and its sources, in one line.
    fn chain(&self) -> &str {
        &self.error.chain
    }
}

impl std::ops::Deref for WrappedError {
    type Target = dyn std::error::Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        self.error.error()
    }
}

impl fmt::Display for WrappedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.error.text())
    }
}

/// Writes the texts that the error had when this was made, and calls no code of the application.
impl fmt::Debug for WrappedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WrappedError").field(&self.chain()).finish()
    }
}

/// `text`, followed by the code that it is about, unless it has the code already.
///
/// The system's texts have it as "os error 2". The text of another process has it as its errors do.
fn with_code(text: &str, code: i64) -> String {
    let known = format!("({code})");
    let text = text
        .strip_suffix(&format!(" (os error {code})"))
        .unwrap_or(text);
    match text.contains(&known) {
        true => text.to_owned(),
        false => format!("{text} {known}"),
    }
}

/// Any error of Syncline. One failure can reach every waiter, so a clone is cheap.
///
/// The text contains the whole chain of causes. An error therefore has no
/// [`source`](std::error::Error::source), and a report of a chain of errors repeats nothing.
/// [`Error::root`] returns the original cause as a value: the error with the driver's result code,
/// or [`Error::Work`] with the application's own error.
///
/// Variants may get more fields. So a pattern ends in `..`. A backend makes its errors by
/// constructors with the names of the variants, such as [`Error::unsupported`].
///
/// [`Debug`](fmt::Debug) writes the same text, because `unwrap` and a `main` that returns an error
/// print it. `{:#?}` writes the [kind](Error::kind) in front.
///
/// ```
/// # extern crate syncline_core as syncline;
/// use syncline::Error;
///
/// let error = Error::work("the scene is broken");
/// assert_eq!(format!("{error:?}"), "work failed: the scene is broken");
/// assert_eq!(format!("{error:#?}"), "Work: work failed: the scene is broken");
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A backend cannot be used at all on this machine.
    #[error("{backend} is not available: {reason}")]
    #[non_exhaustive]
    Unavailable {
        /// The backend that was asked for.
        backend: BackendKind,
        /// Why, in words from which a reader can tell what to do.
        reason: String,
    },
    /// No device has that name or index.
    #[error("no device \"{asked}\"; there are: {have}")]
    #[non_exhaustive]
    NoSuchDevice {
        /// The name or index asked for.
        asked: String,
        /// The devices that exist, and what else the caller can do.
        have: String,
    },
    /// The object cannot do what was asked.
    #[error("{object} cannot {asked}: {reason}")]
    #[non_exhaustive]
    Unsupported {
        /// The object.
        object: Object,
        /// What it was asked to do.
        asked: String,
        /// Why it cannot.
        reason: String,
    },
    /// A call into the driver or the system failed.
    #[error("{call} failed on {object}: {}", with_code(.name, *.code))]
    #[non_exhaustive]
    Native {
        /// The object that the call was made for.
        object: Object,
        /// The function that failed.
        call: &'static str,
        /// Its result code.
        code: i64,
        /// The code's name. The compiler's log follows it if a module does not compile. So does the
        /// number of descriptors that the process has left, if it is small.
        name: String,
    },
    /// The device is lost: it does no more work.
    #[error("{object} is lost: {call} returned {}", with_code(.name, *.code))]
    #[non_exhaustive]
    DeviceLost {
        /// The device, or the timeline whose counter showed the loss.
        object: Object,
        /// The driver's function that reported the loss.
        call: &'static str,
        /// The driver's result code.
        code: i64,
        /// The code's name.
        name: String,
    },
    /// An object of the parent process was used in a forked child.
    #[error(
        "{object} was made by process {maker} before a fork, and cannot be used in a forked child: open devices in the child"
    )]
    #[non_exhaustive]
    MadeBeforeFork {
        /// The object.
        object: Object,
        /// The id of the process that made it.
        maker: u32,
    },
    /// A signal is not above the value that the timeline has reached.
    #[error("{timeline} cannot be signalled to {asked}: it has already reached {reached}")]
    #[non_exhaustive]
    SignalNotAboveReached {
        /// The timeline.
        timeline: Object,
        /// The value asked for.
        asked: u64,
        /// The value it has.
        reached: u64,
    },
    /// The value of a signal lies in an interval that another submission has claimed.
    #[error(
        "{timeline} cannot be signalled to {asked}: the values ({above}, {upto}] are already claimed"
    )]
    #[non_exhaustive]
    SignalOverlapsClaim {
        /// The timeline.
        timeline: Object,
        /// The value asked for.
        asked: u64,
        /// The claim covers values above this one …
        above: u64,
        /// … up to and including this one.
        upto: u64,
    },
    /// One submission signals a timeline more than once.
    #[error("{timeline} stands more than once among the signals of one submission (value {asked})")]
    #[non_exhaustive]
    DuplicateSignal {
        /// The timeline.
        timeline: Object,
        /// The second value.
        asked: u64,
    },
    /// A submission waits for its own signal, or for a later one, and so could never run.
    #[error(
        "a submission cannot signal {timeline} to {asked} after it has waited for {waited} of it"
    )]
    #[non_exhaustive]
    SignalBehindOwnWait {
        /// The timeline.
        timeline: Object,
        /// The value of the signal.
        asked: u64,
        /// The value of the submission's own wait.
        waited: u64,
    },
    /// The submission would close a circle of waits, in which no submission could ever run.
    #[error("submission {submission} of {queue} would close a circle of waits: {circle}")]
    #[non_exhaustive]
    Circular {
        /// The queue submitted to.
        queue: Object,
        /// The number that the submission would have had. No submission has it now.
        submission: u64,
        /// The circle. The first step is a wait of the submission with its signaller. The next step
        /// is a wait of that signaller, and so on. The last step is a signal of this submission.
        circle: Blockers,
    },
    /// A value is larger than a timeline can hold or the device can compare.
    #[error(
        "{timeline} cannot use the value {asked}: at {reached} the largest legal one is {largest}"
    )]
    #[non_exhaustive]
    ValueOutOfRange {
        /// The timeline.
        timeline: Object,
        /// The value asked for.
        asked: u64,
        /// The value it has.
        reached: u64,
        /// The largest legal value at present.
        largest: u64,
    },
    /// An object was used with a device that it does not belong to.
    #[error("{object} belongs to {owner} and cannot be used with {asked}")]
    #[non_exhaustive]
    WrongDevice {
        /// The object.
        object: Object,
        /// The device it belongs to.
        owner: Object,
        /// The device or queue it was used with.
        asked: Object,
    },
    /// Two devices cannot share what was asked.
    #[error("{left} and {right} cannot share {what}: {reason}")]
    #[non_exhaustive]
    CannotShare {
        /// One side.
        left: String,
        /// The other side.
        right: String,
        /// What was to be shared.
        what: &'static str,
        /// Why not.
        reason: Box<str>,
        /// The whole conflict, if a negotiation has found it.
        conflict: Option<WrappedError>,
    },
    /// No synchronization object serves all parties of a negotiation.
    #[error("{0}")]
    Conflict(WrappedError),
    /// Work that runs on a queue submitted to the same queue, or a thread locked a queue twice.
    #[error("this thread runs work of {queue}, or has it locked: call this after that has ended")]
    #[non_exhaustive]
    Reentrant {
        /// The queue.
        queue: Object,
    },
    /// Work panicked.
    #[error("work on {queue} panicked: {message}")]
    #[non_exhaustive]
    WorkPanicked {
        /// The queue that ran it.
        queue: Object,
        /// The panic's message.
        message: String,
    },
    /// Work returned an application's own error.
    #[error("work{place} failed: {error}", place = .0.place(), error = .0.chain())]
    Work(WrappedError),
    /// A timeline that has failed was waited for or signalled. It can never advance again.
    #[error("{timeline} failed before it reached {value}: {cause}")]
    #[non_exhaustive]
    Failed {
        /// The timeline.
        timeline: Object,
        /// The value that was asked for.
        value: u64,
        /// The first failure, also if it is of another object.
        cause: Failure,
    },
    /// A submission did not run.
    ///
    /// A timeline that it waits for has failed, or the submission was refused when it was released.
    #[error("submission {submission} of {queue} did not run: {cause}")]
    #[non_exhaustive]
    Skipped {
        /// Its queue.
        queue: Object,
        /// Its number on that queue, from 1.
        submission: u64,
        /// The first failure, also if it is of another object.
        cause: Failure,
    },
    /// The last handle was dropped, and no claim covers the value, so nothing can signal it.
    #[error(
        "{timeline} will never reach {value} (it stands at {reached}): its last handle was dropped and no claim covers the value"
    )]
    #[non_exhaustive]
    Cancelled {
        /// The timeline.
        timeline: Object,
        /// The value that was asked for.
        value: u64,
        /// The value it has.
        reached: u64,
    },
    /// Another thread has closed the object, so the call can never succeed.
    #[error("{object} was closed")]
    #[non_exhaustive]
    Closed {
        /// The object.
        object: Object,
    },
    /// A wait ended before its point was reached.
    #[error(
        "timed out after {waited:?} waiting for {object} {stage} {value} (reached {reached}, pending up to {pending}): {blockers}"
    )]
    #[non_exhaustive]
    TimedOut {
        /// The timeline or other object that was waited for.
        object: Object,
        /// The stage that the wait was for.
        stage: Stage,
        /// The value waited for.
        value: u64,
        /// The value it has.
        reached: u64,
        /// The highest pending value.
        pending: u64,
        /// How long the wait lasted: at least the time-out.
        waited: Duration,
        /// What blocked the value when the time-out passed.
        blockers: Blockers,
    },
    /// Wait-any was called without points.
    #[error("wait-any over no points would never end")]
    NothingToWaitFor,
    /// A raw handle was asked for a point that is not pending, and would mislead.
    #[error(
        "{object}: value {value} is not pending yet (pending up to {pending}): its signal has not been handed to a driver; wait until it is pending, and for a claim until the value before it is"
    )]
    #[non_exhaustive]
    NotPending {
        /// The timeline or fence.
        object: Object,
        /// The value asked for.
        value: u64,
        /// The highest pending value.
        pending: u64,
    },
    /// A fence without a time was asked for one.
    ///
    /// It was never recorded, or the submission that records it was skipped or has failed.
    #[error("{fence} has no time: it was never recorded, or its record did not run")]
    #[non_exhaustive]
    NotRecorded {
        /// The fence.
        fence: Object,
    },
    /// A fence whose work has not finished was asked for a time.
    #[error("{fence} is not complete yet")]
    #[non_exhaustive]
    NotReady {
        /// The fence.
        fence: Object,
    },
    /// A fence that was made without timing, or without a clock, was asked for a time.
    #[error("{fence} was made without {asked}")]
    #[non_exhaustive]
    TimingDisabled {
        /// The fence.
        fence: Object,
        /// What it lacks.
        asked: Timing,
    },
    /// A point was asked for its time, but its timeline has no timestamps, or it has no timeline.
    #[error("{timeline} was made without timestamps: it does not tell when it reached {value}")]
    #[non_exhaustive]
    TimesNotEnabled {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
    },
    /// A point that is not reached was asked for its time.
    #[error(
        "{timeline} has not reached {value} yet, so there is no time at which it did: it stands at {reached}"
    )]
    #[non_exhaustive]
    NotReached {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
        /// The value it has.
        reached: u64,
    },
    /// A point that was reached too many signals ago was asked for its time.
    #[error(
        "{timeline} does not remember when it reached {value}: it keeps the times of its last {kept} signals, now from that of {oldest} on"
    )]
    #[non_exhaustive]
    TimeForgotten {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
        /// The number of signals whose times the timeline keeps.
        kept: usize,
        /// The value of the oldest of these signals.
        oldest: u64,
    },
    /// A point was asked for its time, and the process that signals it has not published it yet.
    ///
    /// A moment later the time is there, or the process is gone and cannot publish it.
    #[error(
        "{timeline} has reached {value}, and the process that signals it has not published the time yet: ask again"
    )]
    #[non_exhaustive]
    TimeNotTold {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
    },
    /// A point was asked for its time, and its signal has none.
    #[error("no time was written when {timeline} reached {value}: {reason}")]
    #[non_exhaustive]
    NoTime {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
        /// What signalled the value, as far as that is known.
        reason: String,
    },
    /// The time between two fences was asked for, and they write times of different kinds.
    #[error(
        "{end} was made with {end_timing} and {start} with {start_timing}: there is no time between them"
    )]
    #[non_exhaustive]
    TimingDiffers {
        /// The fence at the start.
        start: Object,
        /// What the fence at the start writes.
        start_timing: Timing,
        /// The fence at the end.
        end: Object,
        /// What the fence at the end writes.
        end_timing: Timing,
    },
    /// A device's clock was not read within the time limit. It can be tried again.
    #[error("{clock} was not read within {waited:?}: {reason}")]
    #[non_exhaustive]
    ClockSilent {
        /// The clock.
        clock: Object,
        /// How long the read took.
        waited: Duration,
        /// What prevented the read.
        reason: String,
    },
    /// A fence that stands for an object of another API cannot be recorded.
    #[error(
        "{fence} stands for an object of another API, which only that API signals: it cannot be recorded"
    )]
    #[non_exhaustive]
    ForeignFence {
        /// The fence.
        fence: Object,
    },
    /// A fence was asked for a position, and has none because it belongs to a graph.
    #[error(
        "{fence} was recorded into a graph capture, during which and after which it has no position; record it again outside of one"
    )]
    #[non_exhaustive]
    Captured {
        /// The fence.
        fence: Object,
    },
    /// The stream capture that a fence was recorded in has ended.
    #[error("the capture that {fence} was recorded in has ended; record it again")]
    #[non_exhaustive]
    CaptureEnded {
        /// The fence.
        fence: Object,
    },
    /// A queue under stream capture was asked for something that a graph cannot hold.
    #[error("{object} cannot {asked} while it is being captured into a graph: {reason}")]
    #[non_exhaustive]
    Capturing {
        /// The queue or stream.
        object: Object,
        /// What it was asked to do.
        asked: String,
        /// Why it cannot.
        reason: String,
    },
    /// A counter shows a value that no correct signaller writes.
    ///
    /// Any process that has a page can write to it, and any code to a word of the application.
    /// Another library can signal its semaphore past a promise (T2).
    #[error("{counter} cannot be trusted any more: it shows {found}: {reason}")]
    #[non_exhaustive]
    Corrupted {
        /// The counter.
        counter: Object,
        /// The value that it shows.
        found: u64,
        /// Why no correct signaller writes that.
        reason: String,
    },
    /// Another process, or another timeline over the same memory, has failed the shared counter.
    #[error(
        "{counter} was failed by another process or another timeline over the same memory: {}", with_code(.cause, *.code)
    )]
    #[non_exhaustive]
    FailedElsewhere {
        /// The counter.
        counter: Object,
        /// The code that the other side gave.
        code: i64,
        /// The other side's text, unchanged: one line of at most 512 bytes.
        cause: String,
    },
    /// A peer process is lost: it will neither answer nor signal.
    #[error("{endpoint} has lost {peer}: {how}", peer = peer(*.process))]
    #[non_exhaustive]
    PeerLost {
        /// The endpoint whose other side the peer was.
        ///
        /// If another process lost the peer and reports that in a counter in shared memory, this is
        /// the counter.
        endpoint: Object,
        /// The peer's process id; 0 if it had not sent it.
        process: u32,
        /// How it was lost.
        how: PeerLoss,
    },
    /// A peer process did not act in time. Nothing has changed, and the call can be repeated.
    #[error(
        "{endpoint}: {peer} did not {awaited} within {waited:?}{lost}",
        peer = peer(*.process),
        lost = besides(lost)
    )]
    #[non_exhaustive]
    PeerSilent {
        /// The endpoint whose other side the peer is.
        endpoint: Object,
        /// The peer's process id; 0 if it has not sent it.
        process: u32,
        /// What the peer was expected to do. A wait for an object also lists the objects that the
        /// peer offers.
        awaited: Cow<'static, str>,
        /// How long the wait lasted: at least the time-out.
        waited: Duration,
        /// The errors of this process's devices that are lost (E3). The peer may wait for one.
        lost: Box<[String]>,
    },
    /// A peer process has sent an invalid message.
    #[error("{endpoint} expected {expected}, and was sent {found}")]
    #[non_exhaustive]
    Message {
        /// The endpoint that received it.
        endpoint: Object,
        /// What was expected.
        expected: String,
        /// What was received.
        found: String,
    },
    /// A binary semaphore's payload cannot be replaced or exported now. Nothing has changed.
    #[error("{semaphore} cannot {asked}: {by}")]
    #[non_exhaustive]
    PayloadInUse {
        /// The semaphore.
        semaphore: Object,
        /// What it was asked to do.
        asked: String,
        /// The use that prevents it.
        by: PayloadUse,
    },
    /// A handle was refused.
    #[error("{object} cannot import {what}: {reason}")]
    #[non_exhaustive]
    Import {
        /// The importer: a device, or the point of a timeline that was to notify an eventfd.
        object: Object,
        /// The handle that was offered.
        what: String,
        /// What was found instead.
        reason: String,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            write!(f, "{:?}: ", self.kind())?;
        }
        fmt::Display::fmt(self, f)
    }
}

/// The peer process of an endpoint, in words.
fn peer(process: u32) -> String {
    match process {
        0 => "the other side".into(),
        id => format!("process {id}"),
    }
}

/// The errors of lost devices, as clauses behind another error.
fn besides(lost: &[String]) -> String {
    let clauses = lost.iter().map(|lost| format!("; {lost}"));
    clauses.collect()
}

impl Error {
    /// Wraps an application's own error or text, for work to return.
    ///
    /// The text is that of `error` and of its sources at this call. A panic of its `Display`, or of
    /// its drop with the last clone, goes no further than the panic hook. An error whose `Display`
    /// panics gets a text that says so.
    pub fn work(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Work(WrappedError::new(error))
    }

    /// Wraps the conflict that a negotiation has found.
    pub fn conflict(conflict: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Conflict(WrappedError::new(conflict))
    }

    /// The error of a system call.
    pub(crate) fn system(object: &Object, call: &'static str, errno: rustix::io::Errno) -> Self {
        Self::native(
            object,
            call,
            i64::from(errno.raw_os_error()),
            errno.to_string(),
        )
    }

    /// Notes that work on `queue` returned this error, if it is [`Error::Work`] without a queue.
    pub(crate) fn on(mut self, queue: &Object) -> Self {
        if let Self::Work(WrappedError { queue: known, .. }) = &mut self {
            known.get_or_insert_with(|| queue.clone());
        }
        self
    }

    /// True for a wait that timed out. Nothing has changed, and the wait can be repeated.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::PeerSilent { .. })
    }

    /// The original cause.
    ///
    /// This error itself, unless it is [`Error::Failed`] or [`Error::Skipped`], which report
    /// another error.
    #[must_use]
    pub fn root(&self) -> &Self {
        let mut root = self;
        while let Self::Failed { cause, .. } | Self::Skipped { cause, .. } = root {
            root = cause;
        }
        root
    }

    /// The failure to pass on: the cause of [`Error::Failed`] or [`Error::Skipped`], else itself.
    pub(crate) fn into_cause(self) -> Failure {
        match self {
            Self::Failed { cause, .. } | Self::Skipped { cause, .. } => cause,
            other => Arc::new(other),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test")]

    use super::*;
    use crate::base::handle::Rejected;

    /// An application's error with a source.
    #[derive(Debug)]
    struct Outer {
        source: std::num::ParseIntError,
        /// True if its text contains the text of its source.
        contains_source: bool,
    }

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the scene is broken")?;
            if self.contains_source {
                write!(f, " ({})", self.source)?;
            }
            Ok(())
        }
    }

    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.source)
        }
    }

    /// A code stands once in a text, also if the name or the cause contains it.
    #[rstest::rstest]
    #[case::of_the_system(
        "No such file or directory (os error 2)",
        2,
        "No such file or directory (2)"
    )]
    #[case::of_a_driver("CUDA_ERROR_ILLEGAL_ADDRESS", 700, "CUDA_ERROR_ILLEGAL_ADDRESS (700)")]
    #[case::of_another_process("it returned CUDA_X (700)", 700, "it returned CUDA_X (700)")]
    #[case::of_another_code("it returned CUDA_X (700)", 70, "it returned CUDA_X (700) (70)")]
    fn a_code_stands_once(#[case] name: &str, #[case] code: i64, #[case] text: &str) {
        let object = || Object::new("object", "x");
        for error in [
            Error::native(object(), "call", code, name),
            Error::device_lost(object(), "call", code, name),
            Error::failed_elsewhere(object(), code, name),
        ] {
            assert!(error.to_string().ends_with(&format!(" {text}")), "{error}");
        }
    }

    fn failed(label: &str, cause: Error) -> Error {
        Error::failed(Object::new("timeline", label), 1, Arc::new(cause))
    }

    /// The texts of an error and of all its sources.
    fn texts(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
        let chain = std::iter::successors(Some(error), |&error| error.source());
        chain.map(ToString::to_string).collect()
    }

    /// Errors with and without sources, each with a text that its report must contain once.
    fn all() -> Vec<(Error, &'static str)> {
        let not_a_number = || "x".parse::<u8>().unwrap_err();
        let outer = |contains_source| {
            let source = not_a_number();
            Error::work(Outer {
                source,
                contains_source,
            })
        };
        let native = Error::native(
            Object::new("device", "gpu"),
            "vkQueueSubmit",
            -4,
            "VK_ERROR_DEVICE_LOST",
        );
        let invalid = "invalid digit found in string";
        let on_a_queue = outer(false).on(&Object::new("queue", "q"));
        vec![
            (native, "VK_ERROR_DEVICE_LOST (-4)"),
            (Error::work(not_a_number()), invalid),
            (outer(false), invalid),
            (outer(true), invalid),
            (on_a_queue, "the scene is broken: invalid digit"),
            (Error::NothingToWaitFor, "wait-any"),
        ]
    }

    /// A report prints an error and then each of its sources.
    #[test]
    fn a_report_of_an_error_repeats_no_text() {
        let check = |error: &Error, part: &str| {
            let handle = Rejected {
                handle: (),
                error: error.clone(),
            };
            for texts in [texts(error), texts(&handle)] {
                for (n, text) in texts.iter().enumerate() {
                    let repeats = |before: &String| before.contains(text);
                    assert!(!texts[..n].iter().any(repeats), "repeated: {texts:#?}");
                }
                let whole = texts.join("\n");
                assert_eq!(whole.matches(part).count(), 1, "{part:?}: {whole}");
            }
        };
        for (error, part) in all() {
            check(&error, part);
            check(&failed("a", error.clone()), part);
            check(&failed("b", failed("a", error)), part);
        }
    }

    #[test]
    fn a_device_that_does_not_exist_is_told_with_all_that_do() {
        use crate::api::Device as _;
        let mut info = crate::host::Device::new().info().clone();
        info.name = "one".into();
        let mut other = info.clone();
        other.name = "another".into();
        let text = Error::no_device_among("third", [&info, &other]).to_string();
        let have = "0 host \"one\", 1 host \"another\"";
        assert_eq!(text, format!("no device \"third\"; there are: {have}"));
        let none = Error::no_device_among("0", []).to_string();
        assert!(none.ends_with("there are: none"), "{none}");
    }

    /// `unwrap` and a `main` that returns an error print `Debug`.
    #[test]
    fn debug_writes_the_text() {
        for (error, part) in all() {
            for error in [failed("b", failed("a", error.clone())), error] {
                let text = error.to_string();
                assert!(text.contains(part), "{text}");
                assert_eq!(format!("{error:?}"), text);
                let kind = error.kind();
                assert_eq!(format!("{error:#?}"), format!("{kind:?}: {text}"));
            }
        }
    }

    /// The derive gives a source to a variant with one of these words. This covers all variants.
    #[test]
    fn no_variant_has_a_source() {
        let code = include_str!("error.rs");
        let (code, _) = code.split_once("mod tests {").unwrap();
        for word in ["#[source]", "#[from]", "source: ", "transparent"] {
            assert!(!code.contains(word), "{word}");
        }
    }

    #[test]
    fn root_returns_the_original_cause() {
        for (error, _) in all() {
            let text = error.to_string();
            assert_eq!(error.root().to_string(), text);
            let twice = failed("b", failed("a", error));
            assert_eq!(twice.root().to_string(), text);
        }
        let error = failed("a", Error::work("x".parse::<u8>().unwrap_err()));
        let Error::Work(own) = error.root() else {
            panic!("{error:?}");
        };
        assert!(own.downcast_ref::<std::num::ParseIntError>().is_some());
    }
}
