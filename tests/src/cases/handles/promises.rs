//! D3, X5, E5: a device exports and imports what it promises, and refuses the rest with a reason.

use rustix::event::EventfdFlags;
use syncline::backend::Device as _;
use syncline::{Device, Error, handle::HandleKind, host, vulkan};

use super::parts::import;
use crate::World;
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::workload::Equipped;

equipped_cases! {
    "handle.promised_kinds_work": [D3 X5 E5] => promised;
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
                check!(
                    can.exports.iter().all(|&kind| kind == memory),
                    "CUDA exports nothing but memory here: {:?}",
                    can.exports
                );
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
        if !from.info().same_gpu(to.info()) {
            continue;
        }
        if let Device::Vulkan(from) = from {
            passes(from, to)?;
        }
        #[cfg(feature = "cuda")]
        if let (Device::Cuda(from), Device::Vulkan(to)) = (from, to)
            && from
                .info()
                .capabilities
                .exports
                .contains(&HandleKind::MemoryOpaqueFd)
        {
            let (_buffer, handle) = from.export_buffer(4096)?;
            let imports = &to.info().capabilities.imports;
            let promised = imports.contains(&HandleKind::MemoryOpaqueFd);
            let taken = to.import_buffer(handle).map_err(|rejected| rejected.error);
            as_promised("to import memory of CUDA", promised, taken)?;
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
            check!(
                reason.len() > 8,
                "{what} is refused for no reason: {reason:?}"
            );
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
    check!(
        imports.contains(&HandleKind::PollableFd),
        "the host imports descriptors, and does not say so"
    );
    let descriptor = match rustix::event::eventfd(0, EventfdFlags::CLOEXEC) {
        Ok(descriptor) => descriptor,
        Err(error) => return Stop::skip(format!("the system makes no eventfd: {error}")),
    };
    let fence = device.import_descriptor(Some(descriptor), "promised");
    check!(
        !fence.map_err(|rejected| rejected.error)?.is_complete()?,
        "an eventfd that was never written to is complete"
    );
    Ok(())
}

fn passes(from: &vulkan::Device, to: &Device) -> Verdict {
    let (exports, imports) = (
        &from.info().capabilities.exports,
        &to.info().capabilities.imports,
    );
    if exports.contains(&HandleKind::TimelineOpaqueFd) && !matches!(to, Device::Host(_)) {
        let (_home, handle) = from.export_timeline(3)?;
        let taken = import(to, handle).map_err(|rejected| rejected.error);
        let promised = imports.contains(&HandleKind::TimelineOpaqueFd);
        as_promised("to import a timeline", promised, taken)?;
    }
    if exports.contains(&HandleKind::BinaryOpaqueFd) {
        let semaphore = from.binary_semaphore("passed on")?;
        let promised = imports.contains(&HandleKind::BinaryOpaqueFd);
        let what = "to import a binary semaphore";
        match to {
            Device::Host(_) => {}
            #[cfg(feature = "cuda")]
            Device::Cuda(to) => {
                let taken = to.import_binary(semaphore.export()?, "taken");
                as_promised(what, promised, taken.map_err(|rejected| rejected.error))?;
            }
            Device::Vulkan(to) => {
                let taken = to.import_binary(semaphore.export()?, "taken");
                as_promised(what, promised, taken.map_err(|rejected| rejected.error))?;
            }
            _ => {}
        }
    }
    #[cfg(feature = "cuda")]
    if let Device::Cuda(to) = to
        && exports.contains(&HandleKind::MemoryOpaqueFd)
    {
        let (_buffer, handle) = from.export_buffer(4096)?;
        let taken = to.import_memory(handle).map_err(|rejected| rejected.error);
        let promised = imports.contains(&HandleKind::MemoryOpaqueFd);
        as_promised("to import memory", promised, taken)?;
    }
    if let Device::Vulkan(to) = to
        && exports.contains(&HandleKind::MemoryOpaqueFd)
    {
        let (_buffer, handle) = from.export_buffer(4096)?;
        let taken = to.import_buffer(handle).map_err(|rejected| rejected.error);
        let promised = imports.contains(&HandleKind::MemoryOpaqueFd);
        as_promised("to import memory", promised, taken)?;
    }
    Ok(())
}
