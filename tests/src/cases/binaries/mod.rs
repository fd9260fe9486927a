//! F8, X2 to X5: binary semaphores, whose signals fences consume.

#![allow(
    unsafe_code,
    reason = "vouches for pending signals, and makes hostile handles"
)]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use syncline::{
    BinarySemaphore, Device, Error,
    handle::{BinaryFd, HandleKind, Origin},
    host,
};

mod lost;
pub(super) mod parts;
mod planned;
mod stages;
mod temporary;

use crate::case::{Case, Stop, Verdict, check, check_error};
use crate::user::{self, wait_all, wait_any};
use crate::workload::Equipped;
use crate::{Subject, World, patience};

use self::parts::Producer;
use super::handles::parts::{forged_origins, names_both, names_importer};
use super::kinds::{came_back, kinds};
use super::{WORDS, copying};

/// The cases of this family; they need a device with binary semaphores.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let mut cases = vec![
        Case {
            id: "binary.consumed_once",
            rules: &["F8", "F4"],
            run: consumed_once,
        },
        Case {
            id: "binary.recording_is_refused",
            rules: &["F8"],
            run: recording,
        },
        Case {
            id: "binary.hostile_descriptors",
            rules: &["X4", "X5", "E5"],
            run: hostile,
        },
    ];
    cases.extend(lost::cases());
    cases.extend(planned::cases());
    cases.extend(stages::cases());
    cases.extend(temporary::cases());
    cases
}

type Side = user::Device<Equipped>;

/// A binary semaphore that one side signals and the other waits for.
struct Semaphore<'w> {
    signaller: &'w Side,
    signals: BinarySemaphore,
    waiter: &'w Side,
    waits: BinarySemaphore,
}

fn has(kinds: &[HandleKind]) -> bool {
    kinds.contains(&HandleKind::BinaryOpaqueFd)
}

/// Returns the side that exports binary semaphores and the one that imports them, on one GPU.
pub(super) fn sides(world: &World<Equipped>) -> Result<(&Side, &Side), Stop> {
    let exports = |side: &&Side| has(&side.info().capabilities.exports);
    let Some(exporter) = [&world.left, &world.right].into_iter().find(exports) else {
        return Stop::skip("neither side exports binary semaphores");
    };
    let importer = if world.left.id() == exporter.id() {
        &world.right
    } else {
        &world.left
    };
    if !has(&importer.info().capabilities.imports) {
        return Stop::skip(format!(
            "{} imports no binary semaphores",
            importer.info().name
        ));
    }
    if !exporter.info().same_gpu(importer.info()) {
        return Stop::skip("they are different GPUs");
    }
    Ok((exporter, importer))
}

/// Makes a semaphore for each direction. One device that exports none uses its own one.
fn semaphores(world: &World<Equipped>) -> Result<Vec<Semaphore<'_>>, Stop> {
    let device = &world.left;
    if !world.is_pair() && !has(&device.info().capabilities.exports) {
        let Device::Vulkan(_) = device.library() else {
            return Stop::skip(format!("{} has no binary semaphores", device.info().name));
        };
        let own = device.library().binary_semaphore("its own")?;
        return Ok(vec![Semaphore {
            signaller: device,
            signals: own.clone(),
            waiter: device,
            waits: own,
        }]);
    }
    let (exporter, importer) = sides(world)?;
    let share = |label| -> syncline::Result<_> {
        let made = exporter.library().binary_semaphore(label)?;
        let imported = importer.library().import_binary(made.export()?, label)?;
        Ok((made, imported))
    };
    let (out, back) = (share("out")?, share("back")?);
    Ok(vec![
        Semaphore {
            signaller: exporter,
            signals: out.0,
            waiter: importer,
            waits: out.1,
        },
        Semaphore {
            signaller: importer,
            signals: back.1,
            waiter: exporter,
            waits: back.0,
        },
    ])
}

/// Queues and a worker wait for the fence only. The first one that passes it finds the data.
fn consumed_once(world: &World<Equipped>) -> Verdict {
    const ROUNDS: u32 = 4;
    let kind = syncline::QueueKind::Compute;
    for semaphore in semaphores(world)? {
        let mut producer = Producer::new(semaphore.signaller)?;
        let waiters = [
            semaphore.waiter.queue(kind, "waiter")?,
            semaphore.waiter.queue(kind, "waiter too")?,
        ];
        // A queue of the side that has the buffer copies it after the wait.
        let copier = semaphore.signaller.queue(kind, "waiter there")?;
        let host = host::Device::new();
        let worker = syncline::backend::Device::queue(&host, kind, "worker")?;
        let copy = semaphore.signaller.buffer(WORDS)?;
        for value in 1..=ROUNDS {
            producer.produce(&semaphore.signals)?;
            // SAFETY: the signal has just been submitted, and no other wait consumes it.
            let fence = unsafe { semaphore.waits.pending("produced") }?;
            let fence = semaphore.waiter.own_fence(fence);
            let mut ends = Vec::new();
            for queue in &waiters {
                queue.wait(&fence)?;
                ends.push(queue.position().keep());
            }
            copier.wait(&fence)?;
            ends.push(copier.position().keep());
            copier.submit(&[], copying::<Equipped>(&producer.buffer, &copy), &[])?;
            syncline::backend::Queue::wait(&worker, fence.library())?;
            let found = Arc::new(Mutex::new(Vec::new()));
            let (looks, looked) = (producer.buffer.clone(), found.clone());
            let look = move |recorder: &mut host::Recorder<'_>| {
                recorder.run(move || *lock(&looked) = Equipped::read(&looks));
                Ok(())
            };
            syncline::backend::Queue::submit(&worker, &[], look, &[])?;
            let point = fence.point()?;

            // Taken before any other wait for the fence.
            let points: Vec<_> = ends.iter().map(|end| end.point()).collect();
            let first = wait_any(&points, patience())?;
            let whose = [
                "the first waiter",
                "the second waiter",
                "the signaller's own queue",
            ][first];
            producer.is_seen(whose)?;
            wait_all(&points, patience())?;
            copier.idle(patience())?;
            all_are(&Equipped::read(&copy), value, "the copy behind the wait")?;
            syncline::backend::Queue::idle(&worker, patience())?;
            all_are(&lock(&found), value, "a worker of the host")?;

            // The fence may be dropped. Its waits go on.
            if value % 2 == 0 {
                drop(fence);
            } else {
                fence.wait(patience())?;
                check!(fence.is_complete()?, "not complete after the wait for it");
            }
            point.point().wait(patience())?;
        }
        producer.idle()?;
    }
    Ok(())
}

fn all_are(words: &[u32], value: u32, whose: &str) -> Verdict {
    check!(
        words.len() == WORDS && words.iter().all(|&word| word == value),
        "{whose} {value}"
    );
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn recording(world: &World<Equipped>) -> Verdict {
    for semaphore in semaphores(world)? {
        let kind = syncline::QueueKind::Compute;
        let mut producer = Producer::new(semaphore.signaller)?;
        let waiter = semaphore.waiter.queue(kind, "waiter")?;
        let signaller = semaphore.signaller.queue(kind, "signaller")?;
        producer.produce(&semaphore.signals)?;
        // SAFETY: the signal has just been submitted, and no other wait consumes it.
        let fence = unsafe { semaphore.waits.pending("produced") }?;
        let fence = semaphore.waiter.own_fence(fence);
        for queue in [&signaller, &waiter] {
            check_error!(
                queue.record(&fence),
                Error::ForeignFence { fence, .. } if fence.label() == "produced"
            );
        }
        fence.wait(patience())?;
        producer.idle()?;
    }
    Ok(())
}

fn hostile(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    let origin = Origin::of(exporter.info());
    let refused = |what: &str, handle: BinaryFd| -> Result<Error, Stop> {
        let number = handle.as_fd().as_raw_fd();
        came_back(what, number, importer.library().import_binary(handle, what))
    };
    for (what, fd) in kinds()? {
        // SAFETY: the kind is wrong on purpose. Drivers answer such descriptors with an error.
        let handle = unsafe { BinaryFd::from_fd(fd, origin.clone()) };
        names_importer(what, &refused(what, handle)?, importer.info())?;
    }
    let made = exporter.library().binary_semaphore("fine")?;
    for (of, forged) in forged_origins(exporter.info(), importer.info()) {
        // SAFETY: it is a binary semaphore. Only its origin is wrong.
        let forged = unsafe { BinaryFd::from_fd(made.export()?.into_fd(), forged) };
        names_both(of, &refused(of, forged)?, importer.info())?;
    }
    // The refusals have done no harm.
    importer.check()?;
    let again = importer.library().import_binary(made.export()?, "fine");
    drop(again.map_err(|rejected| rejected.error)?);
    Ok(())
}
