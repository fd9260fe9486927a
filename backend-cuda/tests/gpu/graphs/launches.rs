//! Fences that every launch of a graph records or waits for.
#![allow(unsafe_code, reason = "captures streams, as an application does")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, Fence, QueueKind, host};
use syncline_cuda::{Recorder, sys};

use super::setup::{
    Graph, ReadNow, Recording, ReleasesOnDrop, SHORT, Setup, Stall, THREAD_LOCAL, WORDS, copy,
    launch, ok, set,
};
use crate::common::{LIMIT, open, trials};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        each_launch_records_an_external_fence,
        each_launch_waits_for_an_external_fence,
        a_held_record_of_an_external_fence_is_not_complete,
        graphs_keep_what_they_need_and_no_longer,
        waits_for_a_graph_fence_do_not_wait_for_each_other,
        a_timed_fence_stays_timed_and_one_never_recorded_stays_so,
        another_devices_fence_is_refused,
        each_launch_copies_between_host_buffers,
    ]
}

fn each_launch_records_an_external_fence() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, other) = (setup.queue("captured"), setup.queue("other"));
    let host = host::Device::new();
    let worker = host.queue(QueueKind::Compute, "worker").unwrap();
    let (fence, words) = (setup.device.fence("through"), setup.words());
    let unsupported = queue.record_external(&fence);
    assert!(
        matches!(unsupported, Err(Error::Unsupported { .. })),
        "{unsupported:?}"
    );
    let stalls = [Stall::holding(), Stall::holding()];
    let graphs = stalls.each_ref().map(|stall| {
        let recording = Recording::begin(&queue, THREAD_LOCAL);
        stall.put_into(recording.stream);
        set(recording.stream, &words, 5);
        queue.record_external(&fence).unwrap();
        // It has no place in the graph, and so no edges.
        let refused = queue.record(&fence);
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
        let refused = queue.wait(&fence);
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
        assert!(fence.is_complete().unwrap(), "no launch has recorded it");
        Arc::new(recording.end())
    });
    fence.wait(Duration::ZERO).unwrap();
    for _ in 0..3 {
        stalls.iter().for_each(ReleasesOnDrop::hold);
        queue.submit(&[], launch(&graphs[0]), &[]).unwrap();
        assert!(!fence.is_complete().unwrap());
        let early = fence.point().unwrap();
        let waits = [other.clone(), setup.queue("another")];
        for waiting in &waits {
            waiting.wait(&fence).unwrap();
        }
        worker.wait(&fence).unwrap();
        assert!(fence.wait(SHORT).unwrap_err().is_timeout());
        assert!(!waits[0].position().is_reached().unwrap());
        // A second launch records it again. Waits that were submitted before keep their record.
        queue.submit(&[], launch(&graphs[1]), &[]).unwrap();
        stalls[0].release();
        early.point().wait(LIMIT).unwrap();
        for waiting in &waits {
            waiting.idle(LIMIT).unwrap();
        }
        worker.idle(LIMIT).unwrap();
        assert_eq!(words.read_words_now()[0], 5);
        assert!(!fence.is_complete().unwrap());
        stalls[1].release();
        fence.wait(LIMIT).unwrap();
        assert!(fence.is_complete().unwrap());
        queue.idle(LIMIT).unwrap();
    }
}

fn each_launch_waits_for_an_external_fence() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, producer) = (setup.queue("captured"), setup.queue("producer"));
    let fence = setup.device.fence("produced");
    let (from, to) = (setup.memory(), setup.memory());
    let stall = Stall::holding();
    // Recorded before any graph uses the fence. A launch waits for that record.
    let record = |value: u32| {
        stall.hold();
        let filled = from.clone();
        let latch = ReleasesOnDrop(stall.0.clone());
        let work = move |r: &mut Recorder| {
            latch.put_into(r.stream());
            std::mem::forget(latch);
            r.memset_d32(&filled, value)
        };
        producer.submit(&[], work, &[]).unwrap();
        producer.record(&fence).unwrap();
        assert!(!fence.is_complete().unwrap());
    };
    record(10);
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    queue.wait_external(&fence).unwrap();
    copy(recording.stream, &from, &to);
    let graph = Arc::new(recording.end());
    for value in [10, 20, 30] {
        if value > 10 {
            record(value);
        }
        let done = setup.device.timeline("done").unwrap();
        queue
            .submit(&[], launch(&graph), &[done.signal_at(1)])
            .unwrap();
        assert!(done.at(1).wait(SHORT).unwrap_err().is_timeout());
        stall.release();
        done.at(1).wait(LIMIT).unwrap();
        assert_eq!(to.read_words().unwrap()[0], value);
        fence.wait(LIMIT).unwrap();
        // Launched again without a new record. There is nothing to wait for.
        queue.submit(&[], launch(&graph), &[]).unwrap();
        queue.idle(LIMIT).unwrap();
    }
    producer.idle(LIMIT).unwrap();
}

fn a_held_record_of_an_external_fence_is_not_complete() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, producer) = (setup.queue("captured"), setup.queue("producer"));
    let (fence, gate) = (
        setup.device.fence("produced"),
        setup.device.timeline("gate").unwrap(),
    );
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    queue.wait_external(&fence).unwrap();
    let graph = Arc::new(recording.end());
    producer.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
    producer.record(&fence).unwrap();
    // The record is held, so the driver's event was never recorded.
    assert!(!fence.is_complete().unwrap());
    let point = fence.point().unwrap();
    let sent = queue.submit(&[point.point()], launch(&graph), &[]).unwrap();
    assert!(sent.is_held());
    let ready = queue.position().keep();
    assert!(ready.point().wait(SHORT).unwrap_err().is_timeout());
    gate.signal(1).unwrap();
    ready.point().wait(LIMIT).unwrap();
    fence.wait(LIMIT).unwrap();
    queue.idle(LIMIT).unwrap();
}

fn graphs_keep_what_they_need_and_no_longer() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    for _ in 0..500 {
        let fence = setup.device.fence("short-lived");
        let recording = Recording::begin(&queue, THREAD_LOCAL);
        queue.wait_external(&fence).unwrap();
        queue.record_external(&fence).unwrap();
        let graph = Arc::new(recording.end());
        drop(fence);
        queue.submit(&[], launch(&graph), &[]).unwrap();
    }
    queue.idle(LIMIT).unwrap();
    // A graph that outlives its device.
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    let fence = setup.device.fence("outlived");
    queue.record_external(&fence).unwrap();
    let graph = recording.end();
    drop((fence, queue));
    let Setup { device, _alone } = setup;
    drop(device);
    drop(graph);
}

fn waits_for_a_graph_fence_do_not_wait_for_each_other() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, other) = (setup.queue("captured"), setup.queue("other"));
    let fence = setup.device.fence("again and again");
    let stall = Stall::holding();
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    stall.put_into(recording.stream);
    queue.record_external(&fence).unwrap();
    let graph = Arc::new(recording.end());
    for _ in 0..3 {
        stall.hold();
        queue.submit(&[], launch(&graph), &[]).unwrap();
        let early = fence.point().unwrap();
        assert!(!early.point().is_reached().unwrap());
        // A record on an idle queue is complete at once, although the launch has not finished.
        other.record(&fence).unwrap();
        other.idle(LIMIT).unwrap();
        let (slow, latch) = (setup.queue("slow"), setup.device.timeline("latch").unwrap());
        slow.submit(&[latch.at(1)], |_| Ok(()), &[]).unwrap();
        slow.record(&fence).unwrap();
        let late = fence.point().unwrap();
        assert!(!late.point().is_reached().unwrap());
        latch.signal(1).unwrap();
        late.point().wait(LIMIT).unwrap();
        assert!(!early.point().is_reached().unwrap());
        stall.release();
        early.point().wait(LIMIT).unwrap();
        queue.idle(LIMIT).unwrap();
        slow.idle(LIMIT).unwrap();
    }
}

fn a_timed_fence_stays_timed_and_one_never_recorded_stays_so() {
    let setup = Setup::new();
    setup.make_current();
    let (queue, other) = (setup.queue("captured"), setup.queue("other"));
    let (timed, never) = (
        setup.device.timed_fence("timed"),
        setup.device.fence("never"),
    );
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    for refused in [queue.record_external(&timed), queue.wait_external(&timed)] {
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
    queue.wait_external(&never).unwrap();
    assert!(!never.is_recorded());
    // F1, as before any graph used the fence.
    queue.wait(&never).unwrap();
    drop(recording.end());
    other.record(&timed).unwrap();
    timed.wait(LIMIT).unwrap();
    assert_eq!(timed.elapsed_since(&timed).unwrap(), 0);
    other.record(&never).unwrap();
    assert!(never.is_recorded());
    never.wait(LIMIT).unwrap();
}

fn another_devices_fence_is_refused() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let other = open().unwrap();
    let fences: [Fence; 2] = [other.fence("another's"), {
        let host = host::Device::new();
        host.import_descriptor(None, "done").unwrap()
    }];
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    for result in [
        queue.record(&fences[0]),
        queue.record_external(&fences[0]),
        queue.wait_external(&fences[0]),
    ] {
        assert!(
            matches!(result, Err(Error::WrongDevice { .. })),
            "{result:?}"
        );
    }
    for result in [
        queue.record(&fences[1]),
        queue.record_external(&fences[1]),
        queue.wait_external(&fences[1]),
    ] {
        assert!(
            matches!(result, Err(Error::ForeignFence { .. })),
            "{result:?}"
        );
    }
    drop(recording.end());
}

/// The submission that captures the copy has long finished.
fn each_launch_copies_between_host_buffers() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let (from, to) = (setup.words(), setup.words());
    let (tell, told) = std::sync::mpsc::channel();
    let copied = (from.clone(), to.clone());
    let capture = move |recorder: &mut Recorder<'_>| {
        let mut graph = null_mut();
        // SAFETY: a live stream. The call begins a capture, which this thread ends.
        ok(unsafe { sys::cuStreamBeginCapture_v2(recorder.stream(), THREAD_LOCAL) });
        recorder.copy(&copied.0, &copied.1)?;
        // SAFETY: as above. The call writes one handle.
        ok(unsafe { sys::cuStreamEndCapture(recorder.stream(), &raw mut graph) });
        let _ = tell.send(Graph::of(graph));
        Ok(())
    };
    queue.submit(&[], capture, &[]).unwrap();
    queue.idle(LIMIT).unwrap();
    let graph = Arc::new(told.recv().unwrap());
    for word in 1..=3 {
        let filled = from.clone();
        let fill = move |recorder: &mut Recorder<'_>| recorder.memset_d32(&filled, word);
        queue.submit(&[], fill, &[]).unwrap();
        queue.submit(&[], launch(&graph), &[]).unwrap();
        queue.idle(LIMIT).unwrap();
        assert_eq!(to.read_words_now(), vec![word; WORDS as usize]);
    }
}
