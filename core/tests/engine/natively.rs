//! E3: native waits for another process that dies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::script::{Made, Script, Scripted, scripted};
use crate::words::{Of, Word, Words};
use rstest::rstest;
use syncline_core::backend::kit::Counter;
use syncline_core::backend::{Attachment, Flush, Waker};
use syncline_core::internal::{RecoveryMode, WeakTimeline};
use syncline_core::{Error, Timeline, host, info::DeviceId};

/// A driver during whose next call of `ready` the awaited process dies.
///
/// Its queue may be locked when the submission is flushed.
struct Driver {
    dies: Mutex<Option<(WeakTimeline, Arc<Counter>)>>,
    is_locked: Arc<AtomicBool>,
    waits: Arc<Mutex<Option<Waker>>>,
}

impl Script for Driver {
    fn ready(&self) -> bool {
        // The engine has already checked the waits of the submission.
        if let Some((line, counter)) = self.dies.lock().unwrap().take() {
            let dead = Error::work(io::Error::other("the process has died"));
            line.lose(&counter, dead, RecoveryMode::Alone);
        }
        true
    }

    fn flush(&self, _: &mut Vec<Made>, waker: &dyn Fn() -> Waker) -> Flush {
        if self.is_locked.load(Ordering::SeqCst) {
            *self.waits.lock().unwrap() = Some(waker());
            return Flush::Busy;
        }
        Flush::Done
    }
}

/// A process dies after the engine checked a submission's waits and before it noted its signals.
///
/// Its signals fail, also if the submission goes to the driver only after an unlock.
#[rstest]
#[case::driver_queue_is_free(false)]
#[case::driver_queue_is_locked(true)]
fn a_death_fails_signals_of_a_submission_that_is_being_sent(#[case] locked: bool) {
    let (words, device) = (
        Arc::new(Words::default()),
        DeviceId::new::<Of<Scripted<Driver>>>(),
    );
    let exporter = host::Device::new().exportable_port(0).unwrap().1;
    let counter = exporter.counter();
    let line = Timeline::new("from afar", 0, |_| {
        let page = host::Device::new().import_timeline(exporter.export()?);
        let here = Attachment::imported(device, Word(Arc::default())).watched_by(words.clone());
        Ok([page.map_err(|rejected| rejected.error)?, here]
            .into_iter()
            .collect())
    });
    let line = line.unwrap();
    counter.announce(2).unwrap();
    counter.note_pending(2);
    assert!(line.at(2).is_pending().unwrap());
    let is_locked = Arc::new(AtomicBool::new(locked));
    let waits = Arc::default();
    let driver = Driver {
        dies: Mutex::new(Some((line.downgrade(), counter.clone()))),
        is_locked: Arc::clone(&is_locked),
        waits: Arc::clone(&waits),
    };
    let queue = scripted(words.of(device, Arc::default()), driver);
    let shaded = words.timeline(device, "shaded", Arc::default());
    let submitted = queue.submit(&[line.at(2)], |_| Ok(()), &[shaded.signal_at(1)]);
    assert_eq!(submitted.unwrap().is_held(), locked);
    let fails = || {
        let told = shaded.at(1).is_reached().unwrap_err().to_string();
        assert!(told.contains("has died"), "{told}");
    };
    is_locked.store(false, Ordering::SeqCst);
    if let Some(waker) = waits.lock().unwrap().take() {
        fails();
        waker.wake();
    }
    fails();
}
