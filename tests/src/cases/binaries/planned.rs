//! X1, X7, X3: binary semaphores that a plan makes.

use syncline::negotiate::{MadeBinary, Needs, Party, Plan, negotiate};
use syncline::{Error, Mechanism, QueueKind};

use super::parts::Producer;
use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::footprint::grows_nothing;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "binary.planned": [X1 X7 Q9] => planned;
    "binary.each_has_what_it_may": [X7 E5] => permissions;
    "binary.what_has_no_plan": [X1 X3 E5] => no_plan;
    "binary.plans_leave_nothing": [X4 X1] => leaves_nothing;
}

/// Makes plans for both directions of a pair, or for one device alone.
fn plans(world: &World<Equipped>) -> Result<Vec<(Plan, [Party; 2])>, Stop> {
    let party =
        |side: &crate::user::Device<Equipped>| Party::of(side.library()).needing(Needs::BINARY);
    let (left, right) = (party(&world.left), party(&world.right));
    let mut plans = Vec::new();
    for (signals, waits) in [(left.clone(), right.clone()), (right, left)] {
        match negotiate([signals.clone().signals(), waits.clone().waits()]) {
            Ok(plan) => plans.push((plan, [signals, waits])),
            Err(_) => return Stop::skip("the two have no binary semaphore in common"),
        }
    }
    if !world.is_pair() {
        plans.pop();
    }
    Ok(plans)
}

fn make(world: &World<Equipped>, plan: &Plan) -> Result<MadeBinary, Stop> {
    let devices = [world.left.library().clone(), world.right.library().clone()];
    Ok(plan.make_binary("image", &devices)?)
}

/// After a wait the data of the signaller is there. Without a wait the old data is there.
fn planned(world: &World<Equipped>) -> Verdict {
    for (plan, [signaller, waiter]) in plans(world)? {
        let expected = match world.is_pair() {
            true => Mechanism::ExternalBinary,
            false => Mechanism::SameDevice,
        };
        check!(plan.mechanism() == expected, "{plan}");
        let made = make(world, &plan)?;
        let (signals, waits) = (
            made.signal_only(signaller.id())?,
            made.wait_only(waiter.id())?,
        );
        let side = |party: &Party| match party.id().device == world.left.id().get() {
            true => &world.left,
            false => &world.right,
        };
        let mut producer = Producer::new(side(&signaller))?;
        let consumer = side(&waiter).queue(QueueKind::Compute, "consumer")?;
        for n in 1..=4 {
            let signalled = signals.clone();
            // SAFETY: each signal is consumed before the next.
            producer.produce_then(move |r| unsafe { signalled.signal(r) })?;
            signals.count().signal(n)?;
            waits.count().at(n).wait(patience())?;
            // SAFETY: the signal is counted, so it is pending, and this is the only wait.
            unsafe { waits.wait_on(consumer.library()) }?;
            consumer.idle(patience())?;
            producer.is_seen("after the wait")?;
        }
    }
    Ok(())
}

fn permissions(world: &World<Equipped>) -> Verdict {
    for (plan, [signaller, waiter]) in plans(world)? {
        let made = make(world, &plan)?;
        if !world.is_pair() {
            made.signal_only(signaller.id())?;
            made.wait_only(waiter.id())?;
            continue;
        }
        for refused in [
            made.wait_only(signaller.id()).err(),
            made.signal_only(waiter.id()).err(),
        ] {
            let Some(error @ Error::Unsupported { .. }) = refused else {
                return Stop::fail(format!(
                    "a party has more rights than the plan grants: {refused:?}"
                ));
            };
            check!(error.to_string().contains("image"), "{error}");
        }
    }
    Ok(())
}

/// A plan for a timeline makes no binary semaphore, and the reverse. Impossible needs have no plan.
fn no_plan(world: &World<Equipped>) -> Verdict {
    let devices = [world.left.library().clone(), world.right.library().clone()];
    for (plan, [signaller, waiter]) in plans(world)? {
        check_error!(plan.make("image", 0, &devices), Unsupported);
        check_error!(plan.make_binary("image", &[]), Unsupported);
        check_error!(
            plan.make_binary_across("image", &devices, &[], patience()),
            Unsupported
        );
        let (signals, waits) = (signaller.signals(), waiter.waits());
        for besides in [Needs::TIMESTAMPS, Needs::HOST_ACCESS, Needs::TIMELINE] {
            let asked = negotiate([signals.clone(), waits.clone().needing(besides)]);
            let Err(conflict) = asked else {
                return Stop::fail(format!(
                    "a binary semaphore is planned for needs of {besides}"
                ));
            };
            check!(
                conflict.to_string().contains("binary semaphore"),
                "{conflict}"
            );
        }
        let threads = Party::threads().waits();
        check!(negotiate([signals.clone(), waits.clone(), threads]).is_err());
        let timeline = negotiate([signals, waits].map(|party| party.without(Needs::BINARY)))?;
        check_error!(timeline.make_binary("image", &devices), Unsupported);
    }
    Ok(())
}

fn leaves_nothing(world: &World<Equipped>) -> Verdict {
    let plans = plans(world)?;
    grows_nothing(|| {
        for (plan, _) in &plans {
            make(world, plan)?;
        }
        Ok(())
    })
}
