//! X8, X5, Q6, E5: memory that CUDA has made, for Vulkan and for another CUDA device of its GPU.
#![allow(unsafe_code, reason = "describes handles wrongly on purpose")]

use std::os::fd::AsRawFd;

use syncline::backend::Device as _;
use syncline::handle::{HandleKind, MemoryContent, MemoryFd, MemoryInfo, Origin, Rejected};
use syncline::{Buffer, Device, Error, cuda};

use super::super::filled;
use super::Pair;
use super::bridge::{copying, filling};
use super::ranges::{BYTES, Both, exchange, parts};
use crate::case::{Stop, Verdict, check, check_error};
use crate::cases::kinds::{came_back, kinds};
use crate::workload::Equipped;
use crate::{World, patience};

linked_cases! {
    "memory_that_cuda_made": [X8 Q9] or [X8 Q9] => passed;
    "memory_that_cuda_made_is_kept": [X8 Q6] or [X8 Q6] => kept;
    "memory_that_cuda_made_is_checked": [X5 E5] or [X5 E5] => checked;
}

/// Bytes of the buffer in front of the one that is used.
const BEFORE: u64 = 8192;

/// The side with a CUDA device that exports memory, the device, and the other side's device.
fn exporter(world: &World<Equipped>) -> Result<(usize, &cuda::Device, &Device), Stop> {
    let sides = [world.left.library(), world.right.library()];
    for (side, other) in [(0, 1), (1, 0)] {
        if let Device::Cuda(device) = sides[side]
            && device
                .info()
                .capabilities
                .exports
                .contains(&HandleKind::MemoryOpaqueFd)
        {
            return Ok((side, device, sides[other]));
        }
    }
    Stop::skip("neither side is a CUDA device that exports memory")
}

/// What a device that imports memory makes of it: one range at a time.
enum Imported {
    Cuda(cuda::Buffer),
    #[cfg(feature = "vulkan")]
    Vulkan(syncline::vulkan::Allocation),
}

fn import(to: &Device, handle: MemoryFd) -> Result<Imported, Rejected<MemoryFd>> {
    match to {
        Device::Cuda(to) => to.import_memory(handle).map(Imported::Cuda),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(to) => to.import_allocation(handle).map(Imported::Vulkan),
        _ => {
            let reason = "the host imports no device memory";
            let error = Error::unsupported(to.object(), "import memory", reason);
            Err(Rejected { handle, error })
        }
    }
}

impl Imported {
    /// Skips the case if the device does not share memory with the exporter.
    fn of(to: &Device, handle: MemoryFd) -> Result<Self, Stop> {
        match import(to, handle) {
            Ok(imported) => Ok(imported),
            Err(Rejected {
                error: error @ (Error::CannotShare { .. } | Error::Unsupported { .. }),
                ..
            }) => Stop::skip(format!("it cannot import the memory: {error}")),
            Err(rejected) => Err(rejected.error.into()),
        }
    }

    fn range(&self, offset: u64, bytes: u64) -> syncline::Result<Buffer> {
        Ok(match self {
            Self::Cuda(whole) => Buffer::Cuda(whole.view(offset, bytes)?),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(whole) => {
                Buffer::Vulkan(whole.range(offset, bytes, Default::default())?)
            }
        })
    }
}

/// The views of both sides, in the order of the sides.
fn both(side: usize, made: Buffer, imported: Buffer) -> Both {
    match side {
        0 => [made, imported],
        _ => [imported, made],
    }
}

/// Two buffers in one allocation of CUDA, of which the second one is used. Then one over both.
fn passed(world: &World<Equipped>) -> Verdict {
    let (side, from, to) = exporter(world)?;
    let (whole, handle) = from.export_buffer(BEFORE + BYTES)?;
    let info = handle.info();
    check!(
        info.content == MemoryContent::Buffer(BEFORE + BYTES)
            && info.size >= BEFORE + BYTES
            && !info.dedicated,
        "it is said to be {info:?}"
    );
    let imported = Imported::of(to, handle)?;
    for offset in [BEFORE, BEFORE / 2] {
        let made = Buffer::Cuda(whole.view(offset, BYTES)?);
        // In Vulkan, the second buffer overlaps the first one.
        let both_of = both(side, made, imported.range(offset, BYTES)?);
        exchange(world, &both_of, &parts(&both_of)?)?;
    }
    Ok(())
}

/// Work that is in flight keeps the memory. Afterwards, the importer has the bytes.
fn kept(world: &World<Equipped>) -> Verdict {
    const WORDS: usize = 16;
    let (maker, from, to) = exporter(world)?;
    let pair = Pair::of(world)?;
    let line = pair.line("line")?;
    let stall = pair.devices()[maker].stall()?;
    let (whole, handle) = from.export_buffer(BYTES)?;
    let imported = Imported::of(to, handle)?.range(4096, 4 * WORDS as u64)?;
    let made = Buffer::Cuda(whole.view(4096, 4 * WORDS as u64)?);
    pair.queues[maker].block(&stall)?;
    let signals = [line.signal_at(1)];
    pair.queues[maker].submit(&[], filling(&made, 0xFACE), &signals)?;
    // Nothing but the submission has the exporter's mapping.
    drop((whole, made));
    stall.release()?;
    let target = pair.devices()[1 - maker].buffer(WORDS)?;
    let copies = copying(&imported, &target);
    pair.queues[1 - maker].submit(&[line.at(1)], copies, &[line.signal_at(2)])?;
    line.at(2).wait(patience())?;
    filled::<Equipped>(&target, 0xFACE, "what the importer reads")?;
    pair.idle()
}

/// What is refused returns the handle, and changes nothing.
fn checked(world: &World<Equipped>) -> Verdict {
    let (_, from, to) = exporter(world)?;
    for bytes in [0, 6, u64::MAX - 3] {
        check_error!(
            from.export_buffer(bytes),
            Error::Unsupported { asked, .. } if asked.contains(&bytes.to_string())
        );
    }
    drop(Imported::of(to, from.export_buffer(4)?.1)?);
    let (_whole, mut handle) = from.export_buffer(BYTES)?;
    let (own, info) = (handle.origin().clone(), handle.info());
    let other = own.uuid.map(|mut uuid| {
        uuid.0[0] ^= 1;
        uuid
    });
    let elsewhere = |uuid| Origin {
        uuid,
        ..own.clone()
    };
    let (length, mut longer) = (info.size + 4, info);
    longer.content = MemoryContent::Buffer(length);
    let wrong = [
        ("another GPU", elsewhere(other), info),
        ("an unknown GPU", elsewhere(None), info),
        ("a buffer that is longer than it", own.clone(), longer),
    ];
    for (what, origin, info) in wrong {
        // SAFETY: wrong on purpose. It is refused before a driver call.
        let rejected = unsafe { MemoryFd::from_fd(handle.into_fd(), origin, info) };
        let Err(Rejected {
            handle: back,
            error,
        }) = import(to, rejected)
        else {
            return Stop::fail(format!("memory of {what} is imported"));
        };
        let right = match &error {
            Error::CannotShare { what, .. } => *what == "memory",
            Error::Import { reason, .. } => reason.contains(&length.to_string()),
            _ => false,
        };
        check!(right, "memory of {what}: {error}");
        handle = back;
    }
    // SAFETY: as it was exported.
    let handle = unsafe { MemoryFd::from_fd(handle.into_fd(), own.clone(), info) };
    drop(Imported::of(to, handle)?);
    hostile(from, to, &own, info)
}

/// No descriptor of another kind is imported as memory of CUDA. Each is returned open.
fn hostile(from: &cuda::Device, to: &Device, own: &Origin, info: MemoryInfo) -> Verdict {
    for (what, fd) in kinds()? {
        let number = fd.as_raw_fd();
        // SAFETY: the kind is wrong on purpose. Drivers answer such descriptors with an error.
        let handle = unsafe { MemoryFd::from_fd(fd, own.clone(), info) };
        let error = came_back(what, number, import(to, handle))?;
        check!(matches!(error, Error::Import { .. }), "{what}: {error}");
        from.check()?;
        to.check()?;
        // Both still share memory.
        drop(Imported::of(to, from.export_buffer(BYTES)?.1)?);
    }
    Ok(())
}
