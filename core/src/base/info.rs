//! What a device is and what it can do.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::handle::HandleKind;

/// Which API lies under a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BackendKind {
    /// Worker threads of this process.
    Host,
    /// The CUDA driver API.
    Cuda,
    /// Vulkan 1.2 or later.
    Vulkan,
    /// A backend outside this project, by name.
    Other(&'static str),
}

impl BackendKind {
    /// The lower-case name that commands and reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cuda => "cuda",
            Self::Vulkan => "vulkan",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Identity of one opened device within this process. Two handles to one opened device are equal;
/// opening the same GPU twice gives two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(u64);

impl DeviceId {
    /// A new identity, never given before in this process.
    #[must_use]
    #[allow(
        clippy::new_without_default,
        reason = "a default identity would suggest that there is a neutral one"
    )]
    pub fn new() -> Self {
        Self(next_id())
    }

    /// The bare number, for reports.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// One sequence for the ids of every object, so that no two objects of a report share a number.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A 16-byte device or driver identity, as both CUDA and Vulkan report it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Identity and capabilities of a device.
#[derive(Debug, Clone)]
pub struct Info {
    /// The API it speaks.
    pub backend: BackendKind,
    /// The device's own name.
    pub name: String,
    /// Who made it, in words.
    pub vendor: String,
    /// Identity of the physical device, the same from every API; `None` for the host.
    pub uuid: Option<Uuid>,
    /// Identity of the whole GPU, where this device is a partition of one (MIG).
    pub parent_uuid: Option<Uuid>,
    /// Identity of the driver build; only objects of equal drivers can be shared through Vulkan handles.
    pub driver_uuid: Option<Uuid>,
    /// Locally unique id, where the platform has one.
    pub luid: Option<[u8; 8]>,
    /// Driver name and version, as the driver words it.
    pub driver: String,
    /// True if the driver computes on the host's processors in place of a GPU. No result of it counts as a result of a GPU.
    pub software: bool,
    /// What it can do.
    pub capabilities: Capabilities,
}

impl Info {
    /// True if both describe the same physical device (matched by UUID, never by name or ordinal).
    #[must_use]
    pub fn same_gpu(&self, other: &Self) -> bool {
        self.uuid.is_some() && self.uuid == other.uuid
    }

    /// The device's name for reports, which says if the device is software.
    #[must_use]
    pub fn marked_name(&self) -> String {
        let mark = if self.software { " (software)" } else { "" };
        format!("{}{mark}", self.name)
    }
}

/// What a device can do. What it cannot is told with the reason by [`Capabilities::limits`].
#[derive(Debug, Clone, Default)]
pub struct Capabilities {
    /// The driver itself has timeline objects; otherwise the backend builds them from what it has.
    pub native_timelines: bool,
    /// Valid bits of a timestamp, the fewest over all queue kinds that have any; 0: none.
    pub timestamp_bits: u32,
    /// Nanoseconds per timestamp tick.
    pub timestamp_period_ns: f64,
    /// Device and host clock are read together: by the driver, or, on CUDA, by a kernel that answers the host within a microsecond or
    /// two. [`Device::clock`](crate::backend::Device::clock) may find another, less exact way where they are not.
    pub calibrated_clock: bool,
    /// Streams can wait for and write 64-bit values in memory.
    pub stream_memory_ops: bool,
    /// Reads after a stream's wait can be ordered against remote writes (flush).
    pub stream_memory_flush: bool,
    /// Largest legal difference between a timeline's value and any outstanding wait or signal.
    pub max_value_difference: u64,
    /// The kinds of handle under which the driver lets objects of this device out.
    pub exports: Vec<HandleKind>,
    /// The kinds of handle from which the driver makes objects of this device.
    pub imports: Vec<HandleKind>,
    /// Queues it can make.
    pub queues: Vec<QueueFamily>,
    /// What it cannot do, each with the reason: `(capability, reason)`.
    pub limits: Vec<(&'static str, String)>,
}

/// One family of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFamily {
    /// The most capable kind that it serves.
    pub kind: QueueKind,
    /// How many driver queues it has; `None` where they are made at will.
    pub count: Option<u32>,
    /// Its index in the driver's own numbering, where it has one.
    pub index: u32,
    /// Valid bits of its timestamps; 0: none.
    pub timestamp_bits: u32,
}

/// What a queue must be able to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueKind {
    /// Graphics, compute and transfer.
    Graphics,
    /// Compute and transfer.
    Compute,
    /// Transfer; on NVIDIA the copy engines, which need no switch of context.
    Transfer,
}

impl QueueKind {
    /// The lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Graphics => "graphics",
            Self::Compute => "compute",
            Self::Transfer => "transfer",
        }
    }
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
