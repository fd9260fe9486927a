//! X1, X2, X7, P1, P4, Q2, E1, E2, E5, T9: plans carried out by two processes.

use syncline::negotiate::Needs;

use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::peer::{Scene, Side, fails};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "process.carried_out": [X1 X2 P4] => carried_out;
    "process.from_any_value_on": [X2 T1] => initial;
    "process.held_until_pending": [Q2 P4] => held;
    "process.each_has_what_it_may": [X7] => permissions;
    "process.failures_come_across": [E1 E2 P4] => failures;
    "process.failures_without_a_text": [E1 E5 P4] => mute;
    "process.the_last_handle_is_heard_of": [T9 P4] => closed;
    "process.a_conflict_on_both_sides": [X1] => conflict;
    "process.what_does_not_fit_is_refused": [X1 P1 E5] => refused;
    "process.leaves_nothing": [X4 P1] => leaves_nothing;
    "process.a_fork_changes_nothing": [P3] => forked;
}

const NOTHING: Needs = Needs::empty();

/// By each mechanism one process signals and the other one waits, on queues and on the host.
///
/// The waiting side submits first. No value is reached before its signal.
fn carried_out(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        for value in 1..=60 {
            let wait = format!("submit frames {value}");
            scene.by(Side::Waiter, &wait)?;
            scene.expect(Side::Waiter, &format!("reached frames {value}"), "false")?;
            scene.expect(Side::Waiter, "ran", (value - 1).to_string())?;
            // Some signals are from the host. It takes part once the queue's own signals are made.
            let how = if value % 7 == 0 {
                scene.by(Side::Signaller, "idle")?;
                "host"
            } else {
                "signal"
            };
            scene.by(Side::Signaller, &format!("{how} frames {value}"))?;
            scene.by(Side::Waiter, &format!("after {value}"))?;
            scene.by(Side::Waiter, &format!("wait frames {value}"))?;
            scene.expect(Side::Waiter, "value frames", value.to_string())?;
            scene.expect(Side::Waiter, "ran", value.to_string())?;
        }
        Ok(())
    })
}

/// Each process forks a child that drops its copies. The parents go on.
///
/// A driver call of a child would reach the descriptors that it shares with its parent.
fn forked(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.pass("frames", 1)?;
        // With work that waits in the other process.
        scene.by(Side::Waiter, "submit frames 2")?;
        scene.by(Side::Signaller, "fork")?;
        scene.by(Side::Waiter, "fork")?;
        for value in 2..=4 {
            scene.pass("frames", value)?;
        }
        scene.by(Side::Waiter, "after 1")?;
        Ok(())
    })
}

fn initial(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        for initial in [1, u64::from(u32::MAX) - 1, (1 << 40) + 7] {
            let label = format!("from{initial}");
            scene.make(besides, &label, initial)?;
            scene.expect(Side::Waiter, &format!("value {label}"), initial.to_string())?;
            for value in initial + 1..initial + 5 {
                scene.pass(&label, value)?;
            }
        }
        Ok(())
    })
}

/// Work that waits is held until the other process reports the signal as pending.
///
/// By a native mechanism it is then with the driver. Otherwise it is held until the value is
/// reached.
fn held(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.expect(Side::Waiter, "submit frames 1", "held")?;
        scene.by(Side::Signaller, "latched frames 1")?;
        let counts = scene.here().mechanism()?.is_native() && is_device(scene)?;
        if counts {
            scene.by(Side::Waiter, "pending frames 1")?;
        }
        scene.expect(Side::Waiter, "reached frames 1", "false")?;
        if counts {
            let deadline = std::time::Instant::now() + patience();
            while scene.by(Side::Waiter, "held")? != "0" {
                check!(std::time::Instant::now() < deadline);
            }
        }
        // In either place, its wait is not over.
        scene.expect(Side::Waiter, "through 1", "false")?;
        scene.by(Side::Signaller, "open")?;
        scene.by(Side::Waiter, "after 1")?;
        Ok(())
    })
}

/// Returns whether the waiting and the signalling side have a driver. Host workers have none.
fn is_device(scene: &mut Scene<'_>) -> Result<bool, Stop> {
    for side in [Side::Signaller, Side::Waiter] {
        if scene.by(side, "driven")? == "false" {
            return Ok(false);
        }
    }
    Ok(true)
}

fn permissions(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.make(NOTHING, "frames", 0)?;
        fails(scene.by(Side::Waiter, "host frames 1"), "may only")?;
        fails(scene.by(Side::Signaller, "value frames"), "may only")?;
        for side in [Side::Waiter, Side::Signaller] {
            let refusals = scene.by(side, "theirs frames")?;
            check!(
                refusals.contains("access is in its own process"),
                "{refusals}"
            );
        }
        Ok(())
    })
}

/// What fails in one process fails in the other, with the same cause.
fn failures(world: &World<Equipped>) -> Verdict {
    failing(world, "fail frames the lens is dirty", "the lens is dirty")
}

/// A failure comes across although the application's `Display` of its cause panics.
///
/// The other process learns that the cause has no text, and does not wait until its time-out.
fn mute(world: &World<Equipped>) -> Verdict {
    failing(world, "mute frames", "this error has no words")
}

/// Work that waits for a failed value does not run. The signaller goes on, and reached values stay.
fn failing(world: &World<Equipped>, order: &str, cause: &str) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.pass("frames", 3)?;
        scene.by(Side::Waiter, "submit frames 4")?;
        scene.by(Side::Signaller, order)?;
        fails(scene.by(Side::Waiter, "wait frames 4"), cause)?;
        fails(scene.by(Side::Waiter, "after 1"), cause)?;
        scene.expect(Side::Waiter, "ran", "0")?;
        scene.by(Side::Waiter, "wait frames 3")?;
        scene.by(Side::Signaller, "idle").map(drop)
    })
}

fn closed(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.by(Side::Signaller, "latched frames 1")?;
        scene.by(Side::Signaller, "drop frames")?;
        scene.by(Side::Signaller, "open")?;
        scene.by(Side::Waiter, "wait frames 1")?;
        fails(scene.by(Side::Waiter, "wait frames 2"), "last handle")
    })
}

/// Both processes get the same conflict, and can go on.
fn conflict(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        let found = scene.negotiate(Needs::TIMELINE | Needs::NATIVE | Needs::BINARY)?;
        check!(found == "conflict", "{found} serves contradictory needs");
        scene.make(NOTHING, "frames", 0)
    })
}

/// Two processes that request different things both get the reason. Their next timeline works.
fn refused(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.negotiate(NOTHING)?;
        for (one, other) in [
            ("hurry frames 0", "hurry other 0"),
            ("make frames 0", "make frames 7"),
        ] {
            match scene.together(one, other) {
                Err(Stop::Failed(reason))
                    if reason.contains("frames") || reason.contains("other") => {}
                told => return Stop::fail(format!("{one:?} and {other:?}: {told:?}")),
            }
        }
        scene.make(NOTHING, "frames", 0)?;
        scene.pass("frames", 1)
    })
}

/// Both processes have the same descriptors as before.
///
/// That holds for a timeline that was made and used, and for one that was refused.
fn leaves_nothing(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.keeps_no_descriptors(|scene| {
            scene.make(besides, "frames", 0)?;
            scene.by(Side::Waiter, "submit frames 1")?;
            scene.by(Side::Signaller, "signal frames 1")?;
            scene.by(Side::Waiter, "after 1")?;
            let told = scene.together("make frames 0", "make frames 7");
            check!(told.is_err(), "two that ask for two things have {told:?}");
            for side in [Side::Signaller, Side::Waiter] {
                scene.by(side, "idle")?;
                scene.by(side, "drop frames")?;
                scene.by(side, "clean")?;
            }
            Ok(())
        })
    })
}
