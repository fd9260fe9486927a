//! Calls that fail because of a setting, or because a test ordered it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use syncline_software_payload::{Gate, Verdict as Ordered, check_exit};

use crate::code::{Answer, Code};
use crate::settings::{Effect, settings};

/// How a call continues.
pub(crate) enum Verdict {
    Runs,
    /// It fails and has no effect.
    Fails(Code),
    /// It fails although it took effect.
    RunsAndFails(Code),
    /// It runs, and fails where it would take a descriptor: see [`refuse`].
    Closes,
}

/// The orders of a test in this process.
pub(crate) static GATE: Gate = Gate::new();

/// The number of calls of the function that is to fail.
static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The code with which the import that runs on this thread fails.
    static REFUSAL: Cell<Option<Code>> = const { Cell::new(None) };
}

/// Closes the descriptor of an import that is ordered to fail so.
pub(crate) fn refuse(descriptor: i32) -> Answer {
    let Some(code) = REFUSAL.take() else {
        return Ok(());
    };
    GATE.close(descriptor);
    Err(code)
}

pub(crate) fn end_refusal() {
    REFUSAL.take();
}

/// Counts a call of the function `name`, and returns whether it fails.
pub(crate) fn before(name: &'static str) -> Verdict {
    check_exit(name);
    let code = |code: i32| Code::from_number(code.cast_unsigned());
    match GATE.before(name) {
        Ordered::Runs => {}
        Ordered::Fails(number) => return Verdict::Fails(code(number)),
        Ordered::RunsAndFails(number) => return Verdict::RunsAndFails(code(number)),
        Ordered::Closes(number) => {
            REFUSAL.set(Some(code(number)));
            return Verdict::Closes;
        }
    }
    let Some(fail) = settings().ok().and_then(|settings| settings.fail.as_ref()) else {
        return Verdict::Runs;
    };
    if fail.function != name {
        return Verdict::Runs;
    }
    let call = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
    match fail.effect {
        Effect::None if call == fail.call => Verdict::Fails(fail.code),
        Effect::NoneFromThere if call >= fail.call => Verdict::Fails(fail.code),
        Effect::Full if call == fail.call => Verdict::RunsAndFails(fail.code),
        _ => Verdict::Runs,
    }
}

/// Returns the number of calls of the function that is to fail.
pub(crate) fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}
