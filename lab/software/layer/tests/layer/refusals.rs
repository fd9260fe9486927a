//! Refused calls and their effects.
#![allow(unsafe_code, reason = "calls Vulkan")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ash::vk;
use syncline_software_payload as software;

use crate::Case;
use crate::gpu::Driver;

pub(crate) const CASES: &[(&str, Case)] = &[
    ("wrong_descriptors", descriptors),
    ("no_export_of_what_is_not_made_for_it", not_exportable),
    ("sparse_binding", sparse),
    ("a_refused_submission_counts_nothing", submission),
];

const KEPT: vk::SemaphoreImportFlags = vk::SemaphoreImportFlags::empty();
const TEMPORARY: vk::SemaphoreImportFlags = vk::SemaphoreImportFlags::TEMPORARY;
const REFUSED: Result<(), vk::Result> = Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE);

fn descriptors(driver: &Driver) {
    let gpu = driver.open();
    let (timeline, binary) = (gpu.shared_timeline(0), gpu.shared_binary());
    let (reader, writer) = std::io::pipe().unwrap();
    let memory = gpu.buffer(None);
    let closed = {
        let file = std::fs::File::open("/dev/null").unwrap();
        // Far above the next descriptors of the process.
        let high = rustix::io::fcntl_dupfd_cloexec(&file, 700).unwrap();
        high.as_raw_fd()
    };
    let files: Vec<OwnedFd> = vec![
        reader.into(),
        writer.into(),
        std::fs::File::open("/dev/null").unwrap().into(),
        std::fs::File::open(std::env::current_exe().unwrap())
            .unwrap()
            .into(),
        gpu.export_memory(&memory),
    ];
    let (as_timeline, as_binary) = (gpu.export(timeline), gpu.export(binary));
    for (semaphore, other_kind) in [
        (gpu.timeline(5), &as_binary),
        (timeline, &as_binary),
        (gpu.binary(), &as_timeline),
        (binary, &as_timeline),
    ] {
        for file in files.iter().chain([other_kind]) {
            let refused = gpu.try_import(semaphore, file.as_raw_fd(), KEPT);
            assert_eq!(refused, REFUSED, "{file:?}");
            assert!(rustix::io::fcntl_getfd(file).is_ok(), "{file:?} is closed");
        }
        for number in [-1, closed] {
            assert_eq!(gpu.try_import(semaphore, number, KEPT), REFUSED, "{number}");
        }
    }
    // A timeline accepts no temporary payload.
    let kept = gpu.timeline(5);
    assert_eq!(
        gpu.try_import(kept, as_timeline.as_raw_fd(), TEMPORARY),
        REFUSED
    );
    // None of them has changed.
    assert_eq!((gpu.value(kept), gpu.value(timeline)), (5, 0));
    gpu.submit(&[], &[], &[(binary, 0)]);
    gpu.submit(&[(binary, 0)], &[], &[(timeline, 1), (kept, 6)]);
    gpu.wait(timeline, 1);
    gpu.wait(kept, 6);
}

fn not_exportable(driver: &Driver) {
    let gpu = driver.open();
    let shared = gpu.shared_timeline(0);
    // The last one has the payload of an exported semaphore.
    for semaphore in [
        gpu.timeline(0),
        gpu.binary(),
        gpu.imported_timeline(gpu.export(shared)),
    ] {
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(semaphore)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        // SAFETY: a live semaphore.
        let told = unsafe { gpu.fds.get_semaphore_fd(&info) };
        assert_eq!(told, Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
    }
}

fn sparse(driver: &Driver) {
    let gpu = driver.open();
    let signals = [gpu.shared_binary()];
    let info = vk::BindSparseInfo::default().signal_semaphores(&signals);
    // SAFETY: a valid structure; the layer refuses it before the driver sees it.
    let told = unsafe {
        gpu.device
            .queue_bind_sparse(gpu.queue, &[info], vk::Fence::null())
    };
    assert_eq!(told, Err(vk::Result::ERROR_FEATURE_NOT_PRESENT));
}

/// Lavapipe loses its device when a timeline decreases. The driver refuses later submissions.
fn submission(driver: &Driver) {
    if driver.id != vk::DriverId::MESA_LLVMPIPE {
        println!("skipped on {}: it refuses no submission", driver.name);
        return;
    }
    let gpu = driver.open();
    let (binary, frames, own) = (gpu.shared_binary(), gpu.shared_timeline(0), gpu.timeline(0));
    let page = software::Semaphore::open(gpu.export(binary).as_fd()).unwrap();
    let lent = gpu.shared_binary();
    let waits = gpu.imported_binary(gpu.export(binary));
    gpu.import(waits, gpu.export(lent), TEMPORARY);
    gpu.submit(&[], &[], &[(binary, 0), (frames, 1)]);
    gpu.wait(frames, 1);
    assert_eq!(page.value(), 1);

    gpu.signal(own, 9);
    let lost = Err(vk::Result::ERROR_DEVICE_LOST);
    assert_eq!(gpu.try_signal(own, 5), lost);
    let none = vk::Fence::null();
    for _ in 0..2 {
        assert_eq!(gpu.try_submit(&[], &[], &[(binary, 0)], none), lost);
        assert_eq!(gpu.try_submit(&[(binary, 0)], &[], &[], none), lost);
        assert_eq!(
            gpu.try_submit(&[(waits, 0)], &[], &[(frames, 2)], none),
            lost
        );
    }
    // The numbers continue after the first signal, and no wait has been counted.
    assert_eq!((page.number_signal(), page.number_wait()), (2, 1));
    // SAFETY: a live timeline.
    let value = unsafe { gpu.device.get_semaphore_counter_value(frames) };
    assert_eq!(value, Err(vk::Result::ERROR_DEVICE_LOST));
    let all = vk::SemaphoreWaitFlags::empty();
    let waited = gpu.try_wait(&[(frames, 2)], all, u64::MAX);
    assert_eq!(waited, Err(vk::Result::ERROR_DEVICE_LOST));
    drop(gpu);

    // Another device of the process works as before.
    let next = driver.open();
    let frames = next.shared_timeline(0);
    next.submit(&[], &[], &[(frames, 1)]);
    next.wait(frames, 1);
}
