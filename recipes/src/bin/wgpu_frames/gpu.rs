//! wgpu and Syncline on one `VkDevice`.
#![allow(unsafe_code, reason = "looks behind wgpu")]

use std::sync::Arc;

use syncline::vulkan::ash::vk;
use syncline::vulkan::{self, AdoptInfo, Enabled, Offer};
use syncline::{Claim, Point, Timeline, Uuid};
use syncline_recipes::{LIMIT, Stop, pick};
use wgpu::hal::api::Vulkan;

/// wgpu's device and queue, and what Syncline sees of them.
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
                // SAFETY: nothing of it is destroyed.
                let Some(hal) = (unsafe { adapter.as_hal::<Vulkan>() }) else {
                    continue;
                };
                let instance = hal.shared_instance();
                if instance.instance_api_version() < vk::API_VERSION_1_2 {
                    refused.push("wgpu's instance is older than Vulkan 1.2".to_owned());
                    continue;
                }
                // SAFETY: wgpu's own, alive as long as the adapter, and made for 1.2 or later as
                // just seen.
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
            // wgpu lists what there is, and not why there is nothing.
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
        // wgpu enables timeline semaphores by itself, wherever there are such. The rest is asked
        // for here.
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
            // SAFETY: nothing of it is destroyed.
            let hal = unsafe { adapter.as_hal::<Vulkan>() };
            let hal = hal.ok_or("wgpu's adapter is not Vulkan's any more")?;
            let (features, limits) = (wanted.required_features, &wanted.required_limits);
            // SAFETY: only extensions are added, and only such as the physical device offers.
            unsafe { hal.open_with_callback(features, limits, &wanted.memory_hints, Some(also)) }?
        };
        // SAFETY: made of this adapter, with these features.
        let (device, queue) = unsafe { adapter.create_device_from_hal(opened, &wanted) }?;
        device.on_uncaptured_error(Arc::new(|error| eprintln!("wgpu: {error}")));
        let enabled = Enabled {
            // A feature, which wgpu does not enable.
            host_query_reset: false,
            ..offer.enabled
        };
        Ok(Self {
            adopted: Self::adopt(&device, enabled)?,
            device,
            queue,
        })
    }

    /// wgpu's device as Syncline sees it, without its queue: then wgpu alone calls that, whenever
    /// it likes, and nobody needs a lock. wgpu's handle is the owner, so that its device lives
    /// until the last object made of the adopted one is gone.
    fn adopt(device: &wgpu::Device, enabled: Enabled) -> Result<vulkan::Device, Stop> {
        // SAFETY: nothing of it is destroyed.
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
        // SAFETY: all of it is wgpu's, made with these extensions, and kept by the owner.
        Ok(unsafe { vulkan::Device::adopt(info) }?)
    }

    /// A shared buffer as wgpu's. Its memory stays Syncline's, and lives until wgpu is done with
    /// it.
    pub(crate) fn import(&self, buffer: &vulkan::Buffer) -> wgpu::Buffer {
        let kept = buffer.clone();
        let done = Box::new(move || drop(kept));
        let wanted = wgpu::BufferDescriptor {
            label: Some("shared"),
            size: buffer.size(),
            usage: wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        };
        // SAFETY: a buffer of this very VkDevice, made for storage, of that size, and kept; a
        // producer writes all of it before wgpu reads.
        unsafe {
            let raw = wgpu::hal::vulkan::Buffer::from_raw_externally_owned(buffer.raw(), done);
            self.device.create_buffer_from_hal::<Vulkan>(raw, &wanted)
        }
    }

    /// wgpu's own submission, behind `wait`, if any, and with the signal of `claim`, which is one
    /// of `timeline`.
    ///
    /// wgpu keeps both for *the next* submission to its queue, whoever makes it: so no other thread
    /// may submit between.
    pub(crate) fn submit(
        &self,
        commands: impl IntoIterator<Item = wgpu::CommandBuffer>,
        wait: Option<Point<'_>>,
        timeline: &Timeline,
        claim: &mut Claim,
    ) -> Result<wgpu::SubmissionIndex, Stop> {
        // SAFETY: nothing of it is destroyed.
        let hal = unsafe { self.queue.as_hal::<Vulkan>() }.ok_or("wgpu's queue is not Vulkan's")?;
        let wait = match wait {
            Some(point) => {
                // A raw wait goes to the driver only once its signal is on the way: CUDA's is at
                // once, the host's when it is done.
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
        // A submission that wgpu refuses, for commands that are not valid, leaves them there:
        // nothing was signalled then.
        if hal.remove_signal_semaphore(signal) {
            wait.map(|(semaphore, _)| hal.remove_wait_semaphore(semaphore));
            return Err("wgpu has refused the submission".into());
        }
        claim.submitted()?;
        Ok(submission)
    }

    /// A command buffer of wgpu's that takes a shared buffer from the other API, or gives it back:
    /// wgpu itself knows of no other. Without a barrier, as for memory that is not exported, it is
    /// empty. Raw commands have an encoder of their own: wgpu records its own commands only when
    /// their encoder is finished.
    pub(crate) fn transfer(
        &self,
        barrier: impl FnOnce(u32) -> Option<vk::BufferMemoryBarrier<'static>>,
    ) -> Result<wgpu::CommandBuffer, Stop> {
        let family = {
            // SAFETY: nothing of it is destroyed.
            let hal = unsafe { self.device.as_hal::<Vulkan>() };
            hal.ok_or("wgpu's device is not Vulkan's")?
                .queue_family_index()
        };
        let mut encoder = self.device.create_command_encoder(&Default::default());
        if let Some(barrier) = barrier(family) {
            let all = vk::PipelineStageFlags::ALL_COMMANDS;
            let none = vk::DependencyFlags::empty();
            // SAFETY: the encoder is used for nothing else, and its command buffer is open; the
            // buffer lives until wgpu is done with it.
            let recorded = unsafe {
                encoder.as_hal_mut::<Vulkan, _, _>(|hal| {
                    let commands = hal?.raw_handle();
                    let device = self.adopted.raw();
                    device.cmd_pipeline_barrier(commands, all, all, none, &[], &[barrier], &[]);
                    Some(())
                })
            };
            recorded.ok_or("wgpu's encoder is not Vulkan's")?;
        }
        Ok(encoder.finish())
    }
}
