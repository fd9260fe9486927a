//! Streams of several threads in one common order.
#![allow(unsafe_code, reason = "shares the driver's handles between threads")]

use std::sync::{Mutex, PoisonError};

use super::{Calls, Event, Hand, Stream};
use crate::side::Outcome;

/// One stream for each thread, with one order over all of them: each record waits for the last one.
///
/// The streams and events belong to the [`Hand`] that made them, which outlives this.
pub(crate) struct Chain {
    calls: Calls,
    streams: Vec<(Stream, Vec<Event>)>,
    /// The last recorded event of all streams.
    last: Mutex<Option<Event>>,
}

// SAFETY: streams and events may be used from any thread.
unsafe impl Send for Chain {}
// SAFETY: as for sending.
unsafe impl Sync for Chain {}

impl Chain {
    /// Makes the streams, with this many events each.
    pub(crate) fn new(hand: &Hand, streams: usize, events: u64) -> Outcome<Self> {
        let streams = (0..streams).map(|_| Ok((hand.stream()?, hand.events(events, false)?)));
        Ok(Self {
            calls: **hand,
            streams: streams.collect::<Outcome<_>>()?,
            last: Mutex::new(None),
        })
    }

    /// Makes records on a stream, each behind the last record on any of the streams.
    ///
    /// At most as many as the stream has events.
    pub(crate) fn submit(&self, stream: usize, count: u64) -> Outcome<()> {
        let _current = self.calls.enter()?;
        let (stream, events) = &self.streams[stream];
        for &event in &events[..count as usize] {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(last) = *last {
                self.calls.wait_event(*stream, last)?;
            }
            self.calls.record(event, *stream)?;
            *last = Some(event);
        }
        Ok(())
    }

    /// Waits until all streams are idle.
    pub(crate) fn finish(&self) -> Outcome<()> {
        let _current = self.calls.enter()?;
        let mut streams = self.streams.iter();
        streams.try_for_each(|(stream, _)| self.calls.finish(*stream))
    }
}
