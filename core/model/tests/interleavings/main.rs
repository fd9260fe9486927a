//! Small cases of the engine, each run by loom in every order that its threads can take, down to which of the
//! stores of an atomic a load may still see. A case that hangs in any of them is a deadlock, which loom
//! reports; so a lost wakeup cannot hide.
//!
//! Each case names the changes to the engine that it was seen to fail for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod driver;
mod ends;
mod futures;
mod queues;
mod relays;
mod signals;
mod waits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use syncline_model::{Error, Memory};

/// No deadline.
const FOREVER: Duration = Duration::MAX;

/// A deadline, which comes as soon as the waiting thread parks.
const A_WHILE: Duration = Duration::from_nanos(1);

/// Runs `case` in every order in which threads are interrupted at most `interruptions` times, other than where
/// they block or end.
fn interrupted(interruptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let case = Arc::new(case);
    for memory in [Memory::Weak, Memory::Strong] {
        memory.select();
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(interruptions);
        model.max_branches = 10_000;
        let (orders, case) = (Arc::new(AtomicU64::new(0)), case.clone());
        let count = orders.clone();
        let start = std::time::Instant::now();
        model.check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            case();
        });
        println!(
            "{memory:?} memory: {} orders {:?}",
            orders.load(Ordering::Relaxed),
            start.elapsed()
        );
    }
}

/// The failure that a case plants.
fn planted() -> Error {
    Error::work(std::io::Error::other("planted"))
}

/// True if `error` carries [`planted`].
fn is_planted(error: &Error) -> bool {
    matches!(error, Error::Failed { cause, .. } if cause.to_string() == planted().to_string())
}
