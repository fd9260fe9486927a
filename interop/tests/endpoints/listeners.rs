//! Endpoints that connect by a path.

use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use syncline::Error;
use syncline::process::{Endpoint, Listener};

use super::{Alone, LONG};

/// A temporary directory of one test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("syncline-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn code(error: &Error) -> i64 {
    match error {
        Error::Native { code, .. } => *code,
        other => panic!("{other}"),
    }
}

fn is(errno: Errno) -> i64 {
    errno.raw_os_error().into()
}

#[test]
fn a_path_is_taken_once_and_given_back() {
    let alone = Alone::new();
    {
        let folder = Folder::new("path");
        let path = folder.0.join("socket");
        let refused = Endpoint::connect(&path, "early", LONG).unwrap_err();
        assert_eq!(code(&refused), is(Errno::NOENT));
        let name = format!("\"early to {}\"", path.display());
        assert!(refused.to_string().contains(&name), "{refused}");
        let listener = Listener::bind(&path).unwrap();
        assert_eq!(
            code(&Listener::bind(&path).unwrap_err()),
            is(Errno::ADDRINUSE)
        );
        assert!(
            listener
                .accept("no client", Duration::ZERO)
                .unwrap_err()
                .is_timeout()
        );
        drop(listener);
        assert!(!path.exists());
        // A file that another program has put there stays.
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(
            code(&Listener::bind(&path).unwrap_err()),
            is(Errno::ADDRINUSE)
        );
        std::fs::remove_file(&path).unwrap();
        let listener = Listener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        drop(listener);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
        assert_eq!(
            code(&Listener::bind(folder.0.join("x".repeat(200))).unwrap_err()),
            is(Errno::NAMETOOLONG)
        );
        let refused = Endpoint::connect("\0abc", "nul", LONG).unwrap_err();
        assert_eq!(code(&refused), is(Errno::INVAL));
    }
    alone.nothing_is_left();
}

#[test]
fn a_connecting_process_is_greeted() {
    let alone = Alone::new();
    {
        let folder = Folder::new("greets");
        let path = folder.0.join("socket");
        let listener = Listener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            let accepts = scope.spawn(|| listener.accept("server", LONG).unwrap());
            let one = Endpoint::connect(&path, "client", LONG).unwrap();
            let other = accepts.join().unwrap();
            assert_eq!(one.peer(), other.peer());
            one.check().unwrap();
        });
        // A client that does not greet delays `accept` up to its time limit. The next is served.
        let silent = std::thread::scope(|scope| {
            let accepts = scope.spawn(|| listener.accept("server", Duration::from_millis(20)));
            let silent = mute(&path);
            let refused = accepts.join().unwrap().unwrap_err();
            assert!(refused.is_timeout(), "{refused}");
            silent
        });
        std::thread::scope(|scope| {
            let accepts = scope.spawn(|| {
                loop {
                    // The mute client may have connected too late for the first `accept`.
                    match listener.accept("server", LONG) {
                        Err(error) if error.is_timeout() => {}
                        other => break other.unwrap(),
                    }
                }
            });
            drop(silent);
            match Endpoint::connect(&path, "client", LONG) {
                Ok(_) => drop(accepts.join().unwrap()),
                Err(error) => panic!("{error}"),
            }
        });
    }
    alone.nothing_is_left();
}

/// A process has no use for the path by which its peer has found it.
#[test]
fn a_greeting_has_the_label_and_not_the_path() {
    let alone = Alone::new();
    {
        let folder = Folder::new("label");
        let path = folder.0.join("socket");
        let server = socket();
        rustix::net::bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&server, 1).unwrap();
        std::thread::scope(|scope| {
            let connects = scope.spawn(|| Endpoint::connect(&path, "the label", LONG));
            let client = rustix::net::accept_with(&server, SocketFlags::CLOEXEC).unwrap();
            let mut greeting = [0; 4096];
            let (length, _) =
                rustix::net::recv(&client, &mut greeting, RecvFlags::empty()).unwrap();
            let greeting = String::from_utf8_lossy(&greeting[..length]);
            assert!(greeting.contains("the label"), "{greeting:?}");
            assert!(!greeting.contains("socket"), "{greeting:?}");
            drop(client);
            assert!(connects.join().unwrap().is_err());
        });
    }
    alone.nothing_is_left();
}

fn socket() -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
}

/// Connects, and sends nothing.
fn mute(path: &std::path::Path) -> OwnedFd {
    let socket = socket();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// The listener accepts nothing and its backlog is full: `connect` ends after its time limit.
#[test]
fn a_full_backlog_times_out() {
    let alone = Alone::new();
    {
        let folder = Folder::new("full");
        let path = folder.0.join("socket");
        let _listener = Listener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        let refused = loop {
            // While the backlog has room, `connect` succeeds and then waits for a greeting.
            match Endpoint::connect(&path, "client", Duration::from_millis(5)).unwrap_err() {
                Error::PeerSilent { awaited, .. }
                    if awaited == "send a greeting" && waiting.len() < 64 =>
                {
                    waiting.push(mute_if_there_is_room(&path));
                }
                other => break other,
            }
        };
        assert!(
            matches!(
                &refused,
                Error::PeerSilent { awaited, .. } if awaited == "make room for a connection"
            ),
            "{refused}"
        );
    }
    alone.nothing_is_left();
}

fn mute_if_there_is_room(path: &std::path::Path) -> Option<rustix::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
    let connected = rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap());
    connected.is_ok().then_some(socket)
}

/// A client that connects and sends nothing delays neither `accept` nor the next clients.
#[test]
fn a_silent_client_does_not_hold_those_behind_it() {
    let alone = Alone::new();
    {
        let folder = Folder::new("silent");
        let path = folder.0.join("socket");
        let listener = std::sync::Arc::new(Listener::bind(&path).unwrap());
        let silent = [mute(&path), mute(&path)];
        let (done, told) = std::sync::mpsc::channel();
        let accepts = listener.clone();
        std::thread::spawn(move || {
            let accepted = accepts.accept("server", Duration::MAX);
            drop(accepts);
            done.send(accepted)
        });
        let client = Endpoint::connect(&path, "client", LONG).unwrap();
        let server = told
            .recv_timeout(LONG)
            .expect("`accept` waits for the silent client")
            .unwrap();
        assert_eq!(server.peer(), client.peer());
        drop(silent);
    }
    alone.nothing_is_left();
}

/// P1: a client that hangs up, or sends anything but a greeting, does not end the call.
#[test]
fn clients_that_do_not_greet_well_do_not_end_the_call() {
    let alone = Alone::new();
    {
        let folder = Folder::new("rubbish");
        let path = folder.0.join("socket");
        let listener = Listener::bind(&path).unwrap();
        let rubbish = || {
            let socket = mute(&path);
            let bytes = b"GET / HTTP/1.1 and no greeting at all";
            rustix::net::send(&socket, bytes, rustix::net::SendFlags::empty()).unwrap();
            socket
        };
        // These connections are in the backlog before the honest client.
        drop(mute(&path));
        let stays = rubbish();
        drop(rubbish());
        std::thread::scope(|scope| {
            let client = scope.spawn(|| Endpoint::connect(&path, "client", LONG).unwrap());
            let server = listener.accept("server", LONG).unwrap();
            let client = client.join().unwrap();
            assert_eq!(server.peer(), client.peer());
            server.check().unwrap();
            drop(client);
        });
        // Without an honest client `accept` returns the error of the last client, or a timeout.
        let hung_up = mute(&path);
        drop(hung_up);
        let refused = listener.accept("server", Duration::ZERO).unwrap_err();
        assert!(matches!(refused, Error::PeerLost { .. }), "{refused}");
        let refused = listener.accept("server", Duration::ZERO).unwrap_err();
        assert!(refused.is_timeout(), "{refused}");
        drop(stays);
    }
    alone.nothing_is_left();
}

/// An empty path would name an abstract socket, which has no permissions.
#[test]
fn an_empty_path_is_refused() {
    let alone = Alone::new();
    let refused = Listener::bind("").unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    alone.nothing_is_left();
}
