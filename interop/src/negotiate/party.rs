//! The parties of a negotiation and their needs.

use std::fmt;

use bitflags::bitflags;
use syncline_core::backend::Device;
pub(crate) use syncline_core::error::Process;
use syncline_core::{
    handle::{HandleKind, Origin},
    info::{BackendKind, Info, Uuid},
};

use super::mechanism::Mechanism;

/// Identity of a party: a process and one of its devices, or the threads of that process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartyId {
    /// The process of the party.
    pub process: Process,
    /// [`DeviceId::get`](syncline_core::info::DeviceId::get) in that process, or 0 for its threads.
    pub device: u64,
}

bitflags! {
    /// What a party needs of the synchronization object.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Needs: u32 {
        /// It signals.
        const SIGNAL = 1 << 0;
        /// It waits.
        const WAIT = 1 << 1;
        /// Threads of its process query the value and wait for it, in addition to device queues.
        const HOST_ACCESS = 1 << 2;
        /// It needs the times at which values were reached. So every signaller must write times.
        const TIMESTAMPS = 1 << 3;
        /// It may pass the object to a process that is not known yet.
        const CROSS_PROCESS = 1 << 4;
        /// No signal may go through the host.
        const NATIVE = 1 << 5;
        /// It needs the native object of its device, for waits and signals that it submits itself.
        const RAW = 1 << 6;
        /// It shares memory along with the object.
        const MEMORY = 1 << 7;
        /// The object must be a timeline. That is also the default.
        const TIMELINE = 1 << 8;
        /// The object must be a binary semaphore.
        const BINARY = 1 << 9;
        /// Not by [`Mechanism::SameDevice`].
        const NO_SAME_DEVICE = 1 << 10;
        /// Not by [`Mechanism::ExternalTimeline`].
        const NO_EXTERNAL_TIMELINE = 1 << 11;
        /// Not by [`Mechanism::ExternalBinary`].
        const NO_EXTERNAL_BINARY = 1 << 12;
        /// Not by [`Mechanism::SharedMemory`].
        const NO_SHARED_MEMORY = 1 << 13;
        /// Not by [`Mechanism::Engine`].
        const NO_ENGINE = 1 << 14;
        /// Not by [`Mechanism::Bridge`].
        const NO_BRIDGE = 1 << 15;
    }
}

impl Mechanism {
    /// The need of a party that [avoids](super::Party::avoiding) this mechanism.
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
}

impl Needs {
    /// Each need with its text in plans and conflicts. The text continues a sentence: "it …".
    pub(super) const WORDS: [(Self, &'static str); 16] = [
        (Self::SIGNAL, "signals"),
        (Self::WAIT, "waits"),
        (Self::HOST_ACCESS, "asks for the value on the host"),
        (Self::TIMESTAMPS, "wants to know when a value was reached"),
        (Self::CROSS_PROCESS, "hands it to other processes"),
        (Self::NATIVE, "wants no host in between"),
        (Self::RAW, "wants the device's own object"),
        (Self::MEMORY, "shares memory, too"),
        (Self::TIMELINE, "wants a timeline"),
        (Self::BINARY, "wants a binary semaphore"),
        (Self::NO_SAME_DEVICE, "avoids one device's own objects"),
        (
            Self::NO_EXTERNAL_TIMELINE,
            "avoids external timeline semaphores",
        ),
        (
            Self::NO_EXTERNAL_BINARY,
            "avoids external binary semaphores",
        ),
        (Self::NO_SHARED_MEMORY, "avoids counters in shared memory"),
        (Self::NO_ENGINE, "avoids the engine's own timelines"),
        (Self::NO_BRIDGE, "avoids bridges"),
    ];
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = Self::WORDS.iter().filter(|(need, _)| self.contains(*need));
        let Some((_, first)) = said.next() else {
            return f.write_str("needs nothing");
        };
        f.write_str(first)?;
        said.try_for_each(|(_, words)| write!(f, ", {words}"))
    }
}

/// One party: what it is and what it needs. Plain data that a message can carry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Party {
    pub(crate) id: PartyId,
    /// `None` for threads.
    pub(crate) backend: Option<BackendKind>,
    pub(crate) name: String,
    pub(crate) uuid: Option<Uuid>,
    pub(crate) partition: bool,
    pub(crate) driver_uuid: Option<Uuid>,
    /// Sorted, without duplicates.
    pub(crate) exports: Vec<HandleKind>,
    /// Sorted, without duplicates.
    pub(crate) imports: Vec<HandleKind>,
    pub(crate) timestamps: bool,
    pub(crate) queues: Queues,
    pub(crate) needs: Needs,
}

/// What the queues of a device are, independent of its backend. All false for threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Queues {
    /// [`Capabilities::driver_queues`](syncline_core::info::Capabilities::driver_queues).
    pub(crate) driver: bool,
    /// [`Capabilities::native_timelines`](syncline_core::info::Capabilities::native_timelines).
    pub(crate) native_timelines: bool,
    /// [`Capabilities::binary_semaphores`](syncline_core::info::Capabilities::binary_semaphores).
    pub(crate) binary_semaphores: bool,
}

impl Party {
    /// The party of a device of this process.
    pub fn of<D: Device>(device: &D) -> Self {
        let process = Process::this();
        let id = PartyId {
            process,
            device: device.id().get(),
        };
        Self::described(id, device.info())
    }

    /// The party of a device that `info` describes, in any process.
    #[must_use]
    pub fn described(id: PartyId, info: &Info) -> Self {
        let sorted = |kinds: &[HandleKind]| {
            let mut kinds = kinds.to_vec();
            kinds.sort_unstable();
            kinds.dedup();
            kinds
        };
        let can = &info.capabilities;
        Self {
            id,
            backend: Some(info.backend),
            name: match can.driver_queues {
                true => format!("{} {}", info.backend, info.name),
                false => info.name.clone(),
            },
            uuid: info.uuid,
            partition: info.parent_uuid.is_some(),
            driver_uuid: info.driver_uuid,
            exports: sorted(&can.exports),
            imports: sorted(&can.imports),
            timestamps: can.timestamp_bits > 0,
            queues: Queues {
                driver: can.driver_queues,
                native_timelines: can.native_timelines,
                binary_semaphores: can.binary_semaphores,
            },
            needs: Needs::empty(),
        }
    }

    /// The threads of `process`, without a device.
    #[must_use]
    pub fn threads_of(process: Process) -> Self {
        Self {
            id: PartyId { process, device: 0 },
            backend: None,
            name: "threads".into(),
            uuid: None,
            partition: false,
            driver_uuid: None,
            exports: Vec::new(),
            imports: Vec::new(),
            timestamps: true,
            queues: Queues::default(),
            needs: Needs::empty(),
        }
    }

    /// The threads of this process.
    #[must_use]
    pub fn threads() -> Self {
        Self::threads_of(Process::this())
    }

    /// Adds `needs` to the needs of this party.
    #[must_use]
    pub fn needing(mut self, needs: Needs) -> Self {
        self.needs |= needs;
        self
    }

    /// Adds [`Needs::SIGNAL`].
    #[must_use]
    pub fn signals(self) -> Self {
        self.needing(Needs::SIGNAL)
    }

    /// Adds [`Needs::WAIT`].
    #[must_use]
    pub fn waits(self) -> Self {
        self.needing(Needs::WAIT)
    }

    /// Adds [`Needs::NATIVE`]: no signal may go through the host.
    #[must_use]
    pub fn natively(self) -> Self {
        self.needing(Needs::NATIVE)
    }

    /// Excludes `mechanism`, so that the plan uses the [next best](super::Plan::next_best) one.
    ///
    /// Use this if a driver's implementation of the mechanism is broken, or to find out whether it
    /// is.
    #[must_use]
    pub fn avoiding(self, mechanism: Mechanism) -> Self {
        self.needing(mechanism.avoided())
    }

    /// Removes `needs` from the needs of this party.
    #[must_use]
    pub fn without(mut self, needs: Needs) -> Self {
        self.needs -= needs;
        self
    }

    /// The identity of the party.
    #[must_use]
    pub const fn id(&self) -> PartyId {
        self.id
    }

    /// The needs of the party.
    #[must_use]
    pub const fn needs(&self) -> Needs {
        self.needs
    }

    /// The backend of its device, or `None` for threads.
    #[must_use]
    pub const fn backend(&self) -> Option<BackendKind> {
        self.backend
    }

    /// The name of the device, without its number and process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The origin of handles that its device exports.
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            device: self.name.clone(),
            uuid: self.uuid,
            driver_uuid: self.driver_uuid,
        }
    }

    pub(super) const fn uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    pub(super) const fn driver_uuid(&self) -> Option<Uuid> {
        self.driver_uuid
    }

    pub(super) const fn is_partition(&self) -> bool {
        self.partition
    }

    pub(super) fn exports(&self, kind: HandleKind) -> bool {
        self.exports.contains(&kind)
    }

    pub(super) fn imports(&self, kind: HandleKind) -> bool {
        self.imports.contains(&kind)
    }

    pub(super) const fn writes_times(&self) -> bool {
        self.timestamps
    }

    pub(super) const fn needs_any(&self, needs: Needs) -> bool {
        self.needs.intersects(needs)
    }

    /// True for a device, including a host device. False for threads.
    pub(crate) const fn is_device(&self) -> bool {
        self.backend.is_some()
    }

    /// True for a device with a driver, which has native objects. False for the host.
    pub(crate) const fn is_driven(&self) -> bool {
        self.queues.driver
    }

    /// True if its device makes objects of `kind`, whether or not it exports them.
    pub(super) const fn makes(&self, kind: HandleKind) -> bool {
        match kind {
            HandleKind::TimelineOpaqueFd => self.queues.driver && self.queues.native_timelines,
            HandleKind::BinaryOpaqueFd => self.queues.binary_semaphores,
            _ => false,
        }
    }

    /// True if both are equal apart from their needs.
    pub(super) fn is_described_as(&self, other: &Self) -> bool {
        self.clone().without(Needs::all()) == other.clone().without(Needs::all())
    }

    /// The order of parties in [`Requirements`]: devices with a driver, host devices, threads.
    fn rank(&self) -> impl Ord + '_ {
        (!self.is_driven(), !self.is_device(), self.id, self)
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, id) = (&self.name, self.id);
        match self.backend {
            Some(_) => write!(f, "{name} #{} of {}", id.device, id.process),
            None => write!(f, "any thread of {}", id.process),
        }
    }
}

/// The needs of all parties, as a set.
///
/// Needs that a party states in several places are united. Therefore requirements can be collected
/// from any number of places, in any order and grouping, before the
/// [negotiation](super::negotiate).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirements {
    parties: Vec<Party>,
    /// Pairs of processes that have an endpoint to each other, sorted, without duplicates. Empty if
    /// no process has reported its endpoints.
    links: Vec<(Process, Process)>,
}

impl Requirements {
    /// Requirements without parties.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            parties: Vec::new(),
            links: Vec::new(),
        }
    }

    /// The union of both sets.
    #[must_use]
    pub fn and(mut self, others: impl Into<Self>) -> Self {
        let others: Self = others.into();
        for party in others.parties {
            self.add(party);
        }
        let links = others.links.into_iter();
        links.fold(self, |all, (one, other)| all.linked(one, other))
    }

    /// Adds that two processes have an endpoint to each other.
    pub(crate) fn linked(mut self, one: Process, other: Process) -> Self {
        let link = (one.min(other), one.max(other));
        if let Err(at) = self.links.binary_search(&link) {
            self.links.insert(at, link);
        }
        self
    }

    /// Removes the endpoints between processes other than `process`.
    pub(crate) fn keep_links_of(&mut self, process: Process) {
        self.links
            .retain(|(one, other)| [*one, *other].contains(&process));
    }

    /// The reported pairs of processes that have an endpoint to each other.
    pub(crate) fn links(&self) -> &[(Process, Process)] {
        &self.links
    }

    /// The processes of the parties without a reported endpoint to `process`. Empty if no process
    /// has reported its endpoints.
    pub(super) fn lacks(&self, process: Process) -> Vec<Process> {
        let has = |other: Process| {
            let link = (process.min(other), process.max(other));
            process == other || self.links.binary_search(&link).is_ok()
        };
        let mut lacks: Vec<_> = self.parties.iter().map(|party| party.id.process).collect();
        lacks.retain(|&other| !self.links.is_empty() && !has(other));
        lacks.sort_unstable();
        lacks.dedup();
        lacks
    }

    fn add(&mut self, party: Party) {
        // A party with two different descriptions is kept twice. `clashes` reports that.
        let mut parties = self.parties.iter_mut();
        if let Some(same) = parties.find(|other| other.is_described_as(&party)) {
            same.needs |= party.needs;
        } else {
            self.parties.push(party);
        }
        self.parties.sort_by(|a, b| a.rank().cmp(&b.rank()));
    }

    /// The parties, in an order that does not depend on the order in which they were added.
    #[must_use]
    pub fn parties(&self) -> &[Party] {
        &self.parties
    }

    /// The same requirements, with `needs` removed from the party `of`.
    pub(super) fn without(&self, of: PartyId, needs: Needs) -> Self {
        let parties = self.parties.iter().cloned();
        let eased = |party: Party| match party.id == of {
            true => party.without(needs),
            false => party,
        };
        Self {
            links: self.links.clone(),
            ..parties.map(eased).collect()
        }
    }
}

impl From<Party> for Requirements {
    fn from(party: Party) -> Self {
        Self {
            parties: vec![party],
            links: Vec::new(),
        }
    }
}

impl FromIterator<Party> for Requirements {
    fn from_iter<I: IntoIterator<Item = Party>>(parties: I) -> Self {
        let mut all = Self::new();
        parties.into_iter().for_each(|party| all.add(party));
        all
    }
}

impl<const N: usize> From<[Party; N]> for Requirements {
    fn from(parties: [Party; N]) -> Self {
        parties.into_iter().collect()
    }
}
