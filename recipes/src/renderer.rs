//! An application's renderer on plain `ash`. It creates its own instance, device and queue.
//!
//! It records its commands and submits them. Syncline only tells which extensions the device needs.
//!
//! To keep it short, rendering is a copy from the producer's buffer to one that the host reads.
#![allow(unsafe_code, reason = "calls Vulkan as an application does")]

use ash::vk;
use syncline::info::Uuid;
use syncline::vulkan::{Enabled, Offer, OwnershipBarrier};

use crate::{SLOTS, Stop, pick};

/// The renderer. It owns everything in it, and destroys it.
pub struct Renderer {
    /// The loader.
    pub entry: ash::Entry,
    /// Its instance.
    pub instance: ash::Instance,
    /// The physical device that it chose.
    pub physical: vk::PhysicalDevice,
    /// Its device.
    pub device: ash::Device,
    /// The extensions and features that the device was created with.
    pub enabled: Enabled,
    /// The family of its only queue. The queue has index 0.
    pub family: u32,
    /// Its queue.
    pub queue: vk::Queue,
    pool: vk::CommandPool,
    commands: Vec<vk::CommandBuffer>,
}

/// A timeline semaphore and a value.
pub type Semaphore = (vk::Semaphore, u64);

/// The inputs of a frame.
#[derive(Debug)]
pub struct Draw {
    /// Index of its command buffer. The frame that used it before has finished.
    pub slot: usize,
    /// The buffer that the producer has written.
    pub from: vk::Buffer,
    /// The buffer that the host reads.
    pub to: vk::Buffer,
    /// Number of bytes.
    pub bytes: u64,
    /// The barrier that takes `from` from another API.
    pub take: Option<OwnershipBarrier>,
    /// The barrier that gives `from` back.
    pub give: Option<OwnershipBarrier>,
}

impl Renderer {
    /// Creates a renderer on the device that [`pick`] chooses by `name` or `uuid`.
    ///
    /// # Errors
    /// Same errors as [`pick`]. Also errors of Vulkan.
    pub fn new(name: Option<&str>, uuid: Option<Uuid>) -> Result<Self, Stop> {
        let none = |reason: &dyn std::fmt::Display| Stop::NoVulkan(reason.to_string());
        // SAFETY: the loader's initializers are trusted.
        let entry = unsafe { ash::Entry::load() }.map_err(|error| none(&error))?;
        // Syncline needs 1.2. Version 1.3 has `vkQueueSubmit2`.
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structure is valid.
        let instance = unsafe { entry.create_instance(&info, None) }.map_err(|code| none(&code))?;
        match Self::on_instance(&entry, &instance, name, uuid) {
            Ok(renderer) => Ok(renderer),
            Err(stop) => {
                // SAFETY: nothing was created from the instance.
                unsafe { instance.destroy_instance(None) };
                Err(stop)
            }
        }
    }

    fn on_instance(
        entry: &ash::Entry,
        instance: &ash::Instance,
        name: Option<&str>,
        uuid: Option<Uuid>,
    ) -> Result<Self, Stop> {
        let (mut offers, mut refused) = (Vec::new(), Vec::new());
        // SAFETY: a live instance, created for 1.3 with this loader.
        unsafe {
            for physical in instance.enumerate_physical_devices()? {
                match Offer::of(entry, instance, physical) {
                    Ok(offer) => offers.push((physical, offer)),
                    Err(error) => refused.push(error.to_string()),
                }
            }
        }
        let (physical, offer) = pick(offers, &refused, name, uuid)?;
        Self::on_device(entry, instance, physical, &offer)
    }

    fn on_device(
        entry: &ash::Entry,
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        offer: &Offer,
    ) -> Result<Self, Stop> {
        // SAFETY: the physical device is of this instance.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let draws = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE;
        let (family, _) = (0..)
            .zip(&families)
            .find(|(_, family)| family.queue_flags.intersects(draws))
            .ok_or("the device has no queue that draws or computes")?;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0])];
        // Syncline needs these extensions and the first two features to adopt the device.
        let extensions: Vec<_> = offer.extensions.iter().map(|name| name.as_ptr()).collect();
        let mut timelines =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut reset = vk::PhysicalDeviceHostQueryResetFeatures::default()
            .host_query_reset(offer.enabled.host_query_reset);
        // The renderer itself needs this feature for `vkQueueSubmit2` and its barriers.
        let mut synchronization =
            vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timelines)
            .push_next(&mut reset)
            .push_next(&mut synchronization);
        // SAFETY: the structure is valid, and the device offers what it asks for.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        // SAFETY: the device was created with this queue.
        let queue = unsafe { device.get_device_queue(family, 0) };
        let made = command_buffers(&device, family);
        // SAFETY: nothing else was created from the device.
        let (pool, commands) = made.inspect_err(|_| unsafe { device.destroy_device(None) })?;
        Ok(Self {
            entry: entry.clone(),
            instance: instance.clone(),
            physical,
            device,
            enabled: offer.enabled,
            family,
            queue,
            pool,
            commands,
        })
    }

    /// Records the commands of a frame.
    ///
    /// # Errors
    /// Errors of Vulkan.
    pub fn record(&self, draw: &Draw) -> Result<vk::CommandBuffer, vk::Result> {
        let (device, commands) = (&self.device, self.commands[draw.slot]);
        let transfer = |buffer: Option<OwnershipBarrier>| {
            if let Some(buffer) = buffer {
                let buffer = [buffer.into()];
                let info = vk::DependencyInfo::default().buffer_memory_barriers(&buffer);
                // SAFETY: called below, while the commands are recorded. The caller keeps the
                // buffer.
                unsafe { device.cmd_pipeline_barrier2(commands, &info) };
            }
        };
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let region = vk::BufferCopy::default().size(draw.bytes);
        let seen = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ);
        // SAFETY: the caller says that the frame that used the commands has finished. Both buffers
        // hold that many bytes.
        unsafe {
            device.begin_command_buffer(commands, &begin)?;
            transfer(draw.take);
            device.cmd_copy_buffer(commands, draw.from, draw.to, &[region]);
            device.cmd_pipeline_barrier(
                commands,
                vk::PipelineStageFlags::TRANSFER,
                vk::PipelineStageFlags::HOST,
                vk::DependencyFlags::empty(),
                &[seen],
                &[],
                &[],
            );
            transfer(draw.give);
            device.end_command_buffer(commands)?;
        }
        Ok(commands)
    }

    /// Calls `vkQueueSubmit2`. No other thread may use `queue` meanwhile.
    ///
    /// # Errors
    /// Errors of Vulkan.
    pub fn submit(
        &self,
        queue: vk::Queue,
        commands: vk::CommandBuffer,
        wait: Option<Semaphore>,
        signal: Semaphore,
    ) -> Result<(), vk::Result> {
        let info = |(semaphore, value)| {
            vk::SemaphoreSubmitInfo::default()
                .semaphore(semaphore)
                .value(value)
                .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
        };
        let (waits, signals) = (wait.map(info), [info(signal)]);
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
        let info = vk::SubmitInfo2::default()
            .wait_semaphore_infos(waits.as_slice())
            .command_buffer_infos(&commands)
            .signal_semaphore_infos(&signals);
        // SAFETY: no other thread uses the queue, and the caller keeps the frame's objects until it
        // has finished.
        unsafe { self.device.queue_submit2(queue, &[info], vk::Fence::null()) }
    }
}

/// Creates a pool with one command buffer for each frame in flight.
fn command_buffers(
    device: &ash::Device,
    family: u32,
) -> Result<(vk::CommandPool, Vec<vk::CommandBuffer>), vk::Result> {
    let info = vk::CommandPoolCreateInfo::default()
        .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
        .queue_family_index(family);
    // SAFETY: the device was created with queues of this family. Only the caller has the pool.
    unsafe {
        let pool = device.create_command_pool(&info, None)?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(SLOTS as u32);
        let buffers = device
            .allocate_command_buffers(&info)
            .inspect_err(|_| device.destroy_command_pool(pool, None))?;
        Ok((pool, buffers))
    }
}

impl Drop for Renderer {
    fn drop(&mut self) {
        // SAFETY: nothing uses these objects any more. A lost device does not wait.
        unsafe {
            let _ = self.device.device_wait_idle();
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}

impl std::fmt::Debug for Renderer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Renderer({:?})", self.device.handle())
    }
}
