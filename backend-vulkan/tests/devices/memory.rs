//! Private memory: parts of blocks, and a driver that gives no more.
#![allow(unsafe_code, reason = "replaces functions of the driver")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU64, Ordering};

use crate::common::{TIMEOUT, all_words, on_each_device, wait_until_alone};
use syncline_core::backend::kit::Mutex;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind};
use syncline_vulkan::ash::{self, vk};
use syncline_vulkan::{AdoptInfo, ApplicationMemory, Buffer, Device, Recorder};
use syncline_vulkan::{MemoryRange, MemoryRequest, MemorySource};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const NO_USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::empty();

/// The functions of the driver that are replaced.
static REAL: Mutex<Option<(vk::PFN_vkAllocateMemory, vk::PFN_vkFreeMemory)>> = Mutex::new(None);
/// What `vkAllocateMemory` returns instead, unless it is 0.
static REFUSAL: AtomicI32 = AtomicI32::new(0);
/// A [`REFUSAL`] of allocations that are not dedicated, which is no code of Vulkan's.
const BLOCKS: i32 = 1 << 20;
/// The number of allocations that live, and their bytes in all since the device was adopted.
static LIVE: AtomicIsize = AtomicIsize::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

unsafe extern "system" fn allocate(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    match REFUSAL.load(Ordering::SeqCst) {
        0 => {}
        // SAFETY: the caller's structure. Only a dedicated allocation has something chained here.
        BLOCKS if !unsafe { (*info).p_next }.is_null() => {}
        BLOCKS => return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        code => return vk::Result::from_raw(code),
    }
    let (real, _) = REAL.lock().unwrap();
    // SAFETY: the caller's arguments, for the function that the caller wanted.
    let code = unsafe { real(device, info, callbacks, memory) };
    if code == vk::Result::SUCCESS {
        LIVE.fetch_add(1, Ordering::SeqCst);
        // SAFETY: as above.
        BYTES.fetch_add(unsafe { (*info).allocation_size }, Ordering::SeqCst);
    }
    code
}

unsafe extern "system" fn free(
    device: vk::Device,
    memory: vk::DeviceMemory,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    if memory != vk::DeviceMemory::null() {
        LIVE.fetch_sub(1, Ordering::SeqCst);
    }
    let (_, real) = REAL.lock().unwrap();
    // SAFETY: as above.
    unsafe { real(device, memory, callbacks) };
}

fn live() -> isize {
    LIVE.load(Ordering::SeqCst)
}

/// Adopts each device with counted allocations, and checks that all memory is freed in the end.
fn on_each_counted_device(test: impl Fn(Device)) {
    on_each_device(|device| {
        let (instance, functions) = (device.instance(), device.raw().fp_v1_0());
        *REAL.lock() = Some((functions.allocate_memory, functions.free_memory));
        let (get, raw) = (
            instance.fp_v1_0().get_device_proc_addr,
            device.raw().handle(),
        );
        let function = |name: &CStr| -> *const c_void {
            match name.to_bytes() {
                b"vkAllocateMemory" => allocate as *const c_void,
                b"vkFreeMemory" => free as *const c_void,
                // SAFETY: a live device, and the name of a function.
                _ => unsafe { get(raw, name.as_ptr()) }
                    .map_or(std::ptr::null(), |of| of as *const c_void),
            }
        };
        REFUSAL.store(0, Ordering::SeqCst);
        LIVE.store(0, Ordering::SeqCst);
        BYTES.store(0, Ordering::SeqCst);
        let owner = Arc::new(device.clone());
        // SAFETY: the functions are those of this device. The owner keeps the device, and has no
        // queues here.
        let adopted = unsafe {
            Device::adopt(AdoptInfo {
                entry: device.entry().clone(),
                instance: instance.clone(),
                physical: device.physical(),
                device: ash::Device::load_with(function, raw),
                queues: Vec::new(),
                enabled: device.enabled(),
                owner: Some(owner.clone()),
            })
        };
        test(adopted.unwrap());
        wait_until_alone(&owner);
        assert_eq!(live(), 0, "memory is left");
    });
}

fn host(device: &Device, size: u64) -> Buffer {
    device.host_buffer(size, NO_USAGE).unwrap()
}

/// Where the memory of the buffer is.
fn place(buffer: &Buffer) -> (vk::DeviceMemory, u64) {
    let allocation = buffer.allocation();
    let offset = allocation.offset() + buffer.offset_in_allocation();
    (allocation.raw(), offset)
}

fn set_all(buffer: &Buffer, value: u32) {
    let words = buffer.as_words().unwrap().iter();
    words.for_each(|word| word.store(value, Ordering::Relaxed));
}

fn a_thousand_small_buffers_are_a_few_allocations() {
    on_each_counted_device(|device| {
        let first = host(&device, 64 * KIB);
        assert_eq!(live(), 1);
        assert!(BYTES.load(Ordering::SeqCst) <= 8 * MIB);
        let mut all: Vec<_> = (1..1000).map(|_| host(&device, 64 * KIB)).collect();
        all.push(first);
        println!(
            "{} allocations of {} bytes in all",
            live(),
            BYTES.load(Ordering::SeqCst)
        );
        assert!(live() <= 8, "{} allocations", live());
        assert!(BYTES.load(Ordering::SeqCst) <= 3 * 1000 * 64 * KIB);
        let places: BTreeSet<_> = all.iter().map(place).collect();
        assert_eq!(places.len(), 1000);
        for buffer in &all {
            assert_eq!(buffer.as_words().unwrap().as_ptr() as usize % 64, 0);
        }
        assert_eq!(device.trim().memory_blocks, live() as usize);
        drop(all);
        assert_eq!(live(), 1, "one block is kept for the next buffer");
        assert_eq!(device.trim().memory_blocks, 0);
        assert_eq!(live(), 0);
        // A large one has memory of its own, and gives it back.
        let large = host(&device, 16 * MIB);
        assert!(large.allocation().is_dedicated());
        assert_eq!(device.trim().memory_blocks, 0);
        assert_eq!(live(), 1);
        drop(large);
        assert_eq!(live(), 0);
    });
}

fn the_words_of_a_used_part_are_zeroes() {
    on_each_device(|device| {
        let sizes = [4, 100, 4096, 64 * KIB, 2 * MIB];
        let mut used = BTreeSet::new();
        let mut reused = 0;
        for round in 0..4 {
            // In another order in each round, so that a part is of several former parts.
            let sizes = sizes.iter().cycle().skip(round).take(sizes.len());
            let all: Vec<_> = sizes.map(|&size| host(device, size)).collect();
            for buffer in &all {
                assert_eq!(all_words(buffer), 0);
                reused += usize::from(!used.insert(place(buffer)));
                set_all(buffer, u32::MAX);
            }
            // The device's own memory comes from the same blocks, if it is of the same type.
            let own = device.device_buffer(64 * KIB, NO_USAGE).unwrap();
            let queue = device.queue(QueueKind::Transfer, "fills").unwrap();
            let work = move |r: &mut Recorder| r.fill_buffer(&own, u32::MAX);
            queue.submit(&[], work, &[]).unwrap();
            queue.idle(TIMEOUT).unwrap();
        }
        assert!(reused > 0, "no memory was used twice");
    });
}

/// Of one block. A copy between two of them is no copy onto itself.
fn neighbours_have_their_own_memory() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Transfer, "fills").unwrap();
        let sizes = (1..40).map(|n| n * 4);
        let seen: Vec<_> = sizes.clone().map(|size| host(device, size)).collect();
        let own: Vec<_> = sizes
            .map(|size| device.device_buffer(size, NO_USAGE).unwrap())
            .collect();
        let blocks: BTreeSet<_> = seen.iter().map(|buffer| place(buffer).0).collect();
        assert_eq!(blocks.len(), 1, "they are in one block");
        for (word, buffer) in (1..).zip(&own) {
            let buffer = buffer.clone();
            let work = move |r: &mut Recorder| r.fill_buffer(&buffer, word);
            queue.submit(&[], work, &[]).unwrap();
        }
        for (from, to) in own.iter().zip(&seen) {
            let (from, to) = (from.clone(), to.clone());
            let work = move |r: &mut Recorder| r.copy_buffer(&from, &to);
            queue.submit(&[], work, &[]).unwrap();
        }
        let (from, to) = (seen[38].clone(), host(device, 39 * 4));
        let copied = to.clone();
        let work = move |r: &mut Recorder| {
            r.order()?;
            r.copy_buffer(&from, &copied)
        };
        queue.submit(&[], work, &[]).unwrap();
        queue.idle(TIMEOUT).unwrap();
        for (word, buffer) in (1..).zip(&seen) {
            assert_eq!(all_words(buffer), word);
        }
        assert_eq!(all_words(&to), 39);
    });
}

/// A second buffer in a part of a block lies within the part.
fn a_part_holds_buffers_of_its_own_only() {
    on_each_device(|device| {
        let parts = [host(device, 4096), host(device, 4096), host(device, 4096)];
        let part = parts[1].allocation();
        let size = part.size();
        for (offset, bytes) in [(0, size + 4), (size, 4), (size - 4, 8), (u64::MAX - 3, 4)] {
            let refused = part.buffer(offset, bytes, NO_USAGE);
            assert!(
                matches!(refused, Err(Error::Unsupported { .. })),
                "{refused:?}"
            );
        }
        let second = part.buffer(0, size, NO_USAGE).unwrap();
        assert_eq!(place(&second), place(&parts[1]));
        set_all(&second, 5);
        for (buffer, word) in parts.iter().zip([0, 5, 0]) {
            assert_eq!(all_words(buffer), word);
        }
        let queue = device.queue(QueueKind::Transfer, "copies").unwrap();
        let (from, to) = (second.clone(), parts[1].clone());
        let work = move |r: &mut Recorder| r.copy_buffer(&from, &to);
        let refused = queue.submit(&[], work, &[]).unwrap_err();
        assert!(
            matches!(refused.root(), Error::Unsupported { .. }),
            "{refused}"
        );
        drop(parts);
        assert_eq!(all_words(&second), 5);
    });
}

/// Also when the device's handle goes first, and when several threads drop buffers.
fn buffers_and_devices_are_dropped_in_any_order() {
    for order in 0..4 {
        on_each_counted_device(|device| {
            let mut all: Vec<_> = (0..300).map(|_| host(&device, 64 * KIB)).collect();
            match order {
                0 => drop((all, device)),
                1 => drop((device, all)),
                2 => {
                    all.reverse();
                    drop(device);
                    let odd = all.split_off(150);
                    drop((all, odd));
                }
                _ => std::thread::scope(|scope| {
                    drop(device);
                    while !all.is_empty() {
                        let some = all.split_off(all.len().saturating_sub(100));
                        scope.spawn(move || drop(some));
                    }
                }),
            }
        });
    }
}

/// A refused block is no error if the buffer gets memory of its own. Otherwise nothing has changed.
fn a_driver_without_memory_loses_nothing() {
    for code in [
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        vk::Result::ERROR_OUT_OF_HOST_MEMORY,
        // `maxMemoryAllocationCount`.
        vk::Result::ERROR_TOO_MANY_OBJECTS,
    ] {
        on_each_counted_device(|device| {
            let refuse = |code: vk::Result| REFUSAL.store(code.as_raw(), Ordering::SeqCst);
            let block: Vec<_> = (0..100).map(|_| host(&device, 64 * KIB)).collect();
            block.iter().for_each(|buffer| set_all(buffer, 7));
            let before = live();
            refuse(code);
            // What is left of the block serves on.
            let mut more = Vec::new();
            let error = loop {
                match device.host_buffer(64 * KIB, NO_USAGE) {
                    Ok(buffer) => more.push(buffer),
                    Err(error) => break error,
                }
                assert!(more.len() < 1000, "the driver is not asked");
            };
            println!("after {} more: {error}", more.len());
            for refused in [error, device.host_buffer(16 * MIB, NO_USAGE).unwrap_err()] {
                let Error::Native {
                    call, code: found, ..
                } = refused
                else {
                    panic!("{refused:?}");
                };
                assert_eq!(
                    (call, found),
                    ("vkAllocateMemory", i64::from(code.as_raw()))
                );
            }
            assert_eq!(live(), before);
            let freed = more.pop().or(block.into_iter().next_back()).unwrap();
            drop(freed);
            assert_eq!(all_words(&host(&device, 64 * KIB)), 0);
            refuse(vk::Result::SUCCESS);
            more.extend((0..300).map(|_| host(&device, 64 * KIB)));
            assert!(more.iter().all(|buffer| all_words(buffer) == 0));
        });
    }
}

/// The driver refuses blocks, and gives allocations for one buffer.
fn fragmented_memory_serves_buffers_one_by_one() {
    on_each_counted_device(|device| {
        REFUSAL.store(BLOCKS, Ordering::SeqCst);
        let all: Vec<_> = (0..10).map(|_| host(&device, 64 * KIB)).collect();
        assert_eq!(live(), 10);
        assert!(all.iter().all(|buffer| buffer.allocation().is_dedicated()));
        assert!(all.iter().all(|buffer| all_words(buffer) == 0));
        assert_eq!(device.trim().memory_blocks, 0);
    });
}

fn a_lost_device_frees_its_memory() {
    on_each_counted_device(|device| {
        let all: Vec<_> = (0..300).map(|_| host(&device, 64 * KIB)).collect();
        REFUSAL.store(vk::Result::ERROR_DEVICE_LOST.as_raw(), Ordering::SeqCst);
        let lost = device.host_buffer(16 * MIB, NO_USAGE).unwrap_err();
        assert!(matches!(lost, Error::DeviceLost { .. }), "{lost}");
        drop(all);
        assert_eq!(device.trim().memory_blocks, 0);
        let error = device.host_buffer(4, NO_USAGE).unwrap_err();
        assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    });
}

/// The blocks belong to the parent, and a call in the child could change them.
fn a_forked_child_frees_nothing() {
    on_each_counted_device(|device| {
        let all: Vec<_> = (0..300).map(|_| host(&device, 64 * KIB)).collect();
        let before = live();
        // SAFETY: the child only drops its copies, and ends below.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // A child that waits for a lock of another thread is killed.
            // SAFETY: sets a timer of this process.
            unsafe { libc::alarm(TIMEOUT.as_secs() as u32) };
            let refused = device.host_buffer(4, NO_USAGE);
            let is_refused = matches!(refused, Err(Error::MadeBeforeFork { .. }));
            let is_empty = device.trim().memory_blocks == 0;
            drop((all, device));
            let is_well = is_refused && is_empty && live() == before;
            // SAFETY: ends the child without running anything else.
            unsafe { libc::_exit(i32::from(!is_well)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child, and writes to a variable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child");
        assert!(all.iter().all(|buffer| all_words(buffer) == 0));
        drop(all);
        assert_eq!(live(), 1);
    });
}

/// How a [`Plain`] source misbehaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Refuses,
    Unaligned,
    Unmapped,
}

/// A source of the application: a `VkDeviceMemory` for each range, and a lock.
///
/// It keeps the functions of the device only, as an application's allocator does.
struct Plain {
    device: ash::Device,
    state: Arc<std::sync::Mutex<Used>>,
}

#[derive(Default)]
struct Used {
    live: usize,
    threads: Vec<std::thread::ThreadId>,
    fault: Option<Fault>,
}

// SAFETY: each range is new memory of the device, or the test expects that it is refused.
unsafe impl MemorySource for Plain {
    fn allocate(&self, request: &MemoryRequest) -> Result<MemoryRange, vk::Result> {
        let mut state = self.state.lock().unwrap();
        state.threads.push(std::thread::current().id());
        let fault = state.fault.unwrap_or(Fault::None);
        if fault == Fault::Refuses {
            return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        }
        assert_eq!(request.requirements.memory_type_bits.count_ones(), 1);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(request.requirements.size)
            .memory_type_index(request.requirements.memory_type_bits.trailing_zeros());
        // SAFETY: the device lives while the source is used, and its memory is freed once.
        let memory = unsafe { self.device.allocate_memory(&info, None) }?;
        state.live += 1;
        let flags = vk::MemoryMapFlags::empty();
        let mapped = match request.host && fault != Fault::Unmapped {
            // SAFETY: as above. A memory type for the host is host-visible.
            true => unsafe { self.device.map_memory(memory, 0, vk::WHOLE_SIZE, flags) }.ok(),
            false => None,
        };
        if let Some(start) = mapped {
            // SAFETY: all of it is mapped.
            unsafe {
                start
                    .cast::<u8>()
                    .write_bytes(0xff, request.requirements.size as usize)
            };
        }
        Ok(MemoryRange {
            memory,
            offset: u64::from(fault == Fault::Unaligned),
            mapped: mapped.and_then(std::ptr::NonNull::new),
            token: Box::new(()),
        })
    }

    fn free(&self, range: MemoryRange) {
        let mut state = self.state.lock().unwrap();
        state.threads.push(std::thread::current().id());
        state.live -= 1;
        // SAFETY: allocated above. Its buffer is destroyed.
        unsafe { self.device.free_memory(range.memory, None) };
    }
}

fn memory_of(device: &Device) -> (ApplicationMemory, Arc<std::sync::Mutex<Used>>) {
    let state = Arc::<std::sync::Mutex<Used>>::default();
    let source = Plain {
        device: device.raw().clone(),
        state: state.clone(),
    };
    (device.use_memory(source), state)
}

/// A thread that drops a buffer takes no lock of the application, and the next call gives it back.
fn an_applications_memory_is_freed_by_its_calls() {
    on_each_device(|device| {
        let (memory, state) = memory_of(device);
        let make = || memory.host_buffer(4096, NO_USAGE).unwrap();
        let (first, second, third) = (make(), make(), make());
        assert_eq!(all_words(&first), 0);
        let queue = device.queue(QueueKind::Transfer, "fills").unwrap();
        let filled = first.clone();
        let work = move |r: &mut Recorder| r.fill_buffer(&filled, 3);
        queue.submit(&[], work, &[]).unwrap();
        queue.idle(TIMEOUT).unwrap();
        assert_eq!(all_words(&first), 3);
        let (done, is_done) = std::sync::mpsc::channel();
        let held = state.lock().unwrap();
        let dropping = std::thread::spawn(move || {
            drop((first, second));
            done.send(()).unwrap();
        });
        let dropped = is_done.recv_timeout(TIMEOUT);
        drop(held);
        dropped.unwrap();
        dropping.join().unwrap();
        assert_eq!(state.lock().unwrap().live, 3);
        let own = memory.device_buffer(64, NO_USAGE).unwrap();
        // The queue may keep the first one until its next submission.
        assert!(state.lock().unwrap().live <= 3);
        drop((own, third, queue));
        let start = std::time::Instant::now();
        while state.lock().unwrap().live > 0 {
            assert!(start.elapsed() < TIMEOUT, "memory is kept");
            device.trim();
            std::thread::yield_now();
        }
        let this = std::thread::current().id();
        assert!(state.lock().unwrap().threads.iter().all(|id| *id == this));
    });
}

fn a_faulty_source_is_refused_and_loses_nothing() {
    on_each_device(|device| {
        let (memory, state) = memory_of(device);
        for fault in [Fault::Refuses, Fault::Unaligned, Fault::Unmapped] {
            state.lock().unwrap().fault = Some(fault);
            let error = memory.host_buffer(64, NO_USAGE).unwrap_err();
            println!("{error}");
            match fault {
                Fault::Refuses => assert!(matches!(error, Error::Native { code: -2, .. })),
                _ => assert!(matches!(error, Error::Unsupported { .. })),
            }
            memory.give_back();
            assert_eq!(state.lock().unwrap().live, 0);
        }
        state.lock().unwrap().fault = None;
        drop(memory.host_buffer(64, NO_USAGE).unwrap());
        memory.give_back();
        assert_eq!(state.lock().unwrap().live, 0);
    });
}

/// With the application's own `gpu-allocator`, whose last handle goes with the last buffer.
#[cfg(feature = "gpu-allocator")]
fn an_applications_gpu_allocator_serves_buffers() {
    use gpu_allocator::vulkan::{Allocator, AllocatorCreateDesc};
    on_each_counted_device(|device| {
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: device.instance().clone(),
            device: device.raw().clone(),
            physical_device: device.physical(),
            debug_settings: Default::default(),
            buffer_device_address: false,
            allocation_sizes: Default::default(),
        });
        let allocator = Arc::new(std::sync::Mutex::new(allocator.unwrap()));
        // SAFETY: the allocator is of this device.
        let source = unsafe { syncline_vulkan::GpuAllocator::new(allocator.clone()) };
        let memory = device.use_memory(source);
        let used = || {
            let report = allocator.lock().unwrap().generate_report();
            report.total_allocated_bytes
        };
        for _ in 0..2 {
            let all: Vec<_> = (0..100)
                .map(|_| memory.host_buffer(64 * KIB, NO_USAGE).unwrap())
                .collect();
            assert!(all.iter().all(|buffer| all_words(buffer) == 0));
            all.iter().for_each(|buffer| set_all(buffer, 9));
            assert_eq!(live(), 1);
            assert!(used() >= 100 * 64 * KIB);
            drop(all);
            memory.give_back();
            assert_eq!(used(), 0);
        }
        let last = memory.host_buffer(64, NO_USAGE).unwrap();
        drop((allocator, memory, device));
        assert_eq!(all_words(&last), 0);
    });
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    #[cfg(feature = "gpu-allocator")]
    let own = crate::common::trials![an_applications_gpu_allocator_serves_buffers];
    #[cfg(not(feature = "gpu-allocator"))]
    let own = Vec::new();
    let all: Vec<(&'static str, fn())> = crate::common::trials![
        a_thousand_small_buffers_are_a_few_allocations,
        the_words_of_a_used_part_are_zeroes,
        neighbours_have_their_own_memory,
        a_part_holds_buffers_of_its_own_only,
        buffers_and_devices_are_dropped_in_any_order,
        a_driver_without_memory_loses_nothing,
        fragmented_memory_serves_buffers_one_by_one,
        a_lost_device_frees_its_memory,
        a_forked_child_frees_nothing,
        an_applications_memory_is_freed_by_its_calls,
        a_faulty_source_is_refused_and_loses_nothing,
    ];
    [all, own].concat()
}
