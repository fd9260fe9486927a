//! A hardware connection: commands of several streams, which run one after another.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::context::Life;
use crate::operation::{Operation, Place};
use crate::progress::Progress;
use crate::settings::settings;
use crate::{lock, news};

/// So many commands a connection takes. The next one blocks the calling thread.
const ROOM: usize = 1021;
/// So much time passes between a fault and the first call that reports it.
const FAULT_NOTICE: Duration = Duration::from_millis(145);
/// How often a connection that has faulted looks whether its context is over.
const FAULT_LOOK: Duration = Duration::from_millis(5);

/// One of a context's connections. Its thread starts with the first command.
pub(crate) struct Connection {
    life: Arc<Life>,
    context: u64,
    /// Makes the random delays of each connection different ones.
    number: u64,
    queue: Mutex<Queue>,
    work: Condvar,
    room: Condvar,
    /// How many commands have ended. Waiting threads read it without the lock.
    ended: AtomicU64,
    /// The thread runs.
    runs: AtomicBool,
}

#[derive(Default)]
struct Queue {
    commands: VecDeque<Command>,
    /// How much room is taken.
    used: usize,
    /// How many commands have been pushed.
    pushed: u64,
}

struct Command {
    operation: Operation,
    room: usize,
    /// Of the stream that it belongs to. Waits that the driver adds belong to none.
    progress: Option<Arc<Progress>>,
}

impl Connection {
    pub(crate) fn new(life: Arc<Life>, context: u64, number: u64) -> Arc<Self> {
        Arc::new(Self {
            life,
            context,
            number,
            queue: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            ended: AtomicU64::new(0),
            runs: AtomicBool::new(false),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Takes room for a command. Blocks while there is none.
    pub(crate) fn reserve(&self, room: usize) -> Answer {
        let mut queue = self.queue();
        while room > 0 && queue.used > 0 && queue.used + room > ROOM {
            self.life.check()?;
            queue = self
                .room
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queue.used += room;
        self.life.check()
    }

    /// Adds a command of a stream, for which there is [room](Connection::reserve). Returns its number in the
    /// stream.
    pub(crate) fn push(
        self: &Arc<Self>,
        operation: Operation,
        room: usize,
        progress: &Arc<Progress>,
    ) -> Answer<u64> {
        let mut queue = self.queue();
        self.start()?;
        let number = progress.submit();
        self.add(&mut queue, operation, room, Some(progress.clone()));
        Ok(number)
    }

    /// Adds a wait of the driver's own, which takes no room.
    pub(crate) fn push_wait(self: &Arc<Self>, progress: Arc<Progress>, number: u64) -> Answer {
        let mut queue = self.queue();
        self.start()?;
        let wait = Operation::WaitProgress(progress, number);
        self.add(&mut queue, wait, 0, None);
        Ok(())
    }

    fn add(
        &self,
        queue: &mut Queue,
        operation: Operation,
        room: usize,
        progress: Option<Arc<Progress>>,
    ) {
        let mut earlier = false;
        if let Operation::Record(mark) = &operation
            && Bug::RecordsEarlierPosition.is_planted()
        {
            earlier = true;
            if queue.commands.is_empty() {
                mark.complete();
            }
        }
        let command = Command {
            operation,
            room,
            progress,
        };
        let last = queue.commands.len().saturating_sub(usize::from(earlier));
        queue.commands.insert(last, command);
        queue.pushed += 1;
        self.work.notify_one();
    }

    /// Starts the thread, under the queue's lock.
    fn start(self: &Arc<Self>) -> Answer {
        self.life.check()?;
        if self.runs.load(Ordering::Acquire) {
            return Ok(());
        }
        let connection = self.clone();
        // Detached: the process may exit at any time.
        let thread = std::thread::Builder::new().name("software-cuda".into());
        thread
            .spawn(move || connection.run())
            .map_err(|_| Code::OPERATING_SYSTEM)?;
        self.runs.store(true, Ordering::Release);
        Ok(())
    }

    fn run(&self) {
        let mut delays = Delays::new(self.context, self.number);
        let place = Place {
            life: &self.life,
            context: self.context,
        };
        let mut queue = self.queue();
        while !self.life.is_over() {
            let Some(command) = queue.commands.pop_front() else {
                queue = self
                    .work
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            let room = command.room;
            delays.rest();
            self.execute(command, &place);
            queue = self.queue();
            queue.used = queue.used.saturating_sub(room);
            self.ended.fetch_add(1, Ordering::AcqRel);
            self.room.notify_all();
            news::tell();
        }
        // Whatever is left never runs. Its destructors may call the application.
        let left = std::mem::take(&mut queue.commands);
        queue.used = 0;
        drop(queue);
        drop(left);
        self.runs.store(false, Ordering::Release);
        self.room.notify_all();
        news::tell();
    }

    fn execute(&self, command: Command, place: &Place<'_>) {
        let Command {
            operation,
            progress,
            ..
        } = command;
        let complete = || {
            if let Some(progress) = &progress {
                progress.complete();
            }
        };
        // An event that is complete is behind a stream that is idle, and not the other way round.
        if let Operation::Record(mark) = &operation {
            complete();
            mark.complete();
            return;
        }
        let run = AssertUnwindSafe(|| operation.run(place));
        match catch_unwind(run).unwrap_or(Err(Code::LAUNCH_FAILED)) {
            Ok(()) if !self.life.is_over() => {
                // Before the stream is idle: what the command kept may be freed then.
                drop(operation);
                complete();
            }
            Ok(()) => {}
            Err(code) => {
                self.notice_late();
                self.life.fail(code);
                if Bug::FaultIsForgotten.is_planted() {
                    complete();
                }
            }
        }
    }

    /// A GPU reports a fault late. Other connections go on until then.
    fn notice_late(&self) {
        let start = Instant::now();
        while start.elapsed() < FAULT_NOTICE && !self.life.is_over() {
            std::thread::sleep(FAULT_LOOK);
        }
    }

    /// Waits until everything that was pushed so far has ended.
    pub(crate) fn synchronize(&self) -> Answer {
        let pushed = self.queue().pushed;
        news::wait_until(|| self.life.is_over() || self.ended.load(Ordering::Acquire) >= pushed);
        self.life.check()
    }

    /// Waits for the thread. The context is over.
    pub(crate) fn end(&self) {
        {
            let _queue = self.queue();
            self.work.notify_all();
            self.room.notify_all();
        }
        news::wait_until(|| !self.runs.load(Ordering::Acquire));
    }
}

/// Delays in front of commands, as the settings say.
struct Delays {
    slow: Duration,
    random: Option<u64>,
}

impl Delays {
    /// One command in so many is delayed.
    const RARELY: u64 = 4;
    const LONGEST_MICROSECONDS: u64 = 300;

    fn new(context: u64, connection: u64) -> Self {
        let settings = settings().ok();
        let seed = settings.and_then(|settings| settings.seed);
        Self {
            slow: settings.map_or(Duration::ZERO, |settings| settings.slow),
            random: seed.map(|seed| mix(seed ^ mix(context) ^ mix(connection + 1))),
        }
    }

    fn rest(&mut self) {
        if !self.slow.is_zero() {
            std::thread::sleep(self.slow);
        }
        if let Some(state) = &mut self.random {
            *state = mix(*state);
            if *state % Self::RARELY == 0 {
                let delay = *state / Self::RARELY % Self::LONGEST_MICROSECONDS;
                std::thread::sleep(Duration::from_micros(delay));
            }
        }
    }
}

/// One step of a generator of random numbers (SplitMix64).
const fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
