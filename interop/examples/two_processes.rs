//! Two processes share a timeline and memory. Then one of them is killed.
//!
//! Usage: `two_processes [DEVICE]`, with a device as in `two_queues`. By default both use the host.
//! The program starts itself as the second process.

#![allow(unsafe_code, reason = "trusts handles of another process")]

use std::os::fd::AsFd as _;
use std::process::{Child, Command};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use syncline::handle::SharedWords;
use syncline::negotiate::Party;
use syncline::prelude::*;
use syncline::process::Endpoint;
use syncline::{Queue, Result, SignalOnly, WaitOnly};

const PATIENCE: Duration = Duration::from_secs(30);
const FRAMES: u64 = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or("host".into());
    let (endpoint, child) = if std::env::args().nth(2).is_some() {
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        (Endpoint::open(socket, "producer", PATIENCE)?, None)
    } else {
        let (ours, theirs) = Endpoint::pair()?;
        let child = Command::new(std::env::current_exe()?)
            .args([&name, "producer"])
            .stdin(theirs)
            .spawn()?;
        (Endpoint::open(ours, "consumer", PATIENCE)?, Some(child))
    };
    // SAFETY: the other process is this same program, which sends the handles that it says.
    unsafe { endpoint.trust_handles() };
    let inventory = Inventory::probe(&ProbeOptions::default());
    let device = inventory.select(&name)?.open()?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let own = Party::of(&device);
    let (id, signals) = (own.id(), child.is_none());
    let needs = if signals { own.signals() } else { own.waits() };
    let plan = endpoint.negotiate(needs, PATIENCE)?; // the same in both processes
    let made = plan.make_across("frames", 0, &[device], &[&endpoint], PATIENCE)?;
    let Some(child) = child else {
        return Ok(produce(&endpoint, &queue, &made.signal_only(id)?)?);
    };
    println!("{}: {}", queue.device().info().name, plan.mechanism());
    Ok(consume(&endpoint, &queue, &made.wait_only(id)?, child)?)
}

/// Makes five frames, and not the sixth.
fn produce(endpoint: &Endpoint, queue: &Queue, frames: &SignalOnly) -> Result<()> {
    let words = SharedWords::new(4 * FRAMES)?;
    endpoint.send_words("squares", &words, PATIENCE)?;
    for (n, word) in (1..).zip(words.words()) {
        word.store(n * n, Relaxed); // or the queue's work writes it
        queue.submit(&[], |_| Ok(()), &[frames.signal_at(n.into())])?;
    }
    while endpoint.check().is_ok() {
        std::thread::sleep(Duration::from_millis(10)); // until the consumer has gone
    }
    queue.idle(PATIENCE)
}

fn consume(endpoint: &Endpoint, queue: &Queue, frames: &WaitOnly, mut child: Child) -> Result<()> {
    let words = endpoint.receive_words("squares", 4 * FRAMES, PATIENCE)?;
    for (n, word) in (1..).zip(words.words()) {
        frames.at(n).wait(PATIENCE)?;
        println!("frame {n} is {}", word.load(Relaxed));
    }
    let next = queue.submit(&[frames.at(FRAMES + 1)], |_| Ok(()), &[])?;
    child.kill().map_err(Error::work)?;
    // The wait would never end, so it ends with an error within a second.
    if let Err(error) = next.wait_submitted(PATIENCE) {
        println!("{:?}: {}", error.root().kind(), error.root());
    }
    child.wait().map_err(Error::work)?;
    queue.idle(PATIENCE) // the queue goes on
}
