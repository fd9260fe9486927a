//! Timelines of other APIs, imported.

use std::collections::VecDeque;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::{Attachment, Brief, Briefly, Device as _, NativePoint, Port};
use syncline_core::{Error, HandleKind, Object, Origin, Rejected, Result, TimelineFd};

use crate::device::Device;
use crate::event::Mark;
use crate::port::EventPort;
use crate::semaphore::{Kind, Semaphore, signal_all, wait_all};
use crate::stream::Stream;

/// A timeline semaphore of another API, as this device waits for it and signals it. The host cannot
/// read it here; the timeline's home is with its exporter.
pub struct ExternalPort {
    semaphore: Arc<Semaphore>,
    device: Object,
    signals: Brief<Signals>,
}

/// The signals that this device has made or is making, values in rising order.
#[derive(Default)]
struct Signals {
    entries: VecDeque<Signalled>,
    /// The highest of the values that have left the ring, their events being complete.
    shown: u64,
    /// The length at which the next signal looks for completed ones.
    trim_at: usize,
}

/// One of them.
#[derive(Clone)]
struct Signalled {
    value: u64,
    /// The event behind it, perhaps to be recorded yet, and the stream of both.
    behind: Mark,
    stream: u64,
}

impl Signals {
    /// How many of those up to `reached`, from the first on, stand in one stream: if one event of these is complete, so
    /// are those before it.
    fn in_one_stream(&self, reached: u64) -> usize {
        let first = self.entries.front().map(|entry| entry.stream);
        let same = |entry: &&Signalled| entry.value <= reached && Some(entry.stream) == first;
        self.entries.iter().take_while(same).count()
    }
}

/// Signals of which nobody asks are looked through when this many have come together, as in the rings of events.
const TRIM: usize = 256;

impl ExternalPort {
    #[inline]
    pub(crate) const fn semaphore(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    #[inline]
    fn signals(&self) -> Briefly<'_, Signals> {
        self.signals.lock()
    }

    /// A signal of `value` is about to be made in this stream, with an event behind it: the counter may show it from now
    /// on. True if it is time to [look](ExternalPort::trim) for those that are complete.
    fn announce(&self, value: u64, behind: Mark, stream: u64) -> bool {
        let mut signals = self.signals();
        // What queues have found out about their own positions costs nothing to know.
        while let Some(front) = signals.entries.front()
            && front.behind.known_done()
        {
            signals.shown = signals.shown.max(front.value);
            signals.entries.pop_front();
        }
        signals.entries.push_back(Signalled {
            value,
            behind,
            stream,
        });
        signals.entries.len() >= signals.trim_at.max(TRIM)
    }

    /// The announced signal was not made.
    #[cold]
    fn withdraw(&self, value: u64) {
        let mut signals = self.signals();
        let at = signals
            .entries
            .partition_point(|earlier| earlier.value < value);
        let there = signals.entries.get(at);
        if there.is_some_and(|entry| entry.value == value) {
            let withdrawn = signals.entries.remove(at);
            drop(signals);
            drop(withdrawn);
        }
    }

    #[cold]
    fn trim(&self) {
        // Whoever asks for the value next gets the error too.
        let _ = self.visible(u64::MAX);
        let mut signals = self.signals();
        signals.trim_at = 2 * signals.entries.len();
    }

    /// The raw semaphore, for waits that the application submits itself. To signal it, claim the value and use
    /// [`Device::submit_claimed`]: behind a bare `cuSignalExternalSemaphoresAsync` the host would take a value
    /// for reached whose memory it cannot see yet.
    #[must_use]
    pub fn raw(&self) -> sys::CUexternalSemaphore {
        self.semaphore.raw()
    }
}

impl Port for ExternalPort {
    fn is_readable(&self) -> bool {
        false
    }

    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn signal(&self, value: u64) -> Result<()> {
        Err(Error::Unsupported {
            object: self.device.clone(),
            asked: format!("signal an imported timeline to {value} from the host"),
            reason: "CUDA signals it from streams only; its home is with the exporter".into(),
        })
    }

    /// The counter, which another API reads, runs ahead of what the host sees of this device's writes to
    /// host memory (on an H200 by enough to read old data once in some hundred times). An event that
    /// has completed does not, so a value counts once the event behind its signal has.
    fn visible(&self, reached: u64) -> Result<u64> {
        // Of those in one stream the first is asked, then the last, then how far it goes by halves.
        let (mut first, mut within) = (true, 1);
        loop {
            let asked = {
                let signals = self.signals();
                match signals.entries.front() {
                    Some(front) if front.value <= reached => {}
                    _ => return Ok(reached),
                }
                let last = signals.in_one_stream(reached).min(within).checked_sub(1);
                last.and_then(|last| Some((last, signals.entries.get(last).cloned()?)))
            };
            let done = match &asked {
                Some((_, entry)) => {
                    // The driver is asked without the lock.
                    let _mode = self.semaphore.context().allow_during_capture();
                    entry.behind.is_done()?
                }
                None => false,
            };
            let mut signals = self.signals();
            match asked {
                Some((_, entry)) if done => {
                    signals.shown = signals.shown.max(entry.value);
                    let through = |earlier: &Signalled| earlier.value <= entry.value;
                    let count = signals.entries.partition_point(through);
                    for passed in signals.entries.drain(..count) {
                        // Rings that have it need not ask.
                        passed.behind.note_done();
                    }
                    within = if first {
                        usize::MAX
                    } else {
                        within.div_ceil(2)
                    };
                    first = false;
                }
                Some((last, _)) if last > 0 => within = last.div_ceil(2),
                _ => return Ok(signals.shown),
            }
        }
    }
}

impl std::fmt::Debug for ExternalPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExternalPort({:p})", self.raw())
    }
}

/// Waits or signals of imported semaphores, to be made in one driver call.
#[derive(Clone)]
pub(crate) struct External<I> {
    ports: I,
    count: usize,
}

/// Those of `points` that are imported.
///
/// # Errors
/// The first that is of another backend's making.
#[inline]
pub(crate) fn external<'p>(
    points: &'p [NativePoint<'p>],
) -> Result<External<impl Iterator<Item = (&'p ExternalPort, u64)> + Clone>, NativePoint<'p>> {
    let mut count = 0;
    for point in points {
        if point.port::<ExternalPort>().is_some() {
            count += 1;
        } else if point.port::<EventPort>().is_none() {
            return Err(*point);
        }
    }
    let port = |point: &'p NativePoint<'p>| Some((point.port()?, point.value()));
    let ports = points.iter().filter_map(port);
    Ok(External { ports, count })
}

impl<'p> External<std::iter::Once<(&'p ExternalPort, u64)>> {
    /// A single one.
    pub(crate) fn one(port: &'p ExternalPort, value: u64) -> Self {
        Self {
            ports: std::iter::once((port, value)),
            count: 1,
        }
    }
}

impl<'p, I: Iterator<Item = (&'p ExternalPort, u64)> + Clone> External<I> {
    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn each(&self) -> I {
        self.ports.clone()
    }

    /// The semaphores.
    #[inline]
    pub(crate) fn used(&self) -> impl Iterator<Item = &'p Arc<Semaphore>> + use<'p, I> {
        self.each().map(|(port, _)| port.semaphore())
    }

    #[inline]
    fn raw(&self) -> impl Iterator<Item = (sys::CUexternalSemaphore, u64)> + use<'p, I> {
        self.each().map(|(port, value)| (port.raw(), value))
    }

    /// Signals all of them, of which there are some, once what was submitted to `stream` before is finished, and
    /// records `mark` behind that.
    ///
    /// # Errors
    /// A driver error; no signal has been made then, unless it is the stream itself that has failed between them and
    /// the mark.
    pub(crate) fn make(&self, stream: &Stream, mark: &Mark) -> Result<()> {
        let mut crowded = false;
        for (port, value) in self.each() {
            crowded |= port.announce(value, mark.clone(), stream.domain());
        }
        let made = self.signal(stream).and_then(|()| stream.record(mark));
        if made.is_err() {
            self.each().for_each(|(port, value)| port.withdraw(value));
        } else if crowded {
            self.each().for_each(|(port, _)| port.trim());
        }
        made
    }

    /// Makes what is submitted to `stream` later wait for all of them, of which there are some.
    ///
    /// # Errors
    /// A driver error; no part of the call has happened then.
    pub(crate) fn wait(&self, stream: &Stream) -> Result<()> {
        wait_all(stream, self.count, self.raw())
    }

    /// Signals all of them once what was submitted to `stream` before is finished.
    ///
    /// # Errors
    /// A driver error; no part of the call has happened then.
    fn signal(&self, stream: &Stream) -> Result<()> {
        signal_all(stream, self.count, self.raw())
    }
}
impl Device {
    /// This device's part in a timeline whose semaphore `handle` carries.
    ///
    /// A binary semaphore's does not come in here:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_cuda::Device;
    /// # use syncline_core::BinaryFd;
    /// fn take(device: &Device, handle: BinaryFd) {
    ///     let _ = device.import_timeline(handle);
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::CannotShare`] if it comes from another GPU, and [`Error::Unsupported`] if the device takes no
    /// timelines, before any driver is asked; a driver error. The handle comes back with it, still open.
    pub fn import_timeline(&self, handle: TimelineFd) -> Result<Attachment, Rejected<TimelineFd>> {
        let kind = HandleKind::TimelineOpaqueFd;
        if let Err(error) = self.require(handle.origin(), kind, "a timeline semaphore") {
            return Err(Rejected { handle, error });
        }
        let port = ExternalPort {
            semaphore: Arc::new(self.import_semaphore(handle, Kind::Timeline)?),
            device: self.object().clone(),
            signals: Brief::default(),
        };
        Ok(Attachment {
            device: self.id(),
            port: Box::new(port),
            watch: None,
            max_value_difference: u64::MAX,
            signalled_elsewhere: false,
        })
    }
    /// Refuses handles of other GPUs, and of kinds that this one does not take. Drivers do not check the first, and
    /// what comes of it is undefined.
    pub(crate) fn require(
        &self,
        origin: &Origin,
        kind: HandleKind,
        what: &'static str,
    ) -> Result<()> {
        let info = self.info();
        let own = Origin::of(info);
        if own.uuid.is_none() || own.uuid != origin.uuid {
            return Err(Error::CannotShare {
                left: origin.to_string(),
                right: own.to_string(),
                what,
                reason: "an opaque handle works only on the GPU that exported it".into(),
            });
        }
        if info.capabilities.imports.contains(&kind) {
            return Ok(());
        }
        let mut limits = info.capabilities.limits.iter();
        let reason = limits.find(|(limit, _)| *limit == "imports");
        Err(Error::Unsupported {
            object: self.object().clone(),
            asked: format!("import {what}"),
            reason: reason.map_or_else(
                || "the driver does not offer it".into(),
                |(_, reason)| reason.clone(),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::sync::atomic::{AtomicU64, Ordering};

    use syncline_core::backend::Queue as _;
    use syncline_core::{DeviceId, QueueKind, Timeline};

    use super::*;
    use crate::emulated::{device, external_calls, finish, put, timeline_fd};

    /// The exporter's counter.
    struct Home(Arc<AtomicU64>);

    impl Port for Home {
        fn poll(&self) -> Result<Option<u64>> {
            Ok(Some(self.0.load(Ordering::SeqCst)))
        }

        fn signal(&self, value: u64) -> Result<()> {
            self.0.store(value, Ordering::SeqCst);
            Ok(())
        }
    }

    fn shared(device: &Device) -> (Timeline, Arc<AtomicU64>) {
        let counter = Arc::new(AtomicU64::new(0));
        let fd = timeline_fd(device.info());
        let imported = device
            .import_timeline(fd)
            .map_err(|rejected| rejected.error);
        let home = Attachment {
            device: DeviceId::new(),
            port: Box::new(Home(counter.clone())),
            watch: None,
            max_value_difference: u64::MAX,
            signalled_elsewhere: false,
        };
        let timeline = Timeline::new("shared", 0, |_| Ok([home, imported?].into_iter().collect()));
        (timeline.unwrap(), counter)
    }

    /// However many there are, one call has them all, with the values that belong to them.
    #[test]
    fn waits_and_signals_of_a_submission_are_one_call_each() {
        let device = device();
        let from = device.queue(QueueKind::Compute, "from").unwrap();
        let to = device.queue(QueueKind::Compute, "to").unwrap();
        let shared: Vec<_> = (0..10).map(|_| shared(&device)).collect();
        for (round, count) in (1..).zip([1, 2, 8, 9, 10]) {
            let value = |at: usize| 100 * round + at as u64;
            let used = || shared[..count].iter().enumerate();
            let signals: Vec<_> = used()
                .map(|(at, (line, _))| line.signal_at(value(at)))
                .collect();
            let waits: Vec<_> = used().map(|(at, (line, _))| line.at(value(at))).collect();
            let values: Vec<_> = (0..count).map(value).collect();
            from.submit(&[], |_| Ok(()), &signals).unwrap();
            to.submit(&waits, |_| Ok(()), &[]).unwrap();
            assert_eq!(
                external_calls(),
                [("signal", values.clone()), ("wait", values)]
            );
            // The counter may show it before the event behind it is complete.
            for (at, (line, counter)) in used() {
                counter.store(value(at), Ordering::SeqCst);
                assert!(line.value().unwrap() < value(at));
            }
            finish(&from, put(&from));
            for (at, (line, _)) in used() {
                assert_eq!(line.value().unwrap(), value(at));
            }
            assert!(!to.position().is_reached().unwrap());
            finish(&to, put(&to));
            assert!(to.position().is_reached().unwrap());
        }
    }
}
