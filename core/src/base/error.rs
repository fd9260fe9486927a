//! Errors: what was asked, what was found, on which object, and the native code beneath.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::blockers::Blockers;
use crate::base::handle::PayloadUse;
use crate::base::info::{BackendKind, next_id};
use crate::base::peer::PeerLoss;
use crate::base::stage::Stage;
use crate::base::sync::contain;
use crate::base::timing::Timing;

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The first failure of a timeline, shared by everything that it brings down.
pub type Failure = Arc<Error>;

/// Names an object in an error: its kind, its label if it has one, and its id. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Object(Arc<Name>);

#[derive(PartialEq, Eq)]
struct Name {
    kind: &'static str,
    id: u64,
    label: Box<str>,
}

impl Object {
    /// Names a new object of `kind` (a word such as `"queue"`) with a fresh id.
    #[must_use]
    pub fn new(kind: &'static str, label: &str) -> Self {
        Self(Arc::new(Name {
            kind,
            id: next_id(),
            label: label.into(),
        }))
    }

    /// True if somebody else has it, too.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The process-wide id.
    #[must_use]
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The label its creator gave; may be empty.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0.label
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name { kind, id, label } = &*self.0;
        if label.is_empty() {
            write!(f, "{kind} #{id}")
        } else {
            write!(f, "{kind} \"{label}\" #{id}")
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How many sources of an application's error are told.
const LONGEST_CHAIN: usize = 16;

/// An application's own error, as its work returned it: dereferences to it.
///
/// So it is found by its type with `downcast_ref`, and its own sources with `source`.
#[derive(Clone)]
pub struct WorkError {
    error: Arc<dyn Kept>,
    queue: Option<Object>,
}

/// What is kept of an application's error.
trait Kept: Send + Sync {
    fn error(&self) -> &(dyn std::error::Error + Send + Sync + 'static);
}

/// The error itself, until it is dropped. Whoever drops the last of many may have nothing to do with it, and be a queue's worker or have a
/// queue in his hands: so a panic there, reported by the panic hook, goes no further.
struct Own<E>(Option<E>);

impl<E: std::error::Error + Send + Sync + 'static> Kept for Own<E> {
    fn error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        match &self.0 {
            Some(error) => error,
            // Nobody has it any more.
            None => &fmt::Error,
        }
    }
}

impl<E> Drop for Own<E> {
    fn drop(&mut self) {
        let error = self.0.take();
        contain(|| drop(error));
    }
}

impl WorkError {
    /// The queue whose work returned it; `None` if it did not come from work.
    #[must_use]
    pub const fn queue(&self) -> Option<&Object> {
        self.queue.as_ref()
    }

    fn place(&self) -> String {
        let queue = self.queue.as_ref();
        queue.map_or_else(String::new, |queue| format!(" on {queue}"))
    }

    /// The application's error and its sources, in one line. A source is left out if its text stands there already.
    fn chain(&self) -> String {
        let mut told = self.to_string();
        let sources = std::iter::successors(self.source(), |&source| source.source());
        for source in sources.take(LONGEST_CHAIN) {
            let source = source.to_string();
            if !told.contains(&source) {
                told = format!("{told}: {source}");
            }
        }
        told
    }
}

impl std::ops::Deref for WorkError {
    type Target = dyn std::error::Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        self.error.error()
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl fmt::Debug for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Everything that can go wrong. Cheap to clone, so that one failure can reach every waiter.
///
/// The text tells the whole chain of causes. So an error has no [`source`](std::error::Error::source), and a report
/// of a chain of errors tells nothing twice. [`Error::root`] gives the original cause as a value: the one with the
/// native code, or [`Error::Work`] with the application's own error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A backend cannot be used at all on this machine.
    #[error("{backend} is not available: {reason}")]
    Unavailable {
        /// The backend that was asked for.
        backend: BackendKind,
        /// Why, in words that a person can act on.
        reason: String,
    },
    /// No device answers to that name or index.
    #[error("no device \"{asked}\"; there are: {have}")]
    NoSuchDevice {
        /// What was asked for.
        asked: String,
        /// The devices that exist.
        have: String,
    },
    /// The object cannot do what was asked.
    #[error("{object} cannot {asked}: {reason}")]
    Unsupported {
        /// The object asked.
        object: Object,
        /// What it was asked to do.
        asked: String,
        /// Why it cannot.
        reason: String,
    },
    /// A call into the driver failed.
    #[error("{call} failed on {object}: {name} ({code})")]
    Native {
        /// The object it was made for.
        object: Object,
        /// The driver's function.
        call: &'static str,
        /// The driver's result code.
        code: i64,
        /// The code's name.
        name: String,
    },
    /// The device will not answer any more.
    #[error("{object} is lost: {call} returned {name} ({code})")]
    DeviceLost {
        /// The device, or the object through which the loss was seen.
        object: Object,
        /// The driver's function that told.
        call: &'static str,
        /// The driver's result code.
        code: i64,
        /// The code's name.
        name: String,
    },
    /// A signal must exceed the value already reached.
    #[error("{timeline} cannot be signalled to {asked}: it has already reached {reached}")]
    SignalNotAboveReached {
        /// The timeline.
        timeline: Object,
        /// The value asked for.
        asked: u64,
        /// The value it has.
        reached: u64,
    },
    /// The signal lies within what somebody else has claimed.
    #[error(
        "{timeline} cannot be signalled to {asked}: the values ({above}, {upto}] are already claimed"
    )]
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
    /// One submission may signal a timeline once.
    #[error("{timeline} stands more than once among the signals of one submission (value {asked})")]
    DuplicateSignal {
        /// The timeline.
        timeline: Object,
        /// The second value.
        asked: u64,
    },
    /// A submission that waits for its own signal, or for a later one, could never run.
    #[error(
        "a submission cannot signal {timeline} to {asked} after it has waited for {waited} of it"
    )]
    SignalBehindOwnWait {
        /// The timeline.
        timeline: Object,
        /// The value to be signalled.
        asked: u64,
        /// The submission's own wait.
        waited: u64,
    },
    /// Submissions that wait for each other in a circle could never run.
    #[error("submission {submission} of {queue} would close a circle of waits: {circle}")]
    Circular {
        /// The queue submitted to.
        queue: Object,
        /// What the submission's number would have been; nothing has it now.
        submission: u64,
        /// The circle: what the submission waits for and who is to signal it, what that one waits for, and
        /// so on, down to what this submission was to signal itself.
        circle: Blockers,
    },
    /// A value outside what a timeline can hold or the device can compare.
    #[error(
        "{timeline} cannot use the value {asked}: at {reached} the largest legal one is {largest}"
    )]
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
    CannotShare {
        /// One side.
        left: String,
        /// The other side.
        right: String,
        /// What was to be shared.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// Work submitted to its own queue.
    #[error(
        "work running on {queue} submitted to the same queue; submit it after the work has returned"
    )]
    Reentrant {
        /// The queue.
        queue: Object,
    },
    /// Work panicked.
    #[error("work on {queue} panicked: {message}")]
    WorkPanicked {
        /// The queue that ran it.
        queue: Object,
        /// The panic's message.
        message: String,
    },
    /// Work returned an error of the application's own.
    #[error("work{place} failed: {error}", place = .0.place(), error = .0.chain())]
    Work(WorkError),
    /// A timeline that can never advance again was waited for or signalled.
    #[error("{timeline} failed before it reached {value}: {cause}")]
    Failed {
        /// The timeline.
        timeline: Object,
        /// The value that was asked for.
        value: u64,
        /// The first failure, wherever it arose.
        cause: Failure,
    },
    /// A submission did not run: what it waits for has failed, or it was refused when it was released.
    #[error("submission {submission} of {queue} did not run: {cause}")]
    Skipped {
        /// Its queue.
        queue: Object,
        /// Its number on that queue, from 1.
        submission: u64,
        /// The first failure, wherever it arose.
        cause: Failure,
    },
    /// Nobody is left who could signal this value.
    #[error(
        "{timeline} will never reach {value} (it stands at {reached}): its last handle was dropped and no claim covers the value"
    )]
    Cancelled {
        /// The timeline.
        timeline: Object,
        /// The value that was asked for.
        value: u64,
        /// The value it has.
        reached: u64,
    },
    /// A wait ended before its point was reached.
    #[error(
        "timed out after {waited:?} waiting for {object} {stage} {value} (reached {reached}, pending up to {pending}): {blockers}"
    )]
    TimedOut {
        /// What was waited for.
        object: Object,
        /// How far the value had to come.
        stage: Stage,
        /// The value waited for.
        value: u64,
        /// The value it has.
        reached: u64,
        /// The highest value that is on its way without further host action.
        pending: u64,
        /// How long was waited, at least as long as asked.
        waited: Duration,
        /// Who was to signal it, and who waited for whom, when the time was over.
        blockers: Blockers,
    },
    /// Wait-any needs something to wait for.
    #[error("wait-any over no points would never end")]
    NothingToWaitFor,
    /// The signal of this point is not yet with the driver, so a raw handle to it would mislead.
    #[error(
        "{object}: value {value} is not pending yet (pending up to {pending}): whoever is to signal it has not handed that to a driver"
    )]
    NotPending {
        /// The timeline or fence.
        object: Object,
        /// The value asked for.
        value: u64,
        /// The highest pending value.
        pending: u64,
    },
    /// A time was asked of a fence that was never recorded.
    #[error("{fence} was never recorded")]
    NotRecorded {
        /// The fence.
        fence: Object,
    },
    /// A time was asked of a fence whose work has not finished.
    #[error("{fence} is not complete yet")]
    NotReady {
        /// The fence.
        fence: Object,
    },
    /// A time was asked of a fence that was made without timing, or without a clock.
    #[error("{fence} was made without {asked}")]
    TimingDisabled {
        /// The fence.
        fence: Object,
        /// What it lacks.
        asked: Timing,
    },
    /// A time was asked of a point of a timeline that was made without timestamps, or of no timeline.
    #[error("{timeline} was made without timestamps: it does not tell when it reached {value}")]
    TimesNotEnabled {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
    },
    /// A time was asked of a point that is not reached.
    #[error(
        "{timeline} has not reached {value} yet, so there is no time at which it did: it stands at {reached}"
    )]
    NotReached {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
        /// The value it has.
        reached: u64,
    },
    /// A time was asked of a point that was reached too many signals ago.
    #[error(
        "{timeline} does not remember when it reached {value}: it keeps the times of its last {kept} signals, now from that of {oldest} on"
    )]
    TimeForgotten {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
        /// How many signals it remembers.
        kept: usize,
        /// The value of the oldest of these.
        oldest: u64,
    },
    /// A time was asked of a point whose signal another process makes, and it has not come from there: a moment later it has, or nobody is there to tell it.
    #[error(
        "{timeline} has reached {value}, and the process that signals it has not told yet when: ask again"
    )]
    TimeNotTold {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
    },
    /// A time was asked of a point whose signal has none.
    #[error("nobody wrote when {timeline} reached {value}: {reason}")]
    NoTime {
        /// The timeline.
        timeline: Object,
        /// The value asked about.
        value: u64,
        /// Who signalled it, as far as that is known.
        reason: String,
    },
    /// The time between two fences was asked which write times of different kinds.
    #[error(
        "{end} was made with {end_timing} and {start} with {start_timing}: there is no time between them"
    )]
    TimingDiffers {
        /// From which it was asked.
        start: Object,
        /// What that writes.
        start_timing: Timing,
        /// To which it was asked.
        end: Object,
        /// What that writes.
        end_timing: Timing,
    },
    /// A device's clock was not read within the time that there is for it. It can be tried again.
    #[error("{clock} was not read within {waited:?}: {reason}")]
    ClockSilent {
        /// The clock.
        clock: Object,
        /// How long was waited.
        waited: Duration,
        /// What stood in the way.
        reason: String,
    },
    /// A fence that stands for an object of another API was to be recorded.
    #[error(
        "{fence} stands for an object of another API, which only that API signals: it cannot be recorded"
    )]
    ForeignFence {
        /// The fence.
        fence: Object,
    },
    /// A fence was asked for a position, and has none: it belongs to a graph.
    #[error(
        "{fence} was recorded into a graph capture, during which and after which it has no position; record it again outside of one"
    )]
    Captured {
        /// The fence.
        fence: Object,
    },
    /// The graph that a fence belongs to is not being captured any more.
    #[error("the capture that {fence} was recorded in has ended; record it again")]
    CaptureEnded {
        /// The fence.
        fence: Object,
    },
    /// A queue that is being captured into a graph was asked for what has no place in one.
    #[error("{object} cannot {asked} while it is being captured into a graph: {reason}")]
    Capturing {
        /// The queue or stream.
        object: Object,
        /// What it was asked to do.
        asked: String,
        /// Why that cannot be.
        reason: String,
    },
    /// A counter in shared memory shows what no signaller leaves there. Any process that has the page can write to it.
    #[error("{counter} cannot be trusted any more: it shows {found}: {reason}")]
    Corrupted {
        /// The counter.
        counter: Object,
        /// The value that it shows.
        found: u64,
        /// Why that cannot be.
        reason: String,
    },
    /// Another process, or another timeline over the same memory, has failed what both share.
    #[error("{counter} was failed by somebody else: {cause} ({code})")]
    FailedElsewhere {
        /// The counter.
        counter: Object,
        /// The code that they gave.
        code: i64,
        /// What they said of it, as they said it: 512 bytes at the most, of one line.
        cause: String,
    },
    /// Another process will not answer, nor signal, any more.
    #[error("{endpoint} has lost {peer}: {how}", peer = peer(*.process))]
    PeerLost {
        /// The endpoint that it was the other side of; the counter in shared memory, if it was that of another process, which has told it there.
        endpoint: Object,
        /// Its id; 0 if it had not said who it is.
        process: u32,
        /// How it was lost.
        how: PeerLoss,
    },
    /// Another process did not do in time what it was to do. Nothing has changed, and it can be tried again.
    #[error("{endpoint}: {peer} did not {awaited} within {waited:?}", peer = peer(*.process))]
    PeerSilent {
        /// The endpoint that it is the other side of.
        endpoint: Object,
        /// Its id; 0 if it has not said who it is.
        process: u32,
        /// What it was to do; where an object was waited for, with those that it offers instead.
        awaited: Cow<'static, str>,
        /// How long was waited, at least as long as asked.
        waited: Duration,
    },
    /// Another process has sent what cannot be.
    #[error("{endpoint} expected {expected}, and was sent {found}")]
    Message {
        /// The endpoint that it came to.
        endpoint: Object,
        /// What had to come.
        expected: String,
        /// What was found instead.
        found: String,
    },
    /// A binary semaphore's payload cannot be replaced, or given away, as things are. Nothing has changed.
    #[error("{semaphore} cannot {asked}: {by}")]
    PayloadInUse {
        /// The semaphore.
        semaphore: Object,
        /// What it was asked to do.
        asked: String,
        /// What stands in the way.
        by: PayloadUse,
    },
    /// A handle was refused.
    #[error("{object} cannot import {what}: {reason}")]
    Import {
        /// What was to take it: a device, or the point of a timeline that an eventfd was to hear of.
        object: Object,
        /// What was offered.
        what: String,
        /// What was found instead.
        reason: String,
    },
}

/// The other side of an endpoint, in words.
fn peer(process: u32) -> String {
    match process {
        0 => "the other side".into(),
        id => format!("process {id}"),
    }
}

impl Error {
    /// Wraps an application's own error, for work to return. A panic of that where the last of these is dropped goes no further than the panic
    /// hook.
    pub fn work(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Work(WorkError {
            error: Arc::new(Own(Some(error))),
            queue: None,
        })
    }

    /// What a call of the system's has said.
    pub(crate) fn system(object: &Object, call: &'static str, errno: rustix::io::Errno) -> Self {
        Self::Native {
            object: object.clone(),
            call,
            code: i64::from(errno.raw_os_error()),
            name: errno.to_string(),
        }
    }

    /// As it came out of work on `queue`.
    pub(crate) fn on(mut self, queue: &Object) -> Self {
        if let Self::Work(WorkError { queue: known, .. }) = &mut self {
            known.get_or_insert_with(|| queue.clone());
        }
        self
    }

    /// True for a wait that ended early; nothing has changed then, and it can be repeated.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::PeerSilent { .. })
    }

    /// The original cause: this error itself, unless it is [`Error::Failed`] or [`Error::Skipped`], which only report
    /// another one.
    #[must_use]
    pub fn root(&self) -> &Self {
        let mut root = self;
        while let Self::Failed { cause, .. } | Self::Skipped { cause, .. } = root {
            root = cause;
        }
        root
    }

    /// The failure to pass on: the first cause if this error only reports one.
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
        /// It tells its source itself.
        tells: bool,
    }

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the scene is broken")?;
            if self.tells {
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

    fn failed(label: &str, cause: Error) -> Error {
        Error::Failed {
            timeline: Object::new("timeline", label),
            value: 1,
            cause: Arc::new(cause),
        }
    }

    /// The texts of an error and of all its sources.
    fn texts(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
        let chain = std::iter::successors(Some(error), |&error| error.source());
        chain.map(ToString::to_string).collect()
    }

    /// One error of each variant that holds another one or comes from a call of the system's.
    fn all() -> Vec<(Error, &'static str)> {
        let not_a_number = || "x".parse::<u8>().unwrap_err();
        let outer = |tells| {
            let source = not_a_number();
            Error::work(Outer { source, tells })
        };
        let native = Error::Native {
            object: Object::new("device", "gpu"),
            call: "vkQueueSubmit",
            code: -4,
            name: "VK_ERROR_DEVICE_LOST".into(),
        };
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

    /// As a report does that prints an error and then each source of it.
    #[test]
    fn no_text_of_a_source_stands_in_the_text_before_it() {
        let check = |error: &Error, part: &str| {
            let handle = Rejected {
                handle: (),
                error: error.clone(),
            };
            for texts in [texts(error), texts(&handle)] {
                for (n, text) in texts.iter().enumerate() {
                    let told = |before: &String| before.contains(text);
                    assert!(!texts[..n].iter().any(told), "told twice: {texts:#?}");
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

    /// The derive gives a source to a variant with one of these. No variant is left out.
    #[test]
    fn no_variant_has_a_source() {
        let code = include_str!("error.rs");
        let (code, _) = code.split_once("mod tests {").unwrap();
        for word in ["#[source]", "#[from]", "source: ", "transparent"] {
            assert!(!code.contains(word), "{word}");
        }
    }

    #[test]
    fn the_root_is_the_original_cause() {
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
