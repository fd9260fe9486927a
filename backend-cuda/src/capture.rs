//! Fences inside a graph that is being captured: places in the graph, and edges from them.

use std::any::Any;
use std::sync::{Arc, Weak};

use syncline_core::backend::{NativeMark, Queue as _};
use syncline_core::{Error, Fence, KeptPoint, Object, Result};

use crate::event::Mark;
use crate::graph::FOR_PROCESSES;
use crate::own_event::{KnownTo, OwnEvent};
use crate::queue::{Line, Queue};
use crate::stream::Capture;

/// What a fence holds that was recorded into a capture. Its event belongs to the graph: to query it would
/// invalidate the capture, so nobody ever does.
pub(crate) struct Captured {
    mark: Mark,
    /// The driver's number of the capture.
    capture: u64,
    /// Where it was recorded. That stream is captured for as long as the capture lasts.
    line: Weak<Line>,
    /// The same, where that keeps the stream alive too: the queue may go before the capture ends. An application's stream
    /// that has no owner here may be gone with the queue.
    _kept: Option<Arc<Line>>,
}

impl NativeMark for Captured {
    fn point(&self, fence: &Object) -> Result<KeptPoint> {
        Err(Error::Captured {
            fence: fence.clone(),
        })
    }
}

impl Captured {
    /// True while the graph is still being captured. The stream is asked, which harms no capture.
    fn is_open(&self) -> Result<bool> {
        let Some(line) = self.line.upgrade() else {
            // The queue is gone, and its stream may be too: nobody can say.
            return Ok(false);
        };
        let _turn = line.stream.turn().try_enter_again();
        let now = line.stream.ask_for_capture()?;
        Ok(matches!(now, Capture::Active { id, .. } if id == self.capture))
    }
}

impl Queue {
    /// Records as the state of the stream demands: see [`Queue::record`](syncline_core::backend::Queue::record).
    #[inline]
    pub(crate) fn record_anywhere(&self, fence: &Fence) -> Result<()> {
        // Nobody else has had the stream, and no graph the fence.
        if self.line().stream.is_untouched() && fence.native_mark().is_none() {
            return self.lane().record(fence);
        }
        self.record_with_care(fence)
    }

    #[cold]
    fn record_with_care(&self, fence: &Fence) -> Result<()> {
        let line = self.line();
        let own = OwnEvent::of(fence);
        match (line.stream.capture()?, own) {
            (Capture::None, None) => self.lane().record(fence),
            (Capture::None, Some(own)) => own.record(self, fence),
            (Capture::Active { id, .. }, None) => {
                let make = || {
                    let _bound = line.device.context().bind()?;
                    Ok(Arc::new(Captured {
                        mark: line.device.plain_events().record(&line.stream)?,
                        capture: id,
                        line: Arc::downgrade(line),
                        _kept: line.keeps_stream().then(|| line.clone()),
                    }))
                };
                self.lane().record_natively(fence, make).map(|_| ())
            }
            (Capture::Active { .. }, Some(own)) => {
                let reason = match own.known() {
                    KnownTo::Graphs => {
                        "graphs record or wait for this fence at each launch: use record_external, or another fence"
                    }
                    KnownTo::Importers | KnownTo::Exporter => FOR_PROCESSES,
                };
                let refuse = || Err(self.capturing(&format!("record {}", fence.object()), reason));
                // Whether it may be recorded here at all comes first.
                self.lane()
                    .record_natively::<OwnEvent>(fence, refuse)
                    .map(|_| ())
            }
            (Capture::Unusable(why), _) => {
                Err(self.capturing(&format!("record {}", fence.object()), why))
            }
        }
    }

    /// Waits as the state of the stream demands: see [`Queue::wait`](syncline_core::backend::Queue::wait).
    pub(crate) fn wait_anywhere(&self, fence: &Fence) -> Result<()> {
        let mark = fence.native_mark();
        let captured = mark
            .as_deref()
            .and_then(|mark| (mark as &dyn Any).downcast_ref::<Captured>());
        if captured.is_some() && self.line().stream.is_legacy() {
            // The driver would invalidate the capture.
            return Err(self.capturing(
                &format!("wait for {}", fence.object()),
                "the legacy default stream cannot become part of a capture",
            ));
        }
        let here = self.line().stream.capture()?;
        let asked = || format!("wait for {}", fence.object());
        match (captured, here) {
            (Some(captured), here) => self.join(fence, captured, here),
            (None, Capture::None) => {
                let point = fence.point()?;
                if point.is_empty() {
                    return Ok(());
                }
                self.submit(&[point.point()], |_| Ok(()), &[]).map(|_| ())
            }
            (None, Capture::Unusable(why)) => Err(self.capturing(&asked(), why)),
            (None, Capture::Active { .. }) if fence.is_recorded() => {
                let own = OwnEvent::of(fence);
                let reason = match own.is_some_and(|own| own.known() != KnownTo::Graphs) {
                    true => FOR_PROCESSES,
                    false => {
                        "it was not recorded in this capture; wait for it before, or with wait_external"
                    }
                };
                Err(self.capturing(&asked(), reason))
            }
            (None, Capture::Active { .. }) => Ok(()),
        }
    }

    /// An edge of the graph. A stream that is not captured yet becomes part of the capture by it.
    fn join(&self, fence: &Fence, captured: &Captured, here: Capture) -> Result<()> {
        if !captured.is_open()? {
            return Err(Error::CaptureEnded {
                fence: fence.object().clone(),
            });
        }
        let asked = || format!("wait for {}", fence.object());
        match here {
            Capture::Active { id, .. } if id != captured.capture => {
                // The driver would invalidate both.
                Err(self.capturing(&asked(), "the fence belongs to another capture"))
            }
            Capture::Unusable(why) => Err(self.capturing(&asked(), why)),
            Capture::Active { .. } | Capture::None => {
                let line = self.line();
                // So that no submission is in the middle of its record.
                let _turn = line.stream.turn().enter();
                let _bound = line.device.context().bind()?;
                line.stream.lend();
                line.stream.wait(&captured.mark)
            }
        }
    }

    pub(crate) fn capturing(&self, asked: &str, reason: &str) -> Error {
        Error::Capturing {
            object: self.object().clone(),
            asked: asked.into(),
            reason: reason.into(),
        }
    }
}
