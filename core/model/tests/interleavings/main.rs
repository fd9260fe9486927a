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
mod watched;

use std::cell::Cell;
use std::io::Write;
use std::sync::{Arc, Once};
use std::time::Duration;

use syncline_model::{Error, Memory};

/// No deadline.
const FOREVER: Duration = Duration::MAX;

/// A deadline, which comes as soon as the waiting thread parks.
const A_WHILE: Duration = Duration::from_nanos(1);

std::thread_local! {
    /// How many orders the present case has been run in, and under which memory.
    static RUN: Cell<(u64, Memory)> = const { Cell::new((0, Memory::Strong)) };
}

/// Runs `case` in every order in which threads are interrupted at most `interruptions` times, other than where
/// they block or end.
fn interrupted(interruptions: usize, case: impl Fn() + Sync + Send + 'static) {
    static TELL: Once = Once::new();
    TELL.call_once(tell_before_unwinding);
    let case = Arc::new(case);
    for memory in [Memory::Weak, Memory::Strong] {
        memory.select();
        RUN.set((0, memory));
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(interruptions);
        model.max_branches = 10_000;
        let case = case.clone();
        model.check(move || {
            RUN.set((RUN.get().0 + 1, memory));
            case();
        });
        println!("{memory:?} memory: {} orders", RUN.get().0);
    }
}

/// A model that has failed cannot always be unwound: what the engine does in drops needs loom, which is at its
/// end. The process is aborted then, so what there is to say is said first, past the capture of the test's output.
fn tell_before_unwinding() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let (order, memory) = RUN.get();
        let thread = std::thread::current();
        let case = thread.name().unwrap_or("?");
        let mut out = std::io::stderr().lock();
        let _ = writeln!(out, "{case}: order {order}, {memory:?} memory: {panic}");
        drop(out);
        usual(panic);
    }));
}

/// The failure that a case plants.
fn planted() -> Error {
    Error::work(std::io::Error::other("planted"))
}

/// True if `error` carries [`planted`].
fn is_planted(error: &Error) -> bool {
    matches!(error, Error::Failed { cause, .. } if cause.to_string() == planted().to_string())
}
