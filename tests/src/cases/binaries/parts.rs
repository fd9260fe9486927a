//! Shared by the cases of binary semaphores.
//!
//! A second device of the GPU, and a producer whose signals come after delayed data.

use syncline::{BinarySemaphore, Device, QueueKind, Recorder, handle::BinaryFd, vulkan};

use super::{Side, all_are};
use crate::case::{Stop, Verdict};
use crate::cases::{DELAY, WORDS};
use crate::user;
use crate::workload::{Equipped, Latch};
use crate::{Subject, World, patience};

pub(in crate::cases) type Buffer = <Equipped as Subject>::Buffer;

/// Returns the side whose binary semaphores take temporary payloads, which is Vulkan's.
///
/// In a pair the other side takes part in that.
pub(in crate::cases) fn importer(world: &World<Equipped>) -> Result<&Side, Stop> {
    let (exporter, importer) = super::sides(world)?;
    let vulkan = |side: &&Side| {
        matches!(side.library(), Device::Vulkan(_)) && super::has(&side.info().capabilities.imports)
    };
    let side = [exporter, importer].into_iter().find(vulkan);
    side.map_or_else(
        || Stop::skip("it exports binary semaphores, and imports none"),
        Ok,
    )
}

/// Returns the device that signals what `side` imports: the other side of a pair, or `twin`.
pub(in crate::cases) fn other(world: &World<Equipped>, side: &Side, twin: &Side) -> Side {
    let mut others = [&world.left, &world.right].into_iter();
    others
        .find(|other| other.id() != side.id())
        .unwrap_or(twin)
        .clone()
}

/// Opens a second `VkDevice` of the same GPU and driver.
///
/// Its queues run while those of the first one wait, even if each device has one queue only.
pub(in crate::cases) fn twin(of: &Side) -> Result<Side, Stop> {
    let info = of.info();
    let instance = vulkan::Instance::load()?;
    let same = |candidate: &vulkan::Candidate| {
        candidate.info.same_gpu(info) && candidate.info.driver_uuid == info.driver_uuid
    };
    match instance.devices()?.into_iter().find(same) {
        Some(candidate) => {
            let device = Device::Vulkan(candidate.open()?);
            Ok(user::Device::new(Equipped::new(device)?))
        }
        None => Stop::skip(format!("{} cannot be opened a second time", info.name)),
    }
}

/// Imports a handle into a new semaphore of `side`.
pub(in crate::cases) fn imported(
    side: &Side,
    handle: BinaryFd,
    label: &str,
) -> Result<BinarySemaphore, Stop> {
    let imported = side.library().import_binary(handle, label);
    Ok(imported.map_err(|rejected| rejected.error)?)
}

/// Submits a signal that the device does not reach before the latch is opened.
pub(in crate::cases) fn signal_late(
    side: &Side,
    semaphore: &BinarySemaphore,
) -> Result<(user::Queue<Equipped>, Latch), Stop> {
    let latch = side.subject().latch()?;
    let queue = side.queue(QueueKind::Compute, "signaller")?;
    let (blocked, signals) = (latch.clone(), semaphore.clone());
    let work = move |recorder: &mut Recorder<'_>| {
        Equipped::block(recorder, &blocked)?;
        // SAFETY: unsignalled, and consumed by the case before it is signalled again.
        unsafe { recorder.signal_semaphore(&signals) }
    };
    queue.submit(&[], work, &[])?;
    Ok((queue, latch))
}

/// A producer that writes values after a delay, and signals after each.
///
/// A wait that ends before its own signal finds an old value.
pub(in crate::cases) struct Producer {
    side: Side,
    queue: user::Queue<Equipped>,
    pub(in crate::cases) buffer: Buffer,
    value: u32,
}

impl Producer {
    pub(in crate::cases) fn new(side: &Side) -> Result<Self, Stop> {
        Ok(Self {
            side: side.clone(),
            queue: side.queue(QueueKind::Compute, "producer")?,
            buffer: side.buffer(WORDS)?,
            value: 0,
        })
    }

    /// Writes the next value after a delay, and signals.
    pub(in crate::cases) fn produce(&mut self, semaphore: &BinarySemaphore) -> Verdict {
        let semaphore = semaphore.clone();
        // SAFETY: a case consumes each signal before it makes the next.
        self.produce_then(move |recorder| unsafe { recorder.signal_semaphore(&semaphore) })
    }

    /// Writes the next value after a delay, and then records `signal`.
    pub(in crate::cases) fn produce_then(
        &mut self,
        signal: impl FnOnce(&mut Recorder<'_>) -> syncline::Result<()> + Send + 'static,
    ) -> Verdict {
        self.value += 1;
        let (side, value) = (self.side.clone(), self.value);
        let buffer = self.buffer.clone();
        let work = move |recorder: &mut Recorder<'_>| {
            side.busy(recorder, DELAY)?;
            Equipped::fill(recorder, &buffer, value)?;
            signal(recorder)
        };
        self.queue.submit(&[], work, &[])?;
        Ok(())
    }

    /// Waits until everything has been produced.
    pub(in crate::cases) fn idle(&self) -> Verdict {
        Ok(self.queue.idle(patience())?)
    }

    /// Checks that the last value is visible.
    pub(in crate::cases) fn is_seen(&self, by: &str) -> Verdict {
        all_are(&Equipped::read(&self.buffer), self.value, by)
    }
}
