//! Tests of the command as a user runs it.

mod completions;
mod doctor;
mod examples;
mod processes;
mod software;
mod usage;
mod window;
