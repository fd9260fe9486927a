//! Memory that several processes share, ordered by their timelines (X8).
#![allow(
    unsafe_code,
    reason = "imports handles for whose kind their exporter vouches"
)]

#[cfg(all(feature = "cuda", feature = "vulkan"))]
use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
#[cfg(all(feature = "cuda", feature = "vulkan"))]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "vulkan")]
use syncline_core::backend::Device as _;
use syncline_core::{
    Error, Result,
    handle::{HandleKind, MemoryContent, MemoryFd, MemoryInfo, SharedWords, WordsFd},
    info::BackendKind,
};
#[cfg(feature = "vulkan")]
use syncline_core::{error::Object, image::ImageInfo};

use super::execution::Execution;
use crate::any::Device;
#[cfg(feature = "vulkan")]
use crate::any_image::Image;
use crate::buffer::Buffer;
use crate::negotiate::{Mechanism, Needs, Party, PartyId, Plan, memory_obstacles};
use crate::process::closing::PeerFd;
use crate::process::endpoint::Endpoint;
use crate::process::extent::{Extent, Resource};
use crate::process::handover::{OutgoingObject, hand_over};
use crate::process::message::{Content, Handle, Offer};
use crate::process::poll::Deadline;
#[cfg(feature = "vulkan")]
use crate::vulkan;

impl Plan {
    /// Shares device memory of the plan's [home](Plan::home) with the other devices.
    ///
    /// Every process with a device that gets the memory calls this, like [`Plan::make_across`]. The
    /// home gets it, and each other device if its party has [`Needs::MEMORY`]. The result has the
    /// memory of each such device of this process, so it is never empty. A process without such a
    /// device gets an error and does not wait, and the others do not wait for it (X8). The
    /// application must order all accesses with timelines of the plan. Vulkan makes the memory.
    /// CUDA does if the plan's mechanism is a counter in shared memory.
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
    /// [words](Endpoint::send_words) of host memory then. [`Error::Unsupported`], too, if no device
    /// of this process gets the memory. [`Error::Message`] if the processes give different sizes.
    /// Otherwise the errors of [`Plan::make_across`].
    pub fn memory_across(
        &self,
        label: &str,
        size: u64,
        devices: &[Device],
        peers: &[&Endpoint],
        timeout: Duration,
    ) -> Result<Vec<(PartyId, Buffer)>> {
        let execution = Execution::new(self, "memory", label, devices, peers, timeout)?;
        execution.make_memory(size)
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
        let allocation = buffer.allocation();
        execution.require_owner(buffer.object(), &allocation.device())?;
        if allocation.is_dedicated() {
            let reason = "its memory is for one buffer alone, which importers cannot make again";
            return Err(Error::unsupported(
                buffer.object(),
                "be shared across processes",
                reason,
            ));
        }
        let (offset, exported) = (buffer.offset_in_allocation(), allocation.export()?);
        execution.hand_out(
            buffer.size(),
            Buffer::Vulkan(buffer.clone()),
            offset,
            &exported,
        )
    }

    /// Same as [`Plan::memory_across`], for an image.
    ///
    /// Vulkan makes the image, so the plan's [home](Plan::home) is a Vulkan device. Every process
    /// gives equal properties. CUDA's devices of the plan get a `cuda::Image`, and Vulkan's an
    /// identical image.
    ///
    /// The contents are undefined. The process of the home takes the image first, in a submission
    /// that discards them ([`Contents::Discard`](vulkan::Contents::Discard)). All work of the other
    /// processes waits for that submission.
    ///
    /// # Errors
    /// Same errors as [`Plan::memory_across`]. [`Error::Unsupported`] if the home is not a Vulkan
    /// device, and for an image that cannot be shared ([`ImageInfo::check`], or
    /// [`ImageInfo::check_within_vulkan`] without CUDA). Both are checked before the processes
    /// meet. If only one of them gives such an image, the others wait for the whole time-out, and
    /// get [`Error::PeerSilent`]. The errors of [`vulkan::Device::export_image`] and
    /// [`vulkan::Device::import_image`].
    #[cfg(feature = "vulkan")]
    pub fn image_across(
        &self,
        label: &str,
        info: &ImageInfo,
        devices: &[Device],
        peers: &[&Endpoint],
        timeout: Duration,
    ) -> Result<Vec<(PartyId, Image)>> {
        self.require_image(info, &Object::new("image", label))?;
        let execution = Execution::new(self, "image", label, devices, peers, timeout)?;
        execution.make_memory(*info)
    }

    /// Same as [`Plan::image_across`], for an image in memory that the application has allocated.
    ///
    /// The process of the plan's [home](Plan::home) calls it, and the others call `image_across`
    /// with the properties of this image. The result has the image itself for the home.
    ///
    /// # Errors
    /// Same errors as [`Plan::image_across`]. [`Error::Unsupported`] if the home is not a Vulkan
    /// device of this process, and for memory that is not exportable. [`Error::WrongDevice`] for an
    /// image of another device.
    #[cfg(feature = "vulkan")]
    pub fn share_image_across(
        &self,
        label: &str,
        image: &vulkan::Image,
        devices: &[Device],
        peers: &[&Endpoint],
        timeout: Duration,
    ) -> Result<Vec<(PartyId, Image)>> {
        self.require_image(image.info(), image.object())?;
        let execution = Execution::new(self, "image", label, devices, peers, timeout)?;
        execution.require_memory()?;
        execution.require_owner(image.object(), &image.allocation().device())?;
        let (info, offset) = (*image.info(), image.offset_in_allocation());
        execution.hand_out(info, Image::Vulkan(image.clone()), offset, &image.export()?)
    }

    /// Refuses an image that the devices of the plan do not share.
    #[cfg(feature = "vulkan")]
    fn require_image(&self, info: &ImageInfo, image: &Object) -> Result<()> {
        let is_cuda = |party: &&Party| party.backend() == Some(BackendKind::Cuda);
        let mut with_cuda = self.parties().iter().filter(is_cuda);
        match with_cuda.any(|party| party.needs().contains(Needs::MEMORY)) {
            true => info.check(image),
            false => info.check_within_vulkan(image),
        }
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
        if !parties.any(|party| party.needs().contains(Needs::MEMORY)) {
            let reason = "no memory of a device goes with it, as no party has `Needs::MEMORY`";
            return Err(self.cannot(reason));
        }
        if !goes {
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
            obstacles => Err(self.cannot(obstacles.join("; "))),
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

    /// Makes the memory if this is the home's process, and receives it otherwise.
    fn make_memory<S: Shared>(&self, info: S::Info) -> Result<Vec<(PartyId, S)>> {
        self.require_memory()?;
        let home = self.plan().home();
        let refused = || self.cannot(format!("{}, and its home is {home}", S::MAKERS));
        // Each process knows the home, so none waits for memory that is never made.
        if !home.backend().is_some_and(S::is_made_by) {
            return Err(refused());
        }
        if !self.is_home() {
            return self.import_memory(info);
        }
        let device = self.device(home.id()).ok_or_else(refused)?;
        let (made, exported) = S::export(device, info)?.ok_or_else(refused)?;
        self.hand_out(info, made, 0, &exported)
    }

    /// The plan's home, if `owner`, whose memory is to be shared, is that device.
    #[cfg(feature = "vulkan")]
    fn require_owner(&self, object: &Object, owner: &vulkan::Device) -> Result<()> {
        let Some(Device::Vulkan(exporter)) = self.device(self.plan().home().id()) else {
            return Err(self.cannot("only Vulkan's devices share memory of the application"));
        };
        if exporter.id() == owner.id() {
            return Ok(());
        }
        let (of, asked) = (owner.object(), exporter.object());
        Err(Error::wrong_device(object, of, asked))
    }

    /// Imports the home's memory into the devices of this process, and sends it to the others.
    ///
    /// `resource` begins at `offset` in the exported memory.
    fn hand_out<S: Shared>(
        &self,
        info: S::Info,
        resource: S,
        offset: u64,
        exported: &MemoryFd,
    ) -> Result<Vec<(PartyId, S)>> {
        let home = self.plan().home().id();
        let extent = Extent {
            size: exported.info().size,
            offset,
            resource: info.into(),
            memory_type: exported.info().memory_type,
            dedicated: exported.info().dedicated,
        };
        let mut imported = Vec::new();
        for id in self.importers().filter(|id| id.process == self.here()) {
            let fd = duplicate_memory(exported.as_fd())?;
            imported.push((id, self.import(id, fd, info, extent, Some(&resource))?));
        }
        let mut all = vec![(home, resource)];
        all.extend(imported);
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

    fn import_memory<S: Shared>(&self, info: S::Info) -> Result<Vec<(PartyId, S)>> {
        let expected = self.memory_handles(self.here());
        if expected.is_empty() {
            let here = self.here();
            let reason = format!("{here} has no device with `Needs::MEMORY` in it, nor its home");
            return Err(self.cannot(reason));
        }
        let peer = self.peer(self.plan().home().id().process)?;
        let (content, deadline) = (Content::DeviceMemory, self.deadline());
        peer.receive_and_settle(content, self.label(), deadline, |offer, fds| {
            let extent = self.check_memory(peer, &offer, info.into(), &expected)?;
            let imports = expected.iter().zip(fds);
            let imports = imports.filter_map(|(handle, fd)| Some((handle.party?, fd)));
            let import = |(id, fd): (_, PeerFd)| self.import(id, fd.into_fd(), info, extent, None);
            let made = imports.map(|of| Ok((of.0, import(of)?)));
            Ok(Some(made.collect::<Result<_>>()?))
        })
    }

    /// Refuses memory of another resource than this process asks for.
    fn check_memory(
        &self,
        peer: &Endpoint,
        offer: &Offer,
        asked: Resource,
        handles: &[Handle],
    ) -> Result<Extent> {
        let refused = |expected: String, found: String| {
            let expected = format!("memory \"{}\" of {expected}", self.label());
            Error::message(peer.object(), expected, found)
        };
        let Some(extent) = offer.extent else {
            return Err(refused(asked.to_string(), "nothing".into()));
        };
        if extent.resource != asked {
            let (expected, found) = asked.beside(&extent.resource);
            return Err(refused(expected, found));
        }
        if offer.handles != handles {
            let expected = format!("{asked}, for {} devices", handles.len());
            return Err(refused(expected, format!("for {}", offer.handles.len())));
        }
        Ok(extent)
    }

    /// Imports the memory behind `fd` into the device `id` of this process.
    ///
    /// `exported` is the home's view, if this is the home's process.
    fn import<S: Shared>(
        &self,
        id: PartyId,
        fd: OwnedFd,
        info: S::Info,
        extent: Extent,
        exported: Option<&S>,
    ) -> Result<S> {
        let origin = self.plan().home().origin();
        // Memory that is not dedicated may hold more than this resource.
        let content = match extent.resource {
            _ if !extent.dedicated => MemoryContent::Whole,
            Resource::Buffer(size) => MemoryContent::Buffer(size),
            Resource::Image(info) => MemoryContent::Image(info),
        };
        let mut properties = MemoryInfo::new(extent.size, content);
        (properties.dedicated, properties.memory_type) = (extent.dedicated, extent.memory_type);
        // SAFETY: the plan states the origin, and the message of the sending process states the
        // properties. The application trusts that process (`Endpoint::trust_handles`), otherwise
        // the endpoint refuses such handles.
        let handle = unsafe { MemoryFd::from_fd(fd, origin, properties) };
        let device = self.device(id);
        let made = device.map_or(Ok(None), |device| {
            S::import(device, handle, extent.offset, info, exported)
        });
        made?.ok_or_else(|| self.cannot("only CUDA's and Vulkan's devices import memory"))
    }
}

/// A buffer or an image that several processes have, as one device sees it.
trait Shared: Sized {
    /// What all processes say of it.
    type Info: Copy + Into<Resource>;

    /// Which devices make it, for the error of another one.
    const MAKERS: &'static str;

    /// True if devices of this backend make it.
    fn is_made_by(backend: BackendKind) -> bool;

    /// Makes it at the start of memory of its own. `None` if such a device makes none.
    fn export(device: &Device, info: Self::Info) -> Result<Option<(Self, MemoryFd)>>;

    /// Makes it again at `offset`. `None` if such a device imports none.
    ///
    /// If this process has exported it, the import keeps the owner of its memory (X8).
    fn import(
        device: &Device,
        handle: MemoryFd,
        offset: u64,
        info: Self::Info,
        exported: Option<&Self>,
    ) -> Result<Option<Self>>;
}

impl Shared for Buffer {
    type Info = u64;

    const MAKERS: &'static str = "only CUDA's and Vulkan's devices export memory";

    fn is_made_by(backend: BackendKind) -> bool {
        matches!(backend, BackendKind::Cuda | BackendKind::Vulkan)
    }

    fn export(device: &Device, size: u64) -> Result<Option<(Self, MemoryFd)>> {
        Ok(match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(cuda) => {
                let (buffer, exported) = cuda.export_buffer(size)?;
                Some((Self::Cuda(buffer), exported))
            }
            #[cfg(feature = "vulkan")]
            Device::Vulkan(vulkan) => {
                let (buffer, exported) = vulkan.export_buffer(size)?;
                Some((Self::Vulkan(buffer), exported))
            }
            Device::Host(_) => {
                let _ = size;
                None
            }
        })
    }

    fn import(
        device: &Device,
        handle: MemoryFd,
        at: u64,
        size: u64,
        exported: Option<&Self>,
    ) -> Result<Option<Self>> {
        let dedicated = handle.info().dedicated;
        #[cfg(feature = "vulkan")]
        let allocation = match exported {
            Some(Self::Vulkan(buffer)) => Some(buffer.allocation()),
            _ => None,
        };
        #[cfg(all(feature = "cuda", feature = "vulkan"))]
        let owner = allocation.map(owner_of);
        #[cfg(all(feature = "cuda", not(feature = "vulkan")))]
        let owner = None;
        Ok(match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(cuda) => Some(Self::Cuda(match dedicated {
                true => cuda.import_memory(handle)?,
                false => cuda.import_allocation(handle, owner)?.buffer(at, size)?,
            })),
            #[cfg(feature = "vulkan")]
            Device::Vulkan(vulkan) => Some(Self::Vulkan(match dedicated {
                true => vulkan.import_buffer(handle)?,
                false => {
                    let whole = match allocation {
                        Some(allocation) => vulkan.import_allocation_of(allocation)?,
                        None => vulkan.import_allocation(handle)?,
                    };
                    whole.range(at, size, crate::shared_buffer::STORAGE)?
                }
            })),
            Device::Host(_) => {
                let _ = (handle, dedicated, at, size, exported);
                None
            }
        })
    }
}

#[cfg(feature = "vulkan")]
impl Shared for Image {
    type Info = ImageInfo;

    const MAKERS: &'static str = "only Vulkan's devices make images";

    fn is_made_by(backend: BackendKind) -> bool {
        backend == BackendKind::Vulkan
    }

    fn export(device: &Device, info: ImageInfo) -> Result<Option<(Self, MemoryFd)>> {
        let Device::Vulkan(vulkan) = device else {
            return Ok(None);
        };
        let (image, exported) = vulkan.export_image(&info)?;
        Ok(Some((Self::Vulkan(image), exported)))
    }

    fn import(
        device: &Device,
        handle: MemoryFd,
        at: u64,
        info: ImageInfo,
        exported: Option<&Self>,
    ) -> Result<Option<Self>> {
        let dedicated = handle.info().dedicated;
        let exported = exported.and_then(|image| image.vulkan().ok());
        Ok(match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(cuda) => Some(Self::Cuda(match exported {
                None if dedicated => cuda.import_image(handle, &info)?,
                _ => {
                    let owner = exported.map(|image| owner_of(image.allocation()));
                    cuda.import_allocation(handle, owner)?.image(at, &info)?
                }
            })),
            Device::Vulkan(vulkan) => Some(Self::Vulkan(match exported {
                // Both images know then whether there are contents (X9).
                Some(exported) => vulkan.import_image_of(exported)?,
                None if dedicated => vulkan.import_image(handle, &info)?,
                None => vulkan.import_allocation(handle)?.image(at, &info)?,
            })),
            Device::Host(_) => None,
        })
    }
}

impl From<u64> for Resource {
    fn from(size: u64) -> Self {
        Self::Buffer(size)
    }
}

#[cfg(feature = "vulkan")]
impl From<ImageInfo> for Resource {
    fn from(info: ImageInfo) -> Self {
        Self::Image(info)
    }
}

/// What CUDA keeps as long as it has imported memory of this allocation.
#[cfg(all(feature = "cuda", feature = "vulkan"))]
fn owner_of(allocation: &vulkan::Allocation) -> Arc<dyn Any + Send + Sync> {
    Arc::new(allocation.clone())
}

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
                resource: Resource::Buffer(length),
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
        if Resource::Buffer(found) != extent.resource {
            let expected = format!("{} of memory, as it says", extent.resource);
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
