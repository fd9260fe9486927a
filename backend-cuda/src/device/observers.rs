//! The waits of the engine's own streams for promised values, counted for each device.

use std::sync::{Arc, Weak};

use syncline_core::backend::kit::Mutex;

/// The most such waits that a device has outstanding. Each takes two commands of a stream.
///
/// The driver blocks the calling thread where a connection has taken some thousand commands. What
/// these waits take is not among the commands of submissions.
pub(crate) const OBSERVED: usize = 32;

/// A word whose promised values are observed.
pub(crate) trait Observed: Send + Sync {
    /// The number of outstanding waits. If `polls`, the driver is asked which have ended.
    fn outstanding(&self, polls: bool) -> usize;
}

/// The observed words of one device.
#[derive(Default)]
pub(crate) struct Observers(Mutex<Vec<Weak<dyn Observed>>>);

impl Observers {
    /// Adds a word, for as long as it lives.
    pub(crate) fn add(&self, word: Weak<dyn Observed>) {
        let mut words = self.0.lock();
        words.retain(|word| word.strong_count() > 0);
        words.push(word);
    }

    /// True if the device takes no further wait now.
    pub(crate) fn is_full(&self) -> bool {
        let words: Vec<Arc<dyn Observed>> = {
            let words = self.0.lock();
            words.iter().filter_map(Weak::upgrade).collect()
        };
        // The driver is asked without the lock.
        let is_full = |polls| {
            let counts = words.iter().map(|word| word.outstanding(polls));
            counts.sum::<usize>() >= OBSERVED
        };
        is_full(false) && is_full(true)
    }
}
