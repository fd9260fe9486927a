//! What Syncline costs, beside what hand-written driver calls cost.
//!
//! A [`Row`] is one thing that an application does, twice: through Syncline, and as somebody would
//! write it by hand against the driver, with nothing in between (the files under `raw/`).
//! [`measure()`] runs both alternately in one process, many rounds, and [`Report`] says what came
//! out: both medians, their spread, their ratio, and whether the row's [`Bar`] is met. Nothing here
//! judges a time by itself: bars are data, and missing one is an answer.
//!
//! | module | subject |
//! |---|---|
//! | [`rows`] | the rows, by family |
//! | [`bar`], [`stats`] | what is asked of a row; medians and percentiles |
//! | [`lab`], [`race`] | the sides of a row, and how they are timed |
//! | [`machine`] | the devices, and which of them a row is offered to |
//! | [`heap`] | an allocator that can count |
//! | [`frames`] | the pipeline of the demo, which is a row too |
//! | [`hops`] | what a dependency costs between every two queues |
//! | [`mod@measure`], [`report`] | a whole run, and what it found |
//! | [`page`] | two recorded runs as tables |
//! | [`compare`] | how many times as long each row of one recording takes as in another |

pub mod compare;
mod cpu;
pub mod frames;
pub mod heap;
pub mod hops;
pub mod lab;
pub mod limit;
pub mod machine;
pub mod measure;
pub mod page;
pub mod race;
mod raw;
pub mod report;
pub mod rows;
pub mod stats;

pub use lab::{Lab, Outcome, Side, Stop};
pub use limit::Limit;
pub use machine::{Machine, Subject};
pub use measure::{Options, Plan, measure};
pub use report::Report;
pub use rows::Row;

use std::process::ExitCode;

/// To be called first in `main` of a program that measures rows: some raw calls can hang, and run
/// in a child process, which is the same program once more. If this process is such a child it does
/// its work, and returns what `main` has to.
#[must_use]
pub fn child() -> Option<ExitCode> {
    raw::child::serve()
}
