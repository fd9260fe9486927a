//! The command as a user meets it.

mod compare;
mod processes;
mod software;
mod usage;
