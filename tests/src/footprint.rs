//! What the process has of the system, for cases in which a second round must grow nothing.

use std::fmt;
use std::time::{Duration, Instant};

use crate::case::Stop;
use crate::{Verdict, patience};

/// How much memory a round may grow the process by, in KiB: what allocators and drivers round up to.
/// A leak of 64 bytes shows once a round makes 32 768 of what leaks.
const SLACK: u64 = 2 << 10;

/// How many rounds are tried: what allocators do by chance does not happen in each of them, a leak does.
const ROUNDS: usize = 5;

/// What the process has at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Open file descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Memory that is in RAM, in KiB.
    pub memory: u64,
}

impl Footprint {
    /// Asks the system.
    ///
    /// # Errors
    /// A skip where there is no `/proc`.
    pub fn now() -> Result<Self, Stop> {
        let missing =
            |error: std::io::Error| Stop::Skipped(format!("no /proc to count in: {error}"));
        let status = std::fs::read_to_string("/proc/self/status").map_err(missing)?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.ok_or_else(|| Stop::Skipped(format!("/proc/self/status has no {name}")))
        };
        Ok(Self {
            // The listing itself is open while it is read.
            descriptors: std::fs::read_dir("/proc/self/fd").map_err(missing)?.count() - 1,
            threads: number("Threads:")? as usize,
            memory: number("VmRSS:")?,
        })
    }

    /// True if this one has more of anything than `before`, beyond the slack.
    #[must_use]
    pub const fn exceeds(&self, before: &Self) -> bool {
        self.has_more(before) || self.memory > before.memory + SLACK
    }

    const fn has_more(&self, before: &Self) -> bool {
        self.descriptors > before.descriptors || self.threads > before.threads
    }

    /// That of now, once there are no more descriptors and threads than `before`: threads that have been
    /// told to end need a moment for it. What is still there when patience is over, stays.
    fn settled(before: &Self) -> Result<Self, Stop> {
        let deadline = Instant::now() + patience();
        loop {
            let now = Self::now()?;
            if !now.has_more(before) || Instant::now() > deadline {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads, {} KiB",
            self.descriptors, self.threads, self.memory
        )
    }
}

/// Runs `round` again and again. After the first, in which pools grow, one must leave no more open
/// descriptors, no more threads and no more memory than the one before it.
///
/// # Errors
/// What `round` ends in; that every round grows something.
pub fn grows_nothing(mut round: impl FnMut() -> Verdict) -> Verdict {
    round()?;
    let mut history = vec![Footprint::now()?];
    for _ in 1..ROUNDS {
        round()?;
        let before = history[history.len() - 1];
        let after = Footprint::settled(&before)?;
        history.push(after);
        if !after.exceeds(&before) {
            return Ok(());
        }
        if after.has_more(&before) && history.len() > 2 {
            // Each such round costs all patience; two are no chance.
            break;
        }
    }
    let history: Vec<_> = history.iter().map(ToString::to_string).collect();
    Stop::fail(format!("every round grows: {}", history.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_no_growth() {
        let round = || {
            let file = std::fs::File::open("/proc/self/exe");
            let thread = std::thread::spawn(move || drop(file));
            drop(thread);
            Ok(())
        };
        assert!(grows_nothing(round).is_ok());
    }

    #[test]
    fn each_kind_of_leak_is_growth() {
        let before = Footprint {
            descriptors: 10,
            threads: 3,
            memory: 5000,
        };
        let (mut descriptor, mut thread, mut memory) = (before, before, before);
        assert!(!before.exceeds(&before));
        descriptor.descriptors += 1;
        thread.threads += 1;
        memory.memory += SLACK + 1;
        for after in [descriptor, thread, memory] {
            assert!(after.exceeds(&before), "{after} is no more than {before}");
        }
    }

    #[test]
    fn memory_that_stays_is_growth() {
        let mut kept = Vec::new();
        let ended = grows_nothing(|| {
            kept.push(vec![1_u8; 8 << 20]);
            Ok(())
        });
        assert!(matches!(ended, Err(Stop::Failed(_))), "{ended:?}");
    }
}
