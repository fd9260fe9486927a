//! Times written by streams.

use std::any::Any;
use std::sync::OnceLock;

use syncline_core::{Error, Object, Result, backend};

use crate::event::Mark;

/// A time at a queue position: a timed event, once it is recorded there.
pub(crate) struct Stamp {
    /// The queue that writes it.
    object: Object,
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
        self.mark = OnceLock::new();
    }

    /// Called once, when the stamp's submission is recorded.
    pub(crate) fn write(&self, mark: Mark) {
        let _ = self.mark.set(mark);
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
        let mark = self.mark.get().ok_or_else(|| self.not_ready())?;
        let from = start.mark.get().ok_or_else(|| start.not_ready())?;
        let milliseconds = mark
            .milliseconds_since(from)?
            .ok_or_else(|| self.not_ready())?;
        // Saturates, after three centuries.
        Ok((f64::from(milliseconds) * 1e6).round() as i64)
    }
}
