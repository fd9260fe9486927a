//! What a fence holds that has an event of its own, which is recorded again and again: for graphs, or across processes.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use syncline_core::backend::{Mutex, MutexGuard, NativeMark};
use syncline_core::{Fence, KeptPoint, Object, Result};

use crate::device::event::Mark;
use crate::device::open::Device;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;

/// An event that stands for its latest record. Whoever waits takes its position at that time, which no later record moves.
pub(crate) struct OwnEvent {
    device: Device,
    event: Mark,
    shared_with: SharedWith,
    /// The last record by a queue, which may be held: the event knows nothing of it until then.
    last: Mutex<KeptPoint>,
    /// Something records it: a queue has, or a graph does, or another process.
    recorded: AtomicBool,
    /// Where positions are taken of the event, as it is at the time; made when needed. Each waits for one position
    /// at a time, so that no position is reached later than the record that it stands for.
    queues: Mutex<Vec<Queue>>,
}

/// Who has to do with such an event, besides the queues of its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedWith {
    /// Graphs, which record it at each launch, or wait for it.
    Graphs,
    /// Other processes, which wait for it.
    Importers,
    /// Another process, which records it.
    Exporter,
}

impl OwnEvent {
    /// Of an event that nobody has recorded yet, but perhaps for its exporter.
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

    /// What `fence` holds, if it is one of these.
    #[inline]
    pub(crate) fn of(fence: &Fence) -> Option<Arc<Self>> {
        let mark: Arc<dyn Any + Send + Sync> = fence.native_mark()?;
        mark.downcast().ok()
    }

    /// One for graphs, of the position that `fence` holds now.
    pub(crate) fn for_graphs(fence: &Fence, device: &Device) -> Result<Arc<Self>> {
        let recorded = fence.is_recorded();
        // A place in a capture is none; a fresh event is complete, as is a fence never recorded.
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

    /// Somebody records the event, or will.
    pub(crate) fn note_recorded(&self) {
        self.recorded.store(true, Ordering::Release);
    }

    /// The end of the last record by a queue; empty before the first.
    pub(crate) fn last_record(&self) -> KeptPoint {
        self.last().clone()
    }

    fn last(&self) -> MutexGuard<'_, KeptPoint> {
        self.last.lock()
    }

    /// The end of a submission that comes behind `after` and nothing else.
    fn take_position(
        &self,
        after: &KeptPoint,
        work: impl FnOnce(&mut Recorder<'_>) -> Result<()> + Send + 'static,
    ) -> Result<KeptPoint> {
        // Out of the list while it is in use: nobody else's position gets behind this one.
        let mut queues = std::mem::take(&mut *self.queues.lock());
        let idle = queues
            .iter()
            .position(|queue| queue.engine().position().is_reached().unwrap_or(false));
        let queue = idle.map(|index| queues.swap_remove(index));
        self.queues.lock().append(&mut queues);
        let queue = match queue {
            Some(queue) => queue,
            None => Queue::on_own_stream(&self.device, "positions")?,
        };
        let taken = queue.engine().submit(&[after.point()], work, &[]);
        let taken = taken.map(|sent| sent.end().keep());
        self.queues.lock().push(queue);
        taken
    }

    /// A record by a queue that is not being captured.
    pub(crate) fn record(self: Arc<Self>, queue: &Queue, fence: &Fence) -> Result<()> {
        queue.engine().record_natively(fence, || {
            let event = self.event.clone();
            let work = move |r: &mut Recorder<'_>| r.bound_stream()?.0.record(&event);
            let end = queue.submit_uncaptured(&[], work, &[])?.end().keep();
            *self.last() = end;
            self.note_recorded();
            Ok(self.clone())
        })?;
        Ok(())
    }
}

impl NativeMark for OwnEvent {
    /// The event as the driver has it now, behind what a queue recorded last.
    fn point(&self, fence: &Object) -> Result<KeptPoint> {
        if self.is_complete(fence)? {
            return Ok(KeptPoint::default());
        }
        let last = self.last().clone();
        if self.shared_with == SharedWith::Importers && !last.point().is_pending()? {
            // No graph comes between: it is the latest record there is, and the event has yet to hear of it.
            return Ok(last);
        }
        let event = self.event.clone();
        // The wait captures the event as it is: a later record does not move it.
        let work = move |r: &mut Recorder<'_>| r.bound_stream()?.0.wait(&event);
        self.take_position(&last, work)
    }

    fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }

    fn is_complete(&self, _fence: &Object) -> Result<bool> {
        // Only a held record is unknown to the event. Asked for more, a stream that waits for the event could
        // be through before the fence is complete: the submission of a record ends a moment after the event.
        let last = self.last().clone();
        if !last.point().is_pending()? {
            return Ok(false);
        }
        let _mode = self.device.context().allow_during_capture();
        self.event.is_done_now()
    }
}
