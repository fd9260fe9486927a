//! What the process has of the system, for cases in which a second round must grow nothing.

#![allow(unsafe_code, reason = "the allocator is asked what it has given out")]

use std::fmt;
use std::time::{Duration, Instant};

use crate::case::Stop;
use crate::settings::Settings;
use crate::{Verdict, patience};

/// How much memory a round may grow the process by, in KiB. Drivers map memory and round it up.
const SLACK: u64 = 2 << 10;

/// How many bytes a round may grow the heap by.
///
/// The allocator keeps some memory for threads, and a thread may not have freed something yet. A
/// leak of 14 bytes shows if a round makes 5000 of what leaks.
const HEAP_SLACK: u64 = 64 << 10;

/// Number of rounds.
///
/// Allocators and drivers do not grow in each round by chance, but a leak does. The number is large
/// for drivers that keep memory after they have fallen behind. On busy cores llvmpipe grew by up to
/// 1 MB in each of eight rounds, and no more after about 5 MB in all. (It makes up to 64 scenes as
/// they are needed.)
const ROUNDS: usize = 24;

/// Number of rounds for descriptors and threads.
///
/// NVIDIA's driver took four more descriptors in each of three rounds, and returned all of them in
/// the fourth. This is twice that, and one more.
const HANDLE_ROUNDS: usize = 9;

/// The resources of this process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Open file descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Memory that is in RAM, in KiB.
    pub memory: u64,
    /// Bytes that the allocator has given out. Only glibc's allocator tells that.
    ///
    /// Elsewhere it is 0, and only `memory` counts.
    pub heap: u64,
}

/// Which quantities are larger than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Growth {
    descriptors: bool,
    threads: bool,
    memory: bool,
    heap: bool,
}

impl Growth {
    const fn any(self) -> bool {
        self.descriptors || self.threads || self.memory || self.heap
    }

    const fn of_handles(self) -> bool {
        self.descriptors || self.threads
    }

    /// Returns what has grown in both.
    const fn and(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors && other.descriptors,
            threads: self.threads && other.threads,
            memory: self.memory && other.memory,
            heap: self.heap && other.heap,
        }
    }
}

/// Returns what the allocator has given out, in all of its arenas and outside of them.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn heap() -> u64 {
    // SAFETY: takes no argument and only counts, under the allocator's own locks.
    let told = unsafe { libc::mallinfo2() };
    (told.uordblks + told.hblkhd) as u64
}

/// Other allocators do not tell it in a portable way.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn heap() -> u64 {
    0
}

impl Footprint {
    /// Reads the resources from the system.
    ///
    /// # Errors
    /// A skip if there is no `/proc`.
    pub fn now() -> Result<Self, Stop> {
        let missing =
            |error: std::io::Error| Stop::Skipped(format!("no /proc to count in: {error}"));
        let heap = heap();
        let status = std::fs::read_to_string("/proc/self/status").map_err(missing)?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.ok_or_else(|| Stop::Skipped(format!("/proc/self/status has no {name}")))
        };
        Ok(Self {
            // The listing itself is an open descriptor while it is read.
            descriptors: std::fs::read_dir("/proc/self/fd").map_err(missing)?.count() - 1,
            threads: number("Threads:")? as usize,
            memory: number("VmRSS:")?,
            heap,
        })
    }

    /// Returns which resources are larger than `before`, beyond the slack.
    const fn growth(&self, before: &Self) -> Growth {
        Growth {
            descriptors: self.descriptors > before.descriptors,
            threads: self.threads > before.threads,
            memory: self.memory > before.memory + SLACK,
            heap: self.heap > before.heap + HEAP_SLACK,
        }
    }

    /// Returns which quantities have grown in every round up to this one.
    ///
    /// Descriptors and threads count one by one: see [`stays`].
    fn grown(&self, earlier: &[Self]) -> Growth {
        let Some(before) = earlier.last() else {
            return Growth::default();
        };
        let of = |what: fn(&Self) -> usize| !stays(earlier.iter().map(what), what(self));
        Growth {
            descriptors: of(|footprint| footprint.descriptors),
            threads: of(|footprint| footprint.threads),
            ..self.growth(before)
        }
    }

    /// Whether any resource is larger than `before`, beyond the slack.
    #[must_use]
    pub const fn exceeds(&self, before: &Self) -> bool {
        self.growth(before).any()
    }

    /// Returns the present footprint once there are no more descriptors and threads than `before`.
    ///
    /// Threads that end, and threads that close what peers have sent, need a moment. After a fifth
    /// of all patience this returns what is still there.
    ///
    /// # Errors
    /// As [`Footprint::now`].
    pub fn settled(before: &Self) -> Result<Self, Stop> {
        let deadline = Instant::now() + patience() / 5;
        loop {
            let now = Self::now()?;
            if !now.growth(before).of_handles() || Instant::now() > deadline {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether the number `now`, after those of `earlier` rounds, shows that a round leaves nothing.
///
/// It does if it is the same as in the round before, or as the smallest of all rounds. A smaller
/// number than in the round before proves nothing, because a driver may return everything at once.
/// Nor does a new minimum, because the first round may have ended in the middle of that. The next
/// time it does.
fn stays(earlier: impl Iterator<Item = usize> + Clone, now: usize) -> bool {
    earlier.clone().last() == Some(now) || earlier.min() == Some(now)
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} descriptors, {} threads, {} KiB",
            self.descriptors, self.threads, self.memory
        )?;
        match self.heap {
            0 => Ok(()),
            heap => write!(f, ", of them {heap} bytes of the heap"),
        }
    }
}

/// Runs `round` repeatedly, and fails if every round grows some resource.
///
/// Pools grow in the first round. After it there must be a round that leaves no more descriptors
/// than the one before, and one that leaves no more threads. The same holds for memory and for the
/// heap. One round each is enough, because a leak grows in every round, while drivers and
/// allocators take more in some rounds only.
///
/// What they give back may hide a leak in that round. Descriptors and threads are counted exactly,
/// so a round in which they become fewer proves nothing. Memory may become less, and a leak shows
/// there if it is larger than what is given back. Memory is not compared under the Vulkan
/// validation layer, which keeps a few hundred bytes for each object that ever existed.
///
/// # Errors
/// The verdict of a `round` that fails. A failure if every round grows the same resource.
pub fn grows_nothing(mut round: impl FnMut() -> Verdict) -> Verdict {
    round()?;
    let mut history = vec![Footprint::now()?];
    let counts_memory = !Settings::from_env().validation;
    let mut always = Growth {
        descriptors: true,
        threads: true,
        memory: counts_memory,
        heap: counts_memory,
    };
    for _ in 1..ROUNDS {
        round()?;
        let before = history[history.len() - 1];
        let after = Footprint::settled(&before)?;
        always = always.and(after.grown(&history));
        history.push(after);
        if !always.any() {
            return Ok(());
        }
        if always.of_handles() && history.len() > HANDLE_ROUNDS {
            // Each such round costs the whole time limit.
            break;
        }
    }
    let history: Vec<_> = history.iter().map(ToString::to_string).collect();
    Stop::fail(format!("every round grows: {}", history.join("; ")))
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Held by tests that count for this process.
    ///
    /// Memory that one frees hides what another keeps, and what one keeps is growth for another.
    static ALONE: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn what_comes_and_goes_is_no_growth() {
        let _alone = alone();
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
            heap: 1 << 20,
        };
        let (mut descriptor, mut thread, mut memory, mut heap) = (before, before, before, before);
        assert!(!before.exceeds(&before));
        descriptor.descriptors += 1;
        thread.threads += 1;
        memory.memory += SLACK + 1;
        heap.heap += HEAP_SLACK + 1;
        for after in [descriptor, thread, memory, heap] {
            assert!(after.exceeds(&before), "{after} is no more than {before}");
        }
    }

    /// Returns how many rounds pass until one shows that nothing stays.
    ///
    /// `descriptors` are the numbers after each round.
    fn shown_after(descriptors: &[usize]) -> Option<usize> {
        let mut rounds = 1..descriptors.len();
        rounds.find(|&round| stays(descriptors[..round].iter().copied(), descriptors[round]))
    }

    #[test]
    fn returned_descriptors_do_not_hide_one_that_stays() {
        assert_eq!(shown_after(&[7, 7]), Some(1));
        assert_eq!(shown_after(&[7, 9, 9]), Some(2));
        assert_eq!(shown_after(&[7, 5, 5]), Some(2));
        // As NVIDIA's driver does, starting with each of its four rounds.
        assert_eq!(shown_after(&[0, 4, 8, 12, 0]), Some(4));
        assert_eq!(shown_after(&[4, 8, 12, 0, 4, 8, 12, 0]), Some(7));
        assert_eq!(shown_after(&[8, 12, 0, 4, 8, 12, 0]), Some(6));
        assert_eq!(shown_after(&[12, 0, 4, 8, 12, 0]), Some(5));
        // The same with one descriptor that stays in each round.
        for first in 0..4 {
            let levels: Vec<_> = (first..first + 2 * HANDLE_ROUNDS)
                .map(|round| round + 4 * (round % 4))
                .collect();
            assert_eq!(shown_after(&levels), None, "{levels:?}");
        }
    }

    #[test]
    fn memory_that_stays_is_growth() {
        let _alone = alone();
        let mut kept = Vec::new();
        let ended = grows_nothing(|| {
            kept.push(vec![1_u8; 3 << 20]);
            Ok(())
        });
        assert!(matches!(ended, Err(Stop::Failed(_))), "{ended:?}");
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn small_things_that_stay_are_growth() {
        let _alone = alone();
        let mut kept = Vec::new();
        let ended = grows_nothing(|| {
            kept.extend((0..5000).map(|_| Box::new([0_u64; 3])));
            Ok(())
        });
        assert!(matches!(ended, Err(Stop::Failed(_))), "{ended:?}");
        // The same, but only the last few stay.
        let ended = grows_nothing(|| {
            kept.truncate(100);
            kept.extend((0..5000).map(|_| Box::new([0_u64; 3])));
            Ok(())
        });
        assert!(ended.is_ok(), "{ended:?}");
    }
}
