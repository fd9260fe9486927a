//! P2: points of a timeline that two processes share. Passing them allocates nothing.
//!
//! The child runs this program again, with a socket as its standard input. Its exit code says what
//! it found.

use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

use syncline::host;
use syncline::negotiate::{Made, Party};
use syncline::process::Endpoint;

use super::{Alone, LONG, heap};

/// Set in the child.
const CHILD: &str = "SYNCLINE_POINTS_CHILD";

/// Exit codes of the child: it allocated nothing, or something.
const FINE: i32 = 0;
const ALLOCATES: i32 = 82;

/// Number of points in each direction. Allocations for the first one are not counted.
const POINTS: u64 = 1000;

fn made(endpoint: &Endpoint, own: &Party, device: &host::Device) -> Made {
    let plan = endpoint.negotiate(own.clone(), LONG).unwrap();
    plan.make_across("frames", 0, &[device.clone().into()], &[endpoint], LONG)
        .unwrap()
}

/// Counts the allocations of this thread for all points but the first.
fn allocated(mut pass: impl FnMut(u64)) -> u64 {
    pass(0);
    let before = heap::so_far();
    (1..POINTS).for_each(pass);
    heap::so_far() - before
}

fn receives(endpoint: &Endpoint) -> u64 {
    allocated(|value| {
        let kept = endpoint.receive_point(LONG).unwrap();
        assert_eq!(kept.point().value(), value);
    })
}

/// The child process of the other test.
#[test]
fn the_child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    // SAFETY: nothing else in this process uses standard input.
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    let endpoint = Endpoint::open(socket, "child", LONG).unwrap();
    let device = host::Device::new();
    let own = Party::of(&device).signals();
    let made = made(&endpoint, &own, &device);
    let line = made.signal_only(own.id()).unwrap();
    let received = receives(&endpoint);
    let sent = allocated(|value| endpoint.send_signal(line.signal_at(value), LONG).unwrap());
    // Until the peer has received all of them and closes.
    assert!(endpoint.receive_point(LONG).is_err());
    let code = match received + sent {
        0 => FINE,
        _ => ALLOCATES,
    };
    std::process::exit(code);
}

#[test]
fn neither_process_allocates_for_a_point() {
    let alone = Alone::new();
    let (ours, theirs) = Endpoint::pair().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "points::the_child", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let endpoint = Endpoint::open(ours, "points", LONG).unwrap();
    let device = host::Device::new();
    let own = Party::of(&device).waits();
    let made = made(&endpoint, &own, &device);
    let line = made.wait_only(own.id()).unwrap();
    let sent = allocated(|value| endpoint.send_point(line.at(value), LONG).unwrap());
    let received = receives(&endpoint);
    assert_eq!((sent, received), (0, 0));
    // The counter counts.
    let before = heap::so_far();
    drop(std::hint::black_box(Box::new(1)));
    assert!(heap::so_far() > before);
    drop((line, made, endpoint));
    let ended = child.wait().unwrap();
    assert_eq!(ended.code(), Some(FINE), "{ended}");
    drop(child);
    alone.nothing_is_left();
}
