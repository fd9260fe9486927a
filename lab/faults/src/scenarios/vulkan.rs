//! Scenarios of Vulkan, alone and with a second device.
#![allow(unsafe_code, reason = "uses raw semaphores")]

use syncline::backend::{Device as _, Queue as _};
use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::vulkan::ash::vk;
use syncline::vulkan::{Device, Instance};
use syncline::{
    BinarySemaphore, Error, QueueKind, Recorder, Stopwatch, Timeline, handle::HandleKind, host,
    share,
};

use super::{PATIENCE, Scenario, Stop, Verdict, cuda, events, expect};
use crate::one_run::{DROPPING, step};

pub(super) static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "vulkan.submit",
        run: submit,
    },
    Scenario {
        name: "vulkan.waits",
        run: waits,
    },
    Scenario {
        name: "vulkan.frames",
        run: frames,
    },
    Scenario {
        name: "vulkan.notices",
        run: notices,
    },
    Scenario {
        name: "vulkan.fences",
        run: fences,
    },
    Scenario {
        name: "vulkan.clock",
        run: clock,
    },
    Scenario {
        name: "vulkan.memory",
        run: memory,
    },
    Scenario {
        name: "vulkan.images",
        run: images,
    },
    Scenario {
        name: "vulkan.host",
        run: with_host,
    },
    Scenario {
        name: "vulkan.vulkan",
        run: two_devices,
    },
    Scenario {
        name: "cuda.vulkan",
        run: with_cuda,
    },
    Scenario {
        name: "cuda.binary",
        run: binary,
    },
];

/// Usage of buffers that are filled and copied.
pub(super) const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

pub(super) fn open() -> Verdict<Device> {
    step("opening Vulkan");
    let instance = Instance::load()?;
    let candidates = instance.devices()?;
    let usable = candidates.iter().find(|found| found.rejected.is_none());
    let found = usable
        .or(candidates.first())
        .ok_or_else(|| Error::unavailable(syncline::info::BackendKind::Vulkan, "no device"))?;
    Ok(found.open()?)
}

/// The words of a buffer that the host sees.
pub(super) fn words(buffer: &syncline::vulkan::Buffer) -> Vec<u32> {
    let words = buffer.as_words().unwrap_or_default();
    let load =
        |word: &std::sync::atomic::AtomicU32| word.load(std::sync::atomic::Ordering::Relaxed);
    words.iter().map(load).collect()
}

fn submit() -> Verdict {
    let device = open()?;
    step("set-up");
    let line = device.timeline("line")?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let buffer = device.host_buffer(64, USAGE)?;
    step("submitting");
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| recorder.fill_buffer(&to, 7),
        &[line.signal_at(1)],
    )?;
    step("waiting");
    line.at(1).wait(PATIENCE)?;
    expect(words(&buffer) == [7; 16], "the fill did not write 7")?;
    queue.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    step("idle");
    queue.idle(PATIENCE)?;
    expect(line.value()? == 2, "the timeline is not at 2")?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

fn waits() -> Verdict {
    let device = open()?;
    step("set-up");
    let (first, second) = (device.timeline("first")?, device.timeline("second")?);
    let gate = device.timeline("gate")?;
    let queues = [
        device.queue(QueueKind::Compute, "a")?,
        device.queue(QueueKind::Transfer, "b")?,
    ];
    let buffer = device.host_buffer(64, USAGE)?;
    step("a wait before its signal");
    let to = buffer.clone();
    queues[1].submit(
        &[first.at(1), gate.at(1)],
        move |recorder| recorder.fill_buffer(&to, 2),
        &[second.signal_at(1)],
    )?;
    let to = buffer.clone();
    queues[0].submit(
        &[],
        move |recorder| recorder.fill_buffer(&to, 1),
        &[first.signal_at(1)],
    )?;
    step("a signal of the host");
    first.at(1).wait(PATIENCE)?;
    gate.signal(1)?;
    step("work of two queues");
    for value in 2..6 {
        let queue = &queues[value as usize % 2];
        queue.submit(
            &[first.at(value - 1), second.at(value - 1)],
            |_| Ok(()),
            &[first.signal_at(value), second.signal_at(value)],
        )?;
    }
    step("waits of the host");
    syncline::wait_all(&[first.at(5), second.at(5)], PATIENCE)?;
    syncline::wait_any(&[first.at(5), gate.at(1)], PATIENCE)?;
    expect(words(&buffer) == [2; 16], "the second fill came first")?;
    for queue in &queues {
        queue.idle(PATIENCE)?;
    }
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Another library signals a semaphore, which is adopted here.
fn frames() -> Verdict {
    let device = open()?;
    step("set-up");
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let mut kind =
        vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    let own = |code: vk::Result| Stop::Own(code.to_string());
    // SAFETY: the device has timeline semaphores. The timeline destroys this one.
    let (raw, (port, value)) = unsafe {
        let raw = device.raw().create_semaphore(&info, None).map_err(own)?;
        (raw, device.adopt_semaphore(raw, true)?)
    };
    let mut port = Some(port);
    let line = Timeline::new("frame", value, |_| Ok(port.take().into_iter().collect()))?;
    step("a wait before the other library's signal");
    let held = queue.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    step("the other library's signal");
    let info = vk::SemaphoreSignalInfo::default().semaphore(raw).value(1);
    // SAFETY: a live timeline semaphore at 0, whose next signal waits for this one.
    unsafe { device.raw().signal_semaphore(&info) }.map_err(own)?;
    line.signalled_by_others(1)?;
    held.wait_submitted(PATIENCE)?;
    step("waiting");
    line.at(2).wait(PATIENCE)?;
    step("a signal of the host");
    line.signal(3)?;
    expect(line.value()? == 3, "the timeline is not at 3")?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

fn notices() -> Verdict {
    let device = open()?;
    step("set-up");
    let (line, gate) = (device.timeline("line")?, device.timeline("gate")?);
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let notice = events::EventFd::new()?;
    step("submitting");
    let kept = line.at(2).notify(notice.duplicate()?)?;
    queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(2)])?;
    gate.signal(1)?;
    step("an eventfd");
    notice.wait(PATIENCE, &line.at(2))?;
    drop(kept);
    line.at(2).wait(PATIENCE)?;
    step("a future");
    queue.submit(&[], |_| Ok(()), &[line.signal_at(3)])?;
    events::block_on(line.at(3), PATIENCE)?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

fn fences() -> Verdict {
    let device = open()?;
    step("set-up");
    let (first, second) = (
        device.queue(QueueKind::Compute, "a")?,
        device.queue(QueueKind::Compute, "b")?,
    );
    let buffer = device.host_buffer(64, USAGE)?;
    let (plain, start, stop) = (
        device.fence("plain"),
        device.timed_fence("start"),
        device.timed_fence("stop"),
    );
    step("recording");
    first.record(&start)?;
    let to = buffer.clone();
    first.submit(&[], move |recorder| recorder.fill_buffer(&to, 3), &[])?;
    first.record(&stop)?;
    first.record(&plain)?;
    second.wait(&plain)?;
    second.wait(&stop)?;
    let to = buffer.clone();
    second.submit(&[], move |recorder| recorder.fill_buffer(&to, 4), &[])?;
    step("waiting");
    second.idle(PATIENCE)?;
    stop.wait(PATIENCE)?;
    plain.wait(PATIENCE)?;
    expect(plain.is_complete()?, "a fence is not complete")?;
    expect(stop.elapsed_since(&start)? >= 0, "time goes backwards")?;
    expect(words(&buffer) == [4; 16], "the second fill came first")?;
    first.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

fn clock() -> Verdict {
    let device = open()?;
    step("making the clock");
    let clock = device.clock()?;
    step("sampling the clock");
    clock.sample()?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let watch = Stopwatch::new(&device, "watch")?;
    let line = device.clocked_timeline("line")?;
    step("recording times");
    watch.start(&queue)?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    watch.stop(&queue)?;
    step("waiting");
    watch.wait(PATIENCE)?;
    line.at(1).wait(PATIENCE)?;
    line.at(1).time()?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

fn memory() -> Verdict {
    let device = open()?;
    step("set-up");
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let (own, seen) = (
        device.device_buffer(64, USAGE)?,
        device.host_buffer(64, USAGE)?,
    );
    step("submitting");
    let (from, to) = (own.clone(), seen.clone());
    queue.submit(
        &[],
        move |recorder| {
            recorder.fill_buffer(&from, 8)?;
            recorder.order()?;
            recorder.copy_buffer(&from, &to)
        },
        &[],
    )?;
    step("waiting");
    queue.idle(PATIENCE)?;
    expect(words(&seen) == [8; 16], "the copy did not write 8")?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// An image that two devices share, written by one and read by the other.
fn images() -> Verdict {
    let (left, right) = (open()?, open()?);
    let info = ImageInfo::d2(Format::Rgba8Unorm, 4, 4, ImageUsage::SAMPLED);
    step("sharing");
    let (image, handle) = left.export_image(&info)?;
    let imported = right.import_image(handle, &info)?;
    let (from, to) = (left.host_buffer(64, USAGE)?, right.host_buffer(64, USAGE)?);
    let (writes, reads) = (
        left.queue(QueueKind::Compute, "writes")?,
        right.queue(QueueKind::Compute, "reads")?,
    );
    step("submitting");
    writes.submit(
        &[],
        move |recorder| {
            recorder.fill_buffer(&from, 9)?;
            recorder.copy_buffer_to_image(&from, &image, 0)
        },
        &[],
    )?;
    step("waiting");
    writes.idle(PATIENCE)?;
    let target = to.clone();
    reads.submit(
        &[],
        move |recorder| recorder.copy_image_to_buffer(&imported, 0, &target),
        &[],
    )?;
    reads.idle(PATIENCE)?;
    expect(words(&to) == [9; 16], "the importer reads other texels")?;
    left.check()?;
    right.check()?;
    step(DROPPING);
    Ok(())
}

/// A timeline of Vulkan that a queue of the host waits for and signals, through the engine.
fn with_host() -> Verdict {
    let device = open()?;
    let threads = host::Device::new();
    step("set-up");
    let line = device.timeline("line")?;
    let own = threads.timeline("own")?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let worker = threads.queue(QueueKind::Compute, "worker")?;
    step("submitting");
    worker.submit(
        &[line.at(1)],
        |_| Ok(()),
        &[line.signal_at(2), own.signal_at(1)],
    )?;
    queue.submit(
        &[line.at(2), own.at(1)],
        |_| Ok(()),
        &[line.signal_at(3), own.signal_at(2)],
    )?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(4)])?;
    step("a signal of the host");
    line.signal(1)?;
    step("waiting");
    syncline::wait_all(&[line.at(4), own.at(2)], PATIENCE)?;
    queue.idle(PATIENCE)?;
    worker.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// What two devices of one GPU share: a timeline and memory.
fn shared(left: &syncline::Device, right: &syncline::Device) -> Verdict {
    step("sharing");
    let link = share(left, right)?;
    let line = link.timeline("line")?;
    let buffer = link.buffer(64)?;
    let (producer, consumer) = (
        left.queue(QueueKind::Compute, "producer")?,
        right.queue(QueueKind::Compute, "consumer")?,
    );
    step("submitting");
    for frame in 0..2 {
        consumer.submit(
            &[line.at(2 * frame + 1)],
            |_| Ok(()),
            &[line.signal_at(2 * frame + 2)],
        )?;
        producer.submit(
            &[line.at(2 * frame)],
            |_| Ok(()),
            &[line.signal_at(2 * frame + 1)],
        )?;
    }
    step("a signal of the host");
    line.at(4).wait(PATIENCE)?;
    line.signal(5)?;
    consumer.submit(&[line.at(5)], |_| Ok(()), &[line.signal_at(6)])?;
    step("waiting");
    line.at(6).wait(PATIENCE)?;
    producer.idle(PATIENCE)?;
    consumer.idle(PATIENCE)?;
    expect(!buffer.is_relayed(), "the memory is not shared")?;
    left.check()?;
    right.check()?;
    step(DROPPING);
    Ok(())
}

fn two_devices() -> Verdict {
    let (left, right) = (open()?, open()?);
    step("a binary semaphore");
    let own = left.binary_semaphore("own")?;
    let imported = right.import_binary(own.export()?, "imported")?;
    drop((own, imported));
    shared(&left.into(), &right.into())
}

fn with_cuda() -> Verdict {
    let (left, right) = (cuda::open()?, open()?);
    shared(&left.into(), &right.into())
}

/// A binary semaphore from Vulkan to CUDA.
fn binary() -> Verdict {
    let (cuda, vulkan) = (
        syncline::Device::from(cuda::open()?),
        syncline::Device::from(open()?),
    );
    step("sharing");
    let own = vulkan.exportable_binary("binary", HandleKind::BinaryOpaqueFd)?;
    let imported = cuda.import_binary(own.export()?, "imported")?;
    let back = vulkan.exportable_binary("back", HandleKind::BinaryOpaqueFd)?;
    let backwards = cuda.import_binary(back.export()?, "backwards")?;
    let temporary = vulkan.binary_semaphore("temporary")?;
    let (first, second) = (
        vulkan.queue(QueueKind::Compute, "first")?,
        cuda.queue(QueueKind::Compute, "second")?,
    );
    let last = vulkan.queue(QueueKind::Compute, "last")?;
    step("submitting");
    let signals = |semaphore: BinarySemaphore| {
        move |recorder: &mut Recorder<'_>| {
            // SAFETY: it is unsignalled, and each signal has one wait.
            unsafe { recorder.signal_semaphore(&semaphore) }
        }
    };
    let waits = |semaphore: BinarySemaphore| {
        move |recorder: &mut Recorder<'_>| {
            // SAFETY: its signal was submitted before.
            unsafe { recorder.wait_semaphore(&semaphore) }
        }
    };
    let sent = first.submit(&[], signals(own), &[])?;
    sent.wait_submitted(PATIENCE)?;
    let sent = second.submit(&[], waits(imported), &[])?;
    sent.wait_submitted(PATIENCE)?;
    // Nothing releases a wait for a semaphore that the application itself has shared (E3). So the
    // signal ends first.
    let sent = second.submit(&[], signals(backwards), &[])?;
    sent.end().wait(PATIENCE)?;
    step("a temporary import");
    temporary.import_temporary(back.export()?)?;
    let sent = last.submit(&[], waits(temporary), &[])?;
    sent.wait_submitted(PATIENCE)?;
    step("waiting");
    for queue in [&first, &second, &last] {
        queue.idle(PATIENCE)?;
    }
    vulkan.check()?;
    cuda.check()?;
    step(DROPPING);
    Ok(())
}
