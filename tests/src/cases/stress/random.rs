//! T1, T6, T9, E5: threads that do anything at any time with shared objects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use syncline::Error;

use crate::blocked::join;
use crate::case::{Stop, Verdict, cases, check, check_eq};
use crate::cases::unless_linked;
use crate::dice::{Dice, seeds};
use crate::user::{Fence, KeptPoint, Queue, Timeline, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "stress.64_threads_of_random_operations": [T1 T6 T9 E5 F6 Q6] => operations;
}

/// A handle of a timeline, with the highest value that a signal was accepted for.
struct Line<S: Subject> {
    line: Timeline<S>,
    promised: Arc<AtomicU64>,
    /// The highest value that was read with this handle.
    seen: u64,
}

impl<S: Subject> Clone for Line<S> {
    fn clone(&self) -> Self {
        let (line, promised) = (self.line.clone(), self.promised.clone());
        let seen = self.seen;
        Self {
            line,
            promised,
            seen,
        }
    }
}

impl<S: Subject> Line<S> {
    fn new(line: Timeline<S>) -> Self {
        let (promised, seen) = (Arc::default(), 0);
        Self {
            line,
            promised,
            seen,
        }
    }

    /// A value up to the highest promised.
    fn certain(&self, dice: &mut Dice) -> u64 {
        dice.below(self.promised.load(Ordering::Acquire) + 1)
    }

    fn look(&mut self) -> Verdict {
        let value = self.line.value()?;
        check!(
            value >= self.seen,
            "{:?} went back from {} to {value}",
            self.line,
            self.seen
        );
        self.seen = value;
        Ok(())
    }

    /// Checks the result of a signal of `value` while others signal too. True if it was accepted.
    fn accepts<T>(&self, value: u64, answer: syncline::Result<T>) -> Result<bool, Stop> {
        match answer {
            Ok(_) => {
                self.promised.fetch_max(value, Ordering::AcqRel);
                Ok(true)
            }
            Err(Error::SignalNotAboveReached { asked, reached, .. }) => {
                check!(
                    asked == value && reached >= value,
                    "{value} was refused: {reached} is reached"
                );
                Ok(false)
            }
            Err(Error::SignalOverlapsClaim { asked, .. }) => {
                check!(asked == value, "{value} was signalled, {asked} refused");
                Ok(false)
            }
            Err(other) => Err(other.into()),
        }
    }
}

/// The objects that all threads share. Any thread may replace any of them.
struct Shared<S: Subject> {
    lines: Vec<Mutex<Line<S>>>,
    queues: Vec<(Queue<S>, bool)>,
    /// Fences of the left side.
    fences: Vec<Mutex<Fence<S>>>,
    /// Points whose signals were accepted. Their lines may have been dropped.
    kept: Mutex<Vec<KeptPoint<S>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn operations<S: Subject>(world: &World<S>) -> Verdict {
    let threads = unless_linked(world, "threads", 64, 16)?;
    let steps = if world.is_pair() { 60 } else { 200 };
    seeds(1, |dice| {
        let shared = shared(world)?;
        thread::scope(|scope| {
            let running: Vec<_> = (0..threads)
                .map(|_| {
                    let (dice, shared) = (dice.fork(), &shared);
                    scope.spawn(move || anything(world, shared, dice, steps))
                })
                .collect();
            for thread in running {
                join(thread)??;
            }
            Verdict::Ok(())
        })?;
        // All promised values are reached, even if no thread has a handle of the timeline.
        let kept = lock(&shared.kept);
        let points: Vec<_> = kept.iter().map(|point| point.point()).collect();
        wait_all(&points, patience())?;
        for line in &shared.lines {
            let line = lock(line);
            line.line
                .at(line.promised.load(Ordering::Acquire))
                .wait(patience())?;
        }
        for (queue, _) in &shared.queues {
            queue.idle(patience())?;
            check_eq!(queue.held().count, 0);
        }
        Ok(())
    })
}

fn shared<S: Subject>(world: &World<S>) -> Result<Shared<S>, Stop> {
    const EACH: usize = 8;
    let (mut lines, mut queues, mut fences) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..EACH {
        lines.push(Mutex::new(Line::new(line(world, n)?)));
        fences.push(Mutex::new(world.left.fence("fence")));
        queues.push(match n % 2 {
            0 => (world.left_queue(&format!("left {n}"))?, true),
            _ => (world.right_queue(&format!("right {n}"))?, false),
        });
    }
    let kept = Mutex::default();
    Ok(Shared {
        lines,
        queues,
        fences,
        kept,
    })
}

/// Returns a timeline of both sides or of one.
fn line<S: Subject>(world: &World<S>, n: usize) -> syncline::Result<Timeline<S>> {
    match n % 3 {
        0 => world.timeline("line of both"),
        1 => world.left.timeline("line of the left"),
        _ => world.right.timeline("line of the right"),
    }
}

fn anything<S: Subject>(
    world: &World<S>,
    shared: &Shared<S>,
    mut dice: Dice,
    steps: usize,
) -> Verdict {
    let dice = &mut dice;
    let mut own: Vec<Line<S>> = shared.lines.iter().map(|line| lock(line).clone()).collect();
    for _ in 0..steps {
        let n = dice.index(own.len());
        let (queue, is_left) = &shared.queues[dice.index(shared.queues.len())];
        let slot = dice.index(shared.fences.len());
        match dice.below(12) {
            0 => {
                let line = &mut own[n];
                line.look()?;
                let value = line.seen + 1 + dice.below(3);
                let answer = line.line.signal(value);
                if line.accepts(value, answer)? {
                    line.look()?;
                    check!(line.seen >= value);
                }
            }
            1..=3 => {
                let other = dice.index(own.len());
                let awaited = own[other].certain(dice);
                let wait = own[other].line.at(awaited);
                let fence = lock(&shared.fences[slot]).point()?;
                let line = &own[n];
                // Above its own wait, if that is for this line. Others may have made promises since
                // then.
                let own_wait = if other == n { awaited } else { 0 };
                let value = line.certain(dice).max(own_wait) + 1 + dice.below(3);
                let signals = [line.line.signal_at(value)];
                let answer = queue.submit_empty(&[wait, fence.point()], &signals);
                if line.accepts(value, answer.map(|_| ()))? {
                    lock(&shared.kept).push(line.line.at(value).keep());
                }
            }
            4 => {
                let value = own[n].certain(dice);
                let timeout = Duration::from_micros(dice.below(300));
                match own[n].line.at(value).wait(timeout) {
                    Ok(()) => {
                        own[n].look()?;
                        check!(own[n].seen >= value);
                    }
                    Err(Error::TimedOut { .. }) => {}
                    Err(other) => return Err(other.into()),
                }
            }
            5 => {
                let points: Vec<_> = own
                    .iter()
                    .map(|line| line.line.at(line.certain(dice)))
                    .collect();
                let timeout = Duration::from_micros(dice.below(300));
                let answer = if dice.one_in(2) {
                    wait_all(&points, timeout).map(|()| points.len() - 1)
                } else {
                    wait_any(&points, timeout)
                };
                match answer {
                    Ok(index) => check!(points[index].is_reached()?),
                    Err(Error::TimedOut { .. }) => {}
                    Err(other) => return Err(other.into()),
                }
            }
            6 => own[n].look()?,
            7 => own[n] = lock(&shared.lines[n]).clone(),
            8 if dice.one_in(8) => {
                // Threads with a handle of the old timeline go on with it. There may be none.
                let new = Line::new(line(world, n)?);
                own[n] = new.clone();
                let old = std::mem::replace(&mut *lock(&shared.lines[n]), new);
                drop(old);
            }
            9 if *is_left => {
                let fence = lock(&shared.fences[slot]).clone();
                queue.record(&fence)?;
            }
            10 => {
                let fence = lock(&shared.fences[slot]).clone();
                match fence.wait(Duration::from_micros(dice.below(300))) {
                    Ok(()) | Err(Error::TimedOut { .. }) => {}
                    Err(other) => return Err(other.into()),
                }
            }
            11 if dice.one_in(4) => {
                let new = world.left.fence("fence");
                drop(std::mem::replace(&mut *lock(&shared.fences[slot]), new));
            }
            _ => {
                // In this order, because more may be submitted in between.
                let held = queue.held().count as u64;
                let submitted = queue.position().value();
                check!(held <= submitted, "queue {queue:?}");
                lock(&shared.fences[slot]).is_complete()?;
            }
        }
    }
    Ok(())
}
