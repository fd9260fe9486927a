//! A `VkDevice`, and opening it.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::{Arc, OnceLock};

use ash::{khr, vk};
use syncline_core::backend::{self, Attachment};
use syncline_core::clock::{Clock, HostClock};
use syncline_core::{DeviceId, Error, Info, Object, QueueKind, Result, Watcher};

use crate::adopt::raw::Native;
use crate::driver::error::{native, unsupported};
use crate::driver::instance::Instance;
use crate::memory::deferred_destroy::Late;
use crate::probe::{Enabled, Probe};
use crate::queue::driver_queue::DriverQueue;
use crate::queue::submission::Queue;
use crate::share::external::Nature;
use crate::timeline::port::Semaphore;
use crate::timeline::watch::Nudges;
use crate::timing::clock::Clocks;
use crate::timing::stamp::QueryPools;

/// At most so many driver queues of one family are made; logical queues share them.
const QUEUES_PER_FAMILY: u32 = 16;

/// A `VkDevice`, opened here or adopted from an engine. Cheap to clone; everything made from it keeps it alive.
#[derive(Clone)]
pub struct Device(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) id: DeviceId,
    pub(crate) object: Object,
    pub(crate) info: Info,
    pub(crate) enabled: Enabled,
    pub(crate) queues: Vec<Arc<DriverQueue>>,
    /// The queue families of the physical device that run submissions, ascending. Two devices of one
    /// GPU have the same, whatever queues they were made with.
    pub(crate) families: Vec<u32>,
    pub(crate) query_pools: QueryPools,
    pub(crate) clocks: Clocks,
    /// See [`Probe::host_clock`].
    pub(crate) host_clock: Option<HostClock>,
    pub(crate) external_semaphores: Option<khr::external_semaphore_fd::Device>,
    pub(crate) external_memory: Option<khr::external_memory_fd::Device>,
    /// As which handles a binary semaphore can leave, at the same time.
    pub(crate) binary_exports: vk::ExternalSemaphoreHandleTypeFlags,
    /// What the handles of timelines that the driver exports look like, once that is known.
    pub(crate) nature: OnceLock<Nature>,
    /// The same of binary semaphores.
    pub(crate) binary_nature: OnceLock<Nature>,
    /// The same of memory.
    pub(crate) memory_nature: OnceLock<Nature>,
    /// The first sign that the device is lost.
    lost: OnceLock<Error>,
    pub(crate) watcher: Watcher,
    pub(crate) nudges: Nudges,
    /// See [`Probe::spins_on_any`].
    pub(crate) spins_on_any: bool,
    /// See [`Probe::waits_to_read`].
    pub(crate) waits_to_read: bool,
    pub(crate) late: Late,
    /// The last field: the device is destroyed after everything else here.
    pub(crate) native: Native,
}

impl Device {
    /// `vkCreateDevice` with queues of every family, and whatever of [`Enabled`] the driver offers.
    pub(crate) fn open(instance: &Instance, probe: &Probe) -> Result<Self> {
        let object = Object::new("device", &probe.info.marked_name());
        let priorities = [1.0; QUEUES_PER_FAMILY as usize];
        let queues: Vec<_> = probe
            .families
            .iter()
            .map(|family| {
                vk::DeviceQueueCreateInfo::default()
                    .queue_family_index(family.index)
                    .queue_priorities(&priorities[..family.count.min(QUEUES_PER_FAMILY) as usize])
            })
            .collect();
        let extensions: Vec<_> = probe.extensions.iter().map(|name| name.as_ptr()).collect();
        let mut timelines =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut reset = vk::PhysicalDeviceHostQueryResetFeatures::default()
            .host_query_reset(probe.enabled.host_query_reset);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timelines)
            .push_next(&mut reset);
        // SAFETY: `info` is valid and asks only for what the probe found; the physical device is the instance's.
        let raw = unsafe { instance.raw().create_device(probe.physical, &info, None) }
            .map_err(|code| native(&object, "vkCreateDevice", code))?;
        let mut handles = Vec::new();
        for family in &probe.families {
            for index in 0..family.count.min(QUEUES_PER_FAMILY) {
                // SAFETY: the device was made with this queue.
                let queue = unsafe { raw.get_device_queue(family.index, index) };
                handles.push((family.index, index, queue));
            }
        }
        let native = Native::opened(instance, probe.physical, raw);
        Self::assemble(native, probe.clone(), object, &handles)
    }

    /// A device over handles that are opened or adopted already.
    pub(crate) fn assemble(
        native: Native,
        probe: Probe,
        object: Object,
        handles: &[(u32, u32, vk::Queue)],
    ) -> Result<Self> {
        let queues = handles
            .iter()
            .filter_map(|&(family, index, raw)| {
                let family = probe.families.iter().find(|known| known.index == family)?;
                Some(Arc::new(DriverQueue::new(raw, *family, index)))
            })
            .collect();
        let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
        let semaphore = create_timeline(&native.device, 0, no_handle)
            .map_err(|code| crate::driver::error::native(&object, "vkCreateSemaphore", code))?;
        let enabled = probe.enabled;
        let (instance, device) = (&native.instance, &native.device);
        Ok(Self(Arc::new(Inner {
            id: DeviceId::new(),
            object,
            info: probe.info,
            enabled,
            queues,
            families: probe.families.iter().map(|family| family.index).collect(),
            query_pools: QueryPools::default(),
            clocks: Clocks::default(),
            host_clock: probe.host_clock,
            external_semaphores: enabled
                .external_semaphore_fd
                .then(|| khr::external_semaphore_fd::Device::new(instance, device)),
            external_memory: enabled
                .external_memory_fd
                .then(|| khr::external_memory_fd::Device::new(instance, device)),
            binary_exports: probe.binary_exports,
            nature: OnceLock::new(),
            binary_nature: OnceLock::new(),
            memory_nature: OnceLock::new(),
            lost: OnceLock::new(),
            watcher: Watcher::default(),
            nudges: Nudges::new(semaphore),
            spins_on_any: probe.spins_on_any,
            waits_to_read: probe.waits_to_read,
            late: Late::new(probe.lets_go_late),
            native,
        })))
    }

    /// A queue on the family with this index in the driver's numbering, on that of its driver queues
    /// which the fewest others use.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has no queue of that family; a driver error.
    pub fn queue_of_family(&self, family: u32, label: &str) -> Result<Queue> {
        let least_used = self
            .0
            .queues
            .iter()
            .filter(|queue| queue.family.index == family)
            .min_by_key(|queue| queue.users());
        match least_used {
            Some(driver) => Queue::new(self, driver, label),
            None => Err(self.no_queue(&format!("run a queue of family {family}"))),
        }
    }

    /// A queue on one certain driver queue.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device was not made with that driver queue; a driver error.
    pub fn queue_on(&self, family: u32, index: u32, label: &str) -> Result<Queue> {
        Queue::new(self, self.driver_queue(family, index)?, label)
    }

    pub(crate) fn driver_queue(&self, family: u32, index: u32) -> Result<&Arc<DriverQueue>> {
        self.0
            .queues
            .iter()
            .find(|queue| (queue.family.index, queue.index) == (family, index))
            .ok_or_else(|| self.no_queue(&format!("use queue {index} of family {family}")))
    }

    fn no_queue(&self, asked: &str) -> Error {
        let have: Vec<String> = self
            .0
            .queues
            .iter()
            .map(|queue| format!("{}.{}", queue.family.index, queue.index))
            .collect();
        let reason = if have.is_empty() {
            "it was adopted without queues".to_owned()
        } else {
            format!("its queues, by family and index, are {}", have.join(", "))
        };
        unsupported(&self.0.object, asked, reason)
    }
}

impl backend::Device for Device {
    type Queue = Queue;

    fn id(&self) -> DeviceId {
        self.0.id
    }

    fn object(&self) -> &Object {
        &self.0.object
    }

    fn info(&self) -> &Info {
        &self.0.info
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
        Ok(Semaphore::new(&self.0, initial, no_handle)?.attach(initial))
    }

    /// The family that can do no more than it must is preferred: on NVIDIA, transfer-only queues
    /// need no switch of the GPU's context.
    fn queue(&self, kind: QueueKind, label: &str) -> Result<Queue> {
        let preference: &[QueueKind] = match kind {
            QueueKind::Transfer => &[QueueKind::Transfer, QueueKind::Compute, QueueKind::Graphics],
            QueueKind::Compute => &[QueueKind::Compute, QueueKind::Graphics],
            _ => &[kind],
        };
        let family = preference
            .iter()
            .find_map(|&kind| self.0.queues.iter().find(|queue| queue.family.kind == kind))
            .map(|queue| queue.family.index)
            .ok_or_else(|| self.no_queue(&format!("run {kind} work")))?;
        self.queue_of_family(family, label)
    }

    fn check(&self) -> Result<()> {
        if let Some(lost) = self.0.lost.get() {
            return Err(lost.clone());
        }
        let call = "vkGetSemaphoreCounterValue";
        // SAFETY: the nudge semaphore lives as long as the device.
        match unsafe {
            self.0
                .raw()
                .get_semaphore_counter_value(self.0.nudges.semaphore)
        } {
            // What a counter reads once the device behind it is gone.
            Ok(u64::MAX) => Err(self
                .0
                .failed(&self.0.object, call, vk::Result::ERROR_DEVICE_LOST)),
            Ok(_) => Ok(()),
            Err(code) => Err(self.0.failed(&self.0.object, call, code)),
        }
    }

    /// The clock that its timestamps count (`VK_TIME_DOMAIN_DEVICE_KHR`), in nanoseconds, beside the host's
    /// `CLOCK_MONOTONIC`, or its `CLOCK_MONOTONIC_RAW` where the driver knows no other; [`Clock::host_clock`] tells which.
    /// It may be used from any thread, and keeps the device.
    ///
    /// A device made with calibrated timestamps ([`Enabled::calibrated_timestamps`]) asks its driver for each sample
    /// (`vkGetCalibratedTimestampsKHR`): the best of up to eight readings, of which none is begun after half a
    /// millisecond. The deviation is the driver's `pMaxDeviation`, and what the host's clock resolves, and for how long the
    /// device's shows the same: at least the `timestampPeriod`, and more where it has only been seen to go on by more.
    ///
    /// Any other device, and one whose driver knows neither of the host's clocks, writes timestamps for each sample on the
    /// `VkQueue` that the fewest use. The deviation is half of the time from before the submission until the host has seen
    /// it finished: some tens of microseconds on an idle device. A sample takes a millisecond then, or blocks for up to
    /// 0.25 s behind other work of that `VkQueue`, also while the application holds its
    /// [`QueueGuard`](crate::QueueGuard), and then fails.
    ///
    /// Either way a counter of few bits has to be sampled again before it has come round a thousand times, which 36 bits of
    /// 1 ns take 19 hours for.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if no queue family has valid timestamp bits; or, without calibration, if the device has no
    /// queue that can write timestamps. Those of its samples: a driver error, and without calibration [`Error::ClockSilent`].
    fn clock(&self) -> Result<Clock> {
        self.own_clock()
    }
}

impl Inner {
    pub(crate) const fn raw(&self) -> &ash::Device {
        &self.native.device
    }

    /// The error for what a call returned; remembers a lost device.
    #[cold]
    pub(crate) fn failed(&self, object: &Object, call: &'static str, code: vk::Result) -> Error {
        let error = native(object, call, code);
        if matches!(error, Error::DeviceLost { .. }) {
            self.lost.get_or_init(|| error.clone());
        }
        error
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// The part of a timeline that this device has, with what holds for all of its semaphores.
    pub(crate) fn watch(self: &Arc<Self>, attachment: Attachment) -> Attachment {
        attachment
            .watched_by(self.clone())
            .with_max_value_difference(self.info.capabilities.max_value_difference)
    }

    pub(crate) fn timeline_semaphore(
        &self,
        initial: u64,
        exports: vk::ExternalSemaphoreHandleTypeFlags,
    ) -> Result<vk::Semaphore> {
        create_timeline(self.raw(), initial, exports)
            .map_err(|code| self.failed(&self.object, "vkCreateSemaphore", code))
    }
}

impl Inner {
    /// `vkDestroySemaphore` of semaphores that [`Late`] has kept.
    pub(crate) fn destroy_semaphores(&self, semaphores: Vec<vk::Semaphore>) {
        for semaphore in semaphores {
            // SAFETY: made on this device, and kept in `late` by its `Semaphore` where that was dropped: no submission of
            // ours uses it any more, and the driver has let go of it, as a later submission has signalled.
            unsafe { self.native.device.destroy_semaphore(semaphore, None) };
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.query_pools.destroy(&self.native.device);
        let late = self.late.take();
        if !late.is_empty() {
            // A lost device, which cannot wait, uses nothing any more.
            // SAFETY: all queues of ours are gone, and the driver that this is for locks its queue itself.
            let _ = unsafe { self.native.device.device_wait_idle() };
            self.destroy_semaphores(late);
        }
        // SAFETY: made on this device and destroyed here alone. No call waits for it: each is made through an `Arc` of this.
        unsafe {
            self.native
                .device
                .destroy_semaphore(self.nudges.semaphore, None);
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
    // SAFETY: `info` is valid, and the feature `timelineSemaphore` is enabled on every device here. The callers that ask for
    // handle types have checked that the device exports timelines as such.
    unsafe { device.create_semaphore(&info, None) }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (Vulkan)", self.0.object)
    }
}
