//! A driver that is not ready for a while, in a process that cannot start a thread to try again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::words::{Word, Words};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncline_core::backend::{Batch, Enqueue, Flush, Keep, NoStamp, SubmissionQueue, Waker};
use syncline_core::{DeviceId, Object, Result, WaitMode};

/// A lent stream that is not ready for as many calls as the number that the test sets.
struct Lent(Arc<AtomicU64>);

impl Enqueue for Lent {
    type Recorder<'a> = ();
    type Prepared = ();
    type Stamp = NoStamp;

    fn order_domain(&self) -> Option<u64> {
        Some(1)
    }

    fn ready(&self) -> bool {
        let busy = |busy: u64| busy.checked_sub(1);
        let taken = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, busy);
        taken.is_err()
    }

    fn record<W>(&self, batch: &Batch<'_>, _: &mut Keep, work: W) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        work(&mut ())?;
        let word = batch.end.port::<Word>().unwrap();
        word.0.store(batch.end.value(), Ordering::SeqCst);
        Ok(())
    }

    fn flush(&self, (): (), _: &dyn Fn() -> Waker) -> Flush<()> {
        Flush::Done
    }
}

#[test]
fn a_waiting_thread_tries_the_driver_again() {
    if crate::runs_apart() {
        return;
    }
    let (words, device, busy) = (Arc::new(Words::default()), DeviceId::new(), Arc::default());
    let own = words.timeline(device, "position", Arc::default());
    let driver = Lent(Arc::clone(&busy));
    let queue = SubmissionQueue::new(Object::new("queue", "lent"), device, own, driver);
    // Address space for smaller objects, but not for another stack of 2 MiB.
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let used = pages * rustix::param::page_size() as u64;
    let before = getrlimit(Resource::As);
    let limit = Rlimit {
        current: Some(used + (1 << 20)),
        maximum: before.maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
    let refused = std::thread::Builder::new().spawn(|| ()).is_err();
    let ended = [WaitMode::Block, WaitMode::Spin, WaitMode::Adaptive].map(|mode| {
        busy.store(3, Ordering::SeqCst);
        let sent = queue.submit(&[], |()| Ok(()), &[]).unwrap();
        let held = sent.is_held();
        let waited = sent.end().wait_with(mode, Duration::from_secs(5));
        (held, waited.is_ok())
    });
    setrlimit(Resource::As, before).unwrap();
    assert!(refused, "the system still starts threads");
    assert_eq!(ended, [(true, true); 3]);
}
