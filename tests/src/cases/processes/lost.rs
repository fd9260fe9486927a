//! P3, E2 to E4: one of two processes is killed, or stopped and given up.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use syncline::{Error, error::PeerLoss};

use crate::World;
use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::footprint::Footprint;
use crate::peer::{Peer, Scene, Side};
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
    check!(
        took <= bound,
        "it took {took:?} after the kill, and not {bound:?} at the most"
    );
    Ok(())
}

pub(super) fn dead(told: Result<String, Stop>) -> Verdict {
    match told {
        Err(Stop::Failed(reason)) if reason.contains("killed by signal 9") => Ok(()),
        Err(Stop::Failed(reason)) if reason.contains("it has ended") => Ok(()),
        other => Stop::fail(format!("the kill is not reported: {other:?}")),
    }
}

/// Values that the dead process should have signalled fail with that cause, on host and queues.
///
/// Other timelines go on.
fn signaller(world: &World<Equipped>) -> Verdict {
    Scene::each_peer(world, Side::Waiter, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.by(Side::Signaller, "signal frames 1")?;
        scene.by(Side::Waiter, "submit frames 1")?;
        scene.by(Side::Waiter, "after 1")?;
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
        check!(
            matches!(
                &*cause,
                Error::PeerLost {
                    how: PeerLoss::Died { .. },
                    ..
                }
            ),
            "the cause is {cause}"
        );
        dead(scene.by(Side::Waiter, "after 2"))?;
        in_time(killed)?;
        let ran = scene.by(Side::Waiter, "ran")?;
        check!(ran == "1", "work that waits for the dead ran");
        // Reached values stay, and everything else goes on.
        scene.by(Side::Waiter, "wait frames 1")?;
        scene.by(Side::Waiter, "idle")?;
        check_error!(
            scene.peer().endpoint().check(),
            Error::PeerLost {
                how: PeerLoss::Died { .. },
                ..
            }
        );
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
        let deadline = std::time::Instant::now() + crate::patience();
        while scene.peer().endpoint().check().is_ok() {
            check!(
                std::time::Instant::now() < deadline,
                "its death is not noticed"
            );
            std::thread::yield_now();
        }
        Ok(())
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
        Ok(Err(Error::PeerLost {
            how: PeerLoss::Died { .. },
            ..
        })) => Ok(()),
        other => Stop::fail(format!("the wait ends with {other:?}")),
    }
}

/// An offer of a dead process is received and found to be withdrawn.
///
/// The error is the death, and nothing of the offer stays.
fn offered(world: &World<Equipped>) -> Verdict {
    for is in [Side::Waiter, Side::Signaller] {
        Scene::each_peer(world, is, |scene, _| {
            let other = match is {
                Side::Waiter => Side::Signaller,
                Side::Signaller => Side::Waiter,
            };
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
            check!(
                after.descriptors <= before.descriptors,
                "{before} became {after}"
            );
            Ok(())
        })?;
    }
    Ok(())
}

/// A peer that lives and does not signal is given up. What waits for it ends, here and not there.
fn stopped(world: &World<Equipped>) -> Verdict {
    Scene::each_peer(world, Side::Waiter, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.by(Side::Signaller, "signal frames 1")?;
        scene.by(Side::Waiter, "submit frames 1")?;
        scene.by(Side::Waiter, "after 1")?;
        scene.by(Side::Waiter, "wait frames 1")?;
        scene.peer().stop(true)?;
        let sent = scene.by(Side::Waiter, "submit frames 2")?;
        check!(sent == "held", "a wait without a signal is with the driver");
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
        match scene.by(Side::Waiter, "after 2") {
            Err(Stop::Failed(reason)) if reason.contains("it was given up") => {}
            other => return Stop::fail(format!("behind the wait: {other:?}")),
        }
        scene.by(Side::Waiter, "idle")?;
        let ran = scene.by(Side::Waiter, "ran")?;
        check!(ran == "1", "work that waits for the stopped peer ran");
        scene.by(Side::Waiter, "wait frames 1")?;
        match endpoint.check() {
            Err(error) if is_given_up(&error) => {}
            other => return Stop::fail(format!("the endpoint says {other:?}")),
        }
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

fn is_given_up(error: &Error) -> bool {
    let how = PeerLoss::GivenUp;
    matches!(error, Error::PeerLost { how: found, .. } if *found == how)
}
