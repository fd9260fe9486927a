//! What stands first in a list, read without the list's lock: by a ring of signals as a backend has it, whose driver is
//! asked about one event at a time, and whose events are used again as soon as they have left it.

use std::collections::VecDeque;
use std::sync::Arc;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use syncline_model::backend::Front;

use crate::interrupted;

/// What the driver knows: where each event was recorded last, and how far it has come.
#[derive(Default)]
struct Driver {
    records: [u64; 2],
    finished: u64,
}

/// Values in rising order, each with an event from 1 on.
struct Ring {
    driver: Mutex<Driver>,
    front: Front,
    reached: AtomicU64,
    entries: Mutex<VecDeque<(u64, usize)>>,
    /// What was signalled and has finished, before anybody could be told.
    known: AtomicU64,
}

impl Ring {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            driver: Mutex::default(),
            front: Front::new(),
            reached: AtomicU64::new(0),
            entries: Mutex::default(),
            known: AtomicU64::new(0),
        })
    }

    fn is_done(&self, event: usize) -> bool {
        let driver = self.driver.lock().unwrap();
        driver.finished >= driver.records[event - 1]
    }

    /// Records `event`, which nobody else uses, and signals `value` with it.
    fn signal(&self, value: u64, event: usize) {
        self.driver.lock().unwrap().records[event - 1] = value;
        let mut entries = self.entries.lock().unwrap();
        entries.push_back((value, event));
        if entries.len() == 1 {
            self.front.show(event as u64);
        }
    }

    fn finish(&self, value: u64) {
        self.driver.lock().unwrap().finished = value;
        self.known.store(value, Ordering::Release);
    }

    /// How far it has come, without the lock where nothing has.
    fn ask(&self) -> u64 {
        let look = self.front.look();
        if look.what() != 0 {
            let done = self.is_done(look.what() as usize);
            if !done && self.front.is_still(look) {
                return self.reached.load(Ordering::Acquire);
            }
            if done {
                let mut entries = self.entries.lock().unwrap();
                if self.front.is_still(look) {
                    self.retire(&mut entries);
                }
            }
        }
        let mut entries = self.entries.lock().unwrap();
        while let Some((_, event)) = entries.front()
            && self.is_done(*event)
        {
            self.retire(&mut entries);
        }
        self.reached.load(Ordering::Relaxed)
    }

    fn retire(&self, entries: &mut VecDeque<(u64, usize)>) {
        if let Some((value, _)) = entries.pop_front() {
            self.reached.store(value, Ordering::Release);
            let first = entries.front().map_or(0, |(_, event)| *event);
            self.front.show(first as u64);
        }
    }

    /// Asks, and hears of all that was known before and of nothing that is not.
    fn check(&self) -> u64 {
        let known = self.known.load(Ordering::Acquire);
        let reached = self.ask();
        assert!(reached >= known, "{reached}, but {known} is known");
        let finished = self.driver.lock().unwrap().finished;
        assert!(reached <= finished, "{reached} of {finished}");
        reached
    }
}

/// The event is used again while somebody asks about it, who hears neither of a signal that is yet to come nor nothing of
/// what has.
#[test]
fn a_query_against_the_event_taken_again() {
    interrupted(3, || {
        let ring = Ring::new();
        ring.signal(1, 1);
        let other = ring.clone();
        let signalling = thread::spawn(move || {
            other.finish(1);
            other.check();
            other.signal(2, 1);
        });
        ring.check();
        ring.check();
        signalling.join().unwrap();
        assert_eq!(ring.check(), 1);
        ring.finish(2);
        assert_eq!(ring.check(), 2);
    });
}

/// Who asks about an event that is no longer the first does not miss that the next has come.
#[test]
fn a_query_against_two_signals_that_come() {
    interrupted(3, || {
        let ring = Ring::new();
        ring.signal(1, 1);
        ring.signal(2, 2);
        let other = ring.clone();
        let signalling = thread::spawn(move || {
            other.finish(1);
            other.check();
            other.signal(3, 1);
            other.finish(2);
        });
        ring.check();
        ring.check();
        signalling.join().unwrap();
        assert_eq!(ring.check(), 2);
    });
}

/// Two ask, and both find it complete: one takes it out, and the other not the next with it.
#[test]
fn two_queries_that_find_the_same_complete() {
    interrupted(3, || {
        let ring = Ring::new();
        ring.signal(1, 1);
        ring.signal(2, 2);
        ring.finish(1);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let other = ring.clone();
                thread::spawn(move || assert_eq!(other.check(), 1))
            })
            .collect();
        assert_eq!(ring.check(), 1);
        for other in others {
            other.join().unwrap();
        }
        ring.finish(2);
        assert_eq!(ring.check(), 2);
    });
}
