//! E5, Q5, T1, T7: every kind of wrong submission, alone and beside right ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use syncline::{Error, Signal, error::Object};

use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::cause;
use crate::user::{Point, Queue, Timeline};
use crate::{Subject, World, patience};

cases! {
    "rejected.every_wrong_submission": [E5 Q5 T1 T2 T7 Q4] => every_wrong;
}

/// A wrong submission and its expected error.
pub(super) struct Wrong<'t, S: Subject> {
    pub(super) what: &'static str,
    pub(super) waits: Vec<Point<'t, S>>,
    pub(super) signals: Vec<Signal<'t>>,
    pub(super) work: Work,
    /// The object that the error names. An application's own error may name anything.
    names: Option<&'t Object>,
    is: Told,
}

/// The kind of an error, with two of its numbers.
type Told = (&'static str, [u64; 2]);

fn told(error: &Error) -> Option<Told> {
    Some(match *error {
        Error::ValueOutOfRange { asked, reached, .. } => ("out of range", [asked, reached]),
        Error::SignalNotAboveReached { asked, reached, .. } => ("not above", [asked, reached]),
        Error::SignalOverlapsClaim { above, upto, .. } => ("overlaps", [above, upto]),
        Error::DuplicateSignal { asked, .. } => ("duplicate", [asked, 0]),
        Error::SignalBehindOwnWait { asked, waited, .. } => ("own wait", [asked, waited]),
        Error::Failed { value, .. } if error.to_string().contains("before") => {
            ("failed", [value, 0])
        }
        Error::Work(_) if error.to_string().contains("by itself") => ("work", [0, 0]),
        Error::Reentrant { .. } => ("reentrant", [0, 0]),
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Fine,
    Fails,
    Reenters,
}

/// Timelines in all the states that wrong submissions need.
pub(super) struct Stage<S: Subject> {
    /// Its value is 5.
    line: Timeline<S>,
    /// A submission that is held for `gate` claims (0, 10].
    pub(super) claimed: Timeline<S>,
    pub(super) gate: Timeline<S>,
    failed: Timeline<S>,
    /// Its value is 0, with a limit of 100.
    narrow: Timeline<S>,
    pub(super) queue: Queue<S>,
    pub(super) holder: Queue<S>,
}

pub(super) fn set_up<S: Subject>(world: &World<S>) -> Result<Stage<S>, Stop> {
    let (line, failed) = (world.timeline_from("line", 5)?, world.timeline("failed")?);
    let (claimed, gate) = (world.timeline("claimed")?, world.timeline("gate")?);
    failed.fail(cause("before"));
    let holder = world.right_queue("holder")?;
    holder.submit_empty(&[gate.at(1)], &[claimed.signal_at(10)])?;
    let narrow = syncline::Timeline::new("narrow", 0, |initial| {
        let home = world.left.port(initial)?;
        Ok([home.with_max_value_difference(100)].into_iter().collect())
    })?;
    Ok(Stage {
        line,
        claimed,
        gate,
        failed,
        narrow: world.left.own(narrow),
        queue: world.left_queue("left")?,
        holder,
    })
}

impl<S: Subject> Stage<S> {
    pub(super) fn wrong(&self) -> Vec<Wrong<'_, S>> {
        const MAX: u64 = u64::MAX;
        let (line, claimed) = (&self.line, &self.claimed);
        let (failed, narrow) = (&self.failed, &self.narrow);
        let rows: [(_, _, &[u64], &[u64], Told); 13] = [
            ("to all ones", line, &[], &[MAX], ("out of range", [MAX, 5])),
            (
                "beyond the limit",
                narrow,
                &[],
                &[101],
                ("out of range", [101, 0]),
            ),
            ("back", line, &[], &[3], ("not above", [3, 5])),
            ("to where it is", line, &[], &[5], ("not above", [5, 5])),
            ("to 0", line, &[], &[0], ("not above", [0, 5])),
            ("into a claim", claimed, &[], &[7], ("overlaps", [0, 10])),
            ("onto a claim", claimed, &[], &[10], ("overlaps", [0, 10])),
            ("what has failed", failed, &[], &[1], ("failed", [1, 0])),
            ("twice", line, &[], &[6, 8], ("duplicate", [8, 0])),
            (
                "behind its own wait",
                line,
                &[9],
                &[8],
                ("own wait", [8, 9]),
            ),
            ("its own wait", line, &[7, 8, 6], &[8], ("own wait", [8, 8])),
            (
                "and waits for all ones",
                line,
                &[MAX],
                &[],
                ("out of range", [MAX, 5]),
            ),
            (
                "and waits beyond the limit",
                narrow,
                &[101],
                &[],
                ("out of range", [101, 0]),
            ),
        ];
        let mut all: Vec<_> = rows
            .into_iter()
            .map(|(what, of, waits, signals, is)| Wrong {
                what,
                waits: waits.iter().map(|&value| of.at(value)).collect(),
                signals: signals.iter().map(|&value| of.signal_at(value)).collect(),
                work: Work::Fine,
                names: Some(of.object()),
                is,
            })
            .collect();
        all.push(Wrong {
            what: "and fails",
            waits: Vec::new(),
            signals: Vec::new(),
            work: Work::Fails,
            names: None,
            is: ("work", [0, 0]),
        });
        all.push(Wrong {
            what: "and submits to its own queue",
            waits: Vec::new(),
            signals: vec![line.signal_at(6)],
            work: Work::Reenters,
            names: Some(self.queue.object()),
            is: ("reentrant", [0, 0]),
        });
        all
    }
}

fn every_wrong<S: Subject>(world: &World<S>) -> Verdict {
    const RIGHT: usize = 5;
    let stage = set_up(world)?;
    let right = world.numbered(RIGHT, "right")?;
    let ran = Arc::new(AtomicU32::new(0));
    let mut rounds = 0;
    for wrong in stage.wrong() {
        // Alone, and then first, in the middle and last among right signals.
        for place in [None, Some(0), Some(2), Some(RIGHT)] {
            let value = 10 * (rounds + 1);
            let mut signals: Vec<_> = match place {
                Some(_) => right.iter().map(|line| line.signal_at(value)).collect(),
                None => Vec::new(),
            };
            let at = place.unwrap_or(0);
            signals.splice(at..at, wrong.signals.iter().copied());
            let (ran, work, own) = (ran.clone(), wrong.work, stage.queue.clone());
            let refused = stage.queue.submit(
                &wrong.waits,
                move |_| match work {
                    Work::Fine => {
                        ran.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    }
                    Work::Fails => Err(cause("by itself")),
                    Work::Reenters => own.submit_empty(&[], &[]).map(drop),
                },
                &signals,
            );
            let Err(error) = refused else {
                return Stop::fail(format!(
                    "a submission that signals {} is accepted",
                    wrong.what
                ));
            };
            check_eq!(told(&error), Some(wrong.is), "{}: {error}", wrong.what);
            let text = error.to_string();
            let named = wrong.names.is_none_or(|object| {
                text.contains(object.label()) && text.contains(&format!("#{}", object.id()))
            });
            check!(named, "{:?} is not named in: {text}", wrong.names);
            // No value has changed, and everything that it would have claimed is free.
            check_eq!(stage.line.value()?, 5);
            check!(stage.queue.held().count == 0, "something of it is held");
            if place.is_some() {
                for line in &right {
                    check!(
                        line.value()? == rounds,
                        "{} of a refused submission stands at {}",
                        line.object(),
                        line.value()?
                    );
                    line.signal(rounds + 1)?;
                }
                rounds += 1;
            }
        }
    }
    check_eq!(ran.load(Ordering::SeqCst), 0);

    // A fence of another device.
    if world.is_pair() {
        let fence = world.right.fence("the other's");
        check_error!(
            stage.queue.record(&fence),
            Error::WrongDevice { object, .. } if object == *fence.object()
        );
    }
    stage.gate.signal(1)?;
    stage.claimed.at(10).wait(patience())?;
    let last = 1000 * (rounds + 1);
    let signals: Vec<_> = right.iter().map(|line| line.signal_at(last)).collect();
    let waits = [stage.claimed.at(10), stage.line.at(5)];
    stage.queue.submit_empty(&waits, &signals)?;
    stage.queue.submit_empty(&[], &[stage.line.signal_at(6)])?;
    for line in &right {
        line.at(last).wait(patience())?;
    }
    stage.line.at(6).wait(patience())?;
    stage.queue.idle(patience())?;
    stage.holder.idle(patience())?;
    Ok(())
}
