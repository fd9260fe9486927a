//! Bugs that the environment can plant, to show that tests catch them.
//!
//! Without the environment variable the layer has none of them.

use std::sync::LazyLock;

use syncline_software_payload::bugs;

/// The environment variable that plants a bug.
const VARIABLE: &str = "SYNCLINE_SOFTWARE_LAYER_BUG";

bugs! {
    /// A queue does not wait for a shared semaphore.
    ForgetsWait = "forgets-wait";
    /// A queue signals a shared semaphore when the signal is submitted, before the work.
    SignalsBeforeTheWork = "signals-before-the-work";
    /// A queue signals a shared timeline to one more than the requested value.
    SignalsTooHigh = "signals-too-high";
    /// The last value of a queue is visible in its process, and does not reach the others.
    ///
    /// It is lost at the exit.
    LosesLastValue = "loses-last-value";
    /// A signal of the host sets a shared semaphore to one more than the requested value.
    HostSignalsTooHigh = "host-signals-too-high";
    /// A signal of a binary semaphore has no effect while an earlier one has not been made.
    SignalsInTurn = "signals-in-turn";
    /// A signal of the host has no effect on a shared semaphore.
    ForgetsHostSignal = "forgets-host-signal";
    /// A shared semaphore that is exported is a new one.
    ExportsAnother = "exports-another";
    /// Memory that is exported is new memory.
    ExportsOtherMemory = "exports-other-memory";
    /// A buffer is bound to the beginning of shared memory, whatever its offset.
    IgnoresOffset = "ignores-offset";
    /// Command buffers release no shared memory, as the layer follows them.
    OwnershipNotReleased = "ownership-not-released";
    /// Command buffers release no shared image, as the layer follows them.
    ImageNotReleased = "image-not-released";
    /// The release of a shared image leaves its layout as it is, as the layer follows it.
    ImageLayoutNotReleased = "image-layout-not-released";
    /// Calibrated timestamps read a counter that is 5 ms ahead of the one that queues write.
    CalibratesAnotherClock = "calibrates-another-clock";
}

impl Bug {
    /// True if the environment has planted this bug.
    pub(crate) fn is_planted(self) -> bool {
        planted() == Ok(Some(self))
    }
}

/// Returns the bug that the environment has planted, or an error. Reads the variable once.
pub(crate) fn planted() -> Result<Option<Bug>, &'static str> {
    static PLANTED: LazyLock<Result<Option<Bug>, String>> = LazyLock::new(|| {
        let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
        let bug = name.map(|name| {
            Bug::from_name(&name).map_err(|reason| format!("{VARIABLE}={name}: {reason}"))
        });
        bug.transpose()
    });
    PLANTED.as_ref().map(|bug| *bug).map_err(String::as_str)
}
