//! Shared by the cases of handles: exporter, importer, and a counter seen through an import.

#![allow(unsafe_code, reason = "imports what it exports")]

use std::os::fd::RawFd;

use syncline::{
    Device, Error, Timeline,
    handle::{HandleKind, Origin, Rejected, TimelineFd},
    info::{Info, Uuid},
    vulkan,
};
use syncline_core::backend::{Attachment, Attachments, Device as _};

use crate::World;
use crate::case::{Stop, Verdict, check};
use crate::workload::Equipped;

/// Returns the Vulkan device that exports, and the device that imports.
pub(super) fn sides(world: &World<Equipped>) -> Result<(&vulkan::Device, &Device), Stop> {
    let exporter = match (world.left.library(), world.right.library()) {
        (Device::Vulkan(device), _) | (_, Device::Vulkan(device)) => device,
        _ => return Stop::skip("neither side exports file descriptors"),
    };
    let kind = &HandleKind::TimelineOpaqueFd;
    if !exporter.info().capabilities.exports.contains(kind) {
        return Stop::skip(format!("{} exports no timelines", exporter.info().name));
    }
    let importer = if world.left.id() == exporter.id() {
        world.right.library()
    } else {
        world.left.library()
    };
    if !importer.info().capabilities.imports.contains(kind) {
        return Stop::skip(format!("{} imports no timelines", importer.info().name));
    }
    Ok((exporter, importer))
}

/// Returns them if they are one GPU, because handles of another GPU are refused.
pub(super) fn sides_of_one_gpu(
    world: &World<Equipped>,
) -> Result<(&vulkan::Device, &Device), Stop> {
    let (exporter, importer) = sides(world)?;
    if !exporter.info().same_gpu(importer.info()) {
        return Stop::skip("they are different GPUs");
    }
    Ok((exporter, importer))
}

pub(super) fn import(
    device: &Device,
    handle: TimelineFd,
) -> Result<Attachment, Rejected<TimelineFd>> {
    match device {
        // SAFETY: a case signals its counter with one value after the other.
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => unsafe { device.import_timeline(handle) },
        // SAFETY: as above.
        Device::Vulkan(device) => unsafe { device.import_timeline(handle) },
        _ => {
            let error = Error::NothingToWaitFor;
            Err(Rejected { handle, error })
        }
    }
}

/// Whether the number stands for an open descriptor.
pub(in crate::cases) fn is_open(fd: RawFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok()
}

/// An exported counter, and the timeline that it was made for.
pub(super) struct Exported {
    pub(super) line: Timeline,
    pub(super) source: syncline_vulkan::Exporter,
}

/// Creates a counter at `initial` for export.
///
/// Imports of it are timelines of their own, so the engine is told that others signal it, too.
pub(super) fn exported(
    exporter: &vulkan::Device,
    label: &str,
    initial: u64,
) -> Result<Exported, Stop> {
    let (home, source) = exporter.exportable_port(initial)?;
    let home = home.signalled_elsewhere(true);
    let line = Timeline::new(label, initial, |_| Ok(Attachments::from_iter([home])))?;
    Ok(Exported { line, source })
}

/// Creates a second timeline over the counter behind `handle`.
///
/// The exporter reads it through its own import, and `importer` uses it through another. It starts
/// from `initial`. The counter may have passed that.
pub(super) fn view(
    exporter: &vulkan::Device,
    importer: &Device,
    source: &syncline_vulkan::Exporter,
    handle: TimelineFd,
    initial: u64,
) -> Result<Timeline, Stop> {
    let mut ports = Attachments::new();
    if importer.id() == exporter.id() {
        ports.push(import(importer, handle).map_err(|rejected| rejected.error)?);
    } else {
        // The host reads the counter through this. The handle itself goes to the importer.
        // SAFETY: as in `import`.
        let home = unsafe { exporter.import_timeline(source.export()?) };
        ports.push(home.map_err(|rejected| rejected.error)?);
        ports.push(import(importer, handle).map_err(|rejected| rejected.error)?);
    }
    Ok(Timeline::new("view", initial, |_| Ok(ports))?)
}

/// Origins that an import on `importer` must refuse before it calls a driver.
///
/// They are not `exporter`'s, or not certainly. CUDA reports no UUID of its driver, but the same
/// GPU has the same driver.
pub(in crate::cases) fn forged_origins(
    exporter: &Info,
    importer: &Info,
) -> Vec<(&'static str, Origin)> {
    let other = Some(Uuid([0xAB; 16]));
    let own = Origin::of(exporter);
    let forged = [
        ("another GPU", other, own.driver_uuid),
        ("an unknown GPU", None, own.driver_uuid),
        ("another driver", own.uuid, other),
        ("an unknown driver", own.uuid, None),
    ];
    let count = if importer.driver_uuid.is_some() { 4 } else { 2 };
    let origin = |(of, uuid, driver_uuid)| {
        let device = "another machine's device".into();
        let mut origin = Origin {
            device,
            ..own.clone()
        };
        (origin.uuid, origin.driver_uuid) = (uuid, driver_uuid);
        (of, origin)
    };
    forged.into_iter().take(count).map(origin).collect()
}

/// Checks that a refusal to share names both sides.
pub(in crate::cases) fn names_both(of: &str, error: &Error, importer: &Info) -> Verdict {
    let is_named = match error {
        Error::CannotShare {
            left,
            right,
            reason,
            ..
        } => {
            left.contains("another machine's device")
                && right.contains(&importer.name)
                && reason.len() > 8
        }
        _ => false,
    };
    check!(is_named, "{of}: {error}");
    Ok(())
}

/// Checks that a driver's refusal of a descriptor names the importer.
pub(in crate::cases) fn names_importer(what: &str, error: &Error, importer: &Info) -> Verdict {
    let (object, has_code) = match error {
        Error::Import { object, .. } => (object, true),
        Error::Native {
            object,
            call,
            code,
            name,
            ..
        } => (object, *code != 0 && !call.is_empty() && !name.is_empty()),
        _ => return Stop::fail(format!("{what} is refused with: {error}")),
    };
    check!(
        has_code && object.label().contains(&importer.name),
        "{what}: {error}"
    );
    Ok(())
}
