//! The graph of held submissions: which of them wait for each other.
//!
//! A node is a submission that a queue holds, or a signal that the host will make for one. Such a
//! signal waits for the submission's end. A node depends on the nodes that have claimed the points
//! that it waits for. It also depends on the nodes that have claimed the predecessors of its
//! signals.
//!
//! A queue's position is a timeline like any other here: submission `n` claims `n` of it. So the
//! order within a queue needs no edges of its own. That claim is not recorded, because the
//! submissions of a queue are stored in order (`nodes`).
//!
//! A wait that no node has claimed has no edge, because a signal may still come. So every edge of a
//! circle leads to a claimed point, and no legal signal can break the circle. The engine refuses
//! the submission that would close a circle (Q4).
//!
//! Every node has a rank above the ranks of the nodes that it depends on. A new node usually fits
//! between its dependencies and its dependents. If it does not, the search visits only the
//! dependents whose rank is in the way, as in Pearce and Kelly's dynamic topological sort. So the
//! cost per link does not depend on the length of a chain.
//!
//! There is one graph in a process, because a circle may lead through any devices. Independent
//! users of the library are never connected in it. While a thread holds the graph's lock, it takes
//! only the lock of one timeline's list (`timeline/held_index.rs`) at a time.

pub(crate) mod blockers;
mod entry;
mod graph;
mod node;
mod nodes;
mod order;

pub use entry::lost_devices;
pub(crate) use entry::{QueueEntry, RelayEntry};
pub(crate) use node::{Edges, Holder, QueueOrigin};

#[cfg(test)]
mod tests;
