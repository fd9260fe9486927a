//! X7: what safe code of a backend's author says wrongly stays with the author's own device.
//!
//! What does not compile is in `interop/compile-tests/tests/compile/types/authors/`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rstest::rstest;
use syncline_core::backend::{
    Attachment, Batch, ByEngine, Completion, Device as _, EngineQueue, Home, Keep, Port, Watch,
    Watcher,
};
use syncline_core::{Error, Result, Timeline, error::Object, host, info::DeviceId};

use crate::script::{Made, Script, Scripted, scripted};
use crate::words::{Of, Word, Words};

/// A port that makes more visible than the home has. [`Word`] is that of another backend.
struct Boasting;

impl Port for Boasting {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
    fn visible(&self, reached: u64) -> Result<u64> {
        Ok(reached + 1000)
    }
}

/// A driver that takes everything, and keeps the completions of the signals.
struct Taking(Arc<Mutex<Vec<Option<Completion>>>>);

impl Script for Taking {
    fn record(
        &self,
        batch: &Batch<'_, Scripted<Self>>,
        _: &mut Keep,
        _: &mut Vec<Made>,
        work: &mut dyn FnMut(&mut u64) -> Result<()>,
    ) -> Result<()> {
        work(&mut 0)?;
        let signals = batch.signals.iter().map(|signal| signal.completion());
        self.0.lock().unwrap().extend(signals);
        Ok(())
    }
}

/// A queue gets ports by the id of its device, so its device may not state another backend's id.
#[rstest]
#[case::a_port_of_the_other_device(true)]
#[case::a_port_of_its_own_with_that_id(false)]
fn a_device_that_states_the_id_of_another_backend_gets_no_queue(#[case] theirs: bool) {
    let device = host::Device::new();
    let id = device.id();
    let home = Of::new(id, move || match theirs {
        true => Home::port(&device, 0).unwrap(),
        false => Attachment::new(id, 0, Boasting),
    });
    let driver = Scripted {
        home,
        script: Taking(Arc::default()),
    };
    let refused = EngineQueue::new(Object::new("queue", "spy"), driver).map(|_| ());
    let Err(Error::Unsupported { reason, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("of another backend"), "{reason}");
}

/// The home of one backend, and a port of the other, which has imported its counter.
fn shared(ours: DeviceId) -> (Timeline, Arc<AtomicU64>) {
    let word = Arc::<AtomicU64>::default();
    let ports = [
        Attachment::new(DeviceId::new::<()>(), 0, Word(word.clone())).signalled_elsewhere(true),
        Attachment::imported(ours, Boasting),
    ];
    let line = Timeline::new("shared", 0, |_| Ok(ports.into_iter().collect()));
    (line.unwrap(), word)
}

#[test]
fn no_port_makes_more_visible_than_the_home_shows() {
    let (line, word) = shared(DeviceId::new::<()>());
    word.store(3, Ordering::SeqCst);
    assert_eq!(line.value().unwrap(), 3);
    assert!(!line.at(4).is_reached().unwrap());
}

#[test]
fn a_backend_completes_no_signal_of_a_timeline_with_its_home_elsewhere() {
    let ours = DeviceId::new::<Of<Scripted<Taking>>>();
    let (line, _) = shared(ours);
    let own = Timeline::new("own", 0, |_| {
        Ok([Attachment::new(ours, 0, Boasting)].into_iter().collect())
    });
    let own = own.unwrap();
    let signals = Arc::<Mutex<Vec<Option<Completion>>>>::default();
    let home = Of::new(ours, move || Attachment::new(ours, 0, Boasting));
    let queue = scripted(home, Taking(signals.clone()));
    let both = [line.signal_at(1), own.signal_at(1)];
    queue.submit(&[], |_| Ok(()), &both).unwrap();
    let made: Vec<_> = std::mem::take(&mut *signals.lock().unwrap());
    assert_eq!(made.iter().filter(|made| made.is_some()).count(), 1);
    made.into_iter().flatten().for_each(Completion::complete);
    assert!(own.at(1).is_reached().unwrap());
    assert!(!line.at(1).is_reached().unwrap());
}

/// A watch that says that its device is lost.
#[derive(Default)]
struct Alarming(Watcher, AtomicBool);

impl Watch for Alarming {
    fn watcher(&self) -> &Watcher {
        self.1.store(true, Ordering::SeqCst);
        &self.0
    }
    fn watch(&self, _: &[(&dyn Port, u64)], _: Instant) -> Result<()> {
        Ok(())
    }
    fn nudge(&self) {}
}

/// What a watch says of its device may fail timelines and make signals, so nothing replaces it.
#[test]
fn the_watch_of_a_port_is_not_replaced() {
    let (words, word) = (Arc::new(Words::default()), Arc::<AtomicU64>::default());
    let alarming = Arc::new(Alarming::default());
    let port = words
        .port(DeviceId::new::<()>(), word.clone())
        .watched_by(alarming.clone());
    let line = Timeline::new("line", 0, |_| Ok([port].into_iter().collect())).unwrap();
    let mut claim = line.claim(1).unwrap();
    claim.submitted().unwrap();
    word.store(1, Ordering::SeqCst);
    line.at(1).wait(Duration::from_secs(20)).unwrap();
    assert!(!alarming.1.load(Ordering::SeqCst));
}
