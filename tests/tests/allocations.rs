//! H1: what is done once per frame or more often allocates nothing, on no thread of the process, once everything has
//! been done a few times.
//!
//! Counted is what Rust code allocates, on every device that is there; what drivers take for themselves is theirs.

use std::alloc::System;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use syncline::{Device, Inventory, ProbeOptions};
use syncline_conformance::steady::{self, OPERATIONS, Operation, TIMES};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn so_far() -> u64 {
    let stats = ALLOCATOR.stats();
    (stats.allocations + stats.reallocations) as u64
}

fn allocates_nothing(device: &Device, operation: Operation) -> Result<(), Failed> {
    let counted = steady::count(device, operation, &so_far)?;
    if counted.is_nothing() {
        return Ok(());
    }
    let windows = counted.windows();
    Err(format!("allocations and reallocations for every {TIMES} times: {windows:?}").into())
}

fn main() -> ExitCode {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let mut trials = Vec::new();
    for found in inventory.devices() {
        let device = found.open();
        let name = format!("{} {}", found.info().backend, found.info().name);
        for operation in OPERATIONS {
            let device = device.clone();
            let trial = Trial::ignorable_test(operation.name, move || match &device {
                Ok(device) => allocates_nothing(device, operation).map(|()| Completion::Completed),
                Err(reason) => Ok(Completion::ignored_with(reason.to_string())),
            });
            trials.push(trial.with_kind(name.clone()));
        }
    }
    let mut arguments = Arguments::from_args();
    // Everybody's allocations are counted.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}
