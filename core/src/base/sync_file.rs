//! Sync files: descriptors of the kernel that stand for one signal of a device.
#![allow(
    unsafe_code,
    reason = "an ioctl of sync files that rustix does not provide"
)]

use std::os::fd::BorrowedFd;

/// `struct sync_file_info` of the kernel's `linux/sync_file.h`.
#[repr(C)]
#[derive(Default)]
struct SyncFileInfo {
    name: [u8; 32],
    /// 1 if signalled, 0 if not, else a negative error.
    status: i32,
    flags: u32,
    num_fences: u32,
    pad: u32,
    sync_fence_info: u64,
}

const SYNC_IOC_FILE_INFO: rustix::ioctl::Opcode =
    rustix::ioctl::opcode::read_write::<SyncFileInfo>(b'>', 4);

/// The status of a sync file: 1 if it is signalled, 0 if not, negative if it signalled an error.
///
/// Call it only for anonymous objects of the kernel. The file of a driver may interpret the ioctl
/// number as one of its own.
///
/// # Errors
/// The system's error if `fd` is not a sync file.
pub(crate) fn status(fd: BorrowedFd<'_>) -> rustix::io::Result<i32> {
    let mut info = SyncFileInfo::default();
    // SAFETY: a sync file defines this ioctl and writes the structure with this layout. It uses no
    // pointer of the structure, because `num_fences` is 0. The kernel's other anonymous objects
    // do not know the ioctl and refuse it.
    unsafe {
        let call = rustix::ioctl::Updater::<SYNC_IOC_FILE_INFO, SyncFileInfo>::new(&mut info);
        rustix::ioctl::ioctl(fd, call)
    }?;
    Ok(info.status)
}
