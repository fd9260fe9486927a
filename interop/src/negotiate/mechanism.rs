//! The mechanisms that carry a signal from one party to another.

use std::fmt;

use syncline_core::handle::HandleKind;

/// A mechanism by which parties see each other's signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mechanism {
    /// Objects of one device, for its queues and the threads of its process.
    SameDevice,
    /// A timeline semaphore that Vulkan exports and the other devices import. No host in between.
    ExternalTimeline,
    /// A binary semaphore that Vulkan exports and one other device imports. No host in between.
    ExternalBinary,
    /// A counter in shared memory that the host and CUDA streams write and wait for.
    SharedMemory,
    /// One timeline of one process. The engine holds waits of other devices until they are reached.
    Engine,
    /// A timeline for each device. The host signals each reached value on the other timelines.
    Bridge,
}

impl Mechanism {
    /// All mechanisms in order of preference: fewest steps from a signal to the waiters first.
    pub const ALL: [Self; 6] = [
        Self::SameDevice,
        Self::ExternalTimeline,
        Self::ExternalBinary,
        Self::SharedMemory,
        Self::Engine,
        Self::Bridge,
    ];

    /// The name in recordings and messages. [`Display`](fmt::Display) writes the form for
    /// sentences.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameDevice => "the device's own timelines",
            Self::ExternalTimeline => "external timeline semaphore (exported by Vulkan)",
            Self::ExternalBinary => "external binary semaphore (exported by Vulkan)",
            Self::SharedMemory => "a counter in shared memory",
            Self::Engine => "through the engine on the host",
            Self::Bridge => "a bridge through the host",
        }
    }

    /// True if a signal passes from device to device without a host thread.
    #[must_use]
    pub const fn is_native(self) -> bool {
        !matches!(self, Self::Engine | Self::Bridge)
    }

    /// The kind of the handles that pass the object between devices, or `None` without handles.
    #[must_use]
    pub const fn handle(self) -> Option<HandleKind> {
        match self {
            Self::ExternalTimeline => Some(HandleKind::TimelineOpaqueFd),
            Self::ExternalBinary => Some(HandleKind::BinaryOpaqueFd),
            Self::SharedMemory => Some(HandleKind::CounterMemfd),
            Self::SameDevice | Self::Engine | Self::Bridge => None,
        }
    }
}

impl fmt::Display for Mechanism {
    /// Writes a noun phrase, such as "a counter in shared memory".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameDevice => "the device's own objects",
            Self::ExternalTimeline => "an external timeline semaphore (exported by Vulkan)",
            Self::ExternalBinary => "an external binary semaphore (exported by Vulkan)",
            Self::SharedMemory => "a counter in shared memory",
            Self::Engine => "the engine on the host",
            Self::Bridge => "a bridge through the host",
        })
    }
}
