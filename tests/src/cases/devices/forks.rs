//! P3, D1, E5: forked children that drop or use what their parent has made.

use std::any::Any;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::info::BackendKind;
use syncline::trace::Trace;
use syncline::wait::future;
use syncline::{Buffer, Device, Error, ErrorKind, Found, Point, QueueKind, Signal};

use super::{look, one_device_only, open_again};
use crate::case::{Verdict, equipped_cases};
use crate::cases::{WORDS, filled, filling};
use crate::forked::in_child;
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

equipped_cases! {
    "device.a_forked_child_drops_its_copies": [P3] => drops;
    "device.a_forked_child_is_refused": [D1 E5] => refused;
    "device.a_forked_child_opens_its_own": [D1] => opens;
}

/// Everything that a process may have when it forks.
type Everything = Vec<Box<dyn Any>>;

/// A child drops everything that its parent has made, with work in flight, in two orders.
///
/// The parent goes on.
fn drops(world: &World<Equipped>) -> Verdict {
    let (left, right) = (world.left.subject(), world.right.subject());
    let shared = left.timeline_with(right, "shared", 0)?;
    let first = left.device().queue(QueueKind::Compute, "left")?;
    let second = right.device().queue(QueueKind::Compute, "right")?;
    first.submit(&[], |_| Ok(()), &[shared.signal_at(1)])?;
    second.submit(&[shared.at(1)], |_| Ok(()), &[shared.signal_at(2)])?;
    shared.at(2).wait(patience())?;

    let inventory = look();
    let device = open_again(&world.left, &inventory)?;
    let queue = device.queue(QueueKind::Compute, "forks")?;
    let (line, gate) = (device.timeline("line")?, device.timeline("gate")?);
    let (fence, timed) = (device.fence("fence"), device.timed_fence("timed"));
    let buffer = Buffer::host_visible(&device, WORDS as u64 * 4)?;
    let trace = Trace::new();
    trace.follow(&queue).ok();
    queue.submit(&[], filling::<Equipped>(&buffer, 1), &[line.signal_at(1)])?;
    queue.record(&fence)?;
    // Not every device has timestamps.
    let _ = queue.record(&timed);
    line.at(1).wait(patience())?;
    let fills = filling::<Equipped>(&buffer, 2);
    queue.submit(&[gate.at(1)], fills, &[line.signal_at(2)])?;
    let last = line.at(2).keep();
    let late = future::all(&[line.at(2)]);
    let clock = device.clock().ok();

    let mut made: Option<(Everything, Everything)> = Some((
        vec![
            Box::new(queue.clone()),
            Box::new(buffer.clone()),
            Box::new((fence.clone(), timed)),
            Box::new(late),
            Box::new(line.claim(9).ok()),
            Box::new((shared.clone(), first.clone(), second.clone())),
        ],
        vec![Box::new(trace), Box::new(clock), Box::new(last.clone())],
    ));
    let mut rest = Some((line, gate, fence, buffer, queue, device, inventory));
    let mut sharing = Some((shared, first, second, last));
    for reversed in [false, true] {
        in_child(|| {
            // The last handles go in two orders.
            if reversed {
                drop((rest.take(), made.take(), sharing.take()));
            } else {
                drop((sharing.take(), made.take(), rest.take()));
            }
            Ok(())
        })?;
    }

    if let (Some((line, gate, fence, buffer, queue, device, _)), Some((shared, first, second, _))) =
        (&rest, &sharing)
    {
        gate.signal(1)?;
        line.at(2).wait(patience())?;
        fence.wait(patience())?;
        filled::<Equipped>(buffer, 2, "the work after the fork")?;
        queue.idle(patience())?;
        first.submit(&[], |_| Ok(()), &[shared.signal_at(3)])?;
        second.submit(&[shared.at(3)], |_| Ok(()), &[shared.signal_at(4)])?;
        shared.at(4).wait(patience())?;
        device.check()?;
    }
    drop((made, rest, sharing));
    world.left.check()?;
    Ok(())
}

/// A child that uses its parent's objects gets a typed error at once, from every call.
fn refused(world: &World<Equipped>) -> Verdict {
    let device: &Device = world.left.library();
    let queue = device.queue(QueueKind::Compute, "forks")?;
    let (line, fence) = (device.timeline("line")?, device.fence("fence"));
    let shared = world
        .left
        .subject()
        .timeline_with(world.right.subject(), "shared", 0)?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    line.at(1).wait(patience())?;
    let maker = std::process::id().to_string();
    in_child(|| {
        // A driver in software ends the child if this reaches it.
        let _ = device.trim();
        let long = Duration::from_secs(1000);
        let submit = |waits: &[Point<'_>], signals: &[Signal<'_>]| {
            queue.submit(waits, |_| Ok(()), signals).map(drop)
        };
        let any = || syncline::wait_any(&[line.at(2), shared.at(1)], long);
        let make_queue = || device.queue(QueueKind::Compute, "child");
        let answers: Vec<(&str, Result<(), Error>)> = vec![
            ("submit", submit(&[], &[line.signal_at(2)])),
            ("submit a wait", submit(&[line.at(2)], &[])),
            ("record", queue.record(&fence)),
            ("idle", queue.idle(long)),
            ("signal", line.signal(2)),
            ("signal a shared timeline", shared.signal(1)),
            ("claim", line.claim(2).map(drop)),
            ("wait", line.at(2).wait(long)),
            ("wait until pending", line.at(2).wait_pending(long)),
            ("wait for any", any().map(drop)),
            ("query", line.at(2).is_reached().map(drop)),
            ("value", line.value().map(drop)),
            ("make a timeline", device.timeline("child").map(drop)),
            ("make a queue", make_queue().map(drop)),
            ("check", device.check()),
            ("make a buffer", Buffer::host_visible(device, 64).map(drop)),
        ];
        // Words of the host are memory of this process.
        let own_memory = usize::from(matches!(device, Device::Host(_)));
        let count = answers.len() - own_memory;
        for (asked, answer) in answers.into_iter().take(count) {
            match answer {
                Err(error) if error.kind() == ErrorKind::MadeBeforeFork => {
                    let text = error.to_string();
                    if !text.contains(&maker) {
                        return Err(format!("{asked}: it does not name process {maker}: {text}"));
                    }
                }
                Err(error) => return Err(format!("{asked}: {error}")),
                Ok(()) => return Err(format!("{asked} succeeded")),
            }
        }
        // What was reached stays reached, and a device of the child works.
        line.at(1)
            .wait(Duration::ZERO)
            .map_err(|error| error.to_string())?;
        let own = syncline::host::Device::new();
        let made = own.timeline("own").and_then(|own| own.signal(1));
        made.map_err(|error| error.to_string())
    })?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(2)])?;
    line.at(2).wait(patience())?;
    Ok(())
}

/// A child opens a device of its own, or is refused: by CUDA, and by Vulkan on a GPU.
///
/// The child submits no work, because some drivers in software keep one set of threads for all
/// devices of a process.
fn opens(world: &World<Equipped>) -> Verdict {
    one_device_only(world)?;
    let info = world.left.info();
    let (backend, name) = (info.backend, &info.name);
    let refuses = match backend {
        BackendKind::Cuda => true,
        BackendKind::Vulkan => !info.software,
        _ => false,
    };
    in_child(|| {
        let inventory = look();
        let is_wanted = |found: &&Found| {
            let info = found.info();
            info.backend == backend && info.name == *name
        };
        let found = inventory.devices().iter().find(is_wanted);
        let made = match found {
            Some(found) => found.open().and_then(|device| {
                let line = device.timeline("child")?;
                line.signal(1)?;
                line.at(1).wait(patience())
            }),
            None => inventory.select(backend.name()).map(drop),
        };
        match made {
            Err(error) if refuses => {
                let text = error.to_string();
                let is_told =
                    error.kind() == ErrorKind::MadeBeforeFork && text.contains("open devices");
                is_told.then_some(()).ok_or(text)
            }
            Ok(()) if refuses => Err("the child is not refused".into()),
            made => made.map_err(|error| error.to_string()),
        }
    })?;
    world.left.check()?;
    Ok(())
}
