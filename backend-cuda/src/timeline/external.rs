//! External ports: timeline semaphores of other APIs, on which streams wait and signal.

use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::{ByEngine, Port, Recovered, SharedPort};
use syncline_core::{Error, Result, error::Object};

use crate::device::context::Context;
use crate::device::event::Events;
use crate::device::stream::Stream;
use crate::timeline::imported::Imported;
use crate::timeline::semaphore::{Semaphore, signal_all, wait_all};
use crate::timeline::visibility::Visibility;

/// The port of another API's timeline semaphore, on which streams of this device wait and signal.
///
/// The host cannot read it here. The timeline's home is the exporter's port.
pub struct ExternalPort {
    semaphore: Arc<Semaphore>,
    device: Object,
    visibility: Visibility,
    /// The device's pool of the events behind signals.
    ///
    /// Marks are dropped under the lock of `visibility`, where they must not destroy an event.
    events: Events,
    /// True if only this device signals the timeline.
    ///
    /// The events behind its signals then tell the host which value is reached.
    alone: bool,
}

impl ExternalPort {
    /// The raw semaphore, for waits that the application submits itself.
    ///
    /// To signal it, claim the value and use
    /// [`Device::submit_claimed`](crate::Device::submit_claimed). After a bare
    /// `cuSignalExternalSemaphoresAsync` the host would treat a value as reached before it can see
    /// the memory writes behind the value.
    #[must_use]
    pub fn raw(&self) -> sys::CUexternalSemaphore {
        self.semaphore.raw()
    }
}

impl ExternalPort {
    /// A port of a timeline that other devices may signal too.
    pub(crate) fn new(semaphore: Semaphore, device: &Object, events: &Events) -> Self {
        Self {
            semaphore: Arc::new(semaphore),
            device: device.clone(),
            visibility: Visibility::default(),
            events: events.clone(),
            alone: false,
        }
    }

    /// Changes the port to that of a timeline at `initial` that only this device signals.
    pub(crate) fn signalling_alone(self, initial: u64) -> Self {
        Self {
            visibility: Visibility::from(initial),
            alone: true,
            ..self
        }
    }

    /// Signals on the semaphore's own stream, which waits for nothing.
    fn signal_on_own_stream(&self, value: u64) -> Result<()> {
        let mark = self.events.take()?;
        let mut needs_trim = false;
        let signalled = self.semaphore.signal_from_host(value, &mark, |stream| {
            needs_trim = self
                .visibility
                .announce(value, mark.clone(), stream.domain());
        });
        if signalled.is_err() {
            self.visibility.withdraw(value);
        } else if needs_trim {
            self.visibility.trim(self.semaphore.context());
        }
        signalled
    }

    /// Signals `value` once this device has made its own signals up to `after`.
    ///
    /// The host cannot read the counter here, so it compares with the events behind the signals.
    /// Later signals of this kind come after this one, because all are in one stream.
    pub(crate) fn recover_after(&self, after: u64, value: u64) -> Result<Recovered> {
        let context = self.semaphore.context();
        if self.visibility.visible(after, context)? < after {
            return Ok(Recovered::NotYet);
        }
        self.signal_on_own_stream(value)?;
        Ok(Recovered::Signalled)
    }
}

impl Port for ExternalPort {
    fn is_readable(&self) -> bool {
        self.alone
    }

    fn sees_submitted(&self, value: u64) -> Result<()> {
        if !self.alone || self.visibility.knows(value) {
            return Ok(());
        }
        Err(Error::unsupported(
            &self.device,
            format!("follow a submission to {value} that no event stands for"),
            "the host cannot read the semaphore: submit a claim with the stream that signals it",
        ))
    }

    fn poll(&self) -> Result<Option<u64>> {
        if !self.alone {
            return Ok(None);
        }
        self.visibility.reached(self.semaphore.context()).map(Some)
    }

    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        by.check(self, &self.device)?;
        if self.alone {
            return self.signal_on_own_stream(value);
        }
        Err(Error::unsupported(
            &self.device,
            format!("signal an imported timeline to {value} from the host"),
            "CUDA signals it from streams only; its home is with the exporter",
        ))
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }

    fn visible(&self, reached: u64) -> Result<u64> {
        self.visibility.visible(reached, self.semaphore.context())
    }
}

impl SharedPort for ExternalPort {
    fn recover(&self, after: u64, value: u64, by: ByEngine<'_>) -> Result<Recovered> {
        by.check(self, &self.device)?;
        self.recover_after(after, value)
    }
}

impl Imported for ExternalPort {
    type Object = Semaphore;

    #[inline]
    fn object(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    fn context(&self) -> &Context {
        self.semaphore.context()
    }

    #[inline]
    fn visibility(&self) -> &Visibility {
        &self.visibility
    }

    #[inline]
    fn announce(&self, _value: u64) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn note_pending(&self, _value: u64) {}

    #[inline]
    fn wait_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()> {
        wait_all(stream, count, ports.map(semaphore))
    }

    #[inline]
    fn signal_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()> {
        signal_all(stream, count, ports.map(semaphore))
    }
}

#[inline]
fn semaphore((port, value): (&ExternalPort, u64)) -> (&Semaphore, u64) {
    (&port.semaphore, value)
}

impl std::fmt::Debug for ExternalPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExternalPort({:p})", self.raw())
    }
}
