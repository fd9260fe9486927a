//! A device for tests of queues, which does nothing by itself.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use syncline_core::backend::Watcher;
use syncline_core::backend::{Attachment, ByEngine, Port, Watch};
use syncline_core::{Result, Timeline, info::DeviceId};

/// A device whose counters are words that the test or its drivers set.
#[derive(Default)]
pub(crate) struct Words {
    watcher: Watcher,
    nudged: Mutex<bool>,
    changed: Condvar,
}

/// A counter.
pub(crate) struct Word(pub(crate) Arc<AtomicU64>);

impl Port for Word {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::SeqCst)))
    }
    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.store(value, Ordering::SeqCst);
        Ok(())
    }
}

impl Watch for Words {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }
    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let reached = |&(port, value): &(&dyn Port, u64)| port.poll().unwrap() >= Some(value);
        while Instant::now() < until && !ports.iter().any(reached) {
            let nudged = self.nudged.lock().unwrap();
            let (mut nudged, _) = self
                .changed
                .wait_timeout(nudged, Duration::from_millis(1))
                .unwrap();
            if std::mem::take(&mut *nudged) {
                break;
            }
        }
        Ok(())
    }
    fn nudge(&self) {
        *self.nudged.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Words {
    /// A timeline over `word` as its only port.
    pub(crate) fn timeline(
        self: &Arc<Self>,
        device: DeviceId,
        label: &str,
        word: Arc<AtomicU64>,
    ) -> Timeline {
        let attachment = self.port(device, word);
        Timeline::new(label, 0, |_| Ok([attachment].into_iter().collect())).unwrap()
    }

    /// `word` as the port of a timeline.
    pub(crate) fn port(self: &Arc<Self>, device: DeviceId, word: Arc<AtomicU64>) -> Attachment {
        let initial = word.load(Ordering::SeqCst);
        Attachment::new(device, initial, Word(word)).watched_by(self.clone())
    }
}
