//! The ways in which a signal of one party comes to another.

use std::fmt;

use syncline_core::HandleKind;

use super::Needs;

/// How parties see each other's signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mechanism {
    /// All are one device, or threads of its process: its own objects.
    SameDevice,
    /// A timeline semaphore exported by Vulkan and imported by the others: no host in between.
    ExternalTimeline,
    /// A binary semaphore exported by Vulkan and imported by the other side: no host in between.
    ExternalBinary,
    /// A counter in shared memory, which the host and CUDA's streams write and wait for.
    SharedMemory,
    /// One timeline within a process: the engine holds each other side's waits until the value is reached.
    Engine,
    /// A timeline for each device, and a relay that carries every signal on through the host.
    Bridge,
}

impl Mechanism {
    /// All, and of those that fit the first is taken: the fewest steps from a signal to whoever waits.
    pub const ALL: [Self; 6] = [
        Self::SameDevice,
        Self::ExternalTimeline,
        Self::ExternalBinary,
        Self::SharedMemory,
        Self::Engine,
        Self::Bridge,
    ];

    /// The name that recordings and messages use. In a sentence stands what [`Display`](fmt::Display) writes.
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

    /// True if a signal goes from device to device, and no thread has to run for it.
    #[must_use]
    pub const fn is_native(self) -> bool {
        !matches!(self, Self::Engine | Self::Bridge)
    }

    /// What a party needs that [avoids](super::Party::avoiding) it.
    #[must_use]
    pub const fn avoided(self) -> Needs {
        match self {
            Self::SameDevice => Needs::NO_SAME_DEVICE,
            Self::ExternalTimeline => Needs::NO_EXTERNAL_TIMELINE,
            Self::ExternalBinary => Needs::NO_EXTERNAL_BINARY,
            Self::SharedMemory => Needs::NO_SHARED_MEMORY,
            Self::Engine => Needs::NO_ENGINE,
            Self::Bridge => Needs::NO_BRIDGE,
        }
    }

    /// The handle that carries it from one device to another.
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
    /// As in "the timeline is made with *a counter in shared memory*".
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
