//! The names of queues by their ids, for whoever has to say later which queue it was.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError};

use crate::base::error::Object;

/// Not modelled: nothing depends on it but words in a diagnosis.
static QUEUES: LazyLock<std::sync::Mutex<Names>> = LazyLock::new(std::sync::Mutex::default);

/// How many names there may be before those of queues that are gone are looked for.
const FEW: usize = 64;

#[derive(Default)]
struct Names {
    known: HashMap<u64, Object>,
    /// The size at which those of queues that are gone are forgotten.
    crowded: usize,
}

/// Remembers the name of a queue, for as long as the queue lives and for a while after.
pub(crate) fn add(queue: &Object) {
    let mut names = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    if names.known.len() >= names.crowded.max(FEW) {
        names.known.retain(|_, name| name.is_shared());
        names.crowded = 2 * names.known.len();
    }
    names.known.insert(queue.id(), queue.clone());
}

/// The name of the queue with this id, if it is still known.
pub(crate) fn queue(id: u64) -> Option<Object> {
    let names = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
    names.known.get(&id).cloned()
}
