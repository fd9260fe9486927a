//! X3, X4, F8, D3: sync files, which hold one signal each. An importer has a copy of it.

#![allow(
    unsafe_code,
    reason = "vouches for pending signals, and makes hostile handles"
)]

use std::os::fd::{AsRawFd, RawFd};

use syncline::backend::{Device as _, Queue as _};
use syncline::{
    BinarySemaphore, Device, Error, Fence, QueueKind, Recorder,
    handle::{HandleKind, Payload, PayloadUse, Rejected, SyncFd},
    host,
};

use super::binaries::parts::{Producer, signal_late};
use super::kinds::{came_back, kinds};
use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases};
use crate::footprint::grows_nothing;
use crate::user;
use crate::workload::Equipped;
use crate::{Subject, World, patience};

equipped_cases! {
    "sync_file.promised_or_refused": [D3 X3 X4 E5] => promised;
    "sync_file.hostile_descriptors": [X3 X4 E5] => hostile;
    "sync_file.already_signalled": [F8 X4] => already;
    "sync_file.exported_signal_is_a_fence": [F8 X4] => exported;
    "sync_file.imported_for_one_wait": [X4 X3] => imported;
    "sync_file.payload_in_use": [X4 E5] => in_use;
    "sync_file.thousands_leave_nothing": [X4] => leave_nothing;
}

type Side = user::Device<Equipped>;

const KIND: HandleKind = HandleKind::SyncFd;

/// Returns the side that exports or imports sync files, or both.
///
/// # Errors
/// A skip with the reasons of both sides if neither can.
fn side(world: &World<Equipped>, exports: bool, imports: bool) -> Result<&Side, Stop> {
    let able = |side: &&Side| {
        let can = &side.info().capabilities;
        (!exports || can.exports.contains(&KIND)) && (!imports || can.imports.contains(&KIND))
    };
    let sides = [&world.left, &world.right];
    if let Some(side) = sides.into_iter().find(able) {
        return Ok(side);
    }
    let mut reasons: Vec<_> = sides.into_iter().filter_map(reason).collect();
    reasons.dedup();
    match reasons[..] {
        [] => Stop::skip("no side exports sync files, or none imports them"),
        _ => Stop::skip(reasons.join("; ")),
    }
}

/// Returns why a device has no sync files, if its capabilities say so.
///
/// The host has no semaphores of a driver, and gives no reason.
fn reason(side: &Side) -> Option<String> {
    let info = side.info();
    let mut limits = info.capabilities.limits.iter();
    let (_, why) = limits.find(|(limit, _)| *limit == "sync files")?;
    Some(format!("no sync files on {}: {why}", info.name))
}

/// Makes a fence of a sync file, on a host device. No queue of a device can order its waits.
fn fence(handle: SyncFd, label: &str) -> Result<Fence, Stop> {
    let fence = host::Device::new().import_sync_fd(handle, label);
    Ok(fence.map_err(|rejected| rejected.error)?)
}

/// Exports the semaphore's signal, which consumes it.
fn export(semaphore: &BinarySemaphore) -> Result<SyncFd, Stop> {
    // SAFETY: the callers have just submitted a signal, and no other wait consumes it.
    Ok(unsafe { semaphore.export_sync_fd() }?)
}

fn number(handle: &SyncFd) -> Option<RawFd> {
    handle.fd().map(|fd| fd.as_raw_fd())
}

fn unsupported(what: &str, error: &Error) -> Verdict {
    let Error::Unsupported { reason, .. } = error else {
        return Stop::fail(format!("{what} is refused with: {error}"));
    };
    check!(reason.len() > 8, "{what} {reason:?}");
    Ok(())
}

/// A device handles sync files as its capabilities state.
///
/// It refuses the rest with the reason, and returns the handle.
fn promised(world: &World<Equipped>) -> Verdict {
    check!(KIND.is_copied());
    for side in [&world.left, &world.right] {
        let (device, can) = (side.library(), &side.info().capabilities);
        match device.exportable_binary("for sync files", KIND) {
            Ok(_) => check!(can.exports.contains(&KIND), "exported, and not promised"),
            Err(error) => {
                check!(!can.exports.contains(&KIND), "promised, and: {error}");
                unsupported("an export", &error)?;
            }
        }
        let shared = match device {
            Device::Host(_) => continue,
            Device::Vulkan(_) => device.binary_semaphore("a semaphore")?,
            // Another device makes its semaphores.
            #[allow(unreachable_patterns, reason = "reachable with another backend")]
            _ => match super::binaries::sides(world) {
                Ok((exporter, importer)) if importer.id() == side.id() => {
                    let made = exporter.library().binary_semaphore("made")?;
                    super::binaries::parts::imported(side, made.export()?, "a semaphore")?
                }
                _ => continue,
            },
        };
        match shared.import_sync_fd(SyncFd::signalled()) {
            Ok(()) => check!(can.imports.contains(&KIND), "imported, and not promised"),
            Err(Rejected { error, .. }) => {
                check!(!can.imports.contains(&KIND), "promised, and: {error}");
                unsupported("an import", &error)?;
                check_eq!(shared.payload(), Payload::Permanent);
            }
        }
        if !can.exports.contains(&KIND) {
            // SAFETY: it is refused before the driver is called.
            match unsafe { shared.export_sync_fd() } {
                Ok(_) => return Stop::fail("exported, and not promised"),
                Err(error) => unsupported("an export", &error)?,
            }
        }
        // A host device makes a fence from it. This device states that.
        match device.import_sync_fd(SyncFd::signalled(), "a test's") {
            Ok(_) => return Stop::fail("a fence was made by a device that is no host"),
            Err(Rejected { error, .. }) => unsupported("a fence", &error)?,
        }
    }
    Ok(())
}

/// Other files do not become sync files, and are returned open.
fn hostile(_: &World<Equipped>) -> Verdict {
    for (what, fd) in kinds()? {
        let number = fd.as_raw_fd();
        let error = came_back(what, number, SyncFd::from_fd(Some(fd)))?;
        check!(
            matches!(&error, Error::Import { reason, .. } if reason.len() > 8),
            "{what} is refused with: {error}"
        );
    }
    Ok(())
}

/// −1 is a signal that is already made: as a fence for every queue, and as the next wait's payload.
fn already(world: &World<Equipped>) -> Verdict {
    let none = || SyncFd::from_fd(None).map_err(|rejected| Stop::from(rejected.error));
    let signalled = fence(none()?, "signalled")?;
    check!(signalled.is_complete()?, "-1 is not complete");
    for side in [&world.left, &world.right] {
        let queue = side.library().queue(QueueKind::Compute, "waiter")?;
        queue.wait(&signalled)?;
        queue.idle(patience())?;
        if side.info().capabilities.imports.contains(&KIND) {
            let semaphore = side.library().binary_semaphore("unsignalled")?;
            import(&semaphore, none()?)?;
            consumed(&semaphore)?;
        }
    }
    Ok(())
}

fn import(semaphore: &BinarySemaphore, handle: SyncFd) -> Verdict {
    let imported = semaphore.import_sync_fd(handle);
    Ok(imported.map_err(|rejected| rejected.error)?)
}

fn consumed(semaphore: &BinarySemaphore) -> Verdict {
    // SAFETY: the signal is pending or made, and no other wait consumes it.
    let fence = unsafe { semaphore.pending("consumed") }?;
    Ok(fence.wait(patience())?)
}

/// An exported signal is a fence that completes after the work before it.
///
/// The export consumes the semaphore's signal. The next handle has the next signal.
fn exported(world: &World<Equipped>) -> Verdict {
    let side = side(world, true, false)?;
    let mut producer = Producer::new(side)?;
    let semaphore = side.library().exportable_binary("signalled", KIND)?;
    for _ in 0..3 {
        let (queue, latch) = signal_late(side, &semaphore)?;
        let held_up = export(&semaphore).and_then(|handle| fence(handle, "held up"));
        let early = held_up.as_ref().ok().map(Fence::is_complete);
        Equipped::open(&latch)?;
        let held_up = held_up?;
        check!(matches!(early, Some(Ok(false))), "{early:?}");
        held_up.wait(patience())?;
        queue.idle(patience())?;

        // The handle has taken the signal. The next handle has this one.
        producer.produce(&semaphore)?;
        let next = fence(export(&semaphore)?, "next")?;
        next.wait(patience())?;
        producer.is_seen("a fence of the next signal")?;

        // A signal that has been made, and that no wait has consumed.
        producer.produce(&semaphore)?;
        producer.idle()?;
        fence(export(&semaphore)?, "made")?.wait(patience())?;
        check!(held_up.is_complete()?, "a fence is complete no more");
    }
    Ok(())
}

/// Returns the device that makes sync files for `side`: the other side of a pair, if it can.
///
/// No queue of `side` can order that device's work.
fn maker<'w>(world: &'w World<Equipped>, side: &'w Side) -> &'w Side {
    let others = [&world.left, &world.right].into_iter();
    let able = |other: &&Side| other.info().capabilities.exports.contains(&KIND);
    others
        .filter(able)
        .find(|other| other.id() != side.id())
        .unwrap_or(side)
}

/// A signalled semaphore takes another signal for one wait, and then has its own one again.
fn imported(world: &World<Equipped>) -> Verdict {
    let side = side(world, true, true)?;
    let maker = maker(world, side);
    let mut other = Producer::new(maker)?;
    let mut own = Producer::new(side)?;
    let semaphore = side.library().binary_semaphore("permanent")?;
    let source = maker.library().exportable_binary("another's", KIND)?;
    for _ in 0..3 {
        own.produce(&semaphore)?;
        own.idle()?;
        other.produce(&source)?;
        import(&semaphore, export(&source)?)?;
        let found = semaphore.payload();
        check_eq!(found, Payload::Temporary(KIND));
        consumed(&semaphore)?;
        other.is_seen("the wait for another's signal")?;
        let found = semaphore.payload();
        check_eq!(found, Payload::Permanent);
        // The semaphore's own signal, with nothing in flight.
        other.idle()?;
        consumed(&semaphore)?;
        // No signal of either is left.
        own.produce(&semaphore)?;
        consumed(&semaphore)?;
        own.is_seen("the wait for the semaphore's own signal")?;
        own.idle()?;
    }
    Ok(())
}

/// A temporary payload is not replaced, and an export does not take the signal of a wait.
///
/// The handle is returned, and nothing has changed.
fn in_use(world: &World<Equipped>) -> Verdict {
    let side = side(world, true, true)?;
    let maker = maker(world, side);
    let semaphore = side.library().exportable_binary("in use", KIND)?;
    let source = maker.library().exportable_binary("another's", KIND)?;
    let (queue, latch) = signal_late(maker, &source)?;
    let shown = (|| {
        import(&semaphore, export(&source)?)?;
        let Err(Rejected { handle, error }) = semaphore.import_sync_fd(SyncFd::signalled()) else {
            return Stop::fail("a temporary payload was replaced");
        };
        check!(number(&handle).is_none(), "another handle came back");
        check!(
            matches!(&error, Error::PayloadInUse { by: PayloadUse::Temporary(kind), .. } if *kind == KIND),
            "refused with: {error}"
        );
        // SAFETY: the signal is pending, and no other wait consumes it.
        let refused = unsafe { semaphore.export_sync_fd() };
        check_error!(
            refused,
            Error::PayloadInUse {
                by: PayloadUse::Temporary(_),
                ..
            }
        );
        // SAFETY: as above.
        let fence = unsafe { semaphore.pending("held up") }?;
        // SAFETY: it is refused, because a wait has its one signal.
        let refused = unsafe { semaphore.export_sync_fd() };
        check_error!(
            refused,
            Error::PayloadInUse {
                by: PayloadUse::Wait(_),
                ..
            }
        );
        Ok(fence)
    })();
    Equipped::open(&latch)?;
    shown?.wait(patience())?;
    queue.idle(patience())?;
    Ok(())
}

/// Handles that become fences, payloads, or nothing.
fn leave_nothing(world: &World<Equipped>) -> Verdict {
    let side = side(world, true, true)?;
    let queue = side.queue(QueueKind::Compute, "signaller")?;
    let source = side.library().exportable_binary("source", KIND)?;
    let semaphore = side.library().binary_semaphore("taker")?;
    grows_nothing(|| {
        for nth in 0..300 {
            let signals = source.clone();
            // SAFETY: unsignalled, because each signal is exported before the next one.
            let work =
                move |recorder: &mut Recorder<'_>| unsafe { recorder.signal_semaphore(&signals) };
            queue.submit(&[], work, &[])?;
            let handle = export(&source)?;
            match nth % 3 {
                0 => fence(handle, "one of many")?.wait(patience())?,
                1 => {
                    import(&semaphore, handle)?;
                    consumed(&semaphore)?;
                }
                _ => drop(handle),
            }
            queue.idle(patience())?;
        }
        Ok(())
    })
}
