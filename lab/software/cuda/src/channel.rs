//! The commands of one stream.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::engine::{Engine, Ticket};
use crate::external::SignalSemaphore;
use crate::operation::Operation;
use crate::progress::Progress;
use crate::settings::settings;
use crate::workers::Reserved;
use crate::{lock, news};

/// The largest number of commands of a stream. The next one blocks the calling thread.
const IN_FLIGHT_BUDGET: usize = 1021;

/// The commands of a stream. A worker runs them one after another.
pub(crate) struct Channel {
    engine: Arc<Engine>,
    thread: Reserved,
    pub(crate) progress: Arc<Progress>,
    queue: Mutex<Queue>,
    /// Notified when some of the in-flight budget is free again.
    freed: Condvar,
    /// True while a worker has the queue.
    runs: AtomicBool,
}

struct Queue {
    commands: VecDeque<Command>,
    /// True while a worker has a command that has not ended.
    executes: bool,
    /// The used part of the in-flight budget.
    used: usize,
    delays: Delays,
}

struct Command {
    operation: Operation,
    cost: usize,
    ticket: Ticket,
    /// True for a command of the stream. False for a wait that the driver has added.
    counts: bool,
}

impl Queue {
    /// True if everything in the stream has ended.
    fn is_idle(&self) -> bool {
        !self.executes && self.commands.is_empty()
    }

    /// Takes the next command, which a worker then executes.
    fn take(&mut self) -> Option<Command> {
        let command = self.commands.pop_front()?;
        self.executes = true;
        Some(command)
    }
}

impl Channel {
    /// Creates a channel. `number` makes the random delays of each stream different.
    pub(crate) fn new(engine: &Arc<Engine>, number: u64, thread: Reserved) -> Arc<Self> {
        Arc::new(Self {
            engine: engine.clone(),
            thread,
            progress: Arc::default(),
            queue: Mutex::new(Queue {
                commands: VecDeque::new(),
                executes: false,
                used: 0,
                delays: Delays::new(engine.context, number),
            }),
            freed: Condvar::new(),
            runs: AtomicBool::new(false),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Reserves some of the in-flight budget. Blocks until that much is free.
    pub(crate) fn reserve(&self, cost: usize) -> Answer {
        let mut queue = self.queue();
        loop {
            self.engine.life.check()?;
            if cost == 0 || queue.used + cost <= IN_FLIGHT_BUDGET {
                break;
            }
            queue = self
                .freed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queue.used += cost;
        Ok(())
    }

    /// Adds a command whose cost is [reserved](Channel::reserve). Returns its number in the stream.
    pub(crate) fn push(self: &Arc<Self>, operation: Operation, cost: usize) -> Answer<u64> {
        let mut queue = self.queue();
        let is_first = queue.is_idle();
        self.start()?;
        // Nothing refuses the command from here on.
        let operation = operation.submitted(&self.engine);
        let ticket = self.engine.connections.ticket();
        if is_first && operation.waits() {
            // It is parked at once, and not only when a worker reaches it.
            self.engine.connections.park(ticket);
        }
        let number = self.progress.submit();
        let mut place = queue.commands.len();
        match &operation {
            Operation::Record(mark) if Bug::RecordsEarlierPosition.is_planted() => {
                if place == 0 {
                    mark.complete();
                }
                place = place.saturating_sub(1);
            }
            Operation::Record(mark) => mark.bind(&self.engine, &self.progress, number),
            Operation::Graph(launched) => launched.bind(&self.progress, number),
            _ => {}
        }
        let command = Command {
            operation,
            cost,
            ticket,
            counts: true,
        };
        queue.commands.insert(place, command);
        Ok(number)
    }

    /// Adds a wait of the driver, which costs nothing.
    pub(crate) fn push_wait(self: &Arc<Self>, progress: Arc<Progress>, number: u64) -> Answer {
        let mut queue = self.queue();
        self.start()?;
        queue.commands.push_back(Command {
            operation: Operation::WaitProgress(progress, number),
            cost: 0,
            ticket: self.engine.connections.ticket(),
            counts: false,
        });
        Ok(())
    }

    /// Starts a worker, with the queue locked.
    fn start(self: &Arc<Self>) -> Answer {
        self.engine.life.check()?;
        if self.runs.load(Ordering::Acquire) {
            return Ok(());
        }
        let channel = self.clone();
        self.runs.store(true, Ordering::Release);
        self.thread.run(move || channel.run());
        Ok(())
    }

    fn run(&self) {
        let mut queue = self.queue();
        while !self.engine.life.is_over()
            && let Some(command) = queue.take()
        {
            let delay = queue.delays.next();
            drop(queue);
            if !delay.is_zero() {
                std::thread::sleep(delay);
            }
            self.execute(command);
            queue = self.queue();
        }
        if self.engine.life.is_over() {
            // The remaining commands never run. Their destructors may call the application.
            let left = std::mem::take(&mut queue.commands);
            drop(queue);
            drop(left);
            queue = self.queue();
        }
        self.runs.store(false, Ordering::Release);
        drop(queue);
        self.freed.notify_all();
        news::tell();
    }

    fn execute(&self, command: Command) {
        let (engine, operation) = (&self.engine, command.operation);
        let cost = Cell::new(command.cost);
        let free = || self.free(cost.take());
        let complete = || {
            free();
            // A thread that learns of the command's end finds the stream idle.
            let mut queue = self.queue();
            queue.executes = false;
            if command.counts {
                self.progress.complete();
            }
        };
        // The hardware has taken a kernel that has begun, so it costs nothing while it runs.
        let run = AssertUnwindSafe(|| operation.run(engine, command.ticket, free));
        match catch_unwind(run).unwrap_or(Err(Code::LAUNCH_FAILED)) {
            Ok(()) if !engine.life.is_over() => {
                // Before the stream is idle: objects that the command kept may be freed then.
                drop(operation);
                complete();
            }
            Ok(()) => {}
            Err(code) => {
                if Bug::FaultSignals.is_planted() {
                    self.make_signals();
                }
                engine.life.fail_late(code);
                if Bug::FaultIsForgotten.is_planted() {
                    complete();
                }
            }
        }
    }

    /// Makes the signals of all commands, as [`Bug::FaultSignals`] does.
    fn make_signals(&self) {
        for command in &self.queue().commands {
            if let Operation::SignalSemaphores(all) = &command.operation {
                all.iter().for_each(SignalSemaphore::run);
            }
        }
    }

    /// Returns some of the in-flight budget.
    pub(crate) fn free(&self, cost: usize) {
        if cost > 0 {
            let mut queue = self.queue();
            queue.used = queue.used.saturating_sub(cost);
            drop(queue);
            self.freed.notify_all();
        }
    }

    /// Waits until no worker has the queue. The context has ended.
    pub(crate) fn end(&self) {
        self.freed.notify_all();
        news::wait_until(|| !self.runs.load(Ordering::Acquire));
    }
}

/// Delays before commands, according to the settings.
struct Delays {
    slow: Duration,
    random: Option<u64>,
}

impl Delays {
    /// One in this many commands is delayed.
    const RARELY: u64 = 16;
    const LONGEST_MICROSECONDS: u64 = 300;

    fn new(context: u64, stream: u64) -> Self {
        let settings = settings().ok();
        let seed = settings.and_then(|settings| settings.seed);
        Self {
            slow: settings.map_or(Duration::ZERO, |settings| settings.slow),
            random: seed.map(|seed| mix(seed ^ mix(context) ^ mix(stream + 1))),
        }
    }

    fn next(&mut self) -> Duration {
        let mut delay = self.slow;
        if let Some(state) = &mut self.random {
            *state = mix(*state);
            if *state % Self::RARELY == 0 {
                let random = *state / Self::RARELY % Self::LONGEST_MICROSECONDS;
                delay += Duration::from_micros(random);
            }
        }
        delay
    }
}

/// One step of a generator of random numbers (SplitMix64).
const fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use super::*;
    use crate::context::Context;

    #[test]
    fn a_wait_is_parked_at_once_if_everything_before_it_has_ended() {
        let context = Context::for_tests();
        let channel = context.new_channel(crate::workers::reserve().unwrap());
        // A worker that has run a command and has not looked for the next one yet.
        channel.runs.store(true, Ordering::Release);
        channel.push(Operation::MemoryOps([].into()), 0).unwrap();
        let command = channel.queue().take().unwrap();
        let wait = || Operation::WaitSemaphores([].into());
        channel.push(wait(), 0).unwrap();
        assert_eq!(context.engine.connections.parked(), 0);
        channel.queue().commands.clear();
        channel.execute(command);
        channel.push(wait(), 0).unwrap();
        assert_eq!(context.engine.connections.parked(), 1);
    }
}
