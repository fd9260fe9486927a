//! Lets every driver call of the backends fail, each in a run of its own.
//!
//! `README.md` in the folder above says how to run it and how to read its table.

mod accounts;
mod arguments;
mod client;
mod codes;
mod drivers;
mod exits;
mod gates;
mod judge;
mod one_run;
mod plan;
mod report;
mod scenarios;
mod seams;
mod server;

use std::process::ExitCode;

fn main() -> ExitCode {
    match arguments::run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}
