//! Events for the crate `tracing`, with the feature of that name. Their target is `syncline`.
//!
//! A subscriber is code of the application. So no lock of the engine is held during an event, and a
//! panic of the subscriber ends there.

use std::sync::Arc;

use crate::base::error::{Error, Failure, Object};
use crate::base::run::{Wake, run_contained, wake_all};

/// A queue has accepted a submission, with its number and whether it is held, or has refused it.
pub(crate) fn submitted(queue: &Object, result: Result<(u64, bool), &Error>) {
    run_contained(|| match result {
        Ok((submission, held)) => {
            tracing::trace!(target: "syncline", %queue, submission, held, "submitted");
        }
        Err(error) => tracing::debug!(target: "syncline", %queue, %error, "submission refused"),
    });
}

/// A wait of a thread or a future for points, which `what` names, has ended.
pub(crate) fn waited(what: &dyn std::fmt::Debug, error: Option<&Error>) {
    run_contained(|| match error {
        None => tracing::trace!(target: "syncline", points = ?what, "wait ended"),
        Some(error) => tracing::debug!(target: "syncline", points = ?what, %error, "wait failed"),
    });
}

/// A timeline has failed. The event comes once the thread holds no lock.
pub(crate) fn failed(timeline: &Object, cause: &Failure) {
    struct Failed(Object, Failure);

    impl Wake for Failed {
        fn wake(self: Arc<Self>) {
            let Self(timeline, cause) = &*self;
            run_contained(
                || tracing::warn!(target: "syncline", %timeline, %cause, "timeline failed"),
            );
        }
    }

    wake_all([Arc::new(Failed(timeline.clone(), cause.clone())) as Arc<dyn Wake>]);
}
