//! Timelines, memory and points shared by several processes.
//!
//! An [`Endpoint`] is one end of a connection between two processes, over a Unix socket that keeps messages apart (`SOCK_SEQPACKET`, see
//! unix(7)). What they need, what they make of it, the handles as file descriptors, and points go through it (P1, P2); and
//! it knows when the other process has gone (P3).

mod agree;
mod endpoint;
mod listener;
#[allow(dead_code, reason = "not there yet")]
mod message;
mod plan;
#[allow(dead_code, reason = "not there yet")]
mod wire;

pub use agree::{Disagreement, negotiate_among};
pub use endpoint::Endpoint;
pub use listener::Listener;

/// Who has to know when another process is lost.
pub(crate) trait Survivor: Send + Sync {
    /// The other process is lost. Called by the endpoint's own thread, or by who [registers](Endpoint::survive) too late. Twice at most: a process that
    /// [left](syncline_core::PeerLoss::Left), [hung up](syncline_core::PeerLoss::HungUp) or was [shut out](syncline_core::PeerLoss::ShutOut) may
    /// [die](syncline_core::PeerLoss::Died) later. It must not block for long, nor hold the endpoint.
    fn lost(&self, how: &syncline_core::PeerLoss);
}
