//! A thread that samples device clocks, for threads that must not wait for a sample.
//!
//! A device's watching thread may publish times, and it must not block.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::exiting::DriverCalls;
use crate::base::process::MakerProcess;
use crate::base::sync::{Condvar, Instant, Mutex, contain, spawn};
use crate::clock::Clock;

/// The pause between two attempts at the first sample. An attempt usually blocks for about 20 ms.
const PAUSE: Duration = Duration::from_millis(1);

/// How long the drop waits for a sample that is being taken; see
/// [`Watcher::let_go`](crate::backend::Watcher).
const END_TIMEOUT: Duration = Duration::from_millis(50);

/// How long the first sample of a busy device's clock is tried.
const FIRST_SAMPLE_TIMEOUT: Duration = Duration::from_secs(1);

/// Handle of the thread, which sleeps until a sample is wanted. The thread ends when this is
/// dropped.
pub(super) struct Sampling {
    inner: Arc<Inner>,
    /// The process that made it, and has the thread.
    maker: MakerProcess,
}

struct Inner {
    clocks: Vec<Clock>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    wanted: bool,
    over: bool,
    /// The thread is using a clock, and so perhaps a device.
    busy: bool,
}

impl Sampling {
    /// Starts a thread for `clocks`, none of which keeps its device alive. `None` if there are
    /// none.
    ///
    /// Samples each clock first, for up to a second each.
    ///
    /// # Errors
    /// [`Error::ClockSilent`] if a clock without any sample could not be read in that time.
    /// [`Error::Native`] if no thread can be started. A driver error.
    pub(super) fn of(clocks: Vec<Clock>) -> Result<Option<Self>> {
        let Some(first) = clocks.first() else {
            return Ok(None);
        };
        for clock in &clocks {
            first_sample(clock)?;
        }
        let object = first.object().clone();
        let inner = Arc::new(Inner {
            clocks,
            state: Mutex::default(),
            changed: Condvar::default(),
        });
        let own = inner.clone();
        spawn("syncline-times", move || own.run())
            .map_err(|error| Error::no_thread(&object, &error))?;
        Ok(Some(Self {
            inner,
            maker: MakerProcess::this(),
        }))
    }

    /// Has the thread sample the clocks whose latest sample is old. Does not wait.
    pub(super) fn refresh(&self) {
        if !self.inner.clocks.iter().any(Clock::is_sample_due) {
            return;
        }
        let mut state = self.inner.state.lock();
        let wanted = std::mem::replace(&mut state.wanted, true);
        drop(state);
        if !wanted {
            self.inner.changed.notify_all();
        }
    }
}

/// Samples the clock, so that its times can be converted.
///
/// An earlier sample suffices while the device is busy.
fn first_sample(clock: &Clock) -> Result<()> {
    let until = Instant::now() + FIRST_SAMPLE_TIMEOUT;
    loop {
        match clock.sample() {
            Err(Error::ClockSilent { .. }) if clock.to_monotonic(0).is_some() => return Ok(()),
            Err(Error::ClockSilent { .. }) if Instant::now() < until => sleep(PAUSE),
            sampled => return sampled.map(drop),
        }
    }
}

impl Inner {
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            state.busy = false;
            if state.over {
                drop(state);
                self.changed.notify_all();
                return;
            }
            while !state.wanted && !state.over {
                state = self.changed.wait(state);
            }
            if state.over {
                return;
            }
            state.wanted = false;
            state.busy = true;
            drop(state);
            for clock in self.clocks.iter().filter(|clock| clock.is_sample_due()) {
                // A failed sample leaves the conversion as it is, with a larger error for its age.
                if let Some(_calls) = DriverCalls::begin() {
                    contain(|| drop(clock.sample()));
                }
            }
        }
    }
}

impl Drop for Sampling {
    /// Waits for the sample that is being taken, so that the dropping thread also drops the device.
    ///
    /// A forked child has no such thread. A lock that a thread of the parent held at the fork is
    /// never unlocked there.
    fn drop(&mut self) {
        if !self.maker.is_this() {
            return;
        }
        let until = Instant::now() + END_TIMEOUT;
        let mut state = self.inner.state.lock();
        state.over = true;
        self.inner.changed.notify_all();
        while state.busy {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.inner.changed.wait_timeout(state, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::backend::Sampler;
    use crate::clock::{HostClock, Sample};
    use crate::error::Object;

    /// A clock that fails a number of attempts before each sample.
    struct Busy {
        attempts: u32,
        left: AtomicU32,
    }

    impl Sampler for Busy {
        fn sample(&self) -> Result<Sample> {
            if self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
                return Err(Error::clock_silent(
                    Object::new("clock", "busy"),
                    Duration::ZERO,
                    "other work stands before it",
                ));
            }
            self.left.store(self.attempts, Ordering::Relaxed);
            let now = HostClock::Monotonic.now();
            Ok(Sample {
                device: now,
                host: now,
                deviation: 1,
            })
        }
    }

    fn clock(attempts: u32) -> Clock {
        let left = attempts.into();
        Clock::new(Object::new("clock", "busy"), Busy { attempts, left })
    }

    #[test]
    fn a_busy_device_gets_more_than_one_chance() {
        let clock = clock(3);
        assert!(Sampling::of(vec![clock.clone()]).unwrap().is_some());
        assert!(clock.to_monotonic(0).is_some());
        // Now there is a sample, and it suffices.
        assert!(Sampling::of(vec![clock]).unwrap().is_some());
    }

    /// P3: as in a child of fork(2), whose parent held the lock.
    #[test]
    fn a_copy_of_another_process_is_dropped_without_the_lock() {
        let mut sampling = Sampling::of(vec![clock(0)]).unwrap().unwrap();
        let inner = sampling.inner.clone();
        sampling.maker = MakerProcess::NONE;
        let locked = inner.state.lock();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(sampling);
            tell.send(())
        });
        let dropped = told.recv_timeout(Duration::from_secs(20));
        drop(locked);
        dropped.unwrap();
        // Ends the thread.
        drop(Sampling {
            inner,
            maker: MakerProcess::this(),
        });
    }

    #[test]
    fn a_clock_that_stays_silent_is_refused() {
        let refused = Sampling::of(vec![clock(u32::MAX)]).map(drop);
        assert!(
            matches!(refused, Err(Error::ClockSilent { .. })),
            "{refused:?}"
        );
    }
}
