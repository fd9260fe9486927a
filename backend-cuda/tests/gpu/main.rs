//! Tests of the backend on a GPU or on a software CUDA driver.
//!
//! `syncline run --software -- cargo test -p syncline-cuda --test gpu` runs them on the latter.
//! Without either driver, each test is reported as ignored, with the reason. With
//! `SYNCLINE_REQUIRE_CUDA` set it fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers, too"
)]

mod adopted;
mod bounds;
mod clock;
mod common;
mod errors;
mod events;
mod graphs;
mod handles;
mod order;
mod setup;

use libtest_mimic::{Arguments, Trial};

fn main() -> std::process::ExitCode {
    let tests = [
        order::tests(),
        events::tests(),
        bounds::tests(),
        adopted::tests(),
        handles::tests(),
        errors::tests(),
        graphs::tests(),
        clock::tests(),
    ];
    let mut trials = common::trials_on_cuda(tests.concat());
    trials.extend(common::trials_on_a_gpu(clock::tests_of_a_gpu()));
    trials.push(Trial::test("an_absent_driver_is_a_typed_reason", || {
        errors::an_absent_driver_is_a_typed_reason();
        Ok(())
    }));
    let fault = (errors::FAULT, errors::a_fault_in_this_process as fn());
    let fault = common::trials_on_cuda(vec![fault]);
    trials.extend(fault.into_iter().map(|trial| trial.with_ignored_flag(true)));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
