//! Which descriptors an endpoint is made of. What is refused stays open and as it was.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use rustix::fs::{FileType, MemfdFlags, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use syncline::process::Endpoint;
use syncline::{Error, PeerLoss};

use super::{Alone, loss};

#[test]
fn what_is_no_connected_socket_of_messages_is_refused() {
    let alone = Alone::new();
    let seqpacket = || {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    };
    let open = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
    let path = rustix::fs::open("/proc", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let (stream, _other) = UnixStream::pair().unwrap();
    let (datagram, _another) = UnixDatagram::pair().unwrap();
    let cases: [(OwnedFd, &str); 10] = [
        (reader.into(), "not a socket"),
        (writer.into(), "not a socket"),
        (open("/dev/null"), "not a socket"),
        (open("/proc/self/stat"), "not a socket"),
        (path, ""),
        (
            rustix::fs::memfd_create("no socket", MemfdFlags::CLOEXEC).unwrap(),
            "not a socket",
        ),
        (stream.into(), "SOCK_SEQPACKET"),
        (datagram.into(), "SOCK_SEQPACKET"),
        (
            UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            "address family 2",
        ),
        (seqpacket(), "not connected"),
    ];
    for (fd, reason) in cases {
        let number = fd.as_raw_fd();
        let rejected = Endpoint::open(fd, "none", Duration::ZERO).unwrap_err();
        assert_eq!(rejected.handle.as_raw_fd(), number);
        let told = rejected.error.to_string();
        assert!(matches!(rejected.error, Error::Import { .. }), "{told}");
        assert!(told.contains(reason), "{told}");
        let status = rustix::fs::fstat(&rejected.handle).unwrap();
        let _ = FileType::from_raw_mode(status.st_mode);
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let told = Endpoint::open(listener.into(), "none", Duration::ZERO).unwrap_err();
    assert!(matches!(told.error, Error::Import { .. }), "{told}");
    drop((_other, _another));
    alone.nothing_is_left_but(told.handle);
}

impl Alone {
    fn nothing_is_left_but<T>(&self, last: T) {
        drop(last);
        self.nothing_is_left();
    }
}

#[test]
fn nobody_greets() {
    let alone = Alone::new();
    let (ours, theirs) = Endpoint::pair().unwrap();
    let rejected = Endpoint::open(ours, "alone", Duration::from_millis(10)).unwrap_err();
    let Error::PeerSilent {
        awaited, waited, ..
    } = &rejected.error
    else {
        panic!("{rejected}");
    };
    assert_eq!(*awaited, "send a greeting");
    assert!(*waited >= Duration::from_millis(10));
    drop(theirs);
    let rejected = Endpoint::open(rejected.handle, "alone", super::LONG).unwrap_err();
    assert_eq!(loss(&rejected.error), PeerLoss::HungUp);
    drop(rejected);
    alone.nothing_is_left();
}

#[test]
fn an_endpoint_leaves_nothing_behind_and_is_what_it_says() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<Endpoint>();
    let alone = Alone::new();
    for _ in 0..20 {
        let (ours, theirs) = Endpoint::pair().unwrap();
        let other = std::thread::spawn(|| Endpoint::open(theirs, "child", super::LONG).unwrap());
        let one = Endpoint::open(ours, "parent", super::LONG).unwrap();
        let other = other.join().unwrap();
        assert_eq!(one.peer(), other.peer());
        assert_eq!(one.peer().id, std::process::id());
        assert!(
            one.object()
                .to_string()
                .starts_with("endpoint \"parent\" #")
        );
        assert!(!one.trusts_handles());
        one.watches_process().unwrap();
        one.check().unwrap();
        let clone = one.clone();
        drop(one);
        clone.check().unwrap();
    }
    alone.nothing_is_left();
}
