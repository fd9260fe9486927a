//! The submissions that are counted, and how much each may cost.

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{QueueKind, Timeline};

use super::tracer::{self, Counts, count, counted};
use crate::driver::emulated;
use crate::queue::submission::Queue;

/// Submissions before the counted ones. Pools and lists have grown by then.
const WARM: u64 = 200;

/// Counted submissions of each kind. The cheaper one counts: some submissions also grow a list.
const COUNTED: u64 = 2;

/// Two queues, and timelines that one signals and the other waits for.
struct Queues {
    queue: Queue,
    other: Queue,
    waited: Vec<Timeline>,
    signalled: Vec<Timeline>,
}

impl Queues {
    fn new() -> Self {
        let device = emulated::idle_device();
        let queue = |label| device.queue(QueueKind::Compute, label).unwrap();
        let timelines = |label| (0..8).map(|_| device.timeline(label).unwrap()).collect();
        Self {
            queue: queue("queue"),
            other: queue("other"),
            waited: timelines("waited"),
            signalled: timelines("signalled"),
        }
    }

    /// Counts submissions with this many waits, which are pending, and signals.
    fn pending(&self, waits: usize, signals: usize) {
        for value in 1..=WARM + COUNTED {
            let (waited, signalled) = (&self.waited[..waits], &self.signalled[..signals]);
            let made: Vec<_> = waited.iter().map(|of| of.signal_at(value)).collect();
            self.other.submit(&[], |_| Ok(()), &made).unwrap();
            let waits: Vec<_> = waited.iter().map(|of| of.at(value)).collect();
            let signals: Vec<_> = signalled.iter().map(|of| of.signal_at(value)).collect();
            let submit = || self.queue.submit(&waits, |_| Ok(()), &signals).map(drop);
            if value > WARM {
                counted(submit).unwrap();
            } else {
                submit().unwrap();
            }
        }
    }

    /// Counts submissions that are held, or those that release one.
    fn held(&self, releases: bool) {
        let (waited, signalled) = (&self.waited[0], &self.signalled[0]);
        for value in 1..=WARM + COUNTED {
            let (waits, signals) = ([waited.at(value)], [signalled.signal_at(value)]);
            let hold = || self.queue.submit(&waits, |_| Ok(()), &signals).map(drop);
            let made = [waited.signal_at(value)];
            let release = || self.other.submit(&[], |_| Ok(()), &made).map(drop);
            match (value > WARM, releases) {
                (true, false) => counted(hold).and_then(|()| release()).unwrap(),
                (true, true) => hold().and_then(|()| counted(release)).unwrap(),
                (false, _) => hold().and_then(|()| release()).unwrap(),
            }
        }
    }
}

/// What is counted.
enum Kind {
    /// A submission with this many waits, which are pending, and this many signals.
    Pending(usize, usize),
    /// A submission that is held.
    Held,
    /// A submission that releases a held one of another queue.
    Releases,
}

/// The counts of today, by name. A change that makes them larger says why.
const ROWS: [(&str, Kind, Counts); 7] = [
    ("empty", Kind::Pending(0, 0), Counts::of(8, 3)),
    ("one signal", Kind::Pending(0, 1), Counts::of(14, 5)),
    (
        "one wait, one signal",
        Kind::Pending(1, 1),
        Counts::of(18, 6),
    ),
    ("8 signals", Kind::Pending(0, 8), Counts::of(58, 19)),
    (
        "8 waits, 8 signals",
        Kind::Pending(8, 8),
        Counts::of(76, 27),
    ),
    // 24 and 7, unless the watching thread has just ended its guard of the queue.
    ("held", Kind::Held, Counts::of(28, 8)),
    // Three more than before 2026-11-30: the end of the edges, which queue and graph share.
    ("releases one", Kind::Releases, Counts::of(49, 15)),
];

/// The child's part: the submissions of the row that the environment names.
#[test]
fn child() {
    if let Some(name) = tracer::wanted() {
        let (_, kind, _) = ROWS.iter().find(|(row, ..)| *row == name).unwrap();
        let queues = Queues::new();
        match kind {
            Kind::Pending(waits, signals) => queues.pending(*waits, *signals),
            Kind::Held => queues.held(false),
            Kind::Releases => queues.held(true),
        }
    }
}

/// Passes and says so if the system lets no process be traced.
#[test]
fn submissions_cost_no_more_than_before() {
    let mut over = Vec::new();
    println!("{:<22} instructions  atomics  mutexes", "submission");
    for (name, _, most) in ROWS {
        let Some(all) = count("queue::steps::submissions::child", name) else {
            println!("not counted: this system lets no process be traced");
            return;
        };
        assert_eq!(all.len() as u64, COUNTED, "{name}");
        let found = all.iter().min_by_key(|counts| counts.atomics).unwrap();
        println!(
            "{name:<22} {:>12} {:>8} {:>8}",
            found.instructions, found.atomics, found.mutexes
        );
        if found.atomics > most.atomics || found.mutexes > most.mutexes {
            over.push(format!(
                "{name}: {found:?}, and at most {most:?} is expected"
            ));
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}
