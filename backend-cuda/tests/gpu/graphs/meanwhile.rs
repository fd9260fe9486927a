//! Other work while a stream is being captured.
#![allow(unsafe_code, reason = "captures streams, as an application does")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::trace::{Outcome, Trace};
use syncline_core::{Error, QueueKind};
use syncline_cuda::{Device, Queue, Recorder, sys};

use super::setup::{GLOBAL, RELAXED, Recording, SHORT, Setup, THREAD_LOCAL, launch, ok, set};
use crate::common::{LIMIT, trials};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        what_is_released_during_a_capture_goes_after_it,
        housekeeping_harms_no_global_capture,
        the_legacy_stream_cannot_join_a_capture,
        a_capture_that_work_leaves_open_is_refused,
        no_submission_gets_into_a_capture_that_begins,
        no_signal_of_a_claim_gets_into_a_capture_that_begins,
        a_record_is_a_place_in_a_capture_or_no_part_of_it,
        a_queue_may_go_before_its_capture_ends,
    ]
}

fn what_is_released_during_a_capture_goes_after_it() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let (gate, done) = (
        setup.device.timeline("gate").unwrap(),
        setup.device.timeline("done").unwrap(),
    );
    let words = setup.words();
    for value in 1..=3 {
        let filled = words.clone();
        let work = move |r: &mut Recorder| r.memset_d32(&filled, value as u32);
        let sent = queue
            .submit(&[gate.at(1)], work, &[done.signal_at(value)])
            .unwrap();
        assert!(sent.is_held());
    }
    let recording = Recording::begin(&queue, THREAD_LOCAL);
    // Released here, but nothing can be submitted during the capture.
    gate.signal(1).unwrap();
    assert!(done.at(1).wait(SHORT).unwrap_err().is_timeout());
    assert_eq!(queue.held().count, 3);
    drop(recording.end());
    done.at(3).wait(LIMIT).unwrap();
    queue.idle(LIMIT).unwrap();
    assert_eq!(words.read_words().unwrap()[0], 3);
}

fn housekeeping_harms_no_global_capture() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    let module = || {
        setup
            .device
            .module(include_str!("../../kernels.ptx"))
            .unwrap()
    };
    let words = setup.memory();
    let mut kept = Some((setup.memory(), setup.words(), module()));
    for elsewhere in [false, true] {
        let recording = Recording::begin(&queue, GLOBAL);
        set(recording.stream, &words, 1);
        let gone = kept.take();
        let housekeeping = || {
            drop(gone);
            let made = (setup.memory(), setup.words(), module());
            made.0.write_words(&[7; 4]).unwrap();
            assert_eq!(made.0.read_words().unwrap()[..4], [7; 4]);
            made.2.function("delay").unwrap();
            let other = setup.queue("made meanwhile");
            let (start, end) = (
                setup.device.timed_fence("start"),
                setup.device.timed_fence("end"),
            );
            other.record(&start).unwrap();
            other.record(&end).unwrap();
            end.wait(LIMIT).unwrap();
            end.elapsed_since(&start).unwrap();
            drop((start, end, other));
            made
        };
        kept = Some(if elsewhere {
            std::thread::scope(|scope| scope.spawn(housekeeping).join().unwrap())
        } else {
            housekeeping()
        });
        let graph = Arc::new(recording.end());
        queue.submit(&[], launch(&graph), &[]).unwrap();
        queue.idle(LIMIT).unwrap();
    }
}

fn the_legacy_stream_cannot_join_a_capture() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured");
    // SAFETY: the legacy default stream is always there.
    let legacy = unsafe { setup.device.adopt_raw_stream(null_mut(), None, "legacy") }.unwrap();
    let place = setup.device.fence("place");
    for mode in [THREAD_LOCAL, GLOBAL] {
        let recording = Recording::begin(&queue, mode);
        queue.record(&place).unwrap();
        let refused = legacy.wait(&place);
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
        drop(recording.end());
    }
    legacy.submit(&[], |_| Ok(()), &[]).unwrap();
    legacy.idle(LIMIT).unwrap();
}

/// The graph has no node of this library: no event, and no time of a trace.
fn a_capture_that_work_leaves_open_is_refused() {
    let setup = Setup::new();
    setup.make_current();
    let words = setup.memory();
    for traced in [false, true] {
        let queue = setup.queue("captured by work");
        let done = setup.device.timeline("done").unwrap();
        let trace = Trace::new();
        if traced {
            trace.follow(&queue).unwrap();
        }
        let begun = |r: &mut Recorder| {
            // SAFETY: a live stream.
            ok(unsafe { sys::cuStreamBeginCapture_v2(r.stream(), RELAXED) });
            Ok(())
        };
        let refused = queue.submit(&[], begun, &[done.signal_at(1)]).map(|_| ());
        assert!(
            matches!(refused, Err(Error::Capturing { .. })),
            "{refused:?}"
        );
        let recording = Recording::begun(&queue);
        set(recording.stream, &words, 3);
        let nodes = recording.end_counting();
        assert_eq!(nodes, 1, "traced: {traced}");
        queue.submit(&[], |_| Ok(()), &[done.signal_at(1)]).unwrap();
        done.at(1).wait(LIMIT).unwrap();
        queue.idle(LIMIT).unwrap();
        let recording = trace.finish(LIMIT);
        let recorded: Vec<_> = recording
            .tracks
            .iter()
            .flat_map(|track| &track.submissions)
            .map(|one| &one.outcome)
            .collect();
        assert!(
            recorded.iter().all(|one| **one == Outcome::Finished),
            "{recorded:?}"
        );
        assert_eq!(recorded.len(), usize::from(traced));
    }
}

fn no_submission_gets_into_a_capture_that_begins() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured now and then");
    let words = setup.words();
    beside_captures(&queue, || {
        let filled = words.clone();
        let work = move |r: &mut Recorder| r.memset_d32(&filled, 1);
        match queue.submit(&[], work, &[]) {
            Ok(_) => Ok(true),
            Err(Error::Capturing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    });
    queue.idle(LIMIT).unwrap();
}

/// D5: also the signal of a claim.
fn no_signal_of_a_claim_gets_into_a_capture_that_begins() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured now and then");
    let line = setup.device.timeline("claimed").unwrap();
    let address = queue.stream().raw().addr();
    let mut claim = line.claim(1).unwrap();
    let sent = beside_captures(&queue, || {
        let stream = std::ptr::without_provenance_mut(address);
        // SAFETY: a claim of this timeline, and a live stream, which is captured under its guard.
        match unsafe { setup.device.submit_claimed(&line, &mut claim, stream) } {
            Ok(()) => {
                claim = line.claim(claim.value() + 1)?;
                Ok(true)
            }
            Err(Error::Capturing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    });
    line.at(sent).wait(LIMIT).unwrap();
    queue.idle(LIMIT).unwrap();
}

/// F7: a fence that is a place in a graph says so. Any other fence completes.
fn a_record_is_a_place_in_a_capture_or_no_part_of_it() {
    let setup = Setup::new();
    setup.make_current();
    let queue = setup.queue("captured now and then");
    let mut recorded = Vec::new();
    beside_captures(&queue, || {
        let fence = setup.device.fence("recorded");
        queue.record(&fence)?;
        recorded.push(fence);
        // Bounds the number of events.
        if recorded.len() > 4096 {
            recorded.drain(..2048);
        }
        Ok(true)
    });
    for fence in recorded {
        match fence.wait(LIMIT) {
            Ok(()) | Err(Error::Captured { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    queue.idle(LIMIT).unwrap();
}

/// Calls `put` repeatedly on a thread while this thread captures the queue's stream.
///
/// Captures at least 300 times, and until `put` has added work to the stream. No graph may contain
/// a node. Returns how often `put` has added work.
fn beside_captures(
    queue: &Queue,
    mut put: impl FnMut() -> syncline_core::Result<bool> + Send,
) -> u64 {
    const ROUNDS: usize = 300;
    /// Ends the thread even if the test fails.
    struct Ends<'e>(&'e AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let (ended, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let put = std::thread::scope(|scope| {
        let ends = Ends(&ended);
        let putting = scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                sent.fetch_add(u64::from(put()?), Ordering::SeqCst);
            }
            Ok(())
        });
        let begun = Instant::now();
        for round in 0.. {
            let done = round >= ROUNDS && sent.load(Ordering::SeqCst) > 0;
            if done || putting.is_finished() {
                break;
            }
            assert!(begun.elapsed() < LIMIT, "nothing is put into the stream");
            // Gives a thread that waits for the stream a chance to take it.
            std::thread::sleep(Duration::from_micros(20));
            let recording = Recording::begin(queue, RELAXED);
            std::thread::sleep(Duration::from_micros(50));
            let nodes = recording.end_counting();
            assert_eq!(nodes, 0, "nodes are in a capture");
        }
        drop(ends);
        putting.join().unwrap()
    });
    put.map_err(|error: Error| error.to_string()).unwrap();
    sent.into_inner()
}

fn a_queue_may_go_before_its_capture_ends() {
    let setup = Setup::new();
    setup.make_current();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let device = Device::adopt(&context).unwrap();
    let (queue, joins) = (
        // SAFETY: no other thread asks for the capture.
        unsafe { device.adopt_stream(&stream, "captured") }.unwrap(),
        device.queue(QueueKind::Compute, "joins").unwrap(),
    );
    let (place, back) = (device.fence("place"), device.fence("back"));
    Recording::begin(&queue, THREAD_LOCAL);
    queue.record(&place).unwrap();
    drop(queue);
    joins.wait(&place).unwrap();
    joins.record(&back).unwrap();
    // SAFETY: as above.
    let again = unsafe { device.adopt_stream(&stream, "captured") }.unwrap();
    again.wait(&back).unwrap();
    drop(Recording::begun(&again).end());
}
