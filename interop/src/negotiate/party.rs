//! Who takes part, and what each party needs.

use std::fmt;

use bitflags::bitflags;
pub use syncline_core::Process;
use syncline_core::backend::Device as _;
use syncline_core::{BackendKind, HandleKind, Info, Origin, Uuid};

use super::Mechanism;
use crate::any::Device;

/// Which party that is: a process, and its number for one of its devices, or 0 for its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartyId {
    /// Where it lives.
    pub process: Process,
    /// [`DeviceId::get`](syncline_core::DeviceId::get) there; 0: no device, but the threads of the process.
    pub device: u64,
}

bitflags! {
    /// What a party needs of the object that is to be made.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Needs: u32 {
        /// It signals.
        const SIGNAL = 1 << 0;
        /// It waits.
        const WAIT = 1 << 1;
        /// Threads of its process ask for the value, and wait for it, beside the device's queues.
        const HOST_ACCESS = 1 << 2;
        /// It wants to know when a value was reached: so whoever signals has to write times.
        const TIMESTAMPS = 1 << 3;
        /// It may have to be handed to a process that is not known yet.
        const CROSS_PROCESS = 1 << 4;
        /// No signal may go through the host.
        const NATIVE = 1 << 5;
        /// It wants its device's own object in its hands, for waits and signals that it submits itself.
        const RAW = 1 << 6;
        /// Memory is to travel along.
        const MEMORY = 1 << 7;
        /// It has to be a timeline. So it is, too, where nobody asks for anything.
        const TIMELINE = 1 << 8;
        /// It has to be a binary semaphore.
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

impl Needs {
    /// Each need, in the words that plans and conflicts use: "it …".
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

/// One party: what it is, and what it needs. Plain data, which a message can carry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Party {
    pub(crate) id: PartyId,
    /// `None`: threads, and no device.
    pub(crate) backend: Option<BackendKind>,
    pub(crate) name: String,
    pub(crate) uuid: Option<Uuid>,
    pub(crate) partition: bool,
    pub(crate) driver_uuid: Option<Uuid>,
    /// Sorted, and each once.
    pub(crate) exports: Vec<HandleKind>,
    /// Sorted, and each once.
    pub(crate) imports: Vec<HandleKind>,
    pub(crate) timestamps: bool,
    pub(crate) needs: Needs,
}

impl Party {
    /// A device of this process.
    pub fn of<D: Clone + Into<Device>>(device: &D) -> Self {
        let device = device.clone().into();
        let process = Process::this();
        let id = PartyId {
            process,
            device: device.id().get(),
        };
        Self::described(id, device.info())
    }

    /// A device that `info` describes, in this process or another.
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
            name: match info.backend {
                BackendKind::Host => info.name.clone(),
                backend => format!("{backend} {}", info.name),
            },
            uuid: info.uuid,
            partition: info.parent_uuid.is_some(),
            driver_uuid: info.driver_uuid,
            exports: sorted(&can.exports),
            imports: sorted(&can.imports),
            timestamps: can.timestamp_bits > 0,
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
            needs: Needs::empty(),
        }
    }

    /// The threads of this process.
    #[must_use]
    pub fn threads() -> Self {
        Self::threads_of(Process::this())
    }

    /// It needs these, too.
    #[must_use]
    pub fn needing(mut self, needs: Needs) -> Self {
        self.needs |= needs;
        self
    }

    /// It signals: [`Needs::SIGNAL`].
    #[must_use]
    pub fn signals(self) -> Self {
        self.needing(Needs::SIGNAL)
    }

    /// It waits: [`Needs::WAIT`].
    #[must_use]
    pub fn waits(self) -> Self {
        self.needing(Needs::WAIT)
    }

    /// No signal may go through the host: [`Needs::NATIVE`].
    #[must_use]
    pub fn natively(self) -> Self {
        self.needing(Needs::NATIVE)
    }

    /// It takes part in nothing that goes by `mechanism`, say because a driver's is known to be broken, or to see whether what hangs hangs without it: what
    /// would be [next best](super::Plan::next_best) is done then.
    #[must_use]
    pub fn avoiding(self, mechanism: Mechanism) -> Self {
        self.needing(mechanism.avoided())
    }

    /// The same party without some of its needs.
    #[must_use]
    pub fn without(mut self, needs: Needs) -> Self {
        self.needs -= needs;
        self
    }

    /// Which party it is.
    #[must_use]
    pub const fn id(&self) -> PartyId {
        self.id
    }

    /// What it needs.
    #[must_use]
    pub const fn needs(&self) -> Needs {
        self.needs
    }

    /// The API of its device; `None` for threads.
    #[must_use]
    pub const fn backend(&self) -> Option<BackendKind> {
        self.backend
    }

    /// The device, without its process.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What handles that its device exports say of themselves.
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

    /// True for queues: of a GPU, or of the host's workers.
    pub(crate) const fn is_device(&self) -> bool {
        self.backend.is_some()
    }

    /// True for what lies behind a driver, where native objects are.
    pub(crate) fn is_driven(&self) -> bool {
        !matches!(self.backend, None | Some(BackendKind::Host))
    }

    /// What stands beside its id, for two that claim to be the same party.
    pub(super) fn is_described_as(&self, other: &Self) -> bool {
        self.clone().without(Needs::all()) == other.clone().without(Needs::all())
    }

    /// Where it comes in every list: what lies behind a driver first, and nothing depends on who named it when.
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

/// What all parties need: a set, whichever way it has come together.
///
/// What one party says in several places counts as said in one. Sets of sets are the same set, so requirements can be collected
/// from any number of places, in any order, before anybody [negotiates](super::negotiate).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirements {
    parties: Vec<Party>,
    /// Which processes have an endpoint to each other, each pair once and in order. Empty if nobody has told.
    links: Vec<(Process, Process)>,
}

impl Requirements {
    /// Nobody's.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            parties: Vec::new(),
            links: Vec::new(),
        }
    }

    /// These and those.
    #[must_use]
    pub fn and(mut self, others: impl Into<Self>) -> Self {
        let others: Self = others.into();
        for party in others.parties {
            self.add(party);
        }
        let links = others.links.into_iter();
        links.fold(self, |all, (one, other)| all.linked(one, other))
    }

    /// These two processes have an endpoint to each other.
    pub(crate) fn linked(mut self, one: Process, other: Process) -> Self {
        let link = (one.min(other), one.max(other));
        if let Err(at) = self.links.binary_search(&link) {
            self.links.insert(at, link);
        }
        self
    }

    /// Forgets which other processes have an endpoint to each other.
    pub(crate) fn keep_links_of(&mut self, process: Process) {
        self.links
            .retain(|(one, other)| [*one, *other].contains(&process));
    }

    /// Which processes have an endpoint to each other, as far as they have told.
    pub(crate) fn links(&self) -> &[(Process, Process)] {
        &self.links
    }

    /// The processes of the parties to which `process` has told of no endpoint, nor they of one to it. None if nobody has told who has one.
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
        // One that is described in two ways stands here twice, so that it shows.
        let mut known = self.parties.iter_mut();
        if let Some(same) = known.find(|known| known.is_described_as(&party)) {
            same.needs |= party.needs;
        } else {
            self.parties.push(party);
        }
        self.parties.sort_by(|a, b| a.rank().cmp(&b.rank()));
    }

    /// The parties, each once, in an order that does not depend on how they came.
    #[must_use]
    pub fn parties(&self) -> &[Party] {
        &self.parties
    }

    /// The same parties, one of them without some of its needs.
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
