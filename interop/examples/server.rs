//! A server makes frames for each client that connects, with a timeline in each direction.
//!
//! It starts itself as two clients, and gives up the one that stops early. No driver is needed.

use std::sync::atomic::Ordering::Relaxed;
use std::{env, error::Error, process::Command, thread, time::Duration};

use syncline::prelude::*;
use syncline::process::{Endpoint, Listener};
use syncline::{Device, Slots, handle::SharedWords, host, negotiate::Party};

const PATIENCE: Duration = Duration::from_secs(5);
const FRAMES: u64 = 5;
const SLOTS: usize = 2; // so the server may be two frames ahead of a client

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let device = Device::from(host::Device::new());
    if let [_, path, last] = &*env::args().collect::<Vec<_>>() {
        let server = Endpoint::connect(path, "server", PATIENCE)?;
        return client(&server, &device, last.parse()?);
    }
    println!("on {}", device.info().name);
    let path = env::temp_dir().join(format!("syncline-{}.socket", std::process::id()));
    let listener = Listener::bind(&path)?;
    let program = env::current_exe()?;
    thread::scope(|scope| -> Outcome {
        for last in ["5", "2"] {
            let mut child = Command::new(&program).arg(&path).arg(last).spawn()?;
            let (client, device) = (listener.accept("client", PATIENCE)?, &device);
            scope.spawn(move || {
                if let Err(error) = serve(client, device) {
                    println!("client with {last} frames: {error}");
                }
                child.wait()
            });
        }
        Ok(())
    })
}

fn serve(client: Endpoint, device: &Device) -> Outcome {
    let (own, devices) = (Party::of(device), [device.clone()]);
    // Both processes make the same timelines in the same order.
    let ready = client.timeline("ready", own.clone().signals(), &devices, PATIENCE)?;
    let taken = client.timeline("taken", own.clone().waits(), &devices, PATIENCE)?;
    let (ready, taken) = (ready.signal_only(own.id())?, taken.wait_only(own.id())?);
    let slots = Slots::new(taken.clone(), SLOTS)?;
    let words = SharedWords::new(4 * SLOTS as u64)?;
    client.send_words("words", &words, PATIENCE)?;
    let queue = device.queue(QueueKind::Compute, "of one client")?;
    for n in 1..=FRAMES {
        let (slot, words) = (slots.frame(n)?, words.clone());
        let (at, free, done) = (slot.index(), slot.free(), ready.signal_at(n));
        let paint = move || words.words()[at].store((n * n) as u32, Relaxed);
        // Held until the client has taken the frame in that slot. The call does not block.
        queue.submit(&[free], |work| work.host().map(|w| w.run(paint)), &[done])?;
    }
    if (1..=FRAMES).any(|n| taken.at(n).wait(PATIENCE).is_err()) {
        client.give_up(); // ends all waits for the client in this process
    }
    queue.idle(PATIENCE)?;
    Ok(taken.at(FRAMES).wait(PATIENCE)?)
}

fn client(server: &Endpoint, device: &Device, last: u64) -> Outcome {
    let (own, devices) = (Party::of(device), [device.clone()]);
    let ready = server.timeline("ready", own.clone().waits(), &devices, PATIENCE)?;
    let taken = server.timeline("taken", own.clone().signals(), &devices, PATIENCE)?;
    let (ready, taken) = (ready.wait_only(own.id())?, taken.signal_only(own.id())?);
    let words = server.receive_words("words", 4 * SLOTS as u64, PATIENCE)?;
    for n in 1..=last {
        ready.at(n).wait(PATIENCE)?; // or a submission waits
        println!("frame {n} is {:?}", words.words()[n as usize % SLOTS]);
        taken.signal(n)?;
    }
    let _ = server.receive_point(Duration::MAX); // until the server closes the connection
    Ok(())
}
