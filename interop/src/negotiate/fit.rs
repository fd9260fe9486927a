//! Decides which mechanism serves given parties, and why the other mechanisms do not.

use syncline_core::handle::HandleKind;

use super::mechanism::Mechanism;
use super::party::{Needs, Party, Process, Requirements};

/// How a mechanism serves all parties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fit {
    /// Index of the party whose device makes the object. See [`Plan::home`](super::Plan::home).
    pub(super) home: usize,
    /// Why the mechanism serves all parties, as text. Processes compare a digest of this text (see
    /// `process::agree`), so changing it makes versions of this library incompatible.
    pub(super) why: String,
}

/// Reasons against a mechanism, as text.
type Obstacles = Vec<String>;

/// Obstacles that exclude every mechanism.
pub(super) fn clashes(all: &Requirements) -> Obstacles {
    let parties = all.parties();
    let asking = |needs: Needs| -> Vec<&Party> {
        let asking = parties.iter().filter(|party| party.needs_any(needs));
        asking.collect()
    };
    let mut clashes = Obstacles::new();
    if parties.is_empty() {
        clashes.push("there is no party".into());
        return clashes;
    }
    for (at, party) in parties.iter().enumerate() {
        if let Some(other) = parties[..at].iter().find(|p| p.id() == party.id()) {
            let reason = format!("one party is described in two ways: as {other} and as {party}");
            clashes.push(reason);
        }
    }
    let signallers = asking(Needs::SIGNAL);
    if signallers.is_empty() {
        clashes.push("no party signals".into());
    }
    if asking(Needs::WAIT | Needs::HOST_ACCESS).is_empty() {
        clashes.push("no party waits or asks for the value".into());
    }
    let doing = Needs::SIGNAL | Needs::WAIT | Needs::HOST_ACCESS;
    for idle in parties.iter().filter(|party| !party.needs_any(doing)) {
        let reason = format!("{idle} does not say whether it signals, waits or asks on the host");
        clashes.push(reason);
    }
    let (timelines, binaries) = (asking(Needs::TIMELINE), asking(Needs::BINARY));
    if let (Some(timeline), Some(binary)) = (timelines.first(), binaries.first()) {
        let reason = format!(
            "{timeline} wants a timeline, and {binary} a binary semaphore: make one of each"
        );
        clashes.push(reason);
    }
    if let Some(asks) = asking(Needs::TIMESTAMPS).first() {
        for silent in signallers.iter().filter(|party| !party.writes_times()) {
            let reason = format!(
                "{asks} wants to know when values were reached, and {silent}, which signals, writes no times"
            );
            clashes.push(reason);
        }
    }
    if let Some(first) = signallers.first()
        && let Some(other) = elsewhere(&signallers, first)
    {
        let reason = format!(
            "{first} and {other} both signal, but only one process may signal across processes; make one timeline for each direction"
        );
        clashes.push(reason);
    }
    if !parties.iter().any(|party| reaches_all(all, party)) {
        let mut processes: Vec<_> = parties.iter().map(|party| party.id().process).collect();
        processes.sort_unstable();
        processes.dedup();
        let lacking = processes
            .iter()
            .map(|process| missing_endpoints(all, *process));
        let reason = format!(
            "no process can send it to all others: {}",
            lacking.collect::<Vec<_>>().join("; ")
        );
        clashes.push(reason);
    }
    clashes
}

/// True if the process of `party` can send the object to each other process of the parties.
///
/// It needs an endpoint to each of them.
fn reaches_all(all: &Requirements, party: &Party) -> bool {
    all.lacks(party.id().process).is_empty()
}

/// A text that names the processes to which `process` has no known endpoint.
fn missing_endpoints(all: &Requirements, process: Process) -> String {
    let lacks = all.lacks(process);
    let names: Vec<_> = lacks.iter().map(ToString::to_string).collect();
    format!(
        "{process} has reported no endpoint to {}",
        names.join(" and ")
    )
}

/// The first party that is in a different process than `than`.
fn elsewhere<'p>(parties: &[&'p Party], than: &Party) -> Option<&'p Party> {
    let mut parties = parties.iter();
    parties
        .find(|party| party.id().process != than.id().process)
        .copied()
}

/// All mechanisms, in the order in which they are tried.
pub(super) fn by_preference(all: &Requirements) -> [Mechanism; Mechanism::ALL.len()] {
    let mut order = Mechanism::ALL;
    let driven = all.parties().iter().filter(|p| p.is_driven()).count();
    let stays = !all.parties().is_empty() && !leaves(all.parties());
    if stays && driven < 2 {
        // The host sees a value in memory no earlier than an event, and a stream records an event
        // at a fifth of the cost of a memory write.
        let memory = order.iter().position(|m| *m == Mechanism::SharedMemory);
        let engine = order.iter().position(|m| *m == Mechanism::Engine);
        if let (Some(memory), Some(engine)) = (memory, engine) {
            order.swap(memory, engine);
        }
    }
    order
}

impl Mechanism {
    /// How the mechanism serves all parties, or all obstacles. Call only if there are no
    /// [`clashes`].
    pub(super) fn fit(self, all: &Requirements) -> Result<Fit, Obstacles> {
        let parties = all.parties();
        let mut obstacles = Obstacles::new();
        let binary = parties.iter().find(|p| p.needs_any(Needs::BINARY));
        match (binary, self) {
            (None, Self::ExternalBinary) => {
                obstacles.push("no party wants a binary semaphore".into());
            }
            (
                Some(binary),
                Self::SharedMemory | Self::ExternalTimeline | Self::Engine | Self::Bridge,
            ) => {
                let reason = format!("it is a timeline, and {binary} wants a binary semaphore");
                obstacles.push(reason);
            }
            _ => {}
        }
        if !self.is_native() {
            for party in parties.iter().filter(|p| p.needs_any(Needs::NATIVE)) {
                let reason = format!("{party} wants no host in between");
                obstacles.push(reason);
            }
        }
        for party in parties.iter().filter(|p| p.needs_any(self.avoided())) {
            obstacles.push(format!("{party} avoids it"));
        }
        let fit = match self {
            Self::SameDevice => same_device(all, binary.is_some()),
            Self::ExternalTimeline => external(all, HandleKind::TimelineOpaqueFd),
            Self::ExternalBinary => external(all, HandleKind::BinaryOpaqueFd)
                .and_then(|fit| one_to_one(parties).map(|()| fit)),
            Self::SharedMemory => shared_memory(all),
            Self::Engine => engine(all),
            Self::Bridge => bridge(all),
        };
        match fit {
            Ok(fit) if obstacles.is_empty() => Ok(fit),
            Ok(_) => Err(obstacles),
            Err(further) => {
                obstacles.extend(further);
                Err(obstacles)
            }
        }
    }
}

/// The home if any device can make the object: the first device that signals.
///
/// Signals of the home have the shortest way. Only a process that can send the object to all others
/// is considered.
fn first_signaller(all: &Requirements) -> usize {
    let first = |fits: fn(&Party) -> bool| {
        let mut parties = all.parties().iter();
        parties.position(|party| reaches_all(all, party) && fits(party))
    };
    first(|party| party.is_device() && party.needs_any(Needs::SIGNAL))
        .or_else(|| first(Party::is_device))
        .or_else(|| first(|_| true))
        .unwrap_or(0)
}

fn require(fits: bool, reason: impl FnOnce() -> String) -> Result<(), Obstacles> {
    if fits { Ok(()) } else { Err(vec![reason()]) }
}

/// Requires that all parties are in one process and none passes the object to another process.
fn in_one_process(parties: &[Party], what: &str) -> Result<(), Obstacles> {
    let all: Vec<&Party> = parties.iter().collect();
    if let Some(other) = elsewhere(&all, &parties[0]) {
        let first = &parties[0];
        let reason =
            format!("{what} stays in its process, and {first} and {other} are in different ones");
        return Err(vec![reason]);
    }
    let leaving = parties.iter().find(|p| p.needs_any(Needs::CROSS_PROCESS));
    leaving.map_or(Ok(()), |party| {
        let reason = format!("{what} stays in its process, and {party} hands it to others");
        Err(vec![reason])
    })
}

fn same_device(all: &Requirements, binary: bool) -> Result<Fit, Obstacles> {
    let parties = all.parties();
    in_one_process(parties, "a device's own object")?;
    let devices: Vec<_> = parties.iter().filter(|p| p.is_device()).collect();
    if let [first, second, ..] = devices[..] {
        let reason = format!("{first} and {second} are two devices");
        return Err(vec![reason]);
    }
    if binary {
        let makes = devices
            .first()
            .filter(|p| p.makes(HandleKind::BinaryOpaqueFd));
        require(makes.is_some(), || match devices.first() {
            Some(device) => format!("{device} makes no binary semaphores"),
            None => "threads make no binary semaphores".into(),
        })?;
        one_to_one(parties)?;
    }
    let why = match devices.first() {
        Some(_) => "both sides are one device",
        None => "all sides are threads of one process",
    };
    Ok(Fit {
        home: first_signaller(all),
        why: why.into(),
    })
}

/// Requires one signalling device and one waiting device, as each signal serves only one wait.
fn one_to_one(parties: &[Party]) -> Result<(), Obstacles> {
    let mut obstacles = Obstacles::new();
    for (need, verb) in [(Needs::SIGNAL, "signal"), (Needs::WAIT, "wait for")] {
        let doing: Vec<_> = parties.iter().filter(|p| p.needs_any(need)).collect();
        if let [first, second, ..] = doing[..] {
            let reason = format!(
                "only one party may {verb} a binary semaphore, and {first} and {second} do"
            );
            obstacles.push(reason);
        }
    }
    for party in parties {
        if party.needs_any(Needs::TIMESTAMPS) {
            let reason = format!("a binary semaphore has no times, and {party} asks for them");
            obstacles.push(reason);
        }
        if party.needs_any(Needs::HOST_ACCESS)
            || (!party.is_driven() && party.needs_any(Needs::SIGNAL | Needs::WAIT))
        {
            let reason = format!(
                "the host can neither signal a binary semaphore nor ask it, and {party} would have to"
            );
            obstacles.push(reason);
        }
    }
    if obstacles.is_empty() {
        Ok(())
    } else {
        Err(obstacles)
    }
}

/// A semaphore that one device exports and every other device with a driver imports.
fn external(all: &Requirements, kind: HandleKind) -> Result<Fit, Obstacles> {
    let parties = all.parties();
    let driven: Vec<_> = parties.iter().filter(|p| p.is_driven()).collect();
    let leaves = leaves(parties);
    let what = kind.carries();
    let workers = parties.iter().find(|p| p.is_device() && !p.is_driven());
    let native = parties.iter().any(|p| p.needs_any(Needs::NATIVE));
    if workers.is_some() && (native || driven.len() < 2) {
        let others: Vec<_> = parties.iter().filter(|p| p.is_device()).collect();
        return Err(vec![no_common_handle(&others)]);
    }
    let importing = |party: &Party| driven.iter().any(|p| p.id().process == party.id().process);
    if let Some(without) = parties.iter().find(|party| !importing(party)) {
        let process = without.id().process;
        let reason = format!("no party of {process} is a device that could import it");
        return Err(vec![reason]);
    }
    if !leaves && driven.len() < 2 {
        return Err(vec!["it needs two devices, each with a driver".into()]);
    }
    let exporters = || driven.iter().filter(|p| p.makes(kind));
    if exporters().next().is_none() {
        return Err(vec![no_common_handle(&driven)]);
    }
    // A device that signals is preferred as the exporter.
    let (signalling, other): (Vec<_>, Vec<_>) = exporters()
        .copied()
        .partition(|p| p.needs_any(Needs::SIGNAL));
    // If no exporter fits, report the exporter with the fewest obstacles.
    let mut nearest: Option<Obstacles> = None;
    for exporter in signalling.into_iter().chain(other) {
        let mut obstacles = Obstacles::new();
        if !reaches_all(all, exporter) {
            let reason = format!(
                "{exporter} would export it, and {}",
                missing_endpoints(all, exporter.id().process)
            );
            obstacles.push(reason);
        }
        if !exporter.exports(kind) {
            let reason = format!("{exporter} exports no {what}");
            obstacles.push(reason);
        }
        let memory = parties.iter().any(|p| p.needs_any(Needs::MEMORY));
        if memory && !exporter.exports(HandleKind::MemoryOpaqueFd) {
            let reason = format!("{exporter} exports no memory");
            obstacles.push(reason);
        }
        for importer in driven.iter().filter(|p| p.id() != exporter.id()) {
            obstacles.extend(import_obstacles(exporter, importer, kind, what));
        }
        if kind == HandleKind::TimelineOpaqueFd {
            obstacles.extend(blind_signaller(exporter, parties, &driven));
        }
        if obstacles.is_empty() {
            let home = parties.iter().position(|p| p.id() == exporter.id());
            let gpu = gpu(exporter);
            let why = match driven.len() {
                1 => format!("it leaves {gpu} as a handle"),
                2 => format!("both are {gpu}"),
                _ => format!("all are {gpu}"),
            };
            return Ok(Fit {
                home: home.unwrap_or(0),
                why,
            });
        }
        if nearest
            .as_ref()
            .is_none_or(|nearest| obstacles.len() < nearest.len())
        {
            nearest = Some(obstacles);
        }
    }
    Err(nearest.unwrap_or_default())
}

/// The obstacle that a signalling process cannot read the value of the timeline.
///
/// A device with native timelines, such as a Vulkan device, can query the semaphore. Any other
/// device knows only its own signals. So a process other than the exporter's, with several devices,
/// needs a device that can query it.
fn blind_signaller(exporter: &Party, parties: &[Party], driven: &[&Party]) -> Option<String> {
    let signaller = parties.iter().find(|p| p.needs_any(Needs::SIGNAL))?;
    let process = signaller.id().process;
    let there = driven.iter().copied();
    let there: Vec<_> = there.filter(|p| p.id().process == process).collect();
    let asks = |p: &&Party| p.makes(HandleKind::TimelineOpaqueFd);
    if process == exporter.id().process || there.len() < 2 || there.iter().any(asks) {
        return None;
    }
    let names: Vec<_> = there.iter().map(ToString::to_string).collect();
    let reason = format!(
        "{signaller} signals, but no device of {process} can read the value of the timeline: use only one of {}, or add a Vulkan device",
        enumerate(&names)
    );
    Some(reason)
}

/// True if more than one process has the object, or may have it later.
pub(super) fn leaves(parties: &[Party]) -> bool {
    let first = parties[0].id().process;
    let goes = |party: &Party| party.id().process != first || party.needs_any(Needs::CROSS_PROCESS);
    parties.iter().any(goes)
}

/// The obstacles between a semaphore of `exporter` and its import by `importer`.
fn import_obstacles(exporter: &Party, importer: &Party, kind: HandleKind, what: &str) -> Obstacles {
    let mut obstacles = Obstacles::new();
    let mut add = |reason: String| obstacles.push(reason);
    if exporter.uuid().is_none() || exporter.uuid() != importer.uuid() {
        add(different_gpus(exporter, importer));
        return obstacles;
    }
    if let (Some(ours), Some(theirs)) = (exporter.driver_uuid(), importer.driver_uuid())
        && ours != theirs
    {
        add(format!(
            "they run under different drivers: {exporter} under {ours}, and {importer} under {theirs}"
        ));
    }
    if importer.is_partition() {
        add(format!(
            "{importer} is a partition, which Vulkan cannot reach"
        ));
    }
    if !importer.imports(kind) {
        add(format!("{importer} imports no {what}"));
    }
    let memory = [exporter, importer]
        .iter()
        .any(|p| p.needs_any(Needs::MEMORY));
    if memory && !importer.imports(HandleKind::MemoryOpaqueFd) {
        add(format!("{importer} imports no memory"));
    }
    obstacles
}

fn shared_memory(all: &Requirements) -> Result<Fit, Obstacles> {
    let parties = all.parties();
    let kind = HandleKind::CounterMemfd;
    let mut obstacles = Obstacles::new();
    for party in parties.iter().filter(|p| p.is_device() && !p.imports(kind)) {
        let reason = match party.is_driven() {
            true => format!("no queue of {party} waits for memory"),
            false => format!("{party} takes no counter in shared memory"),
        };
        obstacles.push(reason);
    }
    let exporter = match memory_exporter(all) {
        Ok(exporter) => exporter,
        Err(further) => {
            obstacles.extend(further);
            None
        }
    };
    let two = parties.iter().filter(|p| p.is_device()).count() > 1 || leaves(parties);
    if !two {
        obstacles.push("there is no other party to share it with".into());
    }
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    // The home's device makes the memory, if some goes with the counter. Otherwise the host makes
    // the counter if it is a party.
    let mut hosts = parties.iter();
    let host = hosts.position(|party| !party.is_driven() && reaches_all(all, party));
    Ok(Fit {
        home: exporter.or(host).unwrap_or_else(|| first_signaller(all)),
        why: "every queue that takes part waits for memory".into(),
    })
}

fn engine(all: &Requirements) -> Result<Fit, Obstacles> {
    let parties = all.parties();
    in_one_process(parties, "the engine's timeline")?;
    let raw = |party: &&Party| party.needs_any(Needs::RAW) && party.is_driven();
    let wanting: Vec<_> = parties.iter().filter(raw).collect();
    if let [first, second, ..] = wanting[..] {
        let reason = format!(
            "its timeline is one device's own, and {first} and {second} each want their own"
        );
        return Err(vec![reason]);
    }
    let home = parties.iter().position(|party| raw(&party));
    Ok(Fit {
        home: home.unwrap_or_else(|| first_signaller(all)),
        why: "it holds every wait that is not on the device itself".into(),
    })
}

fn bridge(all: &Requirements) -> Result<Fit, Obstacles> {
    let parties = all.parties();
    memory_stays(parties)?;
    let devices: Vec<_> = parties.iter().filter(|p| p.is_device()).collect();
    // Threads of a process without a device are a side of the bridge, too.
    let without = |party: &&Party| {
        let process = party.id().process;
        !party.is_device() && devices.iter().all(|p| p.id().process != process)
    };
    let others = parties.iter().filter(without).count();
    require(devices.len() + others > 1, || {
        "a bridge needs at least two sides".into()
    })?;
    Ok(Fit {
        home: first_signaller(all),
        why: "each device has a timeline of its own, whatever lies under it".into(),
    })
}

/// The index of the party whose device makes the memory that goes to other processes.
///
/// `None` if none goes there. A device that shares memory itself is preferred, then one that
/// signals.
fn memory_exporter(all: &Requirements) -> Result<Option<usize>, Obstacles> {
    let parties = all.parties();
    let Err(none) = memory_stays(parties) else {
        return Ok(None);
    };
    let exports = |party: &&Party| {
        party.is_driven() && party.exports(HandleKind::MemoryOpaqueFd) && reaches_all(all, party)
    };
    let mut exporters: Vec<_> = parties.iter().filter(exports).collect();
    exporters.sort_by_key(|party| {
        let lacks = |needs| !party.needs_any(needs);
        (lacks(Needs::MEMORY), lacks(Needs::SIGNAL))
    });
    let mut nearest = None;
    for exporter in exporters {
        let importers = parties
            .iter()
            .filter(|party| party.needs_any(Needs::MEMORY) && party.id() != exporter.id());
        let obstacles: Obstacles = importers
            .flat_map(|importer| memory_obstacles(exporter, importer))
            .collect();
        if obstacles.is_empty() {
            return Ok(parties.iter().position(|p| p.id() == exporter.id()));
        }
        nearest.get_or_insert(obstacles);
    }
    Err(nearest.unwrap_or(none))
}

/// The obstacles between memory of `exporter` and its import by `importer`.
pub(crate) fn memory_obstacles(exporter: &Party, importer: &Party) -> Obstacles {
    let add = |reason| vec![reason];
    if !exporter.exports(HandleKind::MemoryOpaqueFd) {
        add(format!("{exporter} exports no memory"))
    } else if !importer.imports(HandleKind::MemoryOpaqueFd) {
        add(format!("{importer} imports no memory"))
    } else if exporter.uuid().is_none() || exporter.uuid() != importer.uuid() {
        add(different_gpus(exporter, importer))
    } else {
        Obstacles::new()
    }
}

/// Requires that no party shares device memory if the object may go to another process.
fn memory_stays(parties: &[Party]) -> Result<(), Obstacles> {
    let shares = |party: &&Party| party.needs_any(Needs::MEMORY) && leaves(parties);
    parties.iter().find(shares).map_or(Ok(()), |party| {
        let reason =
            format!("no device memory goes to another process with it, and {party} shares some");
        Err(vec![reason])
    })
}

fn no_common_handle(parties: &[&Party]) -> String {
    let mut backends: Vec<_> = parties.iter().filter_map(|p| p.backend()).collect();
    backends.sort_unstable();
    let count = backends.len();
    backends.dedup();
    match (&backends[..], count) {
        ([backend], 1) => format!("a {backend} device has no handle to export"),
        ([backend], 2) => format!("two {backend} devices share no native timeline"),
        ([backend], _) => format!("{count} {backend} devices share no native timeline"),
        _ => {
            let names: Vec<_> = backends.iter().map(ToString::to_string).collect();
            format!("{} have no handle in common", enumerate(&names))
        }
    }
}

/// Joins names as "a", "a and b", or "a, b and c".
fn enumerate(names: &[String]) -> String {
    match names {
        [names @ .., last] if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        _ => names.concat(),
    }
}

fn different_gpus(exporter: &Party, importer: &Party) -> String {
    format!(
        "they are different GPUs: {importer} is {}, and {exporter} is {}",
        gpu(importer),
        gpu(exporter)
    )
}

fn gpu(party: &Party) -> String {
    let uuid = party.uuid();
    uuid.map_or_else(
        || "a device without a UUID".into(),
        |uuid| format!("GPU {uuid}"),
    )
}
