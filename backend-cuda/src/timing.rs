//! Times written by streams.

use std::any::Any;
use std::sync::OnceLock;

use syncline_core::{Error, Object, Result, backend};

use crate::event::{Events, Mark};

/// A time at a queue position: a timed event, once it is recorded there.
pub(crate) struct Stamp {
    /// The queue that writes it.
    object: Object,
    /// Stays from one use to the next where nobody else has it then.
    mark: OnceLock<Mark>,
}

impl Stamp {
    pub(crate) fn new(queue: &Object) -> Self {
        Self {
            object: queue.clone(),
            mark: OnceLock::new(),
        }
    }

    /// For the next record.
    pub(crate) fn renew(&mut self) {
        match self.mark.get().filter(|mark| mark.is_alone()) {
            Some(mark) => mark.renew(),
            None => self.mark = OnceLock::new(),
        }
    }

    /// The event, to be recorded once, when the stamp's submission is recorded.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn event(&self, events: &Events) -> Result<&Mark> {
        if let Some(mark) = self.mark.get() {
            return Ok(mark);
        }
        let mark = events.take()?;
        Ok(self.mark.get_or_init(|| mark))
    }

    /// The event, once it is recorded.
    fn mark(&self) -> Result<&Mark> {
        let recorded = self.mark.get().filter(|mark| mark.is_recorded());
        recorded.ok_or_else(|| self.not_ready())
    }

    fn not_ready(&self) -> Error {
        Error::NotReady {
            fence: self.object.clone(),
        }
    }
}

impl backend::Stamp for Stamp {
    fn nanoseconds_since(&self, start: &dyn backend::Stamp) -> Result<i64> {
        let start: &dyn Any = start;
        let start = start
            .downcast_ref::<Self>()
            .ok_or_else(|| Error::Unsupported {
                object: self.object.clone(),
                asked: "tell the time since a stamp of another backend".into(),
                reason: "CUDA tells times between its own events only".into(),
            })?;
        let milliseconds = self
            .mark()?
            .milliseconds_since(start.mark()?)?
            .ok_or_else(|| self.not_ready())?;
        // Saturates, after three centuries.
        Ok((f64::from(milliseconds) * 1e6).round() as i64)
    }
}
