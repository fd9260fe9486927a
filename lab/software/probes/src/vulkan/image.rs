//! Images that are shared with CUDA.

use ash::vk;

use super::{Vulkan, must, vulkan};
use crate::kit::need;

/// What an image is like.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) dimensions: u32,
    pub(crate) format: vk::Format,
    pub(crate) extent: [u32; 3],
    pub(crate) levels: u32,
    pub(crate) layers: u32,
    pub(crate) is_cube: bool,
    pub(crate) is_linear: bool,
    /// Bytes of a block, and the texels on its edge.
    pub(crate) block: (usize, u32),
    pub(crate) usage: vk::ImageUsageFlags,
    /// Where the image begins in its memory. A buffer is before it.
    pub(crate) offset: u64,
}

impl Shape {
    /// Blocks of a level, in each direction.
    pub(crate) fn blocks(&self, level: u32) -> [usize; 3] {
        let [width, height, depth] = self.extent.map(|size| (size >> level).max(1));
        let edge = self.block.1;
        [width.div_ceil(edge), height.div_ceil(edge), depth].map(|size| size as usize)
    }

    /// Bytes of a level, with all layers.
    pub(crate) fn bytes(&self, level: u32) -> usize {
        let blocks: usize = self.blocks(level).iter().product();
        blocks * self.block.0 * self.layers as usize
    }

    /// Where each level begins in a buffer of all levels, and the size of that buffer.
    pub(crate) fn places(&self) -> (Vec<usize>, usize) {
        let mut end = 0;
        let places = (0..self.levels).map(|level| {
            let start = end;
            end = (start + self.bytes(level)).next_multiple_of(16);
            start
        });
        (places.collect(), end)
    }

    /// The texels of a level.
    fn extent(&self, level: u32) -> vk::Extent3D {
        let [width, height, depth] = self.extent.map(|size| (size >> level).max(1));
        vk::Extent3D {
            width,
            height,
            depth,
        }
    }

    fn aspect(&self) -> vk::ImageAspectFlags {
        match self.format {
            vk::Format::D16_UNORM | vk::Format::D32_SFLOAT => vk::ImageAspectFlags::DEPTH,
            _ => vk::ImageAspectFlags::COLOR,
        }
    }

    fn info(&self) -> vk::ImageCreateInfo<'static> {
        let kind = [vk::ImageType::TYPE_1D, vk::ImageType::TYPE_2D];
        let kind = kind.get(self.dimensions as usize - 1);
        vk::ImageCreateInfo::default()
            .flags(match self.is_cube {
                true => vk::ImageCreateFlags::CUBE_COMPATIBLE,
                false => vk::ImageCreateFlags::empty(),
            })
            .image_type(kind.copied().unwrap_or(vk::ImageType::TYPE_3D))
            .format(self.format)
            .extent(self.extent(0))
            .mip_levels(self.levels)
            .array_layers(self.layers)
            .samples(vk::SampleCountFlags::TYPE_1)
            .tiling(match self.is_linear {
                true => vk::ImageTiling::LINEAR,
                false => vk::ImageTiling::OPTIMAL,
            })
            .usage(self.usage)
    }
}

/// An image in exported memory.
pub(crate) struct SharedImage {
    pub(crate) shape: Shape,
    pub(crate) fd: i32,
    /// Bytes of the memory.
    pub(crate) size: u64,
    raw: vk::Image,
    staging: vk::Buffer,
    mapped: *mut u8,
    layout: vk::ImageLayout,
}

impl Vulkan {
    /// An image, in dedicated memory if its offset is 0.
    pub(crate) fn shared_image(&self, shape: Shape) -> SharedImage {
        let handle = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let asked = shape.info();
        let mut external = vk::PhysicalDeviceExternalImageFormatInfo::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let format = vk::PhysicalDeviceImageFormatInfo2::default()
            .format(asked.format)
            .ty(asked.image_type)
            .tiling(asked.tiling)
            .usage(asked.usage)
            .flags(asked.flags)
            .push_next(&mut external);
        // Lavapipe expects this structure beside the question.
        let mut answer = vk::ExternalImageFormatProperties::default();
        let mut properties = vk::ImageFormatProperties2::default().push_next(&mut answer);
        // SAFETY: a device of this instance, and valid descriptions.
        must("vkGetPhysicalDeviceImageFormatProperties2", unsafe {
            self.instance.get_physical_device_image_format_properties2(
                self.physical,
                &format,
                &mut properties,
            )
        });
        let mut outside = vk::ExternalMemoryImageCreateInfo::default().handle_types(handle);
        let info = asked.push_next(&mut outside);
        // SAFETY: a valid description, which the device supports.
        let raw = must("vkCreateImage", unsafe {
            self.device.create_image(&info, None)
        });
        // SAFETY: a live image of this device.
        let needs = unsafe { self.device.get_image_memory_requirements(raw) };
        let size = shape.offset + needs.size;
        let own = vk::MemoryDedicatedAllocateInfo::default();
        let memory = match shape.offset {
            0 => self.exportable(size, needs.memory_type_bits, own.image(raw)),
            offset => {
                let (buffer, before) = self.external_buffer(offset);
                let types = needs.memory_type_bits & before.memory_type_bits;
                let memory = self.exportable(size, types, own);
                self.bind(buffer, memory, 0);
                memory
            }
        };
        // SAFETY: memory of a type and a size that the image takes. Its offset is aligned.
        must("vkBindImageMemory", unsafe {
            self.device.bind_image_memory(raw, memory, shape.offset)
        });
        let (staging, mapped) = self.staging(shape.places().1 as u64);
        SharedImage {
            shape,
            fd: self.export_memory(memory),
            size,
            raw,
            staging,
            mapped,
            layout: vk::ImageLayout::UNDEFINED,
        }
    }

    /// A buffer that the host addresses.
    fn staging(&self, bytes: u64) -> (vk::Buffer, *mut u8) {
        let info = vk::BufferCreateInfo::default()
            .size(bytes)
            .usage(vk::BufferUsageFlags::TRANSFER_DST | vk::BufferUsageFlags::TRANSFER_SRC);
        // SAFETY: a valid description.
        let buffer = must("vkCreateBuffer", unsafe {
            self.device.create_buffer(&info, None)
        });
        // SAFETY: a live buffer of this device.
        let needs = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        let flags = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(needs.size)
            .memory_type_index(self.type_with(needs.memory_type_bits, flags));
        // SAFETY: a valid description.
        let memory = must("vkAllocateMemory", unsafe {
            self.device.allocate_memory(&info, None)
        });
        self.bind(buffer, memory, 0);
        // SAFETY: mapped once, and lives as long as the process.
        let mapped = must("vkMapMemory", unsafe {
            let none = vk::MemoryMapFlags::empty();
            self.device.map_memory(memory, 0, vk::WHOLE_SIZE, none)
        });
        (buffer, mapped.cast())
    }
}

impl SharedImage {
    /// Writes all levels, and releases the image to CUDA.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // SAFETY: the buffer has this many bytes, and no queue uses it.
        unsafe { self.mapped.copy_from(bytes.as_ptr(), bytes.len()) };
        self.copy(true);
    }

    /// Acquires the image from CUDA, and reads all levels.
    pub(crate) fn read(&mut self) -> Vec<u8> {
        self.copy(false);
        let mut bytes = vec![0; self.shape.places().1];
        // SAFETY: the buffer has this many bytes, and no queue uses it.
        unsafe { bytes.as_mut_ptr().copy_from(self.mapped, bytes.len()) };
        bytes
    }

    fn copy(&mut self, writes: bool) {
        let device = &vulkan().device;
        let (shape, general) = (self.shape, vk::ImageLayout::GENERAL);
        let (places, _) = shape.places();
        let regions: Vec<_> = (0..shape.levels)
            .zip(places)
            .map(|(level, place)| {
                vk::BufferImageCopy::default()
                    .buffer_offset(place as u64)
                    .image_subresource(vk::ImageSubresourceLayers {
                        aspect_mask: shape.aspect(),
                        mip_level: level,
                        base_array_layer: 0,
                        layer_count: shape.layers,
                    })
                    .image_extent(shape.extent(level))
            })
            .collect();
        let barrier = |old, from, to| {
            let all = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
            vk::ImageMemoryBarrier::default()
                .src_access_mask(all)
                .dst_access_mask(all)
                .old_layout(old)
                .new_layout(general)
                .src_queue_family_index(from)
                .dst_queue_family_index(to)
                .image(self.raw)
                .subresource_range(vk::ImageSubresourceRange {
                    aspect_mask: shape.aspect(),
                    base_mip_level: 0,
                    level_count: shape.levels,
                    base_array_layer: 0,
                    layer_count: shape.layers,
                })
        };
        let ignored = vk::QUEUE_FAMILY_IGNORED;
        let acquire = match self.layout == general {
            true => barrier(general, vk::QUEUE_FAMILY_EXTERNAL, 0),
            false => barrier(self.layout, ignored, ignored),
        };
        let release = barrier(general, 0, vk::QUEUE_FAMILY_EXTERNAL);
        need(vulkan().run(|commands| {
            let all = vk::PipelineStageFlags::ALL_COMMANDS;
            let pass = |barrier| {
                let (none, barriers) = (vk::DependencyFlags::empty(), [barrier]);
                // SAFETY: a command buffer in recording, and a live self.
                unsafe {
                    device.cmd_pipeline_barrier(commands, all, all, none, &[], &[], &barriers);
                }
            };
            pass(acquire);
            // SAFETY: as above. The regions lie within the image and the buffer.
            unsafe {
                match writes {
                    true => device.cmd_copy_buffer_to_image(
                        commands,
                        self.staging,
                        self.raw,
                        general,
                        &regions,
                    ),
                    false => device.cmd_copy_image_to_buffer(
                        commands,
                        self.raw,
                        general,
                        self.staging,
                        &regions,
                    ),
                }
            }
            pass(release);
            let (none, visible) = (
                vk::DependencyFlags::empty(),
                [vk::MemoryBarrier::default()
                    .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                    .dst_access_mask(vk::AccessFlags::HOST_READ)],
            );
            let host = vk::PipelineStageFlags::HOST;
            // SAFETY: a command buffer in recording.
            unsafe {
                device.cmd_pipeline_barrier(commands, all, host, none, &visible, &[], &[]);
            }
        }));
        self.layout = general;
    }
}
