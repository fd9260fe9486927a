//! The stream of a queue: how waits and signals of a submission become driver calls.

use std::cell::Cell;

use syncline_core::backend::kit::Recycled;
use syncline_core::backend::{Keep, NativePoint, Timing, Unused};
use syncline_core::{Error, Result, error::Object};

use crate::device::context::{Bound, Owner};
use crate::device::event::Mark;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::timeline::groups::{Groups, ImportsInUse};
use crate::timeline::port::{Awaited, EventPort, Marks, no_event};
use crate::timing::stamp::Stamp;

/// The commands that count for a wait or signal of an external semaphore or a memory word.
pub(crate) const EXTERNAL: u64 = 2;

/// The queue's position that a submission signals last.
#[derive(Clone, Copy)]
pub(super) struct End<'p> {
    /// The port of the queue's own timeline.
    pub(super) port: &'p EventPort,
    /// The number of the submission.
    pub(super) number: u64,
    /// See [`Batch::signalled`](syncline_core::backend::Batch::signalled).
    pub(super) signalled: &'p Cell<bool>,
}

impl End<'_> {
    /// Adds the end without an event. False if an event is required.
    ///
    /// The position is reached with the previous one and with what the stream has `waited` for.
    #[inline]
    pub(super) fn follow(self, waited: &Awaited, domain: u64) -> bool {
        self.port.push_without_event(self.number, waited, domain)
    }
}

/// The stream of a queue, and what the submissions in flight on it use.
pub(crate) struct QueueStream {
    object: Object,
    stream: Stream,
    owner: Owner,
    device: Device,
    stamps: Recycled<Stamp>,
    clock_stamps: Recycled<Stamp>,
}

/// What the thread that submits to a [`QueueStream`] needs.
#[derive(Default)]
pub struct StreamState {
    imports: ImportsInUse,
    /// True if the stream may have work after the last event of the queue's position.
    unmarked: bool,
}

impl StreamState {
    /// Notes that a submission begins to add to the stream.
    ///
    /// Returns false if the stream may have work already after the last event of the queue's
    /// position. If the submission fails before [`StreamState::note_marked`], the next one gets
    /// false and must record an event.
    #[inline]
    pub(super) const fn begin_submission(&mut self) -> bool {
        !std::mem::replace(&mut self.unmarked, true)
    }

    /// Notes that the position's last event covers all work of the stream.
    #[inline]
    pub(super) const fn note_marked(&mut self) {
        self.unmarked = false;
    }

    /// Moves imported objects that no submission after `reached` uses to `unused`.
    pub(super) fn take_unused(&mut self, reached: u64, unused: &mut Unused) {
        self.imports.take_unused(reached, unused);
    }
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
        }
    }

    /// The name of the queue.
    #[inline]
    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    #[inline]
    pub(crate) const fn stream(&self) -> &Stream {
        &self.stream
    }

    #[inline]
    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    pub(super) const fn stamps(&self, timing: Timing) -> &Recycled<Stamp> {
        match timing {
            Timing::Clock => &self.clock_stamps,
            _ => &self.stamps,
        }
    }

    /// True if the raw stream lives as long as this struct.
    pub(crate) fn keeps_stream(&self) -> bool {
        self.stream.is_owned() || self.owner.is_some()
    }

    /// Makes the device's context current if the stream is the legacy default stream.
    ///
    /// That handle means the stream of the current context. Required after work has run, because
    /// work may have made another context current.
    ///
    /// # Errors
    /// A driver error.
    #[inline(always)]
    pub(crate) fn bind_legacy(&self) -> Result<Option<Bound<'_>>> {
        let binds = self.stream.is_legacy();
        binds.then(|| self.device.context().bind()).transpose()
    }

    /// Makes the stream wait for `waits`, for the submission that `end` ends.
    ///
    /// Returns what the stream waits for.
    #[inline(always)]
    pub(super) fn wait(
        &self,
        state: &mut StreamState,
        waits: &[NativePoint<'_>],
        end: End<'_>,
        keep: &mut Keep,
    ) -> Result<Awaited> {
        let awaited = match waits {
            [] => return Ok(Awaited::Nothing),
            [point] => point.port::<EventPort>().map_or(Awaited::Several, |port| {
                port.awaited(point.value(), self.stream.domain())
            }),
            _ => Awaited::Several,
        };
        match &awaited {
            Awaited::Nothing => {}
            Awaited::Event(mark) => self.stream.wait(mark)?,
            Awaited::Several => return self.wait_for_all(state, waits, end, keep),
        }
        Ok(awaited)
    }

    #[inline(never)]
    pub(super) fn wait_for_all(
        &self,
        state: &mut StreamState,
        points: &[NativePoint<'_>],
        end: End<'_>,
        keep: &mut Keep,
    ) -> Result<Awaited> {
        let mut external = false;
        let mut marks = Marks::new();
        for point in points {
            if let Some(port) = point.port::<EventPort>() {
                let unseen = || no_event(point.object(), point.value());
                port.add_awaited(point.value(), self.stream.domain(), &mut marks, unseen)?;
            } else {
                external = true;
            }
        }
        for mark in &marks {
            self.stream.wait(mark)?;
        }
        if external {
            self.external(state, points, end, keep)?
                .wait(&self.stream)?;
        }
        Ok(match marks.pop() {
            _ if external => Awaited::Several,
            None => Awaited::Nothing,
            Some(mark) if marks.is_empty() => Awaited::Event(mark),
            Some(_) => Awaited::Several,
        })
    }

    /// Adds `signals` after the work. Usually this is one event for the whole submission.
    ///
    /// `last` is the event that the work ended with, if it did.
    #[inline(always)]
    pub(super) fn signal(
        &self,
        state: &mut StreamState,
        signals: &[NativePoint<'_>],
        end: End<'_>,
        last: Option<Mark>,
        keep: &mut Keep,
    ) -> Result<()> {
        let domain = self.stream.domain();
        let last = match (signals, last) {
            // The event of the work serves for the whole submission.
            ([], Some(mark)) => {
                end.port.push(end.number, mark, domain);
                return Ok(());
            }
            (_, last) => last,
        };
        if let ([signal], None) = (signals, &last)
            && let Some(port) = signal.port::<EventPort>()
        {
            let mark = end
                .port
                .begin(end.number, domain, self.device.plain_events())?;
            if let Err(error) = self.stream.record(&mark) {
                end.port.withdraw(end.number);
                return Err(error);
            }
            port.push(signal.value(), mark, domain);
            return Ok(());
        }
        self.signal_all(state, signals, end, last, keep)
    }

    /// Makes external signals, then records the event of the submission.
    ///
    /// The order has two effects. The queue keeps the objects of the signals until the event is
    /// complete, so until the signals are made. The engine sees no signal before the event is
    /// recorded.
    ///
    /// The event is taken earlier, so after the external signals only the stream itself can fail.
    /// Then the driver makes these signals, and the submission is not refused.
    fn signal_all(
        &self,
        state: &mut StreamState,
        signals: &[NativePoint<'_>],
        end: End<'_>,
        last: Option<Mark>,
        keep: &mut Keep,
    ) -> Result<()> {
        let mut here = signals.iter().map(|signal| signal.port::<EventPort>());
        let only_here = here.all(|port| port.is_some());
        let domain = self.stream.domain();
        let mark = match last.filter(|_| only_here) {
            Some(mark) => {
                end.port.push(end.number, mark.clone(), domain);
                mark
            }
            None => {
                let mark = end
                    .port
                    .begin(end.number, domain, self.device.plain_events())?;
                let made = if only_here {
                    self.stream.record(&mark)
                } else {
                    self.external(state, signals, end, keep)
                        .and_then(|external| {
                            external.signal_and_record(&self.stream, &mark, end.signalled)
                        })
                };
                if let Err(error) = made {
                    end.port.withdraw(end.number);
                    return Err(error);
                }
                mark
            }
        };
        for signal in signals {
            if let Some(port) = signal.port::<EventPort>() {
                port.push(signal.value(), mark.clone(), domain);
            }
        }
        Ok(())
    }

    /// The position that a submission signals last.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if another backend has made the port.
    #[inline]
    pub(super) fn end<'p>(
        &self,
        end: NativePoint<'p>,
        signalled: &'p Cell<bool>,
    ) -> Result<End<'p>> {
        match end.port::<EventPort>() {
            Some(port) => Ok(End {
                port,
                number: end.value(),
                signalled,
            }),
            None => Err(self.foreign(end)),
        }
    }

    #[cold]
    fn foreign(&self, point: NativePoint<'_>) -> Error {
        Error::unsupported(
            &self.object,
            format!("use {}", point.object()),
            "its port on this device was not made by this backend, or in another context",
        )
    }

    /// The imported ports among `points`, kept until the submission that `end` ends has finished.
    #[inline]
    pub(super) fn external<'p>(
        &self,
        state: &mut StreamState,
        points: &'p [NativePoint<'p>],
        end: End<'_>,
        keep: &mut Keep,
    ) -> Result<Groups<'p>> {
        let external =
            Groups::of(points, self.device.context()).map_err(|point| self.foreign(point))?;
        keep.take_in_flight(EXTERNAL * external.count() as u64);
        external.keep_in(&mut state.imports, end.number, end.port.reached());
        Ok(external)
    }
}
