//! Memory that several processes have mapped, in sealed files.
//!
//! | file | contents |
//! |---|---|
//! | `counter` | counters: the layout of their page, and how threads sleep on several of them |
//! | `file` | sealed memfds: how they are made, and how received ones are checked |
//! | `mapping` | the mapping of such a file in this process |
//! | `size` | which sizes and ranges memory has |
//! | `words` | shared memory for an application's data |

pub(crate) mod counter;
mod file;
mod mapping;
mod size;
mod words;

pub(crate) use file::{Sealed, make};
pub(crate) use mapping::{Atomic, Mapping};
pub use size::{require_range, require_size, size_refused};
pub use words::{SharedWords, WordsFd};
