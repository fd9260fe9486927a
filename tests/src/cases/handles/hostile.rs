//! X4, E5: descriptors of wrong kinds.

#![allow(
    unsafe_code,
    reason = "hostile handles enter only through unsafe constructors"
)]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::fs::MemfdFlags;
use syncline::backend::{Device as _, Queue as _};
use syncline::{
    Device, Error, QueueKind,
    handle::{HandleKind, MemoryContent, MemoryFd, MemoryInfo, Origin, Rejected, TimelineFd},
    vulkan,
};

use super::parts::{import, is_open, names_importer, sides_of_one_gpu};
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::cases::kinds::kinds;
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

/// Checks that a refused import names the importer and returns the descriptor open.
fn refused(importer: &Device, what: &str, number: RawFd, answer: Refusal) -> Verdict {
    let Err((back, error)) = answer else {
        return Stop::fail(format!("{what} was taken for what it is not"));
    };
    check!(is_open(number), "{what} was closed by a failed import");
    check!(back.as_raw_fd() == number, "{what} did not come back");
    names_importer(what, &error, importer.info())
}

/// The result of an import: nothing to keep, or the descriptor and the error.
type Refusal = Result<(), (OwnedFd, Error)>;

/// Converts the result of an import of any handle.
fn outcome<T, H: Into<OwnedFd>>(imported: Result<T, Rejected<H>>) -> Refusal {
    imported
        .map(drop)
        .map_err(|Rejected { handle, error }| (handle.into(), error))
}

/// None of them is taken for a timeline. Each is returned open, and the importer is named.
fn every_kind(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let origin = Origin::of(exporter.info());
    for (what, fd) in kinds()? {
        let number = fd.as_raw_fd();
        // SAFETY: the kind is wrong on purpose. Drivers answer such descriptors with an error.
        let handle = unsafe { TimelineFd::from_fd(fd, origin.clone()) };
        refused(importer, what, number, outcome(import(importer, handle)))?;
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
        refused(importer, what, number, outcome(cuda.import_memory(handle)))?;
        unharmed(exporter, importer, what)?;
        let bytes = 4096;
        let (_exported, good) = exporter.export_buffer(bytes)?;
        if let Err(rejected) = cuda.import_memory(good) {
            let error = rejected.error;
            return Stop::fail(format!("after {what} no memory can be imported: {error}"));
        }
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
        let imported = outcome(vulkan.import_buffer(handle));
        // SwiftShader imports any file.
        if imported.is_err() {
            refused(importer, "a file with other contents", number, imported)?;
        }
        check!(
            rustix::fs::fstat(&canary).is_ok(),
            "an import has closed another file"
        );
    }
    // What an earlier case has left may be closed meanwhile.
    let after = Footprint::settled(&before)?;
    check!(
        after.descriptors <= before.descriptors,
        "{before} became {after}"
    );
    unharmed(exporter, importer, "a file with other contents")
}
