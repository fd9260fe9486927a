//! Lines on standard output and standard error.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process;

/// Prints a line, as `println!` does, but does not panic if the reader has closed the pipe.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

pub(crate) use say;

/// Prints a line, or ends the command with exit code 2 if it cannot be written.
pub(crate) fn line(line: Arguments<'_>) {
    text(&format!("{line}\n"));
}

/// Prints text as it is, or ends the command with exit code 2 if it cannot be written.
pub(crate) fn text(text: &str) {
    if let Err(error) = io::stdout().write_all(text.as_bytes()) {
        // `syncline info | head` closes the pipe early.
        if error.kind() != ErrorKind::BrokenPipe {
            complain(format_args!(
                "error: cannot write to standard output: {error}"
            ));
        }
        process::exit(2);
    }
}

/// Prints a line on standard error. Ignores errors, because they could not be reported.
pub(crate) fn complain(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
