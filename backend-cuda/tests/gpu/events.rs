//! Events behind timelines and fences are used again, unless the application holds them.
#![allow(unsafe_code, reason = "calls the driver as an application does")]

use syncline_core::Error;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_cuda::sys;

use crate::common::{LIMIT, trials};
use crate::setup::{gpu, launch};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        an_event_that_the_application_holds_is_not_used_again,
        a_timeline_without_queries_stays_small,
        fences_are_recorded_again_and_timed,
        a_record_does_not_move_earlier_waits,
    ]
}

/// Queues reuse events. An event that an application holds keeps its point, even if its queue is
/// dropped.
fn an_event_that_the_application_holds_is_not_used_again() {
    let gpu = gpu();
    let queue = gpu.queue("signaller");
    let timeline = gpu.device.timeline("held").unwrap();
    let signal = |values: std::ops::Range<u64>| {
        for value in values {
            let signals = [timeline.signal_at(value)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
        }
    };
    let stall = gpu.stalled(&queue);
    signal(1..33);
    let held = [1, 16, 32].map(|value| gpu.device.event(timeline.at(value)).unwrap().unwrap());
    let status = |event: sys::CUevent| {
        // SAFETY: a live event.
        unsafe { sys::cuEventQuery(event) }
    };
    for event in &held {
        assert_eq!(status(event.raw()), sys::CUresult::CUDA_ERROR_NOT_READY);
    }
    stall.release();
    // All events leave the ring, so that they can be used again.
    queue.idle(LIMIT).unwrap();
    assert_eq!(timeline.value().unwrap(), 32);
    let stall = gpu.stalled(&queue);
    signal(33..300);
    for event in &held {
        assert_eq!(status(event.raw()), sys::CUresult::CUDA_SUCCESS);
    }
    stall.release();
    queue.idle(LIMIT).unwrap();
    assert_eq!(timeline.value().unwrap(), 299);
}

fn a_timeline_without_queries_stays_small() {
    let gpu = gpu();
    let (queue, timeline) = (
        gpu.queue("signaller"),
        gpu.device.timeline("unasked").unwrap(),
    );
    for value in 1..=10_000 {
        queue
            .submit(&[], |_| Ok(()), &[timeline.signal_at(value)])
            .unwrap();
    }
    queue.idle(LIMIT).unwrap();
    queue
        .submit(&[], |_| Ok(()), &[timeline.signal_at(10_001)])
        .unwrap();
    let port = timeline
        .port::<syncline_cuda::EventPort>(gpu.device.id())
        .unwrap();
    let text = format!("{port:?}");
    let outstanding: usize = text
        .split(' ')
        .nth(2)
        .and_then(|word| word.parse().ok())
        .expect(&text);
    assert!(outstanding <= 2048, "{text}");
    timeline.at(10_001).wait(LIMIT).unwrap();
}

fn fences_are_recorded_again_and_timed() {
    let gpu = gpu();
    let queue = gpu.queue("timed");
    let (start, end) = (
        gpu.device.timed_fence("start"),
        gpu.device.timed_fence("end"),
    );
    assert!(start.is_complete().unwrap());
    assert!(matches!(
        end.elapsed_since(&start),
        Err(Error::NotRecorded { .. })
    ));
    for milliseconds in [5, 20] {
        let delay = gpu.delay.clone();
        queue.record(&start).unwrap();
        queue
            .submit(
                &[],
                move |r| launch(r, &delay, milliseconds * 1_000_000),
                &[],
            )
            .unwrap();
        queue.record(&end).unwrap();
        assert!(matches!(
            end.elapsed_since(&start),
            Err(Error::NotReady { .. }) | Ok(_)
        ));
        end.wait(LIMIT).unwrap();
        let forth = end.elapsed_since(&start).unwrap();
        let back = start.elapsed_since(&end).unwrap();
        assert_eq!(forth, -back);
        let about = milliseconds as i64 * 1_000_000;
        assert!(
            (about..about + 50_000_000).contains(&forth),
            "{forth} ns for {milliseconds} ms"
        );
        assert_eq!(end.elapsed_since(&end).unwrap(), 0);
    }
    let plain = gpu.device.fence("plain");
    queue.record(&plain).unwrap();
    plain.wait(LIMIT).unwrap();
    assert!(matches!(
        plain.elapsed_since(&start),
        Err(Error::TimingDisabled { .. })
    ));
}

fn a_record_does_not_move_earlier_waits() {
    let gpu = gpu();
    let (first, second) = (gpu.queue("first"), gpu.queue("second"));
    let fence = gpu.device.fence("moved");
    first.record(&fence).unwrap();
    let before = fence.point().unwrap();
    let stall = gpu.stalled(&second);
    second.record(&fence).unwrap();
    assert!(!fence.is_complete().unwrap());
    before.point().wait(LIMIT).unwrap();
    assert!(!fence.is_complete().unwrap());
    stall.release();
    fence.wait(LIMIT).unwrap();
}
