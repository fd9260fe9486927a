//! Functions that the layer follows, to know which device owns shared memory.
//!
//! Each notes what it does, and goes to the driver unchanged.
#![allow(
    unsafe_code,
    reason = "is called by applications, and calls the driver"
)]

use std::ffi::{CStr, c_void};

use ash::vk;

use crate::chain::slice;
use crate::device::Device;
use crate::instance::next;
use crate::ownership::Action;

/// Declares followed functions: type, names, arguments, and what notes a call.
macro_rules! followed {
    ($(
        $name:ident = $type:ident $text:literal $(or $other:literal)?
            ($first:ident: $first_type:ty $(, $argument:ident: $argument_type:ty)* $(,)?)
            $(-> $result:ty)? { |$ownership:ident| $note:expr }
    )*) => {
        /// The driver's functions. It may lack those of extensions.
        pub(crate) struct Followed {
            $($name: Option<vk::$type>,)*
        }

        impl Followed {
            /// # Safety
            /// `get` is the function of the layer below, and `device` was made by it.
            pub(crate) unsafe fn load(
                get: vk::PFN_vkGetDeviceProcAddr,
                device: vk::Device,
            ) -> Self {
                // SAFETY: by this function's contract; each is taken as the type of its name.
                unsafe {
                    Self {
                        $($name: next!(get, device, $type, $text)
                            $(.or_else(|| next!(get, device, $type, $other)))?,)*
                    }
                }
            }
        }

        /// Returns the followed function of this name.
        pub(crate) fn function(name: &[u8]) -> vk::PFN_vkVoidFunction {
            $(if name == $text.to_bytes() $(|| name == $other.to_bytes())? {
                let function: vk::$type = $name;
                // SAFETY: function pointers are of one size. The caller casts it back.
                return Some(unsafe {
                    std::mem::transmute::<vk::$type, unsafe extern "system" fn()>(function)
                });
            })*
            None
        }

        $(
            unsafe extern "system" fn $name(
                $first: $first_type $(, $argument: $argument_type)*
            ) $(-> $result)? {
                // SAFETY: valid usage: a live handle, and valid structures. The driver has the
                // function, because the loader asks for no other.
                unsafe {
                    let device = Device::of($first);
                    let Some((device, next)) = device.and_then(|device| {
                        let next = device.driver.followed.$name?;
                        Some((device, next))
                    }) else {
                        return $(<$result>::ERROR_INITIALIZATION_FAILED)?;
                    };
                    if device.heaps.is_some() {
                        let $ownership = &device.ownership;
                        $note;
                    }
                    next($first $(, $argument)*)
                }
            }
        )*
    };
}

/// Notes the transfers and layouts of a barrier, whose structures differ.
macro_rules! transfers {
    ($ownership:ident, $commands:ident, $buffers:expr, $images:expr) => {{
        for one in $buffers {
            let families = (one.src_queue_family_index, one.dst_queue_family_index);
            if let Some(action) = transfer(families) {
                $ownership.note($commands, one.buffer, one.offset, one.size, action);
            }
        }
        for one in $images {
            let families = (one.src_queue_family_index, one.dst_queue_family_index);
            let (transfer, layouts) = (transfer(families), (one.old_layout, one.new_layout));
            let range = &one.subresource_range;
            $ownership.note_barrier($commands, one.image, transfer, layouts, range);
        }
    }};
}

type Allocator<'a> = *const vk::AllocationCallbacks<'a>;

followed! {
    map_memory = PFN_vkMapMemory c"vkMapMemory" (
        device: vk::Device, memory: vk::DeviceMemory, offset: vk::DeviceSize, size: vk::DeviceSize,
        flags: vk::MemoryMapFlags, data: *mut *mut c_void,
    ) -> vk::Result { |ownership| ownership.map_memory(memory) }
    map_memory2 = PFN_vkMapMemory2KHR c"vkMapMemory2" or c"vkMapMemory2KHR" (
        device: vk::Device, info: *const vk::MemoryMapInfoKHR<'_>, data: *mut *mut c_void,
    ) -> vk::Result { |ownership| ownership.map_memory((*info).memory) }
    bind_buffer_memory2 = PFN_vkBindBufferMemory2 c"vkBindBufferMemory2"
        or c"vkBindBufferMemory2KHR" (
        device: vk::Device, count: u32, infos: *const vk::BindBufferMemoryInfo<'_>,
    ) -> vk::Result {
        |ownership| for info in slice(infos, count) {
            ownership.bind(info.buffer, info.memory, info.memory_offset);
        }
    }
    destroy_buffer = PFN_vkDestroyBuffer c"vkDestroyBuffer" (
        device: vk::Device, buffer: vk::Buffer, allocator: Allocator<'_>,
    ) { |ownership| ownership.remove_buffer(buffer) }
    destroy_command_pool = PFN_vkDestroyCommandPool c"vkDestroyCommandPool" (
        device: vk::Device, pool: vk::CommandPool, allocator: Allocator<'_>,
    ) { |ownership| ownership.remove_pool(pool) }
    free_command_buffers = PFN_vkFreeCommandBuffers c"vkFreeCommandBuffers" (
        device: vk::Device, pool: vk::CommandPool, count: u32, all: *const vk::CommandBuffer,
    ) { |ownership| ownership.remove_commands(slice(all, count)) }
    begin_command_buffer = PFN_vkBeginCommandBuffer c"vkBeginCommandBuffer" (
        commands: vk::CommandBuffer, info: *const vk::CommandBufferBeginInfo<'_>,
    ) -> vk::Result { |ownership| ownership.begin(commands) }
    execute_commands = PFN_vkCmdExecuteCommands c"vkCmdExecuteCommands" (
        commands: vk::CommandBuffer, count: u32, all: *const vk::CommandBuffer,
    ) { |ownership| ownership.execute(commands, slice(all, count)) }
    pipeline_barrier = PFN_vkCmdPipelineBarrier c"vkCmdPipelineBarrier" (
        commands: vk::CommandBuffer, before: vk::PipelineStageFlags,
        after: vk::PipelineStageFlags, flags: vk::DependencyFlags,
        count: u32, memory: *const vk::MemoryBarrier<'_>,
        buffer_count: u32, buffers: *const vk::BufferMemoryBarrier<'_>,
        image_count: u32, images: *const vk::ImageMemoryBarrier<'_>,
    ) {
        |ownership| transfers!(
            ownership, commands, slice(buffers, buffer_count), slice(images, image_count)
        )
    }
    pipeline_barrier2 = PFN_vkCmdPipelineBarrier2 c"vkCmdPipelineBarrier2"
        or c"vkCmdPipelineBarrier2KHR" (
        commands: vk::CommandBuffer, info: *const vk::DependencyInfo<'_>,
    ) {
        |ownership| transfers!(
            ownership,
            commands,
            slice((*info).p_buffer_memory_barriers, (*info).buffer_memory_barrier_count),
            slice((*info).p_image_memory_barriers, (*info).image_memory_barrier_count)
        )
    }
    fill_buffer = PFN_vkCmdFillBuffer c"vkCmdFillBuffer" (
        commands: vk::CommandBuffer, buffer: vk::Buffer, offset: vk::DeviceSize,
        size: vk::DeviceSize, word: u32,
    ) { |ownership| ownership.note(commands, buffer, offset, size, Action::Write) }
    update_buffer = PFN_vkCmdUpdateBuffer c"vkCmdUpdateBuffer" (
        commands: vk::CommandBuffer, buffer: vk::Buffer, offset: vk::DeviceSize,
        size: vk::DeviceSize, data: *const c_void,
    ) { |ownership| ownership.note(commands, buffer, offset, size, Action::Write) }
    copy_buffer = PFN_vkCmdCopyBuffer c"vkCmdCopyBuffer" (
        commands: vk::CommandBuffer, from: vk::Buffer, to: vk::Buffer, count: u32,
        regions: *const vk::BufferCopy,
    ) {
        |ownership| for one in slice(regions, count) {
            ownership.note(commands, from, one.src_offset, one.size, Action::Read);
            ownership.note(commands, to, one.dst_offset, one.size, Action::Write);
        }
    }
    copy_buffer2 = PFN_vkCmdCopyBuffer2 c"vkCmdCopyBuffer2" or c"vkCmdCopyBuffer2KHR" (
        commands: vk::CommandBuffer, info: *const vk::CopyBufferInfo2<'_>,
    ) {
        |ownership| for one in slice((*info).p_regions, (*info).region_count) {
            let (from, to) = ((*info).src_buffer, (*info).dst_buffer);
            ownership.note(commands, from, one.src_offset, one.size, Action::Read);
            ownership.note(commands, to, one.dst_offset, one.size, Action::Write);
        }
    }
    copy_image_to_buffer = PFN_vkCmdCopyImageToBuffer c"vkCmdCopyImageToBuffer" (
        commands: vk::CommandBuffer, image: vk::Image, layout: vk::ImageLayout, to: vk::Buffer,
        count: u32, regions: *const vk::BufferImageCopy,
    ) {
        |ownership| {
            ownership.note_use(commands, image);
            ownership.note_any_write(commands);
        }
    }
    copy_image_to_buffer2 = PFN_vkCmdCopyImageToBuffer2 c"vkCmdCopyImageToBuffer2"
        or c"vkCmdCopyImageToBuffer2KHR" (
        commands: vk::CommandBuffer, info: *const vk::CopyImageToBufferInfo2<'_>,
    ) {
        |ownership| {
            ownership.note_use(commands, (*info).src_image);
            ownership.note_any_write(commands);
        }
    }
    copy_buffer_to_image = PFN_vkCmdCopyBufferToImage c"vkCmdCopyBufferToImage" (
        commands: vk::CommandBuffer, from: vk::Buffer, image: vk::Image, layout: vk::ImageLayout,
        count: u32, regions: *const vk::BufferImageCopy,
    ) { |ownership| ownership.note_use(commands, image) }
    copy_buffer_to_image2 = PFN_vkCmdCopyBufferToImage2 c"vkCmdCopyBufferToImage2"
        or c"vkCmdCopyBufferToImage2KHR" (
        commands: vk::CommandBuffer, info: *const vk::CopyBufferToImageInfo2<'_>,
    ) { |ownership| ownership.note_use(commands, (*info).dst_image) }
    copy_image = PFN_vkCmdCopyImage c"vkCmdCopyImage" (
        commands: vk::CommandBuffer, from: vk::Image, from_layout: vk::ImageLayout, to: vk::Image,
        to_layout: vk::ImageLayout, count: u32, regions: *const vk::ImageCopy,
    ) {
        |ownership| for image in [from, to] {
            ownership.note_use(commands, image);
        }
    }
    copy_image2 = PFN_vkCmdCopyImage2 c"vkCmdCopyImage2" or c"vkCmdCopyImage2KHR" (
        commands: vk::CommandBuffer, info: *const vk::CopyImageInfo2<'_>,
    ) {
        |ownership| for image in [(*info).src_image, (*info).dst_image] {
            ownership.note_use(commands, image);
        }
    }
    clear_color_image = PFN_vkCmdClearColorImage c"vkCmdClearColorImage" (
        commands: vk::CommandBuffer, image: vk::Image, layout: vk::ImageLayout,
        color: *const vk::ClearColorValue, count: u32, ranges: *const vk::ImageSubresourceRange,
    ) { |ownership| ownership.note_use(commands, image) }
    begin_render_pass = PFN_vkCmdBeginRenderPass c"vkCmdBeginRenderPass" (
        commands: vk::CommandBuffer, info: *const vk::RenderPassBeginInfo<'_>,
        contents: vk::SubpassContents,
    ) { |ownership| ownership.note_any_write(commands) }
    begin_render_pass2 = PFN_vkCmdBeginRenderPass2 c"vkCmdBeginRenderPass2"
        or c"vkCmdBeginRenderPass2KHR" (
        commands: vk::CommandBuffer, info: *const vk::RenderPassBeginInfo<'_>,
        subpass: *const vk::SubpassBeginInfo<'_>,
    ) { |ownership| ownership.note_any_write(commands) }
    copy_query_pool_results = PFN_vkCmdCopyQueryPoolResults c"vkCmdCopyQueryPoolResults" (
        commands: vk::CommandBuffer, pool: vk::QueryPool, first: u32, count: u32, to: vk::Buffer,
        offset: vk::DeviceSize, stride: vk::DeviceSize, flags: vk::QueryResultFlags,
    ) { |ownership| ownership.note_any_write(commands) }
    bind_pipeline = PFN_vkCmdBindPipeline c"vkCmdBindPipeline" (
        commands: vk::CommandBuffer, point: vk::PipelineBindPoint, pipeline: vk::Pipeline,
    ) { |ownership| ownership.note_any_write(commands) }
    bind_shaders = PFN_vkCmdBindShadersEXT c"vkCmdBindShadersEXT" (
        commands: vk::CommandBuffer, count: u32, stages: *const vk::ShaderStageFlags,
        shaders: *const vk::ShaderEXT,
    ) { |ownership| ownership.note_any_write(commands) }
}

/// Returns what a barrier between two queue families does with ownership outside the device.
///
/// The family of this side is not followed. It is `VK_QUEUE_FAMILY_IGNORED` for concurrent
/// buffers.
const fn transfer((from, to): (u32, u32)) -> Option<Action> {
    match (is_outside(from), is_outside(to)) {
        (true, false) => Some(Action::Acquire),
        (false, true) => Some(Action::Release),
        _ => None,
    }
}

const fn is_outside(family: u32) -> bool {
    matches!(
        family,
        vk::QUEUE_FAMILY_EXTERNAL | vk::QUEUE_FAMILY_FOREIGN_EXT
    )
}

/// `vkAllocateCommandBuffers`: notes the pool of each command buffer.
pub(crate) unsafe extern "system" fn allocate_command_buffers(
    raw: vk::Device,
    info: *const vk::CommandBufferAllocateInfo<'_>,
    buffers: *mut vk::CommandBuffer,
) -> vk::Result {
    // SAFETY: valid usage: a live device, a valid structure, and room for the command buffers.
    unsafe {
        let Some(device) = Device::of(raw) else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        let result = (device.driver.allocate_command_buffers)(raw, info, buffers);
        if result == vk::Result::SUCCESS && device.heaps.is_some() {
            let made = slice(buffers.cast_const(), (*info).command_buffer_count);
            device.ownership.add_commands((*info).command_pool, made);
        }
        result
    }
}
