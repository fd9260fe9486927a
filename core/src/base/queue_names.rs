//! The names of queues by their ids, for later reports.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError};

use crate::base::error::Object;

/// The names of the process. A mutex of std and not of `sync`, because only the text of reports
/// depends on it, and the loom model need not cover it.
static QUEUES: LazyLock<std::sync::Mutex<Names>> = LazyLock::new(std::sync::Mutex::default);

/// Below this number of names, no name of a dropped queue is removed.
const MIN_PRUNE_SIZE: usize = 64;

#[derive(Default)]
struct Names {
    by_id: HashMap<u64, Object>,
    /// The size at which names of dropped queues are removed next: twice what stayed last time.
    prune_size: usize,
}

/// Remembers the name of a queue, at least until the queue is dropped.
pub(crate) fn add(queue: &Object) {
    let mut names = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    if names.by_id.len() >= names.prune_size.max(MIN_PRUNE_SIZE) {
        names.by_id.retain(|_, name| name.is_shared());
        names.prune_size = 2 * names.by_id.len();
    }
    names.by_id.insert(queue.id(), queue.clone());
}

/// The name of the queue with this id, if it has not been removed.
pub(crate) fn get(id: u64) -> Option<Object> {
    let names = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    names.by_id.get(&id).cloned()
}
