//! D3, X5, E5: a device exports and imports what it promises, and refuses the rest with a reason.

use rustix::event::EventfdFlags;
use syncline::backend::Device as _;
use syncline::handle::{HandleKind, Rejected};
use syncline::{Device, Error, host, vulkan};

use super::parts::import;
use crate::World;
use crate::case::{Stop, Verdict, check, check_eq, equipped_cases};
use crate::workload::Equipped;

equipped_cases! {
    "handle.promised_kinds_work": [D3 X5 E5] => promised;
    "handle.tells_its_transference": [X3 D3] => transference;
}

fn promised(world: &World<Equipped>) -> Verdict {
    for side in [&world.left, &world.right] {
        match side.library() {
            Device::Host(device) => {
                host_imports(device)?;
                let promised = device
                    .info()
                    .capabilities
                    .exports
                    .contains(&HandleKind::CounterMemfd);
                let answer = device.export_timeline(3);
                as_promised("to export a counter in shared memory", promised, answer)?;
            }
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => {
                let can = &device.info().capabilities;
                let memory = HandleKind::MemoryOpaqueFd;
                check!(can.exports.iter().all(|&kind| kind == memory));
                let answer = device.export_buffer(4096);
                as_promised("to export memory", can.exports.contains(&memory), answer)?;
                let promised = can.imports.contains(&HandleKind::CounterMemfd);
                let (_home, handle) = host::Device::new().export_timeline(3)?;
                let answer = device.import_counter(handle);
                let answer = answer.map_err(|rejected| rejected.error);
                as_promised("to import a counter in shared memory", promised, answer)?;
            }
            Device::Vulkan(device) => vulkan_exports(device)?,
            _ => {}
        }
    }
    // One side takes what the other exports, if it says so and they are one GPU.
    let (left, right) = (world.left.library(), world.right.library());
    for (from, to) in [(left, right), (right, left)] {
        if from.info().same_gpu(to.info()) {
            passes(from, to)?;
        }
    }
    Ok(())
}

/// Checks that a promise is kept, and that its absence is an error with a reason.
fn as_promised<T>(what: &str, promised: bool, answer: Result<T, Error>) -> Verdict {
    match answer {
        Ok(_) => check!(promised, "{what} works, and is not promised"),
        Err(Error::Unsupported { reason, .. }) => {
            check!(!promised, "{what} is promised, and refused: {reason}");
            check!(reason.len() > 8, "{what} {reason:?}");
        }
        Err(other) => return Stop::fail(format!("{what}: {other}")),
    }
    Ok(())
}

fn vulkan_exports(device: &vulkan::Device) -> Verdict {
    let exports = &device.info().capabilities.exports;
    let promises = |kind| exports.contains(&kind);
    as_promised(
        "to export a timeline",
        promises(HandleKind::TimelineOpaqueFd),
        device.export_timeline(3),
    )?;
    as_promised(
        "to export a binary semaphore",
        promises(HandleKind::BinaryOpaqueFd),
        device.binary_semaphore("promised")?.export(),
    )?;
    as_promised(
        "to export memory",
        promises(HandleKind::MemoryOpaqueFd),
        device.export_buffer(4096),
    )
}

fn host_imports(device: &host::Device) -> Verdict {
    let imports = &device.info().capabilities.imports;
    check!(imports.contains(&HandleKind::PollableFd));
    let descriptor = match rustix::event::eventfd(0, EventfdFlags::CLOEXEC) {
        Ok(descriptor) => descriptor,
        Err(error) => return Stop::skip(format!("the system makes no eventfd: {error}")),
    };
    let fence = device.import_descriptor(Some(descriptor), "promised");
    check!(!fence.map_err(|rejected| rejected.error)?.is_complete()?);
    Ok(())
}

fn passes(from: &Device, to: &Device) -> Verdict {
    let (exports, imports) = (
        &from.info().capabilities.exports,
        &to.info().capabilities.imports,
    );
    for kind in [
        HandleKind::TimelineOpaqueFd,
        HandleKind::BinaryOpaqueFd,
        HandleKind::MemoryOpaqueFd,
    ] {
        if exports.contains(&kind)
            && let Some(taken) = taken(from, to, kind)?
        {
            as_promised(&format!("to import {kind}"), imports.contains(&kind), taken)?;
        }
    }
    Ok(())
}

/// What `to` makes of a handle that `from` exports, if it has a function for that.
fn taken(from: &Device, to: &Device, kind: HandleKind) -> Result<Option<Taken>, Stop> {
    let memory = kind == HandleKind::MemoryOpaqueFd;
    Ok(match (from, to) {
        (_, Device::Host(_)) => None,
        #[cfg(feature = "cuda")]
        (Device::Cuda(from), Device::Vulkan(to)) if memory => {
            Some(error_of(to.import_buffer(from.export_buffer(4096)?.1)))
        }
        (Device::Vulkan(from), Device::Vulkan(to)) if memory => {
            Some(error_of(to.import_buffer(from.export_buffer(4096)?.1)))
        }
        #[cfg(feature = "cuda")]
        (Device::Vulkan(from), Device::Cuda(to)) if memory => {
            Some(error_of(to.import_memory(from.export_buffer(4096)?.1)))
        }
        (Device::Vulkan(from), _) if kind == HandleKind::TimelineOpaqueFd => {
            Some(error_of(import(to, from.export_timeline(3)?.1)))
        }
        (Device::Vulkan(from), _) if kind == HandleKind::BinaryOpaqueFd => {
            let handle = from.binary_semaphore("passed on")?.export()?;
            Some(error_of(to.import_binary(handle, "taken")))
        }
        _ => None,
    })
}

type Taken = Result<(), Error>;

fn error_of<T, H>(taken: Result<T, Rejected<H>>) -> Taken {
    taken.map(drop).map_err(|rejected| rejected.error)
}

/// Each exported or imported kind states its transference: by reference, except for sync files.
fn transference(world: &World<Equipped>) -> Verdict {
    for side in [&world.left, &world.right] {
        let can = &side.info().capabilities;
        for kind in can.exports.iter().chain(&can.imports) {
            let copies = kind.is_copied();
            check_eq!(copies, (*kind == HandleKind::SyncFd));
        }
    }
    Ok(())
}
