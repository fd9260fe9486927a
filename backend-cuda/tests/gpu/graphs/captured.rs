//! Fences, waits and timelines within a capture.
#![allow(unsafe_code, reason = "captures streams, as an application does")]

use std::sync::Arc;
use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind, host};
use syncline_cuda::sys;

use super::setup::{
    GLOBAL, RELAXED, Recording, ReleasesOnDrop, SHORT, Setup, Stall, THREAD_LOCAL, WORDS, copy,
    launch, ok, set,
};
use crate::common::{LIMIT, trials};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        a_fence_of_a_capture_has_no_position,
        a_wait_in_the_capture_is_an_edge,
        timelines_have_no_place_in_a_capture,
        another_captures_fence_is_refused_and_harms_neither,
        an_invalidated_capture_is_a_typed_error,
        an_event_that_cannot_be_queried_fails_its_own_timeline,
    ]
}

fn is_captured<T: std::fmt::Debug>(result: &syncline_core::Result<T>) -> bool {
    matches!(result, Err(Error::Captured { fence, .. }) if fence.label() == "place")
}

fn a_fence_of_a_capture_has_no_position() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let words = setup.words();
    let fence = setup.device.fence("place");
    let (elsewhere, host) = (setup.queue("elsewhere"), host::Device::new());
    let worker = host.queue(QueueKind::Compute, "worker").unwrap();
    for mode in [THREAD_LOCAL, GLOBAL] {
        let recording = Recording::begin(&queue, mode);
        set(recording.stream, &words, 1);
        queue.record(&fence).unwrap();
        for _ in 0..2 {
            let asked = fence.is_complete();
            assert!(is_captured(&asked), "{asked:?}");
            let waited = fence.wait(Duration::ZERO);
            assert!(is_captured(&waited), "{waited:?}");
            let point = fence.point();
            assert!(is_captured(&point), "{point:?}");
            let queued = worker.wait(&fence);
            assert!(is_captured(&queued), "{queued:?}");
            let elapsed = setup.device.timed_fence("place");
            queue.record(&elapsed).unwrap();
            let elapsed = elapsed.elapsed_since(&elapsed);
            assert!(is_captured(&elapsed), "{elapsed:?}");
        }
        // Other queues work meanwhile, and are polled.
        elsewhere.submit(&[], |_| Ok(()), &[]).unwrap();
        elsewhere.idle(LIMIT).unwrap();
        let graph = Arc::new(recording.end());
        // After the capture the fence has no position either, and no place in a capture.
        assert!(is_captured(&fence.is_complete()));
        let ended = elsewhere.wait(&fence);
        assert!(
            matches!(ended, Err(Error::CaptureEnded { .. })),
            "{ended:?}"
        );
        queue.submit(&[], launch(&graph), &[]).unwrap();
        queue.record(&fence).unwrap();
        fence.wait(LIMIT).unwrap();
        elsewhere.wait(&fence).unwrap();
        elsewhere.idle(LIMIT).unwrap();
    }
}

fn a_wait_in_the_capture_is_an_edge() {
    let setup = Setup::new();
    setup.make_current();
    let (first, second) = (setup.queue("first"), setup.queue("second"));
    let (made, taken) = (setup.memory(), setup.memory());
    let (fork, join) = (setup.device.fence("fork"), setup.device.fence("join"));
    let stall = Stall::holding();
    stall.release();
    let recording = Recording::begin(&first, THREAD_LOCAL);
    stall.put_into(recording.stream);
    set(recording.stream, &made, 7);
    first.record(&fork).unwrap();
    second.wait(&fork).unwrap();
    copy(second.stream().raw(), &made, &taken);
    second.record(&join).unwrap();
    // Recording again keeps the existing edge.
    first.record(&fork).unwrap();
    first.wait(&join).unwrap();
    let graph = Arc::new(recording.end());
    for round in 0..3 {
        for buffer in [&made, &taken] {
            buffer.write_words(&vec![round; WORDS as usize]).unwrap();
        }
        stall.hold();
        let done = setup.device.timeline("done").unwrap();
        first
            .submit(&[], launch(&graph), &[done.signal_at(1)])
            .unwrap();
        // Without the edge the copy would have finished by now.
        assert!(done.at(1).wait(SHORT).unwrap_err().is_timeout());
        assert_eq!(taken.read_words().unwrap()[0], round);
        stall.release();
        done.at(1).wait(LIMIT).unwrap();
        assert!(taken.read_words().unwrap().iter().all(|&word| word == 7));
    }
    // The second stream is no longer part of the capture.
    second.submit(&[], |_| Ok(()), &[]).unwrap();
    second.idle(LIMIT).unwrap();
    first.idle(LIMIT).unwrap();
}

fn timelines_have_no_place_in_a_capture() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let timeline = setup.device.timeline("timeline").unwrap();
    let (outside, never) = (setup.device.fence("outside"), setup.device.fence("never"));
    let elsewhere = setup.queue("elsewhere");
    elsewhere.record(&outside).unwrap();
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    let capturing = |result: syncline_core::Result<()>| {
        assert!(matches!(result, Err(Error::Capturing { .. })), "{result:?}");
        println!("{}", result.unwrap_err());
    };
    let submit = |waits: &[_], signals: &[_]| queue.submit(waits, |_| Ok(()), signals).map(|_| ());
    capturing(submit(&[], &[]));
    capturing(submit(&[timeline.at(1)], &[]));
    capturing(submit(&[], &[timeline.signal_at(1)]));
    capturing(queue.wait(&outside));
    let mut claim = timeline.claim(1).unwrap();
    // SAFETY: the claim is of this timeline, and the stream is live.
    capturing(unsafe {
        setup
            .device
            .submit_claimed(&timeline, &mut claim, recording.stream)
    });
    drop(claim);
    // A wait for a fence that was never recorded adds nothing.
    queue.wait(&never).unwrap();
    assert_eq!(queue.position().value(), 0);
    drop(recording.end());
    queue
        .submit(&[], |_| Ok(()), &[timeline.signal_at(1)])
        .unwrap();
    timeline.at(1).wait(LIMIT).unwrap();
}

fn another_captures_fence_is_refused_and_harms_neither() {
    let setup = Setup::new();
    setup.make_current();
    let (first, second) = (setup.queue("first"), setup.queue("second"));
    let place = setup.device.fence("place");
    // Relaxed mode, because one capture ends and becomes a graph while the other goes on.
    let one = Recording::begin(&first, RELAXED);
    let two = Recording::begin(&second, RELAXED);
    first.record(&place).unwrap();
    let refused = second.wait(&place);
    assert!(
        matches!(refused, Err(Error::Capturing { .. })),
        "{refused:?}"
    );
    drop(two.end());
    // A later capture of the same stream is a different one.
    drop(one.end());
    let again = Recording::begin(&first, THREAD_LOCAL);
    let ended = first.wait(&place);
    assert!(
        matches!(ended, Err(Error::CaptureEnded { .. })),
        "{ended:?}"
    );
    drop(again.end());
}

fn an_invalidated_capture_is_a_typed_error() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let place = setup.device.fence("place");
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    queue.record(&place).unwrap();
    // A call that an application must not make here. It invalidates the capture.
    // SAFETY: a live stream.
    let broken = unsafe { sys::cuStreamSynchronize(recording.stream) };
    assert_ne!(broken, sys::CUresult::CUDA_SUCCESS);
    let fence = setup.device.fence("too late");
    for refused in [
        queue.record(&fence),
        queue.wait(&fence),
        queue.record_external(&fence),
        queue.wait_external(&fence),
    ] {
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
    }
    let joined = setup.queue("joins").wait(&place);
    assert!(
        matches!(joined, Err(Error::CaptureEnded { .. })),
        "{joined:?}"
    );
    assert!(recording.try_end().is_err());
    queue.record(&fence).unwrap();
    fence.wait(LIMIT).unwrap();
}

fn an_event_that_cannot_be_queried_fails_its_own_timeline() {
    let setup = Setup::new();
    setup.make_current();
    let (left, right) = (setup.queue("left"), setup.queue("right"));
    let (broken, whole) = (
        setup.device.timeline("broken").unwrap(),
        setup.device.timeline("whole").unwrap(),
    );
    let stalls = [Stall::holding(), Stall::holding()];
    for (queue, timeline, stall) in [(&left, &broken, &stalls[0]), (&right, &whole, &stalls[1])] {
        stall.put_into(queue.stream().raw());
        queue
            .submit(&[], |_| Ok(()), &[timeline.signal_at(1)])
            .unwrap();
    }
    let event = setup.device.event(broken.at(1)).unwrap().unwrap();
    std::thread::scope(|scope| {
        let waits = [&broken, &whole].map(|line| scope.spawn(|| line.at(1).wait(LIMIT)));
        std::thread::sleep(SHORT);
        // An application must not do this. An event recorded into a capture cannot be queried.
        let captured = setup.queue("captured");
        let recording = Recording::begin(&captured, RELAXED);
        // SAFETY: a live event and stream.
        ok(unsafe { sys::cuEventRecord(event.raw(), recording.stream) });
        let [failed, fine] = waits;
        let error = failed.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Failed { .. }), "{error:?}");
        let _ = recording.try_end();
        stalls.iter().for_each(ReleasesOnDrop::release);
        fine.join().unwrap().unwrap();
    });
}
