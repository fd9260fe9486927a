//! Memory of the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::driver::{Handle, Machine};

/// Words that the device and the host address. Cheap to clone; freed with the last clone.
#[derive(Clone)]
pub(crate) struct Buffer(Arc<Memory>);

struct Memory {
    machine: Arc<Machine>,
    handle: Handle,
    words: Arc<[AtomicU32]>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.machine.free(self.handle);
    }
}

impl Buffer {
    pub(super) fn new(machine: &Arc<Machine>, words: usize) -> Self {
        let (handle, words) = machine.memory(words);
        let machine = machine.clone();
        Self(Arc::new(Memory {
            machine,
            handle,
            words,
        }))
    }

    pub(super) fn handle(&self) -> Handle {
        self.0.handle
    }

    /// What it holds now.
    pub(crate) fn read(&self) -> Vec<u32> {
        let words = self.0.words.iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }

    /// Sets the first word from the host, and lets the device look again.
    pub(crate) fn set_first(&self, value: u32) {
        if let Some(word) = self.0.words.first() {
            word.store(value, Ordering::Release);
        }
        self.0.machine.kick();
    }

    /// For a submission to keep.
    pub(super) fn keep(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        self.0.clone()
    }
}
