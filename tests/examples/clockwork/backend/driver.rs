//! The artificial driver: what a vendor's library would be. Nothing here knows of Syncline.
//!
//! One thread plays the device. It has two hardware queues, which run lists of commands, each queue
//! in order and the queues side by side: a queue that waits, is busy or is held up lets the other
//! go on. Memory, counters and clocks are the device's; the host has handles, and must not free
//! what a list still uses. Like a validation layer, the driver writes down what was done wrong, and
//! carries on.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many hardware queues there are.
pub(crate) const QUEUES: usize = 2;

/// How many commands a hardware queue takes. What comes then blocks its caller, as other drivers
/// do.
pub(crate) const CAPACITY: usize = 4096;

/// The device's clock counts in steps of so many nanoseconds.
pub(crate) const TICK: u64 = 40;

/// Names an object of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(u64);

/// A program of the device. It gets the words of some memories, and constants.
pub(crate) type Kernel = fn(&[Arc<[AtomicU32]>], &[u32]);

/// One step of a list.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Goes on once the counter is at the value or past it.
    Wait(Handle, u64),
    /// Sets the counter.
    Signal(Handle, u64),
    /// Sets every word of the memory.
    Fill(Handle, u32),
    /// Copies all words of the first memory to the second.
    Copy(Handle, Handle),
    /// Runs a kernel on the memories, with the constants.
    Run(Kernel, Vec<Handle>, Vec<u32>),
    /// Does nothing for that long.
    Busy(Duration),
    /// Goes on once the first word of the memory is not zero.
    Hold(Handle),
    /// Writes the clock, in ticks.
    Time(Arc<OnceLock<u64>>),
}

/// What was done wrong. Can be read after the machine is gone.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Vec<String>>>);

impl Faults {
    fn push(&self, fault: String) {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(fault);
    }

    /// All so far.
    pub(crate) fn list(&self) -> Vec<String> {
        let faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.clone()
    }
}

/// What a handle stands for.
#[derive(Clone)]
enum Object {
    Memory(Arc<[AtomicU32]>),
    Counter(Arc<AtomicU64>),
}

#[derive(Default)]
struct State {
    objects: HashMap<Handle, Object>,
    next: u64,
    queues: [Ring; QUEUES],
    /// Counters that have a name, and wait for their import.
    named: HashMap<u64, Arc<AtomicU64>>,
    faults: Faults,
    stopped: bool,
}

#[derive(Default)]
struct Ring {
    commands: VecDeque<Command>,
    busy_until: Option<Instant>,
}

struct Shared {
    state: Mutex<State>,
    /// For the device: there is something to do.
    work: Condvar,
    /// For the host: a counter has moved, or a wait is interrupted.
    news: Condvar,
    /// For the host: a hardware queue has run a command.
    space: Condvar,
    born: Instant,
}

impl Shared {
    fn ticks(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64 / TICK
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device, as the host has it.
pub(crate) struct Machine {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Machine {
    /// Switches the device on.
    pub(crate) fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            news: Condvar::new(),
            space: Condvar::new(),
            born: Instant::now(),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name("clockwork".into())
            .spawn(move || run(&own))?;
        let thread = Some(thread);
        Ok(Self { shared, thread })
    }

    fn make(&self, object: Object) -> Handle {
        let mut state = self.shared.lock();
        state.next += 1;
        let handle = Handle(state.next);
        state.objects.insert(handle, object);
        handle
    }

    /// Memory of so many words, all zero, and where the host sees them.
    pub(crate) fn memory(&self, words: usize) -> (Handle, Arc<[AtomicU32]>) {
        let memory: Arc<[AtomicU32]> = (0..words).map(|_| AtomicU32::new(0)).collect();
        (self.make(Object::Memory(memory.clone())), memory)
    }

    /// A counter.
    pub(crate) fn counter(&self, initial: u64) -> Handle {
        self.make(Object::Counter(Arc::new(AtomicU64::new(initial))))
    }

    /// Frees memory or a counter. A list that still uses it is a fault.
    pub(crate) fn free(&self, handle: Handle) {
        let mut state = self.shared.lock();
        if state.objects.remove(&handle).is_none() {
            state.faults.push(format!("{handle:?} was freed twice"));
        }
    }

    /// What the counter is at.
    pub(crate) fn read(&self, counter: Handle) -> u64 {
        self.shared.lock().value(counter)
    }

    /// Sets a counter from the host.
    pub(crate) fn write(&self, counter: Handle, value: u64) {
        self.shared.lock().set(counter, value);
        self.shared.work.notify_one();
        self.shared.news.notify_all();
    }

    /// Gives a list to a hardware queue, and blocks for as long as that is too full for it. Calls
    /// for one queue come one at a time, the driver says.
    pub(crate) fn submit(&self, queue: usize, list: Vec<Command>) {
        let mut state = self.shared.lock();
        loop {
            let there = state.queues[queue].commands.len();
            if there == 0 || there + list.len() <= CAPACITY {
                break;
            }
            let woken = self.shared.space.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.queues[queue].commands.extend(list);
        drop(state);
        self.shared.work.notify_one();
    }

    /// The device looks again: memory that it holds before has changed.
    pub(crate) fn kick(&self) {
        // With the lock, or the device might be between its look and its sleep.
        drop(self.shared.lock());
        self.shared.work.notify_one();
    }

    /// Gives the counter a name, for one [`Machine::import`].
    pub(crate) fn export(&self, counter: Handle) -> u64 {
        let mut state = self.shared.lock();
        state.next += 1;
        let name = state.next;
        match state.objects.get(&counter) {
            Some(Object::Counter(cell)) => {
                let cell = cell.clone();
                state.named.insert(name, cell);
            }
            _ => state.faults.push(format!("{counter:?} is no counter")),
        }
        name
    }

    /// A second handle of the counter with this name, or `None` if no counter has it.
    pub(crate) fn import(&self, name: u64) -> Option<Handle> {
        let cell = self.shared.lock().named.remove(&name)?;
        Some(self.make(Object::Counter(cell)))
    }

    /// Blocks until a counter is at its value, the wait is interrupted, or the time is over.
    pub(crate) fn wait_any(
        &self,
        counters: &[(Handle, u64)],
        until: Instant,
        interrupted: &AtomicBool,
    ) {
        let mut state = self.shared.lock();
        loop {
            let reached = |&(counter, value): &(Handle, u64)| state.value(counter) >= value;
            let left = until.saturating_duration_since(Instant::now());
            let interrupted = interrupted.swap(false, Ordering::Relaxed);
            if counters.iter().any(reached) || interrupted || left.is_zero() {
                return;
            }
            let (woken, _) = self
                .shared
                .news
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
        }
    }

    /// Ends the present [`Machine::wait_any`] with the same flag, or the next.
    pub(crate) fn interrupt(&self, flag: &AtomicBool) {
        // Under the lock, or a waiter could be between its look and its sleep.
        let state = self.shared.lock();
        flag.store(true, Ordering::Relaxed);
        drop(state);
        self.shared.news.notify_all();
    }

    /// What the clock shows, in ticks since the device was switched on.
    pub(crate) fn clock(&self) -> u64 {
        self.shared.ticks()
    }

    /// What was done wrong, and will be.
    pub(crate) fn faults(&self) -> Faults {
        self.shared.lock().faults.clone()
    }
}

impl Drop for Machine {
    /// Runs what can run, and switches the device off.
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

impl State {
    fn value(&self, counter: Handle) -> u64 {
        match self.objects.get(&counter) {
            Some(Object::Counter(value)) => value.load(Ordering::Acquire),
            _ => 0,
        }
    }

    fn set(&mut self, counter: Handle, value: u64) {
        match self.objects.get(&counter) {
            Some(Object::Counter(cell)) => {
                let before = cell.swap(value, Ordering::AcqRel);
                if before >= value {
                    self.faults
                        .push(format!("{counter:?} was set from {before} to {value}"));
                }
            }
            _ => self.faults.push(format!("{counter:?} is no counter")),
        }
    }

    fn words(&mut self, memory: Handle) -> Arc<[AtomicU32]> {
        match self.objects.get(&memory) {
            Some(Object::Memory(words)) => words.clone(),
            _ => {
                self.faults.push(format!("{memory:?} is no memory"));
                Arc::new([])
            }
        }
    }

    /// Carries the command out, or says that its queue must stand still, and for how long at most.
    fn step(&mut self, command: &Command, ticks: u64) -> Result<(), Option<Duration>> {
        match *command {
            Command::Wait(counter, value) => match self.objects.get(&counter) {
                Some(Object::Counter(cell)) if cell.load(Ordering::Acquire) < value => {
                    return Err(None);
                }
                Some(Object::Counter(_)) => {}
                _ => self.faults.push(format!("{counter:?} is no counter")),
            },
            Command::Signal(counter, value) => self.set(counter, value),
            Command::Fill(memory, value) => {
                for word in &*self.words(memory) {
                    word.store(value, Ordering::Relaxed);
                }
            }
            Command::Copy(from, to) => {
                for (from, to) in self.words(from).iter().zip(&*self.words(to)) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
            Command::Run(kernel, ref memories, ref constants) => {
                let memories: Vec<_> = memories.iter().map(|one| self.words(*one)).collect();
                kernel(&memories, constants);
            }
            Command::Busy(time) => return Err(Some(time)),
            Command::Hold(memory) => {
                let words = self.words(memory);
                if words
                    .first()
                    .is_some_and(|w| w.load(Ordering::Acquire) == 0)
                {
                    return Err(None);
                }
            }
            Command::Time(ref slot) => {
                let _ = slot.set(ticks);
            }
        }
        Ok(())
    }

    /// Runs one command of `queue`. `None`: there is none that could run before the time given.
    fn advance(
        &mut self,
        queue: usize,
        ticks: impl Fn() -> u64,
    ) -> Result<Command, Option<Instant>> {
        let ring = &mut self.queues[queue];
        let now = Instant::now();
        if let Some(until) = ring.busy_until.filter(|&until| until > now) {
            return Err(Some(until));
        }
        ring.busy_until = None;
        let command = ring.commands.pop_front().ok_or(None)?;
        match self.step(&command, ticks()) {
            Ok(()) => Ok(command),
            Err(Some(busy)) => {
                self.queues[queue].busy_until = Some(now + busy);
                Err(Some(now + busy))
            }
            Err(None) => {
                self.queues[queue].commands.push_front(command);
                Err(None)
            }
        }
    }
}

/// The device's life.
fn run(shared: &Shared) {
    let mut state = shared.lock();
    loop {
        let mut ran = false;
        let mut next: Option<Instant> = None;
        for queue in 0..QUEUES {
            match state.advance(queue, || shared.ticks()) {
                Ok(command) => {
                    ran = true;
                    shared.space.notify_one();
                    if matches!(command, Command::Signal(..)) {
                        shared.news.notify_all();
                    }
                }
                Err(Some(until)) => next = Some(next.map_or(until, |at| at.min(until))),
                Err(None) => {}
            }
        }
        if ran {
            // The host gets its turn at the lock.
            drop(state);
            state = shared.lock();
            continue;
        }
        if state.stopped && next.is_none() {
            return;
        }
        state = match next {
            None => shared
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                let woken = shared.work.wait_timeout(state, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}
