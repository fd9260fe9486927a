//! The watch over the semaphores of a device, which runs while a thread waits for one of them.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;
use smallvec::SmallVec;
use syncline_core::Result;
use syncline_core::backend::Watcher;
use syncline_core::backend::{self, Attachment, Watch};

use crate::device::open::Inner;
use crate::driver::lock::lock;
use crate::timeline::port::Port;

/// The shortest and the longest pause between polls, if the driver cannot wait for any semaphore.
const NAPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

type Semaphores = SmallVec<[vk::Semaphore; 16]>;
type Values = SmallVec<[u64; 16]>;

impl Watch for Inner {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn backend::Port, u64)], until: Instant) -> Result<()> {
        let (mut semaphores, mut values) = (Semaphores::new(), Values::new());
        for &(port, value) in ports {
            let port: &dyn std::any::Any = port;
            let port = port.downcast_ref::<Port>();
            if let Some(semaphore) = port.and_then(|port| port.on(self)) {
                semaphores.push(semaphore.raw());
                values.push(value);
            }
        }
        semaphores.push(self.wake.raw);
        values.push(lock(&self.wake.counts).seen + 1);
        if self.wait_any_spins {
            self.poll_repeatedly(&semaphores, &values, until)?;
        } else {
            self.wait_semaphores(vk::SemaphoreWaitFlags::ANY, &semaphores, &values, until)?;
        }
        // A nudging thread changes what to watch before it nudges. So the next call covers all
        // nudges so far.
        let mut counts = lock(&self.wake.counts);
        counts.seen = counts.signalled;
        Ok(())
    }

    fn lends(&self) -> bool {
        true
    }

    fn nudge(&self) {
        let mut counts = lock(&self.wake.counts);
        if counts.signalled > counts.seen {
            return;
        }
        if self.wait_any_spins {
            counts.signalled += 1;
            self.wake.polling.notify_one();
            return;
        }
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(self.wake.raw)
            .value(counts.signalled + 1);
        // SAFETY: the semaphore is the device's own, and its value grows, because the lock is held.
        match unsafe { self.raw().signal_semaphore(&info) } {
            Ok(()) => counts.signalled += 1,
            // The watch also ends without the nudge, after its time limit, and meets the same
            // error.
            Err(code) => drop(self.failed(&self.object, "vkSignalSemaphore", code)),
        }
    }
}

impl Inner {
    /// Makes this device watch `attachment`, and sets the limits of its semaphores.
    pub(crate) fn watched(self: &Arc<Self>, attachment: Attachment) -> Attachment {
        attachment
            .watched_by(self.clone())
            .with_max_value_difference(self.info.capabilities.max_value_difference)
    }

    /// Polls the semaphores until any of them has its value, a nudge comes, or `until` has passed.
    ///
    /// Used if the driver's own wait for any semaphore is a busy loop. Each pause is a quarter of
    /// the time waited so far, within [`NAPS`].
    fn poll_repeatedly(
        &self,
        semaphores: &[vk::Semaphore],
        values: &[u64],
        until: Instant,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            let now = Instant::now();
            if self.wait_semaphores(vk::SemaphoreWaitFlags::ANY, semaphores, values, now)? {
                return Ok(());
            }
            let pause = ((now - start) / 4).clamp(NAPS.0, NAPS.1);
            let counts = lock(&self.wake.counts);
            if counts.signalled > counts.seen || now >= until {
                return Ok(());
            }
            drop(
                self.wake
                    .polling
                    .wait_timeout(counts, pause.min(until - now))
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
    }

    /// Calls `vkWaitSemaphores`. Returns true if the wait was satisfied, and false after a timeout.
    pub(crate) fn wait_semaphores(
        &self,
        flags: vk::SemaphoreWaitFlags,
        semaphores: &[vk::Semaphore],
        values: &[u64],
        until: Instant,
    ) -> Result<bool> {
        let timeout = until.saturating_duration_since(Instant::now()).as_nanos();
        let info = vk::SemaphoreWaitInfo::default()
            .flags(flags)
            .semaphores(semaphores)
            .values(values);
        // SAFETY: there are as many values as semaphores, and all are live timeline semaphores of
        // this device.
        let waited = unsafe {
            self.raw()
                .wait_semaphores(&info, u64::try_from(timeout).unwrap_or(u64::MAX))
        };
        match waited {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(code) => Err(self.failed(&self.object, "vkWaitSemaphores", code)),
        }
    }
}
