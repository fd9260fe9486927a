//! P3, E2 to E4: one of two processes is killed, or stopped and given up.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use syncline::negotiate::Needs;
use syncline::{Error, error::PeerLoss};

use crate::World;
use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::cases::until;
use crate::footprint::Footprint;
use crate::peer::{Peer, Scene, Side, fails};
use crate::workload::Equipped;

equipped_cases! {
    "process.the_signaller_is_killed": [E3 P3] => signaller;
    "process.killed_with_its_signal_pending": [E3 P3] => pending;
    "process.the_waiter_is_killed": [E3 E4] => waiter;
    "process.killed_while_it_is_awaited": [E3 P1 P3] => awaited;
    "process.offered_by_one_who_is_dead": [X4 P3 E5] => offered;
    "process.a_stopped_peer_is_given_up": [P3 E2 E4] => stopped;
}

/// E3: a wait for a dead process fails within a second.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// The factor for machines on which the survivor does not always run.
const LOADED: u32 = 5;

/// Checks that no more time has passed since the kill than E3 allows.
pub(crate) fn in_time(killed: Instant) -> Verdict {
    let took = killed.elapsed();
    let bound = LOADED * HEARD_WITHIN;
    check!(took <= bound, "{took:?} {bound:?}");
    Ok(())
}

pub(super) fn dead(told: Result<String, Stop>) -> Verdict {
    match told {
        Err(Stop::Failed(reason)) if reason.contains("killed by signal 9") => Ok(()),
        Err(Stop::Failed(reason)) if reason.contains("it has ended") => Ok(()),
        other => Stop::fail(format!("the kill is not reported: {other:?}")),
    }
}

/// Makes a timeline, and passes its first value.
pub(super) fn begin(scene: &mut Scene<'_>, besides: Needs) -> Verdict {
    scene.make(besides, "frames", 0)?;
    scene.by(Side::Signaller, "signal frames 1")?;
    scene.by(Side::Waiter, "submit frames 1")?;
    scene.by(Side::Waiter, "after 1").map(drop)
}

/// Values that the dead process should have signalled fail with that cause, on host and queues.
///
/// Other timelines go on.
fn signaller(world: &World<Equipped>) -> Verdict {
    Scene::each_peer(world, Side::Waiter, |scene, besides| {
        begin(scene, besides)?;
        // A value that the signaller has reported is valid for the survivor. A native wait may end
        // before that (P4).
        scene.by(Side::Signaller, "idle")?;
        scene.by(Side::Waiter, "submit frames 2")?;
        let sleeper = std::thread::scope(|scope| -> Result<_, Stop> {
            let waits = scene.here().waits("frames")?;
            // Set once the process is gone, which its drivers can delay.
            let killed = Arc::new(OnceLock::new());
            let since = killed.clone();
            let sleeper = scope.spawn(move || {
                let heard = waits.at(2).wait(crate::patience());
                (heard, since.get().copied().map_or(Ok(()), in_time))
            });
            scene.peer().kill()?;
            let killed = *killed.get_or_init(Instant::now);
            Ok((sleeper.join(), killed))
        })?;
        let (Ok((Err(Error::Failed { cause, .. }), woken)), killed) = sleeper else {
            return Stop::fail(format!("a thread that waits hears {sleeper:?}"));
        };
        woken?;
        check!(has_died(&cause), "{cause}");
        dead(scene.by(Side::Waiter, "after 2"))?;
        in_time(killed)?;
        scene.expect(Side::Waiter, "ran", "1")?;
        // Reached values stay, and everything else goes on.
        scene.by(Side::Waiter, "wait frames 1")?;
        scene.by(Side::Waiter, "idle")?;
        check_error!(scene.peer().endpoint().check(), error if has_died(&error));
        let line = world.timeline("apart")?;
        line.signal(1)?;
        line.at(1).wait(crate::patience())?;
        Ok(())
    })
}

/// A process dies with its signal pending. The signal never comes.
///
/// Native waits for it end, and what depends on them fails.
fn pending(world: &World<Equipped>) -> Verdict {
    Scene::each_peer(world, Side::Waiter, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.by(Side::Waiter, "submit frames 1")?;
        scene.by(Side::Signaller, "latched frames 1")?;
        // With other mechanisms that shows only once the value is reached.
        let native = scene.here().mechanism()?.is_native();
        if native && scene.by(Side::Signaller, "driven")? == "true" {
            scene.by(Side::Waiter, "pending frames 1")?;
        }
        scene.peer().kill()?;
        let killed = Instant::now();
        dead(scene.by(Side::Waiter, "after 1"))?;
        dead(scene.by(Side::Waiter, "wait frames 1"))?;
        // The queue is free again.
        scene.by(Side::Waiter, "idle")?;
        in_time(killed)
    })
}

/// The death of a waiting process changes nothing for the signaller.
fn waiter(world: &World<Equipped>) -> Verdict {
    Scene::each_peer(world, Side::Signaller, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.by(Side::Waiter, "submit frames 1")?;
        scene.peer().kill()?;
        for value in 1..=10 {
            scene.by(Side::Signaller, &format!("signal frames {value}"))?;
        }
        scene.by(Side::Signaller, "idle")?;
        until(|| Ok(scene.peer().endpoint().check().is_err()))
    })
}

/// Calls that wait for the dead process end.
fn awaited(world: &World<Equipped>) -> Verdict {
    let mut peer = Peer::start()?;
    let scene = Scene::of(world, &mut peer, Side::Waiter);
    drop(scene);
    // The other process does not do its part, so nothing comes. Its death ends the wait long before
    // the time limit.
    let endpoint = peer.endpoint().clone();
    let told = std::thread::scope(|scope| -> Result<_, Stop> {
        let waiting = scope.spawn(|| endpoint.receive_point(10 * crate::patience()).map(drop));
        peer.kill()?;
        Ok(waiting.join())
    })?;
    match told {
        Ok(Err(error)) if has_died(&error) => Ok(()),
        other => Stop::fail(format!("the wait ends with {other:?}")),
    }
}

/// An offer of a dead process is received and found to be withdrawn.
///
/// The error is the death, and nothing of the offer stays.
fn offered(world: &World<Equipped>) -> Verdict {
    for is in [Side::Waiter, Side::Signaller] {
        Scene::each_peer(world, is, |scene, _| {
            let other = is.other();
            // So that drivers have their caches.
            let make = "make first 0";
            scene.together(make, make)?;
            scene.by(is, "drop first")?;
            scene.by(other, "drop first")?;
            let before = Footprint::now()?;
            scene.by(other, "offer frames 0")?;
            scene.peer().kill()?;
            dead(scene.by(is, "make frames 0"))?;
            // The dead process is no longer watched.
            let after = Footprint::settled(&before)?;
            check!(after.descriptors <= before.descriptors, "{before} {after}");
            Ok(())
        })?;
    }
    Ok(())
}

/// A peer that lives and does not signal is given up. What waits for it ends, here and not there.
fn stopped(world: &World<Equipped>) -> Verdict {
    Scene::each_peer(world, Side::Waiter, |scene, besides| {
        begin(scene, besides)?;
        scene.by(Side::Waiter, "wait frames 1")?;
        scene.peer().stop(true)?;
        scene.expect(Side::Waiter, "submit frames 2", "held")?;
        let endpoint = scene.peer().endpoint().clone();
        let waits = scene.here().waits("frames")?;
        let heard = std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| waits.at(2).wait(crate::patience()));
            endpoint.give_up();
            sleeper.join()
        });
        let Ok(Err(Error::Failed { cause, .. })) = heard else {
            return Stop::fail(format!("a thread that waits hears {heard:?}"));
        };
        check!(is_given_up(&cause), "the cause is {cause}");
        fails(scene.by(Side::Waiter, "after 2"), "it was given up")?;
        scene.by(Side::Waiter, "idle")?;
        scene.expect(Side::Waiter, "ran", "1")?;
        scene.by(Side::Waiter, "wait frames 1")?;
        check_error!(endpoint.check(), error if is_given_up(&error));
        // A second call, and what comes from the peer, change nothing.
        endpoint.give_up();
        scene.peer().stop(false)?;
        scene.by(Side::Signaller, "signal frames 2")?;
        scene.by(Side::Signaller, "idle")?;
        match waits.at(2).is_reached() {
            Err(Error::Failed { .. }) => Ok(()),
            other => Stop::fail(format!("after that, 2 is {other:?}")),
        }
    })
}

fn has_died(error: &Error) -> bool {
    matches!(error, Error::PeerLost { how, .. } if matches!(how, PeerLoss::Died { .. }))
}

fn is_given_up(error: &Error) -> bool {
    let how = PeerLoss::GivenUp;
    matches!(error, Error::PeerLost { how: found, .. } if *found == how)
}
