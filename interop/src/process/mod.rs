//! Timelines, memory and points shared by several processes.
//!
//! An [`Endpoint`] is one end of a connection between two processes. It uses a Unix socket of type
//! `SOCK_SEQPACKET`, which keeps message boundaries (unix(7)). The two processes use it to
//!
//! 1. agree on a plan: [`Endpoint::negotiate`].
//! 2. make the object, with one call in each process:
//!    [`Plan::make_across`](crate::negotiate::Plan::make_across).
//! 3. send [points](Endpoint::send_point) and [words of memory](Endpoint::send_words).
//!
//! If the peer process dies, all timelines that it still had to signal fail. CUDA's interprocess
//! events cannot fail in this way. Therefore it is `unsafe` to receive one. (`Endpoint::send_event`
//! and `Endpoint::receive_event` exist in builds with CUDA.)
//!
//! ```
//! use std::time::Duration;
//! use syncline::process::Endpoint;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (ours, theirs) = Endpoint::pair()?; // one end is for a child process
//! # let child = std::thread::spawn(move || Endpoint::open(theirs, "child", Duration::from_secs(5)));
//! let endpoint = Endpoint::open(ours, "parent", Duration::from_secs(5))?;
//! println!("connected to process {}", endpoint.peer().id);
//! # drop(child.join());
//! # Ok(())
//! # }
//! ```
//!
//! # fork
//! An [`Endpoint`], a [`Listener`] and a timeline of several processes belong to the process that
//! made them. A child of fork(2) has copies. The child may drop the copies, end by `_exit`, or call
//! execve(2), and other processes see none of this. The child must not use the copies in any other
//! way: no thread of the parent runs in the child, and signals of the child would count as the
//! parent's. The descriptors of the copies stay open in the child until it ends or calls execve(2).
//! Calls on a timeline or a device of the parent return
//! [`Error::MadeBeforeFork`](crate::Error::MadeBeforeFork). A child that needs timelines opens its
//! own devices and its own endpoint.

mod agree;
mod closing;
mod connection;
mod control;
mod endpoint;
#[cfg(feature = "cuda")]
mod event;
mod extent;
mod greeting;
mod guard;
mod handover;
#[cfg(any(test, fuzzing))]
mod hostile;
mod inbox;
#[cfg(feature = "cuda")]
mod kept;
mod listener;
mod message;
mod numbers;
mod offers;
mod parties;
mod peer;
mod plan;
mod poll;
mod socket;
#[cfg(test)]
mod tests;
mod wire;

pub use agree::negotiate_among;
pub use endpoint::Endpoint;
pub use listener::Listener;

/// Entry points of the fuzzing targets in `lab/fuzz/`.
#[cfg(fuzzing)]
pub mod fuzzing {
    use super::hostile;
    use super::message::{MAX_MESSAGE, Message};

    /// Decodes any bytes, and encodes a decoded message again.
    ///
    /// # Panics
    /// If the encoded bytes differ from `bytes`.
    pub fn message(bytes: &[u8]) {
        let Ok((sequence, message)) = Message::decode(bytes) else {
            return;
        };
        let mut again = vec![0; MAX_MESSAGE];
        let length = message.encode(sequence, &mut again);
        assert_eq!(length.map(|length| &again[..length]), Ok(bytes));
        assert_eq!(Message::decode(bytes), Ok((sequence, message)));
    }

    /// Plays a script to a live endpoint.
    ///
    /// # Panics
    /// If a descriptor stays open, or if the endpoint is neither usable nor closed with a typed
    /// error.
    pub fn endpoint(script: &[u8]) {
        let before = hostile::descriptors();
        hostile::play(script);
        // The closing thread is not joined, so its descriptors may be open for a moment.
        let begin = std::time::Instant::now();
        while hostile::descriptors() != before && begin.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert_eq!(hostile::descriptors(), before);
    }

    /// Seed messages: one of each kind.
    #[must_use]
    pub fn messages() -> Vec<Vec<u8>> {
        let encoded = |message: &Message| {
            let mut buffer = vec![0; MAX_MESSAGE];
            let length = message.encode(3, &mut buffer).unwrap_or(0);
            buffer.truncate(length);
            buffer
        };
        hostile::samples().iter().map(encoded).collect()
    }

    /// Seed scripts: each action of the peer, followed by calls of the endpoint.
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
