//! Buffers for demonstrations and tests, and for memory of other APIs.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cudarc::driver::sys;
use syncline_core::backend::kit::{require_range, require_size, size_refused};
use syncline_core::{Error, Result, error::Object, info::DeviceId};

use crate::device::deferred_free::Resource;
use crate::device::inner::DeviceRef;
use crate::device::open::Device;
use crate::driver::table::{Code, Driver, Raw};
use crate::memory::allocation::Allocation;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PINNED: u32 = 3;

/// A range of 32-bit words in device memory or pinned host memory. Cheap to clone.
///
/// The last clone of all its ranges frees the memory. Submissions that use the buffer keep a clone
/// until they have finished.
///
/// Freeing may block until all work of the context has finished, and blocks other threads that
/// submit to the context meanwhile (`cuMemFree`). Drop the last clone where this is harmless. If a
/// finished submission had the last clone, the free is deferred and blocks no thread then. The
/// memory is freed with the next of these:
///
/// * The application drops a buffer or module of the context.
/// * The application creates one while many frees are deferred or the driver is out of memory.
/// * The application calls [`Device::free_what_is_due`].
/// * The context ends.
#[derive(Clone)]
pub struct Buffer {
    memory: Arc<Memory>,
    /// Where the range begins in the memory.
    offset: u64,
    size: u64,
}

struct Memory {
    device_ref: DeviceRef,
    object: Object,
    pointer: sys::CUdeviceptr,
    size: u64,
    /// The host address of the same memory.
    host: Option<Raw<c_void>>,
    /// Freed when the buffer is dropped.
    resource: Option<Resource>,
    /// The imported memory that this is a mapping of, and where it begins there. Dropped after the
    /// resource is freed.
    allocation: Option<(Allocation, u64)>,
}

impl Device {
    /// Allocates uninitialized device memory.
    ///
    /// Blocks while the driver allocates and while deferred frees run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `size` is a positive multiple of 4, or a driver error.
    pub fn buffer(&self, size: u64) -> Result<Buffer> {
        let length = whole_words(self.object(), size)?;
        let context = self.context();
        let _bound = context.bind_outside_capture()?;
        let mut pointer = 0;
        // SAFETY: writes one address. The context is current.
        context.allocate(|driver| unsafe { driver.mem_alloc(&raw mut pointer, length) })?;
        // SAFETY: just allocated with this size, and owned by nothing else.
        Ok(unsafe {
            Buffer::new(
                &self.inner().device_ref(),
                pointer,
                size,
                Resource::Device(pointer),
            )
        })
    }

    /// Allocates zeroed pinned host memory that the device can address.
    ///
    /// Blocks while the driver allocates and while deferred frees run.
    ///
    /// # Errors
    /// Same errors as [`Device::buffer`].
    pub fn host_buffer(&self, size: u64) -> Result<Buffer> {
        let device_ref = self.inner().device_ref();
        let length = whole_words(device_ref.object(), size)?;
        let _bound = device_ref.context().bind_outside_capture()?;
        let mut host = null_mut();
        device_ref
            .context()
            .allocate(|driver| pin(driver, length, &mut host))?;
        // SAFETY: just pinned, with this size.
        unsafe { Buffer::pinned_at(&device_ref, host, length) }
    }

    /// Frees the memory and modules that were put off when finished submissions dropped them.
    ///
    /// Blocks without a time limit until all work of the context has finished, and blocks other
    /// threads that submit to the context meanwhile.
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

/// Allocates `size` bytes of pinned memory.
fn pin(driver: &Driver, size: usize, to: &mut *mut c_void) -> Result<(), Code> {
    // SAFETY: writes one address. The callers have made the context current.
    unsafe { driver.mem_host_alloc(to, size, PINNED) }
}

pub(crate) fn whole_words(object: &Object, size: u64) -> Result<usize> {
    require_size(object, size)?;
    let refused = |_| size_refused(object, size, "more than the host can address");
    usize::try_from(size).map_err(refused)
}

impl Buffer {
    /// Like [`Device::host_buffer`], with a [`DeviceRef`], and without running deferred frees.
    ///
    /// So it may be called where the thread must not block on the device.
    ///
    /// # Errors
    /// Same errors as [`Device::host_buffer`].
    pub(crate) fn pinned(device_ref: &DeviceRef, size: u64) -> Result<Self> {
        let length = whole_words(device_ref.object(), size)?;
        let context = device_ref.context();
        let _bound = context.bind_outside_capture()?;
        let mut host = null_mut();
        pin(context.driver(), length, &mut host).map_err(|code| context.error(code))?;
        // SAFETY: just pinned, with this size.
        unsafe { Self::pinned_at(device_ref, host, length) }
    }

    /// A buffer of memory that was just pinned. The context is current.
    ///
    /// # Safety
    /// [`pin`] has allocated `host` with `size` bytes. Nothing else uses it.
    unsafe fn pinned_at(device_ref: &DeviceRef, host: *mut c_void, size: usize) -> Result<Self> {
        let context = device_ref.context();
        // SAFETY: the host may write this many bytes, and nothing else has the address.
        unsafe { host.cast::<u8>().write_bytes(0, size) };
        let mut pointer = 0;
        // SAFETY: pinned with a device mapping. Writes one address.
        let mapped = unsafe {
            context
                .driver()
                .mem_host_get_device_pointer(&raw mut pointer, host, 0)
        };
        // From here on the buffer frees the memory.
        let pinned = Resource::Pinned(Raw(host));
        // SAFETY: the caller guarantees it, and the memory is zeroed above. If there is no device
        // address, the buffer is dropped below.
        let buffer = unsafe { Self::new(device_ref, pointer, size as u64, pinned) };
        mapped.map_err(|code| context.error(code))?;
        Ok(buffer)
    }

    /// A buffer of memory that `resource` owns.
    ///
    /// # Safety
    /// `pointer` is the memory's address on the device of `device_ref`, with at least `size`
    /// bytes. If the memory is pinned, the host may read and write as many bytes and has
    /// initialized them.
    pub(crate) unsafe fn new(
        device_ref: &DeviceRef,
        pointer: sys::CUdeviceptr,
        size: u64,
        resource: Resource,
    ) -> Self {
        let (label, host) = match &resource {
            Resource::Mapped(..) => ("exported memory", None),
            Resource::Pinned(host) => ("pinned memory", Some(Raw(host.0))),
            _ => ("device memory", None),
        };
        if matches!(resource, Resource::Mapped(_)) {
            device_ref.context().shared_memory().add(pointer, size);
        }
        let memory = Memory {
            device_ref: device_ref.clone(),
            object: Object::new("buffer", label),
            pointer,
            size,
            host,
            resource: Some(resource),
            allocation: None,
        };
        Self {
            memory: Arc::new(memory),
            offset: 0,
            size,
        }
    }

    /// Keeps the imported memory that this buffer is mapped in, and that has just been mapped.
    pub(crate) fn in_allocation(mut self, allocation: Allocation, offset: u64) -> Self {
        if let Some(memory) = Arc::get_mut(&mut self.memory) {
            memory.object = Object::new("buffer", "imported memory");
            memory.allocation = Some((allocation, offset));
            let shared = memory.device_ref.context().shared_memory();
            shared.add(memory.pointer, memory.size);
        }
        self
    }

    /// A range of this range. It keeps the memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless both numbers are multiples of 4, `size` is positive, and the
    /// range ends within this one.
    pub fn view(&self, offset: u64, size: u64) -> Result<Self> {
        require_range(self.object(), self.size, offset, size)?;
        Ok(Self {
            memory: self.memory.clone(),
            offset: self.offset + offset,
            size,
        })
    }

    /// The address of the range on the device.
    #[must_use]
    pub fn pointer(&self) -> sys::CUdeviceptr {
        self.memory.pointer + self.offset
    }

    /// Where the range begins in its memory, in bytes. 0 unless it is a [`Buffer::view`].
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The size of the range in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.memory.object
    }

    /// The words, if the host can address them.
    ///
    /// A word that a stream is writing may read as old or new.
    #[must_use]
    pub fn as_words(&self) -> Option<&[AtomicU32]> {
        let host = self.host()?;
        // SAFETY: pinned memory with this many words, aligned and initialized (see `new`). It is
        // freed with the last clone, and `self` is a clone. The host accesses it only through
        // atomics.
        Some(unsafe { std::slice::from_raw_parts(host.cast::<AtomicU32>(), self.words()) })
    }

    /// The address for the host. A forked child does not inherit the driver's mappings.
    fn host(&self) -> Option<*mut c_void> {
        let host = self.memory.host.as_ref();
        let host = host.filter(|_| !self.memory.device_ref.context().driver().is_forked())?;
        // The range begins within the memory, which the host can address.
        let offset = usize::try_from(self.offset).ok()?;
        Some(host.0.wrapping_byte_add(offset))
    }

    /// Same as [`Buffer::as_words`], as 64-bit words.
    ///
    /// No code accesses one buffer in both ways.
    pub(crate) fn as_long_words(&self) -> Option<&[AtomicU64]> {
        let host = self.host()?;
        if !host.cast::<AtomicU64>().is_aligned() {
            return None;
        }
        // SAFETY: as for the 32-bit words, of which there are twice as many. It is aligned.
        Some(unsafe { std::slice::from_raw_parts(host.cast::<AtomicU64>(), self.words() / 2) })
    }

    /// Copies the current words. Blocks during the copy, which is not ordered with any queue.
    ///
    /// In device memory, the copy is work of the legacy default stream. So it waits for earlier
    /// work of that stream, and of streams that synchronize with it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the host has too little memory for the copy, or a driver error.
    pub fn read_words(&self) -> Result<Vec<u32>> {
        if let Some(words) = self.as_words() {
            return Ok(words
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect());
        }
        // A device may have more memory than the host.
        let mut words = Vec::new();
        words.try_reserve_exact(self.words()).map_err(|error| {
            Error::unsupported(
                self.object(),
                format!("be copied, all {} bytes", self.size()),
                error.to_string(),
            )
        })?;
        words.resize(self.words(), 0_u32);
        self.transfer(|driver| {
            let (to, size) = (words.as_mut_ptr().cast(), words.len() * 4);
            // SAFETY: both sides have `size` bytes. `words` is borrowed for the call, which
            // returns after the copy.
            unsafe { driver.memcpy_dtoh(to, self.pointer(), size) }
        })?;
        Ok(words)
    }

    /// Overwrites the first words. Blocks in the same way as [`Buffer::read_words`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `words` is longer than the buffer, or a driver error.
    pub fn write_words(&self, words: &[u32]) -> Result<()> {
        if words.len() > self.words() {
            return Err(Error::unsupported(
                self.object(),
                format!("take {} words", words.len()),
                format!("it holds {}", self.words()),
            ));
        }
        // Through atomics, because other threads may read the words.
        if let Some(to) = self.as_words() {
            for (to, &word) in to.iter().zip(words) {
                to.store(word, Ordering::Relaxed);
            }
            return Ok(());
        }
        self.transfer(|driver| {
            let (from, size) = (words.as_ptr().cast(), size_of_val(words));
            // SAFETY: both sides have `size` bytes (checked above). The call has read `words` when
            // it returns.
            unsafe { driver.memcpy_htod(self.pointer(), from, size) }?;
            // The call may return before the copy has ended, and other streams do not wait for it.
            // SAFETY: the legacy default stream of the current context, where the copy runs.
            unsafe { driver.stream_synchronize(null_mut()) }
        })
    }

    fn transfer(&self, copy: impl FnOnce(&Driver) -> Result<(), Code>) -> Result<()> {
        let context = self.memory.device_ref.context();
        let _bound = context.bind_outside_capture()?;
        copy(context.driver()).map_err(|code| context.error(code))
    }

    /// The number of whole words. A partial word at the end of imported memory is not used.
    pub(crate) fn words(&self) -> usize {
        // Allocated sizes fit. Imported sizes are clamped to what the host can count.
        usize::try_from(self.size / 4).unwrap_or(usize::MAX)
    }

    /// True if the first `size` bytes of both ranges have memory in common.
    ///
    /// Two imports of one memory do not know of each other.
    pub(crate) fn overlaps(&self, other: &Self, size: u64) -> bool {
        let ((memory, offset), (theirs, at)) = (self.place(), other.place());
        memory == theirs && offset < at + size && at < offset + size
    }

    /// What identifies the memory, and where the range begins in it.
    pub(crate) fn place(&self) -> (*const (), u64) {
        match &self.memory.allocation {
            Some((allocation, at)) => (allocation.address(), at + self.offset),
            None => (Arc::as_ptr(&self.memory).cast(), self.offset),
        }
    }

    /// Rejects a buffer of another device.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    pub(crate) fn require_device(&self, device: DeviceId, asked: &Object) -> Result<()> {
        if self.memory.device_ref.id() == device {
            return Ok(());
        }
        Err(Error::wrong_device(
            self.object(),
            self.memory.device_ref.object(),
            asked,
        ))
    }

    pub(crate) fn keep(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        self.memory.clone()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(resource) = self.resource.take() {
            if self.allocation.is_some() || matches!(resource, Resource::Mapped(_)) {
                let shared = self.device_ref.context().shared_memory();
                shared.remove(self.pointer, self.size);
            }
            let size = match (&resource, &self.allocation) {
                (Resource::Mapped(mapped), _) => mapped.size(),
                // The memory itself counts.
                (_, Some(_)) => 0,
                _ => self.size,
            };
            self.device_ref.context().free_or_defer(resource, size);
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.object(), self.size)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use crate::driver::emulated;

    /// Another thread may read the words meanwhile.
    #[test]
    fn pinned_words_are_written_without_the_driver() {
        let device = emulated::device();
        let buffer = device.host_buffer(16).unwrap();
        buffer.write_words(&[1, 2, 3]).unwrap();
        // The emulated driver copies nothing.
        assert_eq!(buffer.read_words().unwrap(), [1, 2, 3, 0]);
        let too_many = buffer.write_words(&[9; 5]);
        assert!(matches!(
            too_many,
            Err(syncline_core::Error::Unsupported { .. })
        ));
        assert_eq!(buffer.read_words().unwrap(), [1, 2, 3, 0]);
    }

    #[test]
    fn a_buffer_larger_than_host_memory_is_not_read() {
        let device = emulated::device();
        let buffer = device.buffer(u64::MAX - 3).unwrap();
        let error = buffer.read_words().unwrap_err().to_string();
        assert!(error.contains("be copied, all"), "{error}");
    }
}
