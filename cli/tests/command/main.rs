//! The command as a user meets it.

mod processes;
mod software;
mod usage;
