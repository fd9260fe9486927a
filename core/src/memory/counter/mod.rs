//! Counters in shared memory: timelines of several processes and of devices that access memory.
//!
//! | file | contents |
//! |---|---|
//! | `page` | the layout of the page that holds a counter |
//! | `page_file` | the file of such a page |
//! | `fd` | the handle of a counter |
//! | `mapped` | one process's mapping of a counter |
//! | `futex_wait` | how threads sleep on pages and are woken |
//!
//! Another process may write anything to a page at any time. So every value is checked where it is
//! read.

mod fd;
mod futex_wait;
mod mapped;
mod page;
mod page_file;

pub use fd::CounterFd;
pub(crate) use futex_wait::Sleeper;
pub use mapped::Counter;
pub(crate) use mapped::FAILING_TIMEOUT;
pub(crate) use page_file::unavailable;
