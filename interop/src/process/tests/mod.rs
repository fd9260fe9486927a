//! P1, P2, P3: messages, and endpoints whose other side is this test.

#[cfg(feature = "cuda")]
mod events;
mod heap;
mod messages;
mod points;
mod raw;
mod survivors;

use std::os::fd::OwnedFd;
use std::time::Duration;

use syncline_core::Object;

use super::hostile::Raw;
use super::peer::Peer;
use super::socket::Socket;
use super::{Endpoint, greeting};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(20);
const NOW: Duration = Duration::ZERO;

fn pair() -> (OwnedFd, OwnedFd) {
    Endpoint::pair().unwrap()
}

/// Both ends in this process.
fn both() -> (Endpoint, Endpoint) {
    let (ours, theirs) = pair();
    let other = std::thread::spawn(|| Endpoint::open(theirs, "theirs", LONG).unwrap());
    let one = Endpoint::open(ours, "ours", LONG).unwrap();
    (one, other.join().unwrap())
}

/// Both ends in this process, of which the second takes the first for something else than it is.
fn both_with(change: impl FnOnce(&Object, Peer) -> Peer + Send + 'static) -> (Endpoint, Endpoint) {
    let (ours, theirs) = pair();
    let other = std::thread::spawn(|| {
        let greet = |object: &Object, socket: &Socket, patience| {
            let peer = greeting::greet(object, socket, patience)?;
            Ok(change(object, peer))
        };
        Endpoint::over(theirs, "theirs", LONG, greet).unwrap()
    });
    let one = Endpoint::open(ours, "ours", LONG).unwrap();
    (one, other.join().unwrap())
}

/// An endpoint, and a bare socket that has greeted.
fn against_raw() -> (Endpoint, Raw) {
    let (ours, theirs) = pair();
    let mut raw = Raw::new(theirs);
    raw.hello();
    (Endpoint::open(ours, "ours", LONG).unwrap(), raw)
}
