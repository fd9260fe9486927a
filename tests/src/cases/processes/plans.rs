//! X1, X2, X7, P1, P4, Q2, E1, E2, E5, T9: plans carried out by two processes.

use syncline::negotiate::Needs;

use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::peer::{Scene, Side};
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
            let early = scene.by(Side::Waiter, &format!("reached frames {value}"))?;
            check!(early == "false", "{value} came by itself");
            let ran = scene.by(Side::Waiter, "ran")?;
            check!(
                ran == (value - 1).to_string(),
                "{ran} ran before the signal of {value}"
            );
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
            let shown = scene.by(Side::Waiter, "value frames")?;
            check!(shown == value.to_string(), "{shown} shows after {value}");
            let ran = scene.by(Side::Waiter, "ran")?;
            check!(ran == value.to_string(), "{ran} ran after {value}");
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
        scene.by(Side::Signaller, "signal frames 1")?;
        scene.by(Side::Waiter, "wait frames 1")?;
        // With work that waits in the other process.
        scene.by(Side::Waiter, "submit frames 2")?;
        scene.by(Side::Signaller, "fork")?;
        scene.by(Side::Waiter, "fork")?;
        for value in 2..=4 {
            scene.by(Side::Signaller, &format!("signal frames {value}"))?;
            scene.by(Side::Waiter, &format!("wait frames {value}"))?;
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
            let shown = scene.by(Side::Waiter, &format!("value {label}"))?;
            check!(shown == initial.to_string(), "{shown} at the start");
            for value in initial + 1..initial + 5 {
                scene.by(Side::Signaller, &format!("signal {label} {value}"))?;
                scene.by(Side::Waiter, &format!("wait {label} {value}"))?;
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
        let submitted = scene.by(Side::Waiter, "submit frames 1")?;
        check!(
            submitted == "held",
            "a wait went to the driver before its signal"
        );
        scene.by(Side::Signaller, "latched frames 1")?;
        let counts = scene.here().mechanism()?.is_native() && is_device(scene)?;
        if counts {
            scene.by(Side::Waiter, "pending frames 1")?;
        }
        let reached = scene.by(Side::Waiter, "reached frames 1")?;
        check!(reached == "false", "it is reached before the work is done");
        if counts {
            let deadline = std::time::Instant::now() + patience();
            while scene.by(Side::Waiter, "held")? != "0" {
                check!(
                    std::time::Instant::now() < deadline,
                    "a pending signal releases no work"
                );
            }
        }
        // In either place, its wait is not over.
        let early = scene.by(Side::Waiter, "through 1")?;
        check!(
            early == "false",
            "what waits went through before its signal"
        );
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
        let refused = [
            scene.by(Side::Waiter, "host frames 1"),
            scene.by(Side::Signaller, "value frames"),
        ];
        for refused in refused {
            match refused {
                Err(Stop::Failed(reason)) if reason.contains("may only") => {}
                other => {
                    return Stop::fail(format!(
                        "a process has more rights than the plan grants: {other:?}"
                    ));
                }
            }
        }
        for side in [Side::Waiter, Side::Signaller] {
            let refusals = scene.by(side, "theirs frames")?;
            check!(
                refusals.contains("access is in its own process"),
                "it is not said why: {refusals}"
            );
        }
        Ok(())
    })
}

/// What fails in one process fails in the other, with the same cause.
///
/// Work that waits for it does not run.
fn failures(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.by(Side::Signaller, "signal frames 3")?;
        scene.by(Side::Waiter, "wait frames 3")?;
        scene.by(Side::Waiter, "submit frames 4")?;
        scene.by(Side::Signaller, "fail frames the lens is dirty")?;
        let told = [
            scene.by(Side::Waiter, "wait frames 4"),
            scene.by(Side::Waiter, "after 1"),
        ];
        for told in told {
            match told {
                Err(Stop::Failed(reason)) if reason.contains("the lens is dirty") => {}
                other => return Stop::fail(format!("the cause did not come: {other:?}")),
            }
        }
        let ran = scene.by(Side::Waiter, "ran")?;
        check!(ran == "0", "work that waits for it ran");
        // Reached values stay.
        scene.by(Side::Waiter, "wait frames 3")?;
        Ok(())
    })
}

/// A failure comes across although the application's `Display` of its cause panics.
///
/// The other process learns that the cause has no text, and does not wait until its time-out.
fn mute(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.by(Side::Signaller, "signal frames 3")?;
        scene.by(Side::Waiter, "wait frames 3")?;
        scene.by(Side::Waiter, "submit frames 4")?;
        scene.by(Side::Signaller, "mute frames")?;
        for order in ["wait frames 4", "after 1"] {
            match scene.by(Side::Waiter, order) {
                Err(Stop::Failed(reason)) if reason.contains("this error has no words") => {}
                other => return Stop::fail(format!("{order}: {other:?}")),
            }
        }
        let ran = scene.by(Side::Waiter, "ran")?;
        check!(ran == "0", "work that waits for it ran");
        // The signaller goes on.
        scene.by(Side::Signaller, "idle")?;
        Ok(())
    })
}

fn closed(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.by(Side::Signaller, "latched frames 1")?;
        scene.by(Side::Signaller, "drop frames")?;
        scene.by(Side::Signaller, "open")?;
        scene.by(Side::Waiter, "wait frames 1")?;
        match scene.by(Side::Waiter, "wait frames 2") {
            Err(Stop::Failed(reason)) if reason.contains("last handle") => Ok(()),
            other => Stop::fail(format!("the end of signals is not reported: {other:?}")),
        }
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
        scene.by(Side::Signaller, "signal frames 1")?;
        scene.by(Side::Waiter, "wait frames 1").map(|_| ())
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
