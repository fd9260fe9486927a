//! M6, P4, X1, E3: timelines with timestamps that another process signals.
//!
//! All processes have one host clock, on which the times are compared.

use syncline::Timeline;
use syncline::negotiate::Needs;

use crate::World;
use crate::case::{Stop, Verdict, check, check_eq, equipped_cases};
use crate::peer::{Scene, Side};
use crate::workload::Equipped;

equipped_cases! {
    "process.times_come_across": [M6 M3 X1 P4] => come_across;
    "process.times_of_signals_behind_work": [M6 M3] => behind_work;
    "process.times_in_the_order_of_values": [M6 T3] => in_order;
    "process.times_as_the_signaller_has_them": [M6 M4] => as_the_signaller;
    "process.times_that_nobody_tells": [M6 E5] => never_told;
    "process.times_outlive_the_signaller": [M6 E3 P3] => outlive;
}

/// A time of the host's clock, and its error.
#[derive(Debug, Clone, Copy)]
struct At {
    nanoseconds: i64,
    error: u64,
}

impl At {
    fn earliest(self) -> i64 {
        self.nanoseconds.saturating_sub_unsigned(self.error)
    }

    fn latest(self) -> i64 {
        self.nanoseconds.saturating_add_unsigned(self.error)
    }
}

fn make(scene: &mut Scene<'_>, besides: Needs, initial: u64) -> Verdict {
    scene.make(besides | Needs::TIMESTAMPS, "frames", initial)
}

fn clock(scene: &mut Scene<'_>, side: Side) -> Result<i64, Stop> {
    let told = scene.by(side, "clock")?;
    told.parse()
        .map_err(|_| Stop::Failed(format!("{told:?} is no time")))
}

/// Returns when `value` was reached, as `side` reads it.
fn time(scene: &mut Scene<'_>, side: Side, value: u64) -> Result<At, Stop> {
    let told = scene.by(side, &format!("time frames {value}"))?;
    let at = told.split_once(' ').and_then(|(nanoseconds, error)| {
        Some(At {
            nanoseconds: nanoseconds.parse().ok()?,
            error: error.parse().ok()?,
        })
    });
    at.map_or_else(|| Stop::fail(format!("{value} has no time: {told}")), Ok)
}

fn tells(scene: &mut Scene<'_>, value: u64, expected: &str) -> Verdict {
    scene.expect(Side::Waiter, &format!("time frames {value}"), expected)?;
    Ok(())
}

/// Returns whether a signal is made when the signaller's own call returns, by host and by queue.
///
/// That is so if all processes see the signaller's own signal. For a queue it is so once the queue
/// is idle.
fn is_direct(scene: &mut Scene<'_>) -> Result<[bool; 2], Stop> {
    let native = scene.here().mechanism()?.is_native();
    let driven = scene.by(Side::Signaller, "driven")? == "true";
    Ok([native, native && driven])
}

/// Returns the time of a signal, which must lie between the times of the host before and after it.
///
/// If `direct`, those are times of the signalling process.
fn bracketed(scene: &mut Scene<'_>, value: u64, signal: &str, direct: bool) -> Result<At, Stop> {
    let from = clock(scene, Side::Signaller)?;
    scene.by(Side::Signaller, signal)?;
    let seen = match direct {
        true => {
            scene.by(Side::Signaller, "idle")?;
            Some(clock(scene, Side::Signaller)?)
        }
        false => None,
    };
    scene.by(Side::Waiter, &format!("wait frames {value}"))?;
    let to = match seen {
        Some(to) => to,
        None => clock(scene, Side::Waiter)?,
    };
    let at = time(scene, Side::Waiter, value)?;
    check!(at.latest() >= from && at.earliest() <= to, "{value}");
    Ok(at)
}

/// By each mechanism, the times of signals from queues and from the host reach the other process.
///
/// Skipped values have times too, and times do not change.
fn come_across(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        make(scene, besides, 0)?;
        let [by_host, by_queue] = is_direct(scene)?;
        let mut last = None;
        for value in (3..=60).step_by(3) {
            let (how, direct) = match value % 9 {
                0 => ("host", by_host),
                _ => ("signal", by_queue),
            };
            let at = bracketed(scene, value, &format!("{how} frames {value}"), direct)?;
            for passed in [value - 2, value - 1] {
                let told = time(scene, Side::Waiter, passed)?;
                check_eq!(told.nanoseconds, at.nanoseconds, "{passed} {value}");
            }
            if let Some(last) = last.replace(at) {
                let before = time(scene, Side::Waiter, value - 3)?;
                check!(
                    before.nanoseconds == last.nanoseconds && at.nanoseconds >= last.nanoseconds,
                    "{last:?} became {before:?} with {at:?}"
                );
            }
            tells(scene, value + 1, "not reached")?;
        }
        Ok(())
    })
}

/// The time is that of the end of the work, not of its submission.
fn behind_work(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        make(scene, besides, 0)?;
        let [_, direct] = is_direct(scene)?;
        for value in 1..=3 {
            scene.by(Side::Signaller, &format!("latched frames {value}"))?;
            tells(scene, value, "not reached")?;
            bracketed(scene, value, "open", direct)?;
        }
        Ok(())
    })
}

/// More times than a timeline remembers, made faster than they are read.
fn in_order(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        make(scene, besides, 10)?;
        let kept = Timeline::TIMES as u64;
        let last = 10 + 2 * (kept + 60);
        scene.by(Side::Signaller, &format!("signals frames 12 2 {last}"))?;
        scene.by(Side::Waiter, &format!("wait frames {last}"))?;
        // A bridge may carry several at once.
        let first = last - 2 * (kept - 1);
        scene.expect(
            Side::Waiter,
            &format!("times frames {first} 1 {last}"),
            "in order",
        )?;
        // Not before: a device that writes the counter itself is ahead of the process that sends
        // its times.
        if scene.here().mechanism()?.is_native() {
            tells(scene, 12, "forgotten")?;
        }
        tells(scene, 10, "never written")
    })
}

/// The process that signals has its device's own times, and sends the same ones.
fn as_the_signaller(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        make(scene, besides | Needs::HOST_ACCESS, 0)?;
        let native = scene.here().mechanism()?.is_native();
        for value in 1..=20 {
            scene.pass("frames", value)?;
            scene.by(Side::Signaller, &format!("wait frames {value}"))?;
            let own = time(scene, Side::Signaller, value)?;
            let told = time(scene, Side::Waiter, value)?;
            // A bridge carries the signal, so it comes later.
            check!(
                told.latest() >= own.earliest() && (!native || told.earliest() <= own.latest()),
                "{value} was signalled at {own:?}, and told at {told:?}"
            );
        }
        Ok(())
    })
}

fn never_told(world: &World<Equipped>) -> Verdict {
    Scene::each_way(world, |scene, besides| {
        scene.make(besides, "frames", 0)?;
        scene.pass("frames", 1)?;
        for value in [0, 1, 2] {
            tells(scene, value, "not enabled")?;
        }
        scene.both("drop frames")?;
        make(scene, besides, 7)?;
        tells(scene, 0, "never written")?;
        tells(scene, 7, "never written")?;
        tells(scene, 8, "not reached")?;
        scene.pass("frames", 9)?;
        let nine = time(scene, Side::Waiter, 9)?;
        scene.by(Side::Signaller, "fail frames the lens is dirty")?;
        let failed = scene.by(Side::Waiter, "wait frames 10");
        check!(failed.is_err(), "it goes on after its failure");
        tells(scene, 10, "never")?;
        tells(scene, 7, "never written")?;
        let after = time(scene, Side::Waiter, 8)?;
        check_eq!(after.nanoseconds, nine.nanoseconds);
        Ok(())
    })
}

/// The times that it sent stay. Reading any other time is an error.
fn outlive(world: &World<Equipped>) -> Verdict {
    Scene::each_peer(world, Side::Waiter, |scene, besides| {
        make(scene, besides, 0)?;
        scene.by(Side::Signaller, "signals frames 1 1 20")?;
        scene.by(Side::Waiter, "wait frames 20")?;
        let before = [1, 7, 20].map(|value| (value, time(scene, Side::Waiter, value)));
        scene.peer().kill()?;
        let failed = scene.by(Side::Waiter, "wait frames 21");
        check!(failed.is_err(), "it goes on without its signaller");
        for (value, told) in before {
            let (told, after) = (told?, time(scene, Side::Waiter, value)?);
            check!(
                told.nanoseconds == after.nanoseconds && told.error == after.error,
                "{value} was told at {told:?}, and after the end of the signaller at {after:?}"
            );
        }
        tells(scene, 21, "never")
    })
}
