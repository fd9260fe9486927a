//! What depends on signals that another process makes: if that one dies, work that waits for them natively is let go, and runs on what there is.
//! So what it signals fails (E3).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::Shared;
use crate::error::Failure;
use crate::sync::{Mutex, Ordering};

/// What submissions that are with a driver signal once one timeline, for which they wait, has come far enough.
#[derive(Default)]
pub(super) struct Downstream(Mutex<List>);

#[derive(Default)]
struct List {
    entries: VecDeque<Dependent>,
    /// Nothing that is added from here on comes true.
    lost: Option<Failure>,
}

/// A signal that comes after a wait.
struct Dependent {
    waited: u64,
    of: Weak<Shared>,
    value: u64,
}

impl Shared {
    /// True if those who wait for it natively have to be noted: it depends on another process.
    #[inline]
    pub(crate) fn depends_on_others(&self) -> bool {
        self.seen.depends_on_others.load(Ordering::Relaxed)
    }

    /// A submission that waits until this has reached `waited`, and then signals `of` to `value`, is about to be with a driver. Those who wait for that in
    /// turn are noted from here on.
    ///
    /// # Errors
    /// It will run on nothing good: what it signals has to fail with this once the driver has it.
    pub(crate) fn note_dependent(
        &self,
        waited: u64,
        of: &Arc<Self>,
        value: u64,
    ) -> Result<(), Failure> {
        of.seen.depends_on_others.store(true, Ordering::Relaxed);
        let reached = self.reached();
        let mut list = self.downstream.0.lock();
        // Nearly in order: what is not, goes when it has come to the front.
        let over = |entry: &Dependent| entry.waited <= reached;
        let mut passed = None;
        while list.entries.front().is_some_and(over) {
            // What it leads to may go with it, and not under the lock: one after the other.
            passed = list.entries.pop_front();
        }
        let lost = list.lost.clone();
        list.entries.push_back(Dependent {
            waited,
            of: Arc::downgrade(of),
            value,
        });
        drop(list);
        drop(passed);
        lost.map_or(Ok(()), Err)
    }

    /// The driver has not taken the submission that signals `of` to `value`.
    #[cold]
    pub(crate) fn forget_dependent(&self, of: &Arc<Self>, value: u64) {
        let mut list = self.downstream.0.lock();
        let same = |entry: &Dependent| {
            entry.value == value && std::ptr::eq(entry.of.as_ptr(), Arc::as_ptr(of))
        };
        if let Some(at) = list.entries.iter().rposition(same) {
            list.entries.remove(at);
        }
    }

    /// Whoever should have signalled it is dead: it fails, and so does whatever work that waits for it natively would signal, and what comes after
    /// that. Values that were reached stay so.
    pub(crate) fn lose(self: &Arc<Self>, cause: &Failure) {
        self.fail(cause.clone());
        let mut lost = vec![self.clone()];
        while let Some(of) = lost.pop() {
            for Dependent { of, value, .. } in of.take_lost(cause) {
                let Some(of) = of.upgrade() else { continue };
                if of.refresh() < value {
                    of.fail(cause.clone());
                    lost.push(of);
                }
            }
        }
    }

    fn take_lost(&self, cause: &Failure) -> Vec<Dependent> {
        let reached = self.reached();
        let mut list = self.downstream.0.lock();
        list.lost.get_or_insert_with(|| cause.clone());
        let all = std::mem::take(&mut list.entries);
        drop(list);
        let never = |entry: &Dependent| entry.waited > reached;
        all.into_iter().filter(never).collect()
    }
}
