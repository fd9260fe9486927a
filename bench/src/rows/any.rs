//! The enum over all backends.

use std::cell::Cell;
use std::hint::black_box;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Fence, Queue, QueueKind};
use syncline_conformance::Subject as _;
use syncline_conformance::workload::Equipped;

use super::gate::Gate;
use super::{Call, Floor, Row, Variant};
use crate::lab::Lab;
use crate::machine::On;
use crate::side::{Outcome, Side, Stop, timed};

/// Largest number of outstanding submissions.
const BURST: u64 = 64;

/// Number of submissions of one side at a time.
const PART: u64 = 8;

const SUBMIT: u64 = 0;
const RECORD: u64 = 1;
const ASK: u64 = 2;

pub(super) const ROWS: &[Row] = &[Row {
    id: "any.dispatch",
    ours: "submissions with one signal, records of fences, calls of the device, through the enums over all backends",
    raw: "the same on the types of the backend and on the same queue, which stands behind a closed gate",
    floor: Floor::Side(
        "the same on the types of the backend, with a `match` at each call: the least if the backend is known only at run time",
    ),
    limits: &[],
    on: &[On::Each],
    variants: &[
        Variant::new("submit", SUBMIT),
        Variant::new("record", RECORD),
        Variant::new("ask", ASK),
    ],
    run: dispatch,
}];

/// Evaluates `$body` with the value of the backend, by a `match` at the call.
macro_rules! matched {
    ($of:ident, $value:expr, $own:ident => $body:expr) => {
        match $value {
            $of::Host($own) => $body,
            #[cfg(feature = "cuda")]
            $of::Cuda($own) => $body,
            #[cfg(feature = "vulkan")]
            $of::Vulkan($own) => $body,
            // There is no other backend.
            _ => std::process::abort(),
        }
    };
}

fn dispatch(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let equipped = call.machine.equipped(call.subject.indices[0])?;
    match equipped.device() {
        Device::Host(own) => compared::host(call.n, lab, &equipped, own),
        #[cfg(feature = "cuda")]
        Device::Cuda(own) => compared::cuda(call.n, lab, &equipped, own),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(own) => compared::vulkan(call.n, lab, &equipped, own),
        _ => Err(Stop::Skipped("the device is of another backend".into())),
    }
}

/// A macro because the argument of a submission's closure has a different type for each backend.
macro_rules! compared {
    ($($(#[$gate:meta])? $backend:ident;)+) => {
        mod compared {
            use super::*;
            $(
                $(#[$gate])?
                pub(super) fn $backend(
                    what: u64,
                    lab: &mut Lab,
                    equipped: &Equipped,
                    own: &syncline::$backend::Device,
                ) -> Outcome<()> {
                    let device = equipped.device();
                    let own_queue = own.queue(QueueKind::Compute, "dispatched to")?;
                    let queue: Queue = own_queue.clone().into();
                    if what == ASK {
                        return lab.race(vec![
                            Side::ours(|n| timed(|| {
                                for _ in 0..n {
                                    let device = black_box(device);
                                    let _ = black_box((device.id(), device.info(), black_box(&queue).position()));
                                }
                                Ok(())
                            })).each(3),
                            Side::raw(|n| timed(|| {
                                for _ in 0..n {
                                    let device = black_box(own);
                                    let _ = black_box((device.id(), device.info(), black_box(&own_queue).position()));
                                }
                                Ok(())
                            })).each(3),
                            Side::floor(|n| timed(|| {
                                for _ in 0..n {
                                    let device = black_box(device);
                                    let _ = black_box((
                                        matched!(Device, device, own => own.id()),
                                        matched!(Device, device, own => own.info()),
                                        matched!(Queue, black_box(&queue), own => own.position()),
                                    ));
                                }
                                Ok(())
                            })).each(3),
                        ]);
                    }
                    let timeline = own.timeline("dispatched")?;
                    let fences: Vec<Fence> = (0..BURST).map(|_| own.fence("recorded")).collect();
                    let (value, fence) = (Cell::new(0), Cell::new(0));
                    let signal = || {
                        value.set(value.get() + 1);
                        timeline.signal_at(value.get())
                    };
                    let next = || {
                        fence.set((fence.get() + 1) % fences.len());
                        &fences[fence.get()]
                    };
                    macro_rules! submit {
                        ($to:expr) => {{
                            let submitted = $to.submit(&[], |_| Ok(()), &[signal()]);
                            submitted.map(drop).map_err(Stop::from)
                        }};
                    }
                    let gate = Gate::new(equipped, &queue, BURST);
                    let raced = lab.race(if what == RECORD {
                        vec![
                            Side::ours(|n| gate.calls(0, n, || Ok(black_box(&queue).record(next())?))).step(PART),
                            Side::raw(|n| gate.calls(1, n, || Ok(black_box(&own_queue).record(next())?))).step(PART),
                            Side::floor(|n| gate.calls(2, n, || {
                                Ok(matched!(Queue, black_box(&queue), own => own.record(next()))?)
                            })).step(PART),
                        ]
                    } else {
                        vec![
                            Side::ours(|n| gate.calls(0, n, || submit!(black_box(&queue)))).step(PART),
                            Side::raw(|n| gate.calls(1, n, || submit!(black_box(&own_queue)))).step(PART),
                            Side::floor(|n| gate.calls(2, n, || {
                                matched!(Queue, black_box(&queue), own => submit!(own))
                            })).step(PART),
                        ]
                    });
                    let opened = gate.open();
                    raced.and(opened)
                }
            )+
        }
    };
}

compared! {
    host;
    #[cfg(feature = "cuda")] cuda;
    #[cfg(feature = "vulkan")] vulkan;
}
