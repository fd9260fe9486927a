//! Memory that several processes have: sealed files, and what is mapped of them.
//!
//! | file | what is in it |
//! |---|---|
//! | `counter` | counters: the page byte by byte, and how threads sleep on several at once |
//! | `file` | files of memory: made, sealed, and judged where they come in |
//! | `mapping` | one in this process's memory |
//! | `words` | memory for an application's data |

pub(crate) mod counter;
mod file;
mod mapping;
mod words;

pub(crate) use file::{Sealed, make};
pub(crate) use mapping::{Atomic, Mapping};
pub use words::{SharedWords, WordsFd};
