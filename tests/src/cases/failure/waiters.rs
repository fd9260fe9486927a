//! E1, T6: a failing timeline wakes all blocked waiters, with the cause.

use std::thread;
use std::time::Duration;

use syncline::Error;

use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::cases::cause;
use crate::cases::waits::Behind;
use crate::{Subject, World, patience};

cases! {
    "failure.wakes_blocked_waiters": [E1 T6 T5] => wakes;
}

/// Threads are blocked in every kind of wait when the failure comes. One thread spins.
fn wakes<S: Subject>(world: &World<S>) -> Verdict {
    let behind = Behind::new(world)?;
    let gate = &behind.gate;
    let mut waits = behind.parking();
    waits.push((
        "the gate itself",
        Box::new(|timeout| gate.at(1).wait(timeout)),
    ));
    waits.push((
        "a value of no claim",
        Box::new(|timeout| gate.at(77).wait(timeout)),
    ));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (how, wait) in waits.drain(..) {
            threads.push((how, blocked(scope, move || wait(patience()))?));
        }
        let (how, wait) = behind.spinning();
        threads.push((how, scope.spawn(move || wait(patience()))));
        for (how, thread) in &threads {
            check!(!thread.is_finished(), "{how}");
        }
        gate.fail(cause("while they wait"));
        for (how, thread) in threads {
            // The queue goes on, and what it has recorded is complete.
            let goes_on = ["Fence::wait", "Queue::idle", "Queue::settle"].contains(&how);
            match join(thread)? {
                Ok(()) if goes_on => {}
                Err(Error::Failed { cause, .. })
                    if !goes_on && cause.to_string() == "work failed: while they wait" => {}
                ended => return Stop::fail(format!("{how} ended with {ended:?}")),
            }
        }
        Ok(())
    })?;
    check_error!(behind.line.at(1).wait(Duration::ZERO), Failed);
    behind.queue.idle(patience())?;
    Ok(())
}
