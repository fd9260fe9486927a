//! Ports that count their calls, or return wrong values, for timelines that a case makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use syncline::{Result, info::DeviceId};
use syncline_core::backend::{Attachment, ByEngine, Port, Watch, Watcher};

use crate::user::Timeline;
use crate::{Subject, World};

/// The state of [`Spied`] ports, and the settings of them.
#[derive(Debug, Default)]
pub(super) struct Spy {
    polls: AtomicU64,
    alive: AtomicU64,
    all_ones: AtomicBool,
}

impl Spy {
    /// Returns how often the value of a port was read.
    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::SeqCst)
    }

    /// Returns how many of its ports exist.
    pub(super) fn alive(&self) -> u64 {
        self.alive.load(Ordering::SeqCst)
    }

    /// Makes the ports read as all ones from now on, as those of a lost device may.
    pub(super) fn lose(&self) {
        self.all_ones.store(true, Ordering::SeqCst);
    }

    /// Returns a port over a counter of this spy.
    ///
    /// No queue has a port of its device, so queues wait for it on the host, and the host signals
    /// for them.
    fn port(self: &Arc<Self>, initial: u64) -> Attachment {
        self.alive.fetch_add(1, Ordering::SeqCst);
        let port = Spied {
            port: Plain(AtomicU64::new(initial)),
            spy: self.clone(),
        };
        Attachment::new(DeviceId::new::<()>(), initial, port)
    }

    /// Returns a timeline over a counter of this spy, with the left side's hooks.
    ///
    /// If `elsewhere`, something outside could signal it at any time.
    pub(super) fn timeline<S: Subject>(
        self: &Arc<Self>,
        world: &World<S>,
        elsewhere: bool,
    ) -> Result<Timeline<S>> {
        let library = syncline::Timeline::new("spied", 0, |initial| {
            let home = self.port(initial).signalled_elsewhere(elsewhere);
            Ok([home].into_iter().collect())
        })?;
        Ok(world.left.own(library))
    }
}

struct Spied {
    port: Plain,
    spy: Arc<Spy>,
}

impl Port for Spied {
    fn poll(&self) -> Result<Option<u64>> {
        self.spy.polls.fetch_add(1, Ordering::SeqCst);
        if self.spy.all_ones.load(Ordering::SeqCst) {
            return Ok(Some(u64::MAX));
        }
        self.port.poll()
    }

    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        self.port.signal(value, by)
    }
}

impl Drop for Spied {
    fn drop(&mut self) {
        self.spy.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A counter that a case signals as others do, past the engine.
#[derive(Debug, Default)]
pub(super) struct Others(AtomicU64);

impl Others {
    /// Signals the counter, as others do.
    pub(super) fn signal(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
    }

    /// Returns the value of the counter.
    pub(super) fn value(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns a timeline over this counter, with the left side's hooks.
    ///
    /// No queue has a port of its device.
    pub(super) fn timeline<S: Subject>(
        self: &Arc<Self>,
        world: &World<S>,
        max_value_difference: u64,
    ) -> Result<Timeline<S>> {
        let initial = self.value();
        let port = Box::new(OthersPort(self.clone()));
        let port = Given(world.left.subject().counter_of_others(port));
        let library = syncline::Timeline::new("others", initial, |initial| {
            let home = Attachment::new(DeviceId::new::<()>(), initial, port)
                .with_max_value_difference(max_value_difference)
                .watched_by(Arc::new(Rounds::default()))
                .signalled_elsewhere(true);
            Ok([home].into_iter().collect())
        })?;
        Ok(world.left.own(library))
    }
}

/// The port of a counter that others signal, as the subject lets the engine have it.
struct Given(Box<dyn Port>);

impl Port for Given {
    fn poll(&self) -> Result<Option<u64>> {
        self.0.poll()
    }

    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        self.0.signal(value, by)
    }
}

/// A watch that looks every millisecond.
#[derive(Default)]
struct Rounds {
    watcher: Watcher,
    nudged: AtomicBool,
}

impl Watch for Rounds {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        while !self.nudged.swap(false, Ordering::SeqCst) && Instant::now() < until {
            for (port, value) in ports {
                if port.poll()?.is_some_and(|found| found >= *value) {
                    return Ok(());
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn nudge(&self) {
        self.nudged.store(true, Ordering::SeqCst);
    }
}

struct OthersPort(Arc<Others>);

impl Port for OthersPort {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.value()))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.signal(value);
        Ok(())
    }
}

/// A counter without a driver. If a timeline of it is slow, the engine is.
pub(super) struct Plain(AtomicU64);

impl Plain {
    /// Returns a port with a limit of its own.
    pub(super) fn port(initial: u64, max_value_difference: u64) -> Attachment {
        Attachment::new(
            DeviceId::new::<()>(),
            initial,
            Self(AtomicU64::new(initial)),
        )
        .with_max_value_difference(max_value_difference)
    }

    /// Same as [`Plain::port`], for a timeline with its home elsewhere.
    pub(super) fn second_port(initial: u64, max_value_difference: u64) -> Attachment {
        let port = Self(AtomicU64::new(initial));
        Attachment::imported(DeviceId::new::<()>(), port)
            .with_max_value_difference(max_value_difference)
    }
}

impl Port for Plain {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::Acquire)))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.store(value, Ordering::Release);
        Ok(())
    }
}
