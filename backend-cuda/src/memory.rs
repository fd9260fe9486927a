//! Buffers: what demonstrations and tests need, and memory that other APIs share.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cudarc::driver::sys;
use syncline_core::backend::Device as _;
use syncline_core::{DeviceId, Error, Object, Result};

use crate::device::{Device, Place};
use crate::driver::{Code, Raw};

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PINNED: u32 = 3;

/// 32-bit words that the device addresses. Cheap to clone; freed with the last clone, which
/// submissions that use it keep until they have finished. Freeing may wait for all work of the context
/// (`cuMemFree`), so let the last clone go where that does no harm.
#[derive(Clone)]
pub struct DeviceBuffer(Arc<Memory>);

struct Memory {
    place: Place,
    object: Object,
    pointer: sys::CUdeviceptr,
    bytes: u64,
    kind: Kind,
}

/// Whose the memory is, and so how it is freed.
pub(crate) enum Kind {
    Device,
    External(Raw<sys::CUextMemory_st>),
    Pinned(Raw<c_void>),
}

impl Device {
    /// Memory of the device, with anything in it. Blocks while the driver allocates.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `bytes` is a positive multiple of 4; a driver error.
    pub fn buffer(&self, bytes: u64) -> Result<DeviceBuffer> {
        let size = whole_words(self.object(), bytes)?;
        let context = self.context();
        let _bound = context.bind_apart()?;
        let mut pointer = 0;
        // SAFETY: writes one address; freed on drop.
        unsafe { context.driver().mem_alloc(&raw mut pointer, size) }
            .map_err(|code| context.error(code))?;
        Ok(DeviceBuffer::new(self, pointer, bytes, Kind::Device))
    }

    /// Pinned memory of the host that the device addresses too, all zeroes. Blocks while the driver
    /// allocates.
    ///
    /// # Errors
    /// As [`Device::buffer`].
    pub fn host_buffer(&self, bytes: u64) -> Result<DeviceBuffer> {
        DeviceBuffer::pinned(&self.place(), bytes)
    }
}

fn whole_words(object: &Object, bytes: u64) -> Result<usize> {
    let refused = |reason: &str| Error::Unsupported {
        object: object.clone(),
        asked: format!("allocate {bytes} bytes"),
        reason: reason.into(),
    };
    if bytes == 0 || !bytes.is_multiple_of(4) {
        return Err(refused("buffers are whole 32-bit words, at least one"));
    }
    usize::try_from(bytes).map_err(|_| refused("more than the host can address"))
}

impl DeviceBuffer {
    /// As [`Device::host_buffer`], without the device.
    ///
    /// # Errors
    /// As [`Device::host_buffer`].
    pub(crate) fn pinned(place: &Place, bytes: u64) -> Result<Self> {
        let size = whole_words(&place.owner, bytes)?;
        let context = &place.context;
        let driver = context.driver();
        let _bound = context.bind_apart()?;
        let mut host = null_mut();
        // SAFETY: writes one address; freed on drop.
        unsafe { driver.mem_host_alloc(&raw mut host, size, PINNED) }
            .map_err(|code| context.error(code))?;
        // SAFETY: `size` bytes of ours that nobody else has seen.
        unsafe { host.cast::<u8>().write_bytes(0, size) };
        let mut pointer = 0;
        // SAFETY: pinned above, with a device mapping.
        let mapped = unsafe { driver.mem_host_get_device_pointer(&raw mut pointer, host, 0) };
        // From here on the buffer frees it.
        let kind = Kind::Pinned(Raw(host));
        let buffer = Self::of(place.clone(), pointer, bytes, kind);
        mapped.map_err(|code| context.error(code))?;
        Ok(buffer)
    }

    pub(crate) fn new(device: &Device, pointer: sys::CUdeviceptr, bytes: u64, kind: Kind) -> Self {
        Self::of(device.place(), pointer, bytes, kind)
    }

    fn of(place: Place, pointer: sys::CUdeviceptr, bytes: u64, kind: Kind) -> Self {
        let label = match kind {
            Kind::Device => "device memory",
            Kind::External(_) => "imported memory",
            Kind::Pinned(_) => "pinned memory",
        };
        Self(Arc::new(Memory {
            place,
            object: Object::new("buffer", label),
            pointer,
            bytes,
            kind,
        }))
    }

    /// Its address on the device.
    #[must_use]
    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.0.pointer
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Its name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The words, where the host can address them. What a stream is writing may read as old or new.
    #[must_use]
    pub fn as_words(&self) -> Option<&[AtomicU32]> {
        let Kind::Pinned(host) = &self.0.kind else {
            return None;
        };
        // SAFETY: `bytes` bytes of pinned, page-aligned, initialized memory, freed with the last clone; the
        // host reaches them through atomics only.
        Some(unsafe { std::slice::from_raw_parts(host.0.cast::<AtomicU32>(), self.words()) })
    }

    /// As [`DeviceBuffer::as_words`], in pairs. Nobody reaches the same memory both ways.
    pub(crate) fn as_long_words(&self) -> Option<&[AtomicU64]> {
        let Kind::Pinned(host) = &self.0.kind else {
            return None;
        };
        // SAFETY: as for the words, of which there are twice as many; pages are aligned for these, too.
        Some(unsafe { std::slice::from_raw_parts(host.0.cast::<AtomicU64>(), self.words() / 2) })
    }

    /// A copy of the words as they are now. Blocks for the copy; not ordered with any queue.
    ///
    /// # Errors
    /// A driver error.
    pub fn read_words(&self) -> Result<Vec<u32>> {
        if let Some(words) = self.as_words() {
            return Ok(words
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect());
        }
        let mut words = vec![0_u32; self.words()];
        self.transfer(|memory| {
            let (to, bytes) = (words.as_mut_ptr().cast(), words.len() * 4);
            // SAFETY: both sides hold `bytes` bytes.
            unsafe {
                memory
                    .place
                    .context
                    .driver()
                    .memcpy_dtoh(to, memory.pointer, bytes)
            }
        })?;
        Ok(words)
    }

    /// Overwrites the words from the first on. Blocks for the copy; not ordered with any queue.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there are more than the buffer holds; a driver error.
    pub fn write_words(&self, words: &[u32]) -> Result<()> {
        if words.len() > self.words() {
            return Err(Error::Unsupported {
                object: self.object().clone(),
                asked: format!("take {} words", words.len()),
                reason: format!("it holds {}", self.words()),
            });
        }
        self.transfer(|memory| {
            let (from, bytes) = (words.as_ptr().cast(), size_of_val(words));
            let driver = memory.place.context.driver();
            // SAFETY: both sides hold `bytes` bytes.
            unsafe { driver.memcpy_htod(memory.pointer, from, bytes) }?;
            // The call may return before the last bytes have arrived, and other streams do not wait for it.
            // SAFETY: the legacy default stream of the current context, in which the copy runs.
            unsafe { driver.stream_synchronize(null_mut()) }
        })
    }

    fn transfer(&self, copy: impl FnOnce(&Memory) -> Result<(), Code>) -> Result<()> {
        let _bound = self.0.place.context.bind_apart()?;
        copy(&self.0).map_err(|code| self.0.place.context.error(code))
    }

    /// How many words it holds. Imported memory may end within one; the rest is not reached.
    pub(crate) fn words(&self) -> usize {
        // What was allocated fits; what was imported is clamped to what the host can count.
        usize::try_from(self.0.bytes / 4).unwrap_or(usize::MAX)
    }

    /// Refuses a buffer of another device.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    pub(crate) fn require_device(&self, device: DeviceId, asked: &Object) -> Result<()> {
        if self.0.place.device == device {
            return Ok(());
        }
        Err(Error::WrongDevice {
            object: self.0.object.clone(),
            owner: self.0.place.owner.clone(),
            asked: asked.clone(),
        })
    }

    pub(crate) fn keep(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        self.0.clone()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Ok(_bound) = self.place.context.bind_apart() else {
            return;
        };
        let driver = self.place.context.driver();
        // Errors mean that the context or the driver has gone first.
        // SAFETY: freed once, in the way it was made; submissions that use it have finished.
        let _ = unsafe {
            match &self.kind {
                Kind::Device => driver.mem_free(self.pointer),
                Kind::Pinned(host) => driver.mem_free_host(host.0),
                Kind::External(memory) => driver
                    .mem_free(self.pointer)
                    .and(driver.destroy_external_memory(memory.0)),
            }
        };
    }
}

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.0.object, self.0.bytes)
    }
}
