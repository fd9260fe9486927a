//! X4, E5: descriptors of wrong kinds.

#![allow(
    unsafe_code,
    reason = "hostile handles enter only through unsafe constructors"
)]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::fs::MemfdFlags;
use syncline::backend::{Device as _, Queue as _};
use syncline::{
    Device, QueueKind,
    handle::{HandleKind, MemoryContent, MemoryFd, MemoryInfo, Origin, TimelineFd},
    vulkan,
};

use super::parts::{import, names_importer, sides_of_one_gpu};
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::cases::kinds::{came_back, kinds};
use crate::footprint::Footprint;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "handle.closed_descriptor": [X4 E5] => closed;
    "handle.every_kind_of_descriptor": [X4 E5] => every_kind;
    #[cfg(feature = "cuda")]
    "handle.hostile_memory_descriptors": [X4 E5] => memory;
    "handle.refused_memory_is_closed_once": [X4 E5] => refused_memory;
}

/// Checks that both sides work after a refusal.
fn unharmed(exporter: &vulkan::Device, importer: &Device, after: &str) -> Verdict {
    if let Err(error) = exporter.export_timeline(0) {
        return Stop::fail(format!("after {after} nothing can be exported: {error}"));
    }
    importer.check()?;
    Ok(())
}

fn still_works(importer: &Device) -> Verdict {
    let queue = importer.queue(QueueKind::Compute, "after")?;
    queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    Ok(())
}

/// None of them is taken for a timeline. Each is returned open, and the importer is named.
fn every_kind(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let origin = Origin::of(exporter.info());
    for (what, fd) in kinds()? {
        let number = fd.as_raw_fd();
        // SAFETY: the kind is wrong on purpose. Drivers answer such descriptors with an error.
        let handle = unsafe { TimelineFd::from_fd(fd, origin.clone()) };
        let error = came_back(what, number, import(importer, handle))?;
        names_importer(what, &error, importer.info())?;
        unharmed(exporter, importer, what)?;
    }
    still_works(importer)
}

/// A number of a descriptor that was closed.
fn closed(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let system =
        |error: rustix::io::Errno| Stop::Failed(format!("no descriptor to test with: {error}"));
    // A high number, which is not reused meanwhile.
    let spare = rustix::fs::memfd_create("closed", MemfdFlags::CLOEXEC).map_err(system)?;
    let closed = rustix::io::fcntl_dupfd_cloexec(&spare, 700)
        .map_err(system)?
        .into_raw_fd();
    // SAFETY: just opened, and its owner has forgotten it.
    drop(unsafe { OwnedFd::from_raw_fd(closed) });
    let origin = Origin::of(exporter.info());
    // SAFETY: not open. The returned descriptor is forgotten before it could be closed again.
    let handle = unsafe { TimelineFd::from_fd(OwnedFd::from_raw_fd(closed), origin) };
    match import(importer, handle) {
        Ok(_) => return Stop::fail("a closed descriptor was imported as a timeline"),
        Err(rejected) => {
            let back = rejected.handle.into_fd().into_raw_fd();
            check!(back == closed, "{closed} came back as {back}");
            names_importer("a closed descriptor", &rejected.error, importer.info())?;
        }
    }
    unharmed(exporter, importer, "a closed descriptor")?;
    still_works(importer)
}

/// What a handle says of memory that one buffer of `bytes` bytes is in.
fn of_bytes(bytes: u64) -> MemoryInfo {
    let mut info = MemoryInfo::new(bytes, MemoryContent::Buffer(bytes));
    info.memory_type = Some(0);
    info
}

/// CUDA takes none of them for memory.
#[cfg(feature = "cuda")]
fn memory(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let Device::Cuda(cuda) = importer else {
        return Stop::skip("the importing side is not CUDA");
    };
    let origin = Origin::of(exporter.info());
    for (what, fd) in kinds()? {
        let number = fd.as_raw_fd();
        // SAFETY: the kind is wrong on purpose. Drivers answer such descriptors with an error.
        let handle = unsafe { MemoryFd::from_fd(fd, origin.clone(), of_bytes(4096)) };
        let error = came_back(what, number, cuda.import_memory(handle))?;
        names_importer(what, &error, importer.info())?;
        unharmed(exporter, importer, what)?;
        let (_exported, good) = exporter.export_buffer(4096)?;
        cuda.import_memory(good)
            .map_err(|rejected| rejected.error)?;
    }
    still_works(importer)
}

/// A file like the driver's own, with other contents, comes back open. Other files stay open.
///
/// Lavapipe closes such a descriptor when it refuses the import. A library that closes the number
/// again ends the process in a debug build.
fn refused_memory(world: &World<Equipped>) -> Verdict {
    const BYTES: u64 = 8192;
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let Device::Vulkan(vulkan) = importer else {
        return Stop::skip("the importing side is not Vulkan");
    };
    let kinds = &vulkan.info().capabilities.imports;
    if !kinds.contains(&HandleKind::MemoryOpaqueFd) {
        return Stop::skip("the importing side imports no memory");
    }
    let system =
        |error: rustix::io::Errno| Stop::Failed(format!("no descriptor to test with: {error}"));
    let origin = Origin::of(exporter.info());
    let before = Footprint::now()?;
    for _ in 0..8 {
        let fd = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).map_err(system)?;
        rustix::fs::ftruncate(&fd, 2 * BYTES).map_err(system)?;
        let number = fd.as_raw_fd();
        // SAFETY: not memory of the driver, on purpose. Drivers look at the first bytes, or map the
        // file, which is large enough.
        let handle = unsafe { MemoryFd::from_fd(fd, origin.clone(), of_bytes(BYTES)) };
        let canary = rustix::fs::memfd_create("canary", MemfdFlags::CLOEXEC).map_err(system)?;
        let imported = vulkan.import_buffer(handle);
        // SwiftShader imports any file.
        if imported.is_err() {
            let error = came_back("another file", number, imported)?;
            names_importer("another file", &error, importer.info())?;
        }
        check!(rustix::fs::fstat(&canary).is_ok());
    }
    // What an earlier case has left may be closed meanwhile.
    let after = Footprint::settled(&before)?;
    check!(after.descriptors <= before.descriptors, "{before} {after}");
    unharmed(exporter, importer, "a file with other contents")
}
