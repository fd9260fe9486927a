//! X1, X3, X7, P1, P3, Q9: binary semaphores that two processes have.

use std::time::{Duration, Instant};

use syncline::negotiate::Needs;

use crate::World;
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::peer::{Peer, Scene, Side, fails};
use crate::workload::Equipped;

use super::lost::dead;

equipped_cases! {
    "process.binary_waited_for": [X1 X3] => waited_for;
    "process.binary_consumed_on_the_host": [X1 F8] => consumed;
    "process.binary_and_memory": [X1 X8 Q9] => memory;
    "process.binary_each_has_what_it_may": [X7] => permissions;
    "process.binary_is_no_timeline": [X1 X3 E5] => refused;
    "process.binary_signaller_is_killed": [E3 P3] => killed;
    "process.binary_signaller_dies_before_a_busy_queue": [E3 P3] => busy;
    "process.binary_signaller_is_given_up": [P3] => given_up;
    "process.binary_leaves_nothing": [X4 P1] => leaves_nothing;
}

const NOTHING: Needs = Needs::empty();

/// Work that waits comes after the blocked work before the signal. Work that does not wait goes
/// ahead.
fn waited_for(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.make_binary(NOTHING, "image")?;
        for n in 1..=5 {
            scene.by(Side::Signaller, &format!("draw image {n}"))?;
            if n == 1 {
                // The control: nothing else delays work.
                let plain = scene.by(Side::Waiter, "plain")?;
                scene.by(Side::Waiter, &format!("after {plain}"))?;
            }
            let waiting = scene.by(Side::Waiter, &format!("shade image {n}"))?;
            scene.expect(Side::Waiter, &format!("through {waiting}"), "false")?;
            scene.by(Side::Signaller, "open")?;
            scene.by(Side::Waiter, &format!("after {waiting}"))?;
        }
        Ok(())
    })
}

fn consumed(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.make_binary(NOTHING, "image")?;
        for n in 1..=10 {
            scene.by(Side::Signaller, &format!("draw image {n}"))?;
            scene.by(Side::Signaller, "open")?;
            scene.by(Side::Waiter, &format!("consume image {n}"))?;
        }
        Ok(())
    })
}

/// After a wait the signaller's data is there. Without a wait the old data is there.
fn memory(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.make_binary(Needs::MEMORY, "image")?;
        scene.together("memory 4096", "memory 4096")?;
        for n in 1..=5 {
            scene.by(Side::Signaller, &format!("paint image {n}"))?;
            scene.expect(Side::Waiter, &format!("look image {n}"), "right")?;
        }
        // The control: nothing is written until the latch opens.
        scene.by(Side::Signaller, "paint_closed image 6")?;
        scene.expect(Side::Waiter, "glance image 6", "wrong")?;
        scene.by(Side::Signaller, "open")?;
        scene.expect(Side::Waiter, "look image 6", "right")?;
        Ok(())
    })
}

fn permissions(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.make_binary(NOTHING, "image")?;
        for (side, what) in [(Side::Waiter, "signal"), (Side::Signaller, "wait")] {
            let refusal = scene.by(side, &format!("miscount {what}"))?;
            check!(
                refusal.contains("only") && refusal.contains("image"),
                "{refusal}"
            );
        }
        Ok(())
    })
}

/// A plan for one kind does not make the other kind, and a refused call has no effects.
fn refused(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.make_binary(NOTHING, "image")?;
        let told = |told: Result<String, Stop>| match told {
            Err(Stop::Failed(reason)) if reason.contains("the plan is for a") => Ok(()),
            other => Stop::fail(format!("it was made: {other:?}")),
        };
        for side in [Side::Signaller, Side::Waiter] {
            told(scene.by(side, "make frames 0"))?;
        }
        scene.make(NOTHING, "frames", 0)?;
        for side in [Side::Signaller, Side::Waiter] {
            told(scene.by(side, "binary other"))?;
        }
        scene.pass("frames", 1)
    })
}

/// The signaller is killed. Waits for the count and waits by a fence fail.
///
/// A queue that waits natively goes on, whatever handles still exist.
fn killed(world: &World<Equipped>) -> Verdict {
    for waits in ["not", "late", "by a fence", "natively", "without a handle"] {
        let mut peer = Peer::start()?;
        let mut scene = Scene::of(world, &mut peer, Side::Waiter);
        scene.make_binary(NOTHING, "image")?;
        scene.by(Side::Signaller, "draw image 1")?;
        scene.by(Side::Signaller, "open")?;
        scene.by(Side::Waiter, "shade image 1")?;
        scene.by(Side::Waiter, "after 1")?;
        if waits != "not" {
            scene.by(Side::Signaller, "draw image 2")?;
        }
        match waits {
            "late" => drop(scene.by(Side::Waiter, "dawdle image 2")?),
            "by a fence" => drop(scene.by(Side::Waiter, "expect image 2")?),
            "natively" => drop(scene.by(Side::Waiter, "shade image 2")?),
            "without a handle" => {
                scene.by(Side::Waiter, "shade image 2")?;
                scene.by(Side::Waiter, "abandon")?;
            }
            _ => {}
        }
        scene.peer().kill()?;
        match waits {
            "without a handle" => {}
            _ => dead(scene.by(Side::Waiter, "shade image 3"))?,
        }
        if waits == "late" {
            dead(scene.by(Side::Waiter, "late queue"))?;
            dead(scene.by(Side::Waiter, "late fence"))?;
            dead(scene.by(Side::Waiter, "late waker"))?;
        }
        if waits == "by a fence" {
            dead(scene.by(Side::Waiter, "expected"))?;
        }
        scene.by(Side::Waiter, "idle")?;
    }
    Ok(())
}

/// The signaller is given up and lives. Its signal may come, so it is not made in its place.
fn given_up(world: &World<Equipped>) -> Verdict {
    let mut peer = Peer::start()?;
    let mut scene = Scene::of(world, &mut peer, Side::Waiter);
    scene.make_binary(NOTHING, "image")?;
    scene.by(Side::Signaller, "draw image 1")?;
    let waiting = scene.by(Side::Waiter, "shade image 1")?;
    scene.peer().endpoint().give_up();
    let begun = Instant::now();
    // After the death of a process the release comes within this time.
    while begun.elapsed() < BUSY {
        scene.expect(Side::Waiter, &format!("through {waiting}"), "false")?;
    }
    scene.by(Side::Signaller, "open")?;
    scene.by(Side::Waiter, &format!("after {waiting}"))?;
    fails(scene.by(Side::Waiter, "shade image 2"), "it was given up")?;
    scene.by(Side::Waiter, "idle").map(drop)
}

/// How long other work keeps the queue busy after the death.
///
/// Longer than it takes to notice the death, and to take the wait for one that is blocked.
const BUSY: Duration = Duration::from_secs(1);

/// The signaller is killed. Then the wait stands behind other work of its `VkQueue` for long.
///
/// No API tells it from a wait whose signal does not come. So a signal is made in place of the dead
/// process, also if the dead process has made its own. The wait ends behind the other work, and the
/// queue goes on.
fn busy(world: &World<Equipped>) -> Verdict {
    for is_made in [true, false] {
        let mut peer = Peer::start()?;
        let mut scene = Scene::of(world, &mut peer, Side::Waiter);
        scene.make_binary(NOTHING, "image")?;
        scene.by(Side::Waiter, "crowd")?;
        let told = dies_before_a_busy_queue(&mut scene, is_made);
        // Also after a failure, so that the process can end.
        scene.by(Side::Waiter, "open")?;
        let waiting = told?;
        scene.by(Side::Waiter, &format!("after {waiting}"))?;
        let plain = scene.by(Side::Waiter, "plain")?;
        scene.by(Side::Waiter, &format!("after {plain}"))?;
        scene.by(Side::Waiter, "idle")?;
    }
    Ok(())
}

/// Returns the number of the wait, which is not over.
fn dies_before_a_busy_queue(scene: &mut Scene<'_>, is_made: bool) -> Result<String, Stop> {
    scene.by(Side::Signaller, "draw image 1")?;
    if is_made {
        scene.by(Side::Signaller, "open")?;
        scene.by(Side::Signaller, "idle")?;
    }
    let waiting = scene.by(Side::Waiter, "shade image 1")?;
    scene.peer().kill()?;
    dead(scene.by(Side::Waiter, "shade image 2"))?;
    let heard = Instant::now();
    while heard.elapsed() < BUSY {
        scene.expect(Side::Waiter, &format!("through {waiting}"), "false")?;
    }
    Ok(waiting)
}

/// Both processes have the same descriptors as before.
fn leaves_nothing(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.keeps_no_descriptors(|scene| {
            scene.make_binary(NOTHING, "image")?;
            scene.by(Side::Signaller, "draw image 1")?;
            scene.by(Side::Signaller, "open")?;
            let waiting = scene.by(Side::Waiter, "shade image 1")?;
            scene.by(Side::Waiter, &format!("after {waiting}"))?;
            scene.both("clean")?;
            Ok(())
        })
    })
}
