//! Work in flight is bounded, so that no submitter blocks. It may be dropped at any time.
#![allow(unsafe_code, reason = "captures a graph, as an application does")]

use std::ptr::null_mut;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_cuda::{Queue, Recorder, sys};

use crate::common::{LIMIT, trials};
use crate::graphs::{THREAD_LOCAL, ok};
use crate::setup::{Stall, gpu};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        everything_may_be_dropped_in_flight,
        a_stall_never_blocks_the_submitter,
        commands_and_not_submissions_are_bounded,
        what_another_queue_has_in_flight_counts_and_goes,
        a_launch_counts_the_nodes_of_its_graph,
    ]
}

fn everything_may_be_dropped_in_flight() {
    let gpu = gpu();
    let buffer = gpu.device.host_buffer(4).unwrap();
    let end = {
        let (queue, other) = (gpu.queue("dropped"), gpu.queue("dropped too"));
        let timeline = gpu.device.timeline("dropped").unwrap();
        let stall = gpu.stalled(&queue);
        let filled = buffer.clone();
        queue
            .submit(
                &[],
                move |r| r.memset_d32(&filled, 3),
                &[timeline.signal_at(1)],
            )
            .unwrap();
        let sent = other.submit(&[timeline.at(1)], |_| Ok(()), &[]).unwrap();
        let end = sent.end().keep();
        drop((queue, timeline));
        assert!(!end.point().is_reached().unwrap());
        stall.release();
        end
    };
    end.point().wait(LIMIT).unwrap();
    assert_eq!(buffer.read_words().unwrap(), [3]);
}

fn a_stall_never_blocks_the_submitter() {
    const SUBMISSIONS: u64 = 5000;
    let gpu = gpu();
    let (queue, timeline) = (gpu.queue("gated"), gpu.device.timeline("gated").unwrap());
    let buffer = gpu.device.host_buffer(4).unwrap();
    let stalls = vec![gpu.stalled(&queue)];
    let by_itself = ends_by_itself(stalls, || {
        for value in 1..=SUBMISSIONS {
            let filled = buffer.clone();
            let work = move |r: &mut Recorder| r.memset_d32(&filled, value as u32);
            queue
                .submit(&[], work, &[timeline.signal_at(value)])
                .unwrap();
        }
        let held = queue.held();
        assert!(held.count as u64 >= SUBMISSIONS - 512, "{held:?}");
        assert_eq!(timeline.value().unwrap(), 0);
    });
    assert!(by_itself, "{SUBMISSIONS} submissions behind a stall");
    timeline.at(SUBMISSIONS).wait(LIMIT).unwrap();
    assert_eq!(buffer.read_words().unwrap(), [SUBMISSIONS as u32]);
}

/// Runs `submit` while the queues are stalled. Returns whether it ended before their release.
///
/// A call to a full driver queue blocks. This function releases the stalls after a time limit.
fn ends_by_itself(stalls: Vec<Stall>, submit: impl FnOnce() + Send) -> bool {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            submit();
            let _ = ended.send(());
        });
        let by_itself = end.recv_timeout(2 * LIMIT).is_ok();
        drop(stalls);
        by_itself
    })
}

fn commands_and_not_submissions_are_bounded() {
    let gpu = gpu();
    let buffer = gpu.device.host_buffer(4).unwrap();
    for (queues, submissions, commands) in [(1, 600, 2), (1, 400, 8), (16, 120, 6), (64, 40, 4)] {
        let queues: Vec<Queue> = (0..queues).map(|_| gpu.queue("full")).collect();
        let stalls = queues.iter().map(|queue| gpu.stalled(queue)).collect();
        let by_itself = ends_by_itself(stalls, || {
            for _ in 0..submissions {
                for queue in &queues {
                    let filled = buffer.clone();
                    let work = move |r: &mut Recorder| {
                        (0..commands).try_for_each(|value| r.memset_d32(&filled, value))
                    };
                    queue.submit(&[], work, &[]).unwrap();
                }
            }
        });
        let count = queues.len();
        assert!(
            by_itself,
            "{commands} commands in each of {submissions} submissions to {count} queues"
        );
        for queue in &queues {
            queue.idle(LIMIT).unwrap();
        }
        assert_eq!(buffer.read_words().unwrap(), [commands - 1]);
    }
}

fn what_another_queue_has_in_flight_counts_and_goes() {
    let gpu = gpu();
    let (gated, other) = (gpu.queue("gated"), gpu.queue("other"));
    let buffer = gpu.device.host_buffer(4).unwrap();
    let fill = |queue: &Queue| {
        let filled = buffer.clone();
        let work = move |r: &mut Recorder| r.memset_d32(&filled, 5);
        queue.submit(&[], work, &[]).unwrap().is_held()
    };
    let stall = gpu.stalled(&gated);
    while !fill(&gated) {}
    assert!(fill(&other), "there is room left");
    stall.release();
    // No query polls the first queue.
    other.position().wait(LIMIT).unwrap();
    gated.idle(LIMIT).unwrap();
}

fn a_launch_counts_the_nodes_of_its_graph() {
    let gpu = gpu();
    let (captured, line) = (gpu.queue("captured"), gpu.device.timeline("line").unwrap());
    let buffer = gpu.device.buffer(4).unwrap();
    let mut slots = gpu.device.graph_slots("graph of 250 nodes");
    let (mut graph, mut executable) = (null_mut(), null_mut());
    let guard = captured.stream();
    // SAFETY: a live stream, and memory that the test keeps until the launches have finished. The
    // calls write one handle each.
    let signal = unsafe {
        ok(sys::cuCtxSetCurrent(gpu.device.raw_context()));
        ok(sys::cuStreamBeginCapture_v2(guard.raw(), THREAD_LOCAL));
        for value in 1..250 {
            let memory = buffer.pointer();
            ok(sys::cuMemsetD32Async(memory, value, 1, guard.raw()));
        }
        let signal = slots.signal(&captured, &line).unwrap();
        ok(sys::cuStreamEndCapture(guard.raw(), &raw mut graph));
        ok(sys::cuGraphInstantiateWithFlags(
            &raw mut executable,
            graph,
            0,
        ));
        signal
    };
    drop(guard);
    // SAFETY: both live until the test has waited for all launches.
    let slotted = unsafe { slots.adopt(graph, executable, None) }.unwrap();
    let stall = gpu.stalled(&captured);
    let held = [1, 2, 3].map(|value| {
        let launch = captured.launch(&slotted, &[signal.at(value)]);
        launch.unwrap().is_held()
    });
    assert_eq!(held, [false, false, true], "{:?}", captured.held());
    stall.release();
    line.at(3).wait(LIMIT).unwrap();
    captured.idle(LIMIT).unwrap();
    drop(slotted);
    // SAFETY: nothing uses them any more.
    unsafe {
        ok(sys::cuGraphExecDestroy(executable));
        ok(sys::cuGraphDestroy(graph));
    }
}
