//! The thread that runs all host functions of a context, one after another.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::code::{Answer, Code};
use crate::engine::{Engine, Life};
use crate::{lock, news};

/// A function of the application.
#[derive(Clone, Copy)]
pub(crate) struct HostFunction {
    pub(crate) function: extern "C" fn(*mut c_void),
    pub(crate) data: *mut c_void,
}

// SAFETY: the application gives the pointer to its own function, on whichever thread that runs.
#[allow(unsafe_code, reason = "a pointer that only the application follows")]
unsafe impl Send for HostFunction {}
// SAFETY: as for sending.
#[allow(unsafe_code, reason = "as above")]
unsafe impl Sync for HostFunction {}

/// A call of a host function.
struct Call {
    host: HostFunction,
    state: AtomicU8,
}

const QUEUED: u8 = 0;
const RUNS: u8 = 1;
const ENDED: u8 = 2;

/// The calls that are ready.
#[derive(Default)]
pub(crate) struct HostThread {
    due: Mutex<VecDeque<Arc<Call>>>,
    more: Condvar,
}

std::thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// True on the thread of a host function, which may not call the driver.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

impl HostFunction {
    /// Requests a call of the function, and waits until it returns.
    ///
    /// If the context has ended, the function is not called. A call that has begun is waited for.
    pub(crate) fn run(self, engine: &Arc<Engine>) -> Answer {
        let call = Arc::new(Call {
            host: self,
            state: AtomicU8::new(QUEUED),
        });
        engine.host.add(call.clone());
        let has_ended = || call.state.load(Ordering::Acquire) == ENDED;
        news::wait_until(|| has_ended() || engine.life.is_over());
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        if call
            .state
            .compare_exchange(QUEUED, ENDED, set, get)
            .is_err()
        {
            news::wait_until(has_ended);
        }
        Ok(())
    }
}

impl HostThread {
    /// Starts the thread of a context.
    pub(crate) fn start(engine: &Arc<Engine>) -> Answer {
        let engine = engine.clone();
        // Detached: the process may exit at any time.
        let thread = std::thread::Builder::new().name("software-cuda-host".into());
        let started = thread.spawn(move || engine.host.run(&engine.life));
        started.map(drop).map_err(|_| Code::OPERATING_SYSTEM)
    }

    fn add(&self, call: Arc<Call>) {
        lock(&self.due).push_back(call);
        self.more.notify_one();
    }

    /// Ends the thread of a context that has ended.
    pub(crate) fn end(&self) {
        let _due = lock(&self.due);
        self.more.notify_all();
    }

    fn run(&self, life: &Life) {
        INSIDE.set(true);
        let mut due = lock(&self.due);
        while !life.is_over() {
            let Some(call) = due.pop_front() else {
                due = self.more.wait(due).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(due);
            let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
            if call.state.compare_exchange(QUEUED, RUNS, set, get).is_ok() {
                (call.host.function)(call.host.data);
                call.state.store(ENDED, Ordering::Release);
                news::tell();
            }
            due = lock(&self.due);
        }
        due.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;
    use crate::context::Context;

    #[derive(Default)]
    struct Flags {
        begun: AtomicBool,
        is_over: AtomicBool,
        returned: AtomicBool,
    }

    extern "C" fn slow(flags: *mut c_void) {
        // SAFETY: the test passes flags that outlive the call.
        #[allow(unsafe_code, reason = "follows the test's own pointer")]
        let flags = unsafe { &*flags.cast::<Flags>() };
        flags.begun.store(true, Ordering::SeqCst);
        while !flags.is_over.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // A command that did not wait would end in this time.
        std::thread::sleep(Duration::from_millis(50));
        flags.returned.store(true, Ordering::SeqCst);
    }

    #[test]
    fn a_function_that_runs_is_waited_for_although_the_context_is_over() {
        let (context, flags) = (Context::for_tests(), Flags::default());
        let host = HostFunction {
            function: slow,
            data: (&raw const flags).cast_mut().cast(),
        };
        std::thread::scope(|scope| {
            let command = scope.spawn(|| {
                let _ = host.run(&context.engine);
                flags.returned.load(Ordering::SeqCst)
            });
            while !flags.begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            context.engine.life.end();
            flags.is_over.store(true, Ordering::SeqCst);
            assert!(command.join().is_ok_and(|returned| returned));
        });
    }
}
