//! Scenarios of CUDA.
#![allow(
    unsafe_code,
    reason = "captures streams and adopts handles, as an application does"
)]

mod adopt;
mod capture;
mod clock;
mod counters;
mod memory;
mod queues;
mod slots;

use syncline::cuda::{Device, Driver, sys};
use syncline::{Error, info::BackendKind};

pub(super) use counters::made;
pub(crate) use slots::captured;

use super::{PATIENCE, Scenario, Stop, Verdict, events, expect, vulkan};
use crate::one_run::{DROPPING, step};

pub(super) static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "cuda.submit",
        run: queues::submit,
    },
    Scenario {
        name: "cuda.waits",
        run: queues::waits,
    },
    Scenario {
        name: "cuda.notices",
        run: queues::notices,
    },
    Scenario {
        name: "cuda.fences",
        run: queues::fences,
    },
    Scenario {
        name: "cuda.clock",
        run: clock::clock,
    },
    Scenario {
        name: "cuda.memory",
        run: memory::memory,
    },
    Scenario {
        name: "cuda.copies",
        run: memory::copies,
    },
    Scenario {
        name: "cuda.refused",
        run: memory::refused,
    },
    Scenario {
        name: "cuda.capture",
        run: capture::capture,
    },
    Scenario {
        name: "cuda.slots",
        run: slots::slots,
    },
    Scenario {
        name: "cuda.counter",
        run: counters::counter,
    },
    Scenario {
        name: "cuda.word",
        run: counters::word,
    },
    Scenario {
        name: "cuda.adopt",
        run: adopt::adopt,
    },
    Scenario {
        name: "cuda.foreign",
        run: adopt::foreign,
    },
    Scenario {
        name: "cuda.cuda",
        run: counters::two_devices,
    },
    Scenario {
        name: "cuda.exports",
        run: memory::exports,
    },
    Scenario {
        name: "cuda.event",
        run: queues::event,
    },
];

/// Opens the first device, without the other backends of an inventory.
pub(super) fn open() -> Verdict<Device> {
    step("opening CUDA");
    let candidates = Driver::load()?.devices()?;
    let first = candidates
        .first()
        .ok_or_else(|| Error::unavailable(BackendKind::Cuda, "no device"))?;
    Ok(first.open()?)
}

/// A call of the application itself, which never fails by an order.
fn done(call: &str, result: sys::CUresult) -> Verdict {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(Stop::Own(format!("{call} returned {other:?}"))),
    }
}
