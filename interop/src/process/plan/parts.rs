//! The objects of one process for a timeline of several processes.
#![allow(
    unsafe_code,
    reason = "imports handles for whose kind their exporter vouches"
)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use syncline_core::backend::kit::Counter;
use syncline_core::backend::{Attachment, Attachments, Device as _};
#[cfg(any(feature = "cuda", feature = "vulkan"))]
use syncline_core::handle::{BinaryFd, TimelineFd};
use syncline_core::internal::{Page, SharedTimes};
use syncline_core::{
    Result, Timeline,
    handle::{CounterFd, HandleKind, Origin, WordsFd},
};

use super::execution::Execution;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
use crate::any::Device;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
use crate::binary::BinarySemaphore;
use crate::duplicate::duplicate;
use crate::negotiate::{DeviceSemaphore, Mechanism, Needs, Timelines};
#[cfg(any(feature = "cuda", feature = "vulkan"))]
use crate::negotiate::{Party, PartyId};
use crate::process::closing::PeerFd;
#[cfg(feature = "vulkan")]
use crate::process::message::Content;
use crate::process::message::Handle;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// The objects that the home makes and exports to all processes.
pub(super) struct HomeObjects {
    page: syncline_core::host::Exporter,
    #[cfg(feature = "vulkan")]
    semaphore: Option<Semaphore>,
    origin: Option<Origin>,
    home: Ports,
}

/// The semaphore that a driver exports.
#[cfg(feature = "vulkan")]
enum Semaphore {
    Timeline(syncline_vulkan::Exporter),
    Binary(vulkan::BinarySemaphore),
}

/// The objects that a process has received from the home.
pub(super) struct ImportedObjects {
    page: CounterFd,
    times: Option<SharedTimes>,
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    timelines: Vec<(PartyId, TimelineFd)>,
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    binaries: Vec<(PartyId, BinaryFd)>,
}

/// The ports from which one process makes its timeline.
struct Ports {
    /// The host's port over the page.
    page: Attachment,
    counter: Arc<Counter>,
    /// The page of times, if a party asks for timestamps.
    times: Option<SharedTimes>,
    /// The ports of a native semaphore. The first one is readable by the host, if any is.
    natives: Vec<Attachment>,
}

impl HomeObjects {
    pub(super) fn make(execution: &Execution<'_>, initial: u64) -> Result<Self> {
        let (page, exporter) = execution.host().exportable_port(initial)?;
        let wanted = execution.plan().has_timestamps();
        let home = Ports {
            page,
            counter: exporter.counter().clone(),
            times: wanted.then(SharedTimes::new).transpose()?,
            natives: Vec::new(),
        };
        #[cfg_attr(not(feature = "vulkan"), allow(unused_mut))]
        let mut own = Self {
            page: exporter,
            #[cfg(feature = "vulkan")]
            semaphore: None,
            origin: None,
            home,
        };
        if execution.is_external() {
            #[cfg(feature = "vulkan")]
            if let Some(Device::Vulkan(vulkan)) = execution.device(execution.plan().home().id()) {
                own.semaphore = Some(match execution.content() {
                    Content::BinarySemaphore => {
                        let kind = HandleKind::BinaryOpaqueFd;
                        Semaphore::Binary(vulkan.exportable_binary(execution.label(), kind)?)
                    }
                    _ => {
                        let (port, exporter) = vulkan.exportable_port(initial)?;
                        own.home.natives.push(port);
                        Semaphore::Timeline(exporter)
                    }
                });
                own.origin = Some(Origin::of(vulkan.info()));
                return Ok(own);
            }
            return Err(execution.cannot("only Vulkan's devices export semaphores"));
        }
        Ok(own)
    }

    pub(super) const fn counter(&self) -> &Arc<Counter> {
        &self.home.counter
    }

    pub(super) fn origin(&self) -> Option<Origin> {
        self.origin.clone()
    }

    /// Exports one more handle of `kind`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there is no object of this kind. A driver error.
    pub(super) fn export(&self, execution: &Execution<'_>, kind: HandleKind) -> Result<OwnedFd> {
        if let (HandleKind::WordsMemfd, Some(times)) = (kind, &self.home.times) {
            return Ok(times.export()?.into());
        }
        #[cfg(feature = "vulkan")]
        match (kind, &self.semaphore) {
            (HandleKind::TimelineOpaqueFd, Some(Semaphore::Timeline(semaphore))) => {
                return Ok(semaphore.export()?.into());
            }
            (HandleKind::BinaryOpaqueFd, Some(Semaphore::Binary(semaphore))) => {
                return Ok(semaphore.export()?.into());
            }
            _ => {}
        }
        match kind {
            HandleKind::CounterMemfd => Ok(self.page.export()?.into()),
            _ => Err(execution.cannot("the home has no object of this kind")),
        }
    }

    /// The binary semaphores of the devices of this process.
    pub(super) fn semaphores(&self, execution: &Execution<'_>) -> Result<Vec<DeviceSemaphore>> {
        let mut all = Vec::new();
        #[cfg(feature = "vulkan")]
        if let Some(Semaphore::Binary(made)) = &self.semaphore {
            let home = execution.plan().home().id();
            let own = BinarySemaphore::Vulkan(made.clone());
            all.push(semaphore_of(execution, home, own, || made.export())?);
            for party in execution.own().filter(|party| party.id() != home) {
                if let Some(device) = execution.device(party.id()) {
                    let imported = device.import_binary(made.export()?, execution.label())?;
                    all.push(semaphore_of(execution, party.id(), imported, || {
                        made.export()
                    })?);
                }
            }
        }
        let _ = (&mut all, execution);
        Ok(all)
    }

    /// The timeline of this process, with the ports of its other devices.
    pub(super) fn into_timelines(
        self,
        execution: &Execution<'_>,
        initial: u64,
    ) -> Result<Timelines> {
        #[cfg_attr(not(feature = "vulkan"), allow(unused_mut))]
        let mut ports = self.home;
        #[cfg(feature = "vulkan")]
        if let Some(Semaphore::Timeline(semaphore)) = &self.semaphore {
            for party in execution
                .own()
                .filter(|party| party.id() != execution.plan().home().id())
            {
                if let Some(device) = execution.device(party.id()) {
                    ports.natives.extend(import(device, || semaphore.export())?);
                }
            }
        }
        ports.into_timelines(execution, initial, || self.page.export())
    }
}

impl ImportedObjects {
    /// Opens the received descriptors. Checks their kinds as far as that is possible.
    pub(super) fn open(
        execution: &Execution<'_>,
        handles: Vec<Handle>,
        fds: Vec<PeerFd>,
    ) -> Result<Self> {
        let (mut page, mut times) = (None, None);
        #[cfg(any(feature = "cuda", feature = "vulkan"))]
        let (mut timelines, mut binaries) = (Vec::new(), Vec::new());
        for (handle, fd) in handles.into_iter().zip(fds) {
            match (handle.kind, handle.party) {
                (HandleKind::CounterMemfd, _) => page = Some(fd.convert(CounterFd::from_fd)?),
                (HandleKind::WordsMemfd, _) => {
                    let words = fd.convert(WordsFd::from_fd)?;
                    times = Some(SharedTimes::open(words)?);
                }
                #[cfg(any(feature = "cuda", feature = "vulkan"))]
                (HandleKind::TimelineOpaqueFd, Some(party)) => {
                    let origin = execution.plan().home().origin();
                    // SAFETY: the plan and the process that made it with this one state the kind.
                    // The application has said that this process is trusted
                    // (`Endpoint::trust_handles`), otherwise the endpoint refuses such handles. The
                    // importer checks what it can.
                    timelines.push((party, unsafe { TimelineFd::from_fd(fd.into_fd(), origin) }));
                }
                #[cfg(any(feature = "cuda", feature = "vulkan"))]
                (HandleKind::BinaryOpaqueFd, Some(party)) => {
                    let origin = execution.plan().home().origin();
                    // SAFETY: as above.
                    binaries.push((party, unsafe { BinaryFd::from_fd(fd.into_fd(), origin) }));
                }
                _ => drop(fd),
            }
        }
        let missing = || execution.cannot("no page of shared memory came with it");
        Ok(Self {
            page: page.ok_or_else(missing)?,
            times,
            #[cfg(any(feature = "cuda", feature = "vulkan"))]
            timelines,
            #[cfg(any(feature = "cuda", feature = "vulkan"))]
            binaries,
        })
    }

    /// The timeline of this process, its page, and the binary semaphores of its devices.
    pub(super) fn into_timelines(
        self,
        execution: &Execution<'_>,
        initial: u64,
    ) -> Result<(Timelines, Arc<Counter>, Vec<DeviceSemaphore>)> {
        let spare = duplicate_page(&self.page)?;
        let page = execution.host().import_timeline(self.page)?;
        let port = page.port::<syncline_core::host::CounterPort>();
        let Some(counter) = port.map(|port| port.counter().clone()) else {
            return Err(execution.cannot("the host has made another port of the page"));
        };
        #[cfg_attr(not(any(feature = "cuda", feature = "vulkan")), allow(unused_mut))]
        let mut ports = Ports {
            page,
            counter: counter.clone(),
            times: self.times,
            natives: Vec::new(),
        };
        #[cfg(any(feature = "cuda", feature = "vulkan"))]
        ports.import(execution, self.timelines, initial)?;
        #[cfg_attr(not(any(feature = "cuda", feature = "vulkan")), allow(unused_mut))]
        let mut semaphores = Vec::new();
        #[cfg(any(feature = "cuda", feature = "vulkan"))]
        for (id, handle) in self.binaries {
            if let Some(device) = execution.device(id) {
                let spare = duplicate(handle.as_fd(), HandleKind::BinaryOpaqueFd)?;
                let origin = handle.origin().clone();
                let imported = device.import_binary(handle, execution.label())?;
                // SAFETY: another descriptor of the handle that was imported.
                let spare = || Ok(unsafe { BinaryFd::from_fd(spare, origin) });
                semaphores.push(semaphore_of(execution, id, imported, spare)?);
            }
        }
        let timelines = ports.into_timelines(execution, initial, || duplicate_page(&spare))?;
        Ok((timelines, counter, semaphores))
    }
}

/// The semaphore of a party in this process. `spare` exports one more handle of it.
///
/// # Errors
/// The error of `spare`.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn semaphore_of(
    execution: &Execution<'_>,
    party: PartyId,
    semaphore: BinarySemaphore,
    spare: impl FnOnce() -> Result<BinaryFd>,
) -> Result<DeviceSemaphore> {
    let waits = |own: &Party| own.id() == party && own.needs().contains(Needs::WAIT);
    match execution.device(party) {
        Some(device) if execution.own().any(waits) && execution.signaller() != execution.here() => {
            DeviceSemaphore::waiting(party, device, semaphore, None, spare)
        }
        _ => Ok(DeviceSemaphore::alone(party, semaphore)),
    }
}

/// Another handle of the same page.
fn duplicate_page(page: &CounterFd) -> Result<CounterFd> {
    let fd = duplicate(page.as_fd(), HandleKind::CounterMemfd)?;
    Ok(CounterFd::from_fd(fd)?)
}

/// The port of `device` over a semaphore. `None` for a host device.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn import(
    device: &Device,
    handle: impl FnOnce() -> Result<TimelineFd>,
) -> Result<Option<Attachment>> {
    Ok(match device {
        Device::Host(_) => None,
        // SAFETY: one process signals a plan's timeline, through one timeline. For other processes
        // that have the handle, the caller of `trust_handles` has vouched.
        #[cfg(feature = "cuda")]
        Device::Cuda(cuda) => Some(unsafe { cuda.import_timeline(handle()?) }?),
        // SAFETY: as above.
        #[cfg(feature = "vulkan")]
        Device::Vulkan(vulkan) => Some(unsafe { vulkan.import_timeline(handle()?) }?),
    })
}

impl Ports {
    /// Adds the ports of the received semaphores.
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    fn import(
        &mut self,
        execution: &Execution<'_>,
        semaphores: Vec<(PartyId, TimelineFd)>,
        initial: u64,
    ) -> Result<()> {
        // The signalling process must be able to read the value. A Vulkan device can read it. A
        // CUDA device knows it only from its own signals.
        let reads = |id: &PartyId| match execution.device(*id) {
            #[cfg(feature = "vulkan")]
            Some(Device::Vulkan(_)) => true,
            _ => false,
        };
        let mut semaphores = semaphores;
        semaphores.sort_by_key(|(id, _)| !reads(id));
        let readable = semaphores.first().is_some_and(|(id, _)| reads(id));
        #[cfg(feature = "cuda")]
        let alone = !readable && this_process_signals(execution);
        #[cfg(feature = "cuda")]
        if alone && semaphores.len() > 1 {
            let names = semaphores
                .iter()
                .filter_map(|(id, _)| execution.plan().party(*id));
            let names: Vec<_> = names.map(ToString::to_string).collect();
            return Err(execution.cannot(format!(
                "no device of this process could read the value: only one of {} may signal, or a Vulkan device must take part",
                names.join(" and ")
            )));
        }
        for (id, handle) in semaphores {
            let Some(device) = execution.device(id) else {
                continue;
            };
            #[cfg(feature = "cuda")]
            if let (true, Device::Cuda(cuda)) = (alone, device) {
                // SAFETY: as in `import`. No other device of this process has it, as checked above.
                let port = unsafe { cuda.import_timeline_to_signal(handle, initial) }?;
                self.natives.push(port);
                continue;
            }
            self.natives.extend(import(device, || Ok(handle))?);
        }
        let _ = (initial, readable);
        Ok(())
    }

    /// Makes the timeline over the ports.
    fn into_timelines(
        self,
        execution: &Execution<'_>,
        initial: u64,
        handle: impl Fn() -> Result<CounterFd>,
    ) -> Result<Timelines> {
        let signals = this_process_signals(execution);
        let Self {
            page,
            counter,
            times,
            natives,
        } = self;
        let page = match signals {
            true => page.signalled_elsewhere(false),
            false => page.signalled_by_process(execution.signaller().id),
        };
        // Other processes learn of the page's own value, or of the object beside it.
        let connected = |timeline: Timeline, page| -> Result<Timeline> {
            let times = times.clone();
            if !signals {
                return match times {
                    Some(times) => timeline.clocked_elsewhere(times),
                    None => Ok(timeline),
                };
            }
            let timeline = clocked(execution, timeline)?;
            if let Some(times) = times {
                timeline.tell_times(times)?;
            }
            timeline.publish(counter.clone(), page)?;
            Ok(timeline)
        };
        let label = execution.label();
        let timeline = match execution.plan().mechanism() {
            Mechanism::Bridge => {
                let own: Vec<_> = execution.own().filter(|party| party.is_device()).collect();
                if own.is_empty() {
                    let timeline =
                        Timeline::new(label, initial, |_| Ok(Attachments::from_iter([page])))?;
                    return Ok(Timelines::Single(connected(timeline, Page::Own)?));
                }
                let devices = own.iter().filter_map(|party| execution.device(party.id()));
                let sides = devices.map(|device| device.port(initial));
                let sides = [Ok(page)].into_iter().chain(sides);
                let made = Timeline::bridged_as(label, initial, sides, |at, side| match at {
                    0 => connected(side.clone(), Page::Own).map(drop),
                    // Each side of a bridge has its own timestamps.
                    _ => clocked(execution, side.clone()).map(drop),
                })?;
                let mut made = made.into_iter();
                let Some(home) = made.next() else {
                    return Err(execution.cannot("it has no side"));
                };
                let sides = own.iter().map(|party| party.id()).zip(made).collect();
                return Ok(Timelines::Bridge { home, sides });
            }
            Mechanism::ExternalTimeline if signals => {
                // Only this process signals, so there is no other signaller to watch.
                let natives = natives.into_iter();
                let natives = natives.map(|port| port.signalled_elsewhere(false));
                let timeline = Timeline::new(label, initial, |_| Ok(natives.collect()))?;
                connected(timeline, Page::Beside)?
            }
            _ => {
                let timeline = Timeline::new(label, initial, |_| {
                    let counters = self::counters(execution, &handle);
                    let mut ports = Attachments::from_iter([page]);
                    ports.extend(natives);
                    for counter in counters {
                        ports.push(counter?);
                    }
                    Ok(ports)
                })?;
                connected(timeline, Page::Own)?
            }
        };
        Ok(Timelines::Single(timeline))
    }
}

/// Adds timestamps to a timeline that this process signals, if the plan has them.
fn clocked(execution: &Execution<'_>, timeline: Timeline) -> Result<Timeline> {
    let devices: Vec<_> = execution
        .devices()
        .iter()
        .map(|device| device as _)
        .collect();
    execution.plan().clocked(timeline, &devices)
}

/// True if a party of this process signals.
fn this_process_signals(execution: &Execution<'_>) -> bool {
    execution
        .own()
        .any(|party| party.needs().contains(Needs::SIGNAL))
}

/// The ports of this process's devices over the page, if the page is the counter itself.
fn counters(
    execution: &Execution<'_>,
    handle: &impl Fn() -> Result<CounterFd>,
) -> Vec<Result<Attachment>> {
    if execution.plan().mechanism() != Mechanism::SharedMemory {
        return Vec::new();
    }
    let driven = execution.own().filter(|party| party.is_driven());
    let sharing = driven.filter_map(|party| execution.device(party.id())?.sharing());
    sharing
        .map(|sharing| Ok(sharing.import_counter(handle()?)?))
        .collect()
}
