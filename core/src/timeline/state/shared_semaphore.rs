//! A semaphore for tests, which can be signalled in place of a lost device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::error::Result;
use crate::port::{ByEngine, Port, Recovered, SharedPort};

/// A counter that other processes have, too.
#[derive(Clone, Default)]
pub(super) struct Semaphore {
    value: Arc<AtomicU64>,
    /// The number of survivors before this one.
    earlier: u32,
}

impl Semaphore {
    pub(super) fn behind(earlier: u32) -> Self {
        let value = Arc::default();
        Self { value, earlier }
    }

    pub(super) fn value(&self) -> u64 {
        self.value.load(Ordering::SeqCst)
    }
}

impl Port for Semaphore {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.value()))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.value.store(value, Ordering::SeqCst);
        Ok(())
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }
}

impl SharedPort for Semaphore {
    fn recovery_turn(&self) -> u32 {
        self.earlier
    }

    fn recover(&self, _: u64, value: u64, by: ByEngine<'_>) -> Result<Recovered> {
        self.signal(value, by)?;
        Ok(Recovered::Signalled)
    }
}
