//! X1, P4, E3: the device of one of two processes is lost, and the process lives.

use crate::World;
use crate::case::{Stop, Verdict, equipped_cases};
use crate::cases::processes::lost::begin;
use crate::peer::{Scene, Side, fails};
use crate::workload::Equipped;

equipped_cases! {
    "process.device_lost_before_the_plan_is_carried_out": [X1 E3 E5] => before;
    "process.device_lost_with_its_signal_pending": [E3 P4 E5] => pending;
}

/// The device of one process is lost after both agreed on a plan.
///
/// If the object is made at all, it cannot be signalled, and waits fail.
fn before(world: &World<Equipped>) -> Verdict {
    Scene::each_peer(world, Side::Waiter, |scene, _| {
        scene.by(Side::Signaller, "break")?;
        scene.peer().tell("make frames 0")?;
        let taken = scene.by(Side::Waiter, "attempt frames 0");
        let made = scene.peer().hear();
        if made.is_err() {
            fails(made, "lost")?;
            return match taken {
                Err(Stop::Failed(_)) => Ok(()),
                other => Stop::fail(format!("it has an object that was not made: {other:?}")),
            };
        }
        fails(scene.by(Side::Signaller, "signal frames 1"), "lost")?;
        scene.by(Side::Signaller, "drop frames")?;
        match scene.by(Side::Waiter, "wait frames 1") {
            Err(Stop::Failed(reason)) if !reason.contains("timed out") => Ok(()),
            other => Stop::fail(format!("the end of signals is not reported: {other:?}")),
        }
    })
}

/// A wait for a signal of a lost device fails with the reason, and its queue goes on.
fn pending(world: &World<Equipped>) -> Verdict {
    Scene::each_peer(world, Side::Waiter, |scene, besides| {
        begin(scene, besides)?;
        scene.by(Side::Waiter, "submit frames 2")?;
        scene.by(Side::Signaller, "break frames 2")?;
        fails(scene.by(Side::Waiter, "after 2"), "lost")?;
        fails(scene.by(Side::Waiter, "wait frames 2"), "lost")?;
        scene.by(Side::Waiter, "idle")?;
        // Reached values stay.
        scene.by(Side::Waiter, "wait frames 1")?;
        Ok(())
    })
}
