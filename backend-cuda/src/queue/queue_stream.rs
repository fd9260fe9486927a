//! The stream of a queue: how the waits and signals of a submission become driver calls on it.

use std::sync::atomic::AtomicBool;

use syncline_core::backend::{Batch, InUse, Keep, NativePoint, Recycled, Timing};
use syncline_core::{Error, Object, Result};

use crate::device::context::{Bound, Owner};
use crate::device::event::Mark;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::timeline::counter::MappedCounter;
use crate::timeline::imported::Groups;
use crate::timeline::port::{EventPort, Marks, no_event};
use crate::timeline::semaphore::Semaphore;
use crate::timing::stamp::Stamp;

/// What the wait for an external semaphore or a word of memory, or its signal, takes in commands.
pub(crate) const EXTERNAL: u64 = 2;

/// The event of another stream that a stream waits for.
pub(super) type AwaitedEvent = Option<Mark>;

pub(crate) struct QueueStream {
    pub(crate) object: Object,
    pub(crate) stream: Stream,
    owner: Owner,
    pub(crate) device: Device,
    stamps: Recycled<Stamp>,
    clock_stamps: Recycled<Stamp>,
    /// Imported timelines.
    pub(super) semaphores: InUse<Semaphore>,
    /// Counters in shared memory.
    pub(super) words: InUse<MappedCounter>,
    /// Something may stand in the stream behind the last event that the queue's position knows of. Only used in
    /// the stream's turn.
    pub(super) unmarked: AtomicBool,
}

impl QueueStream {
    pub(super) fn new(object: &Object, stream: Stream, owner: Owner, device: &Device) -> Self {
        Self {
            object: object.clone(),
            stream,
            owner,
            device: device.clone(),
            stamps: Recycled::default(),
            clock_stamps: Recycled::default(),
            semaphores: InUse::default(),
            words: InUse::default(),
            unmarked: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) const fn stamps(&self, timing: Timing) -> &Recycled<Stamp> {
        match timing {
            Timing::Clock => &self.clock_stamps,
            _ => &self.stamps,
        }
    }

    /// True if the stream lives as long as this.
    pub(crate) fn keeps_stream(&self) -> bool {
        self.stream.is_owned() || self.owner.is_some()
    }

    /// Makes the device's context current for the legacy default stream, which is that of the
    /// current context. Needed wherever work has run: it may have made another context current.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn bind_legacy(&self) -> Result<Option<Bound<'_>>> {
        let binds = self.stream.is_legacy();
        binds.then(|| self.device.context().bind()).transpose()
    }

    /// Makes the stream wait for what `batch` waits for. Tells what it waits for of other streams, if
    /// that is all, and one event at the most.
    #[inline(always)]
    pub(super) fn wait(&self, batch: &Batch<'_>, keep: &mut Keep) -> Result<Option<AwaitedEvent>> {
        match batch.waits {
            [] => return Ok(Some(None)),
            [point] => {
                if let Some(port) = point.port::<EventPort>()
                    && let Some(mark) = port.single_event_for(point.value(), self.stream.domain())
                {
                    if let Some(mark) = &mark {
                        self.stream.wait(mark)?;
                    }
                    return Ok(Some(mark));
                }
            }
            _ => {}
        }
        self.wait_for_all(batch.waits, batch.end, keep)
    }

    #[inline(never)]
    pub(super) fn wait_for_all(
        &self,
        points: &[NativePoint<'_>],
        end: NativePoint<'_>,
        keep: &mut Keep,
    ) -> Result<Option<AwaitedEvent>> {
        let mut external = false;
        let mut marks = Marks::new();
        for point in points {
            if let Some(port) = point.port::<EventPort>() {
                let unseen = || no_event(point.object(), point.value());
                port.awaited(point.value(), self.stream.domain(), &mut marks, unseen)?;
            } else {
                external = true;
            }
        }
        for mark in &marks {
            self.stream.wait(mark)?;
        }
        if external {
            self.wait_for_external(points, end, keep)?;
        }
        let all = !external && marks.len() <= 1;
        Ok(all.then(|| marks.pop()))
    }

    /// Puts what makes the signals behind the work: mostly one event, which stands for the whole submission.
    #[inline(always)]
    pub(super) fn signal(
        &self,
        batch: &Batch<'_>,
        last: Option<Mark>,
        keep: &mut Keep,
    ) -> Result<()> {
        let last = match (batch.signals, last) {
            // The work has ended with an event, and that stands for the whole submission.
            ([], Some(mark)) => {
                let own = self.own(batch.end)?;
                own.push(batch.end.value(), mark, self.stream.domain());
                return Ok(());
            }
            (_, last) => last,
        };
        if let ([signal], None) = (batch.signals, &last)
            && let Some(port) = signal.port::<EventPort>()
        {
            let own = self.own(batch.end)?;
            let (number, domain) = (batch.end.value(), self.stream.domain());
            let mark = own.begin(number, domain, self.device.plain_events())?;
            if let Err(error) = self.stream.record(&mark) {
                own.withdraw(number);
                return Err(error);
            }
            port.push(signal.value(), mark, domain);
            return Ok(());
        }
        self.signal_all(batch, last, keep)
    }

    /// External signals, then the event that stands for everything, so that what the signals use is
    /// not let go before they are made. Until the event is recorded nothing is signalled that the
    /// engine could see. The event was taken before: nothing is left to fail behind the signals but the stream itself.
    fn signal_all<'p>(&self, batch: &Batch<'p>, last: Option<Mark>, keep: &mut Keep) -> Result<()> {
        let here = |signal: &NativePoint<'p>| signal.port::<EventPort>();
        let count = batch.signals.iter().filter_map(here).count();
        let only_here = count == batch.signals.len();
        let domain = self.stream.domain();
        let own = self.own(batch.end)?;
        let number = batch.end.value();
        let mark = match last.filter(|_| only_here) {
            Some(mark) => {
                own.push(number, mark.clone(), domain);
                mark
            }
            None => {
                let mark = own.begin(number, domain, self.device.plain_events())?;
                let made = if only_here {
                    self.stream.record(&mark)
                } else {
                    self.external(batch.signals, batch.end, keep)
                        .and_then(|external| external.signal_and_record(&self.stream, &mark))
                };
                if let Err(error) = made {
                    own.withdraw(number);
                    return Err(error);
                }
                mark
            }
        };
        if count > 0 {
            for signal in batch.signals {
                if let Some(port) = here(signal) {
                    port.push(signal.value(), mark.clone(), domain);
                }
            }
        }
        Ok(())
    }

    /// Ends a submission that has put nothing into the stream but a wait: its position is reached with the
    /// one before and with that, and no event need say so. False if one must.
    #[inline]
    pub(super) fn follow(&self, batch: &Batch<'_>, waited: AwaitedEvent) -> bool {
        self.own(batch.end).is_ok_and(|own| {
            own.push_without_event(batch.end.value(), waited, self.stream.domain())
        })
    }

    /// The port of the queue's own timeline, as `end` has it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is none of this backend's.
    #[inline]
    fn own<'p>(&self, end: NativePoint<'p>) -> Result<&'p EventPort> {
        end.port::<EventPort>().ok_or_else(|| self.foreign(end))
    }

    #[cold]
    fn foreign(&self, point: NativePoint<'_>) -> Error {
        Error::Unsupported {
            object: self.object.clone(),
            asked: format!("use {}", point.object()),
            reason: "its port on this device was not made by this backend, or in another context"
                .into(),
        }
    }

    #[inline(never)]
    fn wait_for_external(
        &self,
        points: &[NativePoint<'_>],
        end: NativePoint<'_>,
        keep: &mut Keep,
    ) -> Result<()> {
        self.external(points, end, keep)?.wait(&self.stream)
    }

    /// Those of `points` that are imported, which are kept until the submission that `end` ends has finished.
    #[inline]
    fn external<'p>(
        &self,
        points: &'p [NativePoint<'p>],
        end: NativePoint<'_>,
        keep: &mut Keep,
    ) -> Result<Groups<'p>> {
        let external =
            Groups::of(points, self.device.context()).map_err(|point| self.foreign(point))?;
        keep.take_in_flight(EXTERNAL * external.count() as u64);
        let (number, reached) = (end.value(), self.own(end)?.reached());
        let Groups {
            semaphores,
            counters,
        } = &external;
        if semaphores.count() > 0 {
            self.semaphores.add(semaphores.used(), number, reached);
        }
        if counters.count() > 0 {
            self.words.add(counters.used(), number, reached);
        }
        Ok(external)
    }
}
