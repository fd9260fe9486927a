//! Checks that Perfetto's importer accepts a whole trace.
//!
//! The importer drops events that it does not understand, and only counts them. So a trace may open
//! and lack half of its content. [`trace`] finds events that would be dropped, cut, bound to
//! another slice, or that depend on the importer's version:
//!
//! * the fields that each kind of event needs, and their types;
//! * slices of one thread that overlap without one lying inside the other, or lie too deep;
//! * beginnings without ends and ends without beginnings, of slices and of asynchronous slices;
//! * flows: each has one start and one end of the same id, category and name, both bound to a
//!   slice, and the end not before the start;
//! * control characters in names, at which some versions stop reading.
//!
//! Slices of [`perfetto`](crate::perfetto) state the errors of their times in the arguments
//! (`began_ns`, `ended_ns` and their `…_error_ns`). For such slices it also checks that no flow
//! ends earlier than it began, beyond these errors.

mod events;
mod together;

use std::fmt;

use serde_json::Value;

use events::Check;

/// What a valid trace contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// All events.
    pub events: usize,
    /// Slices of threads, without instants.
    pub slices: usize,
    /// Instants.
    pub instants: usize,
    /// Asynchronous slices.
    pub asynchronous: usize,
    /// Flows, each of which is one arrow.
    pub flows: usize,
    /// Threads with a name.
    pub threads: usize,
    /// Processes with a name.
    pub processes: usize,
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}{kind}", Where(*.event))]
pub struct Problem {
    /// The event's index among `traceEvents`. `None` if the problem concerns the whole trace.
    pub event: Option<usize>,
    /// What is wrong.
    pub kind: Kind,
}

struct Where(Option<usize>);

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(event) => write!(f, "event {event}: "),
            None => Ok(()),
        }
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// It is neither an array of events nor an object with one named `traceEvents`.
    #[error("neither an array of events nor an object that has one as \"traceEvents\"")]
    NoEvents,
    /// An event is not an object.
    #[error("not an object")]
    NotAnObject,
    /// A field is missing.
    #[error("phase {phase:?} needs the field {field:?}")]
    Missing {
        /// The event's phase.
        phase: char,
        /// The field.
        field: &'static str,
    },
    /// A field has the wrong type or range.
    #[error("the field {field:?} is {found}, and should be {expected}")]
    Wrong {
        /// The field.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is, as JSON.
        found: String,
    },
    /// A phase that the importer ignores.
    #[error("the phase {0:?} is not known")]
    Phase(String),
    /// A metadata event whose name says nothing to the importer.
    #[error("metadata {0:?} is not known")]
    Metadata(String),
    /// A control character in a name or category.
    #[error("a control character in the field {0:?}")]
    Control(&'static str),
    /// Two slices of one thread overlap, and neither lies in the other.
    #[error("overlaps event {0} on the same thread without lying inside it")]
    Overlap(usize),
    /// More slices lie in each other than the importer takes.
    #[error("lies in more than {DEEPEST} other slices")]
    TooDeep,
    /// A beginning whose end is missing.
    #[error("begins and never ends")]
    Unended,
    /// An end whose beginning is missing, or comes later.
    #[error("ends what has not begun")]
    Unbegun,
    /// A flow whose end is missing.
    #[error("a flow that never ends")]
    FlowUnended,
    /// A flow whose start is missing, or comes later.
    #[error("a flow that ends, or goes on, before it has started")]
    FlowUnstarted,
    /// Two flows of one id, category and name.
    #[error("a second flow of the same id, category and name")]
    FlowTwice,
    /// No slice of the thread encloses the flow's event.
    #[error("a flow's event that no slice of its thread encloses")]
    FlowUnbound,
    /// A slice of the thread begins at the same time as the flow's event.
    ///
    /// Versions of the importer differ in which of the two they take first.
    #[error(
        "a flow's event at the time at which event {0} begins, which it may be bound to or not"
    )]
    FlowAtBoundary(usize),
    /// The slice at the flow's start begins later than the slice at its end.
    ///
    /// The viewer turns the arrow then.
    #[error(
        "the flow's arrow would be turned, as it ends in a slice that began before the one that it starts in (event {0})"
    )]
    FlowTurned(usize),
    /// The signal ended later than the wait began, beyond the stated errors of both.
    #[error("the flow runs back in time by {nanoseconds} ns beyond the stated errors")]
    FlowBackwards {
        /// By how much.
        nanoseconds: i128,
    },
}

/// The importer's limit.
const DEEPEST: usize = 512;

/// Checks a trace.
///
/// # Errors
///
/// All problems, in the order of the events. An event that lacks a field is left out of the checks
/// that concern several events.
pub fn trace(json: &str) -> Result<Contents, Vec<Problem>> {
    let whole = |kind| vec![Problem { event: None, kind }];
    let value: Value =
        serde_json::from_str(json).map_err(|error| whole(Kind::Syntax(error.to_string())))?;
    let events = match &value {
        Value::Array(events) => events,
        Value::Object(fields) => match fields.get("traceEvents") {
            Some(Value::Array(events)) => events,
            _ => return Err(whole(Kind::NoEvents)),
        },
        _ => return Err(whole(Kind::NoEvents)),
    };
    let mut check = Check::default();
    for (index, event) in events.iter().enumerate() {
        check.event(index, event);
    }
    check.together();
    check.problems.sort_by_key(|problem| problem.event);
    if check.problems.is_empty() {
        check.contents.events = events.len();
        Ok(check.contents)
    } else {
        Err(check.problems)
    }
}
