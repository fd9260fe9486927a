//! The watch over the ports of a device, which runs while a thread waits for one of them.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_core::backend::{Port, Watch, Watcher};
use syncline_core::{Error, Result};

use crate::device::inner::Inner;
use crate::device::open::Device;
use crate::timeline::word::WordPort;

/// A watch polls without a pause for this long, because most waits are short.
const SPIN: Duration = Duration::from_micros(20);
/// Then each pause is as long as the time waited so far, within these bounds.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

impl Device {
    /// The watch over the ports of this device.
    pub(crate) fn watched(&self) -> Arc<dyn Watch> {
        self.inner().clone()
    }
}

impl Watch for Inner {
    fn watcher(&self) -> &Watcher {
        self.device_watcher()
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let started = Instant::now();
        let is_word = |port: &dyn Port| (port as &dyn Any).is::<WordPort>();
        let has_words = ports.iter().any(|&(port, _)| is_word(port));
        let mut naps = false;
        loop {
            for &(port, value) in ports {
                match port.poll() {
                    Ok(reached) if reached.is_some_and(|reached| reached >= value) => return Ok(()),
                    Ok(_) => {}
                    Err(lost @ Error::DeviceLost { .. }) => return Err(lost),
                    // An error of one port. The engine polls each port next and fails only this
                    // port's timeline.
                    Err(_) => return Ok(()),
                }
            }
            // Its poll calls no driver, so only this finds a lost device.
            if naps && has_words {
                self.check_health()?;
            }
            let now = Instant::now();
            let waited = now.saturating_duration_since(started);
            let nap = if waited < SPIN {
                std::thread::yield_now();
                Duration::ZERO
            } else {
                waited.clamp(NAPS.0, NAPS.1)
            };
            naps = nap == NAPS.1;
            let left = until.saturating_duration_since(now);
            if self.wake().sleep(nap.min(left)) || left.is_zero() {
                return Ok(());
            }
        }
    }

    /// True: the driver has no wait with a timeout, so a waiting thread may as well poll by itself.
    fn lends(&self) -> bool {
        true
    }

    fn nudge(&self) {
        self.wake().wake();
    }

    fn check(&self) -> Result<()> {
        self.check_health()
    }
}
