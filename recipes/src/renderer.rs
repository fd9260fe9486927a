//! An application's renderer on plain `ash`: it makes its instance, device and queue itself,
//! records its commands and submits them. Of Syncline it only asks what to make the device with.
//!
//! To keep it short, what it renders is a copy: from the buffer that the producer has written into
//! one that the host reads.
#![allow(unsafe_code, reason = "Vulkan, as an application calls it")]

use ash::vk;
use syncline::Uuid;
use syncline::vulkan::{Enabled, Offer};

use crate::{SLOTS, Stop, pick};

/// The renderer. Everything in it is its own, and destroyed with it.
pub struct Renderer {
    /// The loader.
    pub entry: ash::Entry,
    /// Its instance.
    pub instance: ash::Instance,
    /// The physical device that it found.
    pub physical: vk::PhysicalDevice,
    /// Its device.
    pub device: ash::Device,
    /// What it made the device with.
    pub enabled: Enabled,
    /// The family of its only queue, which is the first of that family.
    pub family: u32,
    /// Its queue.
    pub queue: vk::Queue,
    pool: vk::CommandPool,
    commands: Vec<vk::CommandBuffer>,
}

/// A timeline semaphore, and a value of it.
pub type Semaphore = (vk::Semaphore, u64);

/// What a frame is made of.
#[derive(Debug)]
pub struct Draw<'a> {
    /// Which of its command buffers to use: the frame that used it before has finished.
    pub slot: usize,
    /// What the producer has written.
    pub from: vk::Buffer,
    /// Where the host reads it.
    pub to: vk::Buffer,
    /// How many bytes.
    pub bytes: u64,
    /// What takes `from` from another API before it is used, if one has it.
    pub take: Option<vk::BufferMemoryBarrier<'a>>,
    /// What gives it back.
    pub give: Option<vk::BufferMemoryBarrier<'a>>,
}

impl Renderer {
    /// Makes it on the device with `name` in its name, else on the GPU with this UUID, else on the
    /// first that can be used.
    ///
    /// # Errors
    /// Those of [`pick`]; what Vulkan says.
    pub fn new(name: Option<&str>, uuid: Option<Uuid>) -> Result<Self, Stop> {
        let none = |reason: &dyn std::fmt::Display| Stop::NoVulkan(reason.to_string());
        // SAFETY: the loader's initialisers are trusted.
        let entry = unsafe { ash::Entry::load() }.map_err(|error| none(&error))?;
        // 1.2 has timeline semaphores, and what external ones need of an instance, in its core.
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: a valid description.
        let instance = unsafe { entry.create_instance(&info, None) }.map_err(|code| none(&code))?;
        match Self::on_instance(&entry, &instance, name, uuid) {
            Ok(renderer) => Ok(renderer),
            Err(stop) => {
                // SAFETY: nothing was made of it.
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
        // SAFETY: a live instance, made for 1.2 through this loader.
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
        // SAFETY: of this instance.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let draws = vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE;
        let (family, _) = (0..)
            .zip(&families)
            .find(|(_, family)| family.queue_flags.intersects(draws))
            .ok_or("the device has no queue that draws or computes")?;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0])];
        // What makes the device fit to be adopted: its extensions, and two features.
        let extensions: Vec<_> = offer.extensions.iter().map(|name| name.as_ptr()).collect();
        let mut timelines =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut reset = vk::PhysicalDeviceHostQueryResetFeatures::default()
            .host_query_reset(offer.enabled.host_query_reset);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timelines)
            .push_next(&mut reset);
        // SAFETY: a valid description, of what the device offers.
        let device = unsafe { instance.create_device(physical, &info, None) }?;
        // SAFETY: the device was made with this queue.
        let queue = unsafe { device.get_device_queue(family, 0) };
        let made = command_buffers(&device, family);
        // SAFETY: nothing else was made of it.
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
    /// What Vulkan says.
    pub fn record(&self, draw: &Draw<'_>) -> Result<vk::CommandBuffer, vk::Result> {
        let (device, commands) = (&self.device, self.commands[draw.slot]);
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        let transfer = |buffer: Option<vk::BufferMemoryBarrier<'_>>| {
            if let Some(buffer) = buffer {
                let none = vk::DependencyFlags::empty();
                // SAFETY: called below, while the commands are recorded; the buffer is the
                // caller's.
                unsafe {
                    device.cmd_pipeline_barrier(commands, all, all, none, &[], &[buffer], &[]);
                }
            }
        };
        let begin = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        let region = vk::BufferCopy::default().size(draw.bytes);
        let seen = vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ);
        // SAFETY: the frame that used the commands has finished, as the caller says; both buffers
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

    /// `vkQueueSubmit`, by whoever has the queue to himself for the moment.
    ///
    /// # Errors
    /// What Vulkan says.
    pub fn submit(
        &self,
        queue: vk::Queue,
        commands: vk::CommandBuffer,
        wait: Option<Semaphore>,
        signal: Semaphore,
    ) -> Result<(), vk::Result> {
        let (waits, wait_values): (Vec<_>, Vec<_>) = wait.into_iter().unzip();
        let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
        let (commands, signals, signal_values) = ([commands], [signal.0], [signal.1]);
        let mut timeline = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&wait_values)
            .signal_semaphore_values(&signal_values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&waits)
            .wait_dst_stage_mask(&stages[..waits.len()])
            .command_buffers(&commands)
            .signal_semaphores(&signals)
            .push_next(&mut timeline);
        // SAFETY: the caller has the queue to himself, and what the frame is made of until it has
        // finished.
        unsafe { self.device.queue_submit(queue, &[info], vk::Fence::null()) }
    }
}

/// A pool, and one command buffer for each frame that may be under way.
fn command_buffers(
    device: &ash::Device,
    family: u32,
) -> Result<(vk::CommandPool, Vec<vk::CommandBuffer>), vk::Result> {
    let info = vk::CommandPoolCreateInfo::default()
        .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
        .queue_family_index(family);
    // SAFETY: a family that the device was made with queues of; the pool is nobody else's.
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
        // SAFETY: nobody else has any of it any more; a device that is lost waits for nothing.
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
