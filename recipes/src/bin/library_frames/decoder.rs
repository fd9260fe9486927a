//! Another library, which makes frames on the application's device. It knows nothing of Syncline.
//!
//! Its frames have the shape of FFmpeg's `AVVkFrame`: an image, a timeline semaphore, its value,
//! the layout, the queue family, and a lock around them. Each submission that uses a frame waits
//! for the value and signals the next one, under the frame's lock.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use ash::vk;
use syncline_recipes::{BYTES, SLOTS, WORDS, produced};

/// The side of a frame in texels of one word.
const SIDE: u32 = 256;
const _: () = assert!(SIDE * SIDE == WORDS);

type Failure = Box<dyn Error + Send + Sync>;

/// What changes with each use of a frame.
#[derive(Clone, Copy)]
pub(crate) struct State {
    /// The value at which the image may be used. Each submission signals the next one.
    pub(crate) value: u64,
    /// The layout that the last submission leaves the image in.
    pub(crate) layout: vk::ImageLayout,
    /// The queue family that owns the image.
    pub(crate) family: u32,
}

/// A frame.
pub(crate) struct Frame {
    /// The image.
    pub(crate) image: vk::Image,
    /// The semaphore of all its uses.
    pub(crate) semaphore: vk::Semaphore,
    /// The state, and the lock of the frame. A user holds it until its submission is with the
    /// driver.
    pub(crate) state: Mutex<State>,
    memory: vk::DeviceMemory,
    /// The words of the next frame, which the host writes.
    staging: Words,
    commands: vk::CommandBuffer,
}

/// A buffer that the host reads and writes.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    /// The buffer.
    pub(crate) buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    words: *mut u32,
}

// SAFETY: the address is used under the rules of the methods, on any thread.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

/// Calls a function with the `VkQueue`, under the application's lock for it.
pub(crate) type WithQueue = dyn Fn(&mut dyn FnMut(vk::Queue) -> Result<(), vk::Result>) -> Result<(), vk::Result>
    + Send
    + Sync;

/// The library: a pool of frames, and the commands that fill them.
pub(crate) struct Decoder {
    device: ash::Device,
    /// The family of the queue.
    family: u32,
    with_queue: Box<WithQueue>,
    pool: vk::CommandPool,
    /// The frames. A frame in use is not decoded into.
    pub(crate) frames: Vec<Arc<Frame>>,
}

impl Decoder {
    /// Makes the frames on `device`. `family` is that of the queue.
    ///
    /// # Errors
    /// Errors of Vulkan.
    pub(crate) fn new(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        device: &ash::Device,
        family: u32,
        with_queue: Box<WithQueue>,
    ) -> Result<Self, vk::Result> {
        // SAFETY: the physical device is of this instance.
        let types = unsafe { instance.get_physical_device_memory_properties(physical) };
        let (pool, commands) = command_buffers(device, family)?;
        let frames = commands.into_iter();
        let frames = frames.map(|commands| Frame::new(device, &types, family, commands));
        Ok(Self {
            device: device.clone(),
            family,
            with_queue,
            pool,
            frames: frames.collect::<Result<_, _>>()?,
        })
    }

    /// Decodes frame `number` into `frame`, which no thread uses.
    ///
    /// # Errors
    /// Errors of Vulkan.
    pub(crate) fn decode(
        &self,
        frame: &Frame,
        number: u32,
        delay: Duration,
    ) -> Result<(), Failure> {
        sleep(delay);
        let mut state = frame.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The words and the commands are free once the last use has ended.
        wait(&self.device, frame.semaphore, state.value)?;
        for index in 0..WORDS {
            // SAFETY: within the buffer, which no submission uses now.
            unsafe { *frame.staging.words.add(index as usize) = produced(number, index) };
        }
        let to = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
        let region = region();
        // SAFETY: the commands are free, and the objects live as long as the library.
        unsafe {
            let from = (state.layout, state.family);
            begin(
                &self.device,
                frame.commands,
                frame.image,
                from,
                (to, self.family),
            )?;
            let from = frame.staging.buffer;
            self.device
                .cmd_copy_buffer_to_image(frame.commands, from, frame.image, to, &[region]);
            self.device.end_command_buffer(frame.commands)?;
        }
        let next = state.value + 1;
        (self.with_queue)(&mut |queue| {
            let (semaphores, waits, signals) = ([frame.semaphore], [state.value], [next]);
            let mut values = vk::TimelineSemaphoreSubmitInfo::default()
                .wait_semaphore_values(&waits)
                .signal_semaphore_values(&signals);
            let commands = [frame.commands];
            let submit = vk::SubmitInfo::default()
                .wait_semaphores(&semaphores)
                .wait_dst_stage_mask(&[vk::PipelineStageFlags::ALL_COMMANDS])
                .command_buffers(&commands)
                .signal_semaphores(&semaphores)
                .push_next(&mut values);
            // SAFETY: the queue is locked, and the objects live as long as the library.
            unsafe {
                self.device
                    .queue_submit(queue, &[submit], vk::Fence::null())
            }
        })?;
        state.value = next;
        (state.layout, state.family) = (to, self.family);
        Ok(())
    }

    /// Destroys the frames. No submission uses them any more.
    pub(crate) fn destroy(self) {
        // SAFETY: the caller says so.
        unsafe {
            for frame in &self.frames {
                self.device.destroy_image(frame.image, None);
                self.device.free_memory(frame.memory, None);
                self.device.destroy_semaphore(frame.semaphore, None);
                frame.staging.destroy(&self.device);
            }
            self.device.destroy_command_pool(self.pool, None);
        }
    }
}

impl Frame {
    fn new(
        device: &ash::Device,
        types: &vk::PhysicalDeviceMemoryProperties,
        family: u32,
        commands: vk::CommandBuffer,
    ) -> Result<Arc<Self>, vk::Result> {
        let usage = vk::ImageUsageFlags::TRANSFER_DST | vk::ImageUsageFlags::TRANSFER_SRC;
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(vk::Format::R32_UINT)
            .extent(extent())
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(vk::ImageTiling::OPTIMAL)
            .usage(usage);
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(0);
        let semaphore = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: all structures are valid.
        unsafe {
            let image = device.create_image(&info, None)?;
            let needs = device.get_image_memory_requirements(image);
            let memory = allocate(device, types, needs, vk::MemoryPropertyFlags::empty())?;
            device.bind_image_memory(image, memory, 0)?;
            Ok(Arc::new(Self {
                image,
                semaphore: device.create_semaphore(&semaphore, None)?,
                state: Mutex::new(State {
                    value: 0,
                    layout: vk::ImageLayout::UNDEFINED,
                    family,
                }),
                memory,
                staging: Words::new(device, types)?,
                commands,
            }))
        }
    }
}

impl Words {
    /// Makes a buffer of one frame.
    ///
    /// # Errors
    /// Errors of Vulkan.
    pub(crate) fn new(
        device: &ash::Device,
        types: &vk::PhysicalDeviceMemoryProperties,
    ) -> Result<Self, vk::Result> {
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(BYTES).usage(usage);
        let seen = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        // SAFETY: the structures are valid, and the memory is visible to the host.
        unsafe {
            let buffer = device.create_buffer(&info, None)?;
            let needs = device.get_buffer_memory_requirements(buffer);
            let memory = allocate(device, types, needs, seen)?;
            device.bind_buffer_memory(buffer, memory, 0)?;
            let words = device.map_memory(memory, 0, BYTES, vk::MemoryMapFlags::empty())?;
            Ok(Self {
                buffer,
                memory,
                words: words.cast(),
            })
        }
    }

    /// The words. The submission that wrote them has finished.
    pub(crate) fn read(&self) -> impl ExactSizeIterator<Item = u32> {
        let words = self.words;
        // SAFETY: within the buffer, and no submission writes it now.
        (0..WORDS).map(move |index| unsafe { *words.add(index as usize) })
    }

    /// # Safety
    /// No submission uses the buffer any more.
    pub(crate) unsafe fn destroy(&self, device: &ash::Device) {
        // SAFETY: the caller guarantees it.
        unsafe {
            device.destroy_buffer(self.buffer, None);
            device.free_memory(self.memory, None);
        }
    }
}

/// Creates a pool with a command buffer for each frame.
///
/// # Errors
/// Errors of Vulkan.
pub(crate) fn command_buffers(
    device: &ash::Device,
    family: u32,
) -> Result<(vk::CommandPool, Vec<vk::CommandBuffer>), vk::Result> {
    let info = vk::CommandPoolCreateInfo::default()
        .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
        .queue_family_index(family);
    // SAFETY: the device has a queue of this family.
    unsafe {
        let pool = device.create_command_pool(&info, None)?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(SLOTS as u32);
        Ok((pool, device.allocate_command_buffers(&info)?))
    }
}

/// Begins the commands, with a barrier from one layout and queue family of the image to another.
///
/// # Safety
/// The commands are not in use, and the image lives until they have finished.
pub(crate) unsafe fn begin(
    device: &ash::Device,
    commands: vk::CommandBuffer,
    image: vk::Image,
    from: (vk::ImageLayout, u32),
    to: (vk::ImageLayout, u32),
) -> Result<(), vk::Result> {
    let info =
        vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
    let all = vk::ImageSubresourceRange::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .level_count(1)
        .layer_count(1);
    let access = vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE;
    let barrier = vk::ImageMemoryBarrier::default()
        .src_access_mask(access)
        .dst_access_mask(access)
        .old_layout(from.0)
        .new_layout(to.0)
        .src_queue_family_index(from.1)
        .dst_queue_family_index(to.1)
        .image(image)
        .subresource_range(all);
    let stage = vk::PipelineStageFlags::ALL_COMMANDS;
    let none = vk::DependencyFlags::empty();
    // SAFETY: the caller guarantees it.
    unsafe {
        device.begin_command_buffer(commands, &info)?;
        device.cmd_pipeline_barrier(commands, stage, stage, none, &[], &[], &[barrier]);
    }
    Ok(())
}

/// The copy between a frame and a buffer.
pub(crate) fn region() -> vk::BufferImageCopy {
    let layers = vk::ImageSubresourceLayers::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .layer_count(1);
    vk::BufferImageCopy::default()
        .image_subresource(layers)
        .image_extent(extent())
}

const fn extent() -> vk::Extent3D {
    vk::Extent3D {
        width: SIDE,
        height: SIDE,
        depth: 1,
    }
}

/// Waits on the host until the semaphore has the value.
fn wait(device: &ash::Device, semaphore: vk::Semaphore, value: u64) -> Result<(), vk::Result> {
    let (semaphores, values) = ([semaphore], [value]);
    let info = vk::SemaphoreWaitInfo::default()
        .semaphores(&semaphores)
        .values(&values);
    let limit = u64::try_from(syncline_recipes::LIMIT.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: a live timeline semaphore.
    unsafe { device.wait_semaphores(&info, limit) }
}

/// # Safety
/// The requirements are those of an object of `device`.
unsafe fn allocate(
    device: &ash::Device,
    types: &vk::PhysicalDeviceMemoryProperties,
    needs: vk::MemoryRequirements,
    properties: vk::MemoryPropertyFlags,
) -> Result<vk::DeviceMemory, vk::Result> {
    let is_fit = |&(index, kind): &(u32, &vk::MemoryType)| {
        needs.memory_type_bits & 1 << index != 0 && kind.property_flags.contains(properties)
    };
    let found = (0..).zip(types.memory_types_as_slice()).find(is_fit);
    let (index, _) = found.ok_or(vk::Result::ERROR_FEATURE_NOT_PRESENT)?;
    let info = vk::MemoryAllocateInfo::default()
        .allocation_size(needs.size)
        .memory_type_index(index);
    // SAFETY: the caller guarantees it.
    unsafe { device.allocate_memory(&info, None) }
}
