//! X1, P3, P4, E3: plans that two or three processes carry out.
//!
//! The children run this program again, with a socket as their standard input. Their exit codes
//! say what they found.

use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rstest::rstest;
use syncline::Mechanism;
use syncline::backend::{Device as _, Queue as _};
use syncline::negotiate::{Made, Party, Plan};
use syncline::process::{Endpoint, negotiate_among};
use syncline::{
    Device, Error, QueueKind, Result,
    error::{PeerExit, PeerLoss},
    host,
    wait::Signaller,
};

use super::{Alone, LONG};

/// Set in a child: its role.
const ROLE: &str = "SYNCLINE_PLANS_CHILD";

/// Exit codes of children.
const FINE: i32 = 0;
const OTHERWISE: i32 = 80;
const TOLD_OF_A_DEATH: i32 = 81;

/// A child in a role. Killed when dropped.
struct Member {
    child: Child,
    endpoint: Endpoint,
}

impl Member {
    fn new(role: &str) -> Self {
        let (ours, theirs) = Endpoint::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "plans::the_child", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let endpoint = Endpoint::open(ours, role, LONG).unwrap();
        Self { child, endpoint }
    }

    fn ends_with(&mut self, code: i32) {
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{status}");
    }

    /// Sends the point that the child waits for. Its value does not matter.
    fn go(&self, made: &Made, own: &Party) {
        let line = made.wait_only(own.id()).unwrap();
        self.endpoint.send_point(line.at(1), LONG).unwrap();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn make(plan: &Plan, device: &host::Device, peers: &[&Endpoint], time: Duration) -> Result<Made> {
    plan.make_across("frames", 0, &[Device::Host(device.clone())], peers, time)
}

/// Counts descriptors and threads once the two threads of the only endpoint have their names.
///
/// A thread gives itself its name some time after its start.
fn with_named_threads() -> (usize, usize) {
    let begin = Instant::now();
    loop {
        let found = super::now();
        if found.1 == 2 || begin.elapsed() > LONG {
            return found;
        }
        std::thread::yield_now();
    }
}

/// The child processes of the other tests.
#[test]
fn the_child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    // SAFETY: nothing else in this process uses standard input.
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    let endpoint = Endpoint::open(socket, "child", LONG).unwrap();
    let device = host::Device::new();
    let own = match &*role {
        "waits" | "comes late" | "sends at once" | "has nothing" => Party::of(&device).waits(),
        _ => Party::of(&device).signals(),
    };
    let plan = endpoint.negotiate(own.clone(), LONG).unwrap();
    if role == "comes late" {
        // The peer shows that it has given up by what it does next.
        let waited = endpoint.receive_point(Duration::from_millis(700));
        assert!(matches!(waited, Err(Error::PeerSilent { .. })));
    }
    if role == "has nothing" {
        let before = with_named_threads();
        let time = Duration::from_millis(500);
        let refused = make(&plan, &device, &[&endpoint], time).unwrap_err();
        let is_told = match &refused {
            Error::Import { reason, .. } => {
                reason.contains("withdrawn") && reason.contains("killed by signal 9")
            }
            // The offer was withdrawn before this process looked at it.
            refused => refused.is_timeout(),
        };
        let left = super::soon(before);
        std::process::exit(match is_told && left == before {
            true => FINE,
            false => {
                eprintln!("{refused}; {left:?} where there were {before:?}");
                OTHERWISE
            }
        });
    }
    let made = make(&plan, &device, &[&endpoint], LONG).unwrap();
    let code = match &*role {
        "signals and lets go" => {
            let queue = device.queue(QueueKind::Compute, "queue").unwrap();
            let line = made.signal_only(own.id()).unwrap();
            let (go, gate) = std::sync::mpsc::channel::<()>();
            let work = move |r: &mut host::Recorder| {
                r.run(move || gate.recv().unwrap());
                Ok(())
            };
            queue.submit(&[], work, &[line.signal_at(1)]).unwrap();
            // As at the end of a scope. The submission goes on, and this process lives.
            drop((line, made, endpoint));
            go.send(()).unwrap();
            loop {
                std::thread::park();
            }
        }
        "signals" => {
            let line = made.signal_only(own.id()).unwrap();
            // The peer sends a point after it has dropped all but its view.
            drop(endpoint.receive_point(LONG).unwrap());
            line.signal(1).unwrap();
            let gone = endpoint.receive_point(LONG);
            assert!(gone.is_err());
            FINE
        }
        "is killed" => {
            let line = made.signal_only(own.id()).unwrap();
            line.signal(1).unwrap();
            loop {
                std::thread::park();
            }
        }
        _ => {
            let line = made.wait_only(own.id()).unwrap();
            if role == "sends at once" {
                endpoint.send_point(line.at(1), LONG).unwrap();
            }
            line.at(1).wait(LONG).unwrap();
            match line.at(2).wait(LONG) {
                Ok(()) => FINE,
                Err(Error::Failed { cause, .. }) => match &*cause {
                    Error::PeerLost { how, process, .. } => {
                        // The parent told this child how its other child ended.
                        let exit = Some(PeerExit::Signal(9));
                        assert_eq!(*how, PeerLoss::Died { exit });
                        assert!(![0, std::process::id()].contains(process));
                        TOLD_OF_A_DEATH
                    }
                    _ => OTHERWISE,
                },
                Err(_) => OTHERWISE,
            }
        }
    };
    let _ = std::io::stdout().flush();
    std::process::exit(code);
}

/// The signaller drops its side while work is under way, and lives.
///
/// The claimed value is reached. The next value fails, because no handle can signal it.
#[test]
fn a_claimed_value_is_reached_after_the_signaller_drops_its_side() {
    let alone = Alone::new();
    let scene = || {
        let member = Member::new("signals and lets go");
        let device = host::Device::new();
        let own = Party::of(&device).waits();
        let plan = member.endpoint.negotiate(own.clone(), LONG).unwrap();
        let made = make(&plan, &device, &[&member.endpoint], LONG).unwrap();
        let line = made.wait_only(own.id()).unwrap();
        line.at(1).wait(LONG).unwrap();
        let told = line.at(2).wait(LONG).unwrap_err().to_string();
        assert!(told.contains("last handle"), "{told}");
    };
    scene();
    // The watching thread may hold the last reference for a moment.
    alone.nothing_is_left();
}

/// The error of a time-out names the process that is to signal.
#[test]
fn a_time_out_names_the_process_that_signals() {
    let alone = Alone::new();
    {
        let member = Member::new("is killed");
        let device = host::Device::new();
        let own = Party::of(&device).waits();
        let plan = member.endpoint.negotiate(own.clone(), LONG).unwrap();
        let made = make(&plan, &device, &[&member.endpoint], LONG).unwrap();
        let line = made.wait_only(own.id()).unwrap();
        let late = line.at(2).wait(Duration::ZERO).unwrap_err();
        let Error::TimedOut { blockers, .. } = &late else {
            panic!("{late}");
        };
        let id = member.child.id();
        assert_eq!(blockers.steps()[0].by, Signaller::Process { id }, "{late}");
        assert!(late.to_string().contains(&format!("by process {id}")));
    }
    alone.nothing_is_left();
}

/// The waiting side may drop everything but its view. The other process is watched nevertheless.
#[test]
fn a_waiter_may_drop_everything_but_its_view() {
    let alone = Alone::new();
    {
        let mut member = Member::new("signals");
        let device = host::Device::new();
        let own = Party::of(&device).waits();
        let plan = member.endpoint.negotiate(own.clone(), LONG).unwrap();
        let line = {
            let made = make(&plan, &device, &[&member.endpoint], LONG).unwrap();
            member.go(&made, &own);
            made.wait_only(own.id()).unwrap()
        };
        line.at(1).wait(LONG).unwrap();
        member.child.kill().unwrap();
        let told = line.at(2).wait(LONG).unwrap_err();
        let Error::Failed { cause, .. } = told else {
            panic!("{told}");
        };
        assert!(
            matches!(
                *cause,
                Error::PeerLost {
                    how: PeerLoss::Died { .. },
                    ..
                }
            ),
            "{cause}"
        );
        member.child.wait().unwrap();
    }
    alone.nothing_is_left();
}

/// An offer that timed out does not disturb the next one.
#[test]
fn a_second_try_finds_the_second_offer() {
    let alone = Alone::new();
    let scene = || {
        let mut member = Member::new("comes late");
        let device = host::Device::new();
        let own = Party::of(&device).signals();
        let plan = member.endpoint.negotiate(own.clone(), LONG).unwrap();
        let first = make(
            &plan,
            &device,
            &[&member.endpoint],
            Duration::from_millis(50),
        );
        assert!(matches!(first, Err(Error::PeerSilent { .. })), "{first:?}");
        let made = make(&plan, &device, &[&member.endpoint], LONG).unwrap();
        let line = made.signal_only(own.id()).unwrap();
        line.signal(1).unwrap();
        line.signal(2).unwrap();
        member.ends_with(FINE);
    };
    scene();
    // The watching thread may hold the last reference for a moment.
    alone.nothing_is_left();
}

/// More offers time out than an inbox holds. The next offer succeeds.
#[test]
fn many_offers_that_were_given_up_leave_nothing() {
    let alone = Alone::new();
    let scene = || {
        let mut member = Member::new("comes late");
        let device = host::Device::new();
        let own = Party::of(&device).signals();
        let plan = member.endpoint.negotiate(own.clone(), LONG).unwrap();
        // The endpoint's thread may not have its name yet.
        let (before, _) = super::now();
        for _ in 0..40 {
            let given_up = make(&plan, &device, &[&member.endpoint], Duration::ZERO);
            assert!(
                matches!(given_up, Err(Error::PeerSilent { .. })),
                "{given_up:?}"
            );
        }
        assert_eq!(super::now().0, before);
        // No device has memory here. The error says so about the memory, not about a timeline.
        let (peers, devices) = ([&member.endpoint], [Device::Host(device.clone())]);
        let refused = plan.memory_across("pixels", 16, &devices, &peers, LONG);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("memory \"pixels\""), "{refused}");
        assert!(refused.contains("`Needs::MEMORY`"), "{refused}");
        let made = make(&plan, &device, &[&member.endpoint], LONG).unwrap();
        let line = made.signal_only(own.id()).unwrap();
        line.signal(1).unwrap();
        line.signal(2).unwrap();
        member.ends_with(FINE);
    };
    scene();
    // The watching thread may hold the last reference for a moment.
    alone.nothing_is_left();
}

/// The second process dies before the offer or during it. The first process gets nothing.
#[rstest]
#[case::before_the_offer(true)]
#[case::perhaps_during_the_offer(false)]
fn a_process_gets_nothing_if_the_other_dies(#[case] is_known: bool) {
    let alone = Alone::new();
    {
        let (mut first, mut second) = (Member::new("has nothing"), Member::new("comes late"));
        let device = host::Device::new();
        let own = Party::of(&device).signals();
        let peers = [&first.endpoint, &second.endpoint];
        let plan = negotiate_among(own, &peers, LONG).unwrap();
        second.child.kill().unwrap();
        while is_known && second.endpoint.check().is_ok() {
            std::thread::yield_now();
        }
        let lost = make(&plan, &device, &peers, LONG).unwrap_err();
        assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
        first.ends_with(FINE);
        second.child.wait().unwrap();
    }
    // The watching thread may hold the last reference for a moment.
    alone.nothing_is_left();
}

/// A process sends a point as soon as it knows that all have the object. The home knows it by then.
#[test]
fn a_point_may_come_as_soon_as_all_have_the_object() {
    let alone = Alone::new();
    let scene = || {
        let (mut quick, mut late) = (Member::new("sends at once"), Member::new("comes late"));
        let device = host::Device::new();
        let own = Party::of(&device).signals();
        let peers = [&quick.endpoint, &late.endpoint];
        let plan = negotiate_among(own.clone(), &peers, LONG).unwrap();
        let line = std::thread::scope(|scope| {
            let received = scope.spawn(|| quick.endpoint.receive_point(LONG));
            let made = make(&plan, &device, &peers, LONG).unwrap();
            assert_eq!(received.join().unwrap().unwrap().point().value(), 1);
            made.signal_only(own.id()).unwrap()
        });
        line.signal(1).unwrap();
        line.signal(2).unwrap();
        quick.ends_with(FINE);
        late.ends_with(FINE);
    };
    scene();
    // The watching thread may hold the last reference for a moment.
    alone.nothing_is_left();
}

/// One process signals and two wait. One of the waiters has no connection to the signaller.
///
/// The signaller is killed. One waiter learns it by its endpoint, the other by the counter page.
#[test]
fn a_waiter_without_a_connection_learns_of_a_death_by_the_page() {
    let alone = Alone::new();
    let scene = || {
        let mut signaller = Member::new("is killed");
        let mut waiter = Member::new("waits");
        let device = host::Device::new();
        let own = Party::of(&device).waits();
        let peers = [&signaller.endpoint, &waiter.endpoint];
        let plan = negotiate_among(own.clone(), &peers, LONG).unwrap();
        assert_eq!(plan.mechanism(), Mechanism::SharedMemory);
        assert_eq!(plan.parties().len(), 3);
        let made = make(&plan, &device, &peers, LONG).unwrap();
        let line = made.wait_only(own.id()).unwrap();
        line.at(1).wait(LONG).unwrap();
        signaller.child.kill().unwrap();
        let told = line.at(2).wait(LONG).unwrap_err().to_string();
        assert!(told.contains("killed by signal 9"), "{told}");
        waiter.ends_with(TOLD_OF_A_DEATH);
        signaller.child.wait().unwrap();
    };
    scene();
    // The watching thread may hold the last reference for a moment.
    alone.nothing_is_left();
}
