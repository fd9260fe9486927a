//! Scenarios of two processes. The calls of this process fail, and those of the other do not.
#![allow(unsafe_code, reason = "trusts the handles of the other process")]

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::slice::from_ref;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::negotiate::{Made, Party, PartyId};
use syncline::process::Endpoint;
use syncline::{Device, Error, QueueKind, host};

use super::{PATIENCE, Scenario, Stop, Verdict, cuda, vulkan};
use crate::one_run::{DROPPING, step};

pub(super) static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "process.imports",
        run: || frames(&cuda::open()?.into(), "vulkan"),
    },
    Scenario {
        name: "process.exports",
        run: || frames(&vulkan::open()?.into(), "cuda"),
    },
    Scenario {
        name: "process.vulkan",
        run: || frames(&vulkan::open()?.into(), "vulkan"),
    },
    Scenario {
        name: "process.counter",
        run: || frames(&cuda::open()?.into(), "host"),
    },
    Scenario {
        name: "process.bridge",
        run: || frames(&vulkan::open()?.into(), "host"),
    },
    Scenario {
        name: "process.host",
        run: || frames(&host::Device::new().into(), "host"),
    },
    Scenario {
        name: "process.event",
        run: event,
    },
];

/// What the last other process has printed.
static LAST_WORDS: Mutex<String> = Mutex::new(String::new());

/// Returns what the last other process has printed, which is its error.
pub(crate) fn last_words() -> String {
    std::mem::take(&mut *LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The other process. The drop ends it.
struct Peer(Child);

impl Peer {
    /// Starts a process with this role, and returns its endpoint.
    fn start(role: &str) -> Verdict<(Self, Endpoint)> {
        step("starting the other process");
        let (own, other) = Endpoint::pair()?;
        let program = std::env::current_exe().map_err(own_call)?;
        let child = Command::new(program)
            .args(["--peer", role])
            .stdin(Stdio::from(other))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(own_call)?;
        let peer = Self(child);
        let endpoint = endpoint(own, "this process")?;
        Ok((peer, endpoint))
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = self.listen();
    }

    /// Reads what it prints until it ends: its error, if it has one.
    fn listen(&mut self) -> std::io::Result<String> {
        let mut text = String::new();
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut text)?;
            let mut words = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
            words.clone_from(&text);
        }
        Ok(text)
    }

    /// Waits for its end. An error of it ends the scenario.
    fn end(mut self) -> Verdict {
        let text = self.listen().map_err(own_call)?;
        match self.0.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Stop::Peer(format!("{status}: {text}"))),
            Err(error) => Err(own_call(error)),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn own_call(error: impl std::fmt::Display) -> Stop {
    Stop::Own(error.to_string())
}

fn endpoint(socket: OwnedFd, label: &str) -> Verdict<Endpoint> {
    let endpoint = Endpoint::open(socket, label, PATIENCE)?;
    // SAFETY: both processes are this program.
    unsafe { endpoint.trust_handles() };
    Ok(endpoint)
}

/// A timeline of two processes, of which one signals.
fn line(device: &Device, endpoint: &Endpoint, signals: bool) -> Verdict<(Made, PartyId)> {
    step("negotiating");
    let party = Party::of(device);
    let id = party.id();
    let party = if signals {
        party.signals()
    } else {
        party.waits()
    };
    let plan = endpoint
        .negotiate(party, PATIENCE)
        .map_err(|error| match error {
            Error::Conflict(conflict) => Stop::Wrong(conflict.to_string()),
            error => Stop::Error(error),
        })?;
    step("making the timeline");
    let made = plan.make_across("line", 0, from_ref(device), &[endpoint], PATIENCE)?;
    Ok((made, id))
}

/// The errors that are not time-outs.
fn not_in_time(result: syncline::Result<()>) -> syncline::Result<()> {
    match result {
        Err(error) if error.is_timeout() => Ok(()),
        other => other,
    }
}

/// Signals one timeline and waits for the other, in turns. One process is the first.
fn exchange(
    device: &Device,
    endpoint: &Endpoint,
    is_first: bool,
    end_peer: impl FnOnce(),
) -> Verdict {
    let (forth, forth_id) = line(device, endpoint, is_first)?;
    let (back, back_id) = line(device, endpoint, !is_first)?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let ((own, id), (other, other_id)) = if is_first {
        ((&forth, forth_id), (&back, back_id))
    } else {
        ((&back, back_id), (&forth, forth_id))
    };
    let (signal, wait) = (own.signal_only(id)?, other.wait_only(other_id)?);
    let exchanged = (|| -> Verdict {
        step("submitting");
        let mut sent = Vec::new();
        for value in 1..4 {
            let awaited = if is_first { value - 1 } else { value };
            let signals = [signal.signal_at(value)];
            sent.push(queue.submit(&[wait.at(awaited)], |_| Ok(()), &signals)?);
        }
        step("waiting");
        let waited = wait.at(3).wait(PATIENCE);
        // Whether this process has signalled all. If not, the other one may have ended because of
        // that.
        for sent in sent {
            not_in_time(sent.wait_submitted(Duration::ZERO))?;
        }
        waited?;
        queue.idle(PATIENCE)?;
        Ok(device.check()?)
    })();
    if exchanged.is_err() {
        // The other process ends. Then work that waits for its signals is free.
        step("an end without the other process");
        end_peer();
        let until = Instant::now() + PATIENCE;
        while endpoint.check().is_ok() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = wait.at(3).wait(PATIENCE);
        let _ = queue.idle(PATIENCE);
    }
    step(DROPPING);
    exchanged
}

fn frames(device: &Device, role: &str) -> Verdict {
    let (mut peer, endpoint) = Peer::start(role)?;
    exchange(device, &endpoint, true, || peer.kill())?;
    step(DROPPING);
    drop(endpoint);
    peer.end()
}

/// An event that the other process records.
fn event() -> Verdict {
    let device = cuda::open()?;
    let (peer, endpoint) = Peer::start("event")?;
    let used = (|| -> Verdict {
        step("receiving the event");
        // SAFETY: the other process keeps the event until this one has ended.
        let fence = unsafe { endpoint.receive_event(&device, "event", PATIENCE) }?;
        let queue = device.queue(QueueKind::Compute, "queue")?;
        let line = device.timeline("line")?;
        step("waiting");
        queue.wait(&fence)?;
        queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
        line.at(1).wait(PATIENCE)?;
        fence.wait(PATIENCE)?;
        queue.idle(PATIENCE)?;
        device.check()?;
        step(DROPPING);
        Ok(())
    })();
    // Also after an error the other process ends by itself, after its record. The work of a killed
    // process never ends, nor does a queue that waits for it.
    drop(endpoint);
    let ended = peer.end();
    used?;
    ended
}

/// The other process, whose socket is its standard input.
pub(crate) fn run_peer(role: &str) -> Result<(), String> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.map_err(|error| error.to_string())?;
    let run = || -> Verdict {
        let endpoint = endpoint(socket, "the other process")?;
        let device: Device = match role {
            "cuda" => cuda::open()?.into(),
            "vulkan" => vulkan::open()?.into(),
            "host" => host::Device::new().into(),
            _ => return lend_event(&endpoint),
        };
        exchange(&device, &endpoint, false, || {})?;
        stay_until_closed(&endpoint);
        Ok(())
    };
    run().map_err(|stop| {
        let text = format!("{stop:?}");
        println!("{text}");
        text
    })
}

/// Records an event for the other process, and keeps it until that has closed its endpoint.
fn lend_event(endpoint: &Endpoint) -> Verdict {
    let device = cuda::open()?;
    let event = device.interprocess_event("event")?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let recorded = event.clone();
    queue.submit(&[], move |recorder| recorder.record_event(&recorded), &[])?;
    endpoint.send_event(&event, "event", PATIENCE)?;
    stay_until_closed(endpoint);
    Ok(queue.idle(PATIENCE)?)
}

/// Waits until the first process has closed its endpoint.
fn stay_until_closed(endpoint: &Endpoint) {
    let until = std::time::Instant::now() + PATIENCE;
    while endpoint.check().is_ok() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
