//! X4, X3, E5: temporary payloads, and the permanent payloads that they replace for one wait.

use ash::{khr, vk};
use syncline::{
    BinarySemaphore, Device, Error, QueueKind, Recorder,
    handle::{BinaryFd, HandleKind, Origin, Payload, PayloadUse},
};

use super::parts::{Producer, imported, importer, other, signal_late, twin};
use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases};
use crate::cases::handles::parts::{forged_origins, names_both, names_importer};
use crate::cases::kinds::{came_back, kinds};
use crate::footprint::grows_nothing;
use crate::workload::Equipped;
use crate::{Subject, World, patience};

use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

equipped_cases! {
    "binary.temporary_then_permanent": [X4 X3] => restored;
    "binary.permanent_stays_unsignalled": [X4] => unsignalled;
    "binary.without_the_flag_nothing_is_restored": [X4] => control;
    "binary.payload_in_use_is_not_replaced": [X4 E5] => in_use;
    "binary.temporary_refusals_change_nothing": [X4 X5 E5] => refusals;
    "binary.temporary_imports_leave_nothing": [X4] => leave_nothing;
    #[cfg(feature = "cuda")]
    "binary.cuda_imports_for_good": [X3 X4] => for_good;
}

const TEMPORARY: Payload = Payload::Temporary(HandleKind::BinaryOpaqueFd);

/// Consumes the semaphore's signal, which is pending or made.
///
/// If the library is wrong, the wait may be for the payload of `rescue`. That is signalled then, so
/// that no queue keeps waiting.
fn consumed(
    semaphore: &BinarySemaphore,
    rescue: Option<(&mut Producer, &BinarySemaphore)>,
) -> Verdict {
    // SAFETY: the signal is pending or made, and no other wait consumes it.
    let fence = unsafe { semaphore.pending("consumed") }?;
    let waited = fence.wait(patience());
    if waited.is_err()
        && let Some((producer, signals)) = rescue
    {
        producer.produce(signals)?;
        fence.wait(patience())?;
    }
    Ok(waited?)
}

fn import(semaphore: &BinarySemaphore, handle: BinaryFd) -> Verdict {
    let imported = semaphore.import_temporary(handle);
    Ok(imported.map_err(|rejected| rejected.error)?)
}

fn has(semaphore: &BinarySemaphore, payload: Payload, when: &str) -> Verdict {
    let found = semaphore.payload();
    check_eq!(found, payload, "{when}");
    Ok(())
}

/// A signalled semaphore takes another's payload for one wait, which is for the other's signal.
///
/// The next wait finds the first signal, without a new one. The wait after that is for a new
/// signal. The wait consumes the other's signal for all its handles.
fn restored(world: &World<Equipped>) -> Verdict {
    let side = importer(world)?;
    let twin = twin(side)?;
    let signaller = other(world, side, &twin);
    let (mut own, mut other) = (Producer::new(side)?, Producer::new(&signaller)?);
    let semaphore = side.library().binary_semaphore("permanent")?;
    let theirs = twin.library().binary_semaphore("another's")?;
    let signals = imported(&signaller, theirs.export()?, "the other's, too")?;
    for _ in 0..3 {
        has(&semaphore, Payload::Permanent, "at first")?;
        own.produce(&semaphore)?;
        own.idle()?;
        import(&semaphore, theirs.export()?)?;
        has(&semaphore, TEMPORARY, "after the import")?;

        other.produce(&signals)?;
        consumed(&semaphore, None)?;
        other.is_seen("the wait for the temporary payload")?;
        has(&semaphore, Payload::Permanent, "after the wait")?;

        // No work is in flight. So the wait finds the signal from before.
        other.idle()?;
        consumed(&semaphore, Some((&mut other, &signals)))?;

        // No signal is left, on either payload.
        let shared = imported(&signaller, semaphore.export()?, "permanent too")?;
        other.produce(&shared)?;
        consumed(&semaphore, None)?;
        other.is_seen("the wait for the permanent payload's next signal")?;
        let again = imported(side, theirs.export()?, "another's too")?;
        other.produce(&signals)?;
        consumed(&again, None)?;
        other.is_seen("the wait for the other payload's next signal")?;
    }
    other.idle()
}

/// A permanent payload that was unsignalled stays unsignalled.
///
/// Signals that this side makes meanwhile are of the temporary payload.
fn unsignalled(world: &World<Equipped>) -> Verdict {
    let side = importer(world)?;
    let twin = twin(side)?;
    let (mut own, mut other) = (Producer::new(side)?, Producer::new(&twin)?);
    let semaphore = side.library().binary_semaphore("permanent")?;
    let shared = imported(&twin, semaphore.export()?, "permanent too")?;
    let theirs = twin.library().binary_semaphore("another's")?;

    import(&semaphore, theirs.export()?)?;
    own.produce(&semaphore)?;
    consumed(&theirs, Some((&mut other, &theirs)))?;
    own.is_seen("the wait for a signal of the temporary payload")?;
    own.idle()?;
    // A signal does not end the temporary payload.
    has(&semaphore, TEMPORARY, "after a signal")?;
    other.produce(&theirs)?;
    consumed(&semaphore, None)?;
    other.is_seen("the wait for the temporary payload")?;
    has(&semaphore, Payload::Permanent, "after the wait")?;

    other.produce(&shared)?;
    consumed(&semaphore, Some((&mut other, &theirs)))?;
    other.is_seen("the wait for the permanent payload")?;
    other.idle()
}

/// The negative control: raw calls without `VK_SEMAPHORE_IMPORT_TEMPORARY_BIT`.
///
/// The first signal is lost with the payload that had it, and the second wait is for another signal
/// of the other payload. So the flag causes what the other cases show.
fn control(world: &World<Equipped>) -> Verdict {
    let side = importer(world)?;
    let twin = twin(side)?;
    let Device::Vulkan(device) = side.library() else {
        return Stop::skip("a control for Vulkan");
    };
    let (mut own, mut other) = (Producer::new(side)?, Producer::new(&twin)?);
    let semaphore = side.library().binary_semaphore("replaced")?;
    let BinarySemaphore::Vulkan(raw) = &semaphore else {
        return Stop::fail("a Vulkan device has made another backend's semaphore");
    };
    let theirs = twin.library().binary_semaphore("another's")?;
    own.produce(&semaphore)?;
    own.idle()?;
    let functions = khr::external_semaphore_fd::Device::new(device.instance(), device.raw());
    let info = vk::ImportSemaphoreFdInfoKHR::default()
        .semaphore(raw.raw())
        .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
        .fd(theirs.export()?.into_fd().into_raw_fd());
    // SAFETY: nothing uses the semaphore. The handle has the same kind and driver, which takes it.
    if let Err(code) = unsafe { functions.import_semaphore_fd(&info) } {
        return Stop::fail(format!("the driver takes no payload for good: {code:?}"));
    }
    for _ in 0..2 {
        other.produce(&theirs)?;
        consumed(&semaphore, None)?;
        other.is_seen("a wait for the other's payload")?;
    }
    other.idle()
}

/// A payload is not replaced during a signal or a wait, nor while it is temporary.
///
/// After that it can be replaced.
fn in_use(world: &World<Equipped>) -> Verdict {
    let side = importer(world)?;
    let twin = twin(side)?;
    let mut other = Producer::new(&twin)?;
    let semaphore = side.library().binary_semaphore("in use")?;
    let theirs = twin.library().binary_semaphore("another's")?;
    let refused = |what: &str| -> Result<PayloadUse, Stop> {
        let before = semaphore.payload();
        let handle = theirs.export()?;
        let number = handle.as_fd().as_raw_fd();
        let error = came_back(what, number, semaphore.import_temporary(handle))?;
        has(&semaphore, before, what)?;
        match error {
            Error::PayloadInUse {
                semaphore: named,
                by,
                asked,
                ..
            } => {
                check!(named == *semaphore.object(), "{named} is not the semaphore");
                check!(asked.contains("temporary"), "the error says {asked}");
                Ok(by)
            }
            error => Stop::fail(format!("with {what}: {error}")),
        }
    };

    // A signal that the device has not reached.
    let (queue, latch) = signal_late(side, &semaphore)?;
    let by = refused("a signal under way");
    Equipped::open(&latch)?;
    let by = by?;
    check!(
        matches!(&by, PayloadUse::Signal(on) if on == queue.object()),
        "{by}"
    );
    queue.idle(patience())?;

    import(&semaphore, theirs.export()?)?;
    let by = refused("a temporary payload")?;
    check_eq!(by, PayloadUse::Temporary(HandleKind::BinaryOpaqueFd));
    check_error!(
        semaphore.export(),
        Error::PayloadInUse {
            by: PayloadUse::Temporary(_),
            ..
        }
    );

    // A wait that the device has not passed. It is for the temporary payload already.
    let (theirs_queue, latch) = signal_late(&twin, &theirs)?;
    // SAFETY: the signal has just been submitted, and no other wait consumes it.
    let fence = unsafe { semaphore.pending("temporary") }?;
    let told = refused("a wait under way");
    Equipped::open(&latch)?;
    check!(matches!(&told, Ok(PayloadUse::Wait(_))), "{told:?}");
    fence.wait(patience())?;
    has(&semaphore, Payload::Permanent, "after the wait")?;

    // A payload can be imported again at once. The first signal is still there.
    import(&semaphore, theirs.export()?)?;
    other.produce(&theirs)?;
    consumed(&semaphore, None)?;
    other.is_seen("a second temporary payload")?;
    consumed(&semaphore, Some((&mut other, &theirs)))?;
    theirs_queue.idle(patience())?;
    other.idle()
}

/// Wrong descriptors and handles of other GPUs are returned, and the semaphore is unchanged.
fn refusals(world: &World<Equipped>) -> Verdict {
    let side = importer(world)?;
    let twin = twin(side)?;
    let mut own = Producer::new(side)?;
    let semaphore = side.library().binary_semaphore("signalled")?;
    own.produce(&semaphore)?;
    own.idle()?;
    let refused = |what: &str, handle: BinaryFd| -> Result<Error, Stop> {
        let number = handle.as_fd().as_raw_fd();
        let error = came_back(what, number, semaphore.import_temporary(handle))?;
        has(&semaphore, Payload::Permanent, what)?;
        Ok(error)
    };
    let origin = Origin::of(side.info());
    for (what, fd) in kinds()? {
        // SAFETY: the kind is wrong on purpose. The import is refused before a driver takes it.
        let handle = unsafe { BinaryFd::from_fd(fd, origin.clone()) };
        names_importer(what, &refused(what, handle)?, side.info())?;
    }
    let theirs = twin.library().binary_semaphore("another's")?;
    for (of, forged) in forged_origins(twin.info(), side.info()) {
        // SAFETY: it is a binary semaphore. Only its origin is wrong.
        let handle = unsafe { BinaryFd::from_fd(theirs.export()?.into_fd(), forged) };
        names_both(of, &refused(of, handle)?, side.info())?;
    }
    // The semaphore's signal is still there.
    consumed(&semaphore, Some((&mut Producer::new(&twin)?, &theirs)))?;
    side.check()?;
    Ok(())
}

/// Makes thousands of imports. Four a round are waited for. The others are dropped or refused.
fn leave_nothing(world: &World<Equipped>) -> Verdict {
    let side = importer(world)?;
    let twin = twin(side)?;
    let theirs = twin.library().binary_semaphore("another's")?;
    let queue = twin.queue(QueueKind::Compute, "signaller")?;
    let kept = side.library().binary_semaphore("kept")?;
    grows_nothing(|| {
        // With 500 a round, the case took 18 to 43 s on H200s while other processes imported, and
        // once more than a minute. The driver takes longer for an import the more others import.
        for nth in 0..200 {
            // NVIDIA's driver takes a descriptor for each wait, and returns them after 16 waits.
            // With four waits a round, that is within the rounds that `grows_nothing` allows.
            if nth % 50 != 0 {
                let semaphore = side.library().binary_semaphore("one of many")?;
                import(&semaphore, theirs.export()?)?;
                check!(semaphore.import_temporary(theirs.export()?).is_err());
                continue;
            }
            import(&kept, theirs.export()?)?;
            let signals = theirs.clone();
            // SAFETY: the signal is consumed below, before the next.
            let work =
                move |recorder: &mut Recorder<'_>| unsafe { recorder.signal_semaphore(&signals) };
            queue.submit(&[], work, &[])?;
            consumed(&kept, None)?;
        }
        Ok(queue.idle(patience())?)
    })
}

/// CUDA has no temporary payloads. It says so, and the handle is returned.
#[cfg(feature = "cuda")]
fn for_good(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = super::sides(world)?;
    let Device::Cuda(_) = importer.library() else {
        return Stop::skip("the importer is not CUDA's");
    };
    let made = exporter.library().binary_semaphore("made")?;
    let semaphore = imported(importer, made.export()?, "for good")?;
    let handle = made.export()?;
    let number = handle.as_fd().as_raw_fd();
    let error = came_back("a payload", number, semaphore.import_temporary(handle))?;
    check!(
        matches!(&error, Error::Unsupported { object, .. } if object == semaphore.object()),
        "refused with: {error}"
    );
    has(&semaphore, Payload::Permanent, "after the refusal")
}
