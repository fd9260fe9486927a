//! What a process has before and after a run: threads, descriptors, driver objects.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fs, thread};

use crate::gates::Gates;

/// The thread that makes the instance of the process. Threads of drivers get its name, too.
pub(crate) const INSTANCE_THREAD: &str = "faults-instance";

/// Threads that the software drivers start and end by themselves, and the server's own.
const DRIVERS_OWN: [&str; 4] = [
    "software-cuda",
    "llvmpipe",
    "faults-watchdog",
    INSTANCE_THREAD,
];

/// Counts by names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accounts(BTreeMap<String, i64>);

impl Accounts {
    pub(crate) fn take(gates: &Gates) -> Self {
        let mut all = gates.live();
        for name in named_threads() {
            *all.entry(format!("thread {name}")).or_default() += 1;
        }
        for target in descriptors() {
            *all.entry(format!("descriptor {target}")).or_default() += 1;
        }
        all.insert("current context".into(), i64::from(gates.has_context()));
        all.retain(|_, count| *count != 0);
        Self(all)
    }

    /// Takes accounts once the threads of earlier runs have ended, or after a second.
    pub(crate) fn at_rest(gates: &Gates) -> Self {
        let until = Instant::now() + Duration::from_secs(1);
        let is_of_a_device =
            |name: &String| name.starts_with("syncline-") && name != "syncline-faults";
        while named_threads().iter().any(is_of_a_device) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        Self::take(gates)
    }

    /// What `self` has more or less than `before`.
    pub(crate) fn differences(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        let names = self
            .0
            .keys()
            .chain(before.0.keys().filter(|name| !self.0.contains_key(*name)));
        for name in names {
            let count = |accounts: &Self| accounts.0.get(name).copied().unwrap_or(0);
            let more = count(self) - count(before);
            if more != 0 {
                lines.push(format!("{more:+} {name}"));
            }
        }
        lines
    }

    /// Takes accounts until they are as before, for at most the given time.
    pub(crate) fn settle(gates: &Gates, before: &Self, patience: Duration) -> Vec<String> {
        let until = Instant::now() + patience;
        loop {
            let lines = Self::take(gates).differences(before);
            // A thread ends a moment after what it kept is gone.
            if lines.is_empty() || Instant::now() >= until {
                return lines;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Threads that start have the name of the process for a moment. Waits for their own.
fn named_threads() -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        let names = threads();
        let unnamed = names.iter().filter(|name| *name == "syncline-faults");
        if unnamed.count() <= 1 || Instant::now() >= until {
            return names;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    let names = names.map(|name| name.trim_end().to_owned());
    let ours = |name: &String| {
        !DRIVERS_OWN.iter().any(|own| name.starts_with(own)) && !name.contains(":disk$")
    };
    names.filter(ours).collect()
}

/// The targets of all descriptors, without numbers that differ from run to run.
fn descriptors() -> Vec<String> {
    let files = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    let texts = targets.map(|target| target.to_string_lossy().into_owned());
    let texts = texts.filter(|text| !text.ends_with("/fd"));
    texts
        .map(|text| {
            text.chars()
                .map(|c| if c.is_ascii_digit() { '#' } else { c })
                .collect()
        })
        .collect()
}
