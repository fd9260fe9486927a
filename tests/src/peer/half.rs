//! Commands that both processes obey.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use syncline::Mechanism;
use syncline::backend::{Device as _, Queue as _};
use syncline::negotiate::{Granted, Made, MadeBinary, Needs, Party, Plan};
use syncline::process::Endpoint;
use syncline::{
    Buffer, Device, Error, Fence, KeptPoint, Point, Queue, QueueKind, Signal, Timeline,
    handle::SharedWords,
};

use super::binaries::Late;
use super::bug::Bug;
#[cfg(feature = "vulkan")]
use crate::arena::Arena;
use crate::case::Stop;
use crate::workload::{Equipped, Latch};
use crate::{Subject as _, Verdict, patience};

/// How long a wait that should not end is watched.
pub(super) const WATCHED: Duration = Duration::from_millis(50);

/// How long work takes that a wait must outlast.
pub(super) const LATE: Duration = Duration::from_millis(30);
/// Time limit for a call that should not succeed.
pub(super) const SOON: Duration = Duration::from_millis(300);
/// Time limit for a plan that the other process mostly cannot carry out.
const IN_VAIN: Duration = Duration::from_secs(10);

/// One of two processes: its device, and what it has made.
pub struct Half {
    /// Dropped first, because the drop releases blocked streams.
    #[cfg(feature = "cuda")]
    pub(super) events: super::events::Events,
    pub(super) device: Equipped,
    endpoint: Option<Endpoint>,
    plan: Option<Plan>,
    pub(super) lines: Vec<(String, Made)>,
    pub(super) binary: Option<MadeBinary>,
    pub(super) late: Option<Late>,
    pub(super) expected: Option<Fence>,
    words: Option<SharedWords>,
    memory: Option<Buffer>,
    #[cfg(feature = "vulkan")]
    pub(super) image: Option<syncline::Image>,
    queue: Option<Queue>,
    /// Signalled by the queue's submissions that wait for something, one value for each.
    after: Option<Timeline>,
    pub(super) submitted: u64,
    /// How often their work ran.
    ran: Arc<AtomicU32>,
    latch: Option<Latch>,
    /// Whether the process is to return from `main`.
    pub(super) has_ended: bool,
}

impl Half {
    /// Creates a half with a device only.
    #[must_use]
    pub fn new(device: Equipped) -> Self {
        Self {
            device,
            endpoint: None,
            plan: None,
            lines: Vec::new(),
            binary: None,
            late: None,
            expected: None,
            words: None,
            memory: None,
            #[cfg(feature = "vulkan")]
            image: None,
            queue: None,
            after: None,
            submitted: 0,
            ran: Arc::default(),
            latch: None,
            has_ended: false,
            #[cfg(feature = "cuda")]
            events: super::events::Events::default(),
        }
    }

    /// Creates a half in the process that already has the endpoint.
    #[must_use]
    pub fn over(device: Equipped, endpoint: &Endpoint) -> Self {
        Self {
            endpoint: Some(endpoint.clone()),
            ..Self::new(device)
        }
    }

    /// Obeys a command, and returns the answer.
    ///
    /// | words | what is done | the answer |
    /// |---|---|---|
    /// | `connect PATH` | connects | |
    /// | `clean` | lets go of everything but the endpoint | |
    /// | `negotiate BITS` | negotiates for the device, with these [`Needs`] | the mechanism's name, or `conflict` |
    /// | `make LABEL INITIAL` | carries the plan out | |
    /// | `offer LABEL INITIAL` | begins to, and gives it up at once | |
    /// | `signal LABEL VALUE` | submits a signal | |
    /// | `host LABEL VALUE` | signals from the host | |
    /// | `fork` | forks a child that drops everything but the device | |
    /// | `latched LABEL VALUE` | submits a signal behind work that stands still | |
    /// | `open` | lets that go on | |
    /// | `submit LABEL VALUE` | submits work that waits | `held` or `sent` |
    /// | `after N` | waits for the N-th of these | |
    /// | `held`, `ran`, `driven` | | how many are held, how often work ran, whether a driver is behind the device |
    /// | `wait`, `pending`, `reached LABEL VALUE` | waits on the host, for one or the other; asks | `true` or `false` |
    /// | `value LABEL` | | the value |
    /// | `fail LABEL WORDS`, `drop LABEL` | | |
    /// | `mute LABEL` | fails it with an error whose `Display` panics | |
    /// | `send LABEL VALUE`, `receive` | points | the value received, once it is reached |
    /// | `words N`, `take N` | makes words of shared memory and sends them, or receives them | |
    /// | `write N VALUE`, `read N` | | |
    /// | `memory BYTES` | carries the plan out for memory | |
    /// | `fill LABEL VALUE` | fills it, late, and signals | |
    /// | `check`, `peek LABEL VALUE` | waits in a queue, or does not, and looks whether it is there | `right` or `wrong` |
    /// | `break`, `break LABEL VALUE` | loses the device, and waits until that shows; submits what signals, behind that | |
    /// | `plain` | submits what waits for nothing; `after` and `through` know it | its number |
    /// | `through N` | watches for a moment whether that one is through | `true` or `false` |
    /// | `idle` | waits for the queue | |
    /// | `descriptors` | | how many are open |
    /// | `clock` | | what the host's clock shows, in nanoseconds |
    /// | `signals LABEL FROM STEP TO` | submits a signal of each | |
    /// | `time LABEL VALUE` | asks when it was reached | nanoseconds of that clock, and the error; or why not |
    /// | `times LABEL FROM STEP TO` | asks of each | `in order`, or what is not |
    /// | `end idle WAY`, `end wait WAY`, `end reached WAY` | signals every timeline on the queue, has that reported, ends the process: `kill`, `exit` or `return` | |
    ///
    /// With a binary semaphore, whose signals are numbered:
    ///
    /// | words | what is done | the answer |
    /// |---|---|---|
    /// | `binary LABEL` | carries the plan for one out | |
    /// | `draw LABEL N` | signals it behind work that stands still, and counts that | |
    /// | `paint LABEL N` | fills the memory, late, signals and counts | |
    /// | `shade LABEL N` | waits for the count on the host, and for the semaphore in the queue; `after` and `through` know it | its number |
    /// | `look`, `glance LABEL N` | does that, or waits for the count alone, and looks what is in the memory | `right` or `wrong` |
    /// | `consume LABEL N` | waits for it on the host, by a fence | |
    /// | `expect LABEL N`, `expected` | makes such a fence; waits for that | |
    /// | `dawdle LABEL N`, `late queue`, `late fence`, `late waker` | waits for the count and no more; does what comes after that, by a waker in the moment in which the next count fails | |
    /// | `abandon` | lets go of every handle | |
    /// | `crowd` | keeps the queue of the driver busy by work of another queue; `open` lets that go on | |
    /// | `miscount signal`, `miscount wait` | asks for what the plan does not grant | the refusal |
    ///
    /// Where Vulkan is built in, also with an image:
    ///
    /// | words | what is done | the answer |
    /// |---|---|---|
    /// | `image SHAPE` | carries the plan out for an image; the home discards its contents | |
    /// | `own_image SHAPE`, `lone_image SHAPE` | the same, with an image of the home's application | |
    /// | `memory_as_image BYTES` | carries the plan out for memory in the place of an image | |
    /// | `store LABEL VALUE` | writes its texels, late, and signals | |
    /// | `store_closed LABEL VALUE` | writes them behind work that stands still; `open` lets that go on | |
    /// | `load`, `load_early LABEL VALUE` | waits in a queue, or does not, and looks whether they are there | `right` or `wrong` |
    ///
    /// Where CUDA is built in, also with its own events, which a process makes (`event`) or gets
    /// from the other:
    ///
    /// | words | what is done | the answer |
    /// |---|---|---|
    /// | `event LABEL`, `forget LABEL` | makes one; lets go of it, or of what was received | |
    /// | `give LABEL`, `get LABEL` | sends it, receives it | |
    /// | `early LABEL` | sends it, without time for what is held | `sent` or `late` |
    /// | `record LABEL NAME` | has the queue record it behind work that stands still, waits until that is with the driver | |
    /// | `work LABEL NAME` | does that in one submission | |
    /// | `release NAME` | lets that work go on | |
    /// | `stay LABEL`, `unhold LABEL` | records it behind a wait that is not signalled; signals that | `held` or `sent` |
    /// | `await LABEL` | submits what waits for the event; `after` and `through` know it | its number |
    /// | `complete`, `brief`, `join LABEL` | asks; waits on the host for a moment, or for it | `true` or `false` |
    /// | `rerecord LABEL` | records what was received | `refused` or `recorded` |
    /// | `own LABEL` | imports what this process has made itself | `refused` or `taken` |
    ///
    /// # Errors
    /// The command failed.
    pub fn run(&mut self, line: &str) -> Result<String, Stop> {
        let mut words = line.splitn(3, ' ');
        let (what, label, rest) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let value = || number(rest);
        match what {
            "connect" => {
                let endpoint = Endpoint::connect(label, "second", patience())?;
                self.endpoint = Some(super::trusted(endpoint));
            }
            "clean" => {
                if let Some(latch) = self.latch.take() {
                    Equipped::open(&latch)?;
                }
                #[cfg(feature = "cuda")]
                self.events.release()?;
                if let Some(queue) = &self.queue {
                    queue.idle(patience())?;
                }
                *self = Self {
                    endpoint: self.endpoint.take(),
                    queue: self.queue.take(),
                    ..Self::new(self.device.clone())
                };
            }
            "negotiate" => {
                let own = Party::of(self.device.device());
                let own = own.needing(Needs::from_bits_truncate(number(label)? as u32));
                match self.endpoint()?.negotiate(own, patience()) {
                    Ok(plan) => {
                        let name = plan.mechanism().name();
                        self.plan = Some(plan);
                        return Ok(name.into());
                    }
                    Err(Error::Conflict(_)) => return Ok("conflict".into()),
                    Err(error) => return Stop::fail(error.to_string()),
                }
            }
            "make" | "hurry" | "attempt" if Bug::CarriesNothingOut.is_planted() => {}
            "make" | "hurry" | "attempt" => {
                if Bug::KeepsDescriptors.is_planted() {
                    let kept = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0);
                    std::mem::forget(kept);
                }
                let timeout = match what {
                    "make" => patience(),
                    "attempt" => patience().min(IN_VAIN),
                    _ => SOON,
                };
                let made = self.make(label, value()?, timeout)??;
                self.lines.push((label.into(), made));
            }
            "offer" => match self.make(label, value()?, Duration::ZERO)? {
                Err(Error::PeerSilent { .. }) => {}
                other => return Stop::fail(format!("it was not given up: {other:?}")),
            },
            "signal" => {
                let line = self.signals(label)?;
                let queue = self.queue()?;
                queue.submit(&[], |_| Ok(()), &[line.signal_at(value()?)])?;
            }
            "fork" => {
                crate::forked::in_child(|| {
                    *self = Self::new(self.device.clone());
                    Ok(())
                })?;
            }
            "host" => self.signals(label)?.signal(value()?)?,
            "latched" => {
                let line = self.signals(label)?;
                let latch = self.latch()?;
                let work = move |r: &mut syncline::Recorder<'_>| Equipped::block(r, &latch);
                let queue = self.queue()?;
                queue.submit(&[], work, &[line.signal_at(value()?)])?;
            }
            "break" => {
                let signal = match label {
                    "" => None,
                    label => Some((self.signals(label)?, value()?)),
                };
                return self.lose(signal);
            }
            "open" => {
                if let Some(latch) = &self.latch {
                    Equipped::open(latch)?;
                }
            }
            "submit" => {
                let line = self.waits(label)?;
                let held = self.submit(line.at(value()?))?;
                return Ok(if held { "held" } else { "sent" }.into());
            }
            "after" => self.after()?.at(number(label)?).wait(patience())?,
            "driven" => {
                let is_host = matches!(self.device.device(), Device::Host(_));
                return Ok((!is_host).to_string());
            }
            "held" => return Ok(self.queue()?.held().count.to_string()),
            "ran" => return Ok(self.ran.load(Ordering::SeqCst).to_string()),
            "wait" => self.waits(label)?.at(value()?).wait(patience())?,
            "pending" => self.waits(label)?.at(value()?).wait_pending(patience())?,
            "theirs" => return self.asks_for_theirs(label),
            "reached" => return Ok(self.waits(label)?.at(value()?).is_reached()?.to_string()),
            "value" => return Ok(self.waits(label)?.value()?.to_string()),
            "fail" => {
                let cause = Error::work(std::io::Error::other(rest.to_owned()));
                self.signals(label)?.fail(cause);
            }
            "mute" if Bug::FailsInSilence.is_planted() => {}
            "mute" => self.signals(label)?.fail(Error::work(Mute)),
            "drop" => self.lines.retain(|(known, _)| known != label),
            "send" => {
                let value = value()?.saturating_sub(Bug::SendsAnotherPoint.is_planted().into());
                let endpoint = self.endpoint()?;
                match self.made(label)? {
                    Granted::WaitOnly(line) => endpoint.send_point(line.at(value), patience())?,
                    Granted::Both(line) => endpoint.send_point(line.at(value), patience())?,
                    Granted::SignalOnly(line) => {
                        endpoint.send_signal(line.signal_at(value), patience())?;
                    }
                }
            }
            "receive" => {
                let point = self.endpoint()?.receive_point(patience())?;
                point.point().wait(patience())?;
                return Ok(point.point().value().to_string());
            }
            "words" => {
                let words = SharedWords::new(4 * number(label)?)?;
                self.endpoint()?.send_words("words", &words, patience())?;
                self.words = Some(words);
            }
            "toss" => {
                let words = SharedWords::new(4 * number(label)?)?;
                let endpoint = self.endpoint()?;
                match endpoint.send_words("words", &words, Duration::ZERO) {
                    Err(Error::PeerSilent { .. }) => {}
                    other => return Stop::fail(format!("it was not given up: {other:?}")),
                }
            }
            "take" => {
                let endpoint = self.endpoint()?;
                self.words = Some(endpoint.receive_words("words", 1 << 20, patience())?);
            }
            "write" => {
                let value = value()?;
                self.word(label)?.store(value as u32, Ordering::Relaxed);
            }
            "read" => return Ok(self.word(label)?.load(Ordering::Relaxed).to_string()),
            "memory" | "memory_as_image" => {
                let (plan, devices, peers) = (self.plan()?, self.devices(), [&self.endpoint()?]);
                let (what, bytes) = (
                    if what == "memory" { what } else { "image" },
                    number(label)?,
                );
                let made = plan.memory_across(what, bytes, &devices, &peers, patience())?;
                self.memory = made.into_iter().next().map(|(_, memory)| memory);
            }
            #[cfg(feature = "vulkan")]
            "own_memory" => self.memory = self.own_memory(number(label)?)?,
            "fill" => {
                let device = self.device.clone();
                let late = move |r: &mut syncline::Recorder<'_>| device.busy(r, LATE);
                self.fill(label, value()?, late)?;
            }
            "fill_closed" => {
                let latch = self.latch()?;
                self.fill(label, value()?, move |r| Equipped::block(r, &latch))?;
            }
            "check" => return self.check(label, value()?, value()?),
            "peek" => return self.check(label, 0, value()?),
            "plain" => {
                self.submit(KeptPoint::default().point())?;
                return Ok(self.submitted.to_string());
            }
            "through" => return Ok(self.is_through(label)?.to_string()),
            "idle" => self.queue()?.idle(patience())?,
            "descriptors" => {
                closed();
                return lasting_descriptors();
            }
            other => {
                let answer = self.run_with_binaries(other, label, rest);
                let answer = answer.or_else(|| self.run_with_times(other, label, rest));
                let answer = answer.or_else(|| self.run_to_its_end(other, label, rest));
                #[cfg(feature = "vulkan")]
                let answer = answer.or_else(|| self.run_with_images(other, label, rest));
                #[cfg(feature = "cuda")]
                let answer = answer.or_else(|| self.run_with_events(other, label, rest));
                let unknown = || Stop::fail(format!("{other:?} is not a command"));
                return answer.unwrap_or_else(unknown);
            }
        }
        Ok(String::new())
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint, Stop> {
        made(&self.endpoint, "connection")
    }

    pub(crate) fn plan(&self) -> Result<Plan, Stop> {
        made(&self.plan, "plan")
    }

    /// Returns the mechanism of the plan.
    ///
    /// # Errors
    /// There is no plan.
    pub fn mechanism(&self) -> Result<Mechanism, Stop> {
        Ok(self.plan()?.mechanism())
    }

    pub(super) fn devices(&self) -> [Device; 1] {
        [self.device.device().clone()]
    }

    fn make(
        &self,
        label: &str,
        initial: u64,
        timeout: Duration,
    ) -> Result<syncline::Result<Made>, Stop> {
        let endpoint = self.endpoint()?;
        let plan = self.plan()?;
        Ok(plan.make_across(label, initial, &self.devices(), &[&endpoint], timeout))
    }

    pub(super) fn queue(&mut self) -> Result<Queue, Stop> {
        if self.queue.is_none() {
            self.queue = Some(self.device.device().queue(QueueKind::Compute, "half")?);
        }
        made(&self.queue, "queue")
    }

    pub(super) fn after(&mut self) -> Result<Timeline, Stop> {
        if self.after.is_none() {
            self.after = Some(self.device.device().timeline("after")?);
        }
        made(&self.after, "timeline")
    }

    /// Submits work that waits, and then signals its number. Returns whether it is held.
    pub(super) fn submit(&mut self, wait: Point<'_>) -> Result<bool, Stop> {
        let after = self.after()?;
        self.submitted += 1;
        let ran = self.ran.clone();
        let work = move |_: &mut syncline::Recorder<'_>| {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let queue = self.queue()?;
        let signal: Signal<'_> = after.signal_at(self.submitted);
        let submitted = queue.submit(&[wait], work, &[signal])?;
        Ok(submitted.is_held())
    }

    /// Creates a latch, at which work blocks until it is opened.
    pub(super) fn latch(&mut self) -> Result<Latch, Stop> {
        let latch = match self.device.latch() {
            Err(Error::Unsupported { reason, .. }) => return Stop::skip(reason),
            latch => latch?,
        };
        self.latch = Some(latch.clone());
        Ok(latch)
    }

    /// Watches a submission for a moment. Returns whether it has finished.
    fn is_through(&mut self, number_of: &str) -> Result<bool, Stop> {
        let number = number(number_of)?;
        let after = self.after()?;
        let begun = Instant::now();
        loop {
            if after.at(number).is_reached()? {
                return Ok(true);
            }
            if begun.elapsed() > WATCHED {
                return Ok(false);
            }
            std::thread::yield_now();
        }
    }

    /// Shares memory of the application, if this is the process of the plan's home.
    ///
    /// It is a range of a buffer behind another one. The other process does as for other memory.
    #[cfg(feature = "vulkan")]
    fn own_memory(&self, bytes: u64) -> Result<Option<Buffer>, Stop> {
        let (plan, endpoint, devices) = (self.plan()?, self.endpoint()?, self.devices());
        let (label, peers) = ("memory", [&endpoint]);
        let is_home = plan.home().id() == Party::of(&devices[0]).id();
        let made = match &devices[0] {
            Device::Vulkan(vulkan) if is_home => {
                let buffers = Arc::new(Arena::new(vulkan)?).adopt()?;
                let Some(last) = buffers.last() else {
                    return Stop::fail("there is no buffer");
                };
                let range = last.view(64, bytes)?;
                plan.buffer_across(label, &range, &devices, &peers, patience())?
            }
            _ => plan.memory_across(label, bytes, &devices, &peers, patience())?,
        };
        Ok(made.into_iter().next().map(|(_, memory)| memory))
    }

    fn word(&self, at: &str) -> Result<&AtomicU32, Stop> {
        let at = number(at)? as usize;
        let words = self.words.as_ref().map(SharedWords::words);
        let word = words.and_then(|words| words.get(at));
        word.map_or_else(|| Stop::fail(format!("there is no word {at}")), Ok)
    }

    /// Fills the memory after `before`, and signals.
    fn fill(
        &mut self,
        label: &str,
        value: u64,
        before: impl FnOnce(&mut syncline::Recorder<'_>) -> syncline::Result<()> + Send + 'static,
    ) -> Verdict {
        let line = self.signals(label)?;
        let memory = self.memory()?;
        let work = move |recorder: &mut syncline::Recorder<'_>| {
            before(recorder)?;
            Equipped::fill(recorder, &memory, value as u32)
        };
        let queue = self.queue()?;
        queue.submit(&[], work, &[line.signal_at(value)])?;
        Ok(())
    }

    fn check(&mut self, label: &str, wait: u64, value: u64) -> Result<String, Stop> {
        let line = self.waits(label)?;
        let queue = self.queue()?;
        queue.submit(&[line.at(wait)], |_| Ok(()), &[])?;
        self.copies(value)
    }

    pub(super) fn memory(&self) -> Result<Buffer, Stop> {
        made(&self.memory, "memory")
    }

    /// Checks that the memory contains `value` after the queue's work.
    pub(super) fn copies(&mut self, value: u64) -> Result<String, Stop> {
        let memory = self.memory()?;
        let count = 1024;
        let copy = self.device.buffer(count)?;
        let (from, to) = (memory, copy.clone());
        let work = move |r: &mut syncline::Recorder<'_>| Equipped::copy(r, &from, &to);
        let queue = self.queue()?;
        queue.submit(&[], work, &[])?;
        queue.idle(patience())?;
        let words = Equipped::read(&copy);
        let right = words.iter().all(|&word| u64::from(word) == value);
        Ok(if right { "right" } else { "wrong" }.into())
    }
}

/// Returns what a command before has made.
pub(super) fn made<T: Clone>(of: &Option<T>, what: &str) -> Result<T, Stop> {
    let none = || Stop::fail(format!("there is no {what}"));
    of.clone().map_or_else(none, Ok)
}

pub(super) fn number(text: &str) -> Result<u64, Stop> {
    text.parse()
        .map_err(|_| Stop::Failed(format!("{text:?} is no number")))
}

/// Counts open descriptors by kind, such as `11: 4 /dev/null, 7 socket`.
///
/// Files of /proc are left out, because threads that watch a process have those open for a moment.
fn lasting_descriptors() -> Result<String, Stop> {
    let missing = |error: std::io::Error| Stop::Skipped(format!("no /proc to count in: {error}"));
    let open = std::fs::read_dir("/proc/self/fd").map_err(missing)?;
    // The listing itself is a file of /proc, too. A descriptor that is gone by now did not last.
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let mut kinds = BTreeMap::<String, usize>::new();
    for target in targets.filter(|target| !target.starts_with("/proc")) {
        // Sockets and pipes have a number each: `socket:[4711]`.
        let target = target.display().to_string();
        let kind = target.split(":[").next().unwrap_or_default();
        *kinds.entry(kind.into()).or_default() += 1;
    }
    let list: Vec<_> = kinds
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    Ok(format!(
        "{}: {}",
        kinds.values().sum::<usize>(),
        list.join(", ")
    ))
}

/// Waits until the threads that close descriptors of peers are idle, which means asleep.
///
/// Waits no longer than [`patience`].
fn closed() {
    let begin = Instant::now();
    let closes = |task: std::fs::DirEntry| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let is_asleep = || {
            read("stat")
                .rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(" S"))
        };
        read("comm").trim() == "syncline-close" && !is_asleep()
    };
    while begin.elapsed() < patience()
        && std::fs::read_dir("/proc/self/task")
            .is_ok_and(|mut all| all.any(|task| task.is_ok_and(closes)))
    {
        std::thread::yield_now();
    }
}

/// An error of the application whose text panics.
#[derive(Debug)]
struct Mute;

impl fmt::Display for Mute {
    #[allow(clippy::panic, reason = "what the case is about")]
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("this error has no words")
    }
}

impl std::error::Error for Mute {}
