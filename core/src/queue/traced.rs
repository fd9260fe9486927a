//! Submissions of a queue that a trace follows.

use std::any::Any;
use std::sync::Arc;

use super::follow::{Traceable, Traced};
use super::submission_queue::SubmissionQueue;
use super::submitted::Submitted;
use crate::base::error::Result;
use crate::base::info::Info;
use crate::base::timing::Timing;
use crate::clock::Clock;
use crate::driver::enqueue::{Enqueue, ToWrite};
use crate::port::Stamp;
use crate::timeline::point::{Point, Signal};

/// Work of any type.
pub(super) type BoxedWork<E> = Box<
    dyn for<'r, 'a> FnOnce(&'r mut <E as Enqueue>::Recorder<'a>) -> Result<()> + Send + 'static,
>;

impl<E: Enqueue> SubmissionQueue<E> {
    /// The queue, for a trace to follow. `device` and `clock` are those of its device.
    pub fn traceable(self: &Arc<Self>, device: &Info, clock: Result<Clock>) -> Traceable {
        let this: Arc<dyn Traced> = self.clone();
        let queue = Arc::downgrade(&this);
        Traceable::new(queue, self.object(), self.own_shared(), device, clock)
    }

    /// Same as [`SubmissionQueue::submit`], with device times before and after the work.
    ///
    /// Without a trace there are no times. Takes the work in a box, so that this is compiled once
    /// per backend.
    #[cold]
    pub(super) fn submit_traced<'q>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: BoxedWork<E>,
        signals: &[Signal<'_>],
        attached: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Submitted<'q>> {
        self.require_maker()?;
        let Some(follower) = self.follower().get() else {
            return self.submit_untraced(waits, work, signals, attached);
        };
        let mut stamps = None;
        let followed = follower.begin(waits, signals, &mut || {
            let (before, after) = (
                self.driver().stamp(self.object(), Timing::Clock)?,
                self.driver().stamp(self.object(), Timing::Clock)?,
            );
            stamps = Some((before.clone(), after.clone()));
            Ok([before as Arc<dyn Stamp>, after as Arc<dyn Stamp>])
        });
        let Some(followed) = followed else {
            return self.submit_untraced(waits, work, signals, attached);
        };
        let submission = followed.clone();
        let work = move |recorder: &mut E::Recorder<'_>| {
            submission.released();
            let done = match stamps {
                // If the driver refuses a stamp, its error is the submission's.
                Some((before, after)) => E::write_stamp(recorder, ToWrite::new(&before))
                    .and_then(|()| work(recorder))
                    .and_then(|()| E::write_stamp(recorder, ToWrite::new(&after))),
                None => work(recorder),
            };
            match &done {
                Ok(()) => submission.recorded(),
                Err(error) => submission.failed(error),
            }
            done
        };
        let submitted = self.submit_untraced(waits, work, signals, attached)?;
        followed.accepted(submitted.end().value, submitted.is_held());
        Ok(submitted)
    }
}
