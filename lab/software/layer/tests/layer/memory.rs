//! Memory that the layer makes for export, and memory that it imports.
#![allow(unsafe_code, reason = "calls Vulkan")]

use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

use ash::vk;
use syncline_software_payload as software;
use syncline_software_payload::{Memory, Twin};

use crate::Case;
use crate::gpu::{BYTES, Buffer, Driver, Gpu, MEMORY};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("exported_memory_is_a_file_of_the_same_bytes", exported),
    ("a_file_of_memory_is_imported", imported),
    ("buffers_lie_at_offsets", offsets),
    ("an_importer_may_take_less_and_not_more", sizes),
    ("what_is_no_memory_is_refused", refused),
    ("memory_of_another_gpu_is_refused", another_gpu),
    ("imported_memory_is_exported_if_it_was_made_for_it", again),
    ("memory_outlives_its_exporter", outlives),
    ("more_than_the_heap_has_is_refused", too_large),
    ("buffers_are_exported_and_imported", properties),
    ("freed_memory_leaves_nothing", freed),
];

/// How memory is allocated.
#[derive(Clone, Copy, Default)]
pub(crate) struct How<'f> {
    pub(crate) exports: bool,
    pub(crate) from: Option<&'f OwnedFd>,
}

/// Allocates memory of the first type. A descriptor that is taken is a copy.
pub(crate) fn allocate(gpu: &Gpu, size: u64, how: How<'_>) -> Result<vk::DeviceMemory, vk::Result> {
    let copy = how.from.map(|fd| fd.try_clone().unwrap());
    let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(MEMORY);
    let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(MEMORY);
    let mut flags = vk::MemoryAllocateFlagsInfo::default();
    let mut info = vk::MemoryAllocateInfo::default()
        .allocation_size(size)
        .push_next(&mut flags);
    if how.exports {
        info = info.push_next(&mut export);
    }
    if let Some(copy) = &copy {
        import = import.fd(copy.as_raw_fd());
        info = info.push_next(&mut import);
    }
    // SAFETY: a valid structure.
    let memory = unsafe { gpu.device.allocate_memory(&info, None) }?;
    // The driver has taken the copy, and closed it or not.
    let _ = copy.map(IntoRawFd::into_raw_fd);
    Ok(memory)
}

pub(crate) fn export(gpu: &Gpu, memory: vk::DeviceMemory) -> Result<OwnedFd, vk::Result> {
    gpu.try_export_memory(memory)
}

pub(crate) fn free(gpu: &Gpu, memory: vk::DeviceMemory) {
    // SAFETY: memory of this device, which nothing uses.
    unsafe { gpu.device.free_memory(memory, None) };
}

/// Makes a buffer that is bound to memory at an offset. It is destroyed with the device.
fn bind(gpu: &Gpu, memory: vk::DeviceMemory, offset: u64) -> vk::Buffer {
    let raw = gpu.external_buffer(BYTES);
    // SAFETY: the memory has room for the buffer, and its only type is one for buffers.
    unsafe { gpu.device.bind_buffer_memory(raw, memory, offset) }.unwrap();
    raw
}

fn word(memory: &Memory, at: usize) -> u32 {
    // SAFETY: within the memory and aligned, and no queue writes there.
    unsafe { memory.address().add(at).cast::<u32>().read_volatile() }
}

pub(crate) fn set_word(memory: &Memory, at: usize, word: u32) {
    // SAFETY: as above.
    unsafe { memory.address().add(at).cast::<u32>().write_volatile(word) };
}

fn fill(gpu: &Gpu, raw: vk::Buffer, word: u32) {
    let memory = vk::DeviceMemory::null();
    let commands = gpu.fill(&Buffer { raw, memory }, word);
    gpu.submit(&[], &[commands], &[]);
    gpu.idle();
}

fn exported(driver: &Driver) {
    let gpu = driver.open();
    // Dedicated memory.
    let buffer = gpu.buffer(None);
    let file = gpu.export_memory(&buffer);
    let opened = Memory::open(file.as_fd()).unwrap();
    fill(&gpu, buffer.raw, 7);
    assert_eq!((word(&opened, 0), word(&opened, 4092)), (7, 7));
    set_word(&opened, 0, 8);
    assert_eq!(gpu.read(&buffer), 8);
    // Memory for several buffers.
    let memory = allocate(
        &gpu,
        1 << 20,
        How {
            exports: true,
            ..How::default()
        },
    );
    let memory = memory.unwrap();
    let opened = Memory::open(export(&gpu, memory).unwrap().as_fd()).unwrap();
    assert_eq!(opened.size(), 1 << 20);
    fill(&gpu, bind(&gpu, memory, 65_536), 9);
    assert_eq!((word(&opened, 65_532), word(&opened, 65_536)), (0, 9));
    gpu.destroy_buffers();
    free(&gpu, memory);
    // The size is sealed.
    assert!(rustix::fs::ftruncate(&file, 0).is_err());
}

/// The UUID of the GPU in the files of a driver's memory.
fn uuid(driver: &Driver) -> [u8; software::UUID_BYTES] {
    let twin = match driver.id {
        vk::DriverId::MESA_LLVMPIPE => Twin::Lavapipe,
        vk::DriverId::GOOGLE_SWIFTSHADER => Twin::SwiftShader,
        _ => Twin::Other,
    };
    twin.uuid().unwrap_or_default()
}

/// As the CUDA driver makes it.
fn imported(driver: &Driver) {
    let gpu = driver.open();
    let (made, file) = Memory::create(2 << 20, uuid(driver)).unwrap();
    let how = How {
        from: Some(&file),
        ..How::default()
    };
    let memory = allocate(&gpu, 2 << 20, how).unwrap();
    for offset in [0, 65_536, (2 << 20) - BYTES] {
        let at = usize::try_from(offset).unwrap();
        let buffer = bind(&gpu, memory, offset);
        fill(&gpu, buffer, 5);
        assert_eq!((word(&made, at), word(&made, at + 4092)), (5, 5));
        set_word(&made, at, 6);
        let memory = vk::DeviceMemory::null();
        let (from, to) = (
            Buffer {
                raw: buffer,
                memory,
            },
            gpu.buffer(None),
        );
        let commands = gpu.copy(&from, &to);
        gpu.submit(&[], &[commands], &[]);
        gpu.idle();
        assert_eq!(gpu.read(&to), 6);
    }
    gpu.destroy_buffers();
    free(&gpu, memory);
}

fn offsets(driver: &Driver) {
    let (first, second) = driver.open_two();
    let how = How {
        exports: true,
        ..How::default()
    };
    let memory = allocate(&first, 1 << 20, how).unwrap();
    let file = export(&first, memory).unwrap();
    let how = How {
        from: Some(&file),
        ..How::default()
    };
    let other = allocate(&second, 1 << 20, how).unwrap();
    let opened = Memory::open(file.as_fd()).unwrap();
    fill(&first, bind(&first, memory, 8192), 1);
    fill(&second, bind(&second, other, 8192 + BYTES), 2);
    let words = [8188, 8192, 12_284, 12_288, 16_380, 16_384].map(|at| word(&opened, at));
    assert_eq!(words, [0, 1, 1, 2, 2, 0]);
    for (gpu, memory) in [(first, memory), (second, other)] {
        gpu.destroy_buffers();
        free(&gpu, memory);
    }
}

fn sizes(driver: &Driver) {
    let gpu = driver.open();
    let (made, file) = Memory::create(1 << 20, uuid(driver)).unwrap();
    let how = How {
        from: Some(&file),
        ..How::default()
    };
    for (size, is_taken) in [(1 << 20, true), (5000, true), ((1 << 20) + 1, false)] {
        match allocate(&gpu, size, how) {
            Ok(memory) => {
                assert!(is_taken, "{size}");
                fill(&gpu, bind(&gpu, memory, 0), 3);
                assert_eq!(word(&made, 0), 3);
                set_word(&made, 0, 0);
                gpu.destroy_buffers();
                free(&gpu, memory);
            }
            Err(code) => {
                assert_eq!(code, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
                assert!(!is_taken, "{size}");
            }
        }
    }
}

fn refused(driver: &Driver) {
    let gpu = driver.open();
    let plain = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&plain, 1 << 20).unwrap();
    let files: [OwnedFd; 4] = [
        plain,
        std::io::pipe().unwrap().0.into(),
        std::fs::File::open("/dev/null").unwrap().into(),
        gpu.export(gpu.shared_timeline(0)),
    ];
    for file in &files {
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(MEMORY)
            .fd(file.as_raw_fd());
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(4096)
            .push_next(&mut import);
        // SAFETY: a valid structure. The layer refuses the descriptor.
        let told = unsafe { gpu.device.allocate_memory(&info, None) };
        assert_eq!(told, Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
        assert!(rustix::io::fcntl_getfd(file).is_ok(), "{file:?} is closed");
    }
    for number in [-1, 100_000] {
        let mut import = vk::ImportMemoryFdInfoKHR::default()
            .handle_type(MEMORY)
            .fd(number);
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(4096)
            .push_next(&mut import);
        // SAFETY: as above.
        let told = unsafe { gpu.device.allocate_memory(&info, None) };
        assert_eq!(told, Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
    }
}

fn another_gpu(driver: &Driver) {
    let gpu = driver.open();
    let (_memory, file) = Memory::create(1 << 20, *b"some another GPU").unwrap();
    let how = How {
        from: Some(&file),
        ..How::default()
    };
    let told = allocate(&gpu, 1 << 20, how);
    assert_eq!(told, Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
}

fn again(driver: &Driver) {
    let gpu = driver.open();
    let (made, file) = Memory::create(4096, uuid(driver)).unwrap();
    for exports in [false, true] {
        let how = How {
            exports,
            from: Some(&file),
        };
        let memory = allocate(&gpu, 4096, how).unwrap();
        match export(&gpu, memory) {
            Ok(copy) => {
                assert!(exports);
                set_word(&made, 64, 4);
                let opened = Memory::open(copy.as_fd()).unwrap();
                assert_eq!(word(&opened, 64), 4);
            }
            Err(code) => {
                assert_eq!(code, vk::Result::ERROR_INVALID_EXTERNAL_HANDLE);
                assert!(!exports);
            }
        }
        free(&gpu, memory);
    }
    let own = allocate(&gpu, 4096, How::default()).unwrap();
    let told = export(&gpu, own).err();
    assert_eq!(told, Some(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
    free(&gpu, own);
}

fn outlives(driver: &Driver) {
    let (first, second) = driver.open_two();
    let (buffer, word) = (first.buffer(None), 11);
    fill(&first, buffer.raw, word);
    let other = second.buffer(Some(first.export_memory(&buffer)));
    drop(first);
    assert_eq!(second.read(&other), word);
    fill(&second, other.raw, word + 1);
    assert_eq!(second.read(&other), word + 1);
}

fn too_large(driver: &Driver) {
    let gpu = driver.open();
    let how = How {
        exports: true,
        ..How::default()
    };
    for size in [1 << 60, u64::MAX] {
        let told = allocate(&gpu, size, how);
        assert_eq!(told, Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY), "{size}");
    }
}

fn properties(driver: &Driver) {
    let (instance, physical) = driver.instance();
    let info = vk::PhysicalDeviceExternalBufferInfo::default()
        .usage(vk::BufferUsageFlags::STORAGE_BUFFER)
        .handle_type(MEMORY);
    let mut told = vk::ExternalBufferProperties::default();
    // SAFETY: a live physical device, and valid structures.
    unsafe {
        let raw = &instance.raw;
        raw.get_physical_device_external_buffer_properties(physical, &info, &mut told);
    }
    let told = told.external_memory_properties;
    let both =
        vk::ExternalMemoryFeatureFlags::EXPORTABLE | vk::ExternalMemoryFeatureFlags::IMPORTABLE;
    assert_eq!(told.external_memory_features, both);
    assert_eq!(told.compatible_handle_types, MEMORY);
    assert_eq!(told.export_from_imported_handle_types, MEMORY);
}

fn freed(driver: &Driver) {
    let gpu = driver.open();
    let count = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
        (maps.matches("syncline-software-memory").count(), files)
    };
    let before = count();
    let how = How {
        exports: true,
        ..How::default()
    };
    for _ in 0..2000 {
        let memory = allocate(&gpu, 4096, how).unwrap();
        let file = export(&gpu, memory).unwrap();
        let how = How {
            from: Some(&file),
            ..How::default()
        };
        let other = allocate(&gpu, 4096, how).unwrap();
        free(&gpu, memory);
        free(&gpu, other);
    }
    assert_eq!(count(), before);
}
