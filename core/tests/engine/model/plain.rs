//! A model of the contract: the state of a few timelines and queues after each operation.
//!
//! It follows `docs/contract.md` and not the engine. An operation has consequences, which happen in
//! steps. If the contract does not fix their order, every order is allowed. [`World::settled`]
//! returns all possible results.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// The root cause of the failure of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// The test failed it. Each failure has another number.
    Planted(usize),
    /// Work returned an error.
    Work,
    /// A wait for this timeline was cancelled.
    Cancelled(usize),
}

/// The reason why a call is refused.
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

/// A point of a timeline or queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Empty,
    Line(usize, u64),
    /// The position of a submission, by queue and number.
    Position(usize, u64),
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
    /// The queue that signals it, or `None` for the application.
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
    /// The claims that are not reached, by their upper ends.
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

    /// The lower end of a claim for a signal of `value`, or all reasons why it is refused.
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

/// The work of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// Logs that it has run.
    Runs,
    /// Logs that it has run, and returns an error.
    Fails,
    /// Does nothing, as for a fence.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Job {
    Work(Work),
    /// It is recorded, and the driver queue was locked.
    Recorded,
    /// It is skipped. Only an empty submission for its number is left.
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
    /// The largest number of submissions in its driver.
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

/// A consequence that will happen in a later step.
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

/// The visible state of a world.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// The state of each value from 1 on, by line.
    pub(crate) lines: Vec<Vec<Standing>>,
    pub(crate) queues: Vec<QueueView>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct QueueView {
    pub(crate) held: usize,
    pub(crate) with_driver: usize,
    /// The state of each position from 1 on.
    pub(crate) positions: Vec<Standing>,
    /// The submissions whose work has run, in the order in which it ran.
    pub(crate) ran: Vec<u64>,
}

/// A letter for each reached, pending or open value, and the reason for each other value.
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
                letters(&queue.positions),
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
            Place::Position(queue, number) => {
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

    /// The reason why a wait for `place` fails, if it does.
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
            Place::Position(other, _) => self.queues[other].device == device,
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
        // A host signal may not be above the lower end of the lowest claim.
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

    /// Makes a claim for a submission of the application itself. Returns the claim's lower end.
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

    /// Executes a submission of the application, if the value before its own is reached.
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
                // The submission will be skipped, so it may signal a failed timeline.
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
            // It is refused. Only an empty submission for its number is left.
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

    /// Completes the oldest submission in the driver of `queue`. Returns false if it still waits.
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

    // ---- Consequences ----

    /// True if a submission can go to the driver.
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

    /// The reason why a held submission can never run, if it cannot.
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
        // In the driver, signals wait for earlier signals of other queues.
        let order = submission.signals.iter().filter_map(|signal| {
            let place = Place::Line(signal.line, signal.above);
            let claim = self.lines[signal.line].claims.get(&signal.above)?;
            (self.is_native(queue, place) && claim.by != Some(queue)).then_some(place)
        });
        let order: Vec<Place> = order.collect();
        submission.waits.extend(order);
        for signal in submission.signals.clone() {
            if self.is_native(queue, Place::Line(signal.line, 1)) {
                let line = &mut self.lines[signal.line];
                // The signal of a timeline that has failed is left out.
                if line.failed.is_none()
                    && let Some(claim) = line.claims.get_mut(&signal.upto)
                {
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

    /// All worlds that this one may become without a further operation.
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

    /// True if `new`, the next submission of `queue`, or a relayed signal of it depends on itself.
    ///
    /// A held submission depends on the claims of the values that it waits for, on the claims
    /// before its signals, and on the submission before it on its queue. A relayed signal depends
    /// on its submission and on the claim before it.
    fn is_circular(&self, queue: usize, new: &Submission, held: bool) -> bool {
        struct Node {
            position: Option<(usize, u64)>,
            waits: Vec<Place>,
            signals: Vec<Signal>,
        }
        let by_host = |queue, number, signal| Node {
            position: None,
            waits: vec![Place::Position(queue, number)],
            signals: vec![signal],
        };
        let nodes_of = |queue, submission: &Submission, held: bool| {
            let signals = submission.signals.iter().copied();
            let (native, relayed): (Vec<_>, Vec<_>) =
                signals.partition(|signal| self.is_native(queue, Place::Line(signal.line, 1)));
            let itself = held.then(|| Node {
                position: Some((queue, submission.number)),
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
                Place::Position(queue, number) => node.position == Some((queue, number)),
            })
        };
        let dependencies = |node: &Node| -> Vec<usize> {
            let order = node.signals.iter();
            let order = order.map(|signal| Place::Line(signal.line, signal.above));
            let before = node
                .position
                .map(|(queue, number)| Place::Position(queue, number - 1));
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

    // ---- Queries ----

    /// The result of a wait for any or all of `places` with a time-out of zero.
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
                positions: (1..=queue.last)
                    .map(|position| self.standing(Place::Position(number, position)))
                    .collect(),
                ran: queue.ran.clone(),
            });
        View {
            lines: lines.collect(),
            queues: queues.collect(),
        }
    }
}
