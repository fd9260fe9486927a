//! Small cases of the engine that loom runs in every order of their threads.
//!
//! Each case states how often threads may be interrupted: one to five times, besides where they
//! block or end. Loom runs all orders within that bound, and lets each atomic load return every
//! store that it may still see. Loom reports an order that hangs as a deadlock, so it finds every
//! lost wakeup within the bound. `SYNCLINE_MODEL_DEEPER=1` raises each bound by one, which takes
//! several times as long.
//!
//! This table lists changes to the engine, each with a case that was seen to fail with it:
//!
//! | change | case |
//! |---|---|
//! | `reached` is stored after the waiters are taken | `waits::a_signal_past_the_value_against_two_waits` |
//! | `reached` is stored, or loaded, relaxed | `waits::a_wait_and_a_query_make_writes_visible` |
//! | `pending` is stored after the waiters are taken | `futures::a_submission_against_a_future_of_pending` |
//! | a registration does not first check whether the wait has ended | `ends::the_last_drop_against_a_submission` |
//! | a wait parks without a check after it registered | `ends::the_last_drop_against_a_held_claim` |
//! | a failure is stored after its waiters are taken | `waits::a_failure_against_a_wait` |
//! | the last drop is stored after its waiters are taken | `waits::the_last_drop_against_a_wait` |
//! | a ticket removes another waiter's registration | `waits::a_time_out_against_a_signal` |
//! | host signals do not wait for each other | `signals::signals_in_a_row_from_two_threads` |
//! | a host signal makes no claim | `signals::a_host_signal_against_a_queue` |
//! | a signal that meets a failure returns success | `waits::a_failure_against_a_signal_against_a_wait` |
//! | a queue forgets that it was woken while it registered, or was driven | `ends::the_last_drop_against_a_submission` |
//! | a queue misses that the driver queue was unlocked meanwhile | `queues::an_unlock_against_a_submission` |
//! | a thread that locks the gate forgets the others that want it; a thread that unlocks it looks for them before it unlocks, or does not look for threads that block | `queues::two_that_hold_the_driver_against_a_submission` |
//! | a queue leaves its waker after it has set the gate to wanted | `queues::an_unlock_against_a_release` |
//! | a thread ends its turn although another thread asked it to check again | `queues::a_release_against_a_submission` |
//! | a claim is checked and taken under two locks | `signals::a_host_signal_against_a_queue` |
//! | a promotion, or that of a queue's position, does not wake waiters | `signals::a_wait_for_pending_against_a_submission`, `signals::a_wait_for_the_position_against_submissions` |
//! | a registration reads the pending value before it sets `awaited` | `signals::a_held_submission_against_its_producer` |
//! | a promotion raises the pending value, or reads `awaited`, with less than `SeqCst` | `signals::a_held_submission_against_its_producer`, `signals::a_wait_for_pending_against_a_submission` |
//! | a claim settles the list after it has checked its value | `signals::two_queues_signal_one_value`, `signals::two_queues_signal_one_value_and_end_later` |
//! | `awaited` is cleared while a waiter is left | `signals::two_waits_for_pending_against_submissions` |
//! | a host signal of a host timeline is checked and made under two locks | `here::equal_signals`, `here::signals_in_a_row_from_three_threads` |
//! | a host signal of a host timeline lets a queue claim before it stores the value | `here::a_signal_against_a_queue` |
//! | a host signal of a host timeline takes the waiters before it stores the value | `here::a_signal_against_a_wait` |
//! | the value and the queue of a promotion are two words | `signals::a_submission_that_ends_early_against_the_next` |
//! | units are counted before the position of their submission is pending, or units of a submission that finishes during the search are not given back | `queues::a_submission_that_takes_units_against_one_that_finds_none` |
//! | the units of finished submissions are counted and removed under two locks | `queues::a_submission_that_finds_no_units_against_an_idle_queue` |
//! | a refused submission keeps its first claim although it cannot make the second | `signals::a_submission_that_steps_back_against_a_signal` |
//! | a claim stays when its submission is refused | `signals::a_refusal_against_a_host_signal` |
//! | a submission overtakes a submission that is being released | `queues::a_release_against_the_next_submission` |
//! | a dropped queue drops objects that its driver uses | `ends::the_drop_of_a_queue_against_a_completion` |
//! | a relay does not try again if it cannot register | `relays::a_completion_against_a_relay` |
//! | a failure does not wake held submissions, or wakes them before it is stored | `queues::a_failure_against_a_submission_that_is_not_the_first` |
//! | a queue takes a failure for one more wait that has come, or keeps the count of waits that it lacks while a thread has the turn | `queues::a_failure_of_one_wait_of_three_against_the_next_release` |
//! | the fence between a failure and the search for held submissions is missing | `queues::a_failure_against_a_submission_that_signals` |
//! | a thread that watches the port itself is not nudged by a failure, or by another waiter; or the other waiter overlooks it; or it stops and no thread watches | `watched::a_failure_against_a_wait_that_leads`, `watched::a_wait_that_leads_against_another`, `watched::a_wait_that_leads_against_one_for_another_timeline` |
//! | a future does not check after it registered | `futures::a_failure_against_a_future` |
//! | a future keeps its first waker, or takes a new one and does not check | `futures::a_signal_against_a_change_of_waker` |
//! | a thread that changes a timeline while another thread writes its page does not ask that thread to write again | `published::a_signal_against_another`, `published::a_failure_against_a_signal`, `published::the_last_drop_against_a_completion` |
//! | the end of a published timeline uses a pending value that was read before its claims | `published::the_last_drop_against_a_promotion` |
//! | a value is visible before the page has it | `published::a_look_against_a_signal`, `published::a_look_against_a_signal_that_is_carried` |
//! | a completion on the host becomes visible outside the order of host signals, or the published side does not accept a signal above a value that was signalled ahead | `published::an_answer_on_the_published_side` |
//! | a position that waits for its signals does not register for them, or forgets them too early, or forgets up to which value it becomes visible | `published::a_position_that_comes_before_its_signal`, `published::positions_against_their_signals` |
//! | a wait for an idle queue does not find the signals that the host still has to make | `relays::a_relay_against_an_idle_queue` |
//! | a wait for a submission does not check whether it is skipped, or is not woken | `queues::a_failure_against_a_wait_for_what_it_skips` |
//! | a skipped number can go to the driver before the submission is listed as skipped: the first of a queue, or one behind it | `queues::a_failure_and_a_release_against_a_wait_for_what_is_skipped` |
//! | a poll reads the raw claims before the list of claims, so that it takes a promise that is being made for a claim of the engine | `promises::a_poll_against_a_promise` |
//! | a host queue's worker is not woken | `workers::submissions_against_a_worker` |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod driver;
mod ends;
mod futures;
mod here;
mod promises;
mod published;
mod queues;
mod relays;
mod signals;
mod waits;
mod watched;
mod workers;

use std::cell::Cell;
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Once};
use std::time::Duration;

use syncline_model::{Error, Memory};

/// No deadline.
const FOREVER: Duration = Duration::MAX;

/// A deadline that passes as soon as the waiting thread parks.
const A_WHILE: Duration = Duration::from_nanos(1);

std::thread_local! {
    /// The number of orders that the current case has run in, and the memory model.
    static RUN: Cell<(u64, Memory)> = const { Cell::new((0, Memory::Strong)) };
}

/// Runs `case` in every order with at most `interruptions` interruptions of threads.
///
/// Switches where a thread blocks or ends do not count.
fn interrupted(interruptions: usize, case: impl Fn() + Sync + Send + 'static) {
    static TELL: Once = Once::new();
    if runs_apart() {
        return;
    }
    TELL.call_once(tell_before_unwinding);
    let deeper = std::env::var(DEEPER).map_or(0, |more| more.parse().expect(DEEPER));
    let case = Arc::new(case);
    for memory in [Memory::Weak, Memory::Strong] {
        memory.select();
        RUN.set((0, memory));
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(interruptions + deeper);
        model.max_branches = 10_000;
        let case = case.clone();
        model.check(move || {
            RUN.set((RUN.get().0 + 1, memory));
            case();
        });
        println!("{memory:?} memory: {} orders", RUN.get().0);
    }
}

/// The environment variable with the number of interruptions to add to each case's.
const DEEPER: &str = "SYNCLINE_MODEL_DEEPER";

/// The environment variable with the name of the only case that a process runs.
const APART: &str = "SYNCLINE_MODEL_CASE";

/// Runs the current case in a process of its own and returns true.
///
/// Returns false in that process, and if no other case runs beside this one (`--test-threads=1`).
/// Loom maps a new stack for each thread of a model, about a million times. The system stops all
/// threads of the process for each of them, so two models in one process take twice as long as in
/// two processes.
fn runs_apart() -> bool {
    std::thread_local! { static HAS_RUN: Cell<bool> = const { Cell::new(false) } }
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main");
    let Some(name) = name.filter(|_| std::env::var_os(APART).is_none()) else {
        return false;
    };
    if HAS_RUN.replace(true) {
        // The process has run all models of the case.
        return true;
    }
    let ran = Command::new(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--test-threads=1", "--nocapture"])
        .env(APART, name)
        .output()
        .expect("a process for the case");
    let [out, err] = [&ran.stdout, &ran.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(
        ran.status.success() && out.contains("test result: ok. 1 passed"),
        "{}\n{out}{err}",
        ran.status
    );
    print!("{out}");
    true
}

/// Prints the case and its order before a panic unwinds, without the capture of the test's output.
///
/// A failed model cannot always be unwound: drops in the engine use loom, which has already ended.
/// The process is aborted then, without other output.
fn tell_before_unwinding() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let (order, memory) = RUN.get();
        let thread = std::thread::current();
        let apart = std::env::var(APART).ok();
        let case = apart.as_deref().or(thread.name()).unwrap_or("?");
        let mut out = std::io::stderr().lock();
        let _ = writeln!(out, "{case}: order {order}, {memory:?} memory: {panic}");
        drop(out);
        usual(panic);
    }));
}

/// The failure that cases use.
fn planted() -> Error {
    Error::work(std::io::Error::other("planted"))
}

/// True if `error` carries [`planted`].
fn is_planted(error: &Error) -> bool {
    matches!(error, Error::Failed { cause, .. } if cause.to_string() == planted().to_string())
}
