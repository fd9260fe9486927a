//! The cost of Syncline beside that of direct driver calls.
//!
//! A [`Row`] does one operation of applications through Syncline and with direct driver calls (the
//! files under `raw/`). [`measure()`] runs these sides alternately in one process, over many
//! rounds. A [`Report`] has their medians, percentiles and ratios, and says which [`Limit`]s of the
//! rows are met.
//!
//! | module | subject |
//! |---|---|
//! | [`row`], [`rows`] | what a row is; all rows, by family |
//! | [`limit`] | limits of rows |
//! | [`lab`] | how the sides of a row are timed |
//! | [`machine`] | the devices, and the subjects of rows |
//! | [`heap`] | an allocator that can count |
//! | [`hops`] | the cost of a dependency between every two queues |
//! | [`mod@measure`], [`report`] | a whole run, and its result |

mod cpu;
pub mod heap;
pub mod hops;
pub mod lab;
pub mod limit;
pub mod machine;
pub mod measure;
mod processor;
mod raw;
pub mod report;
pub mod row;
pub mod rows;
mod side;
mod stats;

pub use lab::Lab;
pub use limit::Limit;
pub use machine::{Machine, Subject};
pub use measure::{Options, Plan, measure};
pub use report::Report;
pub use row::Row;
pub use side::{Outcome, Stop};

use std::process::ExitCode;

/// Runs the job of a child process, if this process is one, and returns its exit code.
///
/// To be called first in `main` of a program that measures rows: the row `process.point` needs a
/// second process, which is the same program once more.
#[must_use]
pub fn child() -> Option<ExitCode> {
    rows::serve()
}
