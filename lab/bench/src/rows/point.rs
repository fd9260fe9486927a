//! Points that two processes send to each other.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    SocketType, recvmsg, sendmsg, socketpair,
};
use syncline::negotiate::{Made, Party};
use syncline::process::Endpoint;
use syncline::{Device, handle::Rejected, host};

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::row::{Call, LONG, Question, Row};
use crate::side::{OURS, Outcome, RAW, Side, Stop};

pub(super) const ROWS: &[Row] = &[Row {
    id: "process.point",
    question: Question::Wait,
    ours: "a point over an endpoint to another process, which receives it and sends it back",
    raw: "sendmsg(2) and recvmsg(2) of 32 bytes over a SOCK_SEQPACKET socket, both block",
    limits: &[Limit::RatioToRaw(1.6)],
    on: &[On::Host],
    variants: &[],
    run: point,
}];

fn point(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = Device::Host(call.machine.host(call.subject)?);
    let (ours, theirs) = Endpoint::pair()?;
    let pair = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    let (socket, their_socket) = pair.map_err(|errno| failed("socketpair", errno))?;
    let _partner = Partner::start(theirs, their_socket)?;
    let (endpoint, made) = connect(ours, device.clone(), false)?;
    let line = made.wait_only(Party::of(&device).id())?;
    let (mut value, mut number) = (0, 0);
    lab.race(vec![
        Side::timed(OURS, || {
            value += 1;
            endpoint.send_point(line.at(value), LONG)?;
            same(endpoint.receive_point(LONG)?.point().value(), value)
        }),
        Side::timed(RAW, || {
            number += 1;
            send(&socket, number)?;
            same(receive(&socket)?, number)
        }),
    ])
}

/// The environment variable that makes this program the other process.
const JOB: &str = "SYNCLINE_BENCH_JOB";

/// Set once this program has checked whether it is the other process. Only such a program can be.
///
/// The program of a test would run its tests once more, and those their children.
static OFFERED: AtomicBool = AtomicBool::new(false);

/// The other process, which is killed when this is dropped.
struct Partner(Child);

impl Drop for Partner {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Partner {
    /// Starts this program once more, with this standard input and output.
    fn start(input: OwnedFd, output: OwnedFd) -> Outcome<Self> {
        if !OFFERED.load(Ordering::Relaxed) {
            let reason = "this program is not made to be the other process";
            return Err(Stop::Skipped(reason.into()));
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.env(JOB, "partner").stdin(input).stdout(output);
        Ok(Self(command.spawn()?))
    }
}

/// Is the other process, if this process is one.
pub(crate) fn serve() -> Option<ExitCode> {
    OFFERED.store(true, Ordering::Relaxed);
    let ended = match std::env::var(JOB).ok()?.as_str() {
        "partner" => send_back(),
        job => Err(Stop::Failed(format!("{job:?} is no job"))),
    };
    if let Err(stop) = ended {
        eprintln!("error: {JOB} is set for child processes only: {stop}");
    }
    Some(ExitCode::from(2))
}

/// Sends back what comes, until this process is killed.
fn send_back() -> Outcome<()> {
    // Ends this process also if the parent is killed.
    let signal = Some(rustix::process::Signal::KILL);
    let _ = rustix::process::set_parent_process_death_signal(signal);
    let theirs = std::io::stdin().as_fd().try_clone_to_owned()?;
    let socket = std::io::stdout().as_fd().try_clone_to_owned()?;
    let (endpoint, _made) = connect(theirs, Device::Host(host::Device::new()), true)?;
    thread::spawn(move || -> Outcome<()> {
        loop {
            send(&socket, receive(&socket)?)?;
        }
    });
    loop {
        endpoint.send_point(endpoint.receive_point(LONG)?.point(), LONG)?;
    }
}

/// Opens an end, and makes the timeline whose points it sends, which one process signals.
fn connect(socket: OwnedFd, device: Device, signals: bool) -> Outcome<(Endpoint, Made)> {
    let opened = Endpoint::open(socket, "points", LONG);
    let endpoint = opened.map_err(|Rejected { error, .. }| Stop::from(error))?;
    let own = Party::of(&device);
    let needs = if signals { own.signals() } else { own.waits() };
    let made = endpoint.timeline("points", needs, &[device], LONG)?;
    Ok((endpoint, made))
}

fn same(found: u64, expected: u64) -> Outcome<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Stop::Failed(format!("{found} came in place of {expected}"))),
    }
}

/// Sends a message of the size of a point.
fn send(socket: &OwnedFd, value: u64) -> Outcome<()> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    let nothing = &mut SendAncillaryBuffer::default();
    let sent = sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        nothing,
        SendFlags::NOSIGNAL,
    );
    sent.map_err(|errno| failed("sendmsg", errno)).map(drop)
}

fn receive(socket: &OwnedFd) -> Outcome<u64> {
    let mut bytes = [0; 32];
    loop {
        let into = &mut [IoSliceMut::new(&mut bytes)];
        let nothing = &mut RecvAncillaryBuffer::default();
        match recvmsg(socket, into, nothing, RecvFlags::empty()) {
            Ok(received) if received.bytes == 32 => {
                let [a, b, c, d, e, f, g, h, ..] = bytes;
                return Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
            }
            Ok(received) => {
                let found = format!("a message of {} bytes came", received.bytes);
                return Err(Stop::Failed(found));
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("recvmsg", errno)),
        }
    }
}

fn failed(call: &str, errno: Errno) -> Stop {
    Stop::Failed(format!("{call} returned {errno}"))
}
