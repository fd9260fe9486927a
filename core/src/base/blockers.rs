//! The answer to "what blocks this point?", as data.

use std::fmt;
use std::sync::Arc;

use crate::base::object::Object;

/// The number of steps in front of those that a long answer leaves out.
pub(crate) const FIRST: usize = 16;

/// What blocks some points: the waits from these points to the signals that must come next.
///
/// The first steps are the points themselves with their signallers. The next steps are what those
/// signallers wait for, and so on.
///
/// A long answer has its first 16 steps and 16 of its last steps.
/// [`left_out`](Blockers::left_out) is the number of steps between them. The last steps are chosen
/// so that those which need an action from outside the engine are kept: an unclaimed signal, an
/// application's claim, a failure.
///
/// The text also names each device of this process that is known to be lost (E3), whether or not a
/// step depends on it.
///
/// A snapshot of what the engine knows. [`Display`](fmt::Display) writes one clause per step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blockers(Option<Arc<Answer>>);

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    steps: Box<[Step]>,
    /// The number of steps that are left out after the first [`FIRST`].
    left_out: usize,
    /// The errors of the devices that are lost.
    lost: Box<[String]>,
}

/// One point that has not been reached, with its signaller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// The timeline.
    pub timeline: Object,
    /// The value waited for.
    pub value: u64,
    /// The value it has.
    pub reached: u64,
    /// The highest pending value.
    pub pending: u64,
    /// The highest value that others have promised to signal (T2), if there is one.
    pub promised: Option<u64>,
    /// What will signal the value.
    pub by: Signaller,
}

/// What will signal a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signaller {
    /// A driver. The signal is pending.
    Driver {
        /// The queue whose submission signals the timeline last, if it is a queue of Syncline.
        queue: Option<Object>,
    },
    /// A held submission. The points that it waits for follow in the list.
    Held {
        /// Its queue.
        queue: Object,
        /// Its number on that queue, from 1.
        submission: u64,
    },
    /// The host, when a submission that the driver has is finished (relay, Q3).
    Host {
        /// The submission's queue.
        queue: Object,
        /// Its number on that queue, from 1.
        submission: u64,
    },
    /// The application, which has claimed the value, or a signal that is being made now.
    Application,
    /// Another process, which signals the timeline by the plan of its processes.
    Process {
        /// The process id.
        id: u32,
    },
    /// The other end of a descriptor, or others that signal an adopted or imported timeline.
    Outside,
    /// No submission has claimed the value yet.
    None,
    /// Nothing: the timeline has failed, or its last handle was dropped.
    Never {
        /// The first cause of the failure, in words.
        cause: String,
    },
}

impl Signaller {
    /// True if this step needs no action from outside the engine.
    pub(crate) const fn goes_by_itself(&self) -> bool {
        matches!(
            self,
            Self::Driver { .. } | Self::Held { .. } | Self::Host { .. }
        )
    }
}

impl Blockers {
    /// An answer with all of its steps.
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        Self::with_gap(steps, 0, Vec::new())
    }

    /// An answer that leaves out `left_out` steps after the first [`FIRST`].
    ///
    /// `lost` are the errors of lost devices. An answer without steps does not have them.
    pub(crate) fn with_gap(steps: Vec<Step>, left_out: usize, lost: Vec<String>) -> Self {
        if steps.is_empty() {
            return Self(None);
        }
        Self(Some(Arc::new(Answer {
            steps: steps.into(),
            left_out,
            lost: lost.into(),
        })))
    }

    /// The steps. The points that a held submission waits for come after the step that names it.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        self.0.as_ref().map_or(&[], |answer| &answer.steps)
    }

    /// The number of steps that are left out after the 16th step; 0 in a short answer.
    ///
    /// A lower bound if thousands of submissions are held.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.0.as_ref().map_or(0, |answer| answer.left_out)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            timeline,
            value,
            reached,
            promised,
            by,
            ..
        } = self;
        write!(f, "{timeline} (at {reached}) ")?;
        match by {
            Signaller::None => write!(f, "has no signal for {value} yet"),
            Signaller::Never { cause } => write!(f, "will never reach {value}: {cause}"),
            by => write!(f, "is to be signalled to {value} by {by}"),
        }?;
        match promised {
            Some(promised) => write!(f, ", and others have promised it up to {promised}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Signaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver { queue: Some(queue) } => {
                write!(f, "the driver, which has the submission of {queue}")
            }
            Self::Driver { queue: None } => f.write_str("the driver"),
            Self::Held { queue, submission } => {
                write!(f, "submission {submission} of {queue}, which is held")
            }
            Self::Host { queue, submission } => write!(
                f,
                "the host, once submission {submission} of {queue} is done"
            ),
            Self::Process { id } => write!(f, "process {id}"),
            Self::Outside => f.write_str("something outside the engine"),
            Self::Application => f.write_str("the application, which has claimed the value"),
            Self::None => f.write_str("nothing yet"),
            Self::Never { cause } => write!(f, "nothing any more: {cause}"),
        }
    }
}

impl fmt::Display for Blockers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps().iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            if index == FIRST && self.left_out() > 0 {
                write!(f, "({} steps are left out here); ", self.left_out())?;
            }
            write!(f, "{step}")?;
        }
        for lost in self.0.iter().flat_map(|answer| &answer.lost) {
            write!(f, "; {lost}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_has_a_clause_for_each_signaller() {
        let [timeline, queue] = ["timeline", "queue"].map(|kind| Object::new(kind, "x"));
        let submission = 3;
        let named = Some(queue.clone());
        let cause = "it broke".to_owned();
        let held = Signaller::Held {
            queue: queue.clone(),
            submission,
        };
        let host = Signaller::Host {
            queue: queue.clone(),
            submission,
        };
        let by = |what: &str| format!("is to be signalled to 2 by {what}");
        let all = [
            (
                Signaller::Driver { queue: named },
                by(&format!("the driver, which has the submission of {queue}")),
            ),
            (Signaller::Driver { queue: None }, by("the driver")),
            (held, by(&format!("submission 3 of {queue}, which is held"))),
            (
                host,
                by(&format!("the host, once submission 3 of {queue} is done")),
            ),
            (
                Signaller::Application,
                by("the application, which has claimed the value"),
            ),
            (Signaller::Process { id: 7 }, by("process 7")),
            (Signaller::Outside, by("something outside the engine")),
            (Signaller::None, "has no signal for 2 yet".into()),
            (
                Signaller::Never { cause },
                "will never reach 2: it broke".into(),
            ),
        ];
        let mut steps = Vec::new();
        for (by, clause) in &all {
            let step = Step {
                timeline: timeline.clone(),
                value: 2,
                reached: 1,
                pending: 1,
                promised: None,
                by: by.clone(),
            };
            assert_eq!(step.to_string(), format!("{timeline} (at 1) {clause}"));
            steps.push(step);
        }
        let promised = Step {
            promised: Some(1),
            ..steps[1].clone()
        };
        let expected = format!("{}, and others have promised it up to 1", steps[1]);
        assert_eq!(promised.to_string(), expected);
        let text = Blockers::new(steps).to_string();
        assert_eq!(text.split("; ").count(), all.len(), "{text}");
    }
}
