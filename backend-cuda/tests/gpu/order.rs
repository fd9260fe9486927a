//! The order of work on the device, and as the host sees it.
#![allow(unsafe_code, reason = "calls the driver as an application does")]

use std::sync::Arc;
use std::time::Duration;

use syncline_core::Error;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_cuda::{Recorder, sys};

use crate::common::{LIMIT, trials};
use crate::setup::{Stall, WORDS, gpu, hand_over, launch};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        data_follows_the_wait,
        without_the_wait_old_data_is_seen,
        positions_without_an_event_keep_their_place,
        commands_of_refused_work_come_before_the_position,
        any_number_of_streams_wait_for_the_host,
        a_long_chain_is_released_without_recursion,
        the_host_signals_forward_only,
    ]
}

fn data_follows_the_wait() {
    let gpu = gpu();
    assert!(hand_over(&gpu, true, false).iter().all(|&word| word == 2));
    assert!(hand_over(&gpu, true, true).iter().all(|&word| word == 2));
}

fn without_the_wait_old_data_is_seen() {
    let gpu = gpu();
    assert!(hand_over(&gpu, false, false).iter().all(|&word| word == 1));
}

/// A submission that only waits makes no driver call. Its position is reached nevertheless.
///
/// The position is reached neither before the queue's earlier work nor before the awaited point,
/// whichever of them finishes first.
fn positions_without_an_event_keep_their_place() {
    let gpu = gpu();
    for other_first in [true, false] {
        let (busy, other) = (gpu.queue("busy"), gpu.queue("other"));
        let readers = ["told", "raw", "untold"].map(|label| gpu.queue(label));
        let data = gpu.device.buffer(WORDS * 4).unwrap();
        data.write_words(&vec![1; WORDS as usize]).unwrap();
        let stalls = [gpu.stalled(&busy), gpu.stalled(&other)];
        let done = gpu.device.timeline("done").unwrap();
        other.submit(&[], |_| Ok(()), &[done.signal_at(1)]).unwrap();
        let filled = data.clone();
        let fill = move |r: &mut Recorder| r.memset_d32(&filled, 2);
        busy.submit(&[], fill, &[]).unwrap();
        // More than the bound on such submissions in a row.
        let ends: Vec<_> = (0..40)
            .map(|_| busy.submit(&[done.at(1)], |_| Ok(()), &[]).unwrap().end())
            .collect();
        let copies = [0; 3].map(|_| gpu.device.buffer(WORDS * 4).unwrap());
        // A native wait for one of them. The negative control waits for nothing.
        let event = gpu.device.event(ends[20]).unwrap().unwrap();
        // SAFETY: a live stream and event.
        let waited = unsafe { sys::cuStreamWaitEvent(readers[1].stream().raw(), event.raw(), 0) };
        assert_eq!(waited, sys::CUresult::CUDA_SUCCESS);
        for ((reader, copy), waits) in readers.iter().zip(&copies).zip([&ends[20..21], &[], &[]]) {
            let (from, to) = (data.clone(), copy.clone());
            let work = move |r: &mut Recorder| r.copy(&from, &to);
            reader.submit(waits, work, &[]).unwrap();
        }
        readers[2].idle(LIMIT).unwrap();
        let [first, second] = stalls;
        let (early, late) = if other_first {
            (second, first)
        } else {
            (first, second)
        };
        early.release();
        if other_first {
            done.at(1).wait(LIMIT).unwrap();
        }
        let soon = ends[0].wait(Duration::from_millis(50));
        assert!(soon.unwrap_err().is_timeout());
        assert!(ends.iter().all(|end| !end.is_reached().unwrap()));
        assert!(!readers[0].position().is_reached().unwrap());
        assert!(!readers[1].position().is_reached().unwrap());
        late.release();
        for end in ends.iter().rev() {
            end.wait(LIMIT).unwrap();
        }
        for reader in &readers {
            reader.idle(LIMIT).unwrap();
        }
        let read = copies.each_ref().map(|copy| copy.read_words().unwrap());
        for (words, expected) in read.iter().zip([2, 2, 1]) {
            assert!(words.iter().all(|&word| word == expected), "{expected}");
        }
    }
}

/// Commands that refused work has already put into the stream may still run.
///
/// The queue's position comes after them, although nothing else is submitted. What the work kept
/// lives until then.
fn commands_of_refused_work_come_before_the_position() {
    let gpu = gpu();
    let queue = gpu.queue("refusing");
    let (buffer, word) = (
        gpu.device.buffer(4).unwrap(),
        gpu.device.host_buffer(4).unwrap(),
    );
    buffer.write_words(&[1]).unwrap();
    let stall = Stall(word.clone());
    let kept = Arc::new(());
    let (filled, kernel, pointer, object) = (
        buffer.clone(),
        gpu.gate.clone(),
        word.pointer(),
        kept.clone(),
    );
    let work = move |r: &mut Recorder| {
        r.keep(object);
        r.keep(Arc::new(word));
        launch(r, &kernel, pointer)?;
        r.memset_d32(&filled, 9)?;
        Err(Error::work(std::io::Error::other("after all")))
    };
    let refused = queue.submit(&[], work, &[]).map(|_| ());
    assert!(refused.is_err());
    let fence = gpu.device.fence("behind");
    queue.record(&fence).unwrap();
    queue.submit(&[], |_| Ok(()), &[]).unwrap();
    assert!(!queue.position().is_reached().unwrap());
    assert!(!fence.is_complete().unwrap());
    assert_eq!(Arc::strong_count(&kept), 2);
    stall.release();
    queue.idle(LIMIT).unwrap();
    assert_eq!(buffer.read_words().unwrap(), [9]);
    assert_eq!(Arc::strong_count(&kept), 1);
}

fn any_number_of_streams_wait_for_the_host() {
    let gpu = gpu();
    for count in [64, 1024] {
        let gate = gpu.device.timeline("gate").unwrap();
        let queues: Vec<_> = (0..count)
            .map(|n| gpu.queue(&format!("waiter {n}")))
            .collect();
        for queue in &queues {
            assert!(
                queue
                    .submit(&[gate.at(1)], |_| Ok(()), &[])
                    .unwrap()
                    .is_held()
            );
        }
        gate.signal(1).unwrap();
        for queue in &queues {
            queue.idle(LIMIT).unwrap();
        }
    }
}

fn a_long_chain_is_released_without_recursion() {
    // Recursion would use up the stack of a thread.
    const LINKS: u64 = 8_192;
    let gpu = gpu();
    let (gate, chain) = (
        gpu.device.timeline("gate").unwrap(),
        gpu.device.timeline("chain").unwrap(),
    );
    let queues = [gpu.queue("even"), gpu.queue("odd")];
    for link in 1..=LINKS {
        let waits = if link == 1 {
            [gate.at(1)]
        } else {
            [chain.at(link - 1)]
        };
        queues[(link % 2) as usize]
            .submit(&waits, |_| Ok(()), &[chain.signal_at(link)])
            .unwrap();
    }
    gate.signal(1).unwrap();
    // The software driver takes long on a busy machine.
    chain.at(LINKS).wait(4 * LIMIT).unwrap();
    assert_eq!(chain.value().unwrap(), LINKS);
}

fn the_host_signals_forward_only() {
    let gpu = gpu();
    let timeline = gpu.device.timeline_from("host", 3).unwrap();
    timeline.signal(5).unwrap();
    assert!(matches!(
        timeline.signal(5),
        Err(Error::SignalNotAboveReached { reached: 5, .. })
    ));
    assert!(matches!(
        timeline.signal(4),
        Err(Error::SignalNotAboveReached { .. })
    ));
    let queue = gpu.queue("after the host");
    queue
        .submit(&[timeline.at(5)], |_| Ok(()), &[timeline.signal_at(6)])
        .unwrap();
    timeline.at(6).wait(LIMIT).unwrap();
    timeline.signal(7).unwrap();
    assert_eq!(timeline.value().unwrap(), 7);
}
