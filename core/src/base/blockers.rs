//! Answers to "who waits for whom", as data.

use std::fmt;
use std::sync::Arc;

use crate::base::error::Object;

/// How many steps an answer has before those that it leaves out.
pub(crate) const FIRST: usize = 16;

/// Who waits for whom, from the points asked about to those that could move next.
///
/// First come the points themselves and what is to signal them, then what those signallers wait for,
/// and so on. A long answer has its first 16 steps and 16 of its last ones, with the number of those
/// [left out](Blockers::left_out) between them. Of the last ones, those stay that need something from
/// outside the engine: a signal that nothing has claimed yet, an application's claim, a failure.
///
/// A snapshot of what the engine knows. [`Display`](fmt::Display) writes one clause per step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blockers(Option<Arc<Answer>>);

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    steps: Box<[Step]>,
    /// How many steps are left out behind the first [`FIRST`].
    left_out: usize,
}

/// One point that has not been reached, and what is to signal it.
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
    /// What is to signal it.
    pub by: Signaller,
}

/// What is to signal a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signaller {
    /// A driver, which has all it needs.
    Driver {
        /// The queue whose submission signals the timeline last, if it is one of Syncline's.
        queue: Option<Object>,
    },
    /// A submission that is held on the host. What it waits for follows in the list.
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
    /// Something beyond the engine: the other end of a descriptor, or another user of an imported timeline.
    Outside,
    /// Nothing has claimed the value yet.
    Nobody,
    /// Nothing ever will: the timeline has failed, or its last handle has gone.
    Never {
        /// The first cause of the failure, in words.
        cause: String,
    },
}

impl Signaller {
    /// True if the value comes without any action from outside the engine, as far as this step goes.
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
        Self::with_gap(steps, 0)
    }

    /// An answer that leaves `left_out` steps out behind the first [`FIRST`].
    pub(crate) fn with_gap(steps: Vec<Step>, left_out: usize) -> Self {
        let steps = steps.into_boxed_slice();
        Self((!steps.is_empty()).then(|| Arc::new(Answer { steps, left_out })))
    }

    /// The steps. What a held submission waits for comes after the step that names it.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        self.0.as_ref().map_or(&[], |answer| &answer.steps)
    }

    /// How many steps are left out between the 16th step and the next one: 0 in a short answer.
    /// Where thousands of submissions are held, at least so many.
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
            by,
            ..
        } = self;
        write!(f, "{timeline} (at {reached}) ")?;
        match by {
            Signaller::Nobody => write!(f, "has no signal for {value} yet"),
            Signaller::Never { cause } => write!(f, "will never reach {value}: {cause}"),
            by => write!(f, "is to be signalled to {value} by {by}"),
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
            Self::Outside => f.write_str("something outside the engine"),
            Self::Application => f.write_str("the application, which has claimed the value"),
            Self::Nobody => f.write_str("nothing yet"),
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step, and what is told of it, for each signaller.
    #[test]
    fn every_signaller_stands_in_a_sentence() {
        let [line, queue] = ["line", "queue"].map(|kind| Object::new(kind, "x"));
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
            (Signaller::Outside, by("something outside the engine")),
            (Signaller::Nobody, "has no signal for 2 yet".into()),
            (
                Signaller::Never { cause },
                "will never reach 2: it broke".into(),
            ),
        ];
        let mut steps = Vec::new();
        for (by, told) in &all {
            let step = Step {
                timeline: line.clone(),
                value: 2,
                reached: 1,
                pending: 1,
                by: by.clone(),
            };
            assert_eq!(step.to_string(), format!("{line} (at 1) {told}"));
            steps.push(step);
        }
        let text = Blockers::new(steps).to_string();
        assert_eq!(text.split("; ").count(), all.len(), "{text}");
    }
}
