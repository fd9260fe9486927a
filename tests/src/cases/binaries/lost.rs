//! E3: a device of this process is lost before it makes a binary signal that another waits for.

use std::time::Instant;

use syncline::backend::{Device as _, Queue as _};
use syncline::negotiate::{Needs, Party, negotiate};
use syncline::{QueueKind, Recorder};

use crate::case::{Stop, Verdict, equipped_cases};
use crate::cases::processes::lost::in_time;
use crate::cases::sharing::lost::{can_be_lost, native_code, stays};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "binary.lost_with_its_signal_pending": [E3 X1] => pending;
}

/// The left device is lost while it owes a binary signal to each of several waits.
///
/// A queue and a fence of the right device wait. The count of each fails with the native code, the
/// fence fails, the queue goes on, and later waits are refused.
fn pending(world: &World<Equipped>) -> Verdict {
    if !world.is_pair() {
        return Stop::skip("one device signals and waits");
    }
    let left = world.left.subject();
    can_be_lost(left)?;
    let devices = [world.left.library().clone(), world.right.library().clone()];
    let [signaller, waiter] = devices.each_ref().map(|device| {
        let party = Party::of(device);
        party.needing(Needs::BINARY)
    });
    let Ok(plan) = negotiate([signaller.clone().signals(), waiter.clone().waits()]) else {
        return Stop::skip("the two have no binary semaphore in common");
    };
    let right = world.right.library();
    let losing = world.left.library().queue(QueueKind::Compute, "losing")?;
    let waiting = right.queue(QueueKind::Compute, "waiting")?;
    let (mut semaphores, mut signals) = (Vec::new(), Vec::new());
    for label in ["came", "by a queue", "by a fence"] {
        let made = plan.make_binary(label, &devices)?;
        signals.push(made.signal_only(signaller.id())?);
        semaphores.push(made.wait_only(waiter.id())?);
    }
    // This signal comes before the loss.
    let signal = signals[0].clone();
    // SAFETY: it is unsignalled.
    let work = move |recorder: &mut Recorder<'_>| unsafe { signal.signal(recorder) };
    losing.submit(&[], work, &[])?.wait_submitted(patience())?;
    signals[0].count().signal(1)?;
    // SAFETY: the signal is pending, and this is the only wait.
    unsafe { semaphores[0].wait_on(&waiting) }?;
    waiting.idle(patience())?;

    let loss = left.loss()?;
    let (subject, blocks, unsignalled) = (left.clone(), loss.clone(), signals[1..].to_vec());
    let work = move |recorder: &mut Recorder<'_>| {
        subject.block_until_lost(recorder, &blocks)?;
        for signal in &unsignalled {
            // SAFETY: it is unsignalled.
            unsafe { signal.signal(recorder) }?;
        }
        Ok(())
    };
    losing.submit(&[], work, &[])?.wait_submitted(patience())?;
    for signal in &signals[1..] {
        signal.count().signal(1)?;
    }
    // SAFETY: each signal is pending, and has one wait.
    let fence = unsafe {
        semaphores[1].wait_on(&waiting)?;
        semaphores[2].pending("fence")?
    };
    stays(waiting.position())?;

    left.lose(&loss)?;
    let lost = Instant::now();
    for semaphore in &semaphores[1..] {
        let next = semaphore.count().at(2);
        native_code(&next, next.wait(patience()))?;
    }
    native_code(&"the fence", fence.wait(patience()))?;
    in_time(lost)?;
    waiting.idle(patience())?;
    in_time(lost)?;
    // SAFETY: no signal comes, so it must be refused.
    let late = unsafe { semaphores[1].wait_on(&waiting) };
    native_code(&"a late wait", late)?;
    waiting.submit(&[], |_| Ok(()), &[])?;
    waiting.idle(patience())?;
    Ok(right.check()?)
}
