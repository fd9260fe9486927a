//! Submissions of a queue that a trace follows.

use std::sync::Arc;

use super::{Lane, Submitted};
use crate::api::Device;
use crate::base::error::{Error, Result};
use crate::base::timing::Timing;
use crate::driver::enqueue::Enqueue;
use crate::port::Stamp;
use crate::timeline::point::{Point, Signal};
use crate::trace::{self, Follower, Trace};

/// Work of any kind.
pub(super) type BoxedWork<E> = Box<
    dyn for<'r, 'a> FnOnce(&'r mut <E as Enqueue>::Recorder<'a>) -> Result<()> + Send + 'static,
>;

impl<E: Enqueue> Lane<E> {
    /// See [`Queue::trace`](crate::backend::Queue::trace); `device` is the queue's.
    ///
    /// # Errors
    /// As there.
    pub fn trace<D: Device>(self: &Arc<Self>, device: &D, trace: &Trace) -> Result<()> {
        // May take its time: before the lock.
        let clock = device.clock().map_err(|error| error.to_string());
        trace.add(|inner| {
            let make = || {
                let this: Arc<dyn trace::Lane> = self.clone();
                let (label, own) = (self.object.label(), self.own_shared());
                let lane = Arc::downgrade(&this);
                Follower::new(inner, lane, label, device.info(), own, clock)
            };
            self.followed_by
                .take(make)
                .ok_or_else(|| Error::Unsupported {
                    object: self.object.clone(),
                    asked: "be traced".into(),
                    reason: "a trace follows it already".into(),
                })
        })
    }

    /// As [`Lane::submit`], with the times of the device around the work, and those of the host written down.
    ///
    /// Takes the work in a box, so that this is compiled once for a backend and not once for each closure.
    #[cold]
    pub(super) fn submit_traced<'q>(
        self: &'q Arc<Self>,
        waits: &[Point<'_>],
        work: BoxedWork<E>,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>> {
        let Some(follower) = self.followed_by.by() else {
            return self.submit_untraced(waits, work, signals);
        };
        let mut stamps = None;
        let life = follower.begin(waits, signals, || {
            let (before, behind) = (
                self.driver.stamp(Timing::Clock)?,
                self.driver.stamp(Timing::Clock)?,
            );
            stamps = Some((before.clone(), behind.clone()));
            Ok([before as Arc<dyn Stamp>, behind as Arc<dyn Stamp>])
        });
        let Some(life) = life else {
            return self.submit_untraced(waits, work, signals);
        };
        let lived = life.clone();
        let work = move |recorder: &mut E::Recorder<'_>| {
            lived.release();
            let done = match stamps {
                // A driver that does not take them has more to say of the work.
                Some((before, behind)) => E::write_stamp(recorder, &before)
                    .and_then(|()| work(recorder))
                    .and_then(|()| E::write_stamp(recorder, &behind)),
                None => work(recorder),
            };
            match &done {
                Ok(()) => lived.recorded(),
                Err(error) => lived.fail(error),
            }
            done
        };
        let submitted = self.submit_untraced(waits, work, signals)?;
        follower.note(submitted.end().value, submitted.is_held(), life);
        Ok(submitted)
    }
}

impl<E: Enqueue> trace::Lane for Lane<E> {
    fn leave(&self) {
        self.followed_by.leave();
    }
}
