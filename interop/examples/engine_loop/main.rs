//! An engine's loop: two frames in flight, a new size, and a lost device, which is opened again.
//!
//! Usage: `engine_loop [DEVICE]`, with a device as in `two_queues`.

mod loss;

use std::time::Duration;

use syncline::prelude::*;
use syncline::{Buffer, Device, ErrorKind, Queue, Recorder, Slots};

const PATIENCE: Duration = Duration::from_secs(30);

/// All that belongs to the device. After a loss it is dropped, and made again.
struct Engine {
    device: Device,
    queue: Queue,
    frames: Timeline,
    slots: Slots,
    targets: [Buffer; 2],
}

impl Engine {
    fn open(name: &str, frames: u64, bytes: u64) -> syncline::Result<Self> {
        let inventory = Inventory::probe(&ProbeOptions::default());
        let device = inventory.select(name)?.open()?;
        println!("{} {}", device.info().backend, device.info().name);
        let frames = device.timeline_from("frames", frames)?;
        Ok(Self {
            queue: device.queue(QueueKind::Compute, "draw")?,
            slots: Slots::new(frames.wait_only(), 2)?, // two frames are in flight
            frames,
            targets: targets(&device, bytes)?,
            device,
        })
    }

    fn frame(&self, n: u64) -> syncline::Result<()> {
        let slot = self.slots.frame(n)?;
        slot.free().wait(PATIENCE)?;
        let target = self.targets[slot.index()].clone();
        let draw = move |recorder: &mut Recorder<'_>| recorder.fill(&target, n as u32);
        self.queue.submit(&[], draw, &[self.frames.signal_at(n)])?;
        Ok(())
    }
}

fn targets(device: &Device, bytes: u64) -> syncline::Result<[Buffer; 2]> {
    let target = || Buffer::host_visible(device, bytes);
    Ok([target()?, target()?])
}

fn main() -> syncline::Result<()> {
    let name = std::env::args().nth(1).unwrap_or("0".into());
    let (mut n, mut bytes, mut loss_at) = (1, 1 << 16, Some(15));
    let mut engine = Engine::open(&name, 0, bytes)?;
    while n <= 20 {
        if n == 8 {
            bytes *= 2;
            engine.frames.at(n - 1).wait(PATIENCE)?; // no frame in flight uses the old targets
            engine.targets = targets(&engine.device, bytes)?;
        }
        if loss_at.take_if(|at| *at == n).is_some() {
            engine.frames.at(n - 1).wait(PATIENCE)?; // lavapipe would go on with them
            loss::lose(&engine.device, &engine.frames)?;
        }
        match engine.frame(n) {
            Ok(()) => n += 1,
            Err(error) if error.root().kind() == ErrorKind::DeviceLost => {
                println!("frame {n}: {}", error.root());
                drop(engine); // all that belongs to the device
                engine = Engine::open(&name, n - 1, bytes)?;
            }
            Err(error) => return Err(error),
        }
    }
    engine.frames.at(20).wait(PATIENCE)?;
    println!("20 frames");
    engine.queue.idle(PATIENCE)
}
