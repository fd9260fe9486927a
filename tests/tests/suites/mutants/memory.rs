//! State of some bugs, and how they use it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use syncline::clock::{Elapsed, Time};
use syncline::{
    Error, Result, Timeline,
    error::Object,
    wait::{Blockers, Stage},
};

use super::backend::PlantedQueue;
use super::bugs::Bug;
use super::lock;

/// State of some bugs.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) reads: AtomicU64,
    pub(crate) waiting: AtomicUsize,
    pub(crate) timelines: Mutex<Vec<Timeline>>,
    /// The last cause that each timeline was failed with, by the timeline's id.
    pub(crate) causes: Mutex<HashMap<u64, Error>>,
    /// The timelines whose failure was reported.
    told: Mutex<HashSet<u64>>,
    /// The queue that replaces all others.
    pub(crate) queue: OnceLock<PlantedQueue>,
    /// Memory that nothing uses.
    pub(crate) leaked: Mutex<Vec<[u8; 512]>>,
    /// An imported descriptor, and the system's name of its object.
    imported: Mutex<Option<(RawFd, String)>>,
    /// The error of each clock's first conversion, by the clock's id.
    pub(crate) errors: Mutex<HashMap<u64, u64>>,
    /// What the last started stopwatch had returned before.
    pub(crate) before: Mutex<Option<Elapsed>>,
    /// The latest time that a point has returned.
    pub(crate) latest: Mutex<Option<Time>>,
    /// The fences that were recorded.
    pub(crate) recorded: Mutex<HashSet<u64>>,
}

thread_local! {
    /// The signals that this thread made since its last submission.
    pub(crate) static SIGNALS: RefCell<Vec<(Timeline, u64)>> = const { RefCell::new(Vec::new()) };
}

impl Memory {
    /// Changes the result of a wait by a bug of failures.
    pub(crate) fn told(&self, bug: Bug, ended: Result<()>, timeout: Duration) -> Result<()> {
        let Err(Error::Failed {
            timeline,
            value,
            cause,
            ..
        }) = ended
        else {
            return ended;
        };
        let failed = |cause| Err(Error::failed(&timeline, value, cause));
        match bug {
            Bug::FailureIsSuccess => Ok(()),
            Bug::FailureToldOnce if !lock(&self.told).insert(timeline.id()) => {
                Err(timed_out(&timeline, value, timeout))
            }
            Bug::LastCauseWins => match lock(&self.causes).get(&timeline.id()) {
                Some(last) => failed(Arc::new(last.clone())),
                None => failed(cause),
            },
            Bug::CauseIsReplaced if !lock(&self.causes).contains_key(&timeline.id()) => {
                failed(Arc::new(Error::NothingToWaitFor))
            }
            Bug::ErrorsNameNobody => Err(Error::failed(Object::new("timeline", ""), value, cause)),
            _ => failed(cause),
        }
    }

    /// Notes that the descriptor `number` is imported.
    ///
    /// Returns the number of the one imported before, if its owner has closed it since.
    pub(crate) fn closed_before(&self, number: RawFd) -> Option<RawFd> {
        let mut imported = lock(&self.imported);
        // Until it is closed, its number stands for the same object.
        let closed = imported
            .take_if(|(before, behind)| behind_descriptor(*before).as_ref() != Some(behind));
        if let Some(behind) = behind_descriptor(number) {
            *imported = Some((number, behind));
        }
        closed.map(|(before, _)| before)
    }
}

/// Identifies the system's object behind an eventfd.
fn behind_descriptor(number: RawFd) -> Option<String> {
    let all = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let line = all.lines().find(|line| line.starts_with("eventfd-id:"))?;
    Some(line.to_owned())
}

pub(crate) fn timed_out(object: &Object, value: u64, waited: Duration) -> Error {
    Error::timed_out(
        object,
        Stage::Reached,
        value,
        0,
        0,
        waited,
        Blockers::default(),
    )
}
