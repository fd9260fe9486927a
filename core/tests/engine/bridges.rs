//! Bridges: which values they carry between their sides, in which order, and how they close.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rstest::rstest;
use syncline_core::backend::{Attachment, ByEngine, Device as _, Port, Queue as _, Watch, Watcher};
use syncline_core::host::{Device, Recorder};
use syncline_core::internal::Page;
use syncline_core::wait::Signaller;
use syncline_core::{Claim, Error, QueueKind, Result, Timeline, info::DeviceId};

use crate::words::Words;

const LONG: Duration = Duration::from_secs(20);

fn nothing(_: &mut Recorder<'_>) -> Result<()> {
    Ok(())
}

/// The sides of a bridge over plain host timelines.
fn bridged<const N: usize>() -> [Timeline; N] {
    let ports = (0..N).map(|_| Device::new().port(0));
    let made = Timeline::bridged("bridge", 0, ports).unwrap();
    made.try_into().unwrap()
}

/// A bridge of a side whose driver writes `word` by itself and a side of the host.
fn with_a_driver(word: &Arc<AtomicU64>) -> [Timeline; 2] {
    let words = Arc::new(Words::default());
    let driven = words.port(DeviceId::new::<()>(), word.clone());
    let made = Timeline::bridged("bridge", 0, [Ok(driven), Device::new().port(0)]).unwrap();
    made.try_into().unwrap()
}

fn ends(ended: &Result<()>) {
    assert!(
        matches!(ended, Err(Error::Cancelled { .. } | Error::Failed { .. })),
        "{ended:?}"
    );
}

/// The blockers of one side name what signals another side.
#[test]
fn the_blockers_of_a_side_name_the_signaller_of_another() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let gate = device.timeline("gate").unwrap();
    let by = |there: &Timeline| {
        let told = there.at(1).blockers();
        let steps = told.steps().iter();
        let all: Vec<_> = steps.map(|step| step.by.clone()).collect();
        assert_eq!(told.steps()[0].timeline, *there.object(), "{told}");
        all
    };
    let [driven, there] = with_a_driver(&Arc::default());
    let claim = driven.claim(1).unwrap();
    assert_eq!(by(&there), [Signaller::Application]);
    drop(claim);
    assert_eq!(by(&there), [Signaller::None]);
    let [here, there] = bridged();
    queue
        .submit(&[gate.at(1)], nothing, &[here.signal_at(1)])
        .unwrap();
    let held = Signaller::Held {
        queue: queue.object().clone(),
        submission: 1,
    };
    assert_eq!(by(&there), [held, Signaller::None]);
    gate.signal(1).unwrap();
    there.at(1).wait(LONG).unwrap();
}

/// A process that is known to signal is named, on a timeline of its own and across a bridge.
#[test]
fn blockers_name_the_process_that_signals() {
    let page = || {
        let (_, exporter) = Device::new().exportable_port(0).unwrap();
        let page = Device::new().import_timeline(exporter.export().unwrap());
        Ok(page.unwrap().signalled_by_process(7))
    };
    let alone = Timeline::new("line", 0, |_| Ok([page()?].into_iter().collect())).unwrap();
    let sides = Timeline::bridged("bridge", 0, [page(), Device::new().port(0)]).unwrap();
    for line in sides.iter().chain([&alone]) {
        let told = line.at(1).blockers();
        let [step] = told.steps() else {
            panic!("{told}");
        };
        assert_eq!(step.by, Signaller::Process { id: 7 });
        let text = "is to be signalled to 1 by process 7";
        assert!(told.to_string().ends_with(text), "{told}");
    }
}

/// A claim of the application is withdrawn after the last handle was dropped.
#[rstest]
#[case::without_an_own_wait(0)]
#[case::behind_an_own_wait(1)]
fn a_claim_that_is_dropped_last_ends_all_sides(#[case] own_wait: u64) {
    let [here, there] = with_a_driver(&Arc::default());
    let claim = here.claim_after(2, own_wait).unwrap();
    let (near, far) = (here.at(2).keep(), there.at(2).keep());
    drop((here, there));
    assert!(!far.point().is_reached().unwrap());
    drop(claim);
    ends(&near.point().wait(LONG));
    ends(&far.point().wait(LONG));
}

/// The last handle is dropped while a signal is pending.
///
/// The signal still reaches all sides, and higher values end.
#[test]
fn a_pending_signal_comes_after_the_last_handle() {
    let word = Arc::new(AtomicU64::new(0));
    let [here, there] = with_a_driver(&word);
    let mut claim = here.claim(2).unwrap();
    claim.submitted().unwrap();
    let (last, beyond) = (there.at(2).keep(), there.at(3).keep());
    drop((here, there, claim));
    assert!(!last.point().is_reached().unwrap());
    ends(&beyond.point().wait(LONG));
    word.store(2, Ordering::SeqCst);
    last.point().wait(LONG).unwrap();
}

type Event = Box<dyn FnOnce() + Send>;

/// A counter that its driver writes, and an event that happens once during a host signal.
struct Counter {
    word: Arc<AtomicU64>,
    meanwhile: Arc<Mutex<Option<Event>>>,
}

impl Port for Counter {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.word.load(Ordering::SeqCst)))
    }
    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.word.store(value, Ordering::SeqCst);
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(happens) = meanwhile {
            happens();
        }
        Ok(())
    }
}

/// A watch that does not return until `looks` is set.
#[derive(Default)]
struct Blind {
    watcher: Watcher,
    state: Mutex<Sight>,
    changed: Condvar,
}

#[derive(Default)]
struct Sight {
    begun: bool,
    looks: bool,
}

impl Watch for Blind {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }
    fn watch(&self, _: &[(&dyn Port, u64)], _: Instant) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.begun = true;
        self.changed.notify_all();
        let looks = self.changed.wait_while(state, |state| !state.looks);
        drop(looks.unwrap());
        Ok(())
    }
    fn nudge(&self) {}
}

/// Two sides over counters that only the test's thread reads.
///
/// A signal of 3 on the first side is pending with its driver.
struct Unwatched {
    words: [Arc<AtomicU64>; 2],
    sides: [Timeline; 2],
    /// Happens once, during a host signal on the second side.
    meanwhile: Arc<Mutex<Option<Event>>>,
    watch: Arc<Blind>,
    _claim: Claim,
}

impl Unwatched {
    fn new() -> Self {
        let words: [Arc<AtomicU64>; 2] = Default::default();
        let meanwhile = Arc::default();
        let watch = Arc::new(Blind::default());
        let side = |word: &Arc<AtomicU64>, meanwhile| {
            let word = word.clone();
            Attachment::new(DeviceId::new::<()>(), 0, Counter { word, meanwhile })
        };
        let made = [
            Ok(side(&words[0], Arc::default()).watched_by(watch.clone())),
            Ok(side(&words[1], Arc::clone(&meanwhile))),
        ];
        let made = Timeline::bridged("bridge", 0, made).unwrap();
        let sides: [Timeline; 2] = made.try_into().unwrap();
        let mut claim = sides[0].claim(3).unwrap();
        claim.submitted().unwrap();
        let state = watch.state.lock().unwrap();
        // The watching thread is in `watch` from here on and reads nothing.
        let begun = watch
            .changed
            .wait_timeout_while(state, LONG, |state| !state.begun);
        assert!(begun.unwrap().0.begun, "the device is not watched");
        Self {
            words,
            sides,
            meanwhile,
            watch,
            _claim: claim,
        }
    }
}

impl Drop for Unwatched {
    fn drop(&mut self) {
        self.watch.state.lock().unwrap().looks = true;
        self.watch.changed.notify_all();
    }
}

/// Checks that both sides failed because `value` came to a side that had reached `stood`.
fn both_failed(sides: &[Timeline; 2], value: u64, stood: u64) {
    for side in sides {
        match side.at(6).wait(LONG) {
            Err(Error::Failed { cause, .. }) => assert!(
                matches!(
                    *cause,
                    Error::SignalNotAboveReached { asked, reached, .. }
                        if (asked, reached) == (value, stood)
                ),
                "{cause}"
            ),
            other => panic!("{other:?}"),
        }
    }
}

/// One side is signalled to 5 after the driver of the other side has reached 3 unnoticed.
#[test]
fn a_signal_that_meets_an_unnoticed_value_fails_both() {
    let bridge = Unwatched::new();
    bridge.words[0].store(3, Ordering::SeqCst);
    let signalled = bridge.sides[1].signal(5);
    signalled.unwrap();
    both_failed(&bridge.sides, 5, 3);
}

/// The driver of one side reaches 3 during a signal of 5 on the other side.
///
/// The bridge notices the 3 before it carries the 5.
#[test]
fn a_value_that_meets_an_unnoticed_signal_fails_both() {
    let bridge = Unwatched::new();
    let (word, here) = (bridge.words[0].clone(), bridge.sides[0].clone());
    *bridge.meanwhile.lock().unwrap() = Some(Box::new(move || {
        word.store(3, Ordering::SeqCst);
        // One of two threads that read the 3 may be the one that carries it. That thread waits for
        // the signal of 5 to end. The other thread has read the 3 when it says so.
        let (tell, told) = channel();
        for _ in 0..2 {
            let (here, tell) = (here.clone(), tell.clone());
            thread::spawn(move || tell.send(here.value()));
        }
        assert_eq!(told.recv_timeout(LONG).unwrap().unwrap(), 3);
    }));
    let _ = bridge.sides[1].signal(5);
    both_failed(&bridge.sides, 3, 5);
}

/// A handle that is cloned while the bridge is made keeps all sides open, like any other handle.
#[rstest]
#[case::kept_one_is_dropped_first(true)]
#[case::kept_one_is_dropped_last(false)]
fn a_handle_kept_while_a_bridge_is_made_is_one_of_the_bridge(#[case] drops_kept_first: bool) {
    let mut kept = Vec::new();
    let ports = (0..2).map(|_| Device::new().port(0));
    let made = Timeline::bridged_as("bridge", 0, ports, |_, side| {
        kept.push(side.clone());
        Ok(())
    });
    let (first, last) = if drops_kept_first {
        (kept, made.unwrap())
    } else {
        (made.unwrap(), kept)
    };
    drop(first);
    last[0].signal(1).unwrap();
    last[1].at(1).wait(LONG).unwrap();
    last[1].signal(2).unwrap();
    last[0].at(2).wait(LONG).unwrap();
    let points: Vec<_> = last.iter().map(|side| side.at(3).keep()).collect();
    drop(last);
    for point in points {
        ends(&point.point().wait(LONG));
    }
}

/// If a bridge cannot be made, waits on its sides end.
#[test]
fn an_error_while_a_bridge_is_made_closes_its_sides() {
    let mut points = Vec::new();
    let ports = (0..2).map(|_| Device::new().port(0));
    let made = Timeline::bridged_as("bridge", 0, ports, |at, side| {
        points.push(side.at(1).keep());
        match at {
            0 => Ok(()),
            _ => Err(Error::NothingToWaitFor),
        }
    });
    assert!(matches!(made, Err(Error::NothingToWaitFor)), "{made:?}");
    for point in points {
        ends(&point.point().wait(LONG));
    }
}

/// Publishes a side with a page that is its counter.
fn publish(side: &Timeline) -> Result<()> {
    let (_, exporter) = Device::new().exportable_port(0)?;
    side.publish(exporter.counter().clone(), Page::Own)
}

/// P4: of two published sides, each would have to be signalled before the other.
#[test]
fn a_second_published_side_is_refused() {
    let refused = |error: &Error| match error {
        Error::Unsupported { asked, .. } => assert_eq!(asked, "be published"),
        other => panic!("{other}"),
    };
    let ports = (0..2).map(|_| Device::new().port(0));
    let made = Timeline::bridged_as("bridge", 0, ports, |_, side| publish(side));
    refused(&made.unwrap_err());
    let sides = bridged::<3>();
    publish(&sides[1]).unwrap();
    // Publishing the same side again is allowed.
    publish(&sides[1]).unwrap();
    for side in [&sides[0], &sides[2]] {
        refused(&publish(side).unwrap_err());
    }
    for (value, side) in (1..).zip(&sides) {
        side.signal(value).unwrap();
        for side in &sides {
            side.at(value).wait(LONG).unwrap();
        }
    }
}

/// P4: the page has a value before it is visible on the other side.
///
/// The side is published after the bridge is made.
#[test]
fn a_side_that_is_published_later_has_a_value_before_it_is_visible() {
    let (page, exporter) = Device::new().exportable_port(0).unwrap();
    let counter = exporter.counter().clone();
    let [page, side] = Timeline::bridged("bridge", 0, [Ok(page), Device::new().port(0)])
        .unwrap()
        .try_into()
        .unwrap();
    page.publish(counter.clone(), Page::Own).unwrap();
    let (tell, told) = channel();
    before_the_bridge_carries(move || {
        side.signal(1)?;
        let _ = tell.send((side.value(), counter.value()));
        Ok(())
    });
    let (value, counted) = told.recv_timeout(LONG).unwrap();
    assert_eq!((value.unwrap(), counted.unwrap()), (1, 1));
}

/// A bridge of a published side and a side that is not published.
fn with_a_page() -> [Timeline; 2] {
    let sides = bridged();
    publish(&sides[0]).unwrap();
    sides
}

/// Calls `act` inside a submission's work.
///
/// Wakes of the engine, such as that of the bridge, run only after `act` has returned.
fn before_the_bridge_carries(act: impl FnOnce() -> Result<()> + Send + 'static) {
    let queue = Device::new().queue(QueueKind::Compute, "queue").unwrap();
    queue.submit(&[], move |_| act(), &[]).unwrap();
}

/// The published side was signalled ahead and then again before the bridge reads both sides.
#[test]
fn a_published_side_goes_on_from_a_value_that_is_yet_to_be_carried() {
    let sides = with_a_page();
    let [page, side] = sides.clone();
    before_the_bridge_carries(move || {
        side.signal(1)?;
        page.signal(2)
    });
    for side in &sides {
        side.at(2).wait(LONG).unwrap();
    }
}

/// The published side has a signal of its own. A signal ahead does not hide the conflict.
#[test]
fn a_published_side_with_a_signal_of_its_own_is_not_signalled_ahead() {
    let sides = with_a_page();
    let [page, side] = sides.clone();
    before_the_bridge_carries(move || {
        page.signal(3)?;
        side.signal(5)
    });
    both_failed(&sides, 3, 5);
}

/// One side is signalled to 5 after the driver of the published side has reached 3 unnoticed.
#[test]
fn a_signal_ahead_that_meets_an_unnoticed_value_fails_both() {
    let bridge = Unwatched::new();
    let (_, exporter) = Device::new().exportable_port(0).unwrap();
    let counter = exporter.counter().clone();
    bridge.sides[0].publish(counter, Page::Beside).unwrap();
    bridge.words[0].store(3, Ordering::SeqCst);
    bridge.sides[1].signal(5).unwrap();
    both_failed(&bridge.sides, 5, 3);
}
