//! P3: how and when the loss of a peer is reported. In most tests both ends are this process.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rstest::rstest;
use syncline_core::{
    Error,
    error::{PeerExit, PeerLoss},
    handle::HandleKind,
};

use super::{LONG, NOW, against_raw, both, both_with, pair, read_socket, receive};
use crate::negotiate::{Party, Process};
use crate::process::connection::LossObserver;
use crate::process::hostile::{Raw, elsewhere, offer};
use crate::process::message::{Content, Message};
use crate::process::poll::Deadline;
use crate::process::{Endpoint, Listener, negotiate_among};

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

/// Environment variable with the role of a child process.
const ROLE: &str = "SYNCLINE_LOSS_CHILD";

/// Starts a child process, which is this program again, with an endpoint to it.
fn child(role: &str) -> (Child, Endpoint) {
    let (ours, theirs) = pair();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "process::tests::loss::child_process",
            "--nocapture",
        ])
        .env(ROLE, role)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    (child, Endpoint::open(ours, "parent", LONG).unwrap())
}

/// Not a test. The other tests run it as their child process.
#[test]
fn child_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    match &*role {
        "has few descriptors" => return with_few_descriptors(),
        "cannot read its start" => return without_a_start_time(),
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
            // The standard input is still the socket.
            rustix::net::shutdown(std::io::stdin(), rustix::net::Shutdown::Both).unwrap();
        }
        "says goodbye and ends" => return,
        "calls execve" | "calls execve, and keeps the socket" => {
            // The parent has checked the greeting before this program is replaced.
            endpoint.receive_point_of(LONG).unwrap();
            // Drops nothing, so it sends no farewell.
            std::mem::forget(endpoint);
            let mut other = Command::new("sleep");
            if role == "calls execve" {
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

/// Its last points are received first. Then all waiting calls report that it was killed.
#[test]
fn a_kill_is_reported_after_the_messages_of_the_process() {
    let (mut child, one) = child("says three points");
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    for value in 1..=2 {
        assert_eq!(one.receive_point_of(LONG).unwrap(), (1, value));
    }
    // The third point is in the socket or in the inbox.
    let third = one.receive_point_of(LONG).unwrap();
    std::thread::scope(|scope| {
        let receives = [(); 2].map(|()| scope.spawn(|| one.receive_point_of(LONG).unwrap_err()));
        let awaits = scope.spawn(|| one.receive_words("none", 64, LONG).unwrap_err());
        child.kill().unwrap();
        let exit = Some(PeerExit::Signal(9));
        let how = PeerLoss::Died { exit };
        for ended in receives.into_iter().chain([awaits]) {
            let error = ended.join().unwrap();
            assert!(
                matches!(&error, Error::PeerLost { process, how: actual, .. }
                    if *process == child.id() && *actual == how),
                "{error}"
            );
        }
        assert_eq!(losses.recv_timeout(LONG).unwrap(), how);
    });
    assert_eq!(third, (1, 3));
    child.wait().unwrap();
}

/// Its messages can still be received, and the observers know how it ended.
#[test]
fn a_peer_that_has_died_cannot_be_given_up() {
    let (mut child, one) = child("says three points");
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    assert_eq!(one.receive_point_of(LONG).unwrap(), (1, 1));
    child.kill().unwrap();
    let exit = Some(PeerExit::Signal(9));
    let how = PeerLoss::Died { exit };
    assert_eq!(losses.recv_timeout(LONG).unwrap(), how);
    one.give_up();
    assert!(losses.try_recv().is_err(), "it is given up");
    let error = loop {
        // The points that were sent before the kill come first.
        if let Err(error) = one.receive_point_of(LONG) {
            break error;
        }
    };
    assert!(
        matches!(&error, Error::PeerLost { how: actual, .. } if *actual == how),
        "{error}"
    );
    child.wait().unwrap();
}

/// A farewell is reported even if the process ends right after it, and no call receives.
#[test]
fn a_farewell_is_reported_before_the_death() {
    let (mut child, one) = child("says goodbye and ends");
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Left);
    let exit = Some(PeerExit::Code(0));
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Died { exit });
    assert_left(&one);
    child.wait().unwrap();
}

/// More points than the inbox has room for.
#[test]
fn messages_in_the_socket_are_received_before_the_loss() {
    let (one, mut raw) = against_raw();
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    let all = 1024 + 50;
    for value in 0..all {
        raw.say(&Message::Point { number: 1, value }, 0);
        if value < 1024 {
            assert!(read_socket(&one).is_timeout());
        }
    }
    drop(raw);
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Left);
    for value in 0..all {
        assert_eq!(one.receive_point_of(LONG).unwrap(), (1, value));
    }
    assert_left(&one);
}

/// One peer has sent its needs and is gone. Another peer sends nothing.
#[test]
fn a_negotiation_ends_if_any_peer_is_lost() {
    let (silent, _raw) = against_raw();
    let (gone, mut raw) = against_raw();
    let parties = vec![Party::threads_of(elsewhere()).waits()];
    let needs = Message::Requirements {
        round: 1,
        is_all: true,
        parties,
        links: Vec::new(),
    };
    raw.say(&needs, 0);
    // Removes the greeting.
    raw.drain();
    let answer = std::thread::scope(|scope| {
        let own = Party::threads().signals();
        let asks = scope.spawn(|| negotiate_among(own, &[&silent, &gone], LONG));
        // The round has begun, and the needs are in the socket.
        raw.wait();
        drop(raw);
        asks.join().unwrap()
    });
    assert!(
        matches!(
            &answer,
            Err(Error::PeerLost { how: PeerLoss::Left, endpoint, .. })
                if endpoint == gone.object()
        ),
        "{answer:?}"
    );
}

/// X1: a process may report endpoints between two others. The middle ignores these.
#[test]
fn only_own_endpoints_of_a_peer_are_passed_on() {
    let [(one, mut first), (other, mut second)] = [(); 2].map(|()| against_raw());
    let peer = *one.peer();
    let third = Process {
        id: elsewhere().id.wrapping_add(1).max(2),
        ..elsewhere()
    };
    let needs = |process: Process, links: Vec<_>| Message::Requirements {
        round: 1,
        is_all: true,
        parties: vec![Party::threads_of(process).waits()],
        links,
    };
    first.say(
        &needs(elsewhere(), vec![(peer, third), (elsewhere(), third)]),
        0,
    );
    second.say(&needs(third, Vec::new()), 0);
    // No peer answers.
    let late = negotiate_among(Party::threads().signals(), &[&one, &other], NOW).unwrap_err();
    assert!(late.is_timeout(), "{late}");
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

/// A process that left may still signal through shared memory, so its death is reported, too.
#[test]
fn the_death_of_a_process_that_left_is_reported_too() {
    let (mut child, one) = child("leaves");
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Left);
    assert!(losses.try_recv().is_err());
    child.kill().unwrap();
    let exit = Some(PeerExit::Signal(9));
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Died { exit });
    assert_left(&one);
    let (late, losses) = loss_recorder();
    one.observe_loss(late);
    let both = [losses.try_recv().unwrap(), losses.try_recv().unwrap()];
    assert_eq!(both, [PeerLoss::Left, PeerLoss::Died { exit }]);
    child.wait().unwrap();
}

/// It cannot signal any more, although the process lives.
#[rstest]
#[case::and_closes_the_socket("calls execve")]
#[case::and_keeps_the_socket("calls execve, and keeps the socket")]
fn a_process_that_calls_execve_has_died(#[case] role: &str) {
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

fn assert_left(endpoint: &Endpoint) {
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
fn leaving_is_reported_after_the_messages_of_the_process() {
    let (one, other) = both();
    let (early, losses) = loss_recorder();
    one.observe_loss(early);
    for value in 0..10 {
        other.send_point_of(1, value, LONG).unwrap();
    }
    // Unread messages make the kernel report a reset. No sent message may be lost by that.
    one.send_point_of(2, 2, LONG).unwrap();
    drop(other);
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Left);
    for value in 0..10 {
        assert_eq!(one.receive_point_of(LONG).unwrap(), (1, value));
    }
    assert_left(&one);
    let (late, late_losses) = loss_recorder();
    one.observe_loss(late);
    assert_eq!(late_losses.try_recv().unwrap(), PeerLoss::Left);
    drop(one);
    // Each observer is called once, and dropped with the endpoint.
    assert!(losses.recv_timeout(LONG).is_err());
    assert!(late_losses.recv_timeout(LONG).is_err());
}

/// The socket is closed without a farewell, and the process lives.
#[test]
fn closing_the_socket_of_a_live_process_counts_as_leaving() {
    let (one, raw) = against_raw();
    drop(raw);
    assert_left(&one);
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
fn both_sides_learn_that_a_process_was_shut_out() {
    let (one, other) = both();
    let (recorder, losses) = loss_recorder();
    one.observe_loss(Arc::clone(&recorder));
    let (forgotten, nothing) = loss_recorder();
    one.observe_loss(Arc::clone(&forgotten));
    one.stop_observing(&forgotten);
    drop(forgotten);
    // With a wrong sequence number.
    let mut bye = [0; 20];
    Message::Bye.encode(99, &mut bye).unwrap();
    other.connection().socket().send(&bye, &[]).unwrap();
    assert!(matches!(
        one.receive_point_of(LONG),
        Err(Error::Message { .. })
    ));
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::ShutOut);
    assert!(nothing.recv_timeout(LONG).is_err());
    assert_left(&other);
}

/// The observers are called once, on the calling thread, and once more if the peer dies.
#[test]
fn a_peer_that_lives_can_be_given_up() {
    let (mut child, one) = child("waits");
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let receives = scope.spawn(|| {
            begun.wait();
            one.receive_point_of(LONG).unwrap_err()
        });
        begun.wait();
        one.give_up();
        assert_eq!(losses.try_recv().unwrap(), PeerLoss::GivenUp);
        let is_given_up = |error: &Error| {
            let how = PeerLoss::GivenUp;
            matches!(error, Error::PeerLost { how: found, .. } if *found == how)
        };
        assert!(is_given_up(&receives.join().unwrap()));
        assert!(is_given_up(&one.check().unwrap_err()));
        assert!(is_given_up(&one.send_point_of(1, 1, NOW).unwrap_err()));
    });
    one.give_up();
    let (late, late_losses) = loss_recorder();
    one.observe_loss(late);
    assert_eq!(late_losses.try_recv().unwrap(), PeerLoss::GivenUp);
    child.kill().unwrap();
    // Not before its death is reported, because that takes the exit status.
    for losses in [losses, late_losses] {
        let how = losses.recv_timeout(LONG).unwrap();
        assert!(matches!(how, PeerLoss::Died { .. }), "{how:?}");
    }
    child.wait().unwrap();
}

/// A peer that has closed its end lives, and may hang while it has to signal. So it is given up,
/// too.
#[test]
fn a_peer_that_has_left_can_be_given_up() {
    let (one, raw) = against_raw();
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    drop(raw);
    assert_eq!(losses.recv_timeout(LONG).unwrap(), PeerLoss::Left);
    one.give_up();
    assert_eq!(losses.try_recv().unwrap(), PeerLoss::GivenUp);
    assert_left(&one);
}

/// A process that had no descriptor to read its start time can greet later.
fn without_a_start_time() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    let limit = |current| {
        let maximum = hard;
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    let mut failed = Vec::new();
    for spare in 0..4 {
        let (ours, theirs) = pair();
        // The lowest free descriptor.
        let next = rustix::io::dup(&ours).unwrap();
        let lowest = u64::from(next.as_raw_fd().cast_unsigned());
        drop(next);
        limit(Some(lowest + spare));
        let opened = Endpoint::open(ours, "ours", NOW);
        limit(hard);
        drop(theirs);
        match opened.unwrap_err().error {
            Error::Native { call, .. } => failed.push(call),
            other => panic!("{other}"),
        }
    }
    assert_eq!(failed, ["eventfd", "eventfd", "eventfd", "open"]);
    assert_ne!(Process::this().started, 0);
}

/// Whichever descriptor is missing, an endpoint that opens watches its peer process.
fn with_few_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    let limit = |current| {
        let maximum = hard;
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let had = open();
    let mut failed = Vec::new();
    for spare in 0..8 {
        // Another thread closes the socket of the endpoint before.
        let begin = std::time::Instant::now();
        while open() != had && begin.elapsed() < LONG {
            std::thread::yield_now();
        }
        assert_eq!(open(), had);
        let (ours, theirs) = pair();
        let mut raw = Raw::new(theirs);
        raw.hello();
        // The lowest free descriptor.
        let next = rustix::io::dup(&ours).unwrap();
        let lowest = u64::from(next.as_raw_fd().cast_unsigned());
        drop(next);
        limit(Some(lowest + spare));
        let opened = Endpoint::open(ours, "ours", LONG);
        limit(hard);
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

/// An object arrives when this process may open no more descriptors. It waits in the socket.
fn without_a_free_descriptor() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let memory = rustix::fs::memfd_create("kept", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let (one, mut raw) = against_raw();
    raw.bytes_beside(
        &raw.encoded(&Message::Object(offer(1, &[HandleKind::CounterMemfd; 3]))),
        &[memory.as_fd(); 3],
    );
    raw.skip_number();
    raw.say(
        &Message::Point {
            number: 1,
            value: 1,
        },
        0,
    );
    let before = getrlimit(Resource::Nofile);
    // The lowest free descriptor.
    let lowest = rustix::io::dup(&memory).unwrap();
    let lowest = u64::from(lowest.as_raw_fd().cast_unsigned());
    for spare in [0, 2] {
        let current = Some(lowest + spare);
        setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
        let late = read_socket(&one);
        assert!(late.is_timeout(), "{late}");
        assert!(late.to_string().contains("there is no room"), "{late}");
        one.check().unwrap();
    }
    setrlimit(Resource::Nofile, before).unwrap();
    assert_eq!(receive(&one).unwrap().2.len(), 3);
    assert_eq!(one.receive_point_of(LONG).unwrap(), (1, 1));
}

/// P1: four peers send as many descriptors as they can, in objects that no call asks for.
///
/// Another peer can still pass an object. A listener accepts no client meanwhile.
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
            raw.skip_number();
        }
        let late = read_socket(&one);
        assert!(late.is_timeout(), "{late}");
        one.check().unwrap();
        (one, raw)
    });
    assert_eq!(own(), 1 + 4 * 64);
    {
        let (ours, theirs) = both();
        let object = offer(ours.next_number(), &[HandleKind::CounterMemfd; 16]);
        let sent = ours.offer(&object, &[memory.as_fd(); 16], Deadline::after(LONG));
        let _sent = sent.unwrap();
        let (_in_hand, got, descriptors) = receive(&theirs).unwrap();
        assert_eq!((got, descriptors.len()), (object, 16));
    }
    let path = std::env::temp_dir().join(format!("syncline-full-{}", std::process::id()));
    let listener = Listener::bind(&path).unwrap();
    let refused = listener.accept("server", NOW).unwrap_err();
    assert!(
        refused.to_string().contains("what earlier clients sent"),
        "{refused}"
    );
    // Receiving an object makes room.
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

/// In a child process, because the limits count for the whole process.
#[rstest]
#[case::without_a_free_descriptor("receives without a free descriptor")]
#[case::with_hostile_peers("faces hostile peers")]
fn descriptors_of_peers_are_bounded(#[case] role: &str) {
    run_child(role);
}

/// In a child process, because the limit counts for the whole process.
#[rstest]
#[case::of_the_peer("has few descriptors")]
#[case::of_this("cannot read its start")]
fn opening_fails_without_a_descriptor_for_the_process(#[case] role: &str) {
    run_child(role);
}

fn run_child(role: &str) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "process::tests::loss::child_process",
            "--nocapture",
        ])
        .env(ROLE, role)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

/// If the system refuses a pidfd, only the end of the connection is noticed.
#[test]
fn without_a_pidfd_the_end_of_the_connection_is_reported() {
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
    other.connection().socket().shut_down();
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

/// The endpoint's own thread drops the last handle.
#[test]
fn an_observer_may_drop_the_last_endpoint() {
    struct KeepsEndpoint(Mutex<Option<Endpoint>>, Mutex<Sender<()>>);
    impl LossObserver for KeepsEndpoint {
        fn peer_lost(&self, _: &PeerLoss) {
            drop(self.0.lock().unwrap().take());
            self.1.lock().unwrap().send(()).unwrap();
        }
    }
    let (one, other) = both();
    let (done, waits) = channel();
    one.observe_loss(Arc::new(KeepsEndpoint(
        Mutex::new(Some(one.clone())),
        Mutex::new(done),
    )));
    drop(one);
    drop(other);
    waits.recv_timeout(LONG).unwrap();
}

/// Tells that it is dropped.
#[cfg(feature = "cuda")]
struct Dropped(Sender<()>);

#[cfg(feature = "cuda")]
impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// F8: what a peer uses lives until its process has ended, also without the endpoint.
#[cfg(feature = "cuda")]
#[test]
fn what_a_peer_uses_is_kept_until_its_process_has_ended() {
    let (mut child, one) = child("parks");
    let (tell, dropped) = channel();
    let object = Arc::new(Dropped(tell));
    for _ in 0..2 {
        one.connection().keep_for_peer(object.clone()).unwrap();
    }
    assert_eq!(Arc::strong_count(&object), 2, "it is kept once");
    drop((object, one));
    assert!(dropped.try_recv().is_err(), "it went with the endpoint");
    child.kill().unwrap();
    dropped.recv_timeout(LONG).unwrap();
    child.wait().unwrap();
}

/// F8: what a peer uses is never dropped if its end would go unnoticed.
#[cfg(feature = "cuda")]
#[test]
fn what_a_peer_uses_is_leaked_if_the_process_cannot_be_watched() {
    let (other, one) = both_with(|object, peer| peer.unwatched(object));
    let (tell, dropped) = channel();
    let kept = Arc::new(Dropped(tell));
    one.connection().keep_for_peer(kept).unwrap();
    drop((one, other));
    assert!(dropped.try_recv().is_err(), "it went with the endpoint");
}
