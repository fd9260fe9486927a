//! The kinds of handle, and what each does with a semaphore's payload.

use std::fmt;

use crate::base::error::Object;

/// The enum, its list and its names, from one list of kinds: none can be forgotten in one of them.
macro_rules! kinds {
    ($(#[$of_all:meta])* pub enum $kinds:ident { $($(#[$of_one:meta])* $kind:ident = $name:literal,)* }) => {
        $(#[$of_all])*
        pub enum $kinds {
            $($(#[$of_one])* $kind,)*
        }

        impl $kinds {
            /// Every kind, each once, in their own order: a slice, as more may come.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The name that reports use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// The kinds of handle that carry a semaphore or memory between APIs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum HandleKind {
        /// An opaque file descriptor holding a timeline semaphore.
        TimelineOpaqueFd = "timeline-opaque-fd",
        /// An opaque file descriptor holding a binary semaphore.
        BinaryOpaqueFd = "binary-opaque-fd",
        /// An opaque file descriptor holding device memory.
        MemoryOpaqueFd = "memory-opaque-fd",
        /// A file of shared memory that holds a counter: memfd_create(2).
        CounterMemfd = "counter-memfd",
        /// A file of shared memory that holds words of data: memfd_create(2).
        WordsMemfd = "words-memfd",
        /// A file descriptor that can be polled: an eventfd, a sync file, a pidfd and the like.
        PollableFd = "pollable-fd",
        /// A sync file, which holds one signal of a binary semaphore: `VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT`.
        SyncFd = "sync-fd",
        /// An NT handle of Windows holding a timeline semaphore: `VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_BIT`.
        TimelineOpaqueWin32 = "timeline-opaque-win32",
        /// An NT handle of Windows holding a binary semaphore.
        BinaryOpaqueWin32 = "binary-opaque-win32",
        /// A global share handle of Windows holding a timeline semaphore: `VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT_BIT`.
        TimelineOpaqueWin32Kmt = "timeline-opaque-win32-kmt",
        /// A global share handle of Windows holding a binary semaphore.
        BinaryOpaqueWin32Kmt = "binary-opaque-win32-kmt",
        /// An NT handle of Windows holding a fence of Direct3D 12: `VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE_BIT`.
        D3d12Fence = "d3d12-fence",
    }
}

/// What an importer gets of the payload that a handle holds.
///
/// See *Importing Semaphore Payloads* in the Vulkan specification, *Synchronization and Cache Control*.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transference {
    /// The payload itself: whatever anyone who has it signals or waits for afterwards shows to all, however many handles were
    /// exported before or after it.
    Reference,
    /// The payload as it was at the export: one signal, which was pending then or had been made. The exporter's own payload is what it would
    /// be after a wait, and nothing that happens to either side afterwards shows on the other.
    Copy,
}

/// Which payload a binary semaphore has at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// Its own, or the one that it was imported with.
    Permanent,
    /// One that was imported from a handle of this kind for the next wait. Once that wait is submitted, the semaphore has its permanent
    /// payload back, as that was.
    Temporary(HandleKind),
}

/// What keeps a binary semaphore's payload from being replaced or given away.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadUse {
    /// A temporary payload is there, from a handle of this kind, and no wait has consumed it yet.
    Temporary(HandleKind),
    /// A submission of this queue that signals it has been recorded, and has not finished.
    Signal(Object),
    /// A submission of this queue that waits for it has been recorded, and has not finished.
    Wait(Object),
}

impl HandleKind {
    /// What an importer gets: of all kinds but sync files the object itself.
    #[must_use]
    pub const fn transference(self) -> Transference {
        match self {
            Self::SyncFd => Transference::Copy,
            Self::TimelineOpaqueFd
            | Self::BinaryOpaqueFd
            | Self::MemoryOpaqueFd
            | Self::CounterMemfd
            | Self::WordsMemfd
            | Self::PollableFd
            | Self::TimelineOpaqueWin32
            | Self::BinaryOpaqueWin32
            | Self::TimelineOpaqueWin32Kmt
            | Self::BinaryOpaqueWin32Kmt
            | Self::D3d12Fence => Transference::Reference,
        }
    }

    /// True if such handles exist on Windows alone. Everywhere else they can be named, and every device refuses them.
    #[must_use]
    pub const fn is_of_windows(self) -> bool {
        match self {
            Self::TimelineOpaqueWin32
            | Self::BinaryOpaqueWin32
            | Self::TimelineOpaqueWin32Kmt
            | Self::BinaryOpaqueWin32Kmt
            | Self::D3d12Fence => true,
            Self::TimelineOpaqueFd
            | Self::BinaryOpaqueFd
            | Self::MemoryOpaqueFd
            | Self::CounterMemfd
            | Self::WordsMemfd
            | Self::PollableFd
            | Self::SyncFd => false,
        }
    }
}

impl fmt::Display for HandleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for PayloadUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Temporary(kind) => write!(
                f,
                "it has a temporary payload already ({kind}), which no wait has consumed yet"
            ),
            Self::Signal(queue) => {
                write!(
                    f,
                    "a submission of {queue} that signals it has not finished"
                )
            }
            Self::Wait(queue) => {
                write!(
                    f,
                    "a submission of {queue} that waits for it has not finished"
                )
            }
        }
    }
}
