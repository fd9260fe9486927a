//! What a backend has in use for finished submissions alone is dropped when the queue is idle.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::words::{Of, Words, queue};
use syncline_core::backend::kit::InUse;
use syncline_core::backend::{
    Batch, Enqueue, Flush, Keep, NoStamp, SubmissionQueue, Unused, Waker,
};
use syncline_core::{Result, info::DeviceId};

const LONG: Duration = Duration::from_secs(20);

type Queue = Arc<SubmissionQueue<Using>>;

/// An object of the driver. Its drop asks the queue on another thread, and tells if that answers.
struct Used {
    queue: Weak<SubmissionQueue<Using>>,
    dropped: Sender<bool>,
}

impl Drop for Used {
    fn drop(&mut self) {
        let queue = self.queue.clone();
        let (answer, answered) = channel();
        std::thread::spawn(move || answer.send(queue.upgrade().map(|queue| queue.held())));
        let is_unlocked = answered.recv_timeout(LONG).is_ok();
        self.dropped.send(is_unlocked).unwrap();
    }
}

/// A driver whose submissions use an object each. The test finishes them.
struct Using {
    home: Of<Self>,
    objects: Mutex<Vec<Arc<Used>>>,
}

impl Enqueue for Using {
    type Device = Of<Self>;
    type Recorder<'a> = ();
    type Ready<'a> = ();
    type State = InUse<Used>;
    type Stamp = NoStamp;

    fn device(&self) -> &Of<Self> {
        &self.home
    }

    fn order_domain(&self) -> Option<u64> {
        Some(1)
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        used: &mut InUse<Used>,
        batch: &Batch<'_, Self>,
        _: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        let objects = std::mem::take(&mut *self.objects.lock().unwrap());
        used.add(&objects, batch.end.value(), batch.finished());
        work(&mut ())
    }

    fn flush(&self, _: &mut InUse<Used>, _: &dyn Fn() -> Waker) -> Flush {
        Flush::Done
    }

    fn take_unused(&self, used: &mut InUse<Used>, reached: u64, unused: &mut Unused) {
        used.take_unused(reached, unused);
    }
}

fn setup() -> (Arc<Words>, Queue, Arc<AtomicU64>) {
    let (words, word, device) = (
        Arc::new(Words::default()),
        Arc::new(AtomicU64::new(0)),
        DeviceId::new::<Of<Using>>(),
    );
    let driver = Using {
        home: words.of(device, word.clone()),
        objects: Mutex::default(),
    };
    (words, queue("queue", driver), word)
}

/// Submits with `count` objects in use.
fn submit(queue: &Queue, count: usize) -> Receiver<bool> {
    let (dropped, receiver) = channel();
    let object = || {
        Arc::new(Used {
            queue: Arc::downgrade(queue),
            dropped: dropped.clone(),
        })
    };
    *queue.driver().objects.lock().unwrap() = (0..count).map(|_| object()).collect();
    queue.submit(&[], |()| Ok(()), &[]).unwrap();
    receiver
}

#[test]
fn an_idle_queue_drops_what_finished_submissions_used() {
    let (_words, queue, word) = setup();
    // More than the engine takes at a time.
    let first = submit(&queue, 20);
    let second = submit(&queue, 1);
    word.store(1, Ordering::SeqCst);
    let waited = queue.idle(Duration::ZERO);
    assert!(waited.is_err(), "the second submission has not finished");
    assert!(first.try_recv().is_err(), "it is not idle");
    word.store(2, Ordering::SeqCst);
    queue.idle(LONG).unwrap();
    for (objects, count) in [(first, 20), (second, 1)] {
        let dropped: Vec<_> = objects.try_iter().collect();
        assert_eq!(dropped, vec![true; count], "none with the queue's lock");
    }
}
