//! Q8: driver calls of the application's own, in place of a submission's work.

#![allow(unsafe_code, reason = "the application submits to the driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use syncline::backend::Device as _;
use syncline::{Error, Point, Queue, Recorder, Result, Signal, Submitted};

use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::cases::DELAY;
use crate::cases::work::unheard;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "own_call.is_held_and_ordered_like_work": [Q2 Q8] => held_and_ordered;
    "own_call.by_queue_submit_2": [Q8] => newer_call;
    "own_call.that_fails_is_rejected": [Q5 Q8] => rejected;
    "own_call.is_skipped_after_a_failed_wait": [E2 Q8] => skipped;
    "own_call.signals_have_times": [M6 Q8] => timed;
    "own_call.that_fails_on_a_traced_queue": [Q5 Q8] => traced;
    "own_call.keeps_objects": [Q5 Q6 Q8] => keeps;
}

/// How often an application's own call was made, and what the calls keep.
#[derive(Clone, Default)]
struct Calls {
    made: Arc<AtomicUsize>,
    /// True if the calls of Vulkan are `vkQueueSubmit2`.
    #[cfg_attr(
        not(feature = "vulkan"),
        expect(dead_code, reason = "about Vulkan alone")
    )]
    are_newer: bool,
    kept: Option<Arc<()>>,
}

impl Calls {
    fn count(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }
}

/// How a call of the application's own ends.
#[derive(Clone, Copy)]
enum Ends {
    Ok,
    InError,
    InPanic,
}

/// Submits by a call of the application's own, which is counted.
#[allow(clippy::panic, reason = "the behaviour under test")]
fn submit_raw<'q>(
    queue: &'q Queue,
    waits: &[Point<'_>],
    signals: &[Signal<'_>],
    calls: &Calls,
    ends: Ends,
) -> std::result::Result<Result<Submitted<'q>>, Stop> {
    let calls = calls.clone();
    let submitted = match queue {
        Queue::Host(_) => return Stop::skip("the host has no driver to call"),
        #[cfg(feature = "cuda")]
        Queue::Cuda(queue) => queue.submit_raw(waits, signals, move |raw| {
            calls.made.fetch_add(1, Ordering::SeqCst);
            if let Some(object) = calls.kept {
                raw.keep(object);
            }
            match ends {
                Ends::Ok => Ok(()),
                Ends::InError => Err(Error::work("the application's call failed")),
                Ends::InPanic => panic!("the application's call"),
            }
        }),
        #[cfg(feature = "vulkan")]
        Queue::Vulkan(queue) => {
            use syncline::backend::Queue as _;
            use syncline::vulkan::ash::vk;
            let device = queue.device();
            queue.submit_raw(waits, signals, move |raw| {
                calls.made.fetch_add(1, Ordering::SeqCst);
                if let Some(object) = calls.kept {
                    raw.keep(object);
                }
                match ends {
                    Ends::Ok => {}
                    Ends::InError => return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY),
                    Ends::InPanic => panic!("the application's call"),
                }
                if calls.are_newer {
                    let (waits, signals): (Vec<_>, Vec<_>) =
                        (raw.wait_infos().collect(), raw.signal_infos().collect());
                    let info = vk::SubmitInfo2::default()
                        .wait_semaphore_infos(&waits)
                        .signal_semaphore_infos(&signals);
                    // SAFETY: the queue is locked, and the semaphores are the submission's. The
                    // device is of Vulkan 1.3, and was opened with `synchronization2`.
                    return unsafe {
                        let raw_device = device.raw();
                        raw_device.queue_submit2(raw.queue, &[info], vk::Fence::null())
                    };
                }
                let mut values = vk::TimelineSemaphoreSubmitInfo::default()
                    .wait_semaphore_values(raw.wait_values)
                    .signal_semaphore_values(raw.signal_values);
                let info = vk::SubmitInfo::default()
                    .wait_semaphores(raw.waits)
                    .wait_dst_stage_mask(raw.wait_stages)
                    .signal_semaphores(raw.signals)
                    .push_next(&mut values);
                // SAFETY: the queue is locked, and the semaphores are the submission's.
                unsafe {
                    let raw_device = device.raw();
                    raw_device.queue_submit(raw.queue, &[info], vk::Fence::null())
                }
            })
        }
        _ => return Stop::skip("the backend has no own calls"),
    };
    Ok(submitted)
}

/// The call is not made before its wait is pending, and signals in the queue's order.
fn held_and_ordered(world: &World<Equipped>) -> Verdict {
    order_of(world, Calls::default())
}

/// The same with `vkQueueSubmit2`.
fn newer_call(world: &World<Equipped>) -> Verdict {
    #[cfg(feature = "vulkan")]
    if let syncline::Device::Vulkan(device) = world.left.library() {
        use syncline::vulkan::ash::vk;
        // SAFETY: the physical device is of this instance.
        let of = unsafe {
            let instance = device.instance();
            instance.get_physical_device_properties(device.physical())
        };
        if of.api_version < vk::API_VERSION_1_3 {
            return Stop::skip("the device is older than Vulkan 1.3");
        }
        let calls = Calls {
            are_newer: true,
            ..Calls::default()
        };
        return order_of(world, calls);
    }
    let _ = world;
    Stop::skip("only Vulkan has vkQueueSubmit2")
}

fn order_of(world: &World<Equipped>, calls: Calls) -> Verdict {
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    let (own, other) = (world.left_queue("own")?, world.right_queue("other")?);
    let queue = own.library();
    let (gate_1, signal) = ([gate.library().at(1)], [line.library().signal_at(2)]);
    let own_submission = submit_raw(queue, &gate_1, &signal, &calls, Ends::Ok)??;
    let waiting = other.submit(&[line.at(2)], |_| Ok(()), &[line.signal_at(3)])?;
    check!(own_submission.is_held(), "it is not held");
    check!(calls.count() == 0, "the call was made before its wait");
    gate.signal(1)?;
    line.at(3).wait(patience())?;
    waiting.end().wait(patience())?;
    check!(calls.count() == 1, "{} calls were made", calls.count());
    // The queue goes on, and an own call needs neither waits nor signals.
    submit_raw(queue, &[], &[], &calls, Ends::Ok)??;
    own.submit(&[], |_| Ok(()), &[line.signal_at(4)])?;
    line.at(4).wait(patience())?;
    own.idle(patience())?;
    check!(calls.count() == 2, "{} calls were made", calls.count());
    Ok(())
}

/// An error of the call is the error of the submission, or the failure of its timelines.
fn rejected(world: &World<Equipped>) -> Verdict {
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    let own = world.left_queue("own")?;
    let (calls, queue) = (Calls::default(), own.library());
    let signal = [line.library().signal_at(1)];
    let refused = submit_raw(queue, &[], &signal, &calls, Ends::InError)?;
    check_error!(refused, Error::Work(_) | Error::Native { .. });
    let refused = unheard(|| submit_raw(queue, &[], &signal, &calls, Ends::InPanic))?;
    check_error!(refused, Error::WorkPanicked { .. });
    // The claim is withdrawn, and the queue is usable.
    submit_raw(queue, &[], &signal, &calls, Ends::Ok)??;
    line.at(1).wait(patience())?;
    let (gate_1, signal) = ([gate.library().at(1)], [line.library().signal_at(2)]);
    submit_raw(queue, &gate_1, &signal, &calls, Ends::InError)??;
    gate.signal(1)?;
    check_error!(line.at(2).wait(patience()), Error::Failed { .. });
    own.idle(patience())?;
    check!(calls.count() == 4, "{} calls were made", calls.count());
    Ok(())
}

/// The call of a skipped submission is never made.
fn skipped(world: &World<Equipped>) -> Verdict {
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    let own = world.left_queue("own")?;
    let (calls, queue) = (Calls::default(), own.library());
    let (gate_1, signal) = ([gate.library().at(1)], [line.library().signal_at(1)]);
    let submitted = submit_raw(queue, &gate_1, &signal, &calls, Ends::Ok)??;
    gate.fail(Error::work("no frame"));
    check_error!(line.at(1).wait(patience()), Error::Failed { .. });
    check_error!(submitted.wait_submitted(patience()), Error::Skipped { .. });
    own.idle(patience())?;
    check!(
        calls.count() == 0,
        "the call of a skipped submission was made"
    );
    Ok(())
}

/// The signals of an own call have times, in the order of the submissions.
fn timed(world: &World<Equipped>) -> Verdict {
    let device = world.left.library();
    if matches!(device, syncline::Device::Host(_)) {
        return Stop::skip("the host has no driver to call");
    }
    let line = match device.clocked_timeline("line") {
        Err(Error::Unsupported { .. }) => return Stop::skip("the device's clock is not readable"),
        line => line?,
    };
    let own = world.left_queue("own")?;
    let calls = Calls::default();
    for value in 1..=3 {
        let signals = [line.signal_at(value)];
        let waits = [line.at(value - 1)];
        match submit_raw(own.library(), &waits, &signals, &calls, Ends::Ok)? {
            Err(Error::Unsupported { .. }) => return Stop::skip("the queue writes no times"),
            submitted => submitted?,
        };
    }
    line.at(3).wait(patience())?;
    let time = |value| Ok::<_, Error>(line.at(value).time()?.nanoseconds());
    let (first, second, third) = (time(1)?, time(2)?, time(3)?);
    check!(
        first <= second && second <= third,
        "the times are {first}, {second} and {third}"
    );
    own.idle(patience())?;
    Ok(())
}

/// A trace writes a time before the call. The driver has that when the call fails.
///
/// The command buffer of the time must not be recorded again while it is pending, which the
/// validation layer reports. Work before it keeps it pending.
fn traced(world: &World<Equipped>) -> Verdict {
    const ROUNDS: u64 = 8;
    const TIME: Duration = Duration::from_micros(1);
    let (line, own) = (world.timeline("line")?, world.left_queue("own")?);
    let (calls, queue) = (Calls::default(), own.library());
    // Skips the host before anything else.
    submit_raw(queue, &[], &[], &calls, Ends::Ok)??;
    let trace = syncline::trace::Trace::new();
    match trace.follow(queue) {
        Err(Error::Unsupported { .. }) => return Stop::skip("the queue cannot be traced"),
        followed => followed?,
    }
    for round in 0..ROUNDS {
        let busy = world.left.clone();
        own.submit(&[], move |recorder| busy.busy(recorder, DELAY), &[])?;
        let signal = [line.library().signal_at(round + 1)];
        if round % 2 == 0 {
            let refused = submit_raw(queue, &[], &signal, &calls, Ends::InError)?;
            check_error!(refused, Error::Work(_) | Error::Native { .. });
        } else {
            let refused = unheard(|| submit_raw(queue, &[], &signal, &calls, Ends::InPanic))?;
            check_error!(refused, Error::WorkPanicked { .. });
        }
        own.submit(&[], |_| Ok(()), &[line.signal_at(round + 1)])?;
        // After a call that succeeds, no part of the next submission is taken for submitted.
        submit_raw(queue, &[], &[], &calls, Ends::Ok)??;
        let busy = world.left.clone();
        let fails = move |recorder: &mut Recorder<'_>| {
            busy.busy(recorder, TIME)?;
            Err(Error::work("after it has recorded"))
        };
        check_error!(own.submit(&[], fails, &[]), Error::Work(_));
    }
    line.at(ROUNDS).wait(patience())?;
    own.idle(patience())?;
    // All command buffers are recorded again.
    for _ in 0..10 * ROUNDS {
        let busy = world.left.clone();
        own.submit(&[], move |recorder| busy.busy(recorder, TIME), &[])?;
    }
    own.idle(patience())?;
    let recorded = trace.finish(patience());
    let count: usize = recorded
        .tracks
        .iter()
        .map(|track| track.submissions.len())
        .sum();
    check!(count > 0, "the trace has no submission");
    Ok(())
}

/// What a call keeps lives until the device has finished, and goes if the call fails.
fn keeps(world: &World<Equipped>) -> Verdict {
    let (line, own) = (world.timeline("line")?, world.left_queue("own")?);
    let queue = own.library();
    let object = Arc::new(());
    let calls = Calls {
        kept: Some(object.clone()),
        ..Calls::default()
    };
    let owners = || Arc::strong_count(&object) - 2;
    // Skips the host before anything else.
    submit_raw(queue, &[], &[], &calls, Ends::Ok)??;
    own.idle(patience())?;
    check!(owners() == 0, "a finished submission keeps its object");
    let stall = world.left.stall()?;
    let latch = stall.latch();
    own.submit(&[], move |recorder| latch.block(recorder), &[])?;
    let signal = [line.library().signal_at(1)];
    submit_raw(queue, &[], &signal, &calls, Ends::Ok)??;
    own.settle(patience())?;
    check!(calls.count() == 2, "{} calls were made", calls.count());
    check!(owners() == 1, "its object is gone before it has finished");
    stall.release()?;
    own.idle(patience())?;
    check!(owners() == 0, "a finished submission keeps its object");
    let signal = [line.library().signal_at(2)];
    let refused = submit_raw(queue, &[], &signal, &calls, Ends::InError)?;
    check_error!(refused, Error::Work(_) | Error::Native { .. });
    own.idle(patience())?;
    check!(owners() == 0, "a refused submission keeps its object");
    Ok(())
}
