//! F8, F1, F2, Q2, T10, X4, X5, E5: CUDA events that one process records for another one.

use syncline::Device;
use syncline::backend::Device as _;

use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::peer::{Scene, Side, fails};
use crate::workload::Equipped;
use crate::{Subject as _, World};

equipped_cases! {
    "process.cuda_event_waited_for": [F8 F1 P1] => waited_for;
    "process.cuda_event_recorded_again": [F8 F2] => recorded_again;
    "process.cuda_event_recorded_while_held": [F8 Q2 T10] => held;
    "process.cuda_event_refused": [F8 X3 E5] => refused;
    "process.cuda_event_of_another_gpu": [X5] => another_gpu;
    "process.cuda_event_outlives_its_handles": [F8] => outlives;
    "process.cuda_event_leaves_nothing": [X4 P1] => leaves_nothing;
}

use Side::{Signaller, Waiter};

/// Returns whether the CUDA devices of both processes are of one GPU.
///
/// # Errors
/// A skip if a process has no CUDA device.
fn of_one_gpu(world: &World<Equipped>) -> Result<bool, Stop> {
    let uuid = |device: &Device| match device {
        Device::Cuda(cuda) => Ok(cuda.info().uuid),
        _ => Stop::skip("CUDA's events take CUDA in both processes"),
    };
    let [left, right] = [&world.left, &world.right].map(|side| uuid(side.subject().device()));
    Ok(left? == right?)
}

/// Runs `act` twice. Each process records once. Both have the event `done`.
fn with_event(world: &World<Equipped>, act: impl Fn(&mut Scene<'_>) -> Verdict) -> Verdict {
    if !of_one_gpu(world)? {
        return Stop::skip("CUDA's events take one GPU in both processes");
    }
    Scene::both_ways(world, |scene| {
        hand_over(scene)?;
        act(scene)?;
        let_go(scene)
    })
}

fn hand_over(scene: &mut Scene<'_>) -> Verdict {
    scene.by(Signaller, "event done")?;
    scene.together("give done", "get done").map(|_| ())
}

/// Both processes drop the event, the waiting one first.
fn let_go(scene: &mut Scene<'_>) -> Verdict {
    for side in [Waiter, Signaller] {
        scene.by(side, "idle")?;
        scene.by(side, "forget done")?;
    }
    Ok(())
}

/// A queue and a thread wait for a record in the other process, after work there that blocks.
///
/// Without a wait they go ahead.
fn waited_for(world: &World<Equipped>) -> Verdict {
    with_event(world, |scene| {
        // It was never recorded, so it is complete.
        scene.expect(Waiter, "complete done", "true")?;
        scene.by(Waiter, "join done")?;
        let early = scene.by(Waiter, "await done")?;
        scene.by(Waiter, &format!("after {early}"))?;
        for (how, latch) in [("record", 1), ("work", 2), ("record", 3)] {
            scene.by(Signaller, &format!("{how} done {latch}"))?;
            scene.expect(Waiter, "complete done", "false")?;
            scene.expect(Signaller, "complete done", "false")?;
            // The control: a submission that does not wait is finished.
            let free = scene.by(Waiter, "plain")?;
            scene.by(Waiter, &format!("after {free}"))?;
            let waits = scene.by(Waiter, "await done")?;
            scene.expect(Waiter, &format!("through {waits}"), "false")?;
            scene.expect(Waiter, "brief done", "false")?;
            scene.expect(Waiter, "complete done", "false")?;
            scene.by(Signaller, &format!("release {latch}"))?;
            scene.by(Waiter, &format!("after {waits}"))?;
            scene.by(Waiter, "join done")?;
            scene.expect(Waiter, "complete done", "true")?;
            scene.by(Signaller, "join done")?;
        }
        Ok(())
    })
}

/// A later record applies to later waits, and to none that exists.
fn recorded_again(world: &World<Equipped>) -> Verdict {
    with_event(world, |scene| {
        scene.by(Signaller, "record done 1")?;
        let first = scene.by(Waiter, "await done")?;
        scene.by(Signaller, "record done 2")?;
        let second = scene.by(Waiter, "await done")?;
        scene.expect(Waiter, &format!("through {first}"), "false")?;
        scene.by(Signaller, "release 1")?;
        scene.by(Waiter, &format!("after {first}"))?;
        scene.expect(Waiter, &format!("through {second}"), "false")?;
        scene.expect(Waiter, "complete done", "false")?;
        scene.expect(Waiter, "brief done", "false")?;
        scene.by(Signaller, "release 2")?;
        scene.by(Waiter, &format!("after {second}"))?;
        scene.expect(Waiter, "complete done", "true")
    })
}

/// The event of a held record is not sent. Once the record is pending it is sent.
fn held(world: &World<Equipped>) -> Verdict {
    with_event(world, |scene| {
        scene.expect(Signaller, "stay done", "held")?;
        scene.expect(Signaller, "complete done", "false")?;
        // CUDA says this of an event without a record. So the other side has to be informed.
        scene.expect(Waiter, "complete done", "true")?;
        scene.expect(Signaller, "early done", "late")?;
        // The record goes to the driver as soon as everything before it is pending. The work before
        // it ends at once.
        scene.by(Signaller, "unhold done")?;
        scene.by(Waiter, "join done")?;
        scene.by(Signaller, "join done")?;
        // The event can be sent again, because none of its records is held.
        scene.by(Waiter, "forget done")?;
        scene.together("give done", "get done")?;
        scene.by(Signaller, "record done 1")?;
        let waits = scene.by(Waiter, "await done")?;
        scene.expect(Waiter, &format!("through {waits}"), "false")?;
        scene.by(Signaller, "release 1")?;
        scene.by(Waiter, &format!("after {waits}")).map(|_| ())
    })
}

/// A refused call changes nothing.
fn refused(world: &World<Equipped>) -> Verdict {
    with_event(world, |scene| {
        scene.expect(Signaller, "own done", "refused")?;
        scene.by(Signaller, "record done 1")?;
        scene.expect(Waiter, "rerecord done", "refused")?;
        scene.expect(Signaller, "own done", "refused")?;
        let waits = scene.by(Waiter, "await done")?;
        scene.expect(Waiter, &format!("through {waits}"), "false")?;
        scene.by(Signaller, "release 1")?;
        scene.by(Waiter, &format!("after {waits}"))?;
        // It is not received under another name, and both sides get that error. Then it is
        // received.
        scene.by(Waiter, "forget done")?;
        match scene.together("give done soon", "get other soon") {
            Err(Stop::Failed(reason)) if names_either(&reason) => {}
            told => return Stop::fail(format!("one is taken for another: {told:?}")),
        }
        scene.together("give done", "get done")?;
        scene.expect(Waiter, "complete done", "true")
    })
}

/// The process that detects the problem first names the event that it requested or offered.
fn names_either(reason: &str) -> bool {
    reason.contains("done") || reason.contains("other")
}

/// Both processes get the reason.
fn another_gpu(world: &World<Equipped>) -> Verdict {
    if of_one_gpu(world)? {
        return Stop::skip("both processes have one GPU");
    }
    Scene::both_ways(world, |scene| {
        scene.by(Signaller, "event done")?;
        fails(scene.together("give done", "get done"), "cannot share")?;
        let_go(scene)
    })
}

/// The process that made the event drops it, and the other one goes on waiting for it.
///
/// First with a record that is pending at the drop, then with none.
fn outlives(world: &World<Equipped>) -> Verdict {
    with_event(world, |scene| {
        scene.by(Signaller, "record done 1")?;
        let waits = scene.by(Waiter, "await done")?;
        scene.by(Signaller, "forget done")?;
        scene.expect(Waiter, &format!("through {waits}"), "false")?;
        scene.expect(Waiter, "complete done", "false")?;
        scene.by(Signaller, "release 1")?;
        scene.by(Waiter, &format!("after {waits}"))?;
        // Its submission is through, and nothing of the signaller refers to the event.
        scene.by(Signaller, "idle")?;
        scene.by(Signaller, "clean")?;
        scene.expect(Waiter, "complete done", "true")?;
        scene.by(Waiter, "join done")?;
        let waits = scene.by(Waiter, "await done")?;
        scene.by(Waiter, &format!("after {waits}")).map(|_| ())
    })
}

/// Both processes have the same descriptors as before, whether waits were made or refused.
///
/// The event itself stays in the process that made it, until the other one ends.
fn leaves_nothing(world: &World<Equipped>) -> Verdict {
    with_event(world, |scene| {
        scene.by(Waiter, "forget done")?;
        scene.keeps_no_descriptors(|scene| {
            scene.together("give done", "get done")?;
            scene.by(Signaller, "record done 1")?;
            let waits = scene.by(Waiter, "await done")?;
            scene.by(Signaller, "release 1")?;
            scene.by(Waiter, &format!("after {waits}"))?;
            scene.by(Waiter, "forget done")?;
            let told = scene.together("give done soon", "get other soon");
            check!(told.is_err(), "one is taken for another: {told:?}");
            scene.both("idle")?;
            scene.by(Waiter, "clean").map(|_| ())
        })
    })
}
