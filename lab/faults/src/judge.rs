//! Judges a run.

use std::fmt;

use crate::client::Answer;
use crate::one_run::Ended;
use crate::plan::Run;
use crate::{codes, seams};

/// What a run shows. The later ones are defects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The call did not come, as threads take turns differently in each run.
    NotReached,
    /// A typed error with the call and its code.
    Typed,
    /// A typed error whose text has the call and its code.
    InWords,
    /// The scenario ended well, and the list of benign failures has the function.
    Benign,
    /// The scenario ended well although a call failed.
    Unreported,
    /// An error without the call or its code.
    Untyped,
    /// A wait timed out.
    TimedOut,
    Wrong,
    Panicked,
    Left,
    /// The same process could not run the scenario again.
    NotAgain,
    Hung,
    Crashed,
}

impl Class {
    pub(crate) const ALL: [Self; 13] = [
        Self::NotReached,
        Self::Typed,
        Self::InWords,
        Self::Benign,
        Self::Unreported,
        Self::Untyped,
        Self::TimedOut,
        Self::Wrong,
        Self::Panicked,
        Self::Left,
        Self::NotAgain,
        Self::Hung,
        Self::Crashed,
    ];

    pub(crate) fn is_defect(self) -> bool {
        self > Self::Benign
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReached => "not reached",
            Self::Typed => "typed",
            Self::InWords => "in words",
            Self::Benign => "benign",
            Self::Unreported => "unreported",
            Self::Untyped => "untyped",
            Self::TimedOut => "timed out",
            Self::Wrong => "wrong",
            Self::Panicked => "panicked",
            Self::Left => "left",
            Self::NotAgain => "not again",
            Self::Hung => "hung",
            Self::Crashed => "crashed",
        })
    }
}

/// Functions whose failure need not be reported, and why.
const BENIGN: &[(&str, &str)] = &[
    ("cuGetErrorName", "only the name of a code is missing then"),
    ("cuCtxPopCurrent_v2", "the caller's context is set again"),
    (
        "cuThreadExchangeStreamCaptureMode",
        "calls then fail during a global capture only",
    ),
    ("cuDriverGetVersion", "only a description lacks the version"),
    (
        "cuDeviceGetUuid",
        "only the UUID of the whole GPU is missing",
    ),
    ("cuDeviceGetLuid", "only the LUID is missing then"),
    ("cuLaunchKernelEx", "another kernel is launched instead"),
    (
        "cuCtxSetCurrent",
        "the caller's context, which no drop can report",
    ),
    ("cuFuncLoad", "the first launch loads the function"),
];

/// True if a failure need not be reported.
fn is_benign(run: &Run) -> bool {
    let function = run.function.as_str();
    match function {
        // The check that the caller's context is current again.
        "cuCtxGetCurrent" => run.mode == "once" || run.order.contains(":other:"),
        // The watching thread or the next poll asks again. A poll keeps what it has found, also if
        // a later query fails.
        "cuEventQuery" => run.mode == "once",
        // A second kernel for times of newer GPUs. The first one serves, too.
        "cuModuleLoadDataEx" | "cuModuleGetFunction" => {
            run.order.contains(":other:2:") || (run.scenario == "cuda.refused" && run.code == 218)
        }
        // The end of the last sample, which is known otherwise if the stream is gone.
        "cuStreamQuery" => run.order.contains(":other:") && run.scenario == "cuda.clock",
        // The thread polls instead.
        "vkWaitSemaphores" => run.code != codes::DEVICE_LOST,
        // The value is asked again, or the wait has ended already.
        "vkGetSemaphoreCounterValue" => run.code != codes::DEVICE_LOST,
        // The best of up to eight readings counts, and the next sample follows that of the making.
        "vkGetCalibratedTimestampsEXT" => run.mode == "once" || !run.order.contains(":main:1:"),
        // They write the time that checks the clock. The making of a clock tries that, and the next
        // sample tries it again and returns the error, if there is still one.
        "vkCreateCommandPool"
        | "vkCreateQueryPool"
        | "vkCreateSemaphore"
        | "vkAllocateCommandBuffers"
        | "vkBeginCommandBuffer"
        | "vkEndCommandBuffer"
        | "vkQueueSubmit"
        | "vkGetQueryPoolResults" => run.scenario == "vulkan.clock" && run.mode == "once",
        // It ends a watch early, which also ends by its time limit. A wait for a signal of the
        // application would time out.
        "vkSignalSemaphore" => !run.mode.starts_with("lost"),
        // A block that private buffers would share. The buffer gets memory of its own instead.
        "vkAllocateMemory" | "vkMapMemory" => {
            let private = ["submit", "waits", "fences", "memory", "images"];
            let scenario = run.scenario.split_once('.');
            scenario.is_some_and(|(_, name)| private.contains(&name))
                && ["once", "closes"].contains(&run.mode)
        }
        // An attribute that the driver does not know.
        "cuDeviceGetAttribute" => run.code == 1,
        _ => codes::ends(function) || BENIGN.iter().any(|(name, _)| *name == function),
    }
}

/// What may be left after a failing call, and the reason: the driver was asked to end it.
fn may_leave(run: &Run, line: &str) -> bool {
    let function = run.function.as_str();
    // The scenario has left a context on the thread's stack itself.
    if run.scenario == "cuda.foreign" && line == "+1 current context" {
        return ["cuCtxPopCurrent_v2", "cuCtxSetCurrent"].contains(&function);
    }
    // The other process signals no more. The signal that frees the waiting queue needs the call.
    let frees = [
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
        "cuEventCreate",
        "cuEventQuery",
        "cuEventRecord",
        "cuSignalExternalSemaphoresAsync",
        "cuStreamCreate",
        "vkGetSemaphoreCounterValue",
        "vkQueueSubmit",
        "vkSignalSemaphore",
    ];
    let is_of_two = run.scenario.starts_with("process.");
    if is_of_two && run.mode == "always" && frees.contains(&function) {
        return true;
    }
    // Memory of the software driver is a file, also while only a mapping keeps it.
    let is_memory = function.contains("Mem") || function == "vkFreeMemory";
    let names = ["cuda ", "vulkan "].iter();
    let is_object = line.starts_with("+")
        && (names.clone().any(|name| line.contains(name))
            || is_memory && line.contains("/memfd:syncline-software-memory"));
    codes::ends(function) && !run.mode.starts_with("lost") && is_object
}

/// Judges the answer to a run, with the reason in words.
pub(crate) fn judge(run: &Run, answer: &Answer) -> (Class, String) {
    let outcome = match answer {
        Answer::Outcome(outcome) => outcome,
        Answer::Hang(text) => return (Class::Hung, text.clone()),
        Answer::Crash(text) => return (Class::Crashed, text.clone()),
    };
    let (ended, why) = of_end(run, &outcome.ended);
    if let Some(panic) = outcome.panics.first() {
        return (Class::Panicked, panic.clone());
    }
    let in_drop = outcome.ended == Ended::Well && outcome.failed_early == 0;
    let (ended, why) = if in_drop && outcome.failed > 0 {
        (Class::Benign, "a good end, with a failure in a drop".into())
    } else {
        (ended, why)
    };
    if outcome.failed == 0 {
        let why = match &outcome.ended {
            Ended::Well => String::new(),
            other => format!("{other:?}"),
        };
        let class = if outcome.ended == Ended::Well && outcome.left.is_empty() {
            Class::NotReached
        } else {
            Class::Wrong
        };
        return (class, why);
    }
    if ended > Class::Untyped {
        return (ended, why);
    }
    let left: Vec<_> = outcome
        .left
        .iter()
        .filter(|line| !may_leave(run, line))
        .cloned()
        .collect();
    if !left.is_empty() {
        return (Class::Left, format!("{} after {why}", left.join(", ")));
    }
    if outcome.left.is_empty()
        && let Some(again @ (Ended::Wrong(_) | Ended::Error { .. } | Ended::Panicked(_))) =
            &outcome.again
    {
        return (Class::NotAgain, format!("{again:?}"));
    }
    (ended, why)
}

fn of_end(run: &Run, ended: &Ended) -> (Class, String) {
    // The work may be done by other threads, or with fewer descriptors.
    if run.function == seams::THREADS || run.function == seams::DESCRIPTORS {
        match ended {
            Ended::Well => return (Class::Benign, "a good end".into()),
            // Drivers have no code for it.
            Ended::Error { call, text, .. }
                if run.function == seams::DESCRIPTORS
                    && !call.is_empty()
                    && !["descriptors left", "os error 24"]
                        .iter()
                        .any(|part| text.contains(part)) =>
            {
                return (Class::Untyped, text.clone());
            }
            Ended::Error { kind, text, .. } if kind != "TimedOut" => {
                return (Class::Typed, text.clone());
            }
            _ => {}
        }
    }
    match ended {
        Ended::Own(text) => (Class::NotReached, text.clone()),
        Ended::Error { kind, text, .. } if kind == "Unsupported" && is_benign(run) => {
            (Class::Benign, text.clone())
        }
        Ended::Wrong(text) if run.function == "cuDeviceGetAttribute" && is_benign(run) => {
            (Class::Benign, text.clone())
        }
        Ended::Well if is_benign(run) => (Class::Benign, "a good end".into()),
        Ended::Well => (Class::Unreported, "a good end".into()),
        Ended::Wrong(text) => (Class::Wrong, text.clone()),
        Ended::Panicked(text) => (Class::Panicked, text.clone()),
        Ended::Error { kind, text, .. } if kind == "TimedOut" => (Class::TimedOut, text.clone()),
        Ended::Error {
            call, code, text, ..
        } => {
            // The loader lists the extensions once more in that call.
            let is_of_loader =
                call == "vkCreateDevice" && run.function == "vkEnumerateDeviceExtensionProperties";
            let is_it = is_of_loader
                || call.contains(run.function.as_str())
                || run.function.contains(call.as_str());
            let class = if !call.is_empty() && is_it && *code == i64::from(run.code) {
                Class::Typed
            } else if run.mode.starts_with("lost") && *code == i64::from(run.code) {
                // Another call has met the lost device first.
                Class::Typed
            } else if run.mode.starts_with("lost") && text.contains(&run.code.to_string()) {
                // The same, as another process has told it.
                Class::InWords
            } else if text.contains(run.function.as_str()) && text.contains(&run.code.to_string()) {
                Class::InWords
            } else {
                Class::Untyped
            };
            (class, text.clone())
        }
    }
}
