//! The way of submissions to a worker thread: two lists in turn, which keep the room for the usual few.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::queue::Task;
use crate::run::quietly;

/// How long the worker looks for more before it sleeps: about what waking it costs.
const SPIN: Duration = Duration::from_micros(10);

/// A list that has held more than so many gives its room back: it is used again when it is empty.
const KEPT: usize = 128;

/// For how long of that it keeps others off its processor.
const ALONE: Duration = Duration::from_micros(3);

/// How often it looks for each time that it looks at the clock.
const LOOKS: u32 = 8;

#[derive(Default)]
pub(super) struct Tasks {
    state: Mutex<State>,
    more: Condvar,
    /// There are tasks, or the queue is gone: to be looked at without the lock.
    ready: AtomicBool,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    asleep: bool,
    closed: bool,
    /// There is no worker any more.
    ended: bool,
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No critical section here can leave the list in between.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False, and nothing has happened but that `task` is dropped, if the worker has ended.
    pub(super) fn push(&self, task: Task) -> bool {
        let wakes = {
            let mut state = self.lock();
            if state.ended {
                return false;
            }
            state.tasks.push_back(task);
            self.ready.store(true, Ordering::Release);
            std::mem::take(&mut state.asleep)
        };
        if wakes {
            self.more.notify_one();
        }
        true
    }

    /// The worker ends once it has done what is there.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.ready.store(true, Ordering::Release);
        self.more.notify_one();
    }

    /// The worker has ended, whatever it was that ended it.
    pub(super) fn end(&self) {
        let left = {
            let mut state = self.lock();
            state.ended = true;
            std::mem::take(&mut state.tasks)
        };
        quietly(|| drop(left));
    }

    /// Puts what there is into `batch`, which is empty; waits until there is something. False at the end.
    pub(super) fn take(&self, batch: &mut VecDeque<Task>) -> bool {
        if batch.capacity() > KEPT {
            *batch = VecDeque::new();
        }
        let start = Instant::now();
        while !self.ready.load(Ordering::Acquire) {
            let spun = start.elapsed();
            if spun > SPIN {
                break;
            }
            if spun > ALONE {
                std::thread::yield_now();
            }
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if self.ready.load(Ordering::Acquire) {
                    break;
                }
            }
        }
        let mut state = self.lock();
        while state.tasks.is_empty() {
            if state.closed {
                return false;
            }
            state.asleep = true;
            state = self
                .more
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep = false;
        std::mem::swap(&mut state.tasks, batch);
        self.ready.store(state.closed, Ordering::Relaxed);
        true
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tasks", self.lock().tasks.len())
    }
}
