//! Q8: driver calls of the application's own, in place of a submission's work.

#![allow(unsafe_code, reason = "the application submits to the driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use syncline::backend::Device as _;
use syncline::{Error, Point, Queue, Recorder, Result, Signal, Submitted};

use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases};
use crate::cases::DELAY;
use crate::cases::work::unheard;
use crate::user::{self, Timeline};
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

/// A queue for the application's own calls, and two timelines.
struct Scene {
    own: user::Queue<Equipped>,
    gate: Timeline<Equipped>,
    line: Timeline<Equipped>,
    calls: Calls,
}

impl Scene {
    fn new(world: &World<Equipped>, calls: Calls) -> Result<Self, Stop> {
        Ok(Self {
            own: world.left_queue("own")?,
            gate: world.timeline("gate")?,
            line: world.timeline("line")?,
            calls,
        })
    }

    /// Makes a call, behind the gate or at once, that signals `value`.
    fn call(&self, is_gated: bool, value: u64, ends: Ends) -> Result<Result<Submitted<'_>>, Stop> {
        let (gate, signal) = ([self.gate.library().at(1)], [self.line.signal_at(value)]);
        let waits = if is_gated { &gate[..] } else { &[] };
        submit_raw(self.own.library(), waits, &signal, &self.calls, ends)
    }

    /// Makes a call that neither waits nor signals. Skips the host.
    fn call_alone(&self) -> Verdict {
        submit_raw(self.own.library(), &[], &[], &self.calls, Ends::Ok)?.map(drop)?;
        Ok(())
    }

    /// Checks that a call is refused at once, because it ends like this.
    fn is_refused(&self, value: u64, ends: Ends) -> Verdict {
        let refused = unheard(|| self.call(false, value, ends))?;
        match ends {
            Ends::InPanic => check_error!(refused, WorkPanicked),
            _ => check_error!(refused, Error::Work(_) | Error::Native { .. }),
        }
        Ok(())
    }

    fn made(&self, count: usize) -> Verdict {
        check_eq!(self.calls.count(), count);
        Ok(())
    }
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
    let scene = Scene::new(world, calls)?;
    let (own, line, other) = (&scene.own, &scene.line, world.right_queue("other")?);
    let own_submission = scene.call(true, 2, Ends::Ok)??;
    let waiting = other.submit_empty(&[line.at(2)], &[line.signal_at(3)])?;
    check!(own_submission.is_held());
    scene.made(0)?;
    scene.gate.signal(1)?;
    line.at(3).wait(patience())?;
    waiting.end().wait(patience())?;
    scene.made(1)?;
    // The queue goes on.
    scene.call_alone()?;
    own.signal(line, 4)?;
    line.at(4).wait(patience())?;
    own.idle(patience())?;
    scene.made(2)
}

/// An error of the call is the error of the submission, or the failure of its timelines.
fn rejected(world: &World<Equipped>) -> Verdict {
    let scene = Scene::new(world, Calls::default())?;
    scene.is_refused(1, Ends::InError)?;
    scene.is_refused(1, Ends::InPanic)?;
    // The claim is withdrawn, and the queue is usable.
    scene.call(false, 1, Ends::Ok)??;
    scene.line.at(1).wait(patience())?;
    scene.call(true, 2, Ends::InError)??;
    scene.gate.signal(1)?;
    check_error!(scene.line.at(2).wait(patience()), Failed);
    scene.own.idle(patience())?;
    scene.made(4)
}

/// The call of a skipped submission is never made.
fn skipped(world: &World<Equipped>) -> Verdict {
    let scene = Scene::new(world, Calls::default())?;
    let submitted = scene.call(true, 1, Ends::Ok)??;
    scene.gate.fail(Error::work("no frame"));
    check_error!(scene.line.at(1).wait(patience()), Failed);
    check_error!(submitted.wait_submitted(patience()), Skipped);
    scene.own.idle(patience())?;
    scene.made(0)
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
        let (waits, signals) = ([line.at(value - 1)], [line.signal_at(value)]);
        match submit_raw(own.library(), &waits, &signals, &calls, Ends::Ok)? {
            Err(Error::Unsupported { .. }) => return Stop::skip("the queue writes no times"),
            submitted => submitted?,
        };
    }
    line.at(3).wait(patience())?;
    let time = |value| Ok::<_, Error>(line.at(value).time()?.nanoseconds());
    let times = [time(1)?, time(2)?, time(3)?];
    check!(times.is_sorted(), "{times:?}");
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
    let scene = Scene::new(world, Calls::default())?;
    let (own, line) = (&scene.own, &scene.line);
    scene.call_alone()?;
    let trace = syncline::trace::Trace::new();
    match trace.follow(own.library()) {
        Err(Error::Unsupported { .. }) => return Stop::skip("the queue cannot be traced"),
        followed => followed?,
    }
    for round in 1..=ROUNDS {
        own.busy(DELAY, &[])?;
        let ends = if round % 2 == 0 {
            Ends::InPanic
        } else {
            Ends::InError
        };
        scene.is_refused(round, ends)?;
        own.signal(line, round)?;
        // After a call that succeeds, no part of the next submission is taken for submitted.
        scene.call_alone()?;
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
        own.busy(TIME, &[])?;
    }
    own.idle(patience())?;
    let tracks = trace.finish(patience()).tracks;
    check!(tracks.iter().any(|track| !track.submissions.is_empty()));
    Ok(())
}

/// What a call keeps lives until the device has finished, and goes if the call fails.
fn keeps(world: &World<Equipped>) -> Verdict {
    let object = Arc::new(());
    let kept = Some(object.clone());
    let scene = Scene::new(
        world,
        Calls {
            kept,
            ..Calls::default()
        },
    )?;
    let owners = || Arc::strong_count(&object) - 2;
    scene.call_alone()?;
    scene.own.idle(patience())?;
    check_eq!(owners(), 0);
    let stall = world.left.stall()?;
    scene.own.block(&stall)?;
    scene.call(false, 1, Ends::Ok)??;
    scene.own.settle(patience())?;
    scene.made(2)?;
    check_eq!(owners(), 1);
    stall.release()?;
    scene.own.idle(patience())?;
    check_eq!(owners(), 0);
    scene.is_refused(2, Ends::InError)?;
    scene.own.idle(patience())?;
    check_eq!(owners(), 0);
    Ok(())
}
