//! P3: who hears of a loss, when, and of which. Mostly the other process is this one, which never
//! dies.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use syncline_core::{Error, HandleKind, PeerExit, PeerLoss};

use super::{LONG, NOW, against_raw, both, both_with, look, pair, receive};
use crate::negotiate::{Party, Process};
use crate::process::hostile::{Raw, elsewhere, offer};
use crate::process::message::{Content, Message};
use crate::process::socket::Deadline;
use crate::process::{Disagreement, Endpoint, Listener, LossObserver, negotiate_among};

struct LossRecorder(Mutex<Sender<PeerLoss>>);

impl LossObserver for LossRecorder {
    fn peer_lost(&self, how: &PeerLoss) {
        self.0.lock().unwrap().send(*how).unwrap();
    }
}

pub(super) fn loss_recorder() -> (Arc<dyn LossObserver>, Receiver<PeerLoss>) {
    let (recorder, losses) = channel();
    (Arc::new(LossRecorder(Mutex::new(recorder))), losses)
}

/// How the child behaves, and that it is one.
const ROLE: &str = "SYNCLINE_SURVIVORS_CHILD";

/// A child, which is this program again, and the endpoint to it.
fn child(role: &str) -> (Child, Endpoint) {
    let (ours, theirs) = pair();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::tests::loss::the_child", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    (child, Endpoint::open(ours, "parent", LONG).unwrap())
}

/// No test, but for the other tests' children.
#[test]
fn the_child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    match &*role {
        "has few descriptors" => return with_few_descriptors(),
        "receives without a free descriptor" => return without_a_free_descriptor(),
        "faces hostile peers" => return facing_hostile_peers(),
        _ => {}
    }
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let endpoint = Endpoint::open(socket, "child", LONG).unwrap();
    match &*role {
        "says three points" => {
            for value in 1..=3 {
                endpoint.send_point_of(1, value, LONG).unwrap();
            }
        }
        "leaves" => {
            drop(endpoint);
            // The standard input is the socket still.
            rustix::net::shutdown(std::io::stdin(), rustix::net::Shutdown::Both).unwrap();
        }
        "says goodbye and ends" => return,
        "becomes another program" | "becomes another program, and keeps the socket" => {
            // So that it is known as what it is still.
            endpoint.receive_point_of(LONG).unwrap();
            // Without a farewell.
            std::mem::forget(endpoint);
            let mut other = Command::new("sleep");
            if role == "becomes another program" {
                other.stdin(Stdio::null());
            }
            panic!("{}", other.arg("1000").exec());
        }
        _ => {}
    }
    loop {
        std::thread::park();
    }
}

/// Its last points are heard, and then that it was killed, by everybody who waits for it.
#[test]
fn a_killed_process_is_told_of_after_what_it_sent() {
    let (mut child, one) = child("says three points");
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    for value in 1..=2 {
        assert_eq!(one.receive_point_of(LONG).unwrap(), (1, value));
    }
    // The third is in the socket, or has been taken out of it.
    let waits = one.receive_point_of(LONG).unwrap();
    std::thread::scope(|scope| {
        let receives = [(); 2].map(|()| scope.spawn(|| one.receive_point_of(LONG).unwrap_err()));
        let awaits = scope.spawn(|| one.receive_words("none", 64, LONG).unwrap_err());
        child.kill().unwrap();
        let exit = Some(PeerExit::Signal(9));
        let how = PeerLoss::Died { exit };
        for ended in receives.into_iter().chain([awaits]) {
            let error = ended.join().unwrap();
            assert!(
                matches!(&error, Error::PeerLost { process, how: told, .. }
                    if *process == child.id() && *told == how),
                "{error}"
            );
        }
        assert_eq!(losses.recv_timeout(LONG).unwrap(), how);
    });
    assert_eq!(waits, (1, 3));
    child.wait().unwrap();
}

/// A farewell counts, however soon the process ends behind it, and whether or not somebody reads.
#[test]
fn a_process_that_says_goodbye_and_ends_has_left_first() {
    let (mut child, one) = child("says goodbye and ends");
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Left);
    let exit = Some(PeerExit::Code(0));
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Died { exit });
    left(&one);
    child.wait().unwrap();
}

/// More than there is room for without the socket.
#[test]
fn what_is_in_the_socket_is_received_before_the_loss() {
    let (one, mut raw) = against_raw();
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    let all = 1024 + 50;
    for value in 0..all {
        raw.say(&Message::Point { number: 1, value }, 0);
        if value < 1024 {
            assert!(look(&one).is_timeout());
        }
    }
    drop(raw);
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Left);
    for value in 0..all {
        assert_eq!(one.receive_point_of(LONG).unwrap(), (1, value));
    }
    left(&one);
}

/// One has told what it needs and is gone, while another is waited for that says nothing.
#[test]
fn a_negotiation_ends_with_any_of_its_peers() {
    let (silent, _raw) = against_raw();
    let (gone, mut raw) = against_raw();
    let parties = vec![Party::threads_of(elsewhere()).waits()];
    let told = Message::Requirements {
        round: 1,
        is_all: true,
        parties,
        links: Vec::new(),
    };
    raw.say(&told, 0);
    // The greeting.
    raw.drain();
    let answer = std::thread::scope(|scope| {
        let own = Party::threads().signals();
        let asks = scope.spawn(|| negotiate_among(own, &[&silent, &gone], LONG));
        // It has been told of the round, and what it says is there.
        raw.wait();
        drop(raw);
        asks.join().unwrap()
    });
    assert!(
        matches!(
            &answer,
            Err(Disagreement::Error(Error::PeerLost { how: PeerLoss::Left, endpoint, .. }))
                if endpoint == gone.object()
        ),
        "{answer:?}"
    );
}

/// X1: a process tells of endpoints between two others. The one in the middle passes on what names
/// the process that tells it.
#[test]
fn nobody_tells_of_endpoints_between_others() {
    let [(one, mut first), (other, mut second)] = [(); 2].map(|()| against_raw());
    let peer = *one.peer();
    let third = Process {
        id: elsewhere().id.wrapping_add(1).max(2),
        ..elsewhere()
    };
    let told = |process: Process, links: Vec<_>| Message::Requirements {
        round: 1,
        is_all: true,
        parties: vec![Party::threads_of(process).waits()],
        links,
    };
    first.say(
        &told(elsewhere(), vec![(peer, third), (elsewhere(), third)]),
        0,
    );
    second.say(&told(third, Vec::new()), 0);
    // Nobody says what it has found.
    let late = negotiate_among(Party::threads().signals(), &[&one, &other], NOW).unwrap_err();
    assert!(
        matches!(&late, Disagreement::Error(late) if late.is_timeout()),
        "{late}"
    );
    let links = loop {
        if let Message::Requirements {
            is_all: true,
            links,
            ..
        } = second.hear()
        {
            break links;
        }
    };
    assert!(links.contains(&(peer.min(third), peer.max(third))));
    assert!(!links.iter().any(|(from, to)| *from != peer && *to != peer));
}

/// What it owes may come through shared memory still: so its death is told of, too.
#[test]
fn a_process_that_left_and_dies_later_is_told_of_twice() {
    let (mut child, one) = child("leaves");
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Left);
    assert!(losses.try_recv().is_err());
    child.kill().unwrap();
    let exit = Some(PeerExit::Signal(9));
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Died { exit });
    left(&one);
    let (late, losses) = loss_recorder();
    one.observe_loss(late);
    let both = [losses.try_recv().unwrap(), losses.try_recv().unwrap()];
    assert_eq!(both, [PeerLoss::Left, PeerLoss::Died { exit }]);
    child.wait().unwrap();
}

/// What it owes does not come any more, although its process lives.
#[test]
fn a_process_that_becomes_another_program_has_died() {
    for role in [
        "becomes another program",
        "becomes another program, and keeps the socket",
    ] {
        let (mut child, one) = child(role);
        let (recorder, losses) = loss_recorder();
        one.observe_loss(recorder);
        one.send_point_of(1, 1, LONG).unwrap();
        let how = PeerLoss::Died { exit: None };
        let heard = losses.recv_timeout(LONG);
        let lives = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((heard, lives), (Ok(how), true), "{role}");
    }
}

fn left(endpoint: &Endpoint) {
    let error = endpoint.receive_point_of(LONG).unwrap_err();
    assert!(
        matches!(
            error,
            Error::PeerLost {
                how: PeerLoss::Left,
                ..
            }
        ),
        "{error}"
    );
    let error = endpoint.check().unwrap_err();
    assert!(
        matches!(
            error,
            Error::PeerLost {
                how: PeerLoss::Left,
                ..
            }
        ),
        "{error}"
    );
    let error = endpoint.send_point_of(1, 1, NOW).unwrap_err();
    assert!(
        matches!(
            error,
            Error::PeerLost {
                how: PeerLoss::Left,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn who_has_left_is_told_of_after_what_it_sent() {
    let (one, other) = both();
    let (early, heard) = loss_recorder();
    one.observe_loss(early);
    for value in 0..10 {
        other.send_point_of(1, value, LONG).unwrap();
    }
    // Unread messages make the kernel report a reset, which must cost nothing that was sent.
    one.send_point_of(2, 2, LONG).unwrap();
    drop(other);
    assert_eq!(heard.recv_timeout(LONG).unwrap(), PeerLoss::Left);
    for value in 0..10 {
        assert_eq!(one.receive_point_of(LONG).unwrap(), (1, value));
    }
    left(&one);
    let (late, heard_late) = loss_recorder();
    one.observe_loss(late);
    assert_eq!(heard_late.try_recv().unwrap(), PeerLoss::Left);
    drop(one);
    // Each once, and let go with the endpoint.
    assert!(heard.recv_timeout(LONG).is_err());
    assert!(heard_late.recv_timeout(LONG).is_err());
}

/// Without a farewell: the socket is closed, and the process lives.
#[test]
fn a_closed_socket_of_a_live_process_is_left() {
    let (one, raw) = against_raw();
    drop(raw);
    left(&one);
}

#[test]
fn a_blocked_receiver_and_a_blocked_sender_are_woken() {
    let (one, raw) = against_raw();
    while one.send_point_of(1, 1, NOW).is_ok() {}
    std::thread::scope(|scope| {
        let receives = [(); 3].map(|()| scope.spawn(|| one.receive_point_of(LONG).unwrap_err()));
        let sends = scope.spawn(|| one.send_point_of(1, 1, LONG).unwrap_err());
        drop(raw);
        for ended in receives.into_iter().chain([sends]) {
            let error = ended.join().unwrap();
            assert!(
                matches!(
                    error,
                    Error::PeerLost {
                        how: PeerLoss::Left,
                        ..
                    }
                ),
                "{error}"
            );
        }
    });
}

#[test]
fn who_is_shut_out_is_told_of_and_sees_it() {
    let (one, other) = both();
    let (recorder, losses) = loss_recorder();
    one.observe_loss(Arc::clone(&recorder));
    let (forgotten, nothing) = loss_recorder();
    one.observe_loss(Arc::clone(&forgotten));
    one.stop_observing(&forgotten);
    drop(forgotten);
    // Out of its turn.
    let mut bye = [0; 20];
    Message::Bye.encode(99, &mut bye).unwrap();
    other.connection().socket.send(&bye, &[]).unwrap();
    assert!(matches!(
        one.receive_point_of(LONG),
        Err(Error::Message { .. })
    ));
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::ShutOut);
    assert!(nothing.recv_timeout(LONG).is_err());
    left(&other);
}

/// Whatever is missing, an endpoint that is open watches its process.
fn with_few_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = |current| {
        let maximum = most;
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let had = open();
    let mut failed = Vec::new();
    for spare in 0..8 {
        // The socket of the endpoint before is closed by another thread.
        let begin = std::time::Instant::now();
        while open() != had && begin.elapsed() < LONG {
            std::thread::yield_now();
        }
        assert_eq!(open(), had);
        let (ours, theirs) = pair();
        let mut raw = Raw::new(theirs);
        raw.hello();
        // The lowest that is free.
        let next = rustix::io::dup(&ours).unwrap();
        let lowest = u64::from(next.as_raw_fd().cast_unsigned());
        drop(next);
        limit(Some(lowest + spare));
        let opened = Endpoint::open(ours, "ours", LONG);
        limit(most);
        match opened {
            Ok(endpoint) => endpoint.watches_process().unwrap(),
            Err(rejected) => match rejected.error {
                Error::Native { call, .. } => failed.push(call),
                other => panic!("{other}"),
            },
        }
    }
    assert_eq!(failed, ["eventfd", "eventfd", "eventfd", "pidfd_open"]);
}

/// An object comes where this process may open no more: it waits, and the endpoint goes on.
fn without_a_free_descriptor() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let memory = rustix::fs::memfd_create("kept", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (one, mut raw) = against_raw();
    raw.bytes_beside(
        &raw.encoded(&Message::Object(offer(1, &[HandleKind::CounterMemfd; 3]))),
        &[memory.as_fd(); 3],
    );
    raw.sequence += 1;
    raw.say(
        &Message::Point {
            number: 1,
            value: 1,
        },
        0,
    );
    let before = getrlimit(Resource::Nofile);
    // The lowest that is free.
    let lowest = rustix::io::dup(&memory).unwrap();
    let lowest = u64::from(lowest.as_raw_fd().cast_unsigned());
    for spare in [0, 2] {
        let current = Some(lowest + spare);
        setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
        let late = look(&one);
        assert!(late.is_timeout(), "{late}");
        assert!(late.to_string().contains("there is no room"), "{late}");
        one.check().unwrap();
    }
    setrlimit(Resource::Nofile, before).unwrap();
    assert_eq!(receive(&one).unwrap().2.len(), 3);
    assert_eq!(one.receive_point_of(LONG).unwrap(), (1, 1));
}

/// P1: four peers that send as many descriptors as they can, in objects that nobody asks for.
/// Another peer passes an object nevertheless, and a listener accepts no client meanwhile.
fn facing_hostile_peers() {
    let memory = rustix::fs::memfd_create("many", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let own = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let is_it = |entry: std::io::Result<std::fs::DirEntry>| {
            let link = std::fs::read_link(entry.unwrap().path());
            link.is_ok_and(|link| link.to_string_lossy().contains("/memfd:many"))
        };
        all.filter_map(|entry| is_it(entry).then_some(())).count()
    };
    let peers = [(); 4].map(|()| {
        let (one, mut raw) = against_raw();
        for number in 1..=16 {
            let object = Message::Object(offer(number, &[HandleKind::CounterMemfd; 16]));
            raw.bytes_beside(&raw.encoded(&object), &[memory.as_fd(); 16]);
            raw.sequence += 1;
        }
        let late = look(&one);
        assert!(late.is_timeout(), "{late}");
        one.check().unwrap();
        (one, raw)
    });
    assert_eq!(own(), 1 + 4 * 64);
    {
        let (ours, theirs) = both();
        let told = offer(ours.next_number(), &[HandleKind::CounterMemfd; 16]);
        let sent = ours.offer(&told, &[memory.as_fd(); 16], Deadline::after(LONG));
        let _sent = sent.unwrap();
        let (_in_hand, got, descriptors) = receive(&theirs).unwrap();
        assert_eq!((got, descriptors.len()), (told, 16));
    }
    let path = std::env::temp_dir().join(format!("syncline-full-{}", std::process::id()));
    let listener = Listener::bind(&path).unwrap();
    let refused = listener.accept("server", NOW).unwrap_err();
    assert!(
        refused.to_string().contains("what earlier clients sent"),
        "{refused}"
    );
    // An object that is asked for makes room.
    for (one, _) in peers.iter().chain(&peers) {
        assert_eq!(
            one.receive_object(Content::Timeline, "offered", Deadline::after(LONG))
                .unwrap()
                .2
                .len(),
            16
        );
    }
    drop(peers);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| Endpoint::connect(&path, "client", LONG).unwrap());
        listener.accept("server", LONG).unwrap();
        client.join().unwrap();
    });
}

/// In a process of its own: the limit of descriptors, and how many come from peers, are the
/// process's.
#[test]
fn descriptors_of_peers_are_bounded_and_wait_for_room() {
    for role in ["receives without a free descriptor", "faces hostile peers"] {
        alone(role);
    }
}

/// The limit is the process's, so it is a child's.
#[test]
fn a_process_that_cannot_be_watched_for_want_of_descriptors_is_an_error() {
    alone("has few descriptors");
}

fn alone(role: &str) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::tests::loss::the_child", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

/// Where the system refuses a descriptor of the process, the end of the connection is what is seen.
#[test]
fn without_a_descriptor_of_the_process_a_hang_up_decides() {
    let (other, one) = both_with(|object, peer| peer.unwatched(object));
    assert!(matches!(
        one.watches_process(),
        Err(Error::Native {
            call: "pidfd_open",
            ..
        })
    ));
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    other.connection().socket.shut_down();
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::HungUp);
    let error = one.receive_point_of(LONG).unwrap_err();
    assert!(
        matches!(
            error,
            Error::PeerLost {
                how: PeerLoss::HungUp,
                ..
            }
        ),
        "{error}"
    );
}

/// The last handle is dropped by the endpoint's own thread.
#[test]
fn a_survivor_may_drop_the_last_endpoint() {
    struct Keeps(Mutex<Option<Endpoint>>, Mutex<Sender<()>>);
    impl LossObserver for Keeps {
        fn peer_lost(&self, _: &PeerLoss) {
            drop(self.0.lock().unwrap().take());
            self.1.lock().unwrap().send(()).unwrap();
        }
    }
    let (one, other) = both();
    let (done, waits) = channel();
    one.observe_loss(Arc::new(Keeps(
        Mutex::new(Some(one.clone())),
        Mutex::new(done),
    )));
    drop(one);
    drop(other);
    waits.recv_timeout(LONG).unwrap();
}
