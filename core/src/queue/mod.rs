//! Submission queues: the submissions of one queue, in order, and the hold on those that cannot go
//! yet.
//!
//! A wait goes to the driver only once its signal is pending (Q2). A submission that cannot go yet
//! is held, with all that follow it on its queue. The thread that makes the missing signal pending
//! releases them from its run queue.

// First the parts, lowest first: a submission and its work, the turn, what is held and what is in
// flight. `submission_queue` puts them together. The last group has the steps of a submission, as
// methods of the queue.
mod follow;
mod in_flight;
mod skipped;
mod submission;
mod submitted;
mod turn;
mod work;

mod held_list;
mod relay;
mod state;

mod submission_queue;

mod dropped;
mod finished;
mod hold;
mod host_signals;
mod judge;
#[cfg(all(test, not(syncline_loom)))]
mod lock_counts;
mod loss;
#[cfg(all(test, not(syncline_loom)))]
mod many_waits;
#[cfg(all(test, not(syncline_loom)))]
mod refused_late;
mod send;
mod submit;
mod times;
mod traced;

pub use follow::Traceable;
pub(crate) use follow::{Follow, FollowSubmission};
pub use submission_queue::SubmissionQueue;
pub use submitted::{Held, Submitted};
