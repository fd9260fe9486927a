//! Small cases of the engine, each run by loom in every order that its threads can take with at
//! most so many interruptions as the case says (two to five, not counting where they block or end),
//! down to which of the stores of an atomic a load may still see. A case that hangs in any of them
//! is a deadlock, which loom reports; so a lost wakeup that needs no more interruptions cannot
//! hide.
//!
//! Changes to the engine that cases were seen to fail for, and one of those cases each:
//!
//! | change | case |
//! |---|---|
//! | `reached` is stored after the waiters are taken | `waits::a_signal_past_the_value_against_two_waits` |
//! | `reached` is stored, or loaded, relaxed | `waits::a_wait_and_a_query_make_writes_visible` |
//! | `pending` is stored after the waiters are taken | `futures::a_submission_against_a_future_of_pending` |
//! | a registration does not look at the standing first | `ends::the_last_drop_against_a_submission` |
//! | a wait parks without a look after it registered | `ends::the_last_drop_against_a_held_claim` |
//! | a failure is noted after its waiters are taken | `waits::a_failure_against_a_wait` |
//! | the last drop is noted after its waiters are taken | `waits::the_last_drop_against_a_wait` |
//! | a ticket takes out another's registration | `waits::a_time_out_against_a_signal` |
//! | host signals do not wait for each other | `signals::signals_in_a_row_from_two_threads` |
//! | a host signal claims nothing | `signals::a_host_signal_against_a_queue` |
//! | a signal that meets a failure says success | `waits::a_failure_against_a_signal_against_a_wait` |
//! | a queue forgets that it was woken while it registered, or was driven | `ends::the_last_drop_against_a_submission` |
//! | a queue forgets that the driver was unlocked meanwhile | `queues::an_unlock_against_a_submission` |
//! | who takes a driver's queue forgets who else wants it; who gives it back looks for them first, or not for threads that block | `queues::two_that_hold_the_driver_against_a_submission` |
//! | a queue leaves its waker after it has said so | `queues::an_unlock_against_a_release` |
//! | a thread stops driving a queue although it was asked to look again | `signals::two_threads_signal_through_one_queue` |
//! | a claim is checked and taken under two locks | `signals::two_queues_signal_one_value`, `signals::a_host_signal_against_a_queue` |
//! | a promotion, or that of a queue's position, does not wake waiters | `signals::a_wait_for_pending_against_a_submission`, `signals::a_wait_for_the_position_against_submissions` |
//! | a registration looks at the pending value before it sets `awaited` | `signals::a_held_submission_against_its_producer` |
//! | a promotion raises the pending value, or reads `awaited`, with less than `SeqCst` | `signals::a_held_submission_against_its_producer`, `signals::a_wait_for_pending_against_a_submission` |
//! | a claim settles the list after it has checked its value | `signals::two_queues_signal_one_value_and_end_later` |
//! | `awaited` is cleared while a waiter is left | `signals::two_waits_for_pending_against_submissions` |
//! | a host signal of a host timeline is checked and made under two locks | `here::equal_signals`, `here::signals_in_a_row_from_three_threads` |
//! | a host signal of a host timeline takes the waiters out before it stores the value | `here::a_signal_against_a_wait` |
//! | a promotion's value and queue are two words | `signals::a_submission_that_ends_early_against_the_next` |
//! | budget is counted before it is noted, or what finishes while it is looked for is not given back | `queues::a_submission_that_takes_room_against_one_that_finds_none` |
//! | a submission that takes the fast path keeps the first claim where it cannot have the second | `signals::a_submission_that_steps_back_against_a_signal` |
//! | a claim stays when its submission is refused | `signals::a_refusal_against_a_host_signal` |
//! | a submission overtakes what is being let go | `queues::a_release_against_the_next_submission` |
//! | a dropped queue lets go of what its driver uses | `ends::the_drop_of_a_queue_against_a_completion` |
//! | a relay does not try again where it cannot register | `relays::a_completion_against_a_relay` |
//! | a failure is not told to held submissions, or told before it is noted | `queues::a_failure_against_a_submission_that_is_not_the_first` |
//! | a fence between a failure and the look for who is held is missing | `queues::a_failure_against_a_submission_that_signals` |
//! | who watches for himself is not nudged by a failure; or by who waits besides, or is overlooked by that one; or leaves nobody behind who watches | `watched::a_failure_against_a_wait_that_leads`, `watched::a_wait_that_leads_against_another`, `watched::a_wait_that_leads_against_one_for_another_timeline` |
//! | a future does not look after it registered | `futures::a_failure_against_a_future` |
//! | a future keeps its first waker, or takes a new one and does not look | `futures::a_signal_against_a_change_of_waker` |
//! | who has news of a timeline while another thread writes to its page leaves no word | `published::a_signal_against_another`, `published::a_failure_against_a_signal`, `published::the_last_drop_against_a_completion` |
//! | the end of a published timeline is told by what was pending before its claims were looked at | `published::the_last_drop_against_a_promotion` |
//! | a value shows before the page has it | `published::a_look_against_a_signal`, `published::a_look_against_a_signal_that_is_carried` |
//! | a queue's completion on the host shows without the order of host signals, or what was signalled ahead is no value that a published side goes on from | `published::an_answer_on_the_published_side` |
//! | a position that waits for its signals does not register for them, or forgets them too early, or forgets how far it is to show | `published::a_position_that_comes_before_its_signal`, `published::positions_against_their_signals` |
//! | signals that the host is to make are not noted for who waits until the queue is idle | `relays::a_relay_against_an_idle_queue` |
//! | a wait for a submission does not look whether it is skipped, or is not told | `queues::a_failure_against_a_wait_for_what_it_skips` |
//! | a host queue's worker is not woken, or looks for ever for what it has taken already | `workers::submissions_against_a_worker` |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod driver;
mod ends;
mod futures;
mod here;
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

/// A deadline, which comes as soon as the waiting thread parks.
const A_WHILE: Duration = Duration::from_nanos(1);

std::thread_local! {
    /// How many orders the present case has been run in, and under which memory.
    static RUN: Cell<(u64, Memory)> = const { Cell::new((0, Memory::Strong)) };
}

/// Runs `case` in every order in which threads are interrupted at most `interruptions` times, other
/// than where they block or end.
fn interrupted(interruptions: usize, case: impl Fn() + Sync + Send + 'static) {
    static TELL: Once = Once::new();
    if runs_apart() {
        return;
    }
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

/// Set to the name of the case in a process that runs nothing else.
const APART: &str = "SYNCLINE_MODEL_CASE";

/// Has the present case run in a process of its own, once, and says true; false in that process,
/// and where nothing runs beside it (`--test-threads=1`). Loom gives each of a model's threads a
/// new stack, a million times, and the system then stops all threads of the process for each: two
/// models in one process take twice as long as in two.
fn runs_apart() -> bool {
    std::thread_local! { static HAS_RUN: Cell<bool> = const { Cell::new(false) } }
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main");
    let Some(name) = name.filter(|_| std::env::var_os(APART).is_none()) else {
        return false;
    };
    if HAS_RUN.replace(true) {
        // With all that the case runs.
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

/// A model that has failed cannot always be unwound: what the engine does in drops needs loom,
/// which is at its end. The process is aborted then, so what there is to say is said first, past
/// the capture of the test's output.
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

/// The failure that a case plants.
fn planted() -> Error {
    Error::work(std::io::Error::other("planted"))
}

/// True if `error` carries [`planted`].
fn is_planted(error: &Error) -> bool {
    matches!(error, Error::Failed { cause, .. } if cause.to_string() == planted().to_string())
}
