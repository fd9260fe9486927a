//! X3, X4, E5: descriptors that are not what they are said to be.

#![allow(
    unsafe_code,
    reason = "hostile handles enter only through unsafe constructors"
)]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Origin, QueueKind, TimelineFd, vulkan};

use super::parts::{import, is_open, sides_of_one_gpu};
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "handle.hostile_descriptors": [X3 X4 E5] => closed;
    "handle.every_kind_of_descriptor": [X3 X4 E5] => every_kind;
    #[cfg(feature = "cuda")]
    "handle.hostile_memory_descriptors": [X3 X4 E5] => memory;
}

/// One descriptor of each kind that the system makes, none of them a handle of a driver.
fn kinds() -> Result<Vec<(&'static str, OwnedFd)>, Stop> {
    let system =
        |error: rustix::io::Errno| Stop::Failed(format!("no descriptor to test with: {error}"));
    let made = || -> rustix::io::Result<Vec<(&'static str, OwnedFd)>> {
        let cloexec = SocketFlags::CLOEXEC;
        let open = |path, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        let (read, write) = rustix::pipe::pipe()?;
        let (socket, _) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, cloexec, None)?;
        let listening =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, cloexec, None)?;
        // A name of the kernel's choice.
        rustix::net::bind(&listening, &rustix::net::SocketAddrUnix::new_unnamed())?;
        rustix::net::listen(&listening, 1)?;
        let empty = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let sealed = rustix::fs::memfd_create("sealed", flags)?;
        rustix::fs::ftruncate(&sealed, 4096)?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&sealed, seals)?;
        let polling = rustix::event::epoll::CreateFlags::CLOEXEC;
        let watching = rustix::fs::inotify::CreateFlags::CLOEXEC;
        let timer = rustix::time::TimerfdFlags::CLOEXEC;
        let me = rustix::process::getpid();
        let no_flags = rustix::process::PidfdFlags::empty();
        Ok(vec![
            ("the reading end of a pipe", read),
            ("the writing end of a pipe", write),
            ("a socket", socket),
            ("a listening socket", listening),
            (
                "a netlink socket",
                rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, cloexec, None)?,
            ),
            ("an empty file", empty),
            ("a sealed file", sealed),
            (
                "an eventfd",
                rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?,
            ),
            (
                "a timer",
                rustix::time::timerfd_create(rustix::time::TimerfdClockId::Monotonic, timer)?,
            ),
            ("an epoll", rustix::event::epoll::create(polling)?),
            ("an inotify", rustix::fs::inotify::init(watching)?),
            ("a process", rustix::process::pidfd_open(me, no_flags)?),
            (
                "a directory",
                open("/", OFlags::RDONLY | OFlags::DIRECTORY)?,
            ),
            ("a path", open("/", OFlags::PATH)?),
            ("the program", open("/proc/self/exe", OFlags::RDONLY)?),
            ("/dev/null", open("/dev/null", OFlags::RDWR)?),
            ("/dev/zero", open("/dev/zero", OFlags::RDWR)?),
        ])
    };
    let mut made = made().map_err(system)?;
    if let Ok(node) = std::fs::File::open("/dev/dri/renderD128") {
        made.push(("a render node", node.into()));
    }
    Ok(made)
}

/// Neither side is the worse for what it refused.
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

/// None of them is taken for a timeline; each comes back open, and is named.
fn every_kind(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let origin = Origin::of(exporter.info());
    for (what, fd) in kinds()? {
        let number = fd.as_raw_fd();
        // SAFETY: not what it says; drivers are known to answer such descriptors with an error.
        let handle = unsafe { TimelineFd::from_fd(fd, origin.clone()) };
        match import(importer, handle) {
            Ok(_) => return Stop::fail(format!("{what} was imported as a timeline")),
            Err(rejected) => {
                check!(is_open(number), "{what} was closed by a failed import");
                check!(
                    rejected.handle.into_fd().as_raw_fd() == number,
                    "{what} did not come back"
                );
                check!(
                    !rejected.error.to_string().is_empty(),
                    "{what} was refused without a word"
                );
            }
        }
        unharmed(exporter, importer, what)?;
    }
    still_works(importer)
}

/// A number that was open and is not any more.
fn closed(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let system =
        |error: rustix::io::Errno| Stop::Failed(format!("no descriptor to test with: {error}"));
    // High enough that nobody takes it meanwhile.
    let spare = rustix::fs::memfd_create("closed", MemfdFlags::CLOEXEC).map_err(system)?;
    let closed = rustix::io::fcntl_dupfd_cloexec(&spare, 700)
        .map_err(system)?
        .into_raw_fd();
    // SAFETY: just opened, and forgotten by its owner.
    drop(unsafe { OwnedFd::from_raw_fd(closed) });
    let origin = Origin::of(exporter.info());
    // SAFETY: not open: what comes back is forgotten before it could be closed again.
    let handle = unsafe { TimelineFd::from_fd(OwnedFd::from_raw_fd(closed), origin) };
    match import(importer, handle) {
        Ok(_) => return Stop::fail("a closed descriptor was imported as a timeline"),
        Err(rejected) => {
            let _forgotten = rejected.handle.into_fd().into_raw_fd();
        }
    }
    unharmed(exporter, importer, "a closed descriptor")?;
    still_works(importer)
}

/// None of them is taken for memory by CUDA either.
#[cfg(feature = "cuda")]
fn memory(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let Device::Cuda(cuda) = importer else {
        return Stop::skip("only CUDA imports memory");
    };
    let origin = Origin::of(exporter.info());
    for (what, fd) in kinds()? {
        let number = fd.as_raw_fd();
        // SAFETY: not what it says; drivers are known to answer such descriptors with an error.
        let handle = unsafe { syncline::MemoryFd::from_fd(fd, origin.clone(), 4096, 4096, false) };
        match cuda.import_memory(handle) {
            Ok(_) => return Stop::fail(format!("{what} was imported as memory")),
            Err(rejected) => {
                check!(is_open(number), "{what} was closed by a failed import");
                check!(
                    rejected.handle.into_fd().as_raw_fd() == number,
                    "{what} did not come back"
                );
            }
        }
        unharmed(exporter, importer, what)?;
        let bytes = 4096;
        let (_exported, good) = exporter.export_buffer(bytes, Default::default())?;
        if let Err(rejected) = cuda.import_memory(good) {
            let error = rejected.error;
            return Stop::fail(format!("after {what} no memory can be imported: {error}"));
        }
    }
    still_works(importer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_can_be_made() {
        let made = kinds();
        assert!(made.is_ok_and(|kinds| kinds.len() >= 17));
    }
}
