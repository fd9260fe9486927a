//! Search for the blockers of a point: the signals that are missing and what they wait for.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::entry;
use crate::base::blockers::{Blockers, FIRST, Signaller, Step};
use crate::timeline::point::Point;
use crate::timeline::state::{Shared, Standing};

/// The number of steps in an answer after those that it leaves out.
const LAST: usize = 16;

/// The number of steps that are searched one by one.
///
/// After that only the first held submission of each queue is searched. The others wait for it.
const DETAILED: usize = 4096;

impl Point<'_> {
    /// The missing signals of this point and what they wait for. Empty once the point is reached.
    ///
    /// A snapshot for diagnosis: it takes locks, allocates and polls drivers. It may release held
    /// submissions, as [`Point::is_reached`] does.
    #[must_use]
    pub fn blockers(self) -> Blockers {
        self.of.map_or_else(Blockers::default, |of| {
            of.refresh_to(self.value);
            blockers(std::iter::once((of, self.value)))
        })
    }
}

pub(crate) fn step(of: &Shared, value: u64, by: Signaller) -> Step {
    Step {
        timeline: of.object().clone(),
        value,
        reached: of.reached(),
        pending: of.pending(),
        promised: of.last_promise().map(|last| last.upto),
        by,
    }
}

/// The blockers of `points`. The caller has just polled the points themselves.
///
/// Refreshes the timelines that the answer depends on. That may release held submissions on the
/// calling thread, so no lock may be held.
pub(crate) fn blockers<'p>(
    points: impl Iterator<Item = (&'p Arc<Shared>, u64)> + Clone,
) -> Blockers {
    let mut refreshed: BTreeSet<u64> = points.clone().map(|(of, _)| of.object().id()).collect();
    loop {
        let (answer, news) = walk(points.clone(), &mut refreshed);
        // A refresh may have released what the answer names. Each timeline is refreshed once, so
        // this ends.
        if !news {
            return answer;
        }
    }
}

/// The answer, breadth first: each point, then what its signaller waits for.
///
/// True if a timeline that was not yet in `refreshed` had news.
fn walk<'p>(
    points: impl Iterator<Item = (&'p Arc<Shared>, u64)>,
    refreshed: &mut BTreeSet<u64>,
) -> (Blockers, bool) {
    let mut found = Found::default();
    let mut news = false;
    let mut next: Next = points.map(|(of, value)| (of.clone(), value)).collect();
    let mut seen: BTreeSet<(u64, u64)> = BTreeSet::new();
    while let Some((of, value)) = next.pop_front() {
        if !seen.insert((of.object().id(), value)) {
            continue;
        }
        news |= has_news(&of, refreshed);
        let by = match of.standing(value) {
            Standing::Reached => continue,
            Standing::Pending if of.last_promise().is_some_and(|last| last.covers(value)) => {
                Signaller::Outside
            }
            Standing::Pending => Signaller::Driver {
                queue: of.last_submitter(),
            },
            Standing::Failed(cause) => Signaller::Never {
                cause: cause.to_string(),
            },
            Standing::Cancelled => Signaller::Never {
                cause: of.cancelled(value).to_string(),
            },
            Standing::Open => {
                let first_only = found.count > DETAILED;
                let mut by = signaller(&of, value, first_only, &mut next);
                if by.is_none() {
                    for side in of.other_sides() {
                        news |= has_news(&side, refreshed);
                        by = by.or_else(|| other_side(&side, value, first_only, &mut next));
                    }
                }
                by.unwrap_or(Signaller::None)
            }
        };
        found.add(step(&of, value, by));
    }
    (found.into_answer(), news)
}

/// Refreshes a timeline that is not in `refreshed`. True if it had news.
fn has_news(of: &Shared, refreshed: &mut BTreeSet<u64>) -> bool {
    if !refreshed.insert(of.object().id()) {
        return false;
    }
    let before = (of.reached(), of.pending(), of.is_failed());
    of.refresh();
    before != (of.reached(), of.pending(), of.is_failed())
}

/// Points that are still to be searched.
type Next = VecDeque<(Arc<Shared>, u64)>;

/// What will signal `value`, which is not pending. Adds what a held signaller waits for to `next`.
fn signaller(of: &Arc<Shared>, value: u64, first_only: bool, next: &mut Next) -> Option<Signaller> {
    if let Some((by, waits)) = entry::signaller(of, value, first_only) {
        next.extend(waits);
        return Some(by);
    }
    if of.is_signalled_outside() {
        let process = of.signalling_process();
        return Some(process.map_or(Signaller::Outside, |id| Signaller::Process { id }));
    }
    of.is_claimed(value).then_some(Signaller::Application)
}

/// What will signal `value` on `side` of a bridge, from which the bridge carries it.
fn other_side(
    side: &Arc<Shared>,
    value: u64,
    first_only: bool,
    next: &mut Next,
) -> Option<Signaller> {
    match side.standing(value) {
        Standing::Open => signaller(side, value, first_only, next),
        Standing::Reached | Standing::Pending => Some(Signaller::Driver {
            queue: side.last_submitter(),
        }),
        // The bridge fails or closes all sides.
        Standing::Failed(_) | Standing::Cancelled => None,
    }
}

/// The steps found so far, without those in the middle.
#[derive(Default)]
struct Found {
    first: Vec<Step>,
    last: VecDeque<Step>,
    count: usize,
}

impl Found {
    fn add(&mut self, step: Step) {
        self.count += 1;
        if self.first.len() < FIRST {
            self.first.push(step);
            return;
        }
        if self.last.len() == LAST {
            let goes = self.last.iter().position(|step| step.by.goes_by_itself());
            self.last.remove(goes.unwrap_or(0));
        }
        self.last.push_back(step);
    }

    fn into_answer(self) -> Blockers {
        let mut steps = self.first;
        steps.extend(self.last);
        let left_out = self.count - steps.len();
        Blockers::with_gap(steps, left_out, entry::lost_devices())
    }
}
