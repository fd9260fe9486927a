//! The contract as plain data: what a world of a few timelines and queues looks like after each
//! operation.
//!
//! Written from `docs/contract.md`, not from the engine. What follows from an operation happens in
//! steps, and where their order is not promised, every order is allowed: [`World::settled`] gives
//! all that may come out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// Why a timeline failed, at the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// The test failed it; each time with another number.
    Planted(usize),
    /// Work returned an error.
    Work,
    /// A wait for this timeline was cancelled.
    Cancelled(usize),
}

/// What a call is refused with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Refusal {
    Failed(Cause),
    Cancelled,
    TimedOut,
    NotAboveReached,
    Overlap,
    OutOfRange,
    BehindOwnWait,
    Duplicate,
    Circular,
    Work,
    NotPending,
    NothingToWaitFor,
    WrongDevice,
}

/// A point of something in the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Empty,
    Line(usize, u64),
    /// The position behind a submission.
    Turn(usize, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    Reached,
    Pending,
    Open,
    Failed(Cause),
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Claim {
    above: u64,
    with_driver: bool,
    /// The queue that signals it; the application itself if none.
    by: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    /// The devices with a port.
    devices: Vec<usize>,
    largest_difference: u64,
    reached: u64,
    failed: Option<Cause>,
    closed: bool,
    /// Everything claimed and not reached, by its upper end.
    claims: BTreeMap<u64, Claim>,
}

impl Line {
    fn pending(&self) -> u64 {
        let mut pending = self.reached;
        for (&upto, claim) in &self.claims {
            if !claim.with_driver || claim.above > pending {
                break;
            }
            pending = upto;
        }
        pending
    }

    fn is_claimed(&self, value: u64) -> bool {
        let mut claims = self.claims.iter();
        claims.any(|(&upto, claim)| claim.above < value && value <= upto)
    }

    fn standing(&self, value: u64) -> Standing {
        if value <= self.reached {
            Standing::Reached
        } else if let Some(cause) = self.failed {
            Standing::Failed(cause)
        } else if value <= self.pending() {
            Standing::Pending
        } else if self.closed && !self.is_claimed(value) {
            Standing::Cancelled
        } else {
            Standing::Open
        }
    }

    fn reach(&mut self, value: u64) {
        if self.failed.is_none() && value > self.reached {
            self.reached = value;
            self.claims.retain(|&upto, _| upto > value);
        }
    }

    fn in_range(&self, value: u64) -> bool {
        value <= self.reached.saturating_add(self.largest_difference)
    }

    /// Why a signal of `value` may not be, and else the lower end of its claim.
    fn claimable(&self, value: u64, own_wait: u64) -> Result<u64, BTreeSet<Refusal>> {
        let mut refusals = BTreeSet::new();
        refusals.extend(self.failed.map(Refusal::Failed));
        if own_wait > self.reached && own_wait >= value {
            refusals.insert(Refusal::BehindOwnWait);
        }
        if value <= self.reached {
            refusals.insert(Refusal::NotAboveReached);
        }
        if !self.in_range(value) {
            refusals.insert(Refusal::OutOfRange);
        }
        if self.is_claimed(value) {
            refusals.insert(Refusal::Overlap);
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let below = self.claims.range(..value).next_back();
        let below = below.map_or(0, |(&upto, _)| upto);
        Ok(self.reached.max(below).max(own_wait))
    }
}

/// What a submission's work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// Notes that it has run.
    Runs,
    /// The same, and then returns an error.
    Fails,
    /// Nothing: a fence's.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Job {
    Work(Work),
    /// Recorded, and the driver's queue was locked.
    Recorded,
    /// Skipped: only its turn is left.
    Pass,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Signal {
    line: usize,
    above: u64,
    upto: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Submission {
    number: u64,
    waits: Vec<Place>,
    signals: Vec<Signal>,
    job: Job,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    device: usize,
    /// How many submissions its driver takes.
    budget: u64,
    locked: bool,
    last: u64,
    ended: u64,
    held: Vec<Submission>,
    driver: Vec<Submission>,
    ran: Vec<u64>,
}

/// A signal that the host makes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Relay {
    queue: usize,
    number: u64,
    signal: Signal,
}

/// Something that is certain to happen, soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Event {
    Reach(usize, u64),
    Fail(usize, Cause),
    End(usize, u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    lines: Vec<Line>,
    queues: Vec<Queue>,
    relays: Vec<Relay>,
    events: Vec<Event>,
}

/// What can be seen of a world from outside.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// By line: how each value from 1 on stands.
    pub(crate) lines: Vec<Vec<Standing>>,
    pub(crate) queues: Vec<QueueView>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct QueueView {
    pub(crate) held: usize,
    pub(crate) with_driver: usize,
    /// How the positions from 1 on stand.
    pub(crate) turns: Vec<Standing>,
    /// The submissions whose work has run, in this order.
    pub(crate) ran: Vec<u64>,
}

/// One letter for a value that is reached, pending or open, the reason for one that never will be.
fn letters(standings: &[Standing]) -> String {
    let letter = |standing: &Standing| match standing {
        Standing::Reached => "R".into(),
        Standing::Pending => "P".into(),
        Standing::Open => "o".into(),
        never => format!(" {never:?}"),
    };
    standings.iter().map(letter).collect()
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, line) in self.lines.iter().enumerate() {
            writeln!(f, "  line {index}: {}", letters(line))?;
        }
        for (index, queue) in self.queues.iter().enumerate() {
            writeln!(
                f,
                "  queue {index}: {} held, {} with the driver, positions {}, ran {:?}",
                queue.held,
                queue.with_driver,
                letters(&queue.turns),
                queue.ran
            )?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Event(usize),
    Skip(usize, usize, Cause),
    Go(usize),
    Relay(usize),
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            lines: Vec::new(),
            queues: Vec::new(),
            relays: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(crate) fn add_line(&mut self, devices: &[usize], largest_difference: u64) {
        self.lines.push(Line {
            devices: devices.to_vec(),
            largest_difference,
            reached: 0,
            failed: None,
            closed: false,
            claims: BTreeMap::new(),
        });
    }

    pub(crate) fn add_queue(&mut self, device: usize, budget: u64) {
        self.queues.push(Queue {
            device,
            budget,
            locked: false,
            last: 0,
            ended: 0,
            held: Vec::new(),
            driver: Vec::new(),
            ran: Vec::new(),
        });
    }

    pub(crate) fn standing(&self, place: Place) -> Standing {
        match place {
            Place::Empty => Standing::Reached,
            Place::Line(line, value) => self.lines[line].standing(value),
            Place::Turn(queue, number) => {
                let queue = &self.queues[queue];
                if number <= queue.ended {
                    Standing::Reached
                } else if queue.driver.iter().any(|task| task.number >= number) {
                    Standing::Pending
                } else {
                    Standing::Open
                }
            }
        }
    }

    /// Why a wait for `place` never ends well, if that is so.
    fn hopeless(&self, place: Place) -> Option<Cause> {
        match (self.standing(place), place) {
            (Standing::Failed(cause), _) => Some(cause),
            (Standing::Cancelled, Place::Line(line, _)) => Some(Cause::Cancelled(line)),
            _ => None,
        }
    }

    fn is_native(&self, queue: usize, place: Place) -> bool {
        let device = self.queues[queue].device;
        match place {
            Place::Empty => true,
            Place::Line(line, _) => self.lines[line].devices.contains(&device),
            Place::Turn(other, _) => self.queues[other].device == device,
        }
    }

    fn in_range(&self, place: Place) -> bool {
        match place {
            Place::Line(line, value) => self.lines[line].in_range(value),
            _ => true,
        }
    }

    // ---- Calls ----

    pub(crate) fn last(&self, queue: usize) -> u64 {
        self.queues[queue].last
    }

    pub(crate) fn signal(&mut self, line: usize, value: u64) -> Result<(), BTreeSet<Refusal>> {
        let it = &mut self.lines[line];
        it.claimable(value, 0)?;
        // Not above the lower end of the lowest claim.
        if it.claims.values().any(|claim| claim.above < value) {
            return Err(BTreeSet::from([Refusal::Overlap]));
        }
        it.reach(value);
        Ok(())
    }

    pub(crate) fn fail(&mut self, line: usize, cause: Cause) {
        self.events.push(Event::Fail(line, cause));
    }

    pub(crate) fn close(&mut self, line: usize) {
        self.lines[line].closed = true;
    }

    /// A claim for a submission of the application's own. Returns its lower end.
    pub(crate) fn claim(
        &mut self,
        line: usize,
        value: u64,
        own_wait: u64,
    ) -> Result<u64, BTreeSet<Refusal>> {
        let line = &mut self.lines[line];
        let above = line.claimable(value, own_wait)?;
        let claim = Claim {
            above,
            with_driver: false,
            by: None,
        };
        line.claims.insert(value, claim);
        Ok(above)
    }

    pub(crate) fn submitted(&mut self, line: usize, value: u64, above: u64) -> Result<(), Refusal> {
        let line = &mut self.lines[line];
        if line.pending() < above {
            return Err(Refusal::NotPending);
        }
        if let Some(claim) = line.claims.get_mut(&value) {
            claim.with_driver = true;
        }
        Ok(())
    }

    pub(crate) fn withdraw(&mut self, line: usize, value: u64) {
        self.lines[line].claims.remove(&value);
    }

    /// The application's own submission has executed. It must have waited for its predecessor.
    pub(crate) fn executed(&mut self, line: usize, value: u64, above: u64) -> bool {
        let line = &mut self.lines[line];
        let may = line.reached >= above && line.failed.is_none();
        if may {
            line.reach(value);
        }
        may
    }

    pub(crate) fn lock(&mut self, queue: usize, locked: bool) {
        self.queues[queue].locked = locked;
    }

    pub(crate) fn submit(
        &mut self,
        queue: usize,
        waits: &[Place],
        signals: &[(usize, u64)],
        work: Work,
    ) -> Result<u64, BTreeSet<Refusal>> {
        let mut refusals = BTreeSet::new();
        if waits.iter().any(|&wait| !self.in_range(wait)) {
            refusals.insert(Refusal::OutOfRange);
        }
        let hopeless = waits.iter().any(|&wait| self.hopeless(wait).is_some());
        let mut claimed: Vec<Signal> = Vec::new();
        for (index, &(line, upto)) in signals.iter().enumerate() {
            if signals[..index].iter().any(|&(other, _)| other == line) {
                refusals.insert(Refusal::Duplicate);
            }
            let own = waits.iter().filter_map(|&wait| match wait {
                Place::Line(other, value) if other == line => Some(value),
                _ => None,
            });
            match self.lines[line].claimable(upto, own.max().unwrap_or(0)) {
                Ok(above) => claimed.push(Signal { line, above, upto }),
                // It will be skipped, so it need not signal what has failed already.
                Err(why)
                    if hopeless
                        && self.lines[line].failed.is_some()
                        && !why.contains(&Refusal::BehindOwnWait) => {}
                Err(why) => refusals.extend(why),
            }
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let number = self.queues[queue].last + 1;
        let mut submission = Submission {
            number,
            waits: waits.to_vec(),
            signals: claimed,
            job: Job::Work(work),
        };
        let before = self.clone();
        for signal in &submission.signals {
            let claim = Claim {
                above: signal.above,
                with_driver: false,
                by: Some(queue),
            };
            self.lines[signal.line].claims.insert(signal.upto, claim);
        }
        let at_once = self.queues[queue].held.is_empty() && self.may_go(queue, &submission);
        self.queues[queue].last = number;
        if self.is_circular(queue, &submission, !at_once) {
            *self = before;
            return Err(BTreeSet::from([Refusal::Circular]));
        }
        if at_once && work == Work::Fails {
            // Rejected, and nothing of it is left but its number.
            *self = before;
            self.queues[queue].last = number;
            self.queues[queue].ran.push(number);
            submission.signals.clear();
            submission.waits.clear();
            submission.job = Job::Pass;
            self.queues[queue].held.push(submission);
            return Err(BTreeSet::from([Refusal::Work]));
        }
        self.queues[queue].held.push(submission);
        Ok(number)
    }

    /// Completes the oldest submission that the driver of `queue` has. False if that still waits.
    pub(crate) fn complete(&mut self, queue: usize) -> bool {
        let Some(task) = self.queues[queue].driver.first().cloned() else {
            return false;
        };
        let mut failed = None;
        for &place in &task.waits {
            match self.standing(place) {
                Standing::Reached => {}
                Standing::Failed(cause) => {
                    failed = Some(cause);
                    break;
                }
                _ => return false,
            }
        }
        self.queues[queue].driver.remove(0);
        for signal in &task.signals {
            let native = self.is_native(queue, Place::Line(signal.line, 1));
            match failed {
                None if native => self.events.push(Event::Reach(signal.line, signal.upto)),
                None => {}
                Some(cause) => self.events.push(Event::Fail(signal.line, cause)),
            }
        }
        self.events.push(Event::End(queue, task.number));
        true
    }

    // ---- What follows ----

    /// Whether everything that a submission needs on the host's side is there.
    fn may_go(&self, queue: usize, submission: &Submission) -> bool {
        let it = &self.queues[queue];
        let budget = submission.number.saturating_sub(it.budget) <= it.ended;
        let wait = |&place: &Place| match self.standing(place) {
            Standing::Reached => true,
            Standing::Pending => self.is_native(queue, place),
            _ => false,
        };
        let order = |signal: &Signal| {
            let place = Place::Line(signal.line, signal.above);
            !self.is_native(queue, place)
                || matches!(self.standing(place), Standing::Reached | Standing::Pending)
        };
        match submission.job {
            Job::Work(_) => {
                budget && submission.waits.iter().all(wait) && submission.signals.iter().all(order)
            }
            Job::Recorded => !it.locked,
            Job::Pass => budget,
        }
    }

    /// Why a held submission can never run, if that is so.
    fn skipped(&self, queue: usize, index: usize) -> Option<Cause> {
        let submission = &self.queues[queue].held[index];
        if !matches!(submission.job, Job::Work(_)) {
            return None;
        }
        let waits = submission.waits.iter().copied();
        let order = submission.signals.iter();
        let order = order.map(|signal| Place::Line(signal.line, signal.above));
        let order = order.filter(|&place| self.is_native(queue, place));
        waits.chain(order).find_map(|place| self.hopeless(place))
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..self.events.len()).map(Step::Event).collect();
        for (number, queue) in self.queues.iter().enumerate() {
            for index in 0..queue.held.len() {
                let skip = self.skipped(number, index);
                steps.extend(skip.map(|cause| Step::Skip(number, index, cause)));
            }
            if let Some(front) = queue.held.first()
                && self.may_go(number, front)
            {
                steps.push(Step::Go(number));
            }
        }
        for (index, relay) in self.relays.iter().enumerate() {
            let above = Place::Line(relay.signal.line, relay.signal.above);
            let done = relay.number <= self.queues[relay.queue].ended;
            let decided = !matches!(self.standing(above), Standing::Open | Standing::Pending);
            if done && decided {
                steps.push(Step::Relay(index));
            }
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Event(index) => match self.events.remove(index) {
                Event::Reach(line, value) => self.lines[line].reach(value),
                Event::Fail(line, cause) => {
                    self.lines[line].failed.get_or_insert(cause);
                }
                Event::End(queue, number) => self.queues[queue].ended = number,
            },
            Step::Skip(queue, index, cause) => {
                let submission = &mut self.queues[queue].held[index];
                submission.job = Job::Pass;
                submission.waits.clear();
                for signal in std::mem::take(&mut submission.signals) {
                    self.events.push(Event::Fail(signal.line, cause));
                }
            }
            Step::Go(queue) => self.go(queue),
            Step::Relay(index) => {
                let Signal { line, above, upto } = self.relays.remove(index).signal;
                match self.standing(Place::Line(line, above)) {
                    Standing::Reached => self.lines[line].reach(upto),
                    Standing::Cancelled => self.withdraw(line, upto),
                    _ => {}
                }
            }
        }
    }

    fn go(&mut self, queue: usize) {
        let mut submission = self.queues[queue].held.remove(0);
        if let Job::Work(work) = submission.job {
            if work != Work::Nothing {
                self.queues[queue].ran.push(submission.number);
            }
            if work == Work::Fails {
                for signal in std::mem::take(&mut submission.signals) {
                    self.events.push(Event::Fail(signal.line, Cause::Work));
                }
                submission.waits.clear();
                submission.job = Job::Pass;
            }
        }
        if self.queues[queue].locked {
            submission.job = Job::Recorded;
            self.queues[queue].held.insert(0, submission);
            return;
        }
        let number = submission.number;
        // With the driver, signals wait for the ones before them that other queues make.
        let order = submission.signals.iter().filter_map(|signal| {
            let place = Place::Line(signal.line, signal.above);
            let claim = self.lines[signal.line].claims.get(&signal.above)?;
            (self.is_native(queue, place) && claim.by != Some(queue)).then_some(place)
        });
        let order: Vec<Place> = order.collect();
        submission.waits.extend(order);
        for signal in submission.signals.clone() {
            if self.is_native(queue, Place::Line(signal.line, 1)) {
                if let Some(claim) = self.lines[signal.line].claims.get_mut(&signal.upto) {
                    claim.with_driver = true;
                }
            } else {
                self.relays.push(Relay {
                    queue,
                    number,
                    signal,
                });
            }
        }
        self.queues[queue].driver.push(submission);
    }

    /// Every world that this one may become when nothing else is done.
    pub(crate) fn settled(self) -> impl Iterator<Item = Self> {
        let mut seen: HashSet<Self> = HashSet::from([self.clone()]);
        let mut open = vec![self];
        std::iter::from_fn(move || {
            while let Some(world) = open.pop() {
                let steps = world.steps();
                if steps.is_empty() {
                    return Some(world);
                }
                for step in steps {
                    let mut next = world.clone();
                    next.take(step);
                    if seen.insert(next.clone()) {
                        open.push(next);
                    }
                }
            }
            None
        })
    }

    // ---- Circles ----

    /// Whether `new`, the next submission of `queue`, would wait for itself by way of others, or a
    /// signal that the host makes for it. A submission that is held depends on who has claimed what
    /// it waits for and what its signals follow, and on the one before it on its queue; a signal of
    /// the host on its submission and on what it follows.
    fn is_circular(&self, queue: usize, new: &Submission, held: bool) -> bool {
        struct Node {
            turn: Option<(usize, u64)>,
            waits: Vec<Place>,
            signals: Vec<Signal>,
        }
        let by_host = |queue, number, signal| Node {
            turn: None,
            waits: vec![Place::Turn(queue, number)],
            signals: vec![signal],
        };
        let nodes_of = |queue, submission: &Submission, held: bool| {
            let signals = submission.signals.iter().copied();
            let (native, relayed): (Vec<_>, Vec<_>) =
                signals.partition(|signal| self.is_native(queue, Place::Line(signal.line, 1)));
            let itself = held.then(|| Node {
                turn: Some((queue, submission.number)),
                waits: submission.waits.clone(),
                signals: native,
            });
            let relayed = relayed.into_iter();
            let relayed = relayed.map(|signal| by_host(queue, submission.number, signal));
            itself.into_iter().chain(relayed).collect::<Vec<_>>()
        };
        let mut nodes = nodes_of(queue, new, held);
        let fresh = nodes.len();
        for (queue, it) in self.queues.iter().enumerate() {
            let held = it.held.iter();
            nodes.extend(held.flat_map(|submission| nodes_of(queue, submission, true)));
        }
        let relays = self.relays.iter();
        nodes.extend(relays.map(|relay| by_host(relay.queue, relay.number, relay.signal)));
        let claimant = |place: Place| {
            nodes.iter().position(|node| match place {
                Place::Empty => false,
                Place::Line(line, value) => node.signals.iter().any(|signal| {
                    signal.line == line && signal.above < value && value <= signal.upto
                }),
                Place::Turn(queue, number) => node.turn == Some((queue, number)),
            })
        };
        let dependencies = |node: &Node| -> Vec<usize> {
            let order = node.signals.iter();
            let order = order.map(|signal| Place::Line(signal.line, signal.above));
            let before = node
                .turn
                .map(|(queue, number)| Place::Turn(queue, number - 1));
            let places = node.waits.iter().copied().chain(order).chain(before);
            places.filter_map(claimant).collect()
        };
        (0..fresh).any(|start| {
            let mut open = dependencies(&nodes[start]);
            let mut seen = BTreeSet::new();
            while let Some(next) = open.pop() {
                if next == start {
                    return true;
                }
                if seen.insert(next) {
                    open.extend(dependencies(&nodes[next]));
                }
            }
            false
        })
    }

    // ---- Seen from outside ----

    /// What a wait for any or all of `places` says if it may not wait.
    pub(crate) fn ask(&self, places: &[Place], any: bool, pending: bool) -> Result<usize, Refusal> {
        let met = |place: &Place| match self.standing(*place) {
            Standing::Reached => true,
            Standing::Pending => pending,
            _ => false,
        };
        if places.iter().any(|&place| !self.in_range(place)) {
            return Err(Refusal::OutOfRange);
        }
        if any && places.is_empty() {
            return Err(Refusal::NothingToWaitFor);
        }
        if any && let Some(first) = places.iter().position(met) {
            return Ok(first);
        }
        let failed = places.iter().find_map(|&place| match self.standing(place) {
            Standing::Failed(cause) => Some(Refusal::Failed(cause)),
            Standing::Cancelled => Some(Refusal::Cancelled),
            _ => None,
        });
        if let Some(refusal) = failed {
            Err(refusal)
        } else if !any && places.iter().all(met) {
            Ok(0)
        } else {
            Err(Refusal::TimedOut)
        }
    }

    pub(crate) fn view(&self, values: u64) -> View {
        let lines = self.lines.iter();
        let lines = lines.map(|it| (1..=values).map(|v| it.standing(v)).collect());
        let queues = self
            .queues
            .iter()
            .enumerate()
            .map(|(number, queue)| QueueView {
                held: queue.held.len(),
                with_driver: queue.driver.len(),
                turns: (1..=queue.last)
                    .map(|turn| self.standing(Place::Turn(number, turn)))
                    .collect(),
                ran: queue.ran.clone(),
            });
        View {
            lines: lines.collect(),
            queues: queues.collect(),
        }
    }
}
