//! What depends on signals that another process makes: if that one dies, work that waits for them natively is let go, and runs on what there is.
//! So what it signals fails (E3).

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

use super::Shared;
use crate::base::error::Failure;
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::base::sync::{Mutex, Ordering};

/// What submissions that are with a driver signal once one timeline, for which they wait, has come far enough.
#[derive(Default)]
pub(super) struct Dependents {
    list: Mutex<List>,
    sentinel: OnceLock<Arc<Sentinel>>,
    /// The timeline itself, if another process signals it.
    pub(super) of: OnceLock<Weak<Shared>>,
    /// See `release`.
    pub(super) released: OnceLock<()>,
}

/// Waits for nothing but that others look.
struct Sentinel;

impl Wake for Sentinel {
    fn wake(self: Arc<Self>) {}

    fn is_prompt(&self) -> bool {
        true
    }
}

/// With so many it is asked how far things are, and with twice what that leaves.
const LOOK_AT: usize = 64;

#[derive(Default)]
struct List {
    entries: VecDeque<Dependent>,
    look_at: usize,
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
        let is_long = {
            let list = self.dependents.list.lock();
            list.entries.len() >= list.look_at.max(LOOK_AT)
        };
        // Nobody else may ask a timeline between two others.
        let reached = if is_long {
            self.refresh()
        } else {
            self.reached()
        };
        let mut list = self.dependents.list.lock();
        let over = |entry: &Dependent| entry.waited <= reached;
        // Nearly in order.
        while list.entries.front().is_some_and(over) {
            list.entries.pop_front();
        }
        if is_long {
            list.entries.retain(|entry| !over(entry));
            list.look_at = 2 * list.entries.len();
        }
        let lost = list.lost.clone();
        list.entries.push_back(Dependent {
            waited,
            of: Arc::downgrade(of),
            value,
        });
        lost.map_or(Ok(()), Err)
    }

    /// The driver has not taken the submission that signals `of` to `value`.
    #[cold]
    pub(crate) fn forget_dependent(&self, of: &Arc<Self>, value: u64) {
        let mut list = self.dependents.list.lock();
        let same = |entry: &Dependent| {
            entry.value == value && std::ptr::eq(entry.of.as_ptr(), Arc::as_ptr(of))
        };
        if let Some(at) = list.entries.iter().rposition(same) {
            list.entries.remove(at);
        }
    }

    /// Whoever should have signalled it is dead: it fails where it is known to be, and so does whatever work that waits for it natively would signal, and what
    /// comes after that. Values that were reached stay so.
    pub(crate) fn lose(&self, cause: &Failure) {
        self.fail_frozen(cause.clone());
        let mut dependents = self.take_lost(cause);
        while let Some(Dependent { of, value, .. }) = dependents.pop() {
            let Some(of) = of.upgrade() else { continue };
            if of.refresh() < value {
                of.fail(cause.clone());
                dependents.extend(of.take_lost(cause));
            }
        }
    }

    /// Has the home watched until `value` is reached, if another process signals it: a queue of another driver waits for it natively, and that counts as
    /// somebody waiting.
    pub(crate) fn watch_over(self: &Arc<Self>, value: u64) {
        if self.is_from_afar() {
            let sentinel = self.dependents.sentinel.get_or_init(|| Arc::new(Sentinel));
            let sentinel: Arc<dyn Wake> = sentinel.clone();
            let _ = self.register(value, Stage::Reached, sentinel);
        }
    }

    fn take_lost(&self, cause: &Failure) -> Vec<Dependent> {
        let reached = self.reached();
        let mut list = self.dependents.list.lock();
        list.lost.get_or_insert_with(|| cause.clone());
        let all = std::mem::take(&mut list.entries);
        drop(list);
        let never = |entry: &Dependent| entry.waited > reached;
        all.into_iter().filter(never).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::api::Device as _;
    use crate::base::error::Result;
    use crate::port::attachment::Attachment;
    use crate::port::{ByEngine, Port};
    use crate::{DeviceId, Timeline, host};

    /// What a device reaches, and nobody on the host asks for.
    struct Word(Arc<AtomicU64>);

    impl Port for Word {
        fn poll(&self) -> Result<Option<u64>> {
            Ok(Some(self.0.load(Ordering::SeqCst)))
        }

        fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
            self.0.store(value, Ordering::SeqCst);
            Ok(())
        }
    }

    fn line(word: &Arc<AtomicU64>) -> Timeline {
        let port = Attachment::new(DeviceId::new(), 0, Word(word.clone()));
        let port = port.signalled_elsewhere(true);
        Timeline::new("line", 0, |_| Ok([port].into_iter().collect())).unwrap()
    }

    /// Memory follows what is outstanding, whether or not anybody asks how far the timeline is, and whatever stands in front.
    #[test]
    fn what_is_reached_is_not_remembered() {
        let later = host::Device::new().timeline("later").unwrap();
        for in_front in [None, Some(u64::MAX - 1)] {
            let reached = Arc::new(AtomicU64::new(0));
            let line = line(&reached);
            let of = line.shared();
            let all = in_front.into_iter().chain(1..=10_000);
            for (waited, value) in all.zip(1_u64..) {
                // As far as ten submissions behind.
                reached.store(value.saturating_sub(10), Ordering::SeqCst);
                let noted = of.note_dependent(waited, later.shared(), value);
                noted.unwrap();
                let list = of.dependents.list.lock();
                let (length, room) = (list.entries.len(), list.entries.capacity());
                assert!(length <= 2 * LOOK_AT, "{length} at {value}");
                assert!(room <= 4 * LOOK_AT, "room for {room} at {value}");
            }
        }
    }
}
