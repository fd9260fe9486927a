//! Timelines, memory and points shared by several processes.
//!
//! An [`Endpoint`] is one end of a connection between two processes, over a Unix socket that keeps messages apart (`SOCK_SEQPACKET`, see
//! unix(7)). What they need and what that comes to goes through it ([`Endpoint::negotiate`]); then the objects, by one call in each process
//! ([`Plan::make_across`](crate::negotiate::Plan::make_across)), [points](Endpoint::send_point) and [words of memory](Endpoint::send_words). It knows when the
//! other process has gone, and whatever that should have signalled fails: all but CUDA's own events, which it hands over too
//! (`Endpoint::send_event`, where CUDA is built in), and which are `unsafe` to receive for that reason.
//!
//! # fork
//! An [`Endpoint`], a [`Listener`] and a timeline of several processes belong to the process that has made them. A child of
//! fork(2) has copies. It may drop them, end by `_exit` or become another program (execve(2)); none of this is seen by the other processes. It may do nothing
//! else with the copies: no thread of the parent runs in the child, and signals that the child made would be the parent's. Their descriptors stay open in the child until it ends or becomes another program. A
//! child that needs timelines of its own starts as another program and opens an endpoint of its own. Devices and queues of
//! CUDA and Vulkan are not covered: their drivers do not support that a forked child drops them.

mod agree;
mod closing;
mod connection;
mod control;
mod endpoint;
#[cfg(feature = "cuda")]
mod event;
mod greeting;
mod guard;
mod handover;
#[cfg(any(test, fuzzing))]
mod hostile;
mod inbox;
mod listener;
mod message;
mod offers;
mod parties;
mod peer;
mod plan;
mod socket;
#[cfg(test)]
mod tests;
mod wire;

pub use agree::{Disagreement, negotiate_among};
pub use endpoint::Endpoint;
pub use listener::Listener;
pub(crate) use plan::End;

/// Who has to know when another process is lost.
pub(crate) trait Survivor: Send + Sync {
    /// The other process is lost. Called by the endpoint's own thread, or by who [registers](Endpoint::survive) too late. Twice at most: a process that
    /// [left](syncline_core::PeerLoss::Left), [hung up](syncline_core::PeerLoss::HungUp) or was [shut out](syncline_core::PeerLoss::ShutOut) may
    /// [die](syncline_core::PeerLoss::Died) later. It must not block for long, nor hold the endpoint.
    fn lost(&self, how: &syncline_core::PeerLoss);
}

/// What the fuzzing targets call: `fuzz/`.
#[cfg(fuzzing)]
pub mod fuzzing {
    use super::hostile;
    use super::message::{MOST, Message};

    /// Decodes any bytes. What can be decoded is written as the same bytes again.
    ///
    /// # Panics
    /// If it is not.
    pub fn message(bytes: &[u8]) {
        let Ok((sequence, message)) = Message::decode(bytes) else {
            return;
        };
        let mut again = vec![0; MOST];
        let length = message.encode(sequence, &mut again);
        assert_eq!(length.map(|length| &again[..length]), Ok(bytes));
        assert_eq!(Message::decode(bytes), Ok((sequence, message)));
    }

    /// Plays a script to a live endpoint: nothing it does leaves a descriptor behind.
    ///
    /// # Panics
    /// If something does, or the endpoint is neither usable nor closed with a typed error.
    pub fn endpoint(script: &[u8]) {
        let before = hostile::descriptors();
        hostile::play(script);
        // A thread that is not joined closes some.
        let begin = std::time::Instant::now();
        while hostile::descriptors() != before && begin.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert_eq!(hostile::descriptors(), before);
    }

    /// Messages to begin with, one of each kind.
    #[must_use]
    pub fn messages() -> Vec<Vec<u8>> {
        let encoded = |message: &Message| {
            let mut buffer = vec![0; MOST];
            let length = message.encode(3, &mut buffer).unwrap_or(0);
            buffer.truncate(length);
            buffer
        };
        hostile::samples().iter().map(encoded).collect()
    }

    /// Scripts to begin with, one of each thing that the other side does, with the endpoint's calls behind it.
    #[must_use]
    pub fn scripts() -> Vec<Vec<u8>> {
        let script = |act: u8| {
            [
                [0, 29, 0, act, 3, act, 1, 2, 0],
                [act; 9],
                [7, 1, 2, 3, 0, 4, 5, 0, 0],
            ]
            .concat()
        };
        (0..32).map(script).collect()
    }
}
