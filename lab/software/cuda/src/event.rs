//! Events.

use std::sync::{Arc, Mutex};

use crate::bug::Bug;
use crate::capture::{self, CapturePosition};
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::current;
use crate::lock;
use crate::mark::Mark;
use crate::operation::Operation;
use crate::settings::print;
use crate::shared_event::SharedEvent;
use crate::stream::Stream;
use crate::table::Table;

/// All live events.
pub(crate) static EVENTS: Table<Event> = Table::new();

/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
pub(crate) const INTERPROCESS: u32 = 4;
/// All valid flags, including `CU_EVENT_BLOCKING_SYNC`.
const FLAGS: u32 = 1 | DISABLE_TIMING | INTERPROCESS;
/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;
/// Times are multiples of this, in nanoseconds.
const RESOLUTION: u64 = 500;

/// An event.
pub(crate) struct Event {
    pub(crate) context: Arc<Context>,
    flags: u32,
    state: Mutex<State>,
    shared: Option<Arc<SharedEvent>>,
}

/// The position that an event represents.
enum State {
    /// No position yet. The event counts as complete.
    Unrecorded,
    Recorded(Mark),
    Captured(CapturePosition),
}

impl Event {
    pub(crate) fn create(context: Arc<Context>, flags: u32) -> Answer<Arc<Self>> {
        let is_shared = flags & INTERPROCESS != 0;
        if flags & !FLAGS != 0 || is_shared && flags & DISABLE_TIMING == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let shared = if is_shared {
            Some(Arc::new(SharedEvent::create()?))
        } else {
            None
        };
        Ok(Arc::new(Self::new(context, flags, shared)))
    }

    /// Returns an event of another process.
    pub(crate) fn opened(context: Arc<Context>, shared: SharedEvent) -> Arc<Self> {
        let flags = INTERPROCESS | DISABLE_TIMING;
        Arc::new(Self::new(context, flags, Some(Arc::new(shared))))
    }

    const fn new(context: Arc<Context>, flags: u32, shared: Option<Arc<SharedEvent>>) -> Self {
        Self {
            context,
            flags,
            state: Mutex::new(State::Unrecorded),
            shared,
        }
    }

    /// Returns the event of a handle, in a context without errors.
    pub(crate) fn find(handle: usize) -> Answer<Arc<Self>> {
        let event = EVENTS.get(handle)?;
        event.context.check()?;
        if event.shared.as_ref().is_some_and(|shared| shared.is_gone()) {
            print("an event was used that its process has destroyed: the behaviour is undefined");
            return Err(Code::INVALID_HANDLE);
        }
        Ok(event)
    }

    pub(crate) const fn shared(&self) -> Option<&Arc<SharedEvent>> {
        self.shared.as_ref()
    }

    /// True if it has the times of its records.
    pub(crate) const fn is_timed(&self) -> bool {
        self.flags & DISABLE_TIMING == 0
    }

    /// Makes a new record, which the event represents from now on.
    pub(crate) fn new_record(&self) -> Mark {
        let mark = match &self.shared {
            Some(shared) => Mark::shared(shared, shared.number_record()),
            None => Mark::default(),
        };
        *lock(&self.state) = State::Recorded(mark.clone());
        mark
    }

    /// Returns the latest record. `None` also for a position in a graph.
    fn latest(&self) -> Option<Mark> {
        let own = match &*lock(&self.state) {
            State::Recorded(mark) => Some(mark.clone()),
            State::Unrecorded | State::Captured(_) => None,
        };
        let Some(shared) = &self.shared else {
            return own;
        };
        // Another process may have recorded it since then.
        let number = shared.latest();
        let own = own.filter(|mark| mark.number() == Some(number));
        Some(own.unwrap_or_else(|| Mark::shared(shared, number)))
    }

    /// Returns the latest record, or one that is already reached.
    pub(crate) fn latest_or_reached(&self) -> Mark {
        self.latest().unwrap_or_else(|| {
            let reached = Mark::default();
            reached.complete();
            reached
        })
    }

    /// Returns the position in a graph that the event represents.
    fn position(&self) -> Option<CapturePosition> {
        match &*lock(&self.state) {
            State::Captured(position) => Some(position.clone()),
            State::Unrecorded | State::Recorded(_) => None,
        }
    }

    /// `cuEventRecordWithFlags`.
    pub(crate) fn record(self: &Arc<Self>, stream: &Arc<Stream>, flags: u32) -> Answer {
        if self.context.id != stream.context.id {
            return Err(Code::INVALID_HANDLE);
        }
        let captured = capture::position(stream)?;
        match (flags, captured) {
            (0, None) => stream
                .enqueue(Operation::RecordEvent(self.clone()))
                .map(|_| ()),
            // Other processes could not know its position.
            (0, Some(_)) if self.shared.is_some() => Err(Code::STREAM_CAPTURE_UNSUPPORTED),
            (0, Some(position)) => {
                *lock(&self.state) = State::Captured(position);
                Ok(())
            }
            (EXTERNAL, Some(_)) => stream.submit(Operation::RecordEvent(self.clone())),
            (EXTERNAL, None) => Err(Code::ILLEGAL_STATE),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// `cuStreamWaitEvent`.
    pub(crate) fn waited_for_by(self: &Arc<Self>, stream: &Arc<Stream>, flags: u32) -> Answer {
        let captured = capture::position(stream)?;
        match (flags, &captured) {
            (0, _) => {}
            (EXTERNAL, Some(captured)) => {
                if self.position().is_some() {
                    captured.capture.invalidate();
                    return Err(Code::INVALID_VALUE);
                }
                return stream.submit(Operation::WaitAtLaunch(self.clone()));
            }
            (EXTERNAL, None) => return Err(Code::ILLEGAL_STATE),
            _ => return Err(Code::INVALID_VALUE),
        }
        if let Some(position) = self.position() {
            return capture::join(stream, &position);
        }
        match (self.latest(), captured) {
            // An event that was never recorded orders nothing.
            (None, _) => Ok(()),
            (Some(_), Some(captured)) => {
                captured.capture.invalidate();
                Err(Code::STREAM_CAPTURE_ISOLATION)
            }
            (Some(_), None) if Bug::ForgetsEventWait.is_planted() => Ok(()),
            (Some(mark), None) if mark.is_reached() => Ok(()),
            (Some(mark), None) => stream.enqueue(Operation::Wait(mark)).map(|_| ()),
        }
    }

    /// Returns the latest record, for a query of the host.
    ///
    /// A position in a graph is an error, and the query invalidates the capture.
    fn asked(&self) -> Answer<Option<Mark>> {
        if let Some(position) = self.position() {
            if !position.capture.is_open() {
                return Err(Code::INVALID_VALUE);
            }
            position.capture.invalidate();
            return Err(Code::CAPTURED_EVENT);
        }
        capture::permit()?;
        Ok(self.latest())
    }

    /// `cuEventQuery`.
    pub(crate) fn query(&self) -> Answer {
        if Bug::QueryMakesCurrent.is_planted() {
            current::set(self.context.handle)?;
        }
        match self.asked()? {
            Some(_) if Bug::EventCompleteTooEarly.is_planted() => Ok(()),
            Some(mark) if !mark.is_reached() => Err(Code::NOT_READY),
            _ => Ok(()),
        }
    }

    /// `cuEventSynchronize`.
    pub(crate) fn synchronize(&self) -> Answer {
        if let Some(mark) = self.asked()? {
            mark.wait(&self.context.engine.life);
        }
        self.context.check()
    }

    /// `cuEventElapsedTime`, in milliseconds.
    pub(crate) fn elapsed(start: &Self, end: &Self) -> Answer<f32> {
        if !start.is_timed() || !end.is_timed() || start.context.id != end.context.id {
            return Err(Code::INVALID_HANDLE);
        }
        let time = |event: &Self| match event.position() {
            Some(position) if position.capture.is_open() => Err(Code::CAPTURED_EVENT),
            Some(_) => Err(Code::INVALID_VALUE),
            None => {
                let mark = event.latest().ok_or(Code::INVALID_HANDLE)?;
                mark.time().ok_or(Code::NOT_READY)
            }
        };
        let steps = |event| Ok(time(event)? / RESOLUTION);
        let (start, end) = (steps(start)?, steps(end)?);
        let passed = end as i64 - start as i64;
        Ok((passed as f64 * RESOLUTION as f64 / 1e6) as f32)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use super::*;
    use crate::stream::StreamKind;

    #[test]
    fn a_refused_record_changes_nothing() {
        let context = Context::for_tests();
        let stream = Stream::new(&context, StreamKind::NonBlocking, 0).unwrap();
        let shared = Event::create(context.clone(), INTERPROCESS | DISABLE_TIMING).unwrap();
        let own = Event::create(context.clone(), 0).unwrap();
        context.engine.life.end();
        for event in [&shared, &own] {
            event.record(&stream, 0).unwrap_err();
        }
        // Other processes would wait for it.
        assert_eq!(shared.shared().unwrap().latest(), 0);
        assert!(own.latest().is_none());
    }
}
