//! A machine of plain memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use syncline_software_ptx::{Entry, Fault, Images, Launch, Machine, Module, Param};

use crate::images::Picture;

/// Where the memory begins.
pub(crate) const BASE: u64 = 0x7000_0000;

pub(crate) struct Memory {
    bytes: Mutex<Vec<u8>>,
    /// Grows with every reading.
    pub(crate) time: AtomicU64,
    pub(crate) fences: AtomicU32,
    pub(crate) launched: AtomicU32,
    pub(crate) waited: AtomicU32,
    pub(crate) pauses: AtomicU64,
    /// Stops the kernel at this pause.
    pub(crate) stop_at: AtomicU64,
    pub(crate) picture: Option<Picture>,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            bytes: Mutex::new(vec![0; bytes]),
            time: AtomicU64::new(0x1_2345_6780),
            fences: AtomicU32::new(0),
            launched: AtomicU32::new(0),
            waited: AtomicU32::new(0),
            pauses: AtomicU64::new(0),
            stop_at: AtomicU64::new(1_000_000),
            picture: None,
        }
    }

    pub(crate) fn of_words(words: &[u32]) -> Self {
        let memory = Self::new(0);
        *memory.lock() = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn words(&self) -> Vec<u32> {
        let bytes = self.lock();
        let word = |chunk: &[u8]| u32::from_le_bytes(chunk.try_into().unwrap());
        bytes.chunks_exact(4).map(word).collect()
    }

    pub(crate) fn longs(&self) -> Vec<u64> {
        let bytes = self.lock();
        let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap());
        bytes.chunks_exact(8).map(word).collect()
    }

    fn with<T>(
        &self,
        address: u64,
        bytes: u32,
        write: bool,
        access: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, Fault> {
        let fault = Fault::Address {
            address,
            bytes,
            write,
        };
        let start = usize::try_from(address.wrapping_sub(BASE)).map_err(|_| fault)?;
        let mut memory = self.lock();
        let end = start.checked_add(bytes as usize).ok_or(fault)?;
        Ok(access(memory.get_mut(start..end).ok_or(fault)?))
    }
}

fn value(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

impl Machine for Memory {
    fn load(&self, address: u64, bytes: u32) -> Result<u64, Fault> {
        self.with(address, bytes, false, |bytes| value(bytes))
    }

    fn store(&self, address: u64, bytes: u32, value: u64) -> Result<(), Fault> {
        self.with(address, bytes, true, |to| {
            to.copy_from_slice(&value.to_le_bytes()[..to.len()]);
        })
    }

    fn update(
        &self,
        address: u64,
        bytes: u32,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        self.with(address, bytes, true, |to| {
            let old = value(to);
            to.copy_from_slice(&change(old).to_le_bytes()[..to.len()]);
            old
        })
    }

    fn global_timer(&self) -> u64 {
        self.time.fetch_add(1, Ordering::Relaxed)
    }

    fn pause(&self) -> bool {
        let pauses = self.pauses.fetch_add(1, Ordering::Relaxed) + 1;
        pauses >= self.stop_at.load(Ordering::Relaxed)
    }

    fn fence(&self) {
        self.fences.fetch_add(1, Ordering::Relaxed);
    }

    fn launch_dependents(&self) {
        self.launched.fetch_add(1, Ordering::Relaxed);
    }

    fn wait_for_dependencies(&self) {
        self.waited.fetch_add(1, Ordering::Relaxed);
    }

    fn images(&self) -> Option<&dyn Images> {
        self.picture.as_ref().map(|picture| picture as _)
    }
}

/// The bytes of parameters, from values of 8 bytes.
pub(crate) fn params(entry: &Entry, values: &[u64]) -> Vec<u8> {
    assert_eq!(entry.params().len(), values.len());
    let mut bytes = vec![0; entry.params_size()];
    for (&Param { offset, size }, value) in entry.params().iter().zip(values) {
        bytes[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    bytes
}

/// Runs a kernel of a text.
pub(crate) fn run(
    text: &str,
    name: &str,
    grid: [u32; 3],
    block: [u32; 3],
    values: &[u64],
    memory: &Memory,
) -> Result<(), Fault> {
    run_entry(
        &Module::parse(text).unwrap(),
        name,
        grid,
        block,
        values,
        memory,
    )
}

/// Runs a kernel of a module.
pub(crate) fn run_entry(
    module: &Module,
    name: &str,
    grid: [u32; 3],
    block: [u32; 3],
    values: &[u64],
    memory: &Memory,
) -> Result<(), Fault> {
    let entry = module.entry(name).unwrap();
    let params = params(&entry, values);
    entry.run(
        &Launch {
            grid,
            block,
            params,
        },
        memory,
    )
}
