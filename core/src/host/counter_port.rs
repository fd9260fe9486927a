//! Counters in shared memory as ports, and the watch of them.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::backend::kit::Counter;
use crate::backend::{ByEngine, Port, Recovered, SharedPort, Watch, Watcher};
use crate::memory::counter::Sleeper;
use crate::{Error, Result};

/// A counter in shared memory, as host threads signal it and wait for it.
///
/// It is the home of its timeline, so it is on the first of
/// [`Timeline::devices`](crate::Timeline::devices).
#[derive(Debug)]
pub struct CounterPort(Arc<Counter>);

impl CounterPort {
    pub(super) const fn new(counter: Arc<Counter>) -> Self {
        Self(counter)
    }

    /// The counter.
    #[must_use]
    pub const fn counter(&self) -> &Arc<Counter> {
        &self.0
    }
}

impl Port for CounterPort {
    /// Fails unless the page says that `value` is pending. Its signaller announces that there.
    fn sees_submitted(&self, value: u64) -> Result<()> {
        if self.0.is_pending(value) {
            return Ok(());
        }
        Err(Error::unsupported(
            self.0.object(),
            format!("take a signal of {value} for pending"),
            "the page does not say so: a claim of a raw CUDA stream is submitted with the stream, and signals of another process are there once they are with a driver",
        ))
    }

    fn poll(&self) -> Result<Option<u64>> {
        self.0.value().map(Some)
    }

    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        by.check(self, self.0.object())?;
        self.0.signal(value)
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }
}

impl SharedPort for CounterPort {
    fn last_polled(&self) -> u64 {
        self.0.seen()
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    fn recovery_turn(&self) -> u32 {
        self.0.recovery_turn()
    }

    fn pending_elsewhere(&self) -> Result<u64> {
        self.0.pending()
    }

    fn recover(&self, after: u64, value: u64, by: ByEngine<'_>) -> Result<Recovered> {
        by.check(self, self.0.object())?;
        if self.0.recover(after, value) {
            Ok(Recovered::Signalled)
        } else {
            Ok(Recovered::NotYet)
        }
    }
}

/// Watches the counters in shared memory of one device while there are waiters.
#[derive(Debug)]
pub(crate) struct CounterWatch {
    watcher: Watcher,
    sleeper: Sleeper,
}

impl CounterWatch {
    pub(crate) fn new() -> Self {
        Self {
            watcher: Watcher::default(),
            sleeper: Sleeper::new(),
        }
    }
}

impl Watch for CounterWatch {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// An error of a page is not returned here. The engine polls the port next and finds it.
    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let mut counters: SmallVec<[(&Counter, u64); 8]> = SmallVec::new();
        for &(port, value) in ports {
            let port: &dyn Any = port;
            if let Some(CounterPort(counter)) = port.downcast_ref() {
                counters.push((counter, value));
            }
        }
        self.sleeper.sleep(&counters, until);
        Ok(())
    }

    /// A futex wake reaches a waiting thread as well as the watching thread.
    fn lends(&self) -> bool {
        true
    }

    fn nudge(&self) {
        self.sleeper.nudge();
    }
}
