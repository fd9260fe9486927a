//! Q6: work runs once, and what it owns lives until then and is dropped once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use syncline::Error;

use super::super::{DELAY, WORDS, cause};
use super::unheard;
use crate::case::{Verdict, cases, check, check_error};
use crate::{Subject, World, patience};

cases! {
    "work.runs_exactly_once": [Q6] => runs_once;
    "work.kept_until_done_dropped_once": [Q6 Q5] => kept;
}

fn runs_once<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let queue = world.right_queue("right")?;
    let counts: Vec<_> = (0..40).map(|_| Arc::new(AtomicU32::new(0))).collect();
    let kept = Arc::new(());
    for (index, count) in counts.iter().enumerate() {
        let (count, kept) = (count.clone(), kept.clone());
        queue.submit(
            &[gate.at(index as u64 % 4)],
            move |_| {
                let _kept = &kept;
                count.fetch_add(1, Ordering::SeqCst);
                Ok(())
            },
            &[],
        )?;
    }
    for value in 1..=3 {
        gate.signal(value)?;
    }
    queue.idle(patience())?;
    for (index, count) in counts.iter().enumerate() {
        let runs = count.load(Ordering::SeqCst);
        check!(runs == 1, "work {index} ran {runs} times");
    }
    check!(
        Arc::strong_count(&kept) == 1,
        "what the work owned is not dropped"
    );
    Ok(())
}

/// Counts how often it was dropped.
struct Owned(Arc<AtomicU32>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// How a submission ends whose work owns something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Runs,
    Refuses,
    Panics,
    Skipped,
}

/// What work owns, and buffers that the application has dropped meanwhile, live for as long as the
/// submission is held or under way; then they are dropped once, however it ended.
fn kept<S: Subject>(world: &World<S>) -> Verdict {
    for end in [End::Runs, End::Refuses, End::Panics, End::Skipped] {
        for held in [false, true] {
            if end == End::Skipped && !held {
                continue;
            }
            unheard(|| one_kept(world, end, held))?;
        }
    }
    Ok(())
}

fn one_kept<S: Subject>(world: &World<S>, end: End, held: bool) -> Verdict {
    let (gate, bad, line) = (
        world.timeline("gate")?,
        world.timeline("bad")?,
        world.timeline("line")?,
    );
    let queue = world.right_queue("right")?;
    let (from, to) = (world.right.buffer(WORDS)?, world.right.buffer(WORDS)?);
    let (device, filled) = (world.right.clone(), from.clone());
    queue.submit(&[], move |recorder| S::fill(recorder, &filled, 3), &[])?;
    let dropped = Arc::new(AtomicU32::new(0));
    let drops = || dropped.load(Ordering::SeqCst);
    let (owned, target) = (Owned(dropped.clone()), to.clone());
    let mut waits = Vec::new();
    if held {
        waits.push(gate.at(1));
    }
    if end == End::Skipped {
        waits.push(bad.at(1));
    }
    let submitted = queue.submit(
        &waits,
        #[allow(clippy::panic, reason = "the behaviour under test")]
        move |recorder| {
            let _owned = &owned;
            device.busy(recorder, DELAY / 10)?;
            S::copy(recorder, &from, &target)?;
            match end {
                End::Refuses => Err(cause("refused")),
                End::Panics => panic!("on purpose"),
                End::Runs | End::Skipped => Ok(()),
            }
        },
        &[line.signal_at(1)],
    );
    match (end, held) {
        (End::Refuses, false) => check_error!(submitted, Error::Work(_)),
        (End::Panics, false) => check_error!(submitted, Error::WorkPanicked { .. }),
        _ => drop(submitted?),
    }
    if held {
        check!(drops() == 0, "{end:?}: what held work owns is dropped");
    }
    // Memory that the application has let go, if somebody has, is likely to be used again here.
    let others: Vec<S::Buffer> = (0..4)
        .map(|_| world.right.buffer(WORDS))
        .collect::<syncline::Result<_>>()?;
    for other in others {
        let filler = world.right_queue("filler")?;
        filler.submit(&[], move |recorder| S::fill(recorder, &other, 0xBAD), &[])?;
        filler.idle(patience())?;
    }
    if end == End::Skipped {
        bad.fail(cause("bad"));
    }
    gate.signal(1)?;
    let ended = match (end, held) {
        (End::Refuses | End::Panics, false) => Ok(()),
        _ => line.at(1).wait(patience()),
    };
    check!(
        ended.is_ok() == (end == End::Runs || !held),
        "{end:?}, held: {held}, ended with {ended:?}"
    );
    queue.idle(patience())?;
    check!(
        drops() == 1,
        "{end:?}, held: {held}: what work owned was dropped {} times",
        drops()
    );
    let word = if end == End::Runs { 3 } else { S::read(&to)[0] };
    check!(
        end != End::Skipped || word == 0,
        "skipped work has left {word}"
    );
    check!(
        S::read(&to).iter().all(|&other| other == word),
        "{end:?}, held: {held}: the copy of a buffer that was let go is wrong"
    );
    Ok(())
}
