//! Threads that are known to be blocked before a case goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::case::Stop;
use crate::user::Timeline;
use crate::{Subject, Verdict, patience};

/// How often in a row a thread must be seen asleep. A short wait for a lock is sleep, too.
const LOOKS: u32 = 5;

/// The time between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// Runs `call` on a new thread of `scope`. Returns once that thread sleeps in it or has ended.
///
/// So `call` must be a wait that parks (not [`WaitMode::Spin`](syncline::WaitMode::Spin)).
///
/// # Errors
/// A skip if there is no `/proc` that shows threads. A failure if the thread neither sleeps nor
/// ends. Then it is still in its call, and the scope waits for it: see [`Unstick`].
pub fn blocked<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    call: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Stop> {
    let (handle, state) = seen(scope, call);
    let mut asleep = 0;
    let deadline = Instant::now() + patience();
    while asleep < LOOKS && !handle.is_finished() {
        asleep = match state.look()? {
            Some(look) if look.asleep => asleep + 1,
            _ => 0,
        };
        if Instant::now() > deadline {
            return Stop::fail("a thread that should block is still running");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(handle)
}

/// Where the system shows the state of a thread: see [`seen`].
#[derive(Debug)]
pub struct State(Arc<OnceLock<Option<PathBuf>>>);

/// The state of a thread at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Whether it sleeps. A thread that waits for a processor does not sleep.
    pub asleep: bool,
    /// How long it has run on a processor since it began.
    pub ran: Duration,
}

impl State {
    /// Returns the state of the thread now, or `None` before its call and after it.
    ///
    /// # Errors
    /// A skip if there is no `/proc` that shows threads.
    pub fn look(&self) -> Result<Option<Look>, Stop> {
        match self.0.get() {
            None => Ok(None),
            Some(None) => Stop::skip("no /proc with schedstat to see threads in"),
            Some(Some(thread)) => {
                let Ok(status) = std::fs::read_to_string(thread.join("status")) else {
                    return Ok(None);
                };
                let asleep = sleeps(&status);
                // Read second, so that the time belongs to the state that was read before.
                let Ok(times) = std::fs::read_to_string(thread.join("schedstat")) else {
                    return Ok(None);
                };
                Ok(ran(&times).map(|ran| Look { asleep, ran }))
            }
        }
    }
}

/// Runs `call` on a new thread of `scope`, and returns a handle to its state.
pub fn seen<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    call: impl FnOnce() -> T + Send + 'scope,
) -> (ScopedJoinHandle<'scope, T>, State) {
    let thread = Arc::new(OnceLock::new());
    let own = thread.clone();
    let handle = scope.spawn(move || {
        // Set last, so that nothing but the call puts the thread to sleep from here on.
        let _ = own.set(this_thread());
        call()
    });
    (handle, State(thread))
}

/// Returns the result of `call` of [`blocked`].
///
/// # Errors
/// A failure if the thread panicked.
pub fn join<T>(handle: ScopedJoinHandle<'_, T>) -> Result<T, Stop> {
    handle.join().or_else(|_| Stop::fail("a thread panicked"))
}

/// Joins all `threads`.
///
/// # Errors
/// The first verdict that is no success, or a failure if a thread panicked.
pub fn join_all<'scope>(
    threads: impl IntoIterator<Item = ScopedJoinHandle<'scope, Verdict>>,
) -> Verdict {
    threads.into_iter().try_for_each(|thread| join(thread)?)
}

/// Fails timelines when it is dropped, so that a case that ends early leaves no blocked thread.
///
/// Create it inside the scope of the threads that wait for these timelines without a time limit.
#[derive(Debug)]
pub struct Unstick<'t, S: Subject>(pub &'t [&'t Timeline<S>]);

impl<S: Subject> Unstick<'_, S> {
    /// Forgets the timelines. Call it after all threads have stopped waiting.
    pub const fn done(self) {
        std::mem::forget(self);
    }
}

impl<S: Subject> Drop for Unstick<'_, S> {
    fn drop(&mut self) {
        for line in self.0 {
            line.fail(crate::cases::cause("the case is over"));
        }
    }
}

/// Returns where the system shows the state of the calling thread.
fn this_thread() -> Option<PathBuf> {
    let thread = std::fs::read_link("/proc/thread-self").ok()?;
    let thread = PathBuf::from("/proc").join(thread);
    let times = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    ran(&times).map(|_| thread)
}

/// Returns the first number of `schedstat`, which is in nanoseconds.
fn ran(times: &str) -> Option<Duration> {
    let first = times.split_ascii_whitespace().next()?;
    first.parse().ok().map(Duration::from_nanos)
}

fn sleeps(status: &str) -> bool {
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| state.trim_start().starts_with('S'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn comes_back_when_the_thread_sleeps_and_not_before() {
        let (busy, early) = (AtomicBool::new(true), AtomicBool::new(false));
        let (lock, passed) = (Mutex::new(()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let guard = lock.lock();
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                early.store(true, Ordering::SeqCst);
                busy.store(false, Ordering::SeqCst);
            });
            let handle = blocked(scope, || {
                while busy.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                drop(lock.lock());
                passed.store(true, Ordering::SeqCst);
                7
            });
            assert!(
                early.load(Ordering::SeqCst),
                "it came back while the thread ran"
            );
            assert!(!passed.load(Ordering::SeqCst));
            drop(guard);
            assert!(matches!(handle.and_then(join), Ok(7)));
        });
    }

    #[test]
    fn a_call_that_ends_is_not_waited_for() {
        std::thread::scope(|scope| {
            let handle = blocked(scope, || 3);
            assert!(matches!(handle.and_then(join), Ok(3)));
        });
    }
}
