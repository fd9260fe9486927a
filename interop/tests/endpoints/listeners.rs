//! Endpoints that connect by a path.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
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
        drop(stays);
    }
    alone.nothing_is_left();
}

/// The error of an `accept` that waits no longer than for what is there.
fn turned_away(listener: &Listener) -> String {
    let refused = listener.accept("server", Duration::ZERO).unwrap_err();
    assert!(refused.is_timeout(), "{refused}");
    refused.to_string()
}

/// A greeting of this process, as it is sent.
fn greeting(folder: &Folder) -> Vec<u8> {
    let path = folder.0.join("greeting");
    let server = socket();
    rustix::net::bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&server, 1).unwrap();
    std::thread::scope(|scope| {
        let connects = scope.spawn(|| Endpoint::connect(&path, "client", LONG));
        let client = rustix::net::accept_with(&server, SocketFlags::CLOEXEC).unwrap();
        let mut greeting = vec![0; 4096];
        let (length, _) = rustix::net::recv(&client, &mut *greeting, RecvFlags::empty()).unwrap();
        drop(client);
        assert!(connects.join().unwrap().is_err());
        greeting.truncate(length);
        greeting
    })
}

/// P1: the time-out of `accept` names each client that was turned away, and the reason.
#[test]
fn the_time_out_names_the_clients_that_were_turned_away() {
    let alone = Alone::new();
    {
        let folder = Folder::new("turned-away");
        let path = folder.0.join("socket");
        let listener = Listener::bind(&path).unwrap();
        let own = std::process::id();
        assert!(!turned_away(&listener).contains("turned away"));
        let greeting = greeting(&folder);
        let sends = |bytes: &[u8], descriptors: &[std::os::fd::BorrowedFd<'_>]| {
            let socket = mute(&path);
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut with = SendAncillaryBuffer::new(&mut space);
            if !descriptors.is_empty() {
                assert!(with.push(SendAncillaryMessage::ScmRights(descriptors)));
            }
            let bytes = [std::io::IoSlice::new(bytes)];
            rustix::net::sendmsg(&socket, &bytes, &mut with, SendFlags::empty()).unwrap();
            socket
        };
        let check = |listener: &Listener, reason: &str| {
            let text = turned_away(listener);
            let whole = format!("did not connect (1 client turned away: process {own}: {reason}");
            assert!(text.contains(&whole), "{reason:?} is not in: {text}");
        };

        let client = sends(b"GET / HTTP/1.1 and no greeting at all", &[]);
        check(
            &listener,
            "expected a message of this library, and was sent something that begins with GET ",
        );
        drop(client);
        let mut other_version = greeting.clone();
        other_version[4] = 77;
        let client = sends(&other_version, &[]);
        check(
            &listener,
            "expected messages of version 6, and was sent version 77",
        );
        drop(client);
        let client = sends(&greeting, &[alone_descriptor().as_fd()]);
        check(
            &listener,
            "expected a greeting without descriptors, and was sent one with some",
        );
        drop(client);
        drop(mute(&path));
        check(&listener, "it closed its end before it had greeted");
        let client = mute(&path);
        check(&listener, "it did not send a greeting within ");
        drop(client);
    }
    alone.nothing_is_left();
}

fn alone_descriptor() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// Set in the child of the test below: the path of the listener.
const FROM_ANOTHER_NAMESPACE: &str = "SYNCLINE_ENDPOINTS_NAMESPACE";

/// P1: a client in another pid namespace is turned away, and both sides learn the reason.
#[test]
fn a_client_in_another_pid_namespace_is_named() {
    let ways: [&[&str]; 2] = [
        &["--pid", "--fork"],
        &["--user", "--map-root-user", "--pid", "--fork"],
    ];
    let works = |way: &&&[&str]| {
        let mut unshare = std::process::Command::new("unshare");
        let status = unshare.args(**way).arg("true").status();
        status.is_ok_and(|status| status.success())
    };
    let Some(way) = ways.iter().find(works) else {
        println!("skipped: `unshare --pid` is not there, or this process may not call it");
        return;
    };
    let alone = Alone::new();
    {
        let folder = Folder::new("namespace");
        let path = folder.0.join("socket");
        let listener = Listener::bind(&path).unwrap();
        let client = || -> String {
            let mut child = std::process::Command::new("unshare")
                .args(*way)
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", "listeners::in_another_namespace", "--nocapture"])
                .env(FROM_ANOTHER_NAMESPACE, &path)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let mut told = String::new();
            let status = loop {
                let refused = listener.accept("server", Duration::from_millis(500));
                told.push_str(&refused.unwrap_err().to_string());
                told.push('\n');
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
            };
            assert!(status.success(), "the client: {status}");
            told
        };
        // On a busy machine a call may end between the connection and the greeting.
        let told: Vec<_> = (0..10)
            .map(|_| client())
            .take_while(|told| !told.contains("both must be in one pid namespace"))
            .collect();
        assert!(told.len() < 10, "{told:#?}");
    }
    alone.nothing_is_left();
}

/// Not a test. The test above runs it as its child process.
#[test]
fn in_another_namespace() {
    let Some(path) = std::env::var_os(FROM_ANOTHER_NAMESPACE) else {
        return;
    };
    let refused = Endpoint::connect(path, "client", LONG).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("both must be in one pid namespace"), "{text}");
}

/// An empty path would name an abstract socket, which has no permissions.
#[test]
fn an_empty_path_is_refused() {
    let alone = Alone::new();
    let refused = Listener::bind("").unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    alone.nothing_is_left();
}

/// P1: another thread ends an accept, at any moment of the call.
#[test]
fn a_closed_listener_accepts_no_process() {
    let alone = Alone::new();
    {
        let folder = Folder::new("closed");
        let path = folder.0.join("socket");
        let listener = Listener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            let accepts = [0; 2].map(|_| scope.spawn(|| listener.accept("client", LONG)));
            listener.close();
            for accept in accepts {
                let ended = accept.join().unwrap();
                assert!(matches!(ended, Err(Error::Closed { .. })), "{ended:?}");
            }
        });
        let refused = Endpoint::connect(&path, "late", LONG).unwrap_err();
        assert_eq!(code(&refused), is(Errno::CONNREFUSED));
    }
    alone.nothing_is_left();
}
