//! Scenarios with defects, which the program must find. They run only if they are named.

use std::time::Duration;

use syncline::backend::Device as _;
use syncline::{QueueKind, cuda::Driver};

use super::{Scenario, Verdict, cuda, events};
use crate::one_run::step;

pub(super) static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "self.deaf",
        run: deaf,
    },
    Scenario {
        name: "self.leaks",
        run: leaks,
    },
    Scenario {
        name: "self.hangs",
        run: hangs,
    },
];

/// Ignores an error.
fn deaf() -> Verdict {
    let _ = Driver::load()?.devices();
    Ok(())
}

/// Leaks a descriptor after an error.
fn leaks() -> Verdict {
    let device = cuda::open()?;
    let notice = events::EventFd::new()?;
    let queue = device.queue(QueueKind::Compute, "queue");
    if queue.is_err() {
        std::mem::forget(notice);
    }
    queue?;
    Ok(())
}

/// Waits for ever after an error.
fn hangs() -> Verdict {
    step("a hang on purpose");
    let devices = Driver::load()?.devices();
    while devices.is_err() {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
