//! X2, X4, F8: a binary semaphore that is exported before, during and after its signal.
//!
//! Also handles that are duplicated and sent.

use syncline::{
    BinarySemaphore,
    handle::{BinaryFd, Origin},
};

use super::parts::{Producer, imported, twin};
use super::{Side, sides};
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::cases::handles::exports::ways;
use crate::footprint::grows_nothing;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "binary.exported_at_every_stage": [X4 X2 F8] => every_stage;
    "binary.duplicated_and_sent_descriptors": [X4 X2] => travelling;
}

/// When the signal is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    AfterTheImport,
    BetweenExportAndImport,
    PendingAtTheExport,
    MadeBeforeTheExport,
}

/// The import waits for the one signal, whenever the handle was exported.
///
/// The wait consumes the signal for all imports. The next wait, through another import, is for the
/// next signal.
fn every_stage(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    let importer = another(world, exporter, importer)?;
    let mut producer = Producer::new(exporter)?;
    use Stage::{AfterTheImport, BetweenExportAndImport, MadeBeforeTheExport, PendingAtTheExport};
    for stage in [
        AfterTheImport,
        BetweenExportAndImport,
        PendingAtTheExport,
        MadeBeforeTheExport,
    ] {
        let made = exporter.library().binary_semaphore("made")?;
        if matches!(stage, PendingAtTheExport | MadeBeforeTheExport) {
            producer.produce(&made)?;
        }
        if stage == MadeBeforeTheExport {
            producer.idle()?;
        }
        let handle = made.export()?;
        if stage == BetweenExportAndImport {
            producer.produce(&made)?;
        }
        let first = imported(&importer, handle, "first")?;
        if stage == AfterTheImport {
            producer.produce(&made)?;
        }
        waited_for(&first, &producer, &format!("signalled {stage:?}"))?;

        let second = imported(&importer, made.export()?, "second")?;
        producer.produce(&made)?;
        waited_for(&second, &producer, &format!("the next after {stage:?}"))?;
    }
    producer.idle()
}

/// Returns the importer, or a twin: a device with one queue cannot show that it waits for itself.
fn another(world: &World<Equipped>, exporter: &Side, importer: &Side) -> Result<Side, Stop> {
    match world.is_pair() {
        true => Ok(importer.clone()),
        false => twin(exporter),
    }
}

/// Consumes the semaphore's pending signal, and checks that the data before it is there.
fn waited_for(semaphore: &BinarySemaphore, producer: &Producer, when: &str) -> Verdict {
    // SAFETY: the signal has just been submitted or made, and no other wait consumes it.
    let fence = unsafe { semaphore.pending("produced") }?;
    fence.wait(patience())?;
    check!(fence.is_complete()?, "not complete after the wait for it");
    producer.is_seen(when)
}

/// A duplicated or sent descriptor is a handle of the same semaphore.
///
/// That holds for dup(2), for dup2(2), and for a descriptor sent through a socket. The original
/// descriptor may be closed or open.
fn travelling(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    let importer = another(world, exporter, importer)?;
    let mut producer = Producer::new(exporter)?;
    let made = exporter.library().binary_semaphore("made")?;
    grows_nothing(|| {
        for fd in ways(made.export()?.into_fd())? {
            // SAFETY: the descriptor of an export of this device, or a duplicate of it.
            let handle = unsafe { BinaryFd::from_fd(fd, Origin::of(exporter.info())) };
            let semaphore = imported(&importer, handle, "travelled")?;
            producer.produce(&made)?;
            waited_for(&semaphore, &producer, "by a handle that has travelled")?;
        }
        producer.idle()
    })
}
