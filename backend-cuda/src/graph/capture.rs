//! Fences in a graph that is being captured: places in the graph, and edges from these places.

use std::any::Any;
use std::sync::{Arc, Weak};

use syncline_core::backend::NativeMark;
use syncline_core::{Error, Fence, KeptPoint, Result, error::Object};

use crate::device::event::Mark;
use crate::device::stream::{Capture, Stream};
use crate::device::stream_lock::{StreamLockGuard, lock_both};
use crate::graph::launch::FOR_PROCESSES;
use crate::queue::queue_stream::QueueStream;
use crate::queue::submission::Queue;
use crate::share::own_event::{OwnEvent, SharedWith};

/// The mark of a fence that was recorded in a capture.
///
/// Its event belongs to the graph. A query of the event would invalidate the capture, so it is
/// never queried.
pub(crate) struct Captured {
    mark: Mark,
    /// The driver's number of the capture.
    capture: u64,
    /// The queue that recorded the fence. Its stream is captured as long as the capture lasts.
    queue_stream: Weak<QueueStream>,
    /// The same queue, if it keeps the stream alive.
    ///
    /// The queue may be dropped before the capture ends. A stream of the application without an
    /// owner may be gone with the queue.
    _kept: Option<Arc<QueueStream>>,
}

impl NativeMark for Captured {
    fn point(&self, fence: &Object) -> Result<KeptPoint> {
        Err(Error::captured(fence))
    }
}

impl Captured {
    /// True while the graph is still being captured.
    ///
    /// The caller has locked the stream that recorded the fence.
    fn is_open(&self, recorded_on: &Stream, locked: &StreamLockGuard<'_>) -> Result<bool> {
        let now = recorded_on.capture_while_locked(locked)?;
        Ok(matches!(now, Capture::Active { id, .. } if id == self.capture))
    }
}

impl Queue {
    /// Records `fence` in the graph, or records the event that the fence shares.
    ///
    /// Returns false if neither applies. Then the engine records the fence.
    #[inline]
    pub(crate) fn record_captured(&self, fence: &Fence) -> Result<bool> {
        // The usual case: the application never had the stream, and the fence is in no graph.
        if self.queue_stream().stream().is_untouched() && fence.native_mark().is_none() {
            return Ok(false);
        }
        self.record_slow(fence)
    }

    #[cold]
    fn record_slow(&self, fence: &Fence) -> Result<bool> {
        let queue_stream = self.queue_stream();
        let own = OwnEvent::of(fence);
        // Locked from the query to the record, so that no other thread ends the capture in between.
        // While another thread holds the lock, this becomes an ordinary submission.
        let locked = queue_stream.stream().stream_lock().try_lock_reentrant();
        let capture = match &locked {
            Some(locked) => queue_stream.stream().capture_while_locked(locked)?,
            None => Capture::None,
        };
        match (capture, own) {
            (Capture::None, own) => {
                // A submission locks the stream itself, and queries again.
                drop(locked);
                let Some(own) = own else { return Ok(false) };
                own.record(self, fence)?;
            }
            (Capture::Active { id, .. }, None) => {
                let make = || {
                    // Unlocked before the fence drops its previous mark, which may belong to the
                    // application.
                    let _locked = locked;
                    let _bound = queue_stream.device().context().bind()?;
                    Ok(Arc::new(Captured {
                        mark: queue_stream
                            .stream()
                            .record_new(queue_stream.device().plain_events())?,
                        capture: id,
                        queue_stream: Arc::downgrade(queue_stream),
                        _kept: queue_stream.keeps_stream().then(|| queue_stream.clone()),
                    }))
                };
                self.submissions().record_natively(fence, make)?;
            }
            (Capture::Active { .. }, Some(own)) => {
                let reason = match own.shared_with() {
                    SharedWith::Graphs => {
                        "graphs record or wait for this fence at each launch: use record_external, or another fence"
                    }
                    SharedWith::Importers | SharedWith::Exporter => FOR_PROCESSES,
                };
                let refuse = || Err(self.capturing(&format!("record {}", fence.object()), reason));
                // First check whether the fence may be recorded here at all.
                self.submissions()
                    .record_natively::<OwnEvent>(fence, refuse)?;
            }
            (Capture::Unusable(why), _) => {
                return Err(self.capturing(&format!("record {}", fence.object()), why));
            }
        }
        Ok(true)
    }

    /// Waits for `fence` in the graph.
    ///
    /// Returns false if neither the stream nor the fence is part of a capture. Then the engine
    /// makes the wait.
    pub(crate) fn wait_captured(&self, fence: &Fence) -> Result<bool> {
        let mark = fence.native_mark();
        let captured = mark
            .as_deref()
            .and_then(|mark| (mark as &dyn Any).downcast_ref::<Captured>());
        if captured.is_some() && self.queue_stream().stream().is_legacy() {
            // The driver would invalidate the capture.
            return Err(self.capturing(
                &format!("wait for {}", fence.object()),
                "the legacy default stream cannot become part of a capture",
            ));
        }
        if let Some(captured) = captured {
            return self.join(fence, captured).map(|()| true);
        }
        let asked = || format!("wait for {}", fence.object());
        match self.queue_stream().stream().capture()? {
            Capture::None => Ok(false),
            Capture::Unusable(why) => Err(self.capturing(&asked(), why)),
            Capture::Active { .. } if fence.is_recorded() => {
                let own = OwnEvent::of(fence);
                let reason = match own.is_some_and(|own| own.shared_with() != SharedWith::Graphs) {
                    true => FOR_PROCESSES,
                    false => {
                        "it was not recorded in this capture; wait for it before, or with wait_external"
                    }
                };
                Err(self.capturing(&asked(), reason))
            }
            // A fence never recorded adds nothing (F1).
            Capture::Active { .. } => Ok(true),
        }
    }

    /// Adds an edge of the graph. If the stream is not being captured yet, it joins the capture.
    fn join(&self, fence: &Fence, captured: &Captured) -> Result<()> {
        let ended = || Error::capture_ended(fence.object());
        // Without its queue the stream may be gone too.
        let there = captured.queue_stream.upgrade().ok_or_else(ended)?;
        let queue_stream = self.queue_stream();
        // Both streams are locked until the wait is made. So no submission is being recorded there,
        // and no other thread ends the capture.
        let (locked, locked_there) = lock_both(
            queue_stream.stream().stream_lock(),
            there.stream().stream_lock(),
        );
        if !captured.is_open(there.stream(), &locked_there)? {
            return Err(ended());
        }
        let asked = || format!("wait for {}", fence.object());
        match queue_stream.stream().capture_while_locked(&locked)? {
            Capture::Active { id, .. } if id != captured.capture => {
                // The driver would invalidate both captures.
                Err(self.capturing(&asked(), "the fence belongs to another capture"))
            }
            Capture::Unusable(why) => Err(self.capturing(&asked(), why)),
            Capture::Active { .. } | Capture::None => {
                let _bound = queue_stream.device().context().bind()?;
                queue_stream.stream().lend();
                queue_stream.stream().wait(&captured.mark)
            }
        }
    }

    pub(crate) fn capturing(&self, asked: &str, reason: &str) -> Error {
        Error::capturing(self.object(), asked, reason)
    }
}
