//! The state behind a device, which everything made from the device keeps.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use ash::vk;
use syncline_core::backend::Watcher;
use syncline_core::backend::kit::Mutex;
use syncline_core::{
    Error, Result,
    error::Object,
    info::{DeviceId, Info, Pooled},
};

use crate::device::application_memory::Sources;
use crate::device::clock_readings::DeviceClock;
use crate::device::deferred_destroy::DeferredDestroy;
use crate::device::driver_queue::DriverQueue;
use crate::device::external::External;
use crate::device::memory_pool::MemoryPool;
use crate::device::native::{ForDestroy, Native};
use crate::device::open::Device;
use crate::device::physical::{Enabled, PhysicalDevice, QueueHandle};
use crate::device::query_pools::QueryPools;
use crate::device::spare::Spare;
use crate::device::wake::WakeSemaphore;
use crate::driver::error;

/// The state behind a [`Device`](crate::device::open::Device).
pub(crate) struct Inner {
    id: DeviceId,
    object: Object,
    physical: PhysicalDevice,
    queues: Vec<Arc<DriverQueue>>,
    families: Vec<u32>,
    query_pools: QueryPools,
    memory_pool: MemoryPool,
    sources: Sources,
    clock: DeviceClock,
    external: External,
    /// The first error that said that the device is lost.
    loss: OnceLock<Error>,
    /// Opened when the device is lost and one of its exported semaphores must still be signalled.
    spare: Mutex<Option<Arc<Spare>>>,
    watcher: Watcher,
    wake: WakeSemaphore,
    deferred_destroy: DeferredDestroy,
    /// The last field, so that the device is destroyed after all other fields.
    native: Native,
}

impl Inner {
    /// Creates the state of a device that is opened or adopted already.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(
        native: Native,
        physical: PhysicalDevice,
        object: Object,
        queues: &[QueueHandle],
    ) -> Result<Arc<Self>> {
        let families = physical.families();
        let queues = queues
            .iter()
            .filter_map(|&(family, index, raw)| {
                let family = families.iter().find(|found| found.index == family)?;
                Some(DriverQueue::of(raw, *family, index))
            })
            .collect();
        let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
        let semaphore = create_timeline(native.device(), 0, no_handle)
            .map_err(|code| error::native(&object, "vkCreateSemaphore", code))?;
        Ok(Arc::new(Self {
            id: DeviceId::new::<Device>(),
            external: External::new(&object, &native, &physical),
            object,
            queues,
            families: families.iter().map(|family| family.index).collect(),
            query_pools: QueryPools::default(),
            memory_pool: MemoryPool::new(native.instance(), native.physical(), native.device()),
            sources: Sources::default(),
            clock: DeviceClock::new(physical.host_clock()),
            loss: OnceLock::new(),
            spare: Mutex::default(),
            watcher: Watcher::default(),
            wake: WakeSemaphore::new(semaphore, physical.wait_any_spins()),
            deferred_destroy: DeferredDestroy::new(physical.needs_deferred_destroy()),
            physical,
            native,
        }))
    }

    pub(crate) const fn id(&self) -> DeviceId {
        self.id
    }

    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) const fn info(&self) -> &Info {
        self.physical.info()
    }

    #[inline]
    pub(crate) const fn enabled(&self) -> Enabled {
        self.physical.enabled()
    }

    pub(crate) const fn native(&self) -> &Native {
        &self.native
    }

    /// See [`Native::for_destroy`].
    pub(crate) fn for_destroy(&self) -> Option<ForDestroy<'_>> {
        self.native.for_destroy()
    }

    /// True in a forked child of the process that opened or adopted the device.
    pub(crate) fn is_forked(&self) -> bool {
        !self.native.maker().is_this()
    }

    /// Refuses the use of the device in a forked child.
    ///
    /// # Errors
    /// [`Error::MadeBeforeFork`].
    pub(crate) fn require_maker(&self) -> Result<()> {
        self.native.maker().require(&self.object)
    }

    #[inline]
    pub(crate) const fn raw(&self) -> &ash::Device {
        self.native.device()
    }

    /// The driver queues.
    pub(crate) fn queues(&self) -> &[Arc<DriverQueue>] {
        &self.queues
    }

    /// Indices of the physical device's queue families that run submissions, ascending.
    ///
    /// The list does not depend on the queues of this `VkDevice`.
    pub(crate) fn families(&self) -> &[u32] {
        &self.families
    }

    pub(crate) const fn query_pools(&self) -> &QueryPools {
        &self.query_pools
    }

    /// The blocks of private memory.
    pub(crate) const fn memory_pool(&self) -> &MemoryPool {
        &self.memory_pool
    }

    /// The application's sources of memory.
    pub(crate) const fn sources(&self) -> &Sources {
        &self.sources
    }

    pub(crate) const fn clock(&self) -> &DeviceClock {
        &self.clock
    }

    pub(crate) const fn external(&self) -> &External {
        &self.external
    }

    pub(crate) const fn device_watcher(&self) -> &Watcher {
        &self.watcher
    }

    pub(crate) const fn wake(&self) -> &WakeSemaphore {
        &self.wake
    }

    /// See [`PhysicalDevice::query_read_blocks`].
    pub(crate) const fn query_read_blocks(&self) -> bool {
        self.physical.query_read_blocks()
    }

    #[inline]
    pub(crate) const fn deferred_destroy(&self) -> &DeferredDestroy {
        &self.deferred_destroy
    }

    /// The error for a failed call on `object`. Remembers that the device is lost.
    ///
    /// A lost device is named instead of `object`, which may be an internal semaphore.
    #[cold]
    pub(crate) fn failed(&self, object: &Object, call: &'static str, code: vk::Result) -> Error {
        let object = match code {
            vk::Result::ERROR_DEVICE_LOST => self.object(),
            _ => object,
        };
        let error = error::native(object, call, code);
        if matches!(error, Error::DeviceLost { .. }) {
            self.loss.get_or_init(|| error.clone());
        }
        error
    }

    /// The first error that said that the device is lost.
    pub(crate) fn loss(&self) -> Option<&Error> {
        self.loss.get()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.loss.get().is_some()
    }

    /// Takes ownership of a descriptor that the driver has just exported from `object`.
    ///
    /// # Errors
    /// A driver error, also if the driver returned no descriptor.
    pub(crate) fn own_fd(
        &self,
        object: &Object,
        call: &'static str,
        fd: Result<RawFd, vk::Result>,
    ) -> Result<OwnedFd> {
        let fd = fd.map_err(|code| self.failed(object, call, code))?;
        if fd < 0 {
            return Err(self.failed(object, call, vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
        }
        // SAFETY: a new descriptor, which nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A second `VkDevice` of the same GPU, which signals semaphores after this device is lost.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn spare(&self) -> Result<Arc<Spare>> {
        let mut spare = self.spare.lock();
        if let Some(spare) = &*spare {
            return Ok(spare.clone());
        }
        let opened = Arc::new(Spare::open(&self.native, &self.object)?);
        *spare = Some(opened.clone());
        Ok(opened)
    }

    /// Calls `vkCreateSemaphore` for a timeline semaphore.
    ///
    /// The caller has checked that the device exports timelines as `exports`.
    pub(crate) fn timeline_semaphore(
        &self,
        initial: u64,
        exports: vk::ExternalSemaphoreHandleTypeFlags,
    ) -> Result<vk::Semaphore> {
        self.require_maker()?;
        let raw = create_timeline(self.raw(), initial, exports)
            .map_err(|code| self.failed(&self.object, "vkCreateSemaphore", code))?;
        self.native.note_semaphore(raw, !exports.is_empty());
        Ok(raw)
    }

    /// See [`Device::trim`](syncline_core::backend::Device::trim).
    pub(crate) fn trim(&self) -> Pooled {
        // In a forked child the pools belong to the parent.
        let Some(device) = self.for_destroy() else {
            return Pooled::default();
        };
        let spare = {
            let mut spare = self.spare.lock();
            spare.take_if(|spare| Arc::strong_count(spare) == 1)
        };
        drop(spare);
        let mut left = Pooled::default();
        left.query_pools = self.query_pools.trim(&device);
        left.semaphores = self.deferred_destroy.count();
        left.memory_blocks = self.memory_pool.trim();
        self.sources.give_back();
        left
    }

    /// Calls `vkDestroySemaphore` for semaphores that [`DeferredDestroy`] has returned.
    pub(crate) fn destroy_semaphores(&self, semaphores: Vec<vk::Semaphore>) {
        // The usual case, at each submission.
        if semaphores.is_empty() {
            return;
        }
        let Some(device) = self.for_destroy() else {
            return;
        };
        for semaphore in semaphores {
            // SAFETY: made on this device, and deferred when its `Semaphore` was dropped, so no
            // submission of this crate uses the semaphore. The driver has released the semaphore,
            // because a later submission has signalled or the device is idle.
            unsafe { device.destroy_semaphore(semaphore, None) };
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(device) = self.native.for_destroy() else {
            return;
        };
        self.query_pools.destroy(&device);
        self.memory_pool.trim();
        let deferred = self.deferred_destroy.take_all();
        if !deferred.is_empty() {
            for queue in &self.queues {
                // Another device may have adopted the queue, too.
                let locked = queue.gate().lock();
                // SAFETY: the queue is of this device, and this thread has it locked. On a lost
                // device this call fails. A lost device uses no semaphore any more.
                let _ = unsafe { device.queue_wait_idle(queue.raw()) };
                if locked {
                    queue.gate().unlock();
                }
            }
            self.destroy_semaphores(deferred);
        }
        // SAFETY: made on this device and destroyed only here. No call waits for the semaphore,
        // because each such call is made through an `Arc` of `self`.
        unsafe {
            device.destroy_semaphore(self.wake.raw(), None);
        }
    }
}

fn create_timeline(
    device: &ash::Device,
    initial: u64,
    exports: vk::ExternalSemaphoreHandleTypeFlags,
) -> Result<vk::Semaphore, vk::Result> {
    let mut timeline = vk::SemaphoreTypeCreateInfo::default()
        .semaphore_type(vk::SemaphoreType::TIMELINE)
        .initial_value(initial);
    let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(exports);
    let mut info = vk::SemaphoreCreateInfo::default().push_next(&mut timeline);
    if !exports.is_empty() {
        info = info.push_next(&mut export);
    }
    // SAFETY: `info` is valid, and the feature `timelineSemaphore` is enabled on every device here.
    // Callers that pass handle types have checked that the device exports timelines as such.
    unsafe { device.create_semaphore(&info, None) }
}
