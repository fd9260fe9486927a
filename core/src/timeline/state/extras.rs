//! What few timelines have.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::ahead::Publication;
use super::dependents::Sentinel;
use super::promises::Promises;
use super::recovery::Recovery;
use crate::base::error::Failure;
use crate::timeline::host_signals::HostSignalObservers;
use crate::timeline::times::Times;

/// What few timelines have: times, traces, bridges, other processes and lost signallers.
///
/// A timeline makes all of it when it needs the first part.
#[derive(Default)]
pub(crate) struct Extras {
    /// The times of its last signals, if it has timestamps.
    times: OnceLock<Box<Times>>,
    /// Traces that record host signals.
    host_signals: HostSignalObservers,
    publication: Publication,
    /// Set if another process has the right to signal. The last handle does not close it then.
    ///
    /// The value is an object that lives as long as the timeline.
    remote_signaller: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Why native waits for this timeline may find incomplete data.
    ///
    /// Set if the device or process that signals the timeline is lost. Also set if the signalling
    /// work waits natively for another timeline that has such a cause.
    lost: OnceLock<Failure>,
    /// Has the watching thread poll for the native waits of drivers; see `dependents`.
    sentinel: OnceLock<Arc<Sentinel>>,
    recovery: Recovery,
    /// What others have promised to signal.
    promises: Promises,
}

impl Extras {
    #[inline]
    pub(crate) fn times(&self) -> Option<&Times> {
        self.times.get().map(|times| &**times)
    }

    /// Gives the timeline timestamps. False if it has them already.
    pub(crate) fn set_times(&self, times: Times) -> bool {
        self.times.set(Box::new(times)).is_ok()
    }

    #[inline]
    pub(crate) const fn host_signals(&self) -> &HostSignalObservers {
        &self.host_signals
    }

    #[inline]
    pub(crate) const fn publication(&self) -> &Publication {
        &self.publication
    }

    /// Notes that another process has the right to signal. `kept` lives as long as the timeline.
    pub(crate) fn set_remote_signaller(&self, kept: Arc<dyn Any + Send + Sync>) {
        let _ = self.remote_signaller.set(kept);
    }

    /// True if another process has the right to signal.
    pub(super) fn has_remote_signaller(&self) -> bool {
        self.remote_signaller.get().is_some()
    }

    /// Why native waits for the timeline may find incomplete data, if they may.
    pub(super) fn loss(&self) -> Option<&Failure> {
        self.lost.get()
    }

    /// Notes why native waits for the timeline may find incomplete data. The first cause stays.
    pub(super) fn set_loss(&self, cause: &Failure) {
        let _ = self.lost.set(cause.clone());
    }

    pub(super) fn sentinel(&self) -> &Arc<Sentinel> {
        self.sentinel.get_or_init(|| Arc::new(Sentinel))
    }

    pub(super) const fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    #[inline]
    pub(super) const fn promises(&self) -> &Promises {
        &self.promises
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::api::{Device as _, Queue as _};

    use crate::{Error, QueueKind, host};

    /// Neither signals and waits nor held and failed submissions make the extras.
    #[test]
    fn a_usual_timeline_has_no_extras() {
        let device = host::Device::new();
        let [first, second, never] =
            ["first", "second", "never"].map(|label| device.timeline(label).unwrap());
        let queue = device.queue(QueueKind::Compute, "queue").unwrap();
        queue
            .submit(&[first.at(1)], |_| Ok(()), &[second.signal_at(1)])
            .unwrap();
        first.signal(1).unwrap();
        second.at(1).wait(Duration::MAX).unwrap();
        let held = queue.submit(&[never.at(1)], |_| Ok(()), &[second.signal_at(2)]);
        held.unwrap();
        never.fail(Error::NothingToWaitFor);
        second.at(2).wait(Duration::MAX).unwrap_err();
        for line in [first, second, never] {
            assert!(line.shared().extras().is_none(), "{line:?}");
        }
        let position = queue.position();
        assert!(position.of.unwrap().extras().is_none());
    }
}
