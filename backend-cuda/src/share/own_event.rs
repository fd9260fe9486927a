//! Fences with an event of their own, for graphs and across processes.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use syncline_core::backend::NativeMark;
use syncline_core::backend::kit::{Mutex, MutexGuard};
use syncline_core::{Fence, KeptPoint, Result, error::Object};

use crate::device::event::Mark;
use crate::device::open::Device;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;

/// An event that stands for its latest record.
///
/// A wait captures that record, and later records do not affect it.
pub(crate) struct OwnEvent {
    device: Device,
    event: Mark,
    shared_with: SharedWith,
    /// The end of the last record by a queue.
    ///
    /// That record may be held, and then the event does not have it yet.
    last: Mutex<KeptPoint>,
    /// True if a queue, a graph or another process records the event.
    recorded: AtomicBool,
    /// Internal queues that wait for the event's current record, created when needed.
    ///
    /// Each has one wait at a time, so that no wait ends later than its record.
    queues: Mutex<Vec<Queue>>,
}

/// The other users of an own event, besides the queues of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedWith {
    /// Graphs that record it or wait for it at each launch.
    Graphs,
    /// Other processes that wait for it.
    Importers,
    /// Another process that records it.
    Exporter,
}

impl OwnEvent {
    /// Creates an own event. Only its exporter may have recorded `event` already.
    pub(crate) fn new(device: &Device, event: Mark, shared_with: SharedWith) -> Self {
        Self {
            device: device.clone(),
            event,
            shared_with,
            last: Mutex::default(),
            recorded: AtomicBool::new(shared_with == SharedWith::Exporter),
            queues: Mutex::default(),
        }
    }

    /// The own event of `fence`, if it has one.
    #[inline]
    pub(crate) fn of(fence: &Fence) -> Option<Arc<Self>> {
        let mark: Arc<dyn Any + Send + Sync> = fence.native_mark()?;
        mark.downcast().ok()
    }

    /// An own event for graphs, which starts at the current position of `fence`.
    pub(crate) fn for_graphs(fence: &Fence, device: &Device) -> Result<Arc<Self>> {
        let recorded = fence.is_recorded();
        // A place in a capture has no position. A new event is complete, like a fence without a
        // record.
        let position = match fence.native_mark() {
            Some(_) => KeptPoint::default(),
            None => fence.point()?,
        };
        let event = device.plain_events().fresh()?;
        let own = Arc::new(Self::new(device, event, SharedWith::Graphs));
        own.recorded.store(recorded, Ordering::Release);
        if !position.point().is_reached()? {
            let event = own.event.clone();
            let work = move |r: &mut Recorder<'_>| r.bound_stream()?.0.record(&event);
            *own.last() = own.take_position(&position, work)?;
        }
        Ok(own)
    }

    #[inline]
    pub(crate) const fn event(&self) -> &Mark {
        &self.event
    }

    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) const fn shared_with(&self) -> SharedWith {
        self.shared_with
    }

    /// Notes that something records the event.
    pub(crate) fn note_recorded(&self) {
        self.recorded.store(true, Ordering::Release);
    }

    /// The end of the last record by a queue, or an empty point before the first.
    pub(crate) fn last_record(&self) -> KeptPoint {
        self.last().clone()
    }

    fn last(&self) -> MutexGuard<'_, KeptPoint> {
        self.last.lock()
    }

    /// The end of an internal submission that waits only for `after` and runs `work`.
    fn take_position(
        &self,
        after: &KeptPoint,
        work: impl FnOnce(&mut Recorder<'_>) -> Result<()> + Send + 'static,
    ) -> Result<KeptPoint> {
        // Taken out of the list while in use, so that no other position is queued behind this one.
        let mut queues = std::mem::take(&mut *self.queues.lock());
        let idle = queues
            .iter()
            .position(|queue| queue.submissions().position().is_reached().unwrap_or(false));
        let queue = idle.map(|index| queues.swap_remove(index));
        self.queues.lock().append(&mut queues);
        let queue = match queue {
            Some(queue) => queue,
            None => Queue::on_own_stream(&self.device, "positions")?,
        };
        let taken = queue.submissions().submit(&[after.point()], work, &[]);
        let taken = taken.map(|sent| sent.end().keep());
        self.queues.lock().push(queue);
        taken
    }

    /// Records the event by a queue that is not being captured.
    pub(crate) fn record(self: Arc<Self>, queue: &Queue, fence: &Fence) -> Result<()> {
        queue.submissions().record_natively(fence, || {
            let event = self.event.clone();
            let work = move |r: &mut Recorder<'_>| r.bound_stream()?.0.record(&event);
            queue.refuse_capture()?;
            let end = queue.submissions().submit(&[], work, &[])?.end().keep();
            *self.last() = end;
            self.note_recorded();
            Ok(self.clone())
        })?;
        Ok(())
    }
}

impl NativeMark for OwnEvent {
    /// Waits for the event's current record, after the last record by a queue.
    fn point(&self, fence: &Object) -> Result<KeptPoint> {
        if self.is_complete(fence)? {
            return Ok(KeptPoint::default());
        }
        let last = self.last().clone();
        if self.shared_with == SharedWith::Importers && !last.point().is_pending()? {
            // No graph records this event, so this is the latest record. The event does not have it
            // yet.
            return Ok(last);
        }
        let event = self.event.clone();
        // The wait captures the current record, which later records do not affect.
        let work = move |r: &mut Recorder<'_>| r.bound_stream()?.0.wait(&event);
        self.take_position(&last, work)
    }

    fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }

    fn is_complete(&self, _fence: &Object) -> Result<bool> {
        // Only a held record is unknown to the event. Check only that the record is pending. The
        // record's submission is reached shortly after the event. If the fence also waited for
        // that, a stream that waits for the event could finish before the fence is complete.
        let last = self.last().clone();
        if !last.point().is_pending()? {
            return Ok(false);
        }
        let _mode = self.device.context().allow_during_capture();
        self.event.is_done_now()
    }
}
