//! Scenarios of the host backend.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use syncline::backend::{Device as _, Queue as _};
use syncline::negotiate::{Party, negotiate};
use syncline::{QueueKind, host};

use super::{PATIENCE, Scenario, Stop, Verdict, cuda, events, expect};
use crate::one_run::{DROPPING, step};

pub(super) static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "host.submit",
        run: submit,
    },
    Scenario {
        name: "host.notices",
        run: notices,
    },
    Scenario {
        name: "host.descriptor",
        run: descriptor,
    },
    Scenario {
        name: "host.counter",
        run: counter,
    },
];

fn submit() -> Verdict {
    let device = host::Device::new();
    step("set-up");
    let (line, gate) = (device.timeline("line")?, device.timeline("gate")?);
    let queues = [
        device.queue(QueueKind::Compute, "a")?,
        device.queue(QueueKind::Compute, "b")?,
    ];
    let count = Arc::new(AtomicU32::new(0));
    step("submitting");
    for value in 1..5 {
        let counted = count.clone();
        queues[value as usize % 2].submit(
            &[line.at(value - 1), gate.at(1)],
            move |recorder| {
                recorder.run(move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                });
                Ok(())
            },
            &[line.signal_at(value)],
        )?;
    }
    gate.signal(1)?;
    step("waiting");
    line.at(4).wait(PATIENCE)?;
    expect(count.load(Ordering::Relaxed) == 4, "work has not run")?;
    for queue in &queues {
        queue.idle(PATIENCE)?;
    }
    step(DROPPING);
    Ok(())
}

fn notices() -> Verdict {
    let device = host::Device::new();
    step("set-up");
    let (line, gate) = (device.timeline("line")?, device.timeline("gate")?);
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let notice = events::EventFd::new()?;
    step("submitting");
    let kept = line.at(1).notify(notice.duplicate()?)?;
    queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
    gate.signal(1)?;
    step("an eventfd");
    notice.wait(PATIENCE, &line.at(1))?;
    drop(kept);
    step("a future");
    queue.submit(&[], |_| Ok(()), &[line.signal_at(2)])?;
    events::block_on(line.at(2), PATIENCE)?;
    queue.idle(PATIENCE)?;
    step(DROPPING);
    Ok(())
}

/// A queue that waits for an eventfd of the application.
fn descriptor() -> Verdict {
    let device = host::Device::new();
    step("set-up");
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let line = device.timeline("line")?;
    let notice = events::EventFd::new()?;
    let fence = device.import_descriptor(Some(notice.duplicate()?), "notice")?;
    step("submitting");
    queue.wait(&fence)?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    expect(!line.at(1).is_reached()?, "the queue did not wait")?;
    notice.signal()?;
    step("waiting");
    line.at(1).wait(PATIENCE)?;
    fence.wait(PATIENCE)?;
    queue.idle(PATIENCE)?;
    step(DROPPING);
    Ok(())
}

/// A counter in shared memory that two host devices use.
fn counter() -> Verdict {
    let devices = [host::Device::new(), host::Device::new()];
    step("set-up");
    let party = |device| Party::of(device).signals().waits();
    let plan = negotiate([party(&devices[0]), party(&devices[1])]);
    let plan = plan.map_err(|conflict| Stop::Wrong(conflict.to_string()))?;
    let all: Vec<_> = devices.iter().cloned().map(Into::into).collect();
    let line = cuda::made(&plan, "line", &all)?;
    let queues = [
        devices[0].queue(QueueKind::Compute, "a")?,
        devices[1].queue(QueueKind::Compute, "b")?,
    ];
    step("submitting");
    for value in 1..5 {
        queues[value as usize % 2].submit(
            &[line.at(value - 1)],
            |_| Ok(()),
            &[line.signal_at(value)],
        )?;
    }
    step("waiting");
    line.at(4).wait(PATIENCE)?;
    for queue in &queues {
        queue.idle(PATIENCE)?;
    }
    step(DROPPING);
    Ok(())
}
