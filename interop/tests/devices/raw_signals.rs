//! Signals that an application submits itself on a shared timeline, and binary semaphores.
//!
//! Needs a GPU that Vulkan and CUDA share. `SYNCLINE_REQUIRE_CUDA` makes its absence a failure.
#![cfg(all(feature = "cuda", feature = "vulkan"))]
#![allow(unsafe_code, reason = "submits as an application does")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Buffer, Device, Error, Inventory, Link, ProbeOptions, QueueKind, Timeline};
use syncline::{cuda, vulkan};

const LIMIT: Duration = Duration::from_secs(30);

/// A CUDA device and its link to the same GPU's Vulkan device.
fn shared() -> Option<(cuda::Device, Link)> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let opened = inventory.devices().iter().filter_map(|one| one.open().ok());
    let devices: Vec<Device> = opened.collect();
    let found = devices.iter().find_map(|left| {
        let Device::Cuda(cuda) = left else {
            return None;
        };
        let link = devices
            .iter()
            .filter(|right| matches!(right, Device::Vulkan(_)))
            .find_map(|right| syncline::share(left, right).ok())?;
        Some((cuda.clone(), link))
    });
    assert!(
        found.is_some() || std::env::var_os("SYNCLINE_REQUIRE_CUDA").is_none(),
        "no GPU of both APIs"
    );
    found
}

#[test]
fn a_raw_signal_shows_the_memory_behind_it() {
    let _alone = crate::alone();
    let Some((cuda, link)) = shared() else { return };
    let frames = link.timeline("frames").unwrap();
    let queue = cuda.queue(QueueKind::Compute, "the application's").unwrap();
    let words = cuda.host_buffer(4 << 16).unwrap();
    for value in 1..=500_u64 {
        let filled = words.clone();
        let work = move |r: &mut cuda::Recorder| r.memset_d32(&filled, value as u32);
        queue.submit(&[], work, &[]).unwrap();
        let mut claim = frames.claim(value).unwrap();
        let guard = queue.stream();
        // SAFETY: the claim is of this timeline, the stream is live, and the timeline is kept.
        unsafe { cuda.submit_claimed(&frames, &mut claim, guard.raw()) }.unwrap();
        drop(guard);
        frames.at(value).wait(LIMIT).unwrap();
        let seen = words.read_words().unwrap();
        assert!(
            seen.iter().all(|&word| word == value as u32),
            "old data at {value}"
        );
    }
    queue.idle(LIMIT).unwrap();
}

#[test]
fn raw_signals_keep_the_order_of_the_timeline() {
    let _alone = crate::alone();
    let Some((cuda, link)) = shared() else { return };
    let frames = link.timeline("frames").unwrap();
    let (queue, raw) = (
        cuda.queue(QueueKind::Compute, "queue").unwrap(),
        cuda.queue(QueueKind::Compute, "the application's").unwrap(),
    );
    let mut claim = frames.claim(2).unwrap();
    let stream = raw.stream().raw();
    // SAFETY: the claim is of this timeline, the stream is live, and the timeline is kept.
    let submit = |claim: &mut _| unsafe { cuda.submit_claimed(&frames, claim, stream) };
    submit(&mut claim).unwrap();
    // After a successful call further calls do nothing.
    submit(&mut claim).unwrap();
    queue
        .submit(&[frames.at(2)], |_| Ok(()), &[frames.signal_at(3)])
        .unwrap();
    let mut next = frames.claim(4).unwrap();
    submit(&mut next).unwrap();
    frames.at(4).wait(LIMIT).unwrap();
    assert_eq!(frames.value().unwrap(), 4);
    queue.idle(LIMIT).unwrap();
}

#[test]
fn a_submission_waits_for_another_apis_binary_semaphore() {
    let _alone = crate::alone();
    let Some((cuda, link)) = shared() else { return };
    let Device::Vulkan(vulkan) = link.right() else {
        return;
    };
    let rendered = vulkan.binary_semaphore("rendered").unwrap();
    let imported = cuda.import_binary(rendered.export().unwrap(), "rendered");
    let imported = imported.map_err(|rejected| rejected.error).unwrap();
    let memory = link.buffer(4 << 20).unwrap();
    let (Buffer::Cuda(source), Buffer::Vulkan(target)) = (memory.left(), memory.right()) else {
        return;
    };
    let (writer, reader) = (
        vulkan.queue(QueueKind::Graphics, "writer").unwrap(),
        cuda.queue(QueueKind::Compute, "reader").unwrap(),
    );
    let seen = cuda.buffer(4 << 20).unwrap();
    for value in 1..=20_u32 {
        let (target, rendered) = (target.clone(), rendered.clone());
        let write = move |r: &mut vulkan::Recorder| {
            for word in [value + 1000, value + 2000, value] {
                r.fill_buffer(&target, word)?;
            }
            // SAFETY: each signal is consumed before the next.
            unsafe { r.signal_semaphore(&rendered) }
        };
        writer.submit(&[], write, &[]).unwrap();
        let (source, to, imported) = (source.clone(), seen.clone(), imported.clone());
        let read = move |r: &mut cuda::Recorder| {
            // SAFETY: the signal was submitted above, and no other wait consumes it.
            unsafe { r.wait_semaphore(&imported) }?;
            r.copy(&source, &to)
        };
        let sent = reader.submit(&[], read, &[]).unwrap();
        sent.end().wait(LIMIT).unwrap();
        let words = seen.read_words().unwrap();
        assert!(
            words.iter().all(|&word| word == value),
            "old data at {value}"
        );
    }
    writer.idle(LIMIT).unwrap();
    reader.idle(LIMIT).unwrap();
}

#[test]
fn a_timeline_of_an_import_alone_is_refused() {
    let _alone = crate::alone();
    let Some((cuda, link)) = shared() else { return };
    let Device::Vulkan(vulkan) = link.right() else {
        return;
    };
    let (_home, handle) = vulkan.export_timeline(0).unwrap();
    // SAFETY: nothing signals the imported semaphore.
    let import = unsafe { cuda.import_timeline(handle) }.unwrap();
    let refused = Timeline::new("blind", 0, |_| Ok([import].into_iter().collect()));
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}
