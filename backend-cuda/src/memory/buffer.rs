//! Buffers: what demonstrations and tests need, and memory that other APIs share.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cudarc::driver::sys;
use syncline_core::{DeviceId, Error, Object, Result};

use crate::device::deferred_free::Resource;
use crate::device::open::{Device, DeviceRef};
use crate::driver::table::{Code, Driver, Raw};

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PINNED: u32 = 3;

/// 32-bit words that the device addresses. Cheap to clone; freed with the last clone, which
/// submissions that use it keep until they have finished.
///
/// Freeing may wait for all work of the context, and keep every other thread from giving it more meanwhile (`cuMemFree`): so let the last clone go
/// where that does no harm. Where a finished submission had the last one, nobody waits: the memory is freed when a buffer or a module of the
/// context is dropped elsewhere, when one is made and much is due or the driver has no more, by [`Device::free_what_is_due`], or with the context.
#[derive(Clone)]
pub struct DeviceBuffer(Arc<Memory>);

struct Memory {
    device_ref: DeviceRef,
    object: Object,
    pointer: sys::CUdeviceptr,
    bytes: u64,
    /// The same where the host addresses it.
    host: Option<Raw<c_void>>,
    /// What is freed at the end.
    resource: Option<Resource>,
}

impl Device {
    /// Memory of the device, with anything in it. Blocks while the driver allocates, and while what is due is freed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `bytes` is a positive multiple of 4; a driver error.
    pub fn buffer(&self, bytes: u64) -> Result<DeviceBuffer> {
        let size = whole_words(self.object(), bytes)?;
        let context = self.context();
        let _bound = context.bind_outside_capture()?;
        let mut pointer = 0;
        // SAFETY: writes one address; the context is current.
        context.allocate(|driver| unsafe { driver.mem_alloc(&raw mut pointer, size) })?;
        // SAFETY: just allocated, of so many bytes, and given away here.
        Ok(unsafe {
            DeviceBuffer::new(
                &self.device_ref(),
                pointer,
                bytes,
                Resource::Device(pointer),
            )
        })
    }

    /// Pinned memory of the host that the device addresses too, all zeroes. Blocks while the driver
    /// allocates, and while what is due is freed.
    ///
    /// # Errors
    /// As [`Device::buffer`].
    pub fn host_buffer(&self, bytes: u64) -> Result<DeviceBuffer> {
        let device_ref = self.device_ref();
        let size = whole_words(&device_ref.object, bytes)?;
        let _bound = device_ref.context.bind_outside_capture()?;
        let mut host = null_mut();
        device_ref
            .context
            .allocate(|driver| pin(driver, size, &mut host))?;
        // SAFETY: just pinned, of so many bytes.
        unsafe { DeviceBuffer::pinned_at(&device_ref, host, bytes, size) }
    }

    /// Frees the memory, and the modules, that finished submissions had the last handles of. Waits for all work of the context, for
    /// however long that takes, and keeps other threads from giving it more meanwhile.
    ///
    /// # Errors
    /// A driver error, if the context cannot be made current.
    pub fn free_what_is_due(&self) -> Result<()> {
        let context = self.context();
        let _bound = context.bind_outside_capture()?;
        context.deferred_frees().free_all(context.driver());
        Ok(())
    }
}

/// Allocates pinned memory of so many bytes.
fn pin(driver: &Driver, size: usize, to: &mut *mut c_void) -> Result<(), Code> {
    // SAFETY: writes one address; the callers have made the context current.
    unsafe { driver.mem_host_alloc(to, size, PINNED) }
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
    /// As [`Device::host_buffer`], without the device, and frees nothing that is due: may be called where nobody waits for a device.
    ///
    /// # Errors
    /// As [`Device::host_buffer`].
    pub(crate) fn pinned(device_ref: &DeviceRef, bytes: u64) -> Result<Self> {
        let size = whole_words(&device_ref.object, bytes)?;
        let context = &device_ref.context;
        let _bound = context.bind_outside_capture()?;
        let mut host = null_mut();
        pin(context.driver(), size, &mut host).map_err(|code| context.error(code))?;
        // SAFETY: just pinned, of so many bytes.
        unsafe { Self::pinned_at(device_ref, host, bytes, size) }
    }

    /// Of memory that was just pinned, which is freed with it; the context is current.
    ///
    /// # Safety
    /// `host` was allocated by [`pin`], of `size` bytes, as many as `bytes`, and is used nowhere
    /// else.
    unsafe fn pinned_at(
        device_ref: &DeviceRef,
        host: *mut c_void,
        bytes: u64,
        size: usize,
    ) -> Result<Self> {
        let context = &device_ref.context;
        // SAFETY: so many bytes that the host may write and that nothing else has seen.
        unsafe { host.cast::<u8>().write_bytes(0, size) };
        let mut pointer = 0;
        // SAFETY: pinned with a device mapping; writes one address.
        let mapped = unsafe {
            context
                .driver()
                .mem_host_get_device_pointer(&raw mut pointer, host, 0)
        };
        // From here on the buffer frees it.
        let pinned = Resource::Pinned(Raw(host));
        // SAFETY: the caller's promise; zeroed above. Without an address on the device, the buffer
        // is dropped below.
        let buffer = unsafe { Self::new(device_ref, pointer, bytes, pinned) };
        mapped.map_err(|code| context.error(code))?;
        Ok(buffer)
    }

    /// Of memory that `resource` owns.
    ///
    /// # Safety
    /// `pointer` is its address on the device of `place`, and it has at least `bytes` bytes. If it
    /// is pinned, the host may read and write as many, and has written them.
    pub(crate) unsafe fn new(
        device_ref: &DeviceRef,
        pointer: sys::CUdeviceptr,
        bytes: u64,
        resource: Resource,
    ) -> Self {
        let (label, host) = match &resource {
            Resource::External(..) => ("imported memory", None),
            Resource::Pinned(host) => ("pinned memory", Some(Raw(host.0))),
            _ => ("device memory", None),
        };
        Self(Arc::new(Memory {
            device_ref: device_ref.clone(),
            object: Object::new("buffer", label),
            pointer,
            bytes,
            host,
            resource: Some(resource),
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
        let host = self.0.host.as_ref()?;
        // SAFETY: pinned memory of so many words, page-aligned, once zeroed (see `new`), and freed
        // with the last clone, which `self` is not yet. The host reaches it through atomics alone.
        Some(unsafe { std::slice::from_raw_parts(host.0.cast::<AtomicU32>(), self.words()) })
    }

    /// As [`DeviceBuffer::as_words`], in pairs. Nobody reaches the same memory both ways.
    pub(crate) fn as_long_words(&self) -> Option<&[AtomicU64]> {
        let host = self.0.host.as_ref()?;
        // SAFETY: as for the words, of which there are twice as many. Pages are aligned for these,
        // too.
        Some(unsafe { std::slice::from_raw_parts(host.0.cast::<AtomicU64>(), self.words() / 2) })
    }

    /// A copy of the words as they are now. Blocks for the copy; not ordered with any queue.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the host has no memory for so many; a driver error.
    pub fn read_words(&self) -> Result<Vec<u32>> {
        if let Some(words) = self.as_words() {
            return Ok(words
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect());
        }
        // Devices may have more memory than the host.
        let mut words = Vec::new();
        words
            .try_reserve_exact(self.words())
            .map_err(|error| Error::Unsupported {
                object: self.object().clone(),
                asked: format!("be copied, all {} bytes", self.bytes()),
                reason: error.to_string(),
            })?;
        words.resize(self.words(), 0_u32);
        self.transfer(|memory| {
            let (to, bytes) = (words.as_mut_ptr().cast(), words.len() * 4);
            // SAFETY: both sides hold `bytes` bytes, and `words` is borrowed for the call, which
            // ends after the copy.
            unsafe {
                memory
                    .device_ref
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
        // Through atomics, as other threads may read there.
        if let Some(to) = self.as_words() {
            for (to, &word) in to.iter().zip(words) {
                to.store(word, Ordering::Relaxed);
            }
            return Ok(());
        }
        self.transfer(|memory| {
            let (from, bytes) = (words.as_ptr().cast(), size_of_val(words));
            let driver = memory.device_ref.context.driver();
            // SAFETY: both sides hold `bytes` bytes (checked above). The call has read `words` when
            // it returns.
            unsafe { driver.memcpy_htod(memory.pointer, from, bytes) }?;
            // The call may return before the last bytes have arrived, and other streams do not wait for it.
            // SAFETY: the legacy default stream of the current context, in which the copy runs.
            unsafe { driver.stream_synchronize(null_mut()) }
        })
    }

    fn transfer(&self, copy: impl FnOnce(&Memory) -> Result<(), Code>) -> Result<()> {
        let _bound = self.0.device_ref.context.bind_outside_capture()?;
        copy(&self.0).map_err(|code| self.0.device_ref.context.error(code))
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
        if self.0.device_ref.id == device {
            return Ok(());
        }
        Err(Error::WrongDevice {
            object: self.0.object.clone(),
            owner: self.0.device_ref.object.clone(),
            asked: asked.clone(),
        })
    }

    pub(crate) fn keep(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        self.0.clone()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(resource) = self.resource.take() {
            resource.free_or_defer(self.bytes, &self.device_ref.context);
        }
    }
}

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.0.object, self.0.bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use crate::driver::emulated;

    /// Another thread may read there at the same time, through
    /// [`DeviceBuffer::as_words`](super::DeviceBuffer::as_words).
    #[test]
    fn words_of_the_host_are_written_without_the_driver() {
        let device = emulated::device();
        let buffer = device.host_buffer(16).unwrap();
        buffer.write_words(&[1, 2, 3]).unwrap();
        // The driver that is emulated copies nothing.
        assert_eq!(buffer.read_words().unwrap(), [1, 2, 3, 0]);
        let too_many = buffer.write_words(&[9; 5]);
        assert!(matches!(
            too_many,
            Err(syncline_core::Error::Unsupported { .. })
        ));
        assert_eq!(buffer.read_words().unwrap(), [1, 2, 3, 0]);
    }

    #[test]
    fn what_the_host_has_no_memory_for_is_not_read() {
        let device = emulated::device();
        let buffer = device.buffer(u64::MAX - 3).unwrap();
        let error = buffer.read_words().unwrap_err().to_string();
        assert!(error.contains("be copied, all"), "{error}");
    }
}
