//! The port of a timeline: a timeline semaphore of one device.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;

use ash::vk;
use syncline_core::backend::{self, ByEngine, Recovered, SharedPort};
use syncline_core::{Error, Result};

use crate::device::inner::Inner;
use crate::timeline::semaphore::Semaphore;

/// The port of a timeline on a Vulkan device.
pub(crate) struct Port(Arc<Semaphore>);

impl Port {
    pub(crate) const fn new(semaphore: Arc<Semaphore>) -> Self {
        Self(semaphore)
    }

    /// The semaphore, if it belongs to `device`. Vulkan accepts no object of another `VkDevice`.
    #[inline]
    pub(crate) fn on(&self, device: &Inner) -> Option<&Arc<Semaphore>> {
        std::ptr::eq(&**self.0.device(), device).then_some(&self.0)
    }
}

impl backend::Port for Port {
    fn poll(&self) -> Result<Option<u64>> {
        self.0.value().map(Some)
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }

    /// Calls `vkSignalSemaphore`.
    ///
    /// The engine has checked that the value increases. Drivers do not check it.
    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        let semaphore = &*self.0;
        by.check(self, semaphore.object())?;
        let info = vk::SemaphoreSignalInfo::default()
            .semaphore(semaphore.raw())
            .value(value);
        // SAFETY: a live timeline semaphore. This engine signals one value at a time, in order. If
        // several processes have the semaphore, only one of them signals. After that process has
        // died, the surviving processes signal in turns of 12 ms, each a higher value than before.
        // In three cases across processes, the semaphore may reach `value` before this call. These
        // cases cannot be detected here:
        // * A surviving process is stopped for longer than one turn between reading the value and
        //   this call.
        // * A process does not keep to the turns.
        // * A device still executes work of the dead process.
        unsafe { semaphore.device().raw().signal_semaphore(&info) }.map_err(|code| {
            semaphore
                .device()
                .failed(semaphore.object(), "vkSignalSemaphore", code)
        })
    }
}

impl SharedPort for Port {
    /// Signals the semaphore, through a second `VkDevice` if this device is lost.
    ///
    /// Calls on a lost device fail, or they succeed without an effect.
    fn recover(&self, after: u64, value: u64, by: ByEngine<'_>) -> Result<Recovered> {
        let semaphore = &*self.0;
        by.check(self, semaphore.object())?;
        let signal = |value| backend::Port::signal(self, value, by);
        match recover(|| semaphore.known_value(), after, value, signal) {
            Ok(Recovered::Elsewhere) | Err(Error::DeviceLost { .. }) => {
                let spare = semaphore.on_spare()?;
                recover(|| spare.value(), after, value, |value| spare.signal(value))
            }
            recovered => recovered,
        }
    }
}

/// Signals `value`, unless the counter has reached it. The counter must be at `after` or above.
///
/// Returns [`Recovered::NotYet`] if the counter is lower, and [`Recovered::Elsewhere`] if the
/// counter does not show the signal. The counter of a working device shows the signal at once.
fn recover(
    read: impl Fn() -> Result<u64>,
    after: u64,
    value: u64,
    signal: impl FnOnce(u64) -> Result<()>,
) -> Result<Recovered> {
    let reached = read()?;
    if reached < after {
        return Ok(Recovered::NotYet);
    }
    // A pending signal may have completed meanwhile.
    if reached < value {
        signal(value)?;
        if read()? < value {
            return Ok(Recovered::Elsewhere);
        }
    }
    Ok(Recovered::Signalled)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::cell::Cell;

    use rstest::rstest;
    use syncline_core::backend::{Attachment, Device as _, Queue as _};
    use syncline_core::{Error, QueueKind, Timeline};

    use super::*;
    use crate::driver::instance::Instance;

    /// E3. A lost device may answer success to a signal that it does not make.
    #[rstest]
    #[case::too_early(1, true, Recovered::NotYet, 1)]
    #[case::of_a_working_device(2, true, Recovered::Signalled, 5)]
    #[case::of_a_lost_device(2, false, Recovered::Elsewhere, 2)]
    #[case::made_already(7, false, Recovered::Signalled, 7)]
    fn a_signal_counts_once_the_counter_shows_it(
        #[case] before: u64,
        #[case] works: bool,
        #[case] expected: Recovered,
        #[case] after: u64,
    ) {
        let counter = Cell::new(before);
        let signal = |value| {
            if works {
                counter.set(value);
            }
            Ok(())
        };
        let recovered = recover(|| Ok(counter.get()), 2, 5, signal).unwrap();
        assert_eq!((recovered, counter.get()), (expected, after));
    }

    /// A semaphore of another `VkDevice` is not passed to the driver, whatever device its
    /// attachment names.
    #[test]
    fn a_semaphore_of_another_device_is_refused() {
        let Ok(instance) = Instance::load() else {
            return println!("skipped: there is no Vulkan driver");
        };
        for candidate in instance.devices().unwrap() {
            let (Ok(ours), Ok(theirs)) = (candidate.open(), candidate.open()) else {
                continue;
            };
            let none = vk::ExternalSemaphoreHandleTypeFlags::empty();
            let semaphore = Semaphore::new(theirs.inner(), 0, none).unwrap();
            let port = Attachment::new(ours.id(), 0, Port(semaphore));
            let timeline = Timeline::new("line", 0, |_| Ok([port].into_iter().collect())).unwrap();
            let queue = ours.queue(QueueKind::Compute, "ours").unwrap();
            let refused = |asked: &str, error: Error| {
                assert!(
                    matches!(error, Error::Unsupported { .. }),
                    "{asked}: {error}"
                );
            };
            timeline.signal(1).unwrap();
            refused("semaphore", ours.semaphore(timeline.at(1)).unwrap_err());
            refused("semaphore_of", ours.semaphore_of(&timeline).unwrap_err());
            let signals = [timeline.signal_at(2)];
            refused(
                "submit",
                queue.submit(&[], |_| Ok(()), &signals).unwrap_err(),
            );
        }
    }
}
