//! One run of a scenario in the server process.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use syncline::Error;
use syncline::vulkan::Instance;

use crate::accounts::{Accounts, INSTANCE_THREAD};
use crate::gates::{Calls, Gates};
use crate::scenarios::{self, Scenario, Stop};
use crate::seams::{DESCRIPTORS, FewDescriptors};

/// The time in which threads and objects must be gone after a run.
const SETTLING: Duration = Duration::from_secs(3);

/// How a scenario ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ended {
    Well,
    /// An error with the call and its code, or with 0 and an empty name if it has none.
    Error {
        kind: String,
        call: String,
        code: i64,
        text: String,
    },
    /// It gave wrong data or a wrong answer.
    Wrong(String),
    Panicked(String),
    /// A call of the scenario itself failed.
    Own(String),
}

/// The result of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) ended: Ended,
    /// The number of calls that failed because of the order.
    pub(crate) failed: u64,
    /// Those of them that failed before the scenario dropped its objects.
    pub(crate) failed_early: u64,
    /// Panics on all threads.
    pub(crate) panics: Vec<String>,
    /// What is there more or less than before.
    pub(crate) left: Vec<String>,
    /// The end of a run without an order in the same process, if it was tried.
    pub(crate) again: Option<Ended>,
    pub(crate) milliseconds: u64,
    pub(crate) calls: BTreeMap<String, Calls>,
}

/// The step that drops all objects.
pub(crate) const DROPPING: &str = "dropping";

static GATES: OnceLock<Gates> = OnceLock::new();
/// The calls that had failed when the last step began.
static BEFORE_DROP: AtomicU64 = AtomicU64::new(0);
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static STEP: Mutex<&'static str> = Mutex::new("");

/// Records panics instead of printing them.
pub(crate) fn record_panics() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        panics.push(format!("thread {name}: {info}"));
    }));
}

/// Notes what the scenario does now, for the report of a hang.
///
/// The last step is [`DROPPING`], after which no call returns an error.
pub(crate) fn step(what: &'static str) {
    if what == DROPPING
        && BEFORE_DROP.load(Ordering::Relaxed) == u64::MAX
        && let Some(gates) = GATES.get()
    {
        let failed = gates.calls().values().map(|calls| calls.failed).sum();
        BEFORE_DROP.store(failed, Ordering::Relaxed);
    }
    *STEP.lock().unwrap_or_else(PoisonError::into_inner) = what;
}

/// The last step.
pub(crate) fn last_step() -> &'static str {
    *STEP.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended(scenario: &Scenario) -> Ended {
    match catch_unwind(AssertUnwindSafe(|| (scenario.run)())) {
        Ok(Ok(())) => Ended::Well,
        Ok(Err(Stop::Wrong(text))) => Ended::Wrong(text),
        Ok(Err(Stop::Peer(text))) => Ended::Error {
            kind: "Peer".into(),
            call: String::new(),
            code: 0,
            text,
        },
        Ok(Err(Stop::Own(text))) => Ended::Own(text),
        Ok(Err(Stop::Error(error))) => described(&error),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
            Ended::Panicked(text.unwrap_or_default())
        }
    }
}

fn described(error: &Error) -> Ended {
    let text = error.to_string();
    let root = error.root();
    let kind = match root {
        Error::Unavailable { .. } => "Unavailable",
        Error::Unsupported { .. } | Error::CannotShare { .. } => "Unsupported",
        _ if root.is_timeout() => "TimedOut",
        _ => "Other",
    };
    let kind = kind.to_owned();
    let (call, code) = match root {
        Error::Native { call, code, .. } | Error::DeviceLost { call, code, .. } => {
            ((*call).to_owned(), *code)
        }
        _ => (String::new(), 0),
    };
    Ended::Error {
        kind,
        call,
        code,
        text,
    }
}

/// The live objects of both drivers.
pub(crate) fn live_objects() -> BTreeMap<String, i64> {
    GATES.get().map(Gates::live).unwrap_or_default()
}

/// The gates of this process's drivers.
///
/// # Errors
/// A driver is missing.
fn gates() -> Result<&'static Gates, String> {
    if let Some(gates) = GATES.get() {
        return Ok(gates);
    }
    let found = Gates::find()?;
    Ok(GATES.get_or_init(|| found))
}

/// Limits the descriptors if the order is `descriptors:any:COUNT:24:always`.
fn few_descriptors(order: Option<&str>) -> Option<FewDescriptors> {
    let count = order?.strip_prefix(DESCRIPTORS)?.split(':').nth(2)?;
    Some(FewDescriptors::allow(count.parse::<u64>().ok()? - 1))
}

/// True if the order is for the call that makes the instance of the process.
///
/// A process makes it once, and it stays.
pub(crate) fn is_of_the_instance(order: &str) -> bool {
    order.starts_with("vkCreateInstance:")
}

/// Makes the instance of the process, and what its drivers make with the first device.
///
/// The drivers' threads stay as long as the instance, and get the name of the thread that makes it.
fn make_instance() {
    let make = || drop(Instance::load().and_then(|instance| instance.open_first()));
    let making = thread::Builder::new().name(INSTANCE_THREAD.into());
    // A panic shows in the run that follows, which makes the instance then.
    let _ = making.spawn(make).map(JoinHandle::join);
}

/// Runs the scenario with the order, and once more without it if nothing is left over.
pub(crate) fn run(scenario: &Scenario, order: Option<&str>) -> Result<Outcome, String> {
    let gates = gates()?;
    if !order.is_some_and(is_of_the_instance) {
        make_instance();
    }
    let before = Accounts::at_rest(gates);
    PANICS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
    let started = Instant::now();
    let few = few_descriptors(order);
    gates.begin(order.filter(|_| few.is_none()))?;
    BEFORE_DROP.store(u64::MAX, Ordering::Relaxed);
    let result = ended(scenario);
    step("the end of threads, and objects that go later");
    let calls = gates.calls();
    let out_of_descriptors = u64::from(few.is_some());
    drop(few);
    if order.is_some_and(|order| order.contains(":lost")) {
        // A device stays lost until threads of the library have let go of it. Its streams may wait
        // for signals that never come, and a destroy would wait for them if it had an effect.
        Accounts::settle(gates, &before, SETTLING);
    }
    let failed = gates.end() + out_of_descriptors;
    let failed_early = failed.min(BEFORE_DROP.load(Ordering::Relaxed));
    let left = Accounts::settle(gates, &before, SETTLING);
    let milliseconds = started.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
    let again = order.is_some().then(|| {
        step("the same without a failing call");
        make_instance();
        let before = Accounts::at_rest(gates);
        scenarios::process::last_words();
        let mut again = ended(scenario);
        if let Ended::Error { text, .. } = &mut again {
            text.push_str("; the other process: ");
            text.push_str(&scenarios::process::last_words());
        }
        match Accounts::settle(gates, &before, SETTLING) {
            left if left.is_empty() => again,
            left => Ended::Wrong(format!(
                "{} is there after a run without an order",
                left.join(", ")
            )),
        }
    });
    let panics = std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Outcome {
        ended: result,
        failed,
        failed_early,
        panics,
        left,
        again,
        milliseconds,
        calls,
    })
}
