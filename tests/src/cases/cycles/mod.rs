//! Q4: circles of waiting submissions, and the report of what blocks them.

mod graph;
mod refused;
mod shapes;

use syncline::{
    Error,
    wait::{Blockers, Signaller},
};

use crate::case::Stop;
use crate::user::{Point, Queue, Signal};
use crate::{Case, Subject};

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let parts = [shapes::cases(), refused::cases(), graph::cases()];
    parts.into_iter().flatten().collect()
}

/// Submits waits and signals without work.
fn link<S: Subject>(
    queue: &Queue<S>,
    waits: &[Point<'_, S>],
    signals: &[Signal<'_>],
) -> syncline::Result<()> {
    queue.submit_empty(waits, signals).map(drop)
}

/// Returns the circle that `closing` was refused for. `queue` still has `held` submissions held.
fn circle<S: Subject>(
    queue: &Queue<S>,
    held: usize,
    closing: syncline::Result<()>,
) -> Result<Blockers, Stop> {
    let error = match closing {
        Err(error @ Error::Circular { .. }) => error,
        Ok(()) => return Stop::fail("a submission that can never run was accepted"),
        Err(other) => return Stop::fail(format!("refused, but not for its circle: {other}")),
    };
    let text = error.to_string();
    let Error::Circular {
        queue: at, circle, ..
    } = error
    else {
        return Stop::fail(text);
    };
    if &at != queue.object() || !text.contains(&queue.object().to_string()) {
        return Stop::fail(format!("refused by {queue:?}, it names {at}: {text}"));
    }
    if queue.held().count != held {
        return Stop::fail(format!("{:?} instead of {held}", queue.held()));
    }
    for step in circle.steps() {
        if !text.contains(&format!("{step}")) {
            return Stop::fail(format!("the text leaves {step} out: {text}"));
        }
    }
    Ok(circle)
}

/// Shortens a report to timelines by label, and the queues that are to signal them.
fn told(blockers: &Blockers) -> Vec<(&str, u64, String)> {
    let steps = blockers.steps().iter();
    let short = steps.map(|step| {
        let by = match &step.by {
            Signaller::Held { queue, submission } => format!("{} {submission}", queue.label()),
            Signaller::Host { queue, submission } => {
                format!("host for {} {submission}", queue.label())
            }
            Signaller::Driver { queue } => {
                let queue = queue.as_ref().map_or("?", |queue| queue.label());
                format!("driver for {queue}")
            }
            Signaller::Application => "application".into(),
            Signaller::None => "nothing".into(),
            other => format!("{other}"),
        };
        (step.timeline.label(), step.value, by)
    });
    short.collect()
}

/// Returns the expected result of [`told`].
fn expected<'l>(steps: &[(&'l str, u64, &str)]) -> Vec<(&'l str, u64, String)> {
    let steps = steps
        .iter()
        .map(|&(line, value, by)| (line, value, by.into()));
    steps.collect()
}
