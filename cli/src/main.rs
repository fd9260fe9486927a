//! The `syncline` command.

use std::process::ExitCode;

/// Counts allocations only while a row of the bench needs that.
#[global_allocator]
static ALLOCATOR: syncline_bench::heap::Allocator = syncline_bench::heap::Allocator;

fn main() -> ExitCode {
    syncline_cli::Command::new().run()
}
