//! Sync files: the kernel's descriptors that stand for one signal of a device.
#![allow(
    unsafe_code,
    reason = "asks sync files for their status, a call that rustix has no name for"
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

/// 1 if the sync file is signalled, 0 if it is not, and below 0 if it was signalled with an error. To be asked only of the kernel's
/// anonymous objects: files of drivers may take the call for one of theirs.
///
/// # Errors
/// The system's, for what is no sync file.
pub(crate) fn status(fd: BorrowedFd<'_>) -> rustix::io::Result<i32> {
    let mut info = SyncFileInfo::default();
    // SAFETY: a sync file, whose call this is, writes the structure with this layout; it reads no pointer of
    // it as long as no fences are asked for. The kernel's other anonymous objects do not know the call.
    unsafe {
        let call = rustix::ioctl::Updater::<SYNC_IOC_FILE_INFO, SyncFileInfo>::new(&mut info);
        rustix::ioctl::ioctl(fd, call)
    }?;
    Ok(info.status)
}
