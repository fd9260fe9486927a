//! X1, X7: plans from the needs of two devices, and the rights of each party.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use syncline::Mechanism;
use syncline::backend::{Device as _, Queue as _};
use syncline::clock::HostClock;
use syncline::error::Process;
use syncline::negotiate::{
    Conflict, Granted, Needs, Party, PartyId, Permission, Plan, Requirements, negotiate,
};
use syncline::{Device, Error, Queue, QueueKind, Recorder, share};

use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases, note};
use crate::cases::clocks::{Seen, sampled};
use crate::footprint::{Footprint, grows_nothing};
use crate::workload::Equipped;
use crate::{World, patience, user};

equipped_cases! {
    "plan.the_same_however_it_is_asked": [X1] => same_answer;
    "plan.asking_changes_nothing": [X1] => asking;
    "plan.native_or_a_conflict": [X1 X5] => native;
    "plan.carried_out": [X1 X7] => carried_out;
    "plan.each_has_what_it_may": [X7] => permissions;
    "plan.a_view_is_no_handle": [X7 T9] => views;
    "plan.checked_by_its_receiver": [X1] => checked;
    "plan.what_cannot_be_made": [X1 E5] => cannot;
    "plan.with_times": [X1 M6] => times;
    "plan.a_bridge_for_who_wants_their_own": [X1 X6] => bridge;
    "plan.memory_or_unsupported": [X1 X8 E5] => memory;
}

const NOTHING: Needs = Needs::empty();

impl From<Conflict> for Stop {
    /// An unexpected conflict is a failure.
    fn from(conflict: Conflict) -> Self {
        Self::Failed(conflict.to_string())
    }
}

fn sides(world: &World<Equipped>) -> (Party, Party) {
    (
        Party::of(world.left.library()),
        Party::of(world.right.library()),
    )
}

/// A queue of each side: of the producer, and of the consumer.
fn queues(world: &World<Equipped>) -> Result<[Queue; 2], Stop> {
    let queue =
        |side: &user::Device<Equipped>, label| side.library().queue(QueueKind::Compute, label);
    Ok([
        queue(&world.left, "producer")?,
        queue(&world.right, "consumer")?,
    ])
}

fn devices(world: &World<Equipped>) -> [Device; 2] {
    [world.left.library().clone(), world.right.library().clone()]
}

/// The left side signals, the right side waits.
fn one_way(world: &World<Equipped>) -> Result<Plan, Stop> {
    let (left, right) = sides(world);
    Ok(negotiate([left.signals(), right.waits()])?)
}

/// Parties are added in both orders, in one or two pieces, and with repeated needs.
fn same_answer(world: &World<Equipped>) -> Verdict {
    let (left, right) = sides(world);
    for doing in [Needs::SIGNAL, Needs::WAIT, Needs::SIGNAL | Needs::WAIT] {
        for besides in [
            NOTHING,
            Needs::HOST_ACCESS,
            Needs::RAW,
            Needs::NATIVE,
            Needs::MEMORY,
        ] {
            let left = left.clone().needing(doing | besides);
            let right = right.clone().signals().waits();
            let there = negotiate([left.clone(), right.clone()]);
            let back = negotiate([right.clone(), left.clone()]);
            let pieces = Requirements::from(right.clone().without(Needs::WAIT));
            let pieces = negotiate(pieces.and(left).and(right));
            check_eq!(there, back);
            check_eq!(there, pieces);
        }
    }
    Ok(())
}

fn asking(world: &World<Equipped>) -> Verdict {
    let (left, right) = sides(world);
    let needs = Requirements::from([left.signals().waits(), right.signals().waits()]);
    let before = Footprint::now()?;
    for _ in 0..1000 {
        let _ = std::hint::black_box(negotiate(needs.clone()));
    }
    let after = Footprint::now()?;
    check!(!after.exceeds(&before), "{before} became {after}");
    Ok(())
}

/// A plan without the host where that is possible. Otherwise the conflict lists the needs.
fn native(world: &World<Equipped>) -> Verdict {
    let (left, right) = sides(world);
    let needs = Needs::SIGNAL | Needs::WAIT | Needs::MEMORY;
    let asked = [
        left.clone().needing(needs).natively(),
        right.clone().needing(needs),
    ];
    let shared = share(world.left.library(), world.right.library());
    match negotiate(asked) {
        Ok(plan) => {
            check!(plan.mechanism().is_native(), "{plan}");
            let link = shared?;
            check_eq!(link.mechanism(), plan.mechanism());
        }
        Err(conflict) => {
            check_error!(shared, CannotShare);
            let text = conflict.to_string();
            for side in [&left, &right] {
                check!(text.contains(&side.to_string()), "{side} is not in: {text}");
            }
            let way = conflict.ways().first();
            let Some(way) = way else {
                return Stop::fail(format!("nothing is said to help: {text}"));
            };
            check!(
                way.need == Needs::NATIVE && way.mechanism == Mechanism::Engine,
                "{way:?}"
            );
            let eased = negotiate([left.needing(needs), right.needing(needs)])?;
            check!(eased.mechanism() == way.mechanism, "{eased}");
        }
    }
    Ok(())
}

/// A plan for each mechanism is carried out, and leaves no descriptor behind.
fn carried_out(world: &World<Equipped>) -> Verdict {
    let (left, mut right) = sides(world);
    let mut shown = Vec::new();
    while let Ok(plan) = negotiate([left.clone().signals(), right.clone().waits()]) {
        grows_nothing(|| carry_out(world, &plan))?;
        shown.push(plan.mechanism().name());
        right = right.avoiding(plan.mechanism());
    }
    check!(!shown.is_empty(), "there is no plan at all");
    note(shown.join("; "));
    Ok(())
}

fn carry_out(world: &World<Equipped>, plan: &Plan) -> Verdict {
    let (left, right) = sides(world);
    let made = plan.make("planned", 7, &devices(world))?;
    let (signals, waits) = match world.is_pair() {
        true => (made.signal_only(left.id())?, made.wait_only(right.id())?),
        // One party that does both.
        false => match made.auto(left.id())? {
            Granted::Both(line) => (line.signal_only(), line.wait_only()),
            other => return Stop::fail(format!("{left} has {other:?}")),
        },
    };
    let [producer, consumer] = queues(world)?;
    for value in 8..40 {
        // The consumer submits first.
        consumer.submit(&[waits.at(value)], |_| Ok(()), &[])?;
        let early = consumer.position().is_reached()?;
        check!(!early, "{value} was not waited for");
        producer.submit(&[], |_| Ok(()), &[signals.signal_at(value)])?;
        consumer.idle(patience())?;
        // The host sees the value once it sees the producer's memory, which may be later (Q9).
        waits.at(value).wait(patience())?;
        check!(waits.value()? == value, "{} after {value}", waits.value()?);
    }
    signals.signal(50)?;
    waits.at(50).wait(patience())?;
    signals.fail(Error::NothingToWaitFor);
    check_error!(waits.at(51).wait(patience()), Failed);
    Ok(())
}

fn permissions(world: &World<Equipped>) -> Verdict {
    let plan = one_way(world)?;
    let (left, right) = sides(world);
    let made = plan.make("planned", 0, &devices(world))?;
    let permission = |party: &Party| plan.permission(party.id());
    if !world.is_pair() {
        check!(permission(&left) == Some(Permission::Both), "{plan}");
        return Ok(());
    }
    check!(permission(&left) == Some(Permission::SignalOnly), "{plan}");
    check!(permission(&right) == Some(Permission::WaitOnly), "{plan}");
    for (party, refused) in [
        (&left, made.wait_only(left.id()).err()),
        (&right, made.signal_only(right.id()).err()),
    ] {
        let text = refused
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let is_named = text.contains(&party.to_string()) && text.contains("planned");
        check!(
            matches!(refused, Some(Error::Unsupported { .. })) && is_named,
            "{text}"
        );
    }
    check!(matches!(made.auto(left.id())?, Granted::SignalOnly(_)));
    check!(matches!(made.auto(right.id())?, Granted::WaitOnly(_)));
    let stranger = PartyId {
        device: u64::MAX,
        ..left.id()
    };
    check_error!(made.auto(stranger), Unsupported);
    Ok(())
}

/// A view that may only wait does not keep the right to signal alive.
fn views(world: &World<Equipped>) -> Verdict {
    let line = world.left.library().timeline("line")?;
    let (waits, signals) = (line.wait_only(), line.signal_only());
    drop(line);
    signals.signal(3)?;
    check!(waits.value()? == 3, "{}", waits.value()?);
    check!(!waits.at(4).is_reached()?, "4 is reached");
    let [_, queue] = queues(world)?;
    let ran = Arc::new(AtomicBool::new(false));
    let runs = ran.clone();
    let work = move |_: &mut Recorder<'_>| {
        runs.store(true, Ordering::Relaxed);
        Ok(())
    };
    queue.submit(&[waits.at(4)], work, &[])?;
    drop(signals);
    check_error!(
        waits.at(4).wait(patience()),
        Error::Cancelled {
            value: 4,
            reached: 3,
            ..
        }
    );
    queue.idle(patience())?;
    check!(!ran.load(Ordering::Relaxed), "what waited for nothing ran");
    waits.at(3).wait(patience())?;
    Ok(())
}

/// A party can check a plan that another party made.
fn checked(world: &World<Equipped>) -> Verdict {
    let plan = one_way(world)?;
    let (left, right) = sides(world);
    for party in plan.parties() {
        plan.check(party)?;
        let told = plan.check(&party.clone().needing(Needs::BINARY));
        let told = told.map_err(|conflict| conflict.to_string());
        let is_named = |text: &String| text.contains("binary semaphore");
        check!(told.as_ref().is_err_and(is_named), "{told:?}");
    }
    if world.is_pair() {
        let alone = negotiate([left.clone().signals().waits()])?;
        check!(alone.check(&right).is_err(), "a plan of others passed");
    }
    Ok(())
}

fn cannot(world: &World<Equipped>) -> Verdict {
    let plan = one_way(world)?;
    let (left, right) = sides(world);
    let devices = devices(world);
    let before = Footprint::now()?;
    check_error!(plan.make("planned", 0, &[]), Unsupported);
    if world.is_pair() {
        let missing = plan.make("planned", 0, &devices[..1]);
        check!(
            missing
                .as_ref()
                .is_err_and(|e| e.to_string().contains(right.name())),
            "the missing party is not named: {missing:?}"
        );
    }
    check_error!(plan.make("planned", u64::MAX, &devices), ValueOutOfRange);
    let elsewhere = Process {
        id: u32::MAX,
        started: 1,
    };
    let far = negotiate([left.clone().signals(), Party::threads_of(elsewhere).waits()])?;
    let refused = far.make("planned", 0, &devices);
    check!(
        refused
            .as_ref()
            .is_err_and(|e| e.to_string().contains(&elsewhere.to_string())),
        "the party of another process is not named: {refused:?}"
    );
    check!(negotiate([left.clone()]).is_err());
    check!(negotiate([left.clone().waits(), right.waits()]).is_err());
    let after = Footprint::now()?;
    check!(!after.exceeds(&before), "{before} {after}");
    // The refused calls had no effects.
    let made = plan.make("planned", 0, &devices)?;
    let _ = made.auto(left.id())?;
    Ok(())
}

/// A party that needs times gets them by each mechanism. Without such a party there are none.
fn times(world: &World<Equipped>) -> Verdict {
    for side in [&world.left, &world.right] {
        sampled(&side.clock()?)?;
    }
    let (left, right) = sides(world);
    let asks = Party::threads().needing(Needs::TIMESTAMPS | Needs::HOST_ACCESS);
    let [producer, consumer] = queues(world)?;
    for besides in [Needs::empty(), Needs::NATIVE, Needs::RAW] {
        let both = |party: &Party| party.clone().signals().waits().needing(besides);
        let parties = [both(&left), both(&right), asks.clone()];
        let plan = match negotiate(parties) {
            Ok(plan) => plan,
            // A device cannot provide this, and the conflict says so.
            Err(_) if besides != Needs::empty() => continue,
            Err(conflict) => return Err(conflict.into()),
        };
        check!(plan.has_timestamps(), "{plan}");
        let made = plan.make("planned", 3, &devices(world))?;
        let line = |party: &Party| match made.auto(party.id()) {
            Ok(Granted::Both(line)) => Ok(line),
            other => Stop::fail(format!("{party} has {other:?}")),
        };
        let (here, there) = (line(&left)?, line(&right)?);
        for value in [4, 6] {
            let (between, ended) = Seen::around(HostClock::Monotonic, || {
                producer.submit(&[here.at(value - 1)], |_| Ok(()), &[here.signal_at(value)])?;
                let signals = [there.signal_at(value + 1)];
                consumer.submit(&[there.at(value)], |_| Ok(()), &signals)?;
                here.at(value + 1).wait(patience())?;
                there.at(value + 1).wait(patience())
            });
            ended?;
            let points = [&here, &there].map(|line| [line.at(value), line.at(value + 1)]);
            for point in points.concat() {
                let time = point.time()?;
                if time.clock().host_clock() == HostClock::Monotonic {
                    between.allows("a signal as planned", time.to_host()?)?;
                }
            }
        }
    }
    let plan = one_way(world)?;
    let made = plan.make("planned", 0, &devices(world))?;
    let waits = match made.auto(right.id())? {
        Granted::WaitOnly(waits) => waits,
        Granted::Both(line) => line.wait_only(),
        Granted::SignalOnly(_) => return Stop::fail("a waiter may signal only"),
    };
    check_error!(waits.at(0).time(), TimesNotEnabled);
    Ok(())
}

/// Two devices that share nothing, and whose applications require their own semaphores.
///
/// Each gets a timeline of its own, which states that.
fn bridge(world: &World<Equipped>) -> Verdict {
    let (left, right) = sides(world);
    let raw = |party: Party| party.needing(Needs::RAW);
    let plan = negotiate([raw(left.clone()).signals(), raw(right.clone()).waits()])?;
    if plan.mechanism() != Mechanism::Bridge {
        return Stop::skip(format!("the two have {}", plan.mechanism()));
    }
    let made = plan.make("planned", 0, &devices(world))?;
    let (signals, waits) = (made.signal_only(left.id())?, made.wait_only(right.id())?);
    drop(made);
    check!(signals.object().id() != waits.object().id());
    let at_home: Vec<_> = waits.devices().collect();
    check_eq!(at_home, [world.right.id()]);
    let [producer, consumer] = queues(world)?;
    consumer.submit(&[waits.at(1)], |_| Ok(()), &[])?;
    check!(!consumer.position().is_reached()?, "1 came by itself");
    producer.submit(&[], |_| Ok(()), &[signals.signal_at(1)])?;
    consumer.idle(patience())?;
    drop(signals);
    check_error!(
        waits.at(2).wait(patience()),
        Error::Cancelled { value: 2, .. }
    );
    Ok(())
}

/// Memory of each plan reaches both devices, or the call says that it is unsupported.
fn memory(world: &World<Equipped>) -> Verdict {
    if !world.is_pair() {
        return Stop::skip("there is one device");
    }
    let (left, mut right) = sides(world);
    let left = left.signals().needing(Needs::MEMORY);
    let devices = devices(world);
    let mut shown = Vec::new();
    while let Ok(plan) = negotiate([left.clone(), right.clone().waits().needing(Needs::MEMORY)]) {
        let made = plan.memory_across("planned", 64, &devices, &[], patience());
        shown.push(match made {
            Ok(made) => {
                check!(made.len() == 2, "{plan}: {} have memory", made.len());
                format!("{}: shared", plan.mechanism())
            }
            Err(Error::Unsupported { .. }) => format!("{}: refused", plan.mechanism()),
            Err(other) => return Stop::fail(format!("{plan}: {other}")),
        });
        right = right.avoiding(plan.mechanism());
    }
    note(shown.join("; "));
    Ok(())
}
