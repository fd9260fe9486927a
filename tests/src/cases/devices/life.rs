//! D1, D3, D4: devices that are opened again, objects that outlive them, and all kinds of queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Buffer, Error, QueueKind};

use super::{look, one_device_only, open_again};
use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::cases::{DELAY, WORDS, copying, filled, filling, several};
use crate::footprint::grows_nothing;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "device.opened_again_and_again": [D1 D4 H2] => again;
    "device.objects_keep_it_alive": [D4 T9] => objects_keep_it;
    "device.trim_leaves_what_is_in_use": [H2] => trim;
    "device.every_kind_of_queue_does_work": [D3 Q1] => every_kind;
    "device.work_on_the_host_may_fail": [Q6 E1] => host_work_fails;
}

/// Opens, uses and drops a device many times. Nothing is left, and the case's device is unaffected.
fn again(world: &World<Equipped>) -> Verdict {
    const EACH: usize = 2;
    one_device_only(world)?;
    let inventory = look();
    grows_nothing(|| {
        for _ in 0..EACH {
            let device = open_again(&world.left, &inventory)?;
            check!(device.id() != world.left.id());
            let queue = device.queue(QueueKind::Compute, "again")?;
            let (line, fence) = (device.timeline("again")?, device.fence("again"));
            queue.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
            queue.record(&fence)?;
            line.signal(1)?;
            fence.wait(patience())?;
            line.at(2).wait(patience())?;
            queue.idle(patience())?;
        }
        Ok(())
    })?;
    let said = inventory.validation_errors();
    check!(said.is_empty(), "validation: {}", said.join("; "));
    world.left.check()?;
    let queue = world.left_queue("left")?;
    queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    Ok(())
}

/// Pools grow to what is outstanding. A trim leaves what is in use, and then nothing.
///
/// 10 000 queues and timelines in all, and 2000 on a GPU by Vulkan. Other threads need not stop for
/// a trim, so it also comes while work is in flight.
fn trim(world: &World<Equipped>) -> Verdict {
    const EACH: usize = 100;
    /// Those of a driver that needs deferred destruction, of its last submission.
    const SEMAPHORES: usize = 4;
    one_device_only(world)?;
    let device = world.left.library();
    // NVIDIA's Vulkan driver takes some 10 ms for each queue with its objects.
    let rounds = match device {
        #[cfg(feature = "vulkan")]
        syncline::Device::Vulkan(device) if !device.info().software => 20,
        _ => 100,
    };
    let before = device.trim();
    for _ in 0..rounds {
        let mut all = Vec::new();
        let mut is_timed = true;
        for _ in 0..EACH {
            let queue = device.queue(QueueKind::Transfer, "many")?;
            let (line, fence) = (device.timeline("many")?, device.timed_fence("many"));
            queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
            is_timed &= queue.record(&fence).is_ok();
            all.push((queue, line, fence));
        }
        let in_use = device.trim();
        let kept = match device {
            #[cfg(feature = "cuda")]
            syncline::Device::Cuda(_) => in_use.events >= before.events + EACH,
            // A pool has at most 64 queries.
            #[cfg(feature = "vulkan")]
            syncline::Device::Vulkan(_) if is_timed => in_use.query_pools > before.query_pools + 1,
            _ => true,
        };
        check!(kept, "{EACH} in use, and a trim leaves {in_use:?}");
        for (queue, line, fence) in &all {
            line.at(1).wait(patience())?;
            if is_timed {
                fence.wait(patience())?;
                check!(fence.elapsed_since(fence)? == 0, "it took time");
            }
            queue.idle(patience())?;
        }
    }
    let queue = device.queue(QueueKind::Transfer, "last")?;
    queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    queue.idle(patience())?;
    drop(queue);
    // The watching thread may keep an object for a moment.
    let until = Instant::now() + patience();
    loop {
        let left = device.trim();
        let is_as_before = left.events <= before.events
            && left.query_pools <= before.query_pools
            && left.semaphores <= before.semaphores + SEMAPHORES
            && left.deferred_frees <= before.deferred_frees
            && left.memory_blocks <= before.memory_blocks;
        if is_as_before {
            break;
        }
        check!(Instant::now() < until, "{left:?} {before:?}");
        std::thread::yield_now();
    }
    let queue = device.queue(QueueKind::Transfer, "again")?;
    queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    Ok(())
}

/// The device and its inventory are dropped first. Queue, timelines, fence and memory stay usable.
///
/// Then they are dropped, each of them first, second and last, with work in flight. (Not in every
/// order: NVIDIA's driver takes most of a second to open a device.)
fn objects_keep_it(world: &World<Equipped>) -> Verdict {
    const ORDERS: [[usize; 3]; 3] = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];
    one_device_only(world)?;
    for order in &ORDERS {
        let inventory = look();
        let device = open_again(&world.left, &inventory)?;
        let queue = device.queue(QueueKind::Compute, "kept")?;
        let (line, gate) = (device.timeline("line")?, device.timeline("gate")?);
        let fence = device.fence("fence");
        let buffer = Buffer::host_visible(&device, WORDS as u64 * 4)?;
        let fills = filling::<Equipped>(&buffer, 5);
        queue.submit(&[gate.at(1)], fills, &[line.signal_at(1)])?;
        queue.record(&fence)?;
        drop((device, inventory));

        gate.signal(1)?;
        fence.wait(patience())?;
        line.at(1).wait(patience())?;
        filled::<Equipped>(&buffer, 5, "the work of a device without handles")?;
        queue.device().check()?;
        let another = queue.device().timeline("made later")?;
        another.signal(1)?;
        let fills = filling::<Equipped>(&buffer, 6);
        queue.submit(&[another.at(1)], fills, &[line.signal_at(2)])?;
        queue.record(&fence)?;
        let (last, recorded) = (line.at(2).keep(), fence.point()?);
        let mut parts = (
            Some(queue),
            Some((line, gate, another)),
            Some((fence, buffer)),
        );
        for part in order {
            match part {
                0 => drop(parts.0.take()),
                1 => drop(parts.1.take()),
                _ => drop(parts.2.take()),
            }
        }
        last.point().wait(patience())?;
        recorded.point().wait(patience())?;
    }
    world.left.check()?;
    Ok(())
}

/// One queue of each kind. Data goes from one to the next along a timeline. The last one submits
/// first.
fn every_kind(world: &World<Equipped>) -> Verdict {
    for device in [&world.left, &world.right] {
        let families = &device.info().capabilities.queues;
        let queues = several(families.len(), |nth| {
            let kind = families[nth].kind;
            device.queue(kind, kind.name())
        })?;
        let line = device.timeline("line")?;
        let buffers = several(queues.len() + 1, |_| device.buffer(WORDS))?;
        for (nth, queue) in queues.iter().enumerate().rev() {
            let value = nth as u64 + 1;
            let copies = copying::<Equipped>(&buffers[nth], &buffers[nth + 1]);
            queue.submit(&[line.at(value)], copies, &[line.signal_at(value + 1)])?;
        }
        // The last of them fills it, on a queue of its own.
        let Some(last) = families.last() else {
            continue;
        };
        let first = device.queue(last.kind, "first")?;
        first.fill_after(DELAY / 3, &buffers[0], 0xF1, &[line.signal_at(1)])?;
        line.at(queues.len() as u64 + 1).wait(patience())?;
        for (nth, buffer) in buffers.iter().enumerate() {
            let which = format!("buffer {nth} of {families:?} on {}", device.object());
            filled::<Equipped>(buffer, 0xF1, which)?;
        }
        for queue in queues.iter().chain([&first]) {
            queue.idle(patience())?;
        }
    }
    Ok(())
}

/// A closure on a worker thread returns an error, which the signals and the next waits get.
fn host_work_fails(world: &World<Equipped>) -> Verdict {
    let own = world.left_queue("own")?;
    let syncline::Queue::Host(queue) = own.library() else {
        return Stop::skip("only the host runs closures");
    };
    let (line, calls) = (world.timeline("line")?, Arc::new(AtomicUsize::new(0)));
    for simple in [false, true] {
        let (first, second) = (calls.clone(), calls.clone());
        let other = world.timeline("other")?;
        let signals = [other.library().signal_at(1), line.library().signal_at(1)];
        let work = move |recorder: &mut syncline::host::Recorder<'_>| {
            recorder.try_run(move || {
                first.fetch_add(1, Ordering::SeqCst);
                Err(Error::work("no file"))
            });
            if !simple {
                recorder.run(move || {
                    second.fetch_add(1, Ordering::SeqCst);
                });
            }
            Ok(())
        };
        let signals = if simple { &signals[..1] } else { &signals[..] };
        queue.submit(&[], work, signals)?;
        check_error!(other.at(1).wait(patience()), Failed);
        let told = other.at(1).wait(patience());
        let cause = told.err().map(|error| error.root().clone());
        check!(
            matches!(&cause, Some(Error::Work(work)) if work.queue().is_some()),
            "{cause:?}"
        );
    }
    check_error!(line.at(1).wait(patience()), Failed);
    let count = calls.load(Ordering::SeqCst);
    check!(count == 2, "{count} closures ran");
    queue.submit(&[], |_| Ok(()), &[])?;
    own.idle(patience())?;
    Ok(())
}
