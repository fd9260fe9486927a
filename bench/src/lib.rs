//! The cost of Syncline beside that of direct driver calls.
//!
//! A [`Row`] does one operation of applications through Syncline and with direct driver calls (the
//! files under `raw/`). Most rows also have a floor: the least code by hand that keeps the
//! contract. [`measure()`] runs these sides alternately in one process, over many rounds. A
//! [`Report`] has their medians, percentiles and ratios, and says which [`Limit`]s of the rows are
//! met.
//!
//! | module | subject |
//! |---|---|
//! | [`rows`] | the rows, by family |
//! | [`limit`], [`stats`] | limits of rows; medians and percentiles |
//! | [`side`], [`lab`] | the sides of a row, and how they are timed |
//! | [`machine`] | the devices, and the subjects of rows |
//! | [`heap`] | an allocator that can count |
//! | [`hops`] | the cost of a dependency between every two queues |
//! | [`mod@measure`], [`report`] | a whole run, and its result |
//! | [`page`] | a recorded run as a table |
//! | [`compare`] | the growth of rows between two recordings |

pub mod compare;
mod cpu;
pub mod heap;
pub mod hops;
mod interrupts;
pub mod lab;
pub mod limit;
pub mod machine;
pub mod measure;
pub mod page;
mod raw;
pub mod report;
pub mod rows;
mod shared_core;
pub mod side;
pub mod stats;

pub use lab::Lab;
pub use limit::Limit;
pub use machine::{Machine, Subject};
pub use measure::{Options, Plan, measure};
pub use report::Report;
pub use rows::Row;
pub use side::{Outcome, Side, Stop};

use std::process::ExitCode;

/// Runs the job of a child process, if this process is one, and returns its exit code.
///
/// To be called first in `main` of a program that measures rows. Some raw calls can hang, and
/// therefore run in a child process, which is the same program once more.
#[must_use]
pub fn child() -> Option<ExitCode> {
    raw::child::serve()
}
