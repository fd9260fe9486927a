//! Memory of other APIs, imported.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;

use cudarc::driver::sys;
use syncline_core::{Error, HandleKind, MemoryFd, Rejected, Result};

use crate::device::deferred_free::Resource;
use crate::device::open::Device;
use crate::driver::table::{Code, Raw};
use crate::memory::buffer::DeviceBuffer;

/// `CUDA_EXTERNAL_MEMORY_DEDICATED`.
const DEDICATED: u32 = 1;

impl Device {
    /// The memory that `handle` carries, as one buffer.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if it comes from another GPU, and [`Error::Unsupported`] if the device takes no
    /// memory, before any driver is asked; a driver error. The handle comes back with it, still open.
    pub fn import_memory(&self, handle: MemoryFd) -> Result<DeviceBuffer, Rejected<MemoryFd>> {
        let imported = self
            .require(handle.origin(), HandleKind::MemoryOpaqueFd, "memory")
            .and_then(|()| self.map_memory(&handle));
        // The driver has taken a duplicate, so on success ours is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Imports a duplicate of the descriptor: the second step may fail after the first has taken it.
    fn map_memory(&self, handle: &MemoryFd) -> Result<DeviceBuffer> {
        let refused = |reason: String| Error::Import {
            object: self.object().clone(),
            what: format!("memory of {} bytes", handle.size()),
            reason,
        };
        if handle.length() > handle.size() {
            let length = handle.length();
            return Err(refused(format!(
                "it is said to hold a buffer of {length} bytes"
            )));
        }
        let context = self.context();
        let _bound = context.bind_outside_capture()?;
        let (mut raw, mut no_duplicate) = (null_mut(), None);
        // Asked again where memory was short: each time with a duplicate of its own, because the
        // driver may have closed the one before.
        let imported = context.allocate(|driver| {
            let duplicate = match handle.as_fd().try_clone_to_owned() {
                Ok(duplicate) => duplicate,
                Err(error) => {
                    no_duplicate = Some(error);
                    return Err(Code::not_supported("cuImportExternalMemory"));
                }
            };
            let desc = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
                type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 {
                    fd: duplicate.as_raw_fd(),
                },
                size: handle.size(),
                flags: if handle.dedicated() { DEDICATED } else { 0 },
                reserved: [0; 16],
            };
            // SAFETY: `MemoryFd` says that the descriptor is an opaque one, of memory of this size;
            // it was checked to be of this GPU, and it is open. The driver takes it if it succeeds,
            // and writes one handle then.
            match unsafe { driver.import_external_memory(&raw mut raw, &raw const desc) } {
                Ok(()) => {
                    let _ = duplicate.into_raw_fd();
                    Ok(())
                }
                Err(code) => {
                    close_if_still_ours(duplicate, handle);
                    Err(code)
                }
            }
        });
        if let Some(error) = no_duplicate {
            return Err(refused(error.to_string()));
        }
        imported?;
        let buffer = sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
            offset: 0,
            size: handle.size(),
            flags: 0,
            reserved: [0; 16],
        };
        let mut pointer = 0;
        // SAFETY: imported above, in the current context. From 0 to its size is within it.
        let mapped = unsafe {
            context.driver().external_memory_get_mapped_buffer(
                &raw mut pointer,
                raw,
                &raw const buffer,
            )
        };
        if let Err(code) = mapped {
            // SAFETY: imported above and destroyed here alone. It has no mapped buffer.
            let _ = unsafe { context.driver().destroy_external_memory(raw) };
            return Err(context.error(code));
        }
        let resource = Resource::External(pointer, Raw(raw));
        // SAFETY: mapped above, of the handle's size, which its length does not exceed (checked
        // above).
        Ok(unsafe { DeviceBuffer::new(&self.device_ref(), pointer, handle.length(), resource) })
    }
}

/// Closes the duplicate of `of` that a driver has refused as memory, unless that has closed it: NVIDIA's (580.159)
/// does for some kinds, although a semaphore that it refuses stays open. What has its number by then is somebody else's.
/// Where the kernel does not tell whether the two are one open file, it is left alone: a leak, at worst.
fn close_if_still_ours(duplicate: OwnedFd, of: &MemoryFd) {
    // Anonymous files (semaphores, eventfds, GPU memory) all have one inode, so that says nothing.
    if same_file(&duplicate, of) {
        drop(duplicate);
    } else {
        let _ = duplicate.into_raw_fd();
    }
}

/// True if both descriptors stand for one open file, as far as the kernel tells: `kcmp` with `KCMP_FILE`.
fn same_file(left: &impl AsRawFd, right: &impl AsFd) -> bool {
    const KCMP_FILE: libc::c_int = 0;
    let (left, right) = (left.as_raw_fd(), right.as_fd().as_raw_fd());
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: compares two entries of this process's own table, and says so if there is none.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, process, process, KCMP_FILE, left, right) };
    order == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use syncline_core::Origin;

    use super::*;
    use crate::driver::emulated::{self, imported_files};

    #[test]
    fn anonymous_files_are_told_apart() {
        let eventfd = || rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let (one, other) = (eventfd(), eventfd());
        let again = one.try_clone().unwrap();
        assert!(!same_file(&one, &other));
        // Some sandboxes forbid the call, and then nothing is the same.
        assert!(same_file(&one, &again) || !same_file(&one, &one));
    }
    /// Drivers close a descriptor that they refuse, and its number may be another file's at once.
    #[test]
    fn a_second_try_has_a_descriptor_of_its_own() {
        let device = emulated::device();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let inode = rustix::fs::fstat(&file).unwrap().st_ino;
        // SAFETY: the driver that is emulated looks into none.
        let handle =
            unsafe { MemoryFd::from_fd(file.into(), Origin::of(device.info()), 64, 64, true) };
        // Something is due, so that the driver is asked again when it has no memory.
        device
            .context()
            .deferred_frees()
            .add(Resource::Device(4_096), 4);
        emulated::refuse_memory(1);
        let imported = device.import_memory(handle);
        assert!(imported.is_ok());
        assert_eq!(imported_files(), [inode, inode]);
    }
}
