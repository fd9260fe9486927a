//! The backend on a real GPU. Without one each test is reported as ignored, with the reason; set
//! `SYNCLINE_REQUIRE_CUDA` to make that a failure.
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
    let mut trials = common::trials_on_a_gpu(tests.concat());
    trials.push(Trial::test("an_absent_driver_is_a_typed_reason", || {
        errors::an_absent_driver_is_a_typed_reason();
        Ok(())
    }));
    let fault = (errors::FAULT, errors::a_fault_in_this_process as fn());
    let fault = common::trials_on_a_gpu(vec![fault]);
    trials.extend(fault.into_iter().map(|trial| trial.with_ignored_flag(true)));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
