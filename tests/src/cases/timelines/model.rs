//! T2 against a simple model: claims as a list of intervals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use syncline::{Claim, Error};

use crate::case::{Stop, Verdict, cases};
use crate::cases::cause;
use crate::dice::{Dice, seeds};
use crate::user::{Queue, Timeline};
use crate::{Subject, World, patience};

cases! {
    "timeline.random_claims_against_a_model": [T2 T7 Q5] => random_claims;
}

/// The reason of a refused signal, with the numbers.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    NotAboveReached { reached: u64 },
    Overlaps { above: u64, upto: u64 },
    BehindOwnWait { waited: u64 },
}

impl Refusal {
    /// Returns the refusal that an error reports.
    fn of(error: &Error) -> Option<Self> {
        match *error {
            Error::SignalNotAboveReached { reached, .. } => Some(Self::NotAboveReached { reached }),
            Error::SignalOverlapsClaim { above, upto, .. } => Some(Self::Overlaps { above, upto }),
            Error::SignalBehindOwnWait { waited, .. } => Some(Self::BehindOwnWait { waited }),
            _ => None,
        }
    }
}

/// The owner of a claimed interval.
enum Claimant {
    /// A submission to the queue of that index, held until the gate has the value.
    Submission { queue: usize, gate: u64 },
    /// The application.
    Raw { _claim: Claim },
}

struct Claimed {
    above: u64,
    upto: u64,
    by: Claimant,
}

/// The timeline of T2 in the states in which nothing more can happen.
#[derive(Default)]
struct Model {
    reached: u64,
    gate: u64,
    /// Ordered by value.
    claims: Vec<Claimed>,
}

impl Model {
    /// Returns the value above which a queue's signal claims values.
    fn judge(&self, value: u64, own_wait: u64) -> Result<u64, Refusal> {
        let waited = if own_wait > self.reached { own_wait } else { 0 };
        if waited > 0 && waited >= value {
            return Err(Refusal::BehindOwnWait { waited });
        }
        if value <= self.reached {
            let reached = self.reached;
            return Err(Refusal::NotAboveReached { reached });
        }
        for &Claimed { above, upto, .. } in &self.claims {
            if above < value && value <= upto {
                return Err(Refusal::Overlaps { above, upto });
            }
        }
        let below = self.claims.iter().map(|claim| claim.upto);
        let below = below.filter(|&upto| upto < value).max().unwrap_or(0);
        Ok(below.max(waited).max(self.reached))
    }

    fn judge_host(&self, value: u64) -> Result<(), Refusal> {
        if value <= self.reached {
            let reached = self.reached;
            return Err(Refusal::NotAboveReached { reached });
        }
        match self.claims.first() {
            Some(&Claimed { above, upto, .. }) if above < value => {
                Err(Refusal::Overlaps { above, upto })
            }
            _ => Ok(()),
        }
    }

    fn claim(&mut self, above: u64, upto: u64, by: Claimant) {
        let at = self.claims.partition_point(|claim| claim.upto < upto);
        self.claims.insert(at, Claimed { above, upto, by });
    }

    /// Makes all signals that can be made.
    fn settle(&mut self) {
        while let Some(first) = self.claims.first() {
            let open = matches!(first.by, Claimant::Submission { gate, .. } if gate <= self.gate);
            if !open || first.above > self.reached {
                return;
            }
            self.reached = first.upto;
            self.claims.remove(0);
        }
    }

    fn is_free(&self, queue: usize) -> bool {
        !self
            .claims
            .iter()
            .any(|claim| matches!(claim.by, Claimant::Submission { queue: on, .. } if on == queue))
    }

    /// Returns the next value that no claim signals.
    fn gap(&self) -> Option<u64> {
        let above = self.claims.first()?.above;
        (above > self.reached).then_some(above)
    }
}

fn random_claims<S: Subject>(world: &World<S>) -> Verdict {
    let steps = if world.is_pair() { 100 } else { 250 };
    seeds(4, |dice| Game::new(world)?.play(dice, steps))
}

struct Game<S: Subject> {
    line: Timeline<S>,
    gate: Timeline<S>,
    queues: Vec<Queue<S>>,
    model: Model,
    /// Whether the application can claim.
    claimable: bool,
}

impl<S: Subject> Game<S> {
    fn new(world: &World<S>) -> syncline::Result<Self> {
        let mut queues = Vec::new();
        for n in 0..3 {
            queues.push(world.left_queue(&format!("left {n}"))?);
            queues.push(world.right_queue(&format!("right {n}"))?);
        }
        Ok(Self {
            line: world.timeline("line")?,
            gate: world.timeline("gate")?,
            queues,
            model: Model::default(),
            claimable: true,
        })
    }

    fn play(&mut self, dice: &mut Dice, steps: usize) -> Verdict {
        for step in 0..steps {
            self.step(dice).map_err(|stop| match stop {
                Stop::Failed(why) => Stop::Failed(format!("step {step}: {why}")),
                skipped => skipped,
            })?;
        }
        // An outstanding value can be signalled.
        self.model
            .claims
            .retain(|claim| matches!(claim.by, Claimant::Submission { .. }));
        while !self.model.claims.is_empty() {
            match self.model.gap() {
                Some(value) => self.signal(value)?,
                None => self.open()?,
            }
        }
        for queue in &self.queues {
            queue.idle(patience())?;
        }
        Ok(())
    }

    fn step(&mut self, dice: &mut Dice) -> Verdict {
        // Values close to those that make a difference.
        let reached = self.model.reached;
        let value = (reached + dice.below(14)).saturating_sub(2);
        let own_wait = if dice.one_in(3) {
            (value + 2).saturating_sub(dice.below(6))
        } else {
            0
        };
        let free = (0..self.queues.len()).filter(|&queue| self.model.is_free(queue));
        let free: Vec<usize> = free.collect();
        match dice.below(10) {
            _ if free.is_empty() => match self.model.gap() {
                Some(value) => self.signal(value),
                None => self.open(),
            },
            0 | 1 => self.signal(value),
            2 => self.open(),
            3 if self.claimable => self.claim(value, own_wait),
            4 => {
                let raw = |claim: &Claimed| matches!(claim.by, Claimant::Raw { .. });
                if let Some(at) = self.model.claims.iter().position(raw) {
                    drop(self.model.claims.remove(at));
                }
                self.settle()
            }
            5 => self.reject(free[dice.index(free.len())], value),
            6..=8 => {
                let gate = self.model.gate + 1 + dice.below(3);
                self.submit(free[dice.index(free.len())], value, own_wait, gate)
            }
            _ => self.submit(free[dice.index(free.len())], value, own_wait, 0),
        }
    }

    /// Waits for the value of the model, and checks that the timeline has not passed it.
    fn settle(&mut self) -> Verdict {
        self.model.settle();
        let reached = self.model.reached;
        self.line.at(reached).wait(patience())?;
        let value = self.line.value()?;
        if value != reached {
            return Stop::fail(format!("it is at {value} instead of {reached}"));
        }
        Ok(())
    }

    fn open(&mut self) -> Verdict {
        self.model.gate += 1;
        self.gate.signal(self.model.gate)?;
        self.settle()
    }

    fn signal(&mut self, value: u64) -> Verdict {
        let expected = self.model.judge_host(value);
        let allowed = expected.is_ok();
        agree(
            &format!("a host signal of {value}"),
            expected,
            self.line.signal(value),
        )?;
        if allowed {
            self.model.reached = value;
        }
        self.settle()
    }

    fn submit(&mut self, queue: usize, value: u64, own_wait: u64, gate: u64) -> Verdict {
        let expected = self.model.judge(value, own_wait);
        let waits = [self.gate.at(gate), self.line.at(own_wait)];
        let signals = [self.line.signal_at(value)];
        let found = self.queues[queue].submit_empty(&waits, &signals);
        let what = format!("a signal of {value} behind {own_wait} and gate {gate}");
        if let Some(above) = agree(&what, expected, found.map(|_| ()))? {
            let by = Claimant::Submission { queue, gate };
            self.model.claim(above, value, by);
        }
        self.settle()
    }

    /// Submits work that is recorded at once, and fails.
    fn reject(&mut self, queue: usize, value: u64) -> Verdict {
        let above = match self.model.judge(value, 0) {
            // It would be held, and its work would be called later.
            Ok(above) if above > self.model.reached => return Ok(()),
            Ok(above) => above,
            Err(refused) => {
                let signals = [self.line.signal_at(value)];
                let found = self.queues[queue].submit_empty(&[], &signals);
                let what = format!("a signal of {value}");
                agree(&what, Err::<(), _>(refused), found.map(|_| ()))?;
                return self.settle();
            }
        };
        let signals = [self.line.signal_at(value)];
        // The thread that released the queue's last submission may still be busy. Then it records
        // this one too.
        let (here, refused) = (
            std::thread::current().id(),
            Arc::new(AtomicBool::new(false)),
        );
        let told = refused.clone();
        let found = self.queues[queue].submit(
            &[],
            move |_| {
                let refuse = std::thread::current().id() == here;
                told.store(refuse, Ordering::SeqCst);
                if refuse {
                    Err(cause("refused"))
                } else {
                    Ok(())
                }
            },
            &signals,
        );
        match found {
            Err(Error::Work(_)) => {}
            Ok(_) if !refused.load(Ordering::SeqCst) => {
                let by = Claimant::Submission { queue, gate: 0 };
                self.model.claim(above, value, by);
            }
            other => return Stop::fail(format!("work that failed at {value} gave {other:?}")),
        }
        self.settle()
    }

    fn claim(&mut self, value: u64, own_wait: u64) -> Verdict {
        let expected = self.model.judge(value, own_wait);
        match self.line.claim_after(value, own_wait) {
            Err(Error::Unsupported { .. }) => {
                self.claimable = false;
                Ok(())
            }
            Ok(claim) => {
                let what = format!("a claim of {value} behind {own_wait}");
                if let Some(above) = agree(&what, expected, Ok(()))? {
                    if (claim.predecessor(), claim.value()) != (above, value) {
                        return Stop::fail(format!("{claim:?} instead of ({above}, {value}]"));
                    }
                    let ready = claim.wait_ready(Duration::ZERO).is_ok();
                    if ready != (above <= self.model.reached) {
                        return Stop::fail(format!("{claim:?} is ready: {ready}"));
                    }
                    let by = Claimant::Raw { _claim: claim };
                    self.model.claim(above, value, by);
                }
                self.settle()
            }
            Err(error) => {
                let what = format!("a claim of {value} behind {own_wait}");
                agree(&what, expected, Err(error))?;
                self.settle()
            }
        }
    }
}

/// Returns the result if the model and the engine agree.
fn agree<T>(
    what: &str,
    expected: Result<T, Refusal>,
    found: syncline::Result<()>,
) -> Result<Option<T>, Stop> {
    match (expected, found) {
        (Ok(expected), Ok(())) => Ok(Some(expected)),
        (Err(expected), Err(found)) if Refusal::of(&found).as_ref() == Some(&expected) => Ok(None),
        (Ok(_), Err(found)) => Stop::fail(format!("{what} is legal, but refused: {found}")),
        (Err(expected), found) => Stop::fail(format!(
            "{what} is to be refused with {expected:?}, but: {found:?}"
        )),
    }
}
