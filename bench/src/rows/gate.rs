//! Gates that hold up a queue on its device, so that no work ends while submissions are timed.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use syncline::backend::Queue as _;
use syncline::{Queue, Recorder};
use syncline_conformance::Subject;
use syncline_conformance::workload::Equipped;

use crate::side::Outcome;

/// Time-out for the end of a queue's work.
const LONG: Duration = Duration::from_secs(20);

/// Blocks a queue until [`Subject::open`] opens it.
pub(super) type Latch = <Equipped as Subject>::Latch;

/// Blocks all later work of `queue` until the returned latch is opened.
pub(super) fn close(equipped: &Equipped, queue: &Queue) -> Outcome<Latch> {
    let latch = equipped.latch()?;
    let before = latch.clone();
    queue.submit(
        &[],
        move |recorder: &mut Recorder<'_>| Equipped::block(recorder, &before),
        &[],
    )?;
    Ok(latch)
}

/// Largest number of sides.
const SIDES: usize = 3;

/// A gate in front of the submissions of all sides of a race.
///
/// The sides submit behind it in turns, a few calls each, so all of them find the queue in the same
/// state. It opens when it has no room left, and then closes again.
pub(super) struct Gate<'q> {
    equipped: &'q Equipped,
    queue: &'q Queue,
    /// Calls behind one closed gate.
    most: u64,
    latch: RefCell<Option<Latch>>,
    /// Calls that still fit behind this gate.
    room: Cell<u64>,
    /// The sides that have warmed up behind this gate.
    warm: Cell<[bool; SIDES]>,
}

impl<'q> Gate<'q> {
    /// Untimed calls of each side behind a new gate, because they find cold caches.
    const FIRST: u64 = 2;

    pub(super) const fn new(equipped: &'q Equipped, queue: &'q Queue, most: u64) -> Self {
        Self {
            equipped,
            queue,
            most,
            latch: RefCell::new(None),
            room: Cell::new(0),
            warm: Cell::new([false; SIDES]),
        }
    }

    /// Calls `go` `n` times for the side with this index, and times only these calls.
    pub(super) fn calls(
        &self,
        side: usize,
        n: u64,
        mut go: impl FnMut() -> Outcome<()>,
    ) -> Outcome<Duration> {
        let mut total = Duration::ZERO;
        let mut left = n;
        while left > 0 {
            if self.room.get() == 0 {
                self.open()?;
                *self.latch.borrow_mut() = Some(close(self.equipped, self.queue)?);
                self.room.set(self.most);
                self.warm.take();
            }
            let mut warm = self.warm.get();
            if !std::mem::replace(&mut warm[side], true) {
                (0..Self::FIRST).try_for_each(|_| go())?;
                self.warm.set(warm);
            }
            let now = left.min(self.room.get());
            let start = Instant::now();
            (0..now).try_for_each(|_| go())?;
            total += start.elapsed();
            self.room.set(self.room.get() - now);
            left -= now;
        }
        Ok(total)
    }

    /// Opens the gate and waits for the work behind it.
    ///
    /// To be called after the race, also if it failed.
    pub(super) fn open(&self) -> Outcome<()> {
        self.room.set(0);
        if let Some(latch) = self.latch.take() {
            Equipped::open(&latch)?;
        }
        Ok(self.queue.idle(LONG)?)
    }
}
