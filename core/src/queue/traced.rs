//! Submissions of a queue that a trace follows.

use std::sync::Arc;

use super::follow::{Traceable, Traced};
use super::submission_queue::SubmissionQueue;
use super::submitted::Submitted;
use super::work::{Given, Record, refused};
use crate::base::error::{Error, Result};
use crate::base::info::Info;
use crate::base::timing::Timing;
use crate::clock::Clock;
use crate::driver::enqueue::{Enqueue, ToWrite};
use crate::port::Stamp;
use crate::timeline::point::{Point, Signal};

impl<E: Enqueue> SubmissionQueue<E> {
    /// The queue, for a trace to follow. `device` and `clock` are those of its device.
    pub fn traceable(self: &Arc<Self>, device: &Info, clock: Result<Clock>) -> Traceable {
        let this: Arc<dyn Traced> = self.clone();
        let queue = Arc::downgrade(&this);
        Traceable::new(queue, self.object(), self.own_shared(), device, clock)
    }

    /// Same as [`SubmissionQueue::submit_work`], with device times before and after the work.
    ///
    /// Without a trace there are no times.
    #[cold]
    pub(super) fn submit_traced<'q>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: &mut dyn Record<E>,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>, Box<Error>> {
        self.require_maker()?;
        let Some(follower) = self.follower().get() else {
            return self.submit_untraced(waits, work, signals);
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
            return self.submit_untraced(waits, work, signals);
        };
        let submission = followed.clone();
        let (attached, mut work) = (work.attached().cloned(), work.store());
        let mut record =
            move |recorder: &mut E::Recorder<'_>| work.record(recorder).map_err(|error| *error);
        let work = move |recorder: &mut E::Recorder<'_>| {
            submission.released();
            let done = match stamps {
                // If the driver refuses a stamp, its error is the submission's.
                Some((before, after)) => E::write_stamp(recorder, ToWrite::new(&before))
                    .and_then(|()| record(recorder))
                    .and_then(|()| E::write_stamp(recorder, ToWrite::new(&after))),
                None => record(recorder),
            };
            match &done {
                Ok(()) => submission.recorded(),
                Err(error) => submission.failed(error),
            }
            done
        };
        let mut work = Given::new::<E>(work, attached);
        let submitted = self.submit_untraced(waits, &mut work, signals);
        let submitted = submitted.map_err(|error| refused::<E>(&mut work, error))?;
        followed.accepted(submitted.end().value, submitted.is_held());
        Ok(submitted)
    }
}
