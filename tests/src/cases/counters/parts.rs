//! Shared by the cases of counters: exporter, importer, and a page seen through an import.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};

use syncline::{
    Device, Error, Point, Timeline,
    handle::{CounterFd, HandleKind, Rejected},
    host,
};
use syncline_core::backend::{Attachments, Device as _};

use crate::case::{Stop, Verdict};
use crate::workload::Equipped;
use crate::{World, patience};

/// Offsets in a page: the counter, the announced value, the failure and its first record.
pub(super) const REACHED: u64 = 128;
pub(super) const ANNOUNCED: u64 = 136;
pub(super) const FAILED: u64 = 512;
pub(super) const RECORD: u64 = 640;

/// Returns the host, which exports, and the device that imports.
///
/// The importer is the other side. It is the host, too, if that is alone.
pub(super) fn sides(world: &World<Equipped>) -> Result<(&host::Device, &Device), Stop> {
    let (left, right) = (world.left.library(), world.right.library());
    let (exporter, importer) = match (host_of(left), host_of(right)) {
        (Some(exporter), _) => (exporter, right),
        (None, Some(exporter)) => (exporter, left),
        (None, None) => {
            return Stop::skip("neither side is the host, which makes the counters");
        }
    };
    for (info, kinds) in [
        (exporter.info(), &exporter.info().capabilities.exports),
        (importer.info(), &importer.info().capabilities.imports),
    ] {
        if !kinds.contains(&HandleKind::CounterMemfd) {
            return Stop::skip(format!("{} has no counters in shared memory", info.name));
        }
    }
    Ok((exporter, importer))
}

fn host_of(device: &Device) -> Option<&host::Device> {
    match device {
        Device::Host(host) => Some(host),
        #[allow(unreachable_patterns, reason = "there may be no other backend")]
        _ => None,
    }
}

/// A counter, and the timeline that it was made for.
pub(super) struct Exported {
    pub(super) line: Timeline,
    pub(super) source: syncline_core::host::Exporter,
}

/// Creates a counter at `initial`.
///
/// Imports of it are timelines of their own, so the engine is told that others signal it, too.
pub(super) fn exported(exporter: &host::Device, initial: u64) -> Result<Exported, Stop> {
    let (home, source) = exporter.exportable_port(initial)?;
    let home = home.signalled_elsewhere(true);
    let line = Timeline::new("line", initial, |_| Ok([home].into_iter().collect()))?;
    Ok(Exported { line, source })
}

/// Creates a second timeline over the page behind `handle`.
///
/// A new host device reads it. `importer` uses it through the handle, unless it is a host.
pub(super) fn view(
    importer: &Device,
    source: &syncline_core::host::Exporter,
    handle: CounterFd,
    initial: u64,
) -> Result<Timeline, Stop> {
    let mut ports = Attachments::new();
    if let Some(importer) = host_of(importer) {
        ports.push(importer.import_timeline(handle).map_err(reason)?);
    } else {
        let reader = host::Device::new();
        ports.push(reader.import_timeline(source.export()?).map_err(reason)?);
        import(importer, handle, &mut ports).map_err(reason)?;
    }
    Ok(Timeline::new("view", initial, |_| Ok(ports))?)
}

fn reason<H>(rejected: Rejected<H>) -> Error {
    rejected.error
}

/// Imports a handle. The import is dropped at once, or joins `ports`.
pub(super) fn import(
    importer: &Device,
    handle: CounterFd,
    ports: &mut Attachments,
) -> Result<(), Rejected<CounterFd>> {
    ports.push(match importer {
        Device::Host(device) => device.import_timeline(handle)?,
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => device.import_counter(handle)?,
        #[allow(unreachable_patterns, reason = "there may be no other backend")]
        _ => {
            let error = Error::NothingToWaitFor;
            return Err(Rejected { handle, error });
        }
    });
    Ok(())
}

/// Drops the parts in the order with this number, of 24, and signals `gate` after two of them.
pub(in crate::cases) fn drop_in_order(
    order: usize,
    mut parts: Vec<Box<dyn Any>>,
    gate: &Timeline,
) -> syncline::Result<()> {
    let mut choice = order;
    for among in (1..=4).rev() {
        drop(parts.remove(choice % among));
        choice /= among;
        if among == 3 {
            gate.signal(1)?;
        }
    }
    Ok(())
}

/// Returns once `end` is reached, and passes on why it is not.
pub(in crate::cases) fn ended(order: usize, end: Point<'_>) -> Verdict {
    // If the waiting timeline was dropped first, its waits were cancelled. The queue's position
    // passes them nevertheless.
    let ended = end.wait(patience());
    ended.map_err(|error| Stop::Failed(format!("in order {order}: {error}")))
}

/// A page that a hostile process can write.
pub(super) struct Hostile(OwnedFd);

impl Hostile {
    pub(super) fn of(source: &syncline_core::host::Exporter) -> Result<Self, Stop> {
        Ok(Self(source.export()?.into_fd()))
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Stop> {
        let written = rustix::io::pwrite(self.0.as_fd(), bytes, at);
        match written {
            Ok(count) if count == bytes.len() => Ok(()),
            other => Stop::fail(format!("a page cannot be written: {other:?}")),
        }
    }

    pub(super) fn word(&self, at: u64) -> Result<u64, Stop> {
        let mut word = [0; 8];
        match rustix::io::pread(self.0.as_fd(), &mut word, at) {
            Ok(8) => Ok(u64::from_ne_bytes(word)),
            other => Stop::fail(format!("a page cannot be read: {other:?}")),
        }
    }

    pub(super) fn write_word(&self, at: u64, value: u64) -> Result<(), Stop> {
        self.write(at, &value.to_ne_bytes())
    }
}
