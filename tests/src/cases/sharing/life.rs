//! X2, D4, T9, E1: shared objects when devices, links and handles are dropped, and failures.

use std::sync::Arc;
use std::thread;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Buffer, Error, QueueKind};

use super::super::cause;
use super::super::devices::{look, open_again};
use super::bridge::{Relay, copy, fill};
use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, check, check_error};
use crate::workload::Equipped;
use crate::{Subject as _, World, patience, user::Device};

linked_cases! {
    "link_dropped_while_in_use": [X2 D4 T9] or [Q3 D4 T9] => dropped_link;
    "failure_reaches_both_sides": [E1 X2 E4] or [E1 Q3 E4] => failure;
}

/// The link, the devices and the inventory are dropped while work is held and in flight.
///
/// The counter and the buffer stay usable. Then they are dropped, in either order.
fn dropped_link(world: &World<Equipped>) -> Verdict {
    // A pair is tested in both directions, with one order in each.
    let side =
        |side: &Device<Equipped>| (side.info().backend.to_string(), side.info().name.clone());
    let queues_first = side(&world.left) < side(&world.right);
    let inventory = look();
    let left = open_again(&world.left, &inventory)?;
    let right = open_again(&world.right, &inventory)?;
    let link = super::linked(&left, &right);
    let (line, gate) = (link.timeline("line")?, link.timeline("gate")?);
    let carried = world.left.own(link.timeline("carried")?);
    let shared = link.buffer_or_relay(256)?;
    let target = Buffer::host_visible(&right, 256)?;
    let queues = (
        left.queue(QueueKind::Compute, "left")?,
        right.queue(QueueKind::Compute, "right")?,
    );
    let relay = Relay::new()?;
    let line = world.left.own(line);
    let ready = relay.bring(std::slice::from_ref(&shared), line.at(1), &carried)?;
    let (from, to) = (shared.right().clone(), target.clone());
    queues.1.submit(
        // The wait of this submission leaves room for the left side's claim.
        &[line.at(1).library(), ready.library()],
        move |recorder| copy(recorder, &from, &to),
        &[line.signal_at(2)],
    )?;
    let source = shared.left().clone();
    queues.0.submit(
        &[gate.at(1)],
        move |recorder| fill(recorder, &source, 77),
        &[line.signal_at(1)],
    )?;
    drop((link, left, right));
    let said = inventory.validation_errors();
    check!(said.is_empty(), "validation: {}", said.join("; "));
    drop((inventory, shared));
    gate.signal(1)?;
    line.at(2).wait(patience())?;
    let words = Equipped::read(&target);
    check!(
        words.iter().all(|&word| word == 77),
        "the data did not come: {words:?}"
    );
    // Again with only the queues and the counter, which is dropped before its signal has come.
    queues
        .0
        .submit(&[line.at(2).library()], |_| Ok(()), &[line.signal_at(3)])?;
    queues
        .1
        .submit(&[line.at(3).library()], |_| Ok(()), &[line.signal_at(4)])?;
    let last = line.at(4).keep();
    relay.idle()?;
    if queues_first {
        drop((queues, relay));
        last.point().wait(patience())?;
        drop((line, gate, carried, target));
    } else {
        drop((line, gate, carried, target));
        last.point().wait(patience())?;
        queues.0.idle(patience())?;
        queues.1.idle(patience())?;
        drop((queues, relay));
    }
    drop(last);
    world.left.check()?;
    world.right.check()?;
    Ok(())
}

/// A shared counter fails. Waits above its value fail with one cause, on both sides and the host.
///
/// Waits below it, and other shared counters, go on.
fn failure(world: &World<Equipped>) -> Verdict {
    let link = super::linked(world.left.library(), world.right.library());
    let own = |label| Ok::<_, Stop>(world.left.own(link.timeline(label)?));
    let (bad, good) = (own("bad")?, own("good")?);
    let outs = [own("left out")?, own("right out")?];
    let queues = [world.left_queue("left")?, world.right_queue("right")?];
    queues[0].submit(&[], |_| Ok(()), &[bad.signal_at(1)])?;
    queues[1].submit(&[bad.at(1)], |_| Ok(()), &[bad.signal_at(3)])?;
    bad.at(3).wait(patience())?;
    for (queue, out) in queues.iter().zip(&outs) {
        queue.submit(
            &[bad.at(4)],
            |_| Err(cause("ran behind a failure")),
            &[out.signal_at(1)],
        )?;
    }
    let host = thread::scope(|scope| {
        let waiting = blocked(scope, || bad.at(9).wait(patience()))?;
        bad.fail(cause("on one side"));
        join(waiting)
    })?;
    let mut causes = Vec::new();
    let waits = outs.iter().map(|out| out.at(1).wait(patience()));
    for ended in waits.chain([host, bad.at(4).wait(patience())]) {
        match ended {
            Err(Error::Failed { cause, .. }) => causes.push(cause),
            Err(other) => return Stop::fail(format!("a wait for a failed counter: {other}")),
            Ok(()) => return Stop::fail("a failed counter was waited for, with success"),
        }
    }
    check!(
        causes.iter().all(|cause| Arc::ptr_eq(cause, &causes[0])),
        "there are several causes: {causes:?}"
    );
    check_error!(bad.signal(4), Error::Failed { .. });
    for queue in &queues {
        // Reached values stay, on both sides.
        queue
            .submit(&[bad.at(3)], |_| Ok(()), &[])?
            .end()
            .wait(patience())?;
        queue.idle(patience())?;
    }
    for round in 0..10 {
        let (one, other) = (&queues[round % 2], &queues[(round + 1) % 2]);
        let last = 2 * round as u64;
        other.submit(
            &[good.at(last + 1)],
            |_| Ok(()),
            &[good.signal_at(last + 2)],
        )?;
        one.submit(&[good.at(last)], |_| Ok(()), &[good.signal_at(last + 1)])?;
    }
    good.at(20).wait(patience())?;
    Ok(())
}
