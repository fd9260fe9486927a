//! Queues that are held up on their device, so that nothing ends while it is measured how it is
//! submitted.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use syncline::backend::Queue as _;
use syncline::{Queue, Recorder};
use syncline_conformance::Subject;
use syncline_conformance::workload::Equipped;

use crate::lab::Outcome;

/// No queue takes so long to come to its end.
const LONG: Duration = Duration::from_secs(20);

/// What a queue stands still before, until [`Subject::open`] opens it.
pub(super) type Latch = <Equipped as Subject>::Latch;

/// Holds `queue` up from here on.
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

/// So many sides there are at the most.
const SIDES: usize = 3;

/// A gate that the sides of a race submit behind in turns, a few calls each, so that all find the
/// queue in the same state. It opens when there is much behind it, and closes again.
pub(super) struct Gate<'q> {
    equipped: &'q Equipped,
    queue: &'q Queue,
    /// How many calls go behind one closed gate.
    most: u64,
    latch: RefCell<Option<Latch>>,
    /// How many more may go behind this one.
    room: Cell<u64>,
    /// How many gates there have been.
    number: Cell<usize>,
    /// Which sides have been warmed up behind this one.
    warm: Cell<[bool; SIDES]>,
}

impl<'q> Gate<'q> {
    /// The first calls of any side behind a fresh gate find cold caches: so many go untimed.
    const FIRST: u64 = 2;

    pub(super) const fn new(equipped: &'q Equipped, queue: &'q Queue, most: u64) -> Self {
        Self {
            equipped,
            queue,
            most,
            latch: RefCell::new(None),
            room: Cell::new(0),
            number: Cell::new(0),
            warm: Cell::new([false; SIDES]),
        }
    }

    /// Which gate this is.
    pub(super) const fn number(&self) -> usize {
        self.number.get()
    }

    /// Makes `n` calls of `go`, which is what `side` does, counted from 0, and times them; what
    /// else has to be done is not timed.
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
                self.number.set(self.number.get() + 1);
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

    /// Lets everything behind it go, and waits until it has gone. To be called when the race is
    /// over, however that ended.
    pub(super) fn open(&self) -> Outcome<()> {
        self.room.set(0);
        if let Some(latch) = self.latch.take() {
            Equipped::open(&latch)?;
        }
        Ok(self.queue.idle(LONG)?)
    }
}
