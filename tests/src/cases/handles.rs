//! X3, X4, X5: handles that leave one API and enter another, and those that must not.

#![allow(
    unsafe_code,
    reason = "hostile handles enter only through unsafe constructors"
)]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use syncline::backend::{Attachment, Device as _, Queue as _};
use syncline::{Device, Error, HandleKind, Origin, QueueKind, Rejected, TimelineFd, Uuid, vulkan};

use crate::case::{Case, Stop, Verdict, check, check_error};
use crate::workload::Equipped;
use crate::{World, patience};

/// The cases of this family; they need a device that exports file descriptors.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    vec![
        Case {
            id: "handle.every_export_is_new",
            rules: &["X4"],
            run: exports,
        },
        Case {
            id: "handle.wrong_gpu_is_refused_first",
            rules: &["X5", "X4"],
            run: wrong_gpu,
        },
        Case {
            id: "handle.hostile_descriptors",
            rules: &["X3", "X4", "E5"],
            run: hostile,
        },
        Case {
            id: "handle.nothing_leaks",
            rules: &["X4"],
            run: nothing_leaks,
        },
    ]
}

/// The Vulkan device that exports, and the device that imports.
fn sides(world: &World<Equipped>) -> Result<(&vulkan::Device, &Device), Stop> {
    let exporter = match (world.left.library(), world.right.library()) {
        (Device::Vulkan(device), _) | (_, Device::Vulkan(device)) => device,
        _ => return Stop::skip("neither side exports file descriptors"),
    };
    if !exporter
        .info()
        .capabilities
        .exports
        .contains(&HandleKind::TimelineOpaqueFd)
    {
        return Stop::skip(format!("{} exports no timelines", exporter.info().name));
    }
    let importer = if world.left.id() == exporter.id() {
        world.right.library()
    } else {
        world.left.library()
    };
    if !importer
        .info()
        .capabilities
        .imports
        .contains(&HandleKind::TimelineOpaqueFd)
    {
        return Stop::skip(format!("{} imports no timelines", importer.info().name));
    }
    Ok((exporter, importer))
}

fn import(device: &Device, handle: TimelineFd) -> Result<Attachment, Rejected<TimelineFd>> {
    match device {
        Device::Host(_) => {
            let error = Error::NothingToWaitFor;
            Err(Rejected { handle, error })
        }
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => device.import_timeline(handle),
        Device::Vulkan(device) => device.import_timeline(handle),
    }
}

/// The same, of one GPU: the handles of another are refused.
fn sides_of_one_gpu(world: &World<Equipped>) -> Result<(&vulkan::Device, &Device), Stop> {
    let (exporter, importer) = sides(world)?;
    if !exporter.info().same_gpu(importer.info()) {
        return Stop::skip("they are different GPUs");
    }
    Ok((exporter, importer))
}

fn open_descriptors() -> Result<usize, Stop> {
    match std::fs::read_dir("/proc/self/fd") {
        Ok(entries) => Ok(entries.count()),
        Err(error) => Stop::skip(format!("open descriptors cannot be counted: {error}")),
    }
}

fn is_open(fd: RawFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok()
}

fn exports(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let (home, source) = exporter.exportable_port(3)?;
    let (first, second) = (source.export()?, source.export()?);
    let numbers = [first.into_fd(), second.into_fd()].map(|fd| fd.as_raw_fd());
    check!(numbers[0] != numbers[1], "two exports are one descriptor");
    let port = import(importer, source.export()?).map_err(|rejected| rejected.error)?;
    let mut home = Some(home);
    let line = syncline::Timeline::new("line", 3, |_| {
        Ok(home.take().into_iter().chain(Some(port)).collect())
    })?;
    let queue = importer.queue(QueueKind::Compute, "importer")?;
    queue.submit(&[line.at(3)], |_| Ok(()), &[line.signal_at(4)])?;
    line.at(4).wait(patience())?;
    Ok(())
}

fn wrong_gpu(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    let (_home, handle) = exporter.export_timeline(0)?;
    let mut origin = handle.origin().clone();
    origin.uuid = Some(Uuid([0xAB; 16]));
    // SAFETY: the descriptor is the timeline that was just exported; only its origin is a lie.
    let forged = unsafe { TimelineFd::from_fd(handle.into_fd(), origin) };
    match import(importer, forged) {
        Err(rejected) => {
            check!(
                matches!(&rejected.error, Error::CannotShare { .. }),
                "refused, but not for the GPU: {}",
                rejected.error
            );
            let text = rejected.error.to_string();
            check!(
                text.contains(&importer.info().name),
                "the importer is not named: {text}"
            );
            check!(
                is_open(rejected.handle.into_fd().as_raw_fd()),
                "the handle was closed"
            );
        }
        Ok(_) => return Stop::fail("a timeline of another GPU was imported"),
    }
    Ok(())
}

fn hostile(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let origin = Origin::of(exporter.info());
    let system =
        |error: rustix::io::Errno| Stop::Failed(format!("no descriptor to test with: {error}"));
    let (pipe, _write) = rustix::pipe::pipe().map_err(system)?;
    let file = rustix::fs::memfd_create(c"hostile", MemfdFlags::CLOEXEC).map_err(system)?;
    let (socket, _peer) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .map_err(system)?;
    // The driver must not be the worse for what it refused.
    let still_exports = |after: &str| match exporter.export_timeline(0) {
        Ok(_) => Ok(()),
        Err(error) => Stop::fail(format!("after {after} nothing can be exported: {error}")),
    };
    for (what, fd) in [("a pipe", pipe), ("a file", file), ("a socket", socket)] {
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
            }
        }
        still_exports(what)?;
    }
    // A number that was open and is not any more, high enough that nobody takes it meanwhile.
    let spare = rustix::fs::memfd_create(c"closed", MemfdFlags::CLOEXEC).map_err(system)?;
    let closed = rustix::io::fcntl_dupfd_cloexec(&spare, 700)
        .map_err(system)?
        .into_raw_fd();
    // SAFETY: just opened, and forgotten by its owner.
    drop(unsafe { OwnedFd::from_raw_fd(closed) });
    // SAFETY: not open: what comes back is forgotten before it could be closed again.
    let handle = unsafe { TimelineFd::from_fd(OwnedFd::from_raw_fd(closed), origin) };
    match import(importer, handle) {
        Ok(_) => return Stop::fail("a closed descriptor was imported as a timeline"),
        Err(rejected) => {
            let _forgotten = rejected.handle.into_fd().into_raw_fd();
        }
    }
    still_exports("a closed descriptor")?;
    importer.check()?;
    // The device still works.
    let queue = importer.queue(QueueKind::Compute, "after")?;
    queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    Ok(())
}

fn nothing_leaks(world: &World<Equipped>) -> Verdict {
    const ROUNDS: usize = 200;
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let round = || -> Verdict {
        let (_home, handle) = exporter.export_timeline(0)?;
        drop(import(importer, handle).map_err(|rejected| rejected.error)?);
        let (_home, unused) = exporter.export_timeline(0)?;
        drop(unused);
        Ok(())
    };
    // What drivers keep once is kept by then.
    for _ in 0..10 {
        round()?;
    }
    let before = open_descriptors()?;
    for _ in 0..ROUNDS {
        round()?;
    }
    let after = open_descriptors()?;
    check!(
        after <= before + 4,
        "{} descriptors more after {ROUNDS} rounds",
        after - before
    );
    check_error!(
        exporter.timeline("probe")?.at(1).wait(Duration::ZERO),
        Error::TimedOut { .. }
    );
    Ok(())
}
