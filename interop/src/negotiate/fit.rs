//! Which mechanism serves which parties, and what keeps the others from it.

use syncline_core::{BackendKind, HandleKind};

use super::conflict::Obstacle;
use super::party::{Needs, Party, Process};
use super::{Mechanism, Requirements};

/// A mechanism that serves everybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fit {
    /// The party whose device makes the object. Where each has one of its own, that of the first who signals.
    pub(super) home: usize,
    /// Why it fits, in words.
    pub(super) why: String,
}

type Obstacles = Vec<Obstacle>;

/// What no mechanism can serve.
pub(super) fn clashes(all: &Requirements) -> Obstacles {
    let parties = all.parties();
    let asking = |needs: Needs| -> Vec<&Party> {
        let asking = parties.iter().filter(|party| party.needs_any(needs));
        asking.collect()
    };
    let mut clashes = Obstacles::new();
    if parties.is_empty() {
        clashes.push(Obstacle::of([], "nobody takes part"));
        return clashes;
    }
    for (at, party) in parties.iter().enumerate() {
        if let Some(other) = parties[..at].iter().find(|p| p.id() == party.id()) {
            let reason = format!("one party is described in two ways: as {other} and as {party}");
            clashes.push(Obstacle::of([other, party], reason));
        }
    }
    let signallers = asking(Needs::SIGNAL);
    if signallers.is_empty() {
        clashes.push(Obstacle::of(parties, "nobody signals"));
    }
    if asking(Needs::WAIT | Needs::HOST_ACCESS).is_empty() {
        clashes.push(Obstacle::of(parties, "nobody waits, or asks for the value"));
    }
    let doing = Needs::SIGNAL | Needs::WAIT | Needs::HOST_ACCESS;
    for idle in parties.iter().filter(|party| !party.needs_any(doing)) {
        let reason = format!("it is not said what {idle} does: signal, wait, or ask on the host");
        clashes.push(Obstacle::of([idle], reason));
    }
    let (timelines, binaries) = (asking(Needs::TIMELINE), asking(Needs::BINARY));
    if let (Some(timeline), Some(binary)) = (timelines.first(), binaries.first()) {
        let reason = format!(
            "{timeline} wants a timeline, and {binary} a binary semaphore: make one of each"
        );
        clashes.push(Obstacle::of(timelines.into_iter().chain(binaries), reason));
    }
    if let Some(asks) = asking(Needs::TIMESTAMPS).first() {
        for silent in signallers.iter().filter(|party| !party.writes_times()) {
            let reason = format!(
                "{asks} wants to know when values were reached, and {silent}, which signals, writes no times"
            );
            clashes.push(Obstacle::of([*asks, silent], reason));
        }
    }
    if let Some(first) = signallers.first()
        && let Some(other) = elsewhere(&signallers, first)
    {
        let reason = format!(
            "{first} and {other} both signal: across processes one process does; make one timeline for each direction"
        );
        clashes.push(Obstacle::of([*first, other], reason));
    }
    if !parties.iter().any(|party| reaches_all(all, party)) {
        let mut processes: Vec<_> = parties.iter().map(|party| party.id().process).collect();
        processes.sort_unstable();
        processes.dedup();
        let lacking = processes.iter().map(|process| without(all, *process));
        let reason = format!(
            "no process can hand it to all others: {}",
            lacking.collect::<Vec<_>>().join("; ")
        );
        clashes.push(Obstacle::of(parties, reason));
    }
    clashes
}

/// True if the process of `party` is known to have an endpoint to each other process that takes part: it can make the object, and hand it over.
fn reaches_all(all: &Requirements, party: &Party) -> bool {
    all.lacks(party.id().process).is_empty()
}

/// To which processes `process` has told of no endpoint, in words.
fn without(all: &Requirements, process: Process) -> String {
    let lacks = all.lacks(process);
    let names: Vec<_> = lacks.iter().map(ToString::to_string).collect();
    format!(
        "{process} has told of no endpoint to {}",
        names.join(" and ")
    )
}

/// The first that lives in another process than `than`.
fn elsewhere<'p>(parties: &[&'p Party], than: &Party) -> Option<&'p Party> {
    let mut parties = parties.iter();
    parties
        .find(|party| party.id().process != than.id().process)
        .copied()
}

/// The mechanisms, the one to be taken first if it fits coming first.
pub(super) fn by_preference(all: &Requirements) -> [Mechanism; Mechanism::ALL.len()] {
    let mut order = Mechanism::ALL;
    let driven = all.parties().iter().filter(|p| p.is_driven()).count();
    let stays = !all.parties().is_empty() && !leaves(all.parties());
    if stays && driven < 2 {
        // The host looks at memory no sooner than at an event, and a stream writes an event at a fifth of the cost.
        let memory = order.iter().position(|m| *m == Mechanism::SharedMemory);
        let engine = order.iter().position(|m| *m == Mechanism::Engine);
        if let (Some(memory), Some(engine)) = (memory, engine) {
            order.swap(memory, engine);
        }
    }
    order
}

impl Mechanism {
    /// How it serves everybody, or everything that keeps it from that. There are no [`clashes`].
    pub(super) fn fit(self, all: &Requirements) -> Result<Fit, Obstacles> {
        let parties = all.parties();
        let mut obstacles = Obstacles::new();
        let binary = parties.iter().find(|p| p.needs_any(Needs::BINARY));
        match (binary, self) {
            (None, Self::ExternalBinary) => {
                obstacles.push(Obstacle::of([], "nobody wants a binary semaphore"));
            }
            (
                Some(binary),
                Self::SharedMemory | Self::ExternalTimeline | Self::Engine | Self::Bridge,
            ) => {
                let reason = format!("it is a timeline, and {binary} wants a binary semaphore");
                obstacles.push(Obstacle::of([binary], reason));
            }
            _ => {}
        }
        if !self.is_native() {
            for party in parties.iter().filter(|p| p.needs_any(Needs::NATIVE)) {
                let reason = format!("{party} wants no host in between");
                obstacles.push(Obstacle::of([party], reason));
            }
        }
        for party in parties.iter().filter(|p| p.needs_any(self.avoided())) {
            obstacles.push(Obstacle::of([party], format!("{party} avoids it")));
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

/// Where the object is made if any device can: with the first that signals, as its signals are the ones without a detour. Only in a process that can
/// hand the object to all others.
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

fn require(
    fits: bool,
    parties: &[&Party],
    reason: impl FnOnce() -> String,
) -> Result<(), Obstacles> {
    if fits {
        Ok(())
    } else {
        Err(vec![Obstacle::of(parties.iter().copied(), reason())])
    }
}

/// No party lives elsewhere, and none goes there.
fn in_one_process(parties: &[Party], what: &str) -> Result<(), Obstacles> {
    let all: Vec<&Party> = parties.iter().collect();
    if let Some(other) = elsewhere(&all, &parties[0]) {
        let first = &parties[0];
        let reason =
            format!("{what} stays in its process, and {first} and {other} are in different ones");
        return Err(vec![Obstacle::of([first, other], reason)]);
    }
    let leaving = parties.iter().find(|p| p.needs_any(Needs::CROSS_PROCESS));
    leaving.map_or(Ok(()), |party| {
        let reason = format!("{what} stays in its process, and {party} hands it to others");
        Err(vec![Obstacle::of([party], reason)])
    })
}

fn same_device(all: &Requirements, binary: bool) -> Result<Fit, Obstacles> {
    let parties = all.parties();
    in_one_process(parties, "a device's own object")?;
    let devices: Vec<_> = parties.iter().filter(|p| p.is_device()).collect();
    if let [first, second, ..] = devices[..] {
        let reason = format!("{first} and {second} are two devices");
        return Err(vec![Obstacle::of([first, second], reason)]);
    }
    if binary {
        let makes = devices
            .first()
            .filter(|p| p.backend() == Some(BackendKind::Vulkan));
        require(makes.is_some(), &devices, || {
            "only Vulkan's devices make binary semaphores".into()
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

/// A signal of a binary semaphore is there for one wait, by one device.
fn one_to_one(parties: &[Party]) -> Result<(), Obstacles> {
    let mut obstacles = Obstacles::new();
    for (need, verb) in [(Needs::SIGNAL, "signal"), (Needs::WAIT, "wait for")] {
        let doing: Vec<_> = parties.iter().filter(|p| p.needs_any(need)).collect();
        if let [first, second, ..] = doing[..] {
            let reason = format!(
                "only one party may {verb} a binary semaphore, and {first} and {second} do"
            );
            obstacles.push(Obstacle::of([first, second], reason));
        }
    }
    for party in parties {
        if party.needs_any(Needs::TIMESTAMPS) {
            let reason = format!("a binary semaphore has no times, and {party} asks for them");
            obstacles.push(Obstacle::of([party], reason));
        }
        if party.needs_any(Needs::HOST_ACCESS)
            || (!party.is_driven() && party.needs_any(Needs::SIGNAL | Needs::WAIT))
        {
            let reason = format!(
                "the host can neither signal a binary semaphore nor ask it, and {party} would have to"
            );
            obstacles.push(Obstacle::of([party], reason));
        }
    }
    if obstacles.is_empty() {
        Ok(())
    } else {
        Err(obstacles)
    }
}

/// Exported by a Vulkan device, and imported by every other that has a driver.
fn external(all: &Requirements, kind: HandleKind) -> Result<Fit, Obstacles> {
    let parties = all.parties();
    let driven: Vec<_> = parties.iter().filter(|p| p.is_driven()).collect();
    let leaves = leaves(parties);
    let what = match kind {
        HandleKind::BinaryOpaqueFd => "binary semaphores",
        _ => "timeline semaphores",
    };
    let workers = parties.iter().find(|p| p.is_device() && !p.is_driven());
    let native = parties.iter().any(|p| p.needs_any(Needs::NATIVE));
    if let Some(workers) = workers.filter(|_| native || driven.len() < 2) {
        let others: Vec<_> = parties.iter().filter(|p| p.is_device()).collect();
        return Err(vec![Obstacle::of([workers], no_common_handle(&others))]);
    }
    let importing = |party: &Party| driven.iter().any(|p| p.id().process == party.id().process);
    if let Some(without) = parties.iter().find(|party| !importing(party)) {
        let process = without.id().process;
        let reason = format!("no device of {process} takes part that could import it");
        return Err(vec![Obstacle::of([without], reason)]);
    }
    if !leaves && driven.len() < 2 {
        return Err(vec![Obstacle::of(
            parties,
            "it takes two devices, each with a driver",
        )]);
    }
    let exporters = || {
        driven
            .iter()
            .filter(|p| p.backend() == Some(BackendKind::Vulkan))
    };
    if exporters().next().is_none() {
        return Err(vec![Obstacle::of(
            driven.iter().copied(),
            no_common_handle(&driven),
        )]);
    }
    // Who signals exports, if he can.
    let (signalling, other): (Vec<_>, Vec<_>) = exporters()
        .copied()
        .partition(|p| p.needs_any(Needs::SIGNAL));
    // Of several exporters that cannot, the one that comes nearest is told of.
    let mut nearest: Option<Obstacles> = None;
    for exporter in signalling.into_iter().chain(other) {
        let mut obstacles = Obstacles::new();
        if !reaches_all(all, exporter) {
            let reason = format!(
                "{exporter} would export it, and {}",
                without(all, exporter.id().process)
            );
            obstacles.push(Obstacle::of([exporter], reason));
        }
        if !exporter.exports(kind) {
            let reason = format!("{exporter} exports no {what}");
            obstacles.push(Obstacle::of([exporter], reason));
        }
        let memory = parties.iter().any(|p| p.needs_any(Needs::MEMORY));
        if memory && !exporter.exports(HandleKind::MemoryOpaqueFd) {
            let reason = format!("{exporter} exports no memory");
            obstacles.push(Obstacle::of([exporter], reason));
        }
        for importer in driven.iter().filter(|p| p.id() != exporter.id()) {
            obstacles.extend(passes(exporter, importer, kind, what));
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

/// Who signals, in another process than that of `exporter`, has to see how far the timeline is: a Vulkan device asks, and a device that cannot knows of its own
/// signals alone.
fn blind_signaller(exporter: &Party, parties: &[Party], driven: &[&Party]) -> Option<Obstacle> {
    let signaller = parties.iter().find(|p| p.needs_any(Needs::SIGNAL))?;
    let process = signaller.id().process;
    let there = driven.iter().copied();
    let there: Vec<_> = there.filter(|p| p.id().process == process).collect();
    let asks = |p: &&Party| p.backend() == Some(BackendKind::Vulkan);
    if process == exporter.id().process || there.len() < 2 || there.iter().any(asks) {
        return None;
    }
    let names: Vec<_> = there.iter().map(ToString::to_string).collect();
    let reason = format!(
        "{signaller} signals, and no device of {process} can ask how far the timeline is: of {} only one may take part, or a Vulkan device has to, too",
        enumerate(&names)
    );
    Some(Obstacle::of(there, reason))
}

/// True if the object may come to another process.
pub(super) fn leaves(parties: &[Party]) -> bool {
    let first = parties[0].id().process;
    let goes = |party: &Party| party.id().process != first || party.needs_any(Needs::CROSS_PROCESS);
    parties.iter().any(goes)
}

/// What keeps a semaphore of `exporter` from `importer`.
fn passes(exporter: &Party, importer: &Party, kind: HandleKind, what: &str) -> Obstacles {
    let mut obstacles = Obstacles::new();
    let mut tell = |reason: String| obstacles.push(Obstacle::of([exporter, importer], reason));
    if exporter.uuid().is_none() || exporter.uuid() != importer.uuid() {
        // Named in one order, whoever exports.
        tell(format!(
            "they are different GPUs: {importer} is {}, and {exporter} is {}",
            gpu(importer),
            gpu(exporter)
        ));
        return obstacles;
    }
    if let (Some(ours), Some(theirs)) = (exporter.driver_uuid(), importer.driver_uuid())
        && ours != theirs
    {
        tell(format!(
            "they run under different drivers: {exporter} under {ours}, and {importer} under {theirs}"
        ));
    }
    if importer.is_partition() {
        tell(format!(
            "{importer} is a partition, which Vulkan cannot reach"
        ));
    }
    if !importer.imports(kind) {
        tell(format!("{importer} imports no {what}"));
    }
    let memory = [exporter, importer]
        .iter()
        .any(|p| p.needs_any(Needs::MEMORY));
    if memory && !importer.imports(HandleKind::MemoryOpaqueFd) {
        tell(format!("{importer} imports no memory"));
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
        obstacles.push(Obstacle::of([party], reason));
    }
    obstacles.extend(memory_stays(parties).err().unwrap_or_default());
    let two = parties.iter().filter(|p| p.is_device()).count() > 1 || leaves(parties);
    if !two {
        obstacles.push(Obstacle::of(
            parties,
            "there is no other party to share it with",
        ));
    }
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    // Memory of the host is made by the host, if that takes part.
    let mut hosts = parties.iter();
    let host = hosts.position(|party| !party.is_driven() && reaches_all(all, party));
    Ok(Fit {
        home: host.unwrap_or_else(|| first_signaller(all)),
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
        return Err(vec![Obstacle::of([first, second], reason)]);
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
    // Threads of another process have the end of a bridge, too.
    let without = |party: &&Party| {
        let process = party.id().process;
        !party.is_device() && devices.iter().all(|p| p.id().process != process)
    };
    let others = parties.iter().filter(without).count();
    require(devices.len() + others > 1, &devices, || {
        "a bridge has two sides, at least".into()
    })?;
    Ok(Fit {
        home: first_signaller(all),
        why: "each device has a timeline of its own, whatever lies under it".into(),
    })
}

/// Where the object may go to another process, no memory of a device goes with it.
fn memory_stays(parties: &[Party]) -> Result<(), Obstacles> {
    let shares = |party: &&Party| party.needs_any(Needs::MEMORY) && leaves(parties);
    parties.iter().find(shares).map_or(Ok(()), |party| {
        let reason = format!(
            "no memory of a device goes to another process with it, and {party} shares some"
        );
        Err(vec![Obstacle::of([party], reason)])
    })
}

fn no_common_handle(parties: &[&Party]) -> String {
    let mut backends: Vec<_> = parties.iter().filter_map(|p| p.backend()).collect();
    backends.sort_unstable();
    let count = backends.len();
    backends.dedup();
    match (&backends[..], count) {
        ([one], 1) => format!("a {one} device has no handle to leave by"),
        ([one], 2) => format!("two {one} devices share no native timeline"),
        ([one], _) => format!("{count} {one} devices share no native timeline"),
        _ => {
            let names: Vec<_> = backends.iter().map(ToString::to_string).collect();
            format!("{} have no handle in common", enumerate(&names))
        }
    }
}

/// "a", "a and b", or "a, b and c".
fn enumerate(names: &[String]) -> String {
    match names {
        [names @ .., last] if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        _ => names.concat(),
    }
}

fn gpu(party: &Party) -> String {
    let uuid = party.uuid();
    uuid.map_or_else(
        || "a device without a UUID".into(),
        |uuid| format!("GPU {uuid}"),
    )
}
