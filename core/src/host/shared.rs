//! Timelines in shared memory: export and import of counters.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::backend::{
    Attachment, ByEngine, Counter, Device as _, Port, Recovered, SharedPort, Sharing, Watch,
    Watcher,
};
use crate::host::Device;
use crate::memory::counter::Sleeper;
use crate::port::attachment::Nature;
use crate::{
    Error, Result,
    error::Object,
    handle::{CounterFd, HandleKind, Rejected},
};

/// Makes handles of an exportable timeline, one per importer.
#[derive(Clone, Debug)]
pub struct Exporter {
    counter: Arc<Counter>,
    file: Arc<OwnedFd>,
}

impl Exporter {
    /// A new handle, with a descriptor of its own.
    ///
    /// # Errors
    /// [`Error::Native`] if the system gives no descriptor.
    pub fn export(&self) -> Result<CounterFd> {
        let twin = rustix::io::fcntl_dupfd_cloexec(self.file.as_fd(), 0);
        let call = "fcntl(F_DUPFD_CLOEXEC)";
        let twin = twin.map_err(|errno| Error::system(self.counter.object(), call, errno))?;
        Ok(CounterFd::known(twin))
    }
}

impl Exporter {
    /// The counter.
    #[must_use]
    pub const fn counter(&self) -> &Arc<Counter> {
        &self.counter
    }
}

impl Device {
    /// A new counter at `initial`, for a timeline with its home here, and a handle of it.
    ///
    /// # Errors
    /// Same errors as [`Device::exportable_port`] and [`Exporter::export`].
    pub fn export_timeline(&self, initial: u64) -> Result<(Attachment, CounterFd)> {
        let (attachment, exporter) = self.exportable_port(initial)?;
        Ok((attachment, exporter.export()?))
    }

    /// A new counter at `initial` in a sealed page of shared memory, and the exporter of its
    /// handles.
    ///
    /// The counter is the home of a timeline. Other processes, and devices with [stream memory
    /// operations](crate::info::Capabilities::stream_memory_ops), signal it and wait for it without
    /// this process. A host queue waits until a value is reached, and its signal is pending when it
    /// is reached. So a device never waits for code that has yet to run on a thread.
    ///
    /// If something outside the timeline signals the counter, say so with
    /// [`Attachment::signalled_elsewhere`]. The timeline fails with [`Error::Corrupted`] if the
    /// page has a value that no signaller writes.
    ///
    /// See memfd_create(2) and futex(2).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the system makes no such memory. [`Error::Native`] if it has no
    /// memory or no descriptor left. [`Error::ValueOutOfRange`] for `u64::MAX`.
    pub fn exportable_port(&self, initial: u64) -> Result<(Attachment, Exporter)> {
        let can = &self.info().capabilities;
        if !can.exports.contains(&HandleKind::CounterMemfd) {
            let limit = can.limits.iter().find(|(limit, _)| *limit == "exports");
            return Err(Error::unsupported(
                self.object(),
                "export a timeline",
                limit.map_or_else(String::new, |(_, reason)| reason.clone()),
            ));
        }
        let (counter, file) = Counter::make(initial)?;
        let counter = Arc::new(counter);
        let exporter = Exporter {
            counter: counter.clone(),
            file: Arc::new(file),
        };
        let attachment = Attachment::new(self.memory(), initial, CounterPort(counter));
        Ok((self.attach(attachment), exporter))
    }

    /// Imports the counter behind a handle, which other processes signal too.
    ///
    /// An opaque handle is refused by its type:
    ///
    /// ```compile_fail,E0308
    /// # extern crate syncline_core as syncline;
    /// # use syncline::{host::Device, handle::TimelineFd};
    /// fn take(device: &Device, handle: TimelineFd) {
    ///     let _ = device.import_timeline(handle);
    /// }
    /// ```
    ///
    /// # Errors
    /// Each error returns the handle. [`Error::Import`] if the page's head was overwritten since
    /// the handle was made. [`Error::Native`] if the page cannot be mapped.
    pub fn import_timeline(&self, handle: CounterFd) -> Result<Attachment, Rejected<CounterFd>> {
        match Counter::open(&handle, self.object()) {
            Ok(counter) => {
                let port = CounterPort(Arc::new(counter));
                let attachment = self.attach(Attachment::imported(self.memory(), port));
                // The exporter signals it, too.
                Ok(attachment.signalled_elsewhere(true))
            }
            Err(error) => Err(Rejected { handle, error }),
        }
    }

    fn attach(&self, attachment: Attachment) -> Attachment {
        attachment
            .of_nature(Nature::Page)
            .watched_by(self.counter_watch())
            .with_max_value_difference(self.info().capabilities.max_value_difference)
    }
}

impl Sharing for Device {
    fn name(&self) -> &Object {
        self.object()
    }

    fn export_counter(&self, initial: u64, handles: usize) -> Result<(Attachment, Vec<CounterFd>)> {
        let (attachment, exporter) = self.exportable_port(initial)?;
        let handles = (0..handles).map(|_| exporter.export());
        Ok((attachment, handles.collect::<Result<_>>()?))
    }

    fn import_counter(&self, handle: CounterFd) -> Result<Attachment, Rejected<CounterFd>> {
        self.import_timeline(handle)
    }
}

/// A counter in shared memory, as host threads signal it and wait for it.
///
/// It is the home of its timeline, so it is on the first of
/// [`Timeline::devices`](crate::Timeline::devices).
#[derive(Debug)]
pub struct CounterPort(Arc<Counter>);

impl CounterPort {
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
            "the page does not say so: signals of raw CUDA streams go through Device::submit_claimed, and those of another process are there once they are with a driver",
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
