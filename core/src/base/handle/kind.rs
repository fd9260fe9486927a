//! The kinds of handle, and how an import of each kind transfers the payload.

use std::fmt;

use crate::base::object::Object;

/// Makes the enum, its list and its names from one list of kinds.
macro_rules! kinds {
    ($(#[$of_all:meta])* pub enum $kinds:ident { $($(#[$of_one:meta])* $kind:ident = $name:literal,)* }) => {
        $(#[$of_all])*
        pub enum $kinds {
            $($(#[$of_one])* $kind,)*
        }

        impl $kinds {
            /// Every kind once, in their order. A slice, because more kinds may be added.
            ///
            /// Processes tell each other a kind by its place here, so a new kind comes last.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The place of this kind in [`ALL`](Self::ALL).
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }

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
        /// A shared memory file that holds a counter: memfd_create(2).
        CounterMemfd = "counter-memfd",
        /// A shared memory file that holds words of data: memfd_create(2).
        WordsMemfd = "words-memfd",
        /// A file descriptor that can be polled, such as an eventfd, a sync file or a pidfd.
        PollableFd = "pollable-fd",
        /// A sync file: one signal of a binary semaphore.
        ///
        /// `VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT`
        SyncFd = "sync-fd",
    }
}

impl HandleKind {
    /// True if the handle does not show what it holds, so that its kind must be believed.
    #[must_use]
    pub const fn is_opaque(self) -> bool {
        match self {
            Self::CounterMemfd | Self::WordsMemfd | Self::PollableFd | Self::SyncFd => false,
            Self::TimelineOpaqueFd | Self::BinaryOpaqueFd | Self::MemoryOpaqueFd => true,
        }
    }
}

impl HandleKind {
    /// What handles of this kind carry, in the plural, such as "timelines".
    #[must_use]
    pub const fn carries(self) -> &'static str {
        match self {
            Self::TimelineOpaqueFd => "timelines",
            Self::BinaryOpaqueFd => "binary semaphores",
            Self::MemoryOpaqueFd => "memory",
            Self::CounterMemfd => "counters",
            Self::WordsMemfd => "words",
            Self::PollableFd => "descriptors",
            Self::SyncFd => "sync files",
        }
    }
}

/// The payload that a binary semaphore has at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// The semaphore's own payload, or a payload that was imported permanently.
    Permanent,
    /// A payload that was imported from a handle of this kind for the next wait.
    ///
    /// When that wait is submitted, the permanent payload is restored unchanged.
    Temporary(HandleKind),
}

/// The use that prevents a binary semaphore's payload from being replaced or exported.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadUse {
    /// It has a temporary payload from a handle of this kind, and no wait has consumed it.
    Temporary(HandleKind),
    /// A recorded submission of this queue signals the semaphore and has not finished.
    Signal(Object),
    /// A recorded submission of this queue waits for the semaphore and has not finished.
    Wait(Object),
}

impl HandleKind {
    /// True if exports and imports of this kind copy the payload (*copy transference*): sync files.
    ///
    /// The copy is one signal that was pending or made. The export has the same effect on the
    /// exporter's payload as a wait, and after it neither side sees changes of the other. With all
    /// other kinds, exporter and importers share one payload (*reference transference*). See
    /// *Importing Semaphore Payloads* in the Vulkan specification, *Synchronization and Cache
    /// Control*.
    #[must_use]
    pub const fn is_copied(self) -> bool {
        match self {
            Self::SyncFd => true,
            Self::TimelineOpaqueFd
            | Self::BinaryOpaqueFd
            | Self::MemoryOpaqueFd
            | Self::CounterMemfd
            | Self::WordsMemfd
            | Self::PollableFd => false,
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
