//! P1, P2, P3: messages and endpoints. Both ends are in this process.

#[cfg(feature = "cuda")]
mod events;
mod heap;
mod loss;
mod messages;
mod offers;
mod points;
mod raw;

use std::os::fd::OwnedFd;
use std::time::Duration;

use syncline_core::error::Object;

use super::closing::PeerFd;
use super::handover::ReceivedOffer;
use super::hostile::Raw;
use super::message::{Content, Offer};
use super::peer::Peer;
use super::poll::Deadline;
use super::socket::Socket;
use super::{Endpoint, greeting};

/// Longer than any step of a test takes.
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

/// Both ends in this process. `change` changes what the second one knows of the first.
fn both_with(change: impl FnOnce(&Object, Peer) -> Peer + Send + 'static) -> (Endpoint, Endpoint) {
    let (ours, theirs) = pair();
    let other = std::thread::spawn(|| {
        let greet = |object: &Object, socket: &Socket, deadline| {
            let peer = greeting::greet(object, socket, deadline)?;
            Ok(change(object, peer))
        };
        Endpoint::over(theirs, "theirs", LONG, greet).unwrap()
    });
    let one = Endpoint::open(ours, "ours", LONG).unwrap();
    (one, other.join().unwrap())
}

/// Reads what has arrived without asking for anything.
fn read_socket(endpoint: &Endpoint) -> syncline_core::Error {
    let connection = endpoint.connection();
    let nothing = connection.receive("do anything", Deadline::after(NOW), |_| None::<()>);
    nothing.unwrap_err()
}

/// The next object of [`offer`](super::hostile::offer), with its received offer and descriptors.
fn receive(endpoint: &Endpoint) -> syncline_core::Result<(ReceivedOffer<'_>, Offer, Vec<PeerFd>)> {
    endpoint.receive_object(Content::Timeline, "offered", Deadline::after(NOW))
}

/// An endpoint, and a bare socket as its peer, which has sent a greeting.
fn against_raw() -> (Endpoint, Raw) {
    let (ours, theirs) = pair();
    let mut raw = Raw::new(theirs);
    raw.hello();
    (Endpoint::open(ours, "ours", LONG).unwrap(), raw)
}
