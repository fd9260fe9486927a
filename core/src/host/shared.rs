//! Timelines in shared memory: export and import of counters.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::backend::kit::Counter;
use crate::backend::{Attachment, Device as _, Sharing};
use crate::host::counter_port::CounterPort;
use crate::host::device::Device;
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
        Ok(CounterFd::from_checked(twin))
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
        self.require_maker()?;
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
        let attachment = Attachment::new(self.memory(), initial, CounterPort::new(counter));
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
        let opened = self.require_maker();
        match opened.and_then(|()| Counter::open(&handle, self.object())) {
            Ok(counter) => {
                let port = CounterPort::new(Arc::new(counter));
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
    }
}

#[allow(unsafe_code, reason = "the trait is a promise")]
// SAFETY: the counters are in new shared memory, and each page checks the values of its signals.
// The handles are of the page that the attachment has.
unsafe impl Sharing for Device {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::Timeline;
    use crate::backend::{Port, Watch, Watcher};

    /// Counts the watches that ended before their time without a nudge.
    struct Watched {
        device: Arc<dyn Watch>,
        nudged: AtomicBool,
        early: AtomicUsize,
    }

    impl Watch for Watched {
        fn watcher(&self) -> &Watcher {
            self.device.watcher()
        }

        fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<(), Error> {
            let ended = self.device.watch(ports, until);
            if Instant::now() < until && !self.nudged.swap(false, Ordering::SeqCst) {
                self.early.fetch_add(1, Ordering::SeqCst);
            }
            ended
        }

        fn nudge(&self) {
            self.nudged.store(true, Ordering::SeqCst);
            self.device.nudge();
        }

        fn lends(&self) -> bool {
            self.device.lends()
        }
    }

    /// A claim of the application makes this process poll what is pending.
    ///
    /// After the claim is dropped, the new pending value ends one sleep. Then threads sleep again.
    #[test]
    fn a_watch_sleeps_after_a_claim_of_the_application() {
        let (port, exporter) = Device::new().exportable_port(0).unwrap();
        let watched = Arc::new(Watched {
            device: port.watch().unwrap().clone(),
            nudged: AtomicBool::new(false),
            early: AtomicUsize::new(0),
        });
        let port = port.watched_instead_by(watched.clone());
        let line = Timeline::new("line", 0, |_| Ok([port].into_iter().collect())).unwrap();
        let mut claim = line.claim(2).unwrap();
        let counter = exporter.counter();
        counter.announce(2).unwrap();
        // With a claim, a query also reads the pending value, which is 0 here.
        assert!(!line.at(2).is_reached().unwrap());
        counter.note_pending(2);
        claim.submitted().unwrap();
        drop(claim);
        let told = line.at(2).wait(Duration::from_millis(300));
        assert!(matches!(told, Err(Error::TimedOut { .. })), "{told:?}");
        assert_eq!(watched.early.load(Ordering::SeqCst), 1);
    }
}
