//! Timelines that two devices use together: natively on one GPU, through the engine otherwise.

use std::fmt;

use syncline_core::backend::Device as _;
use syncline_core::{Error, Info, Result, Timeline};

use crate::any::Device;
use crate::buffer::SharedBuffer;

/// How two devices see each other's signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mechanism {
    /// Both sides are one device: its own timelines.
    SameDevice,
    /// A timeline semaphore exported by Vulkan and imported by CUDA: no host in between.
    ExternalTimeline,
    /// A counter in memory of the host, which CUDA's streams wait for and write: threads of the host see it as the streams do.
    SharedMemory,
    /// The engine holds each side's waits until the other side's value is reached.
    Engine,
}

impl Mechanism {
    /// The name that reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameDevice => "the device's own timelines",
            Self::ExternalTimeline => {
                "external timeline semaphore (exported by Vulkan, imported by CUDA)"
            }
            Self::SharedMemory => "a counter in shared memory",
            Self::Engine => "through the engine on the host",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Two devices, and how they synchronize.
#[derive(Debug, Clone)]
pub struct Link {
    left: Device,
    right: Device,
    mechanism: Mechanism,
    why: String,
}

/// Links two devices natively: signals and memory pass from one to the other without the host.
///
/// # Errors
/// [`Error::CannotShare`], decided by UUIDs and capabilities before any driver is asked to export.
pub fn share<A, B>(left: &A, right: &B) -> Result<Link>
where
    A: Clone + Into<Device>,
    B: Clone + Into<Device>,
{
    let (left, right) = (left.clone().into(), right.clone().into());
    match native(&left, &right) {
        Ok((mechanism, why)) => Ok(Link {
            left,
            right,
            mechanism,
            why,
        }),
        Err(reason) => Err(Error::CannotShare {
            left: describe(left.info()),
            right: describe(right.info()),
            what: "timelines",
            reason,
        }),
    }
}

/// Links two devices natively if they can be, else through the engine. [`Link::why`] tells the reason.
pub fn connect<A, B>(left: &A, right: &B) -> Link
where
    A: Clone + Into<Device>,
    B: Clone + Into<Device>,
{
    let (left, right) = (left.clone().into(), right.clone().into());
    let (mechanism, why) =
        native(&left, &right).unwrap_or_else(|reason| (Mechanism::Engine, reason));
    Link {
        left,
        right,
        mechanism,
        why,
    }
}

impl Link {
    /// How the two sides synchronize.
    #[must_use]
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Why this mechanism and no other, in words.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// One side.
    #[must_use]
    pub const fn left(&self) -> &Device {
        &self.left
    }

    /// The other side.
    #[must_use]
    pub const fn right(&self) -> &Device {
        &self.right
    }

    /// A timeline at 0 for queues of both sides.
    ///
    /// # Errors
    /// A driver error.
    pub fn timeline(&self, label: &str) -> Result<Timeline> {
        self.timeline_from(label, 0)
    }

    /// A timeline at `initial` for queues of both sides: one counter, whichever side signals.
    ///
    /// # Errors
    /// [`Error::ValueOutOfRange`] for `u64::MAX`; a driver error.
    pub fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        #[cfg(all(feature = "cuda", feature = "vulkan"))]
        if let (Device::Cuda(cuda), Device::Vulkan(vulkan))
        | (Device::Vulkan(vulkan), Device::Cuda(cuda)) = (&self.left, &self.right)
            && self.mechanism == Mechanism::ExternalTimeline
        {
            return Timeline::new(label, initial, |initial| {
                // The exporter is the home: its counter can be read by the host, an import cannot.
                let (home, handle) = vulkan.export_timeline(initial)?;
                Ok(smallvec::smallvec![home, cuda.import_timeline(handle)?])
            });
        }
        #[cfg(feature = "cuda")]
        if let (Device::Cuda(cuda), Device::Host(host)) | (Device::Host(host), Device::Cuda(cuda)) =
            (&self.left, &self.right)
            && self.mechanism == Mechanism::SharedMemory
        {
            return Timeline::new(label, initial, |initial| {
                let (home, handle) = host.export_timeline(initial)?;
                Ok(smallvec::smallvec![home, cuda.import_counter(handle)?])
            });
        }
        self.left.timeline_from(label, initial)
    }

    /// Memory that both sides use.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `bytes` is a positive multiple of 4 that the host can address; a driver error.
    pub fn buffer(&self, bytes: u64) -> Result<SharedBuffer> {
        SharedBuffer::new(self, bytes)
    }
}

/// The native mechanism between two devices, or why there is none.
fn native(left: &Device, right: &Device) -> Result<(Mechanism, String), String> {
    if left.id() == right.id() {
        return Ok((Mechanism::SameDevice, "both sides are one device".into()));
    }
    #[cfg(all(feature = "cuda", feature = "vulkan"))]
    if let (Device::Cuda(cuda), Device::Vulkan(vulkan))
    | (Device::Vulkan(vulkan), Device::Cuda(cuda)) = (left, right)
    {
        return external_timeline(cuda.info(), vulkan.info());
    }
    #[cfg(feature = "cuda")]
    if let (Device::Cuda(cuda), Device::Host(host)) | (Device::Host(host), Device::Cuda(cuda)) =
        (left, right)
    {
        return shared_memory(cuda.info(), host.info());
    }
    Err(match (left.info().backend, right.info().backend) {
        (a, b) if a == b => format!("two {a} devices share no native timeline"),
        (a, b) => format!("{} and {} have no handle in common", a.min(b), a.max(b)),
    })
}

#[cfg(all(feature = "cuda", feature = "vulkan"))]
fn external_timeline(cuda: &Info, vulkan: &Info) -> Result<(Mechanism, String), String> {
    use syncline_core::HandleKind::{MemoryOpaqueFd, TimelineOpaqueFd};

    let uuid = |info: &Info| {
        info.uuid
            .map_or_else(|| "no UUID".into(), |uuid| uuid.to_string())
    };
    if !cuda.same_gpu(vulkan) {
        return Err(format!(
            "they are different GPUs: CUDA's {} is {}, Vulkan's {} is {}",
            cuda.name,
            uuid(cuda),
            vulkan.name,
            uuid(vulkan)
        ));
    }
    if cuda.parent_uuid.is_some() {
        return Err(format!(
            "CUDA's {} is a partition, which Vulkan cannot reach",
            cuda.name
        ));
    }
    for (kind, what) in [
        (TimelineOpaqueFd, "timeline semaphores"),
        (MemoryOpaqueFd, "memory"),
    ] {
        if !vulkan.capabilities.exports.contains(&kind) {
            return Err(format!("Vulkan's {} exports no {what}", vulkan.name));
        }
        if !cuda.capabilities.imports.contains(&kind) {
            return Err(format!("CUDA's {} imports no {what}", cuda.name));
        }
    }
    Ok((
        Mechanism::ExternalTimeline,
        format!("both are GPU {}", uuid(cuda)),
    ))
}

#[cfg(feature = "cuda")]
fn shared_memory(cuda: &Info, host: &Info) -> Result<(Mechanism, String), String> {
    use syncline_core::HandleKind::CounterMemfd;

    let lacks = |info: &Info, limit: &str| {
        let limits = &mut info.capabilities.limits.iter();
        let reason = limits.find(|(known, _)| *known == limit);
        reason.map_or_else(String::new, |(_, reason)| reason.clone())
    };
    if !cuda.capabilities.imports.contains(&CounterMemfd) {
        let reason = lacks(cuda, "stream memory operations");
        return Err(format!(
            "CUDA's {} shares no counters with the host: {reason}",
            cuda.name
        ));
    }
    if !host.capabilities.exports.contains(&CounterMemfd) {
        return Err(lacks(host, "exports"));
    }
    Ok((
        Mechanism::SharedMemory,
        format!(
            "streams of CUDA's {} wait for memory of the host and write it",
            cuda.name
        ),
    ))
}

fn describe(info: &Info) -> String {
    let uuid = info
        .uuid
        .map_or_else(|| "no UUID".into(), |uuid| uuid.to_string());
    format!("{} {} ({uuid})", info.backend, info.name)
}
