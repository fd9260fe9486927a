//! What a device is and what it can do.

use std::any::TypeId;
use std::cmp;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::base::handle::kind::HandleKind;
use crate::base::object::next_id;

/// The API of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BackendKind {
    /// Worker threads of this process.
    Host,
    /// The CUDA driver API.
    Cuda,
    /// Vulkan 1.2 or later.
    Vulkan,
    /// A backend from outside this project, with its name.
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

/// The identity of one opened device within this process.
///
/// Two handles of one opened device have the same id. A GPU that is opened twice has two ids.
#[derive(Clone, Copy)]
pub struct DeviceId {
    number: u64,
    /// The type of the device. The number decides alone whether two ids are equal.
    of: TypeId,
}

impl DeviceId {
    /// A new identity of a device of type `D`, unique in this process.
    ///
    /// Only queues of a `D` get ports with this id to wait for and to signal. So a backend cannot
    /// act for a device of another backend by stating the id of that device (X7).
    #[must_use]
    pub fn new<D: 'static>() -> Self {
        Self {
            number: next_id(),
            of: TypeId::of::<D>(),
        }
    }

    /// The number, for reports.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.number
    }

    /// True if it was made for a device of type `D`.
    pub(crate) fn is_of<D: 'static>(self) -> bool {
        self.of == TypeId::of::<D>()
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceId({})", self.number)
    }
}

impl PartialEq for DeviceId {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for DeviceId {}

impl Hash for DeviceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PartialOrd for DeviceId {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DeviceId {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.number.cmp(&other.number)
    }
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
    /// The API of the device.
    pub backend: BackendKind,
    /// The device's own name.
    pub name: String,
    /// The vendor, in words.
    pub vendor: String,
    /// The UUID of the physical device, the same in every API; `None` for the host.
    pub uuid: Option<Uuid>,
    /// The UUID of the whole GPU, if this device is a partition of it (MIG).
    pub parent_uuid: Option<Uuid>,
    /// The UUID of the driver build. Vulkan handles carry objects only between equal drivers.
    pub driver_uuid: Option<Uuid>,
    /// The locally unique id, if the platform has one.
    pub luid: Option<[u8; 8]>,
    /// The driver's name and version, in the driver's words.
    pub driver: String,
    /// True if the driver stands in for that of a GPU, and computes on the host's processors.
    ///
    /// True for lavapipe. False for the host backend, whose threads stand in for no GPU.
    ///
    /// No result of such a device counts as a result of a GPU.
    pub software: bool,
    /// What the device can do.
    pub capabilities: Capabilities,
}

impl Info {
    /// True if both describe the same physical device. Compares UUIDs, not names or ordinals.
    #[must_use]
    pub fn same_gpu(&self, other: &Self) -> bool {
        self.uuid.is_some() && self.uuid == other.uuid
    }

    /// The device's name for reports, marked if the device is software.
    #[must_use]
    pub fn marked_name(&self) -> String {
        let mark = if self.software { " (software)" } else { "" };
        format!("{}{mark}", self.name)
    }
}

/// What a device can do. [`Capabilities::limits`] says what it cannot do, and why.
#[derive(Debug, Clone, Default)]
pub struct Capabilities {
    /// True if a driver executes the queues of the device. False if threads of this process do.
    pub driver_queues: bool,
    /// True if the driver has timeline objects. If false, the backend builds them itself.
    pub native_timelines: bool,
    /// True if the device can make binary semaphores.
    pub binary_semaphores: bool,
    /// Valid bits of a timestamp: the fewest of all queue families that have any. 0: none.
    pub timestamp_bits: u32,
    /// Nanoseconds per tick of a timestamp.
    pub timestamp_period_ns: f64,
    /// True if the clocks of device and host can be read together.
    ///
    /// The driver reads them, or on CUDA a kernel that answers the host within one or two
    /// microseconds. If false, [`Device::clock`](crate::backend::Device::clock) may find a less
    /// exact way.
    pub calibrated_clock: bool,
    /// True if streams can wait for 64-bit values in memory and write them.
    pub stream_memory_ops: bool,
    /// True if streams can wait for a value with a bit that is clear (`CU_STREAM_WAIT_VALUE_NOR`).
    pub stream_memory_nor: bool,
    /// True if a stream's wait can order later reads after remote writes (flush).
    pub stream_memory_flush: bool,
    /// True if the driver can run CUDA in the context of a `VkDevice`. Syncline does not use it.
    ///
    /// On CUDA the attribute `CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED` (138), on Vulkan the
    /// extension `VK_NV_external_compute_queue`.
    pub cuda_in_graphics: bool,
    /// The largest legal difference between a timeline's value and an outstanding wait or signal.
    pub max_value_difference: u64,
    /// The kinds of handle as which the driver can export objects of this device.
    pub exports: Vec<HandleKind>,
    /// The kinds of handle that the driver can import for this device.
    pub imports: Vec<HandleKind>,
    /// The families of its queues.
    pub queues: Vec<QueueFamily>,
    /// What the device cannot do, or only in part: `(capability, reason)`.
    pub limits: Vec<(&'static str, String)>,
}

/// One family of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFamily {
    /// The most capable kind of queue that the family serves.
    pub kind: QueueKind,
    /// The number of driver queues; `None` if any number can be made.
    pub count: Option<u32>,
    /// The driver's index of the family, if the driver has one.
    pub index: u32,
    /// Valid bits of the family's timestamps. 0: none.
    pub timestamp_bits: u32,
}

/// What the pools of a device have left after a trim (H2).
///
/// Each object is in use, or the driver may still use it. A count that does not apply to the
/// backend is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pooled {
    /// Events of values, positions and fences.
    pub events: usize,
    /// Pools of timestamp queries.
    pub query_pools: usize,
    /// Dropped semaphores. The next submission that finishes ends them.
    pub semaphores: usize,
    /// Dropped memory, modules and registered pages, whose free would block.
    pub deferred_frees: usize,
    /// Blocks of memory with buffers in them.
    pub memory_blocks: usize,
}

impl Pooled {
    /// True if nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a queue must be able to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueKind {
    /// Graphics, compute and transfer.
    Graphics,
    /// Compute and transfer.
    Compute,
    /// Transfer. On NVIDIA these are the copy engines, which need no context switch.
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
