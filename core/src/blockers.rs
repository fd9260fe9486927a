//! Answers to "who waits for whom".

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use crate::error::Object;
use crate::graph;
use crate::state::{Shared, Standing};

/// How many steps an answer has at most.
const LONGEST: usize = 32;

/// Who waits for whom, from the point asked about to those that could move next: first the point itself and
/// who is to signal it, then what that submission waits for, and so on. Long answers are cut short.
///
/// A snapshot of what the engine knows. [`Display`](fmt::Display) writes one clause per step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blockers(Arc<[Step]>);

/// One point that has not been reached, and who is to bring it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The timeline.
    pub timeline: Object,
    /// The value waited for.
    pub value: u64,
    /// The value it has.
    pub reached: u64,
    /// The highest value on its way without further host action.
    pub pending: u64,
    /// Who is to signal it.
    pub by: Signaller,
}

/// Who is to signal a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signaller {
    /// A driver, which has all it needs.
    Driver {
        /// The queue whose submission signals the timeline last, if it is one of Syncline's.
        queue: Option<Object>,
    },
    /// A submission that is held on the host; what it waits for follows in the list.
    Held {
        /// Its queue.
        queue: Object,
        /// Its number on that queue, from 1.
        submission: u64,
    },
    /// The host, once a submission that is with the driver has finished.
    Host {
        /// The submission's queue.
        queue: Object,
        /// Its number on that queue, from 1.
        submission: u64,
    },
    /// A submission that the application makes itself and has claimed the value for, or a signal in the making.
    Application,
    /// Somebody beyond the engine: whoever holds the other end of a descriptor, or another user of an imported timeline.
    Outside,
    /// Nobody has claimed the value yet.
    Nobody,
    /// Nobody ever will: the timeline has failed, or its last handle has gone.
    Never {
        /// The first cause of the failure, in words.
        cause: String,
    },
}

impl Blockers {
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        Self(steps.into())
    }

    /// The steps. What a held submission waits for comes after the step that names it.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.0
    }
}

pub(crate) fn step(of: &Shared, value: u64, by: Signaller) -> Step {
    Step {
        timeline: of.object.clone(),
        value,
        reached: of.reached(),
        pending: of.pending(),
        by,
    }
}

/// Why `value` of `of` has not come yet.
///
/// Breadth first: every point in question, then what its signaller waits for.
pub(crate) fn blockers(of: &Arc<Shared>, value: u64) -> Blockers {
    let mut steps = Vec::new();
    let mut next = VecDeque::from([(of.clone(), value)]);
    let mut told: BTreeSet<(u64, u64)> = BTreeSet::new();
    while let Some((of, value)) = next.pop_front() {
        let standing = of.standing(value);
        if matches!(standing, Standing::Reached) || !told.insert((of.object.id(), value)) {
            continue;
        }
        let by = match standing {
            Standing::Pending => Signaller::Driver {
                queue: of.last_submitter(),
            },
            Standing::Failed(cause) => Signaller::Never {
                cause: cause.to_string(),
            },
            Standing::Cancelled => Signaller::Never {
                cause: of.cancelled(value).to_string(),
            },
            Standing::Reached | Standing::Open => match graph::signaller(&of, value) {
                Some((by, waits)) => {
                    next.extend(waits);
                    by
                }
                None if of.is_signalled_outside() => Signaller::Outside,
                None if of.is_claimed(value) => Signaller::Application,
                None => Signaller::Nobody,
            },
        };
        steps.push(step(&of, value, by));
        if steps.len() == LONGEST {
            break;
        }
    }
    Blockers::new(steps)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            timeline,
            value,
            reached,
            by,
            ..
        } = self;
        write!(f, "{timeline} (at {reached}) is to get to {value} by {by}")
    }
}

impl fmt::Display for Signaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver { queue: Some(queue) } => write!(f, "the driver, from {queue}"),
            Self::Driver { queue: None } => f.write_str("the driver"),
            Self::Held { queue, submission } => {
                write!(f, "submission {submission} of {queue}, which is held")
            }
            Self::Host { queue, submission } => {
                write!(
                    f,
                    "the host, once submission {submission} of {queue} is done"
                )
            }
            Self::Outside => f.write_str("somebody outside"),
            Self::Application => f.write_str("a claim of the application"),
            Self::Nobody => f.write_str("nobody yet"),
            Self::Never { cause } => write!(f, "nobody any more: {cause}"),
        }
    }
}

impl fmt::Display for Blockers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{step}")?;
        }
        Ok(())
    }
}
