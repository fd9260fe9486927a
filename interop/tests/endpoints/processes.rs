//! P1, P3, X1: endpoints of two and more processes.
//!
//! The children run this program again, with a socket as their standard input.

use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::SendFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncline::Mechanism;
use syncline::negotiate::{Conflict, Needs, Party, Plan, Requirements};
use syncline::process::{Endpoint, Listener, negotiate_among};
use syncline::{
    Error,
    error::{PeerExit, PeerLoss},
    host,
};

use super::{Alone, LONG, loss};

/// Set in a child: its role.
const ROLE: &str = "SYNCLINE_ENDPOINTS_CHILD";
/// The path that the child connects to, if it has no socket.
const PATH: &str = "SYNCLINE_ENDPOINTS_PATH";

fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "processes::the_child", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// A child in a role, and the endpoint to it. The child is killed when this is dropped.
struct Family(Child, Option<Endpoint>);

impl Family {
    fn new(role: &str) -> Self {
        Self::with(role, |_| {})
    }

    fn with(role: &str, change: impl FnOnce(&mut Command)) -> Self {
        let (ours, theirs) = Endpoint::pair().unwrap();
        let mut command = command(role);
        command.stdin(Stdio::from(theirs));
        change(&mut command);
        let child = command.spawn().unwrap();
        drop(command);
        let endpoint = Endpoint::open(ours, role, LONG).unwrap();
        assert_eq!(endpoint.peer().id, child.id());
        assert_ne!(endpoint.peer().started, 0);
        Self(child, Some(endpoint))
    }

    fn endpoint(&self) -> &Endpoint {
        self.1.as_ref().unwrap()
    }

    /// Checks that the child ends by itself with exit code 0.
    fn succeeds(&mut self) {
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Sends `SIGKILL`.
    fn kill(&mut self) {
        self.0.kill().unwrap();
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.1 = None;
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The child processes of the other tests.
/// A listener that cannot be made leaves no file behind.
fn without_threads() {
    let path = std::env::var_os(PATH).unwrap();
    // Address space for smaller objects, but not for another stack of 2 MiB.
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let before = getrlimit(Resource::As);
    let current = Some(pages * rustix::param::page_size() as u64 + (1 << 20));
    setrlimit(Resource::As, Rlimit { current, ..before }).unwrap();
    let refused = Listener::bind(&path).map(drop);
    setrlimit(Resource::As, before).unwrap();
    let Err(Error::Native { call, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(*call, "starting a thread");
    Listener::bind(&path).unwrap();
}

#[test]
fn a_listener_without_a_thread_leaves_no_file() {
    let alone = Alone::new();
    let path = std::env::temp_dir().join(format!("syncline-threads-{}", std::process::id()));
    let mut child = command("has no threads").env(PATH, &path).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!path.exists());
    alone.nothing_is_left();
}

#[test]
fn the_child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    match &*role {
        "is in the middle" => return middle(),
        "is a corner" => return corner(),
        "is the last corner" => return last_corner(),
        "has no threads" => return without_threads(),
        _ => {}
    }
    if let Ok(path) = std::env::var(PATH) {
        let endpoint = Endpoint::connect(path, "child", LONG).unwrap();
        let plan = endpoint.negotiate(Party::threads().waits(), LONG).unwrap();
        assert_eq!(plan.mechanism(), Mechanism::SharedMemory);
        if role == "is at the end" {
            awaits(&plan, &[&endpoint]);
        }
        return;
    }
    if role == "holds the socket" {
        let stdin = std::io::stdin();
        // Until the test has ended.
        poll(&mut [PollFd::new(&stdin, PollFlags::RDHUP)], None).unwrap();
        return;
    }
    if role == "speaks for its parent" {
        // The message after the parent's greeting.
        let mut point =
            *b"SYNL\x05\0\x07\0\x0c\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0";
        point[20] = 1;
        rustix::net::send(std::io::stdin(), &point, SendFlags::empty()).unwrap();
        return;
    }
    // SAFETY: the test program does not use its standard input.
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    let lent = socket.try_clone().unwrap();
    // Before the greeting to the parent.
    let _grandchild = (role == "has a child").then(|| {
        let lent = lent.try_clone().unwrap();
        command("holds the socket").stdin(lent).spawn().unwrap()
    });
    let endpoint = Endpoint::open(socket, "child", LONG).unwrap();
    let device = host::Device::new();
    let waits = || Party::of(&device).waits();
    let agrees = |plan: syncline::Result<Plan>, own: &Party| {
        let plan = plan.unwrap();
        plan.check(own).unwrap();
        assert_eq!(plan.mechanism(), Mechanism::SharedMemory);
        plan
    };
    match &*role {
        "waits" => drop(agrees(endpoint.negotiate(waits(), LONG), &waits())),
        "signals" => {
            let own = Party::of(&device).signals();
            drop(agrees(endpoint.negotiate(own.clone(), LONG), &own));
        }
        "is one of several" => {
            let plan = agrees(endpoint.negotiate(waits(), LONG), &waits());
            assert_eq!(plan.parties().len(), 4);
        }
        "is one of several, again and again" => loop {
            match endpoint.negotiate(waits(), LONG) {
                // The negotiating process has begun a new round.
                Err(Error::Message { .. }) => {}
                Err(Error::PeerLost { .. }) => break,
                other => assert_eq!(agrees(other, &waits()).parties().len(), 4),
            }
        },
        "also signals" => {
            let own = Party::of(&device).signals();
            let answer = endpoint.negotiate(own, LONG);
            assert!(matches!(answer, Err(Error::Conflict(_))), "{answer:?}");
        }
        "needs a while" => {
            // Gives up and tries again, as the parent does.
            let mut tries = 0;
            while let Err(error) = endpoint.negotiate(waits(), Duration::from_millis(3)) {
                assert!(!matches!(error, Error::Conflict(_)), "{error}");
                endpoint.check().unwrap();
                tries += 1;
                assert!(tries < 10_000, "{error}");
            }
            // The peer may have given up the round that this process has ended.
            while endpoint.check().is_ok() {
                let _ = endpoint.negotiate(waits(), Duration::from_millis(3));
            }
        }
        "forks" => forks(endpoint, lent),
        "ends with 3" => std::process::exit(3),
        "leaves" => {
            drop((endpoint, lent));
            park();
        }
        "is killed" | "has a child" => park(),
        "is spoken for" => {
            drop(
                command("speaks for its parent")
                    .stdin(lent)
                    .spawn()
                    .unwrap(),
            );
            park();
        }
        other => panic!("no role {other}"),
    }
}

/// Carries the plan out, and waits for value 1.
fn awaits(plan: &Plan, peers: &[&Endpoint]) {
    let made = plan.make_across("frames", 0, &[], peers, LONG).unwrap();
    let line = made.wait_only(Party::threads().id()).unwrap();
    line.at(1).wait(LONG).unwrap();
}

/// Connects its parent and the process that comes to the path.
fn middle() {
    // SAFETY: the test program does not use its standard input.
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    let listener = Listener::bind(std::env::var(PATH).unwrap()).unwrap();
    let parent = Endpoint::open(socket, "parent", LONG).unwrap();
    let other = listener.accept("other", LONG).unwrap();
    let peers = [&parent, &other];
    let plan = negotiate_among(Party::threads().waits(), &peers, LONG).unwrap();
    assert_eq!(plan.home().id().process.id, std::process::id());
    awaits(&plan, &peers);
}

/// Connects its parent and the process that comes to the path. Its parent negotiates for all.
fn corner() {
    // SAFETY: the test program does not use its standard input.
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    let listener = Listener::bind(std::env::var(PATH).unwrap()).unwrap();
    let parent = Endpoint::open(socket, "parent", LONG).unwrap();
    let other = listener.accept("other", LONG).unwrap();
    let device = host::Device::new();
    let party = Party::of(&device).signals();
    let own = Requirements::from(party.clone()).reaching(&[&other]);
    let plan = parent.negotiate(own, LONG).unwrap();
    assert_eq!(plan.home().id(), party.id());
    let devices = [device.into()];
    let made = plan.make_across("frames", 0, &devices, &[&parent, &other], LONG);
    let made = made.unwrap();
    made.signal_only(party.id()).unwrap().signal(1).unwrap();
    // Until both peers have waited.
    for peer in [&parent, &other] {
        assert_eq!(loss(&peer.receive_point(LONG).unwrap_err()), PeerLoss::Left);
    }
}

fn last_corner() {
    // SAFETY: the test program does not use its standard input.
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    let parent = Endpoint::open(socket, "parent", LONG).unwrap();
    let corner = Endpoint::connect(std::env::var(PATH).unwrap(), "corner", LONG).unwrap();
    let plan = parent.negotiate(Party::threads().waits(), LONG).unwrap();
    assert_eq!(plan.home().id().process, *corner.peer());
    awaits(&plan, &[&parent, &corner]);
}

/// Forks a child that drops all that it inherited, and signals a timeline after that.
fn forks(endpoint: Endpoint, lent: OwnedFd) {
    let own = Party::threads().signals();
    let plan = endpoint.negotiate(own.clone(), LONG).unwrap();
    let made = plan.make_across("frames", 0, &[], &[&endpoint], LONG);
    let made = made.unwrap();
    let line = made.signal_only(own.id()).unwrap();
    // The parent keeps nothing but a claim of this timeline. If the child withdrew the claim, the
    // page would say that no value can come.
    let claimed = plan.make_across("claimed", 0, &[], &[&endpoint], LONG);
    let claimed = claimed.unwrap();
    let claim = claimed.signal_only(own.id()).unwrap().claim(1).unwrap();
    drop(claimed);
    let path = std::env::temp_dir().join(format!("syncline-forks-{}", std::process::id()));
    let listener = Listener::bind(&path).unwrap();
    // SAFETY: the child only drops what it inherited, which takes no lock of another thread, and
    // exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child by a signal if a drop waits for a thread of the parent.
        unsafe { libc::alarm(20) };
        drop((line, made, claim, plan, listener, endpoint, lent));
        // SAFETY: the child ends here.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the child's id, and memory for its status.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child does not end well");
    assert!(path.exists(), "the child has removed the listener's path");
    line.signal(1).unwrap();
    endpoint.send_signal(line.signal_at(1), LONG).unwrap();
    // Until the test has ended.
    let end = endpoint.receive_point(LONG).unwrap_err();
    assert_eq!(loss(&end), PeerLoss::Left);
    drop((lent, claim));
}

/// Sleeps until this process is killed.
fn park() -> ! {
    loop {
        std::thread::park();
    }
}

#[rstest]
#[case::the_parent_signals("waits", Party::signals)]
#[case::the_parent_waits("signals", Party::waits)]
fn two_processes_come_to_one_plan(#[case] role: &str, #[case] needs: fn(Party) -> Party) {
    let alone = Alone::new();
    let device = host::Device::new();
    {
        let own = needs(Party::of(&device));

        let mut family = Family::new(role);
        let plan = family.endpoint().negotiate(own.clone(), LONG).unwrap();
        plan.check(&own).unwrap();
        assert_eq!(plan.mechanism(), Mechanism::SharedMemory);
        assert!(plan.crosses_processes());
        family.succeeds();
    }
    alone.nothing_is_left();
}

#[test]
fn both_find_the_same_conflict() {
    let alone = Alone::new();
    {
        let mut family = Family::new("also signals");
        let own = Party::threads().signals();
        let answer = family.endpoint().negotiate(own, LONG);
        let Err(Error::Conflict(conflict)) = answer else {
            panic!("{answer:?}");
        };
        assert!(conflict.to_string().contains("both signal"), "{conflict}");
        // The structure of the conflict is kept.
        let conflict = conflict.downcast_ref::<Conflict>().unwrap();
        assert_eq!(conflict.parties().len(), 2);
        assert_eq!(
            Error::from(conflict.clone()).to_string(),
            conflict.to_string()
        );
        family.endpoint().check().ok();
        family.succeeds();
    }
    alone.nothing_is_left();
}

#[test]
fn three_processes_and_one_in_the_middle() {
    let alone = Alone::new();
    {
        let mut families = [(); 3].map(|()| Family::new("is one of several"));
        let endpoints: Vec<&Endpoint> = families.iter().map(Family::endpoint).collect();
        let own = Party::threads().signals();
        let plan = negotiate_among(own, &endpoints, LONG).unwrap();
        assert_eq!(plan.parties().len(), 4);
        assert_eq!(plan.mechanism(), Mechanism::SharedMemory);
        families.iter_mut().for_each(Family::succeeds);
    }
    alone.nothing_is_left();
}

/// The negotiating process gives up several rounds. The others sent their needs and keep waiting.
#[test]
fn the_negotiating_process_begins_a_new_round() {
    let alone = Alone::new();
    {
        let role = "is one of several, again and again";
        let mut families = [(); 3].map(|()| Family::new(role));
        let endpoints: Vec<&Endpoint> = families.iter().map(Family::endpoint).collect();
        let ask = |timeout| negotiate_among(Party::threads().signals(), &endpoints, timeout);
        let begin = Instant::now();
        for wait in [0, 0, 1, 1, 5, 20] {
            let answer = ask(Duration::from_millis(wait));
            assert!(!matches!(answer, Err(Error::Conflict(_))), "{answer:?}");
        }
        // Each process may still be in a round that was given up, so up to three tries fail.
        let plan = (0..4).find_map(|_| ask(LONG).ok()).unwrap();
        assert_eq!(plan.parties().len(), 4);
        assert!(
            begin.elapsed() < LONG,
            "the processes waited for their whole time limit"
        );
        for family in &mut families {
            family.1 = None;
            family.succeeds();
        }
    }
    alone.nothing_is_left();
}

/// One process dies while the negotiating process waits for another, which never answers.
#[test]
fn the_negotiating_process_notices_any_death() {
    let alone = Alone::new();
    {
        let silent = Family::new("is killed");
        let mut dies = Family::new("is killed");
        let endpoints = [silent.endpoint(), dies.endpoint()];
        let ask = || negotiate_among(Party::threads().signals(), &endpoints, LONG).unwrap_err();
        let killed = dies.0.id();
        std::thread::scope(|scope| {
            let waits = scope.spawn(ask);
            let killed = rustix::process::Pid::from_raw(killed.cast_signed()).unwrap();
            rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
            let lost = waits.join().unwrap();
            assert!(matches!(loss(&lost), PeerLoss::Died { .. }), "{lost}");
        });
        dies.kill();
    }
    alone.nothing_is_left();
}

/// Two processes that give up and begin again agree in the end.
#[test]
fn rounds_that_were_given_up_are_passed_over() {
    let alone = Alone::new();
    {
        let mut family = Family::new("needs a while");
        let own = Party::threads().signals();
        let mut tries = 0;
        let plan = loop {
            match family
                .endpoint()
                .negotiate(own.clone(), Duration::from_millis(2))
            {
                Ok(plan) => break plan,
                Err(answer) => {
                    family.endpoint().check().unwrap();
                    tries += 1;
                    assert!(tries < 10_000, "{answer}");
                }
            }
        };
        assert_eq!(plan.mechanism(), Mechanism::SharedMemory);
        drop(family.1.take());
        let _ = family.0.wait();
    }
    alone.nothing_is_left();
}

#[test]
fn each_process_speaks_for_itself() {
    let alone = Alone::new();
    {
        let mut family = Family::new("waits");
        let endpoint = family.endpoint();
        let theirs = Party::threads_of(*endpoint.peer()).signals();
        let refused = endpoint.negotiate(theirs, LONG).unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
        let refused =
            negotiate_among(Party::threads().signals(), &[endpoint, endpoint], LONG).unwrap_err();
        assert!(
            refused.to_string().contains("doing so already"),
            "{refused}"
        );
        let many: syncline::negotiate::Requirements = (0..40)
            .map(|_| Party::of(&host::Device::new()).signals())
            .collect();
        let refused = endpoint.negotiate(many, LONG).unwrap_err();
        assert!(refused.to_string().contains("32 is the most"), "{refused}");
        // Nothing of the refused call was sent.
        let own = Party::threads().signals().needing(Needs::HOST_ACCESS);
        endpoint.negotiate(own, LONG).unwrap();
        family.succeeds();
    }
    alone.nothing_is_left();
}

/// A process is killed by `SIGKILL` while another thread waits for its message.
#[rstest]
#[case::without_children("is killed")]
#[case::whose_child_keeps_the_socket("has a child")]
fn a_killed_process_ends_a_blocked_call(#[case] role: &str) {
    let alone = Alone::new();
    {
        let mut family = Family::new(role);
        let endpoint = family.endpoint().clone();
        endpoint.check().unwrap();
        let waits = std::thread::spawn(move || {
            let lost = endpoint
                .negotiate(Party::threads().waits(), LONG)
                .unwrap_err();
            (lost, endpoint)
        });
        family.kill();
        let (lost, endpoint) = waits.join().unwrap();
        let exit = Some(PeerExit::Signal(9));
        assert_eq!(loss(&lost), PeerLoss::Died { exit }, "{role}");
        let told = lost.to_string();
        assert!(told.contains("killed by signal 9"), "{told}");
        assert_eq!(endpoint.check().unwrap_err().to_string(), told);
        assert_eq!(endpoint.peer().id, family.0.id());
    }
    alone.nothing_is_left();
}

#[test]
fn the_exit_code_of_a_process_is_reported() {
    let alone = Alone::new();
    {
        let family = Family::new("ends with 3");
        let lost = family
            .endpoint()
            .negotiate(Party::threads().waits(), LONG)
            .unwrap_err();
        let exit = Some(PeerExit::Code(3));
        assert_eq!(loss(&lost), PeerLoss::Died { exit });
    }
    alone.nothing_is_left();
}

#[test]
fn a_process_that_closes_its_endpoint_and_lives_has_left() {
    let alone = Alone::new();
    {
        let mut family = Family::new("leaves");
        let lost = family
            .endpoint()
            .negotiate(Party::threads().waits(), LONG)
            .unwrap_err();
        assert_eq!(loss(&lost), PeerLoss::Left);
        assert!(family.0.try_wait().unwrap().is_none());
        // Its death does not change that.
        family.kill();
        family.0.wait().unwrap();
        assert_eq!(
            loss(&family.endpoint().check().unwrap_err()),
            PeerLoss::Left
        );
    }
    alone.nothing_is_left();
}

/// A child of the peer sends on the peer's socket. The kernel tells which process sent.
#[test]
fn a_message_of_another_process_is_refused() {
    let alone = Alone::new();
    {
        let family = Family::new("is spoken for");
        let refused = family
            .endpoint()
            .negotiate(Party::threads().waits(), LONG)
            .unwrap_err();
        assert!(
            matches!(&refused, Error::Message { found, .. } if found.contains("one from process")),
            "{refused}"
        );
    }
    alone.nothing_is_left();
}

#[test]
fn a_process_connects_by_a_path() {
    let alone = Alone::new();
    {
        let path = std::env::temp_dir().join(format!("syncline-endpoints-{}", std::process::id()));
        let listener = Listener::bind(&path).unwrap();
        let child = command("connects").env(PATH, &path).spawn().unwrap();
        let endpoint = listener.accept("by path", LONG).unwrap();
        let mut family = Family(child, Some(endpoint));
        assert_eq!(family.endpoint().peer().id, family.0.id());
        family
            .endpoint()
            .negotiate(Party::threads().signals(), LONG)
            .unwrap();
        family.succeeds();
    }
    alone.nothing_is_left();
}

/// A child of the same user is not trusted, because it may be sandboxed.
///
/// A process of another user is not trusted either. That is tested if this process may start one.
#[test]
fn no_process_is_trusted_with_handles_before_the_application_says_so() {
    let alone = Alone::new();
    let distrusts = |family: &Family| {
        assert!(!family.endpoint().trusts_handles());
        // SAFETY: the child sends no handle.
        unsafe { family.endpoint().trust_handles() };
        assert!(family.endpoint().trusts_handles());
    };
    distrusts(&Family::new("is killed"));
    if rustix::process::geteuid().is_root() {
        let other_user = 65534;
        let probe = command("none").uid(other_user).env_remove(ROLE).status();
        if probe.is_ok_and(|status| status.success()) {
            distrusts(&Family::with("is killed", |command| {
                command.uid(other_user);
            }));
        }
    }
    alone.nothing_is_left();
}

/// P3: a child of fork(2) drops its copies. The peers and the listener of its parent stay usable.
#[test]
fn a_forked_child_drops_its_copies_without_effect() {
    let alone = Alone::new();
    {
        let mut family = Family::new("forks");
        let endpoint = family.endpoint();
        let own = Party::threads().waits();
        let plan = endpoint.negotiate(own.clone(), LONG).unwrap();
        let made = plan.make_across("frames", 0, &[], &[endpoint], LONG);
        let made = made.unwrap();
        let line = made.wait_only(own.id()).unwrap();
        let claimed = plan.make_across("claimed", 0, &[], &[endpoint], LONG);
        let claimed = claimed.unwrap();
        // Sent after the child has ended.
        let point = endpoint.receive_point(LONG).unwrap();
        point.point().wait(LONG).unwrap();
        endpoint.check().unwrap();
        let other = claimed.wait_only(own.id()).unwrap();
        let open = other.at(1).wait(Duration::ZERO);
        assert!(matches!(open, Err(Error::TimedOut { .. })), "{open:?}");
        let open = line.at(2).wait(Duration::ZERO);
        assert!(matches!(open, Err(Error::TimedOut { .. })), "{open:?}");
        drop((line, other, point, made, claimed));
        family.1 = None;
        family.succeeds();
    }
    alone.nothing_is_left();
}

/// X1: three processes in a chain, whose middle starts after one end.
///
/// Only the middle has an endpoint to each process, so it makes the object.
#[test]
fn the_middle_of_a_chain_is_the_home() {
    let alone = Alone::new();
    {
        let path = std::env::temp_dir().join(format!("syncline-chain-{}", std::process::id()));
        let mut middle = Family::with("is in the middle", |command| {
            command.env(PATH, &path);
        });
        let other = command("is at the end").env(PATH, &path).spawn().unwrap();
        let mut other = Family(other, None);
        let endpoint = middle.endpoint();
        let own = Party::threads().signals();
        let plan = endpoint.negotiate(own.clone(), LONG).unwrap();
        assert_eq!(plan.home().id().process, *endpoint.peer());
        let made = plan.make_across("frames", 0, &[], &[endpoint], LONG);
        let made = made.unwrap();
        made.signal_only(own.id()).unwrap().signal(1).unwrap();
        other.succeeds();
        drop(made);
        middle.succeeds();
    }
    alone.nothing_is_left();
}

/// X1: three processes, each with an endpoint to each other.
///
/// The home is a process that does not negotiate for the others. It has listed its endpoints.
#[test]
fn a_corner_of_a_triangle_is_the_home() {
    let alone = Alone::new();
    {
        let path = std::env::temp_dir().join(format!("syncline-corner-{}", std::process::id()));
        let [mut corner, mut last] = ["is a corner", "is the last corner"].map(|role| {
            // The corner greets its parent after it has bound the path.
            Family::with(role, |command| {
                command.env(PATH, &path);
            })
        });
        let peers = [corner.endpoint(), last.endpoint()];
        let plan = negotiate_among(Party::threads().waits(), &peers, LONG).unwrap();
        assert_eq!(plan.home().id().process, *corner.endpoint().peer());
        awaits(&plan, &peers);
        last.1 = None;
        last.succeeds();
        corner.1 = None;
        corner.succeeds();
    }
    alone.nothing_is_left();
}
