//! Blocks of memory that buffers share, allocated with `gpu-allocator`.
//!
//! Only private memory comes from here. Memory that is exported or imported, dedicated memory and
//! large buffers have a `VkDeviceMemory` of their own.
#![allow(unsafe_code, reason = "hands the device to the allocator")]

use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use ash::vk;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationSizes, AllocatorDebugSettings, MemoryLocation};
use syncline_core::backend::kit::Mutex;
use syncline_core::internal::DroppedByMaker;

const MIB: u64 = 1 << 20;

/// The size of the first block of a memory type. Each further block is twice as large.
const FIRST_BLOCK: u64 = 8 * MIB;

/// The size of the largest blocks.
const LARGEST_BLOCK: u64 = 64 * MIB;

/// The size above which a buffer has memory of its own.
const LARGEST_PART: u64 = 2 * MIB;

/// A block takes at most this part of its heap.
const BLOCKS_PER_HEAP: u64 = 8;

/// The smallest alignment of a part. A mapped part is as aligned as a mapped `VkDeviceMemory`.
const ALIGNMENT: u64 = 64;

/// The memory blocks of one `VkDevice`.
///
/// The drop of the device trims the pool. All parts must be gone then, so that this frees all
/// blocks.
pub(crate) struct MemoryPool {
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    memory: vk::PhysicalDeviceMemoryProperties,
    alignment: u64,
    /// Held across the driver calls that allocate and free blocks.
    blocks: Mutex<DroppedByMaker<Vec<Blocks>>>,
    /// Parts to free. Held across no driver call, so that a drop of a buffer never waits for one.
    freed: Mutex<Vec<Part>>,
}

/// The blocks of one memory type.
struct Blocks {
    memory_type: u32,
    allocator: Allocator,
    /// The number of parts in use. An allocator without parts may still have one empty block.
    parts: usize,
}

/// A range of a block, which belongs to one buffer.
#[derive(Debug)]
pub(crate) struct Part {
    memory_type: u32,
    allocation: Allocation,
}

impl Part {
    /// The memory of the block.
    pub(crate) fn memory(&self) -> vk::DeviceMemory {
        // SAFETY: the callers only bind buffers to it, and free the part after the buffer.
        unsafe { self.allocation.memory() }
    }

    /// The offset in the block in bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.allocation.offset()
    }

    /// The size in bytes, at least what was asked for.
    pub(crate) fn size(&self) -> u64 {
        self.allocation.size()
    }

    /// Where the part is mapped, if its memory type is host-visible. Aligned to 64 bytes.
    pub(crate) fn mapped(&self) -> Option<NonNull<AtomicU32>> {
        self.allocation.mapped_ptr().map(NonNull::cast)
    }
}

impl MemoryPool {
    /// A pool without blocks.
    pub(crate) fn new(
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        device: &ash::Device,
    ) -> Self {
        // SAFETY: the physical device is of this instance.
        let (memory, properties) = unsafe {
            (
                instance.get_physical_device_memory_properties(physical),
                instance.get_physical_device_properties(physical),
            )
        };
        Self {
            instance: instance.clone(),
            physical,
            device: device.clone(),
            memory,
            alignment: ALIGNMENT.max(properties.limits.non_coherent_atom_size),
            blocks: Mutex::default(),
            freed: Mutex::default(),
        }
    }

    /// The heaps and memory types of the physical device.
    pub(crate) const fn memory(&self) -> &vk::PhysicalDeviceMemoryProperties {
        &self.memory
    }

    /// The alignment of each part.
    pub(crate) const fn alignment(&self) -> u64 {
        self.alignment
    }

    /// A part of a block of `memory_type` that satisfies the requirements of a buffer.
    ///
    /// Returns `None` for a buffer that should have memory of its own: a large one, one in a small
    /// heap, and one for which the driver gives no further block. The pool is unchanged then.
    pub(crate) fn allocate(
        &self,
        memory_type: u32,
        needs: &vk::MemoryRequirements,
    ) -> Option<Part> {
        let sizes = self.block_sizes(memory_type)?;
        if needs.size > LARGEST_PART {
            return None;
        }
        let part = {
            let mut blocks = self.blocks.lock();
            self.free_all(&mut blocks);
            self.allocate_locked(&mut blocks, memory_type, needs, sizes)
        };
        self.free_what_is_due();
        part
    }

    fn allocate_locked(
        &self,
        blocks: &mut Vec<Blocks>,
        memory_type: u32,
        needs: &vk::MemoryRequirements,
        sizes: AllocationSizes,
    ) -> Option<Part> {
        let of_type = |of: &Blocks| of.memory_type == memory_type;
        let index = match blocks.iter().position(of_type) {
            Some(index) => index,
            None => {
                blocks.push(Blocks {
                    memory_type,
                    allocator: self.allocator(sizes)?,
                    parts: 0,
                });
                blocks.len() - 1
            }
        };
        let of = blocks.get_mut(index)?;
        let allocated = of.allocator.allocate(&AllocationCreateDesc {
            name: "buffer",
            requirements: vk::MemoryRequirements {
                // Two parts have no `nonCoherentAtomSize` in common.
                alignment: needs.alignment.max(self.alignment),
                // The caller has chosen the memory type.
                memory_type_bits: 1 << memory_type,
                ..*needs
            },
            location: MemoryLocation::Unknown,
            // There are only buffers here, so `bufferImageGranularity` does not matter.
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        });
        // The error is a text. The caller asks the driver for memory of the buffer's own, and
        // reports the driver's answer to that.
        let allocation = allocated.ok()?;
        of.parts += 1;
        Some(Part {
            memory_type,
            allocation,
        })
    }

    fn allocator(&self, sizes: AllocationSizes) -> Option<Allocator> {
        let mut debug_settings = AllocatorDebugSettings::default();
        debug_settings.log_leaks_on_shutdown = false;
        let info = AllocatorCreateDesc {
            instance: self.instance.clone(),
            device: self.device.clone(),
            physical_device: self.physical,
            debug_settings,
            // Buffers here have usages of Vulkan 1.0 only.
            buffer_device_address: false,
            allocation_sizes: sizes,
        };
        Allocator::new(&info).ok()
    }

    /// The sizes of blocks of a memory type, or `None` if its heap is small.
    fn block_sizes(&self, memory_type: u32) -> Option<AllocationSizes> {
        let memory_type = self
            .memory
            .memory_types_as_slice()
            .get(memory_type as usize)?;
        let heap = self
            .memory
            .memory_heaps_as_slice()
            .get(memory_type.heap_index as usize)?;
        let largest = (heap.size / BLOCKS_PER_HEAP).min(LARGEST_BLOCK);
        // The allocator takes multiples of 4 MiB only.
        let largest = largest - largest % FIRST_BLOCK;
        (largest >= FIRST_BLOCK).then(|| {
            AllocationSizes::new(FIRST_BLOCK, FIRST_BLOCK)
                .with_max_device_memblock_size(largest)
                .with_max_host_memblock_size(largest)
        })
    }

    /// Frees a part, whose buffer is destroyed. Called on any thread of the process that made it.
    ///
    /// Does not wait for another thread's driver call: that thread frees the part then.
    pub(crate) fn free(&self, part: Part) {
        self.freed.lock().push(part);
        self.free_what_is_due();
    }

    /// Frees the listed parts, unless another thread holds the lock of the blocks.
    ///
    /// That thread calls this after it has released the lock, so that no part stays listed.
    fn free_what_is_due(&self) {
        while !self.freed.lock().is_empty() {
            let Some(mut blocks) = self.blocks.try_lock() else {
                return;
            };
            self.free_all(&mut blocks);
        }
    }

    fn free_all(&self, blocks: &mut [Blocks]) {
        loop {
            // A statement of its own, so that the lock is released before the driver is called.
            let next = self.freed.lock().pop();
            let Some(Part {
                memory_type,
                allocation,
            }) = next
            else {
                return;
            };
            let mut all = blocks.iter_mut();
            if let Some(of) = all.find(|of| of.memory_type == memory_type) {
                // It fails only for an allocation of another allocator.
                let _ = of.allocator.free(allocation);
                of.parts -= 1;
            }
        }
    }

    /// Frees the blocks without parts, and returns the number of the others.
    pub(crate) fn trim(&self) -> usize {
        let (unused, left) = {
            let mut blocks = self.blocks.lock();
            self.free_all(&mut blocks);
            let unused: Vec<Blocks> = blocks.extract_if(.., |of| of.parts == 0).collect();
            let count = |of: &Blocks| of.allocator.generate_report().blocks.len();
            (unused, blocks.iter().map(count).sum())
        };
        // Frees their blocks, without the lock.
        drop(unused);
        self.free_what_is_due();
        left
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::alloc::Layout;
    use std::collections::HashMap;
    use std::ffi::{CStr, c_void};
    use std::ptr::null;
    use std::sync::atomic::{AtomicI32, Ordering};
    use std::time::Duration;

    use ash::vk::Handle as _;
    use rstest::rstest;

    use super::*;

    const KIB: u64 = 1 << 10;
    const ATOM: u64 = 256;

    /// A driver of nothing but memory. Its handles are its address.
    struct Driver {
        heap: u64,
        /// What `vkAllocateMemory` and `vkMapMemory` return.
        allocate: AtomicI32,
        map: AtomicI32,
        /// The memory that is allocated, by handle.
        live: Mutex<HashMap<u64, Layout>>,
    }

    impl Driver {
        fn with_heap(heap: u64) -> Box<Self> {
            Box::new(Self {
                heap,
                allocate: AtomicI32::new(0),
                map: AtomicI32::new(0),
                live: Mutex::default(),
            })
        }

        /// The sizes of the allocations in MiB, ascending.
        fn sizes(&self) -> Vec<u64> {
            let live = self.live.lock();
            let mut all: Vec<u64> = live.values().map(|of| of.size() as u64 / MIB).collect();
            all.sort_unstable();
            all
        }

        fn pool(&self) -> MemoryPool {
            let handle = std::ptr::from_ref(self) as u64;
            let function = |name: &CStr| -> *const c_void {
                match name.to_bytes() {
                    b"vkGetPhysicalDeviceMemoryProperties" => memory_properties as *const c_void,
                    b"vkGetPhysicalDeviceProperties" => properties as *const c_void,
                    b"vkAllocateMemory" => allocate_memory as *const c_void,
                    b"vkFreeMemory" => free_memory as *const c_void,
                    b"vkMapMemory" => map_memory as *const c_void,
                    b"vkUnmapMemory" => unmap_memory as *const c_void,
                    _ => null(),
                }
            };
            // SAFETY: the functions have the types of their names. The pool calls no others.
            let (instance, device) = unsafe {
                (
                    ash::Instance::load_with(function, vk::Instance::from_raw(handle)),
                    ash::Device::load_with(function, vk::Device::from_raw(handle)),
                )
            };
            MemoryPool::new(&instance, vk::PhysicalDevice::from_raw(handle), &device)
        }
    }

    /// The driver of a handle.
    ///
    /// # Safety
    /// The handle is of a live driver.
    unsafe fn driver<'d>(handle: u64) -> &'d Driver {
        // SAFETY: as promised. Only shared references are made of it.
        unsafe { &*(handle as *const Driver) }
    }

    unsafe extern "system" fn memory_properties(
        physical: vk::PhysicalDevice,
        out: *mut vk::PhysicalDeviceMemoryProperties,
    ) {
        let mut all = vk::PhysicalDeviceMemoryProperties {
            memory_type_count: 2,
            memory_heap_count: 1,
            ..Default::default()
        };
        // SAFETY: the pool's driver lives.
        all.memory_heaps[0].size = unsafe { driver(physical.as_raw()) }.heap;
        all.memory_types[1].property_flags = vk::MemoryPropertyFlags::HOST_VISIBLE;
        // SAFETY: the caller's structure.
        unsafe { out.write(all) };
    }

    unsafe extern "system" fn properties(
        _: vk::PhysicalDevice,
        out: *mut vk::PhysicalDeviceProperties,
    ) {
        let mut all = vk::PhysicalDeviceProperties::default();
        all.limits.buffer_image_granularity = 1;
        all.limits.non_coherent_atom_size = ATOM;
        // SAFETY: the caller's structure.
        unsafe { out.write(all) };
    }

    unsafe extern "system" fn allocate_memory(
        device: vk::Device,
        info: *const vk::MemoryAllocateInfo<'_>,
        _: *const vk::AllocationCallbacks<'_>,
        out: *mut vk::DeviceMemory,
    ) -> vk::Result {
        // SAFETY: the pool's driver lives.
        let driver = unsafe { driver(device.as_raw()) };
        let code = vk::Result::from_raw(driver.allocate.load(Ordering::Relaxed));
        if code == vk::Result::SUCCESS {
            // SAFETY: the caller's structure.
            let size = unsafe { (*info).allocation_size } as usize;
            let layout = Layout::from_size_align(size, 4096).unwrap();
            // SAFETY: the size is not 0.
            let memory = unsafe { std::alloc::alloc_zeroed(layout) } as u64;
            driver.live.lock().insert(memory, layout);
            // SAFETY: the caller's variable.
            unsafe { out.write(vk::DeviceMemory::from_raw(memory)) };
        }
        code
    }

    unsafe extern "system" fn free_memory(
        device: vk::Device,
        memory: vk::DeviceMemory,
        _: *const vk::AllocationCallbacks<'_>,
    ) {
        // SAFETY: the pool's driver lives.
        let driver = unsafe { driver(device.as_raw()) };
        let layout = driver.live.lock().remove(&memory.as_raw()).unwrap();
        // SAFETY: allocated above with this layout.
        unsafe { std::alloc::dealloc(memory.as_raw() as *mut u8, layout) };
    }

    unsafe extern "system" fn map_memory(
        device: vk::Device,
        memory: vk::DeviceMemory,
        _: vk::DeviceSize,
        _: vk::DeviceSize,
        _: vk::MemoryMapFlags,
        out: *mut *mut c_void,
    ) -> vk::Result {
        // SAFETY: the pool's driver lives.
        let driver = unsafe { driver(device.as_raw()) };
        // SAFETY: the caller's variable.
        unsafe { out.write(memory.as_raw() as *mut c_void) };
        vk::Result::from_raw(driver.map.load(Ordering::Relaxed))
    }

    unsafe extern "system" fn unmap_memory(_: vk::Device, _: vk::DeviceMemory) {}

    fn needs(size: u64) -> vk::MemoryRequirements {
        vk::MemoryRequirements {
            size,
            alignment: 16,
            memory_type_bits: 3,
        }
    }

    #[test]
    fn a_thousand_small_buffers_are_a_few_blocks() {
        let driver = Driver::with_heap(1024 * MIB);
        let pool = driver.pool();
        let mut parts = vec![pool.allocate(1, &needs(64 * KIB)).unwrap()];
        assert_eq!(driver.sizes(), [8]);
        parts.extend((1..1000).map(|n| pool.allocate(1, &needs(64 * KIB - n % 100)).unwrap()));
        assert_eq!(driver.sizes(), [8, 16, 32, 64]);
        let mut ranges: Vec<_> = parts
            .iter()
            .map(|part| (part.memory(), part.offset(), part.size()))
            .collect();
        ranges.sort();
        for pair in ranges.windows(2) {
            let [(memory, offset, size), (next, begin, _)] = *pair else {
                unreachable!()
            };
            let atom = (offset + size - 1) / ATOM;
            assert!(memory != next || atom < begin / ATOM, "{pair:?}");
        }
        for part in &parts {
            let address = part.memory().as_raw() + part.offset();
            assert_eq!(part.mapped().unwrap().as_ptr() as u64, address);
            assert_eq!(part.offset() % ATOM, 0);
        }
        // Every second one, and then the others.
        let (odd, even): (Vec<_>, Vec<_>) =
            parts.into_iter().enumerate().partition(|(n, _)| n % 2 == 1);
        odd.into_iter().for_each(|(_, part)| pool.free(part));
        assert_eq!(pool.trim(), 4);
        even.into_iter().for_each(|(_, part)| pool.free(part));
        assert_eq!(driver.sizes().len(), 1, "one block is kept");
        assert_eq!(pool.trim(), 0);
        assert!(driver.sizes().is_empty());
    }

    #[test]
    fn a_freed_part_is_used_again() {
        let driver = Driver::with_heap(1024 * MIB);
        let pool = driver.pool();
        for _ in 0..10 {
            let parts: Vec<_> = (0..128)
                .map(|_| pool.allocate(0, &needs(64 * KIB)).unwrap())
                .collect();
            assert!(parts.iter().all(|part| part.mapped().is_none()));
            assert_eq!(driver.sizes(), [8]);
            parts.into_iter().for_each(|part| pool.free(part));
        }
        let kept = pool.allocate(0, &needs(1)).unwrap();
        assert_eq!(pool.trim(), 1);
        drop((kept, pool));
        assert!(
            driver.sizes().is_empty(),
            "the pool's drop frees its blocks"
        );
    }

    /// Without a driver call: the driver has no memory.
    #[rstest]
    #[case::large_buffer(1024 * MIB, LARGEST_PART + 1)]
    #[case::small_heap(63 * MIB, 1)]
    fn memory_of_its_own_comes_from_elsewhere(#[case] heap: u64, #[case] size: u64) {
        let driver = Driver::with_heap(heap);
        let pool = driver.pool();
        assert!(pool.allocate(0, &needs(size)).is_none());
        assert!(pool.blocks.lock().is_empty());
    }

    #[rstest]
    #[case::full_device(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, vk::Result::SUCCESS)]
    #[case::full_host(vk::Result::ERROR_OUT_OF_HOST_MEMORY, vk::Result::SUCCESS)]
    #[case::too_many(vk::Result::ERROR_TOO_MANY_OBJECTS, vk::Result::SUCCESS)]
    #[case::lost(vk::Result::ERROR_DEVICE_LOST, vk::Result::SUCCESS)]
    #[case::unmapped(vk::Result::SUCCESS, vk::Result::ERROR_MEMORY_MAP_FAILED)]
    fn a_refused_block_leaves_the_pool_unchanged(
        #[case] allocate: vk::Result,
        #[case] map: vk::Result,
    ) {
        let driver = Driver::with_heap(1024 * MIB);
        let pool = driver.pool();
        let full: Vec<_> = (0..4)
            .map(|_| pool.allocate(1, &needs(2 * MIB)).unwrap())
            .collect();
        driver.allocate.store(allocate.as_raw(), Ordering::Relaxed);
        driver.map.store(map.as_raw(), Ordering::Relaxed);
        for size in [1, 2 * MIB] {
            assert!(pool.allocate(1, &needs(size)).is_none());
        }
        assert_eq!(pool.blocks.lock()[0].parts, 4);
        let mut full = full.into_iter();
        pool.free(full.next().unwrap());
        let again = pool.allocate(1, &needs(2 * MIB)).unwrap();
        driver.allocate.store(0, Ordering::Relaxed);
        driver.map.store(0, Ordering::Relaxed);
        let more = pool.allocate(1, &needs(2 * MIB)).unwrap();
        full.chain([again, more]).for_each(|part| pool.free(part));
        pool.trim();
        drop(pool);
        assert!(driver.sizes().is_empty());
    }

    /// A drop must not wait while another thread's call allocates a block.
    #[test]
    fn a_free_does_not_wait_for_the_lock_of_the_blocks() {
        let driver = Driver::with_heap(1024 * MIB);
        let pool = driver.pool();
        let part = pool.allocate(0, &needs(1)).unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let blocks = pool.blocks.lock();
            let pool = &pool;
            scope.spawn(move || {
                pool.free(part);
                done.send(()).unwrap();
            });
            let freed = is_done.recv_timeout(Duration::from_secs(20));
            drop(blocks);
            freed.unwrap();
        });
        assert_eq!(pool.freed.lock().len(), 1);
        assert_eq!(pool.trim(), 0);
        assert!(driver.sizes().is_empty());
    }

    /// Threads free and allocate at once. No part stays listed, and no block is lost.
    #[test]
    fn parts_freed_by_many_threads_are_all_freed() {
        let driver = Driver::with_heap(1024 * MIB);
        let pool = driver.pool();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pool = &pool;
                scope.spawn(move || {
                    for n in 0..2000 {
                        let part = pool.allocate(thread % 2, &needs(n * 100 + 1)).unwrap();
                        pool.free(part);
                    }
                });
            }
        });
        assert!(pool.freed.lock().is_empty());
        assert!(pool.blocks.lock().iter().all(|of| of.parts == 0));
        assert_eq!(pool.trim(), 0);
        assert!(driver.sizes().is_empty());
    }
}
