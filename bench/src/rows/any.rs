//! The enum over all backends.

use std::cell::Cell;
use std::hint::black_box;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Fence, Queue, QueueKind, Signal};
use syncline_conformance::Subject as _;
use syncline_conformance::workload::Equipped;

use super::gate::Gate;
use super::{Call, Floor, Row, Variant};
use crate::bar::Bar;
use crate::lab::{Lab, Outcome, Side, timed};
use crate::machine::On;

/// So many submissions are outstanding at the most.
const BURST: u64 = 64;

/// So many are made of one side at a time.
const PART: u64 = 8;

const SUBMIT: u64 = 0;
const RECORD: u64 = 1;
const ASK: u64 = 2;

pub(super) const ROWS: &[Row] = &[Row {
    id: "any.dispatch",
    ours: "submissions with one signal, records of fences, calls of the device, through the enums over all backends",
    raw: "the same on the backend's own types, and the same queue; it is held up meanwhile, so that nothing else runs",
    floor: Floor::Side(
        "the same on the backend's own types, behind a `match` by hand at each call: the least for who knows the backend only when it runs",
    ),
    bar: Bar::Over(5.0),
    on: &[On::Each],
    variants: &[
        Variant::new("submit", SUBMIT),
        Variant::new("record", RECORD),
        Variant::new("ask", ASK),
    ],
    run: dispatch,
}];

/// So many copies of each side's code are measured in turns: where a copy lies in the program makes
/// it some nanoseconds faster or slower.
const COPIES: usize = 8;

/// So many gates a copy is used, before it is the next one's turn.
const GATES: usize = 16;

/// What submits one signal to `$queue`, in [`COPIES`] copies.
macro_rules! submit {
    ($queue:ty) => {{
        #[inline(never)]
        fn submit<const COPY: usize>(queue: &$queue, signal: Signal<'_>) -> Outcome<()> {
            // What is the same would be merged.
            queue.submit(
                &[],
                |_| {
                    black_box(COPY);
                    Ok(())
                },
                &[signal],
            )?;
            Ok(())
        }
        let copies: [fn(&$queue, Signal<'_>) -> Outcome<()>; COPIES] = [
            submit::<0>,
            submit::<1>,
            submit::<2>,
            submit::<3>,
            submit::<4>,
            submit::<5>,
            submit::<6>,
            submit::<7>,
        ];
        copies
    }};
}

/// As [`submit`], behind a `match` by hand.
fn by_hand<const COPY: usize>(queue: &Queue, signal: Signal<'_>) -> Outcome<()> {
    macro_rules! submit_to {
        ($own:expr) => {
            $own.submit(
                &[],
                |_| {
                    black_box(COPY);
                    Ok(())
                },
                &[signal],
            )
        };
    }
    let submitted = match queue {
        Queue::Host(own) => submit_to!(own),
        #[cfg(feature = "cuda")]
        Queue::Cuda(own) => submit_to!(own),
        #[cfg(feature = "vulkan")]
        Queue::Vulkan(own) => submit_to!(own),
    };
    submitted?;
    Ok(())
}

const BY_HAND: [fn(&Queue, Signal<'_>) -> Outcome<()>; COPIES] = [
    by_hand::<0>,
    by_hand::<1>,
    by_hand::<2>,
    by_hand::<3>,
    by_hand::<4>,
    by_hand::<5>,
    by_hand::<6>,
    by_hand::<7>,
];

/// Evaluates `$body` with the backend's own value, by hand.
macro_rules! matched {
    ($of:ident, $value:expr, $own:ident => $body:expr) => {
        match $value {
            $of::Host($own) => $body,
            #[cfg(feature = "cuda")]
            $of::Cuda($own) => $body,
            #[cfg(feature = "vulkan")]
            $of::Vulkan($own) => $body,
        }
    };
}

fn dispatch(call: &Call<'_>, lab: &mut dyn Lab) -> Outcome<()> {
    let equipped = call.machine.equipped(call.subject.indices[0])?;
    match equipped.device() {
        Device::Host(own) => compared::host(call.n, lab, &equipped, own),
        #[cfg(feature = "cuda")]
        Device::Cuda(own) => compared::cuda(call.n, lab, &equipped, own),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(own) => compared::vulkan(call.n, lab, &equipped, own),
    }
}

/// A closure's argument is another type for each backend, so that this cannot be generic.
macro_rules! compared {
    ($($(#[$gate:meta])? $backend:ident;)+) => {
        mod compared {
            use super::*;
            $(
                $(#[$gate])?
                pub(super) fn $backend(
                    what: u64,
                    lab: &mut dyn Lab,
                    equipped: &Equipped,
                    own: &syncline::$backend::Device,
                ) -> Outcome<()> {
                    let device = equipped.device();
                    let own_queue = own.queue(QueueKind::Compute, "dispatched to")?;
                    let queue: Queue = own_queue.clone().into();
                    if what == ASK {
                        return lab.race_finely(vec![
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
                    let (any, of_own) = (submit!(Queue), submit!(syncline::$backend::Queue));
                    let gate = Gate::new(equipped, &queue, BURST);
                    // Each for some gates, so that the copy that is called is no stranger to the
                    // processor's caches.
                    let copy = || gate.number() / GATES % COPIES;
                    let raced = lab.race_finely(if what == RECORD {
                        vec![
                            Side::ours(|n| gate.calls(0, n, || Ok(black_box(&queue).record(next())?))).step(PART),
                            Side::raw(|n| gate.calls(1, n, || Ok(black_box(&own_queue).record(next())?))).step(PART),
                            Side::floor(|n| gate.calls(2, n, || {
                                Ok(matched!(Queue, black_box(&queue), own => own.record(next()))?)
                            })).step(PART),
                        ]
                    } else {
                        vec![
                            Side::ours(|n| gate.calls(0, n, || any[copy()](&queue, signal()))).step(PART),
                            Side::raw(|n| gate.calls(1, n, || of_own[copy()](&own_queue, signal()))).step(PART),
                            Side::floor(|n| gate.calls(2, n, || BY_HAND[copy()](&queue, signal()))).step(PART),
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
