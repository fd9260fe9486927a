//! E5, Q5, T1, T7: every kind of wrong submission, alone and beside right ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use syncline::{Error, Signal, error::Object};

use super::super::cause;
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::user::{Point, Queue, Timeline};
use crate::{Subject, World, patience};

cases! {
    "rejected.every_wrong_submission": [E5 Q5 T1 T2 T7] => every_wrong;
}

/// A wrong submission and its expected error.
pub(super) struct Wrong<'t, S: Subject> {
    pub(super) what: &'static str,
    pub(super) waits: Vec<Point<'t, S>>,
    pub(super) signals: Vec<Signal<'t>>,
    pub(super) work: Work,
    /// The object that the error names. An application's own error may name anything.
    names: Option<&'t Object>,
    is: fn(&Error) -> bool,
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
    holder.submit(&[gate.at(1)], |_| Ok(()), &[claimed.signal_at(10)])?;
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
    fn signal<'t>(
        &self,
        what: &'static str,
        of: &'t Timeline<S>,
        value: u64,
        is: fn(&Error) -> bool,
    ) -> Wrong<'t, S> {
        Wrong {
            what,
            waits: Vec::new(),
            signals: vec![of.signal_at(value)],
            work: Work::Fine,
            names: Some(of.object()),
            is,
        }
    }

    fn wait<'t>(
        &self,
        what: &'static str,
        of: &'t Timeline<S>,
        value: u64,
        is: fn(&Error) -> bool,
    ) -> Wrong<'t, S> {
        Wrong {
            waits: vec![of.at(value)],
            signals: Vec::new(),
            ..self.signal(what, of, value, is)
        }
    }

    pub(super) fn wrong(&self) -> Vec<Wrong<'_, S>> {
        use Error as E;
        let (line, claimed) = (&self.line, &self.claimed);
        let (failed, narrow) = (&self.failed, &self.narrow);
        vec![
            self.signal("to all ones", line, u64::MAX, |e| {
                matches!(
                    e,
                    E::ValueOutOfRange {
                        asked: u64::MAX,
                        reached: 5,
                        ..
                    }
                )
            }),
            self.signal("beyond the limit", narrow, 101, |e| {
                matches!(
                    e,
                    E::ValueOutOfRange {
                        asked: 101,
                        reached: 0,
                        largest: 100,
                        ..
                    }
                )
            }),
            self.signal("back", line, 3, |e| {
                matches!(
                    e,
                    E::SignalNotAboveReached {
                        asked: 3,
                        reached: 5,
                        ..
                    }
                )
            }),
            self.signal("to where it is", line, 5, |e| {
                matches!(
                    e,
                    E::SignalNotAboveReached {
                        asked: 5,
                        reached: 5,
                        ..
                    }
                )
            }),
            self.signal("to 0", line, 0, |e| {
                matches!(
                    e,
                    E::SignalNotAboveReached {
                        asked: 0,
                        reached: 5,
                        ..
                    }
                )
            }),
            self.signal("into a claim", claimed, 7, |e| {
                matches!(
                    e,
                    E::SignalOverlapsClaim {
                        asked: 7,
                        above: 0,
                        upto: 10,
                        ..
                    }
                )
            }),
            self.signal("onto a claim", claimed, 10, |e| {
                matches!(
                    e,
                    E::SignalOverlapsClaim {
                        asked: 10,
                        above: 0,
                        upto: 10,
                        ..
                    }
                )
            }),
            self.signal(
                "what has failed",
                failed,
                1,
                |e| matches!(e, E::Failed { cause, .. } if cause.to_string().contains("before")),
            ),
            Wrong {
                signals: vec![line.signal_at(6), line.signal_at(8)],
                ..self.signal("twice", line, 8, |e| {
                    matches!(e, E::DuplicateSignal { asked: 8, .. })
                })
            },
            Wrong {
                waits: vec![line.at(9)],
                ..self.signal("behind its own wait", line, 8, |e| {
                    matches!(
                        e,
                        E::SignalBehindOwnWait {
                            asked: 8,
                            waited: 9,
                            ..
                        }
                    )
                })
            },
            Wrong {
                waits: vec![line.at(7), line.at(8), line.at(6)],
                ..self.signal("its own wait", line, 8, |e| {
                    matches!(
                        e,
                        E::SignalBehindOwnWait {
                            asked: 8,
                            waited: 8,
                            ..
                        }
                    )
                })
            },
            self.wait("waits for all ones", line, u64::MAX, |e| {
                matches!(
                    e,
                    E::ValueOutOfRange {
                        asked: u64::MAX,
                        reached: 5,
                        ..
                    }
                )
            }),
            self.wait("waits beyond the limit", narrow, 101, |e| {
                matches!(
                    e,
                    E::ValueOutOfRange {
                        asked: 101,
                        reached: 0,
                        largest: 100,
                        ..
                    }
                )
            }),
            Wrong {
                waits: Vec::new(),
                signals: Vec::new(),
                work: Work::Fails,
                names: None,
                ..self.signal("fails", line, 6, |e| {
                    matches!(e, E::Work(_)) && e.to_string().contains("by itself")
                })
            },
            Wrong {
                work: Work::Reenters,
                names: Some(self.queue.object()),
                ..self.signal("submits to its own queue", line, 6, |e| {
                    matches!(e, E::Reentrant { .. })
                })
            },
        ]
    }
}

fn every_wrong<S: Subject>(world: &World<S>) -> Verdict {
    const RIGHT: usize = 5;
    let stage = set_up(world)?;
    let right: Vec<_> = (0..RIGHT)
        .map(|nth| world.timeline(&format!("right {nth}")))
        .collect::<syncline::Result<_>>()?;
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
                    Work::Reenters => own.submit(&[], |_| Ok(()), &[]).map(drop),
                },
                &signals,
            );
            let Err(error) = refused else {
                return Stop::fail(format!("a submission that {} is accepted", wrong.what));
            };
            check!(
                (wrong.is)(&error),
                "for one that signals {}: {error}",
                wrong.what
            );
            let text = error.to_string();
            let named = wrong.names.is_none_or(|object| {
                text.contains(object.label()) && text.contains(&format!("#{}", object.id()))
            });
            check!(named, "{:?} is not named in: {text}", wrong.names);
            // No value has changed, and everything that it would have claimed is free.
            check!(
                stage.line.value()? == 5,
                "the value moved to {}",
                stage.line.value()?
            );
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
    check!(
        ran.load(Ordering::SeqCst) == 0,
        "work of a refused submission ran"
    );

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
    stage.queue.submit(&waits, |_| Ok(()), &signals)?;
    stage
        .queue
        .submit(&[], |_| Ok(()), &[stage.line.signal_at(6)])?;
    for line in &right {
        line.at(last).wait(patience())?;
    }
    stage.line.at(6).wait(patience())?;
    stage.queue.idle(patience())?;
    stage.holder.idle(patience())?;
    Ok(())
}
