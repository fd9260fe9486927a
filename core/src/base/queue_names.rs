//! The names of queues by their ids, for later reports.

use std::collections::BTreeMap;

use crate::base::error::Object;
use crate::base::sync::{Mutex, per_process};

per_process! { static QUEUES: Mutex<Names> = Mutex::new(Names::new()) }

/// Below this number of names, no name of a dropped queue is removed.
const MIN_PRUNE_SIZE: usize = 64;

struct Names {
    by_id: BTreeMap<u64, Object>,
    /// The size at which names of dropped queues are removed next: twice what stayed last time.
    prune_size: usize,
}

impl Names {
    const fn new() -> Self {
        Self {
            by_id: BTreeMap::new(),
            prune_size: 0,
        }
    }
}

/// Remembers the name of a queue, at least until the queue is dropped.
pub(crate) fn add(queue: &Object) {
    let mut names = QUEUES.lock();
    if names.by_id.len() >= names.prune_size.max(MIN_PRUNE_SIZE) {
        names.by_id.retain(|_, name| name.is_shared());
        names.prune_size = 2 * names.by_id.len();
    }
    names.by_id.insert(queue.id(), queue.clone());
}

/// The name of the queue with this id, if it has not been removed.
pub(crate) fn get(id: u64) -> Option<Object> {
    let names = QUEUES.lock();
    names.by_id.get(&id).cloned()
}
