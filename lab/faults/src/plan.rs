//! The runs: which call fails in which way.

use std::collections::BTreeMap;

use crate::codes;
use crate::gates::{Calls, Side};
use crate::seams;

/// Calls of one function in one scenario beyond this number are like the earlier ones.
const ON_MAIN: u64 = 40;
/// Polls and calls of other threads differ from run to run.
const POLLS: u64 = 3;
const ON_OTHERS: u64 = 6;

const POLLING: [&str; 8] = [
    "cuEventQuery",
    "cuStreamQuery",
    "cuStreamGetCaptureInfo_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxGetCurrent",
    "cuThreadExchangeStreamCaptureMode",
    "vkGetSemaphoreCounterValue",
];

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) scenario: &'static str,
    pub(crate) function: String,
    pub(crate) code: i32,
    pub(crate) mode: &'static str,
    pub(crate) order: String,
}

/// Runs that have shown a defect of the library, by their scenarios and orders.
const REGRESSIONS: [(&str, &str); 13] = [
    // The failed queue kept its device for ever.
    ("cuda.submit", "cuEventRecord:main:1:400:always"),
    ("cuda.submit", "cuEventQuery:main:1:400:always"),
    ("vulkan.submit", "vkQueueSubmit:main:1:-1:always"),
    // A feature counted as missing.
    ("cuda.clock", "cuDeviceGetAttribute:main:1:101:once"),
    (
        "vulkan.clock",
        "vkGetPhysicalDeviceCalibrateableTimeDomainsEXT:main:1:-1:once",
    ),
    // The error did not name the call or its code.
    ("vulkan.submit", "vkCreateInstance:main:1:-1:once"),
    ("vulkan.submit", "vkEnumeratePhysicalDevices:main:1:-1:once"),
    // The query before a record failed, and the record was made.
    ("cuda.adopt", "cuStreamGetCaptureInfo_v2:main:1:400:once"),
    // A descriptor that the driver had closed was closed again.
    ("vulkan.vulkan", "vkAllocateMemory:main:3:-2:closes"),
    ("vulkan.vulkan", "vkImportSemaphoreFdKHR:main:1:-1:closes"),
    ("vulkan.vulkan", "vkImportSemaphoreFdKHR:main:2:-1:closes"),
    ("cuda.vulkan", "cuImportExternalSemaphore:main:1:304:closes"),
    // The processes did not know each other by different start times.
    ("process.counter", "descriptors:any:5:24:always"),
];

/// Those of `runs` that have shown a defect before.
pub(crate) fn regressions(runs: &[Run]) -> Vec<Run> {
    let is_known = |run: &&Run| {
        let known = (run.scenario, run.order.as_str());
        REGRESSIONS.contains(&known)
    };
    runs.iter().filter(is_known).cloned().collect()
}

/// Descriptors that a scenario can have at a time, at most.
const DESCRIPTORS: u64 = 16;

/// Runs in which a scenario can have only so many descriptors.
pub(crate) fn without_descriptors(scenario: &'static str) -> impl Iterator<Item = Run> {
    (1..=DESCRIPTORS).map(move |number| Run {
        scenario,
        function: seams::DESCRIPTORS.into(),
        code: libc::EMFILE,
        mode: "always",
        order: format!(
            "{}:any:{number}:{}:always",
            seams::DESCRIPTORS,
            libc::EMFILE
        ),
    })
}

/// All runs of a scenario, from the calls that it made in a run without an order.
pub(crate) fn runs(scenario: &'static str, calls: &BTreeMap<String, Calls>) -> Vec<Run> {
    let mut runs = Vec::new();
    for (function, calls) in calls {
        for (threads, count, most) in [
            ("main", calls.main, ON_MAIN),
            ("other", calls.other, ON_OTHERS),
        ] {
            let most = if POLLING.contains(&function.as_str()) {
                POLLS
            } else {
                most
            };
            for call in 1..=count.min(most) {
                for (code, mode) in ways(function) {
                    let tail = if mode.starts_with("lost") {
                        lost(function)
                    } else {
                        String::new()
                    };
                    runs.push(Run {
                        scenario,
                        function: function.clone(),
                        code,
                        mode,
                        order: format!("{function}:{threads}:{call}:{code}:{mode}{tail}"),
                    });
                }
            }
        }
    }
    runs
}

fn lost(function: &str) -> String {
    match Side::of(function) {
        Side::Cuda => format!(":{}", codes::lost_cuda()),
        Side::Vulkan => format!(":{}", codes::LOST_VULKAN),
    }
}

/// The codes of a function, each with the ways in which it can fail with them.
fn ways(function: &str) -> Vec<(i32, &'static str)> {
    let mut ways = Vec::new();
    for (nth, &code) in codes::of(function).iter().enumerate() {
        if codes::is_sticky(code) {
            // An error of earlier work says nothing of this call. A query has no effect.
            // A call that creates nothing and asks nothing may have taken effect.
            if !POLLING.contains(&function) && !codes::creates(function) {
                ways.push((code, "lost-after"));
            }
            ways.push((code, "lost"));
            continue;
        }
        ways.push((code, "once"));
        if nth == 0 && codes::imports(function) {
            ways.push((code, "closes"));
        }
        if nth == 0 {
            ways.push((code, "always"));
        }
    }
    ways
}
