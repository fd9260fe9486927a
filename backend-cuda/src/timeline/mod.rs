//! Ports of timelines, and the watch over them.
//!
//! A port is a ring of events, a counter in shared memory, a word of the application or an imported
//! semaphore.

pub(crate) mod counter;
pub(crate) mod external;
pub(crate) mod groups;
pub(crate) mod imported;
pub(crate) mod node_word;
pub(crate) mod port;
pub(crate) mod ring;
pub(crate) mod semaphore;
pub(crate) mod visibility;
pub(crate) mod watch;
pub(crate) mod word;
