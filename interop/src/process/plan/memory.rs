//! Memory that several processes share, ordered by their timelines (X8).
#![allow(
    unsafe_code,
    reason = "imports handles for whose kind their exporter vouches"
)]

#[cfg(any(feature = "cuda", feature = "vulkan"))]
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::time::Duration;

#[cfg(feature = "vulkan")]
use syncline_core::backend::Device as _;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
use syncline_core::handle::{MemoryContent, MemoryFd, MemoryInfo};
use syncline_core::{
    Error, Result,
    handle::{HandleKind, Origin, SharedWords, WordsFd},
};

use super::execution::Execution;
use crate::any::Device;
use crate::buffer::Buffer;
use crate::negotiate::{Mechanism, Needs, Party, PartyId, Plan, list, memory_obstacles};
use crate::process::closing::PeerFd;
use crate::process::endpoint::Endpoint;
use crate::process::handover::{OutgoingObject, hand_over};
use crate::process::message::{Content, Extent, Handle, Offer};
use crate::process::poll::Deadline;
#[cfg(feature = "vulkan")]
use crate::vulkan;

impl Plan {
    /// Shares device memory of the plan's [home](Plan::home) with the other devices.
    ///
    /// Every process calls this, like [`Plan::make_across`]. The result has the memory of each
    /// device of this process that [shares memory](crate::negotiate::Needs::MEMORY). In a process
    /// without such a device, the call does not wait, and the result is empty. The application must
    /// order all accesses with timelines of the plan. Vulkan makes the memory. CUDA does if the
    /// plan's mechanism is a counter in shared memory.
    ///
    /// `size` is the size of the buffer, at least 1 and the same in every process.
    ///
    /// The call makes everything or nothing, and blocks, like [`Plan::make_across`], with one
    /// exception. All processes may have taken the memory when one stops reading, for longer than
    /// `timeout` and half a second. Then the home's call fails and names that process, and others
    /// may keep the memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan shares no device memory, or if a device cannot import
    /// that of the home, for example between different GPUs. Use
    /// [words](Endpoint::send_words) of host memory then. [`Error::Message`] if the processes give
    /// different sizes. Otherwise the errors of [`Plan::make_across`].
    pub fn memory_across(
        &self,
        label: &str,
        size: u64,
        devices: &[Device],
        peers: &[&Endpoint],
        timeout: Duration,
    ) -> Result<Vec<(PartyId, Buffer)>> {
        let execution = Execution::new(self, "memory", label, devices, peers, timeout)?;
        execution.require_memory()?;
        if execution.is_home() {
            execution.export_memory(size)
        } else {
            execution.import_memory(size)
        }
    }

    /// Same as [`Plan::memory_across`], for a buffer in memory that the application has allocated.
    ///
    /// The process of the plan's [home](Plan::home) calls it, and the others call `memory_across`
    /// with the size of this buffer. The result has the buffer itself for the home.
    ///
    /// # Errors
    /// Same errors as [`Plan::memory_across`]. [`Error::Unsupported`] if the home is not a Vulkan
    /// device of this process, and for memory that is not exportable or is dedicated.
    /// [`Error::WrongDevice`] for a buffer of another device. Its offset in its memory and its size
    /// must be multiples of 4.
    #[cfg(feature = "vulkan")]
    pub fn buffer_across(
        &self,
        label: &str,
        buffer: &vulkan::Buffer,
        devices: &[Device],
        peers: &[&Endpoint],
        timeout: Duration,
    ) -> Result<Vec<(PartyId, Buffer)>> {
        let execution = Execution::new(self, "memory", label, devices, peers, timeout)?;
        execution.require_memory()?;
        execution.export_own(buffer)
    }
}

impl Execution<'_> {
    /// Refuses a plan that shares no device memory, or none that its home exports to all importers.
    fn require_memory(&self) -> Result<()> {
        let mut parties = self.plan().parties().iter();
        // With a counter in shared memory, the plan's home exports memory, or none goes with it.
        let counter = Mechanism::SharedMemory;
        let goes = self.is_external()
            || self.plan().mechanism() == counter && self.plan().home().is_driven();
        if !goes || !parties.any(|party| party.needs().contains(Needs::MEMORY)) {
            return Err(self.cannot("no memory of a device goes with it"));
        }
        // Negotiation requires this only for memory that may leave the process.
        let home = self.plan().home();
        let importing = self.importing();
        let obstacles: Vec<_> = importing
            .flat_map(|importer| memory_obstacles(home, importer))
            .collect();
        match &obstacles[..] {
            [] => Ok(()),
            obstacles => Err(self.cannot(list(obstacles))),
        }
    }

    /// The parties whose devices import the memory.
    fn importing(&self) -> impl Iterator<Item = &Party> {
        let home = self.plan().home().id();
        let parties = self.plan().parties().iter();
        parties.filter(move |party| {
            party.is_driven() && party.id() != home && party.needs().contains(Needs::MEMORY)
        })
    }

    /// The devices that import the memory.
    fn importers(&self) -> impl Iterator<Item = PartyId> {
        self.importing().map(Party::id)
    }

    /// The handles that go to `process`: one for each of its importing devices.
    fn memory_handles(&self, process: crate::negotiate::Process) -> Vec<Handle> {
        let own = self.importers().filter(|id| id.process == process);
        let handle = |party| Handle {
            party: Some(party),
            kind: HandleKind::MemoryOpaqueFd,
        };
        own.map(handle).collect()
    }

    fn export_memory(&self, size: u64) -> Result<Vec<(PartyId, Buffer)>> {
        match self.device(self.plan().home().id()) {
            #[cfg(feature = "cuda")]
            Some(Device::Cuda(cuda)) => {
                let (buffer, exported) = cuda.export_buffer(size)?;
                self.hand_out(Buffer::Cuda(buffer), 0, &exported)
            }
            #[cfg(feature = "vulkan")]
            Some(Device::Vulkan(vulkan)) => {
                let (buffer, exported) = vulkan.export_buffer(size)?;
                self.hand_out(Buffer::Vulkan(buffer), 0, &exported)
            }
            _ => {
                let _ = size;
                Err(self.cannot("only CUDA's and Vulkan's devices export memory"))
            }
        }
    }

    /// Exports a buffer of the application.
    #[cfg(feature = "vulkan")]
    fn export_own(&self, buffer: &vulkan::Buffer) -> Result<Vec<(PartyId, Buffer)>> {
        let Some(Device::Vulkan(exporter)) = self.device(self.plan().home().id()) else {
            return Err(self.cannot("only Vulkan's devices share a buffer of the application"));
        };
        let owner = buffer.allocation().device();
        if exporter.id() != owner.id() {
            let (of, asked) = (owner.object(), exporter.object());
            return Err(Error::wrong_device(buffer.object(), of, asked));
        }
        if buffer.allocation().is_dedicated() {
            let reason = "its memory is for one buffer alone, which importers cannot make again";
            return Err(Error::unsupported(
                buffer.object(),
                "be shared across processes",
                reason,
            ));
        }
        let (offset, exported) = (buffer.offset_in_allocation(), buffer.allocation().export()?);
        self.hand_out(Buffer::Vulkan(buffer.clone()), offset, &exported)
    }

    /// Imports the home's memory into the devices of this process, and sends it to the others.
    ///
    /// `buffer` begins at `offset` in the exported memory.
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    fn hand_out(
        &self,
        buffer: Buffer,
        offset: u64,
        exported: &MemoryFd,
    ) -> Result<Vec<(PartyId, Buffer)>> {
        let home = self.plan().home().id();
        let extent = Extent {
            size: exported.info().size,
            offset,
            length: buffer.size(),
            memory_type: exported.info().memory_type,
            dedicated: exported.info().dedicated,
        };
        let mut all = vec![(home, buffer)];
        for id in self.importers().filter(|id| id.process == self.here()) {
            all.push((
                id,
                self.import(id, duplicate_memory(exported.as_fd())?, extent)?,
            ));
        }
        let mut offers = Vec::new();
        for process in self.others() {
            let handles = self.memory_handles(process);
            if handles.is_empty() {
                continue;
            }
            let peer = self.peer(process)?;
            let fds = handles.iter().map(|_| duplicate_memory(exported.as_fd()));
            let fds = fds.collect::<Result<_>>()?;
            let offer = Offer {
                number: peer.next_number(),
                content: Content::DeviceMemory,
                label: self.label().into(),
                initial: 0,
                reached: 0,
                origin: Some(exported.origin().clone()),
                extent: Some(extent),
                event: None,
                handles,
            };
            offers.push(OutgoingObject { peer, offer, fds });
        }
        hand_over(&offers, self.deadline())?;
        Ok(all)
    }

    fn import_memory(&self, size: u64) -> Result<Vec<(PartyId, Buffer)>> {
        let expected = self.memory_handles(self.here());
        if expected.is_empty() {
            return Ok(Vec::new());
        }
        let peer = self.peer(self.plan().home().id().process)?;
        let (content, deadline) = (Content::DeviceMemory, self.deadline());
        peer.receive_and_settle(content, self.label(), deadline, |offer, fds| {
            let extent = self.check_memory(peer, &offer, size, &expected)?;
            let imports = expected.iter().zip(fds);
            let imports = imports.filter_map(|(handle, fd)| Some((handle.party?, fd)));
            let made = imports.map(|(id, fd)| Ok((id, self.import(id, fd.into_fd(), extent)?)));
            Ok(Some(made.collect::<Result<_>>()?))
        })
    }

    fn check_memory(
        &self,
        peer: &Endpoint,
        offer: &Offer,
        size: u64,
        handles: &[Handle],
    ) -> Result<Extent> {
        let (label, length) = (self.label(), offer.extent.map_or(0, |extent| extent.length));
        match offer.extent {
            Some(extent) if length == size && offer.handles == handles => Ok(extent),
            _ => Err(Error::message(
                peer.object(),
                format!(
                    "memory \"{label}\" of {size} bytes, for {} devices",
                    handles.len()
                ),
                format!("{length} bytes, for {}", offer.handles.len()),
            )),
        }
    }

    /// Imports the memory behind `fd` into the device `id` of this process.
    fn import(&self, id: PartyId, fd: OwnedFd, extent: Extent) -> Result<Buffer> {
        let origin: Origin = self.plan().home().origin();
        match self.device(id) {
            #[cfg(feature = "cuda")]
            Some(Device::Cuda(cuda)) => {
                // SAFETY: the plan states the origin and the extent, and so does the message of the
                // sending process. The application trusts that process
                // (`Endpoint::trust_handles`), otherwise the endpoint refuses such handles.
                let handle = unsafe { handle(fd, origin, extent) };
                Ok(Buffer::Cuda(if extent.dedicated {
                    cuda.import_memory(handle)?
                } else {
                    let whole = cuda.import_allocation(handle, None)?;
                    whole.buffer(extent.offset, extent.length)?
                }))
            }
            #[cfg(feature = "vulkan")]
            Some(Device::Vulkan(vulkan)) => {
                // SAFETY: as above.
                let handle = unsafe { handle(fd, origin, extent) };
                Ok(Buffer::Vulkan(if extent.dedicated {
                    vulkan.import_buffer(handle)?
                } else {
                    let whole = vulkan.import_allocation(handle)?;
                    whole.range(extent.offset, extent.length, crate::shared_buffer::STORAGE)?
                }))
            }
            _ => {
                let _ = (fd, extent, origin);
                Err(self.cannot("only CUDA's and Vulkan's devices import memory"))
            }
        }
    }
}

/// # Safety
/// `fd` is memory that a device of this origin has exported, of this extent.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
unsafe fn handle(fd: OwnedFd, origin: Origin, extent: Extent) -> MemoryFd {
    let content = match extent.dedicated {
        true => MemoryContent::Buffer(extent.length),
        false => MemoryContent::Whole,
    };
    let mut info = MemoryInfo::new(extent.size, content);
    (info.dedicated, info.memory_type) = (extent.dedicated, extent.memory_type);
    // SAFETY: by this function's contract.
    unsafe { MemoryFd::from_fd(fd, origin, info) }
}

#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn duplicate_memory(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd> {
    crate::duplicate::duplicate(fd, HandleKind::MemoryOpaqueFd)
}

impl Endpoint {
    /// Shares words of host memory with the peer, which [receives](Endpoint::receive_words) them.
    ///
    /// The application must order all accesses with timelines. After an error, the peer does not
    /// have the memory, and it can be sent again.
    ///
    /// # Blocking
    /// Up to `timeout`, until the peer has received the words.
    ///
    /// # Errors
    /// [`Error::PeerLost`]. [`Error::PeerSilent`] if the peer does not receive them in time.
    /// [`Error::Import`] if the peer refuses them. [`Error::Native`].
    pub fn send_words(&self, label: &str, words: &SharedWords, timeout: Duration) -> Result<()> {
        let length = 4 * words.words().len() as u64;
        let offer = Offer {
            number: self.next_number(),
            content: Content::HostMemory,
            label: label.into(),
            initial: 0,
            reached: 0,
            handles: vec![Handle {
                party: None,
                kind: HandleKind::WordsMemfd,
            }],
            origin: None,
            extent: Some(Extent {
                size: length,
                offset: 0,
                length,
                memory_type: None,
                dedicated: false,
            }),
            event: None,
        };
        let object = OutgoingObject {
            peer: self,
            offer,
            fds: vec![words.export()?.into()],
        };
        hand_over(&[object], Deadline::after(timeout))
    }

    /// Receives words of memory that the peer [sends](Endpoint::send_words) under `label`.
    ///
    /// The memory is checked before it is mapped: its type, its seals and its size of at most
    /// `most` bytes. The peer can change the words at any time. Objects of another kind or label
    /// stay in the endpoint, so several threads can receive different objects at the same time.
    ///
    /// # Blocking
    /// Up to `timeout`, or one second longer if the peer offers the words and then stops
    /// responding.
    ///
    /// # Errors
    /// * [`Error::PeerSilent`], with the objects that were offered instead.
    /// * [`Error::Message`] or [`Error::Import`] if the object is not such memory or has more than
    ///   `most` bytes. The peer gets that reason, too. Also if the peer withdraws it.
    /// * [`Error::PeerLost`].
    pub fn receive_words(&self, label: &str, most: u64, timeout: Duration) -> Result<SharedWords> {
        let (content, deadline) = (Content::HostMemory, Deadline::after(timeout));
        self.receive_and_settle(content, label, deadline, |offer, fds| {
            self.open_words(&offer, most, fds).map(Some)
        })
    }

    fn open_words(&self, offer: &Offer, most: u64, fds: Vec<PeerFd>) -> Result<SharedWords> {
        let other =
            |expected: String, found: String| Error::message(self.object(), expected, found);
        let kinds = offer.handles.iter().map(|handle| handle.kind);
        let mut fds = fds.into_iter();
        let (Some(fd), Some(extent), true) =
            (fds.next(), offer.extent, kinds.eq([HandleKind::WordsMemfd]))
        else {
            let found = format!("\"{}\" with {} others", offer.label, offer.handles.len());
            return Err(other("one descriptor of words of memory".into(), found));
        };
        let handle = fd.convert(WordsFd::from_fd)?;
        // Check the size before the memory is mapped.
        let found = handle.size();
        if found != extent.length {
            let expected = format!("{} bytes of memory, as it says", extent.length);
            return Err(other(expected, found.to_string()));
        }
        if found > most {
            return Err(Error::import(
                self.object(),
                format!("memory \"{}\"", offer.label),
                format!("it has {found} bytes, and {most} are the most that are taken"),
            ));
        }
        Ok(SharedWords::open(handle)?)
    }
}
