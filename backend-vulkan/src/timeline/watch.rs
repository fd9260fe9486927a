//! The watch over the semaphores of a device, which runs while a thread waits for one of them.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::time::{Duration, Instant};

use ash::vk;
use smallvec::SmallVec;
use syncline_core::Result;
use syncline_core::backend::{self, Watch, Watcher};

use crate::device::inner::Inner;
use crate::timeline::port::Port;

/// The shortest and the longest pause between polls, if the driver cannot wait for any semaphore.
const NAPS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

type Semaphores = SmallVec<[vk::Semaphore; 16]>;
type Values = SmallVec<[u64; 16]>;

impl Watch for Inner {
    fn watcher(&self) -> &Watcher {
        self.device_watcher()
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
        let wake = self.wake();
        semaphores.push(wake.raw());
        values.push(wake.awaited());
        if wake.sleeps() {
            self.poll_repeatedly(&semaphores, &values, until)?;
        } else {
            self.wait_semaphores(vk::SemaphoreWaitFlags::ANY, &semaphores, &values, until)?;
        }
        // A nudging thread changes what to watch before it nudges. So the next call covers all
        // nudges so far.
        wake.handle_wakes();
        Ok(())
    }

    fn lends(&self) -> bool {
        true
    }

    fn nudge(&self) {
        let wake = self.wake();
        let woken = wake.wake(|value| {
            let info = vk::SemaphoreSignalInfo::default()
                .semaphore(wake.raw())
                .value(value);
            // SAFETY: the semaphore is the device's own, and `wake` makes the calls in the order of
            // their values.
            unsafe { self.raw().signal_semaphore(&info) }
        });
        if let Err(code) = woken {
            // The watch also ends without the nudge, after its time limit, and meets the same
            // error.
            drop(self.failed(self.object(), "vkSignalSemaphore", code));
        }
    }

    /// Reads a counter and waits with a timeout of 0, because the counter alone may not show the
    /// loss.
    fn check(&self) -> Result<()> {
        self.require_maker()?;
        if let Some(lost) = self.loss() {
            return Err(lost.clone());
        }
        let wake = self.wake().raw();
        let call = "vkGetSemaphoreCounterValue";
        // SAFETY: the wake semaphore lives as long as the device.
        let value = match unsafe { self.raw().get_semaphore_counter_value(wake) } {
            // The counter of a lost device reads this value.
            Ok(u64::MAX) => Err(vk::Result::ERROR_DEVICE_LOST),
            read => read,
        };
        let value = value.map_err(|code| self.failed(self.object(), call, code))?;
        let flags = vk::SemaphoreWaitFlags::empty();
        self.wait_semaphores(flags, &[wake], &[value + 1], Instant::now())
            .map(drop)
    }
}

impl Inner {
    /// Polls the semaphores until any of them has its value, a nudge comes, or `until` has passed.
    ///
    /// Used if the driver's own wait for any semaphore is a busy loop. Each pause is a quarter of
    /// the time waited so far, within [`NAPS`]. The driver's wait for one semaphore is no way out:
    /// below the validation layer it can stall for 10 s, because the layer then waits for a thread
    /// of its own.
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
            if now >= until {
                return Ok(());
            }
            let pause = ((now - start) / 4).clamp(NAPS.0, NAPS.1).min(until - now);
            if self.wake().sleep(pause) {
                return Ok(());
            }
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
            Err(code) => Err(self.failed(self.object(), "vkWaitSemaphores", code)),
        }
    }
}
