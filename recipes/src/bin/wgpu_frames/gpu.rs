//! wgpu and Syncline on one `VkDevice`.
#![allow(unsafe_code, reason = "uses wgpu's Vulkan handles")]

use std::sync::Arc;

use syncline::backend::Device as _;
use syncline::vulkan::ash::vk;
use syncline::vulkan::{self, AdoptInfo, Enabled, Offer, OwnershipBarrier};
use syncline::{Claim, Point, Timeline, info::Uuid};
use syncline_recipes::{LIMIT, Stop, pick};
use wgpu::hal::api::Vulkan;

/// wgpu's device and queue, and the device that Syncline adopted.
pub(crate) struct Gpu {
    pub(crate) adopted: vulkan::Device,
    pub(crate) device: wgpu::Device,
    queue: wgpu::Queue,
}

impl Gpu {
    pub(crate) fn open(name: Option<&str>, uuid: Option<Uuid>) -> Result<Self, Stop> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: wgpu::Backends::VULKAN,
            // WGPU_VALIDATION=1 loads the validation layer.
            flags: wgpu::InstanceFlags::empty().with_env(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
        let (mut offers, mut refused) = (Vec::new(), Vec::new());
        for adapter in adapters {
            let offer = {
                // SAFETY: nothing of the adapter is destroyed.
                let Some(hal) = (unsafe { adapter.as_hal::<Vulkan>() }) else {
                    continue;
                };
                let instance = hal.shared_instance();
                if instance.instance_api_version() < vk::API_VERSION_1_2 {
                    refused.push("wgpu's instance is older than Vulkan 1.2".to_owned());
                    continue;
                }
                // SAFETY: wgpu's handles live as long as the adapter. The check above shows that
                // the instance is of version 1.2 or later.
                unsafe {
                    Offer::of(
                        instance.entry(),
                        instance.raw_instance(),
                        hal.raw_physical_device(),
                    )
                }
            };
            match offer {
                Ok(offer) => offers.push((adapter, offer)),
                Err(error) => refused.push(error.to_string()),
            }
        }
        if offers.is_empty() && refused.is_empty() {
            // wgpu does not say why it lists no adapter.
            refused.extend(
                vulkan::Instance::load()
                    .err()
                    .map(|error| error.to_string()),
            );
        }
        let (adapter, offer) = pick(offers, &refused, name, uuid)?;

        let wanted = wgpu::DeviceDescriptor {
            required_limits: wgpu::Limits::downlevel_defaults(),
            ..wgpu::DeviceDescriptor::default()
        };
        // wgpu enables timeline semaphores itself. The callback adds the extensions for sharing.
        let extensions = offer.extensions;
        let also = Box::new(
            move |with: wgpu::hal::vulkan::CreateDeviceCallbackArgs<'_, '_, '_>| {
                for name in extensions {
                    if !with.extensions.contains(&name) {
                        with.extensions.push(name);
                    }
                }
            },
        );
        let opened = {
            // SAFETY: nothing of the adapter is destroyed.
            let hal = unsafe { adapter.as_hal::<Vulkan>() };
            let hal = hal.ok_or("wgpu's adapter is not Vulkan's any more")?;
            let (features, limits) = (wanted.required_features, &wanted.required_limits);
            // SAFETY: adds only extensions, and only those that the physical device offers.
            unsafe { hal.open_with_callback(features, limits, &wanted.memory_hints, Some(also)) }?
        };
        // SAFETY: opened from this adapter, with these features.
        let (device, queue) = unsafe { adapter.create_device_from_hal(opened, &wanted) }?;
        device.on_uncaptured_error(Arc::new(|error| eprintln!("wgpu: {error}")));
        let enabled = Enabled {
            // wgpu does not enable this feature.
            host_query_reset: false,
            ..offer.enabled
        };
        Ok(Self {
            adopted: Self::adopt(&device, enabled)?,
            device,
            queue,
        })
    }

    /// Adopts wgpu's device without its queue.
    ///
    /// So only wgpu uses the queue, and no lock is needed. The owner is wgpu's handle. Its device
    /// lives until the last object made from the adopted one is dropped.
    fn adopt(device: &wgpu::Device, enabled: Enabled) -> Result<vulkan::Device, Stop> {
        // SAFETY: nothing of the device is destroyed.
        let hal = unsafe { device.as_hal::<Vulkan>() }.ok_or("wgpu's device is not Vulkan's")?;
        let info = AdoptInfo {
            entry: hal.shared_instance().entry().clone(),
            instance: hal.shared_instance().raw_instance().clone(),
            physical: hal.raw_physical_device(),
            device: hal.raw_device().clone(),
            queues: Vec::new(),
            owner: Some(Arc::new(device.clone())),
            enabled,
        };
        // SAFETY: the handles are wgpu's, created with these extensions, and the owner keeps them.
        Ok(unsafe { vulkan::Device::adopt(info) }?)
    }

    /// Makes a wgpu buffer of a shared buffer. Its memory stays Syncline's, and lives until wgpu
    /// has dropped its buffer.
    pub(crate) fn import(&self, buffer: &vulkan::Buffer) -> wgpu::Buffer {
        let kept = buffer.clone();
        let done = Box::new(move || drop(kept));
        let wanted = wgpu::BufferDescriptor {
            label: Some("shared"),
            size: buffer.size(),
            usage: wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        };
        // SAFETY: the buffer is of the same VkDevice, of that size, usable as storage, and kept. A
        // producer writes all of it before wgpu reads.
        unsafe {
            let raw = wgpu::hal::vulkan::Buffer::from_raw_externally_owned(buffer.raw(), done);
            self.device.create_buffer_from_hal::<Vulkan>(raw, &wanted)
        }
    }

    /// Submits to wgpu's queue, with an optional `wait`, and with the signal of `claim`.
    ///
    /// `claim` is of `timeline`. wgpu attaches both to its *next* submission. So no other thread
    /// may submit to wgpu's queue meanwhile.
    pub(crate) fn submit(
        &self,
        commands: impl IntoIterator<Item = wgpu::CommandBuffer>,
        wait: Option<Point<'_>>,
        timeline: &Timeline,
        claim: &mut Claim,
    ) -> Result<wgpu::SubmissionIndex, Stop> {
        // SAFETY: nothing of the queue is destroyed.
        let hal = unsafe { self.queue.as_hal::<Vulkan>() }.ok_or("wgpu's queue is not Vulkan's")?;
        let wait = match wait {
            Some(point) => {
                // A raw wait may go to the driver only when its signal is pending. CUDA's signal is
                // pending at once, the host's when its work is done.
                point.wait_pending(LIMIT)?;
                Some((self.adopted.semaphore(point)?, point.value()))
            }
            None => None,
        };
        claim.wait_ready(LIMIT)?;
        let signal = self.adopted.semaphore_of(timeline)?;
        if let Some((semaphore, value)) = wait {
            let all = vk::PipelineStageFlags::ALL_COMMANDS;
            hal.add_wait_semaphore(semaphore, Some(value), all);
        }
        hal.add_signal_semaphore(signal, Some(claim.value()));
        let submission = self.queue.submit(commands);
        // If wgpu refuses a submission because of invalid commands, the semaphores remain attached,
        // and nothing is signalled.
        if hal.remove_signal_semaphore(signal) {
            wait.map(|(semaphore, _)| hal.remove_wait_semaphore(semaphore));
            return Err("wgpu has refused the submission".into());
        }
        claim.submitted_on(self.adopted.id())?;
        Ok(submission)
    }

    /// Records the barrier that takes a shared buffer from the other API, or gives it back.
    ///
    /// wgpu does not know the other API. Memory that is not exported needs no barrier, and the
    /// command buffer is empty then. Raw commands need an encoder of their own, because wgpu
    /// records its own commands only when their encoder is finished.
    pub(crate) fn transfer(
        &self,
        barrier: impl FnOnce(u32) -> Option<OwnershipBarrier>,
    ) -> Result<wgpu::CommandBuffer, Stop> {
        let family = {
            // SAFETY: nothing of the device is destroyed.
            let hal = unsafe { self.device.as_hal::<Vulkan>() };
            hal.ok_or("wgpu's device is not Vulkan's")?
                .queue_family_index()
        };
        let mut encoder = self.device.create_command_encoder(&Default::default());
        if let Some(barrier) = barrier(family) {
            // wgpu does not enable the feature that the newer form needs.
            let barrier = [barrier.into()];
            let all = vk::PipelineStageFlags::ALL_COMMANDS;
            let none = vk::DependencyFlags::empty();
            // SAFETY: the encoder is used for nothing else, and its command buffer is open. The
            // buffer lives until wgpu has finished with it.
            let recorded = unsafe {
                encoder.as_hal_mut::<Vulkan, _, _>(|hal| {
                    let commands = hal?.raw_handle();
                    let device = self.adopted.raw();
                    device.cmd_pipeline_barrier(commands, all, all, none, &[], &barrier, &[]);
                    Some(())
                })
            };
            recorded.ok_or("wgpu's encoder is not Vulkan's")?;
        }
        Ok(encoder.finish())
    }
}
