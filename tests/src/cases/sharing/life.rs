//! X2, D4, T9, E1: shared objects when devices, links and handles are dropped, and failures.

use std::slice::from_ref;
use std::sync::Arc;
use std::thread;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Buffer, Error, QueueKind, Recorder};

use super::super::devices::{look, open_again};
use super::super::{cause, filled};
use super::Pair;
use super::bridge::{Relay, copying, filling};
use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, check, check_error};
use crate::workload::Equipped;
use crate::{World, patience, user::Device};

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
    let own = |label| Ok::<_, Stop>(world.left.own(link.timeline(label)?));
    let (line, gate, carried) = (own("line")?, own("gate")?, own("carried")?);
    let shared = link.buffer_or_relay(256)?;
    let target = Buffer::host_visible(&right, 256)?;
    let queues = [&left, &right].map(|device| device.queue(QueueKind::Compute, "queue"));
    let [first, second] = queues;
    let (first, second) = (first?, second?);
    let relay = Relay::new()?;
    let ready = relay.bring(from_ref(&shared), line.at(1), &carried)?;
    let copies = copying(shared.right(), &target);
    // The wait of this submission leaves room for the left side's claim.
    let waits = [line.at(1).library(), ready.library()];
    second.submit(&waits, copies, &[line.signal_at(2)])?;
    let waits = [gate.at(1).library()];
    first.submit(&waits, filling(shared.left(), 77), &[line.signal_at(1)])?;
    drop((link, left, right));
    let said = inventory.validation_errors();
    check!(said.is_empty(), "validation: {}", said.join("; "));
    drop((inventory, shared));
    gate.signal(1)?;
    line.at(2).wait(patience())?;
    filled::<Equipped>(&target, 77, "the copied data")?;
    // Again with only the queues and the counter, which is dropped before its signal has come.
    first.submit(&[line.at(2).library()], |_| Ok(()), &[line.signal_at(3)])?;
    second.submit(&[line.at(3).library()], |_| Ok(()), &[line.signal_at(4)])?;
    let last = line.at(4).keep();
    relay.idle()?;
    let mut queues = Some((first, second, relay));
    if queues_first {
        drop(queues.take());
        last.point().wait(patience())?;
    }
    drop((line, gate, carried, target));
    last.point().wait(patience())?;
    if let Some((first, second, _)) = &queues {
        first.idle(patience())?;
        second.idle(patience())?;
    }
    drop((queues, last));
    world.left.check()?;
    world.right.check()?;
    Ok(())
}

/// A shared counter fails. Waits above its value fail with one cause, on both sides and the host.
///
/// Waits below it, and other shared counters, go on.
fn failure(world: &World<Equipped>) -> Verdict {
    let pair = Pair::of(world)?;
    let (bad, good) = (pair.line("bad")?, pair.line("good")?);
    let outs = [pair.line("left out")?, pair.line("right out")?];
    let queues = &pair.queues;
    queues[0].signal(&bad, 1)?;
    queues[1].submit_empty(&[bad.at(1)], &[bad.signal_at(3)])?;
    bad.at(3).wait(patience())?;
    for (queue, out) in queues.iter().zip(&outs) {
        let never = |_: &mut Recorder<'_>| Err(cause("ran behind a failure"));
        queue.submit(&[bad.at(4)], never, &[out.signal_at(1)])?;
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
            other => return Stop::fail(format!("a wait for a failed counter: {other:?}")),
        }
    }
    check!(causes.iter().all(|cause| Arc::ptr_eq(cause, &causes[0])));
    check_error!(bad.signal(4), Failed);
    for queue in queues {
        // Reached values stay, on both sides.
        queue
            .submit_empty(&[bad.at(3)], &[])?
            .end()
            .wait(patience())?;
    }
    for round in 0..10 {
        let (one, other) = (&queues[round % 2], &queues[(round + 1) % 2]);
        let last = 2 * round as u64;
        other.submit_empty(&[good.at(last + 1)], &[good.signal_at(last + 2)])?;
        one.submit_empty(&[good.at(last)], &[good.signal_at(last + 1)])?;
    }
    good.at(20).wait(patience())?;
    pair.idle()
}
