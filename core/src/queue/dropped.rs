//! The end of a queue: its objects live until its driver has finished the queue's work.

use std::collections::VecDeque;
use std::sync::Arc;

use super::submission_queue::SubmissionQueue;
use super::turn::Turns;
use crate::base::error::Error;
use crate::base::run::{Wake, run_contained};
use crate::base::stage::Stage;
use crate::base::sync::{AtomicU64, Mutex, Ordering};
use crate::driver::enqueue::Enqueue;
use crate::driver::in_flight::TakenUnits;
use crate::driver::keep::Keep;
use crate::port::Watch;
use crate::timeline::state::Dependents;

impl<E: Enqueue> Drop for SubmissionQueue<E> {
    fn drop(&mut self) {
        // In a forked child, the work and its objects belong to the parent process (P3). In a
        // process that exits, the driver may still use them (D1). The fields leak them.
        let Some(_calls) = self.entry.maker().for_destroy() else {
            return;
        };
        // No submission is held, because held ones keep their queue. What the driver still runs
        // keeps the driver's part and all objects until it is finished.
        let own = self.own_shared();
        own.refresh();
        let mut state = std::mem::take(&mut *self.lock());
        let units = state.in_flight.take_all_units();
        let budget = self.budget.clone();
        let taken = budget.map(|budget| TakenUnits::new(budget, units));
        let mut orphan = Orphan {
            driver: self.driver.clone(),
            _turns: Mutex::new(state.turns),
            _kept: state.in_flight.into_kept(),
            _dependents: self.dependents.clone(),
            taken,
        };
        let failed = own.failure();
        if failed.is_some_and(|cause| !matches!(*cause, Error::DeviceLost { .. })) {
            // The queue has failed and its device has not, so work of it may still run. It never
            // counts as finished, so its budget is returned now.
            orphan.taken = None;
            let abandoned = Abandoned {
                orphan: Mutex::new(Some(orphan)),
                device: own.watch().cloned(),
                asked: AtomicU64::new(0),
            };
            Arc::new(abandoned).wake();
            return;
        }
        // If the work is finished or the device is lost, this drops the objects now.
        // The objects are the application's, and dropping a queue must not wait for a device.
        run_contained(|| {
            let _ = own.register(state.last, Stage::Reached, Arc::new(orphan));
        });
    }
}

/// The objects of a dropped queue that its driver may still use.
struct Orphan<E: Enqueue> {
    driver: Arc<E>,
    /// With the backend's state. In a mutex only because that need not be `Sync`.
    _turns: Mutex<Turns<E>>,
    _kept: VecDeque<(u64, Keep)>,
    _dependents: Arc<Dependents>,
    /// The budget that the queue's work has taken.
    taken: Option<TakenUnits>,
}

/// Registered until the queue's work is finished. That keeps the objects until then.
impl<E: Enqueue> Wake for Orphan<E> {
    fn wake(self: Arc<Self>) {}
}

/// Keeps the objects of a dropped queue that has failed, until its driver reports that it is idle.
///
/// The position of a failed queue does not grow when work ends, so only the driver can report this.
/// If the driver never does, the objects are leaked, because the work may still use them.
struct Abandoned<E: Enqueue> {
    orphan: Mutex<Option<Orphan<E>>>,
    device: Option<Arc<dyn Watch>>,
    /// How often the driver was asked.
    asked: AtomicU64,
}

/// The number of times that the driver of a failed queue is asked whether it is idle.
const MOST_ASKED: u64 = 1000;

impl<E: Enqueue> Wake for Abandoned<E> {
    fn wake(self: Arc<Self>) {
        let orphan = self.orphan.lock();
        let driver = orphan.as_ref().map(|orphan| orphan.driver.clone());
        drop(orphan);
        match driver.map_or(Some(true), |driver| driver.is_idle()) {
            Some(true) => {
                let orphan = self.orphan.lock().take();
                run_contained(|| drop(orphan));
            }
            Some(false) if self.asked.fetch_add(1, Ordering::Relaxed) < MOST_ASKED => {
                if let Some(device) = self.device.clone() {
                    device.watcher().retry(&*device, self);
                }
            }
            // The drop leaks them.
            _ => {}
        }
    }
}

impl<E: Enqueue> Drop for Abandoned<E> {
    fn drop(&mut self) {
        std::mem::forget(self.orphan.lock().take());
    }
}
