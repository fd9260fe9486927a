//! Q6: work runs once. Its objects live until then and are dropped once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use syncline::{Error, QueueKind};

use super::unheard;
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::{DELAY, WORDS, cause, is_filled};
use crate::user::{Device, Queue};
use crate::{RecorderOf, Subject, World, patience};

cases! {
    "work.what_it_records_runs_once": [Q6] => done_once;
    "work.what_it_asks_to_keep_lives_until_done": [Q6] => keeps;
    "work.what_it_keeps_may_call_the_driver_when_it_goes": [Q6] => calls_the_driver;
    "work.memory_it_had_last_is_not_waited_for": [Q2 Q6] => lets_memory_go;
    "work.what_it_owns_is_dropped_once": [Q6 Q5] => kept;
}

/// A shift through three buffers. If it were done twice, the last one would have the first word.
fn done_once<S: Subject>(world: &World<S>) -> Verdict {
    for side in [&world.left, &world.right] {
        let queue = side.queue(QueueKind::Compute, "shifting")?;
        let buffers = [side.buffer(1)?, side.buffer(1)?, side.buffer(1)?];
        let [a, b, c] = buffers.clone();
        queue.fill(&[], &a, 5, &[])?;
        let [a, ..] = buffers.clone();
        queue.submit(
            &[],
            move |recorder| {
                S::copy(recorder, &b, &c)?;
                S::copy(recorder, &a, &b)
            },
            &[],
        )?;
        queue.idle(patience())?;
        let words = buffers.each_ref().map(|buffer| S::read(buffer)[0]);
        check!(words == [5, 5, 0], "a shift of [5, 0, 0] left {words:?}");
    }
    Ok(())
}

fn keeps<S: Subject>(world: &World<S>) -> Verdict {
    let stall = world.left.stall()?;
    let left = world.left_queue("left")?;
    let (latch, kept) = (stall.latch(), Arc::new(()));
    let object = kept.clone();
    left.submit(
        &[],
        move |recorder| {
            S::keep(recorder, object);
            latch.block(recorder)
        },
        &[],
    )?;
    left.settle(patience())?;
    // Others are made and dropped at the same time.
    left.submit_empty(&[], &[])?;
    check_eq!(Arc::strong_count(&kept), 2);
    stall.release()?;
    left.idle(patience())?;
    check_eq!(Arc::strong_count(&kept), 1);
    Ok(())
}

/// Makes and uses objects of its device and its queue when it is dropped, and sends the result.
///
/// Functions of a driver must not be called in its callbacks. They return an error then, or hang.
struct Calls<S: Subject> {
    device: Device<S>,
    queue: Weak<Queue<S>>,
    told: Sender<syncline::Result<()>>,
}

impl<S: Subject> Calls<S> {
    fn call(&self) -> syncline::Result<()> {
        let buffer = self.device.buffer(1)?;
        let line = self.device.timeline("made while another thing goes")?;
        let queue = self.device.queue(QueueKind::Compute, "made, too")?;
        queue.fill(&[], &buffer, 1, &[line.signal_at(1)])?;
        line.at(1).wait(patience())?;
        if let Some(queue) = self.queue.upgrade() {
            queue.idle(patience())?;
            queue.submit_empty(&[], &[])?;
        }
        Ok(())
    }
}

impl<S: Subject> Drop for Calls<S> {
    fn drop(&mut self) {
        // After a failed case nothing receives this.
        let _ = self.told.send(self.call());
    }
}

/// Different calls drop what the work kept: a wait, a submission, a held one, or the queue's drop.
fn calls_the_driver<S: Subject>(world: &World<S>) -> Verdict {
    for how in [
        "idle",
        "another submission",
        "a held submission",
        "the queue's end",
    ] {
        let gate = world.timeline("gate")?;
        let queue = Arc::new(world.left_queue("left")?);
        let (told, heard) = channel();
        let device = world.left.clone();
        let calls = Arc::new(Calls {
            device: device.clone(),
            queue: Arc::downgrade(&queue),
            told,
        });
        let work = move |recorder: &mut RecorderOf<'_, S>| {
            S::keep(recorder, calls);
            device.busy(recorder, DELAY / 30)
        };
        let end = queue.submit(&[], work, &[])?.end().keep();
        match how {
            "idle" => queue.idle(patience())?,
            "the queue's end" => drop(queue),
            _ => {
                end.point().wait(patience())?;
                let waits = [gate.at(u64::from(how == "a held submission"))];
                queue.submit_empty(&waits, &[])?;
                gate.signal(1)?;
                queue.idle(patience())?;
            }
        }
        match heard.recv_timeout(patience()) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Stop::fail(format!("{how}: what goes cannot call: {error}")),
            Err(_) => return Stop::fail(format!("{how}: what work kept does not go")),
        }
    }
    Ok(())
}

/// A finished submission has the last handles of a buffer and of a timeline.
///
/// The calling thread submits to the same queue, and releases the device only after that. Some
/// drivers free no memory while the device is blocked.
fn lets_memory_go<S: Subject>(world: &World<S>) -> Verdict {
    for side in [&world.left, &world.right] {
        let (queue, standing) = (
            side.queue(QueueKind::Compute, "letting go")?,
            side.queue(QueueKind::Compute, "standing")?,
        );
        let hold = side.timeline("hold")?;
        for held in [false, true] {
            let (buffer, line) = (side.buffer(WORDS)?, world.timeline("had last")?);
            let end = queue.fill(&[], &buffer, 7, &[line.signal_at(1)])?;
            drop((buffer, line));
            end.end().wait(patience())?;
            let stall = side.stall()?;
            standing.block(&stall)?;
            standing.settle(patience())?;
            let waits = [hold.at(1)];
            let waits = &waits[..usize::from(held)];
            let (told, heard) = channel();
            thread::scope(|scope| {
                let several = || (0..8).try_for_each(|_| queue.submit_empty(waits, &[]).map(drop));
                scope.spawn(move || told.send(several()));
                let ended = heard.recv_timeout(patience());
                // It also ends the scope, which waits for the thread.
                stall.release()?;
                match ended {
                    Ok(submitted) => Ok(submitted?),
                    Err(_) => Stop::fail(format!(
                        "a submission (held: {held}) waits for work of another queue"
                    )),
                }
            })?;
            standing.idle(patience())?;
        }
        hold.signal(1)?;
        queue.idle(patience())?;
    }
    Ok(())
}

/// Counts how often it was dropped.
struct Owned(Arc<AtomicU32>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// How a submission ends whose work has an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Runs,
    Refuses,
    Panics,
    Skipped,
}

/// Objects of work live while its submission is held or in flight, and are dropped once.
///
/// That includes buffers that the application has dropped, for every end of the submission.
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
    let [gate, bad, line] = world.timelines(["gate", "bad", "line"])?;
    let queue = world.right_queue("right")?;
    let (from, to) = (world.right.buffer(WORDS)?, world.right.buffer(WORDS)?);
    let device = world.right.clone();
    queue.fill(&[], &from, 3, &[])?;
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
            device.busy(recorder, if end == End::Runs { DELAY } else { DELAY / 10 })?;
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
        (End::Panics, false) => check_error!(submitted, WorkPanicked),
        _ => drop(submitted?),
    }
    if held {
        check!(drops() == 0, "{end:?}: what held work owns is dropped");
    }
    // Memory that was freed too early is likely to be used again here, and is at least zeroed. This
    // runs while the submission is held, and while it is in flight.
    let others = || {
        (0..4)
            .map(|_| world.right.buffer(WORDS))
            .collect::<syncline::Result<Vec<_>>>()
    };
    if held {
        let filler = world.right_queue("filler")?;
        for other in others()? {
            filler.fill(&[], &other, 0xBAD, &[])?;
        }
        filler.idle(patience())?;
    }
    if end == End::Skipped {
        bad.fail(cause("bad"));
    }
    gate.signal(1)?;
    // Not while the device is blocked: some drivers wait for it before they allocate memory.
    let _meanwhile = others()?;
    let ended = match (end, held) {
        (End::Refuses | End::Panics, false) => Ok(()),
        _ => line.at(1).wait(patience()),
    };
    check_eq!(ended.is_ok(), (end == End::Runs || !held));
    queue.idle(patience())?;
    check_eq!(drops(), 1, "end {end:?}, held {held}");
    // Work that fails may have been recorded before that, and may run.
    let words: &[u32] = match end {
        End::Runs => &[3],
        End::Skipped => &[0],
        End::Refuses | End::Panics => &[0, 3],
    };
    check!(
        words.iter().any(|&word| is_filled::<S>(&to, word)),
        "{end:?}, held: {held}: the copy of a buffer that was let go is wrong: {:?}",
        S::read(&to)
    );
    Ok(())
}
