//! Timelines that a bridge makes one: what is carried, in which order, and how they close.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use syncline_core::backend::{Attachment, ByEngine, Device as _, Port, Queue as _, Watch, Watcher};
use syncline_core::host::{Device, Recorder};
use syncline_core::internal::Page;
use syncline_core::{Claim, DeviceId, Error, QueueKind, Result, Timeline};

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

/// A side whose driver writes `word` by itself, and one of the host.
fn with_a_driver(word: &Arc<AtomicU64>) -> [Timeline; 2] {
    let words = Arc::new(Words::default());
    let driven = words.port(DeviceId::new(), word.clone());
    let made = Timeline::bridged("bridge", 0, [Ok(driven), Device::new().port(0)]).unwrap();
    made.try_into().unwrap()
}

fn ends(ended: &Result<()>) {
    assert!(
        matches!(ended, Err(Error::Cancelled { .. } | Error::Failed { .. })),
        "{ended:?}"
    );
}

/// A submission that waits for a value which nobody has claimed, and signals one above: nothing
/// comes of it, on no side.
#[test]
fn a_gap_below_a_claim_ends_with_the_last_handle_on_all_sides() {
    let other = Device::new();
    let queue = other.queue(QueueKind::Compute, "other").unwrap();
    let [here, there] = bridged();
    queue
        .submit(&[here.at(2)], nothing, &[here.signal_at(3)])
        .unwrap();
    let (near, far) = (here.at(3).keep(), there.at(3).keep());
    drop((here, there));
    ends(&near.point().wait(LONG));
    ends(&far.point().wait(LONG));
}

/// What was claimed by hand is withdrawn after the last handle has gone.
#[test]
fn a_claim_that_goes_last_ends_all_sides() {
    for own_wait in [0, 1] {
        let [here, there] = with_a_driver(&Arc::default());
        let claim = here.claim(2, own_wait).unwrap();
        let (near, far) = (here.at(2).keep(), there.at(2).keep());
        drop((here, there));
        assert!(!far.point().is_reached().unwrap());
        drop(claim);
        ends(&near.point().wait(LONG));
        ends(&far.point().wait(LONG));
    }
}

/// The last handle goes with a signal on its way: it still comes, to all sides, and nothing after
/// it.
#[test]
fn what_is_on_its_way_comes_after_the_last_handle() {
    let word = Arc::new(AtomicU64::new(0));
    let [here, there] = with_a_driver(&word);
    let mut claim = here.claim(2, 0).unwrap();
    claim.submitted().unwrap();
    let (last, beyond) = (there.at(2).keep(), there.at(3).keep());
    drop((here, there, claim));
    assert!(!last.point().is_reached().unwrap());
    ends(&beyond.point().wait(LONG));
    word.store(2, Ordering::SeqCst);
    last.point().wait(LONG).unwrap();
}

/// Two of four sides take turns, each after it has seen the other's last value on its own side.
#[test]
fn sides_that_take_turns_never_meet() {
    for _ in 0..100 {
        let lines = Arc::new(bridged::<4>());
        let threads: Vec<_> = (0..2_usize)
            .map(|side| {
                let lines = lines.clone();
                thread::spawn(move || {
                    for value in (1..200).filter(|value| *value as usize % 2 == side) {
                        lines[side].at(value - 1).wait(LONG).unwrap();
                        lines[side].signal(value).unwrap();
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        for line in lines.iter() {
            line.at(199).wait(LONG).unwrap();
        }
    }
}

type Event = Box<dyn FnOnce() + Send>;

/// A counter that is its driver's own, and what happens once while a signal of the host is made
/// there.
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

/// A watch that sees nothing until it is told to look.
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

/// Two sides over counters that only the test's thread reads. The driver of the first is about to
/// signal 3.
struct Unwatched {
    words: [Arc<AtomicU64>; 2],
    sides: [Timeline; 2],
    /// Happens once, while a signal of the host is made on the second side.
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
            Attachment::new(DeviceId::new(), 0, Counter { word, meanwhile })
        };
        let made = [
            Ok(side(&words[0], Arc::default()).watched_by(watch.clone())),
            Ok(side(&words[1], Arc::clone(&meanwhile))),
        ];
        let made = Timeline::bridged("bridge", 0, made).unwrap();
        let sides: [Timeline; 2] = made.try_into().unwrap();
        let mut claim = sides[0].claim(3, 0).unwrap();
        claim.submitted().unwrap();
        let state = watch.state.lock().unwrap();
        // The watching thread reads nothing from here on.
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

/// Both sides have failed because `asked` came to a side that had reached `reached`.
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

/// The driver of one side has reached 3, which nothing has noticed, when the other side is
/// signalled to 5.
#[test]
fn a_signal_that_meets_an_unnoticed_value_fails_both() {
    let bridge = Unwatched::new();
    bridge.words[0].store(3, Ordering::SeqCst);
    let signalled = bridge.sides[1].signal(5);
    signalled.unwrap();
    both_failed(&bridge.sides, 5, 3);
}

/// The driver of one side reaches 3 while the other side is being signalled to 5, and the 3 is
/// noticed before the 5 is carried.
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

/// One side's driver goes on while another side goes on without it, at any time. Either the first
/// is noticed in time and all is well, or both sides fail with what stood in the way, as seen from
/// one side or the other. One value never hides the other.
#[test]
fn who_goes_on_without_the_other_fails_both() {
    for _ in 0..50 {
        let word = Arc::new(AtomicU64::new(0));
        let [here, there] = with_a_driver(&word);
        let mut claim = here.claim(3, 0).unwrap();
        claim.submitted().unwrap();
        word.store(3, Ordering::SeqCst);
        if there.signal(5).is_err() {
            // The 3 was just being carried.
            continue;
        }
        match here.at(5).wait(LONG) {
            Ok(()) => assert!(here.value().unwrap() == 5 && there.value().unwrap() == 5),
            Err(Error::Failed { cause, .. }) => {
                assert!(
                    matches!(
                        *cause,
                        Error::SignalNotAboveReached {
                            asked: 5,
                            reached: 3,
                            ..
                        } | Error::SignalNotAboveReached {
                            asked: 3,
                            reached: 5,
                            ..
                        } | Error::SignalOverlapsClaim { asked: 5, .. }
                    ),
                    "{cause}"
                );
                ends(&there.at(6).wait(LONG));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A failure while another thread carries reaches all sides, however they meet.
#[test]
fn failures_and_signals_meet_anywhere() {
    for _ in 0..300 {
        let [here, there] = bridged();
        let (left, right) = (here.clone(), there.clone());
        let signals = thread::spawn(move || (1..50).try_for_each(|value| left.signal(value)));
        let fails = thread::spawn(move || right.fail(Error::NothingToWaitFor));
        let _ = signals.join().unwrap();
        fails.join().unwrap();
        ends(&here.at(1000).wait(LONG));
        ends(&there.at(1000).wait(LONG));
    }
}

/// What is kept of a side while the bridge is made is a handle of the bridge: it closes nothing by
/// itself, and keeps all sides open.
#[test]
fn a_handle_kept_while_a_bridge_is_made_is_one_of_the_bridge() {
    for drops_kept_first in [true, false] {
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
}

/// A bridge that is not made leaves nothing open.
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

/// P4: each of two published sides would have to be signalled before the other one.
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
    // The same side once more is no other one.
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

/// P4, for a side that is published after the bridge is made.
#[test]
fn a_value_is_on_the_side_that_is_published_later_before_it_shows() {
    let (page, exporter) = Device::new().exportable_port(0).unwrap();
    let counter = exporter.counter().clone();
    let [page, side] = Timeline::bridged("bridge", 0, [Ok(page), Device::new().port(0)])
        .unwrap()
        .try_into()
        .unwrap();
    page.publish(counter.clone(), Page::Own).unwrap();
    let (tell, told) = channel();
    before_it_is_carried(move || {
        side.signal(1)?;
        let _ = tell.send((side.value(), counter.value()));
        Ok(())
    });
    let (value, counted) = told.recv_timeout(LONG).unwrap();
    assert_eq!((value.unwrap(), counted.unwrap()), (1, 1));
}

/// A side that other processes have, and one that they do not have.
fn with_a_page() -> [Timeline; 2] {
    let sides = bridged();
    publish(&sides[0]).unwrap();
    sides
}

/// Calls `act` inside a submission's work: what it wakes waits until it has returned, and so does
/// the bridge.
fn before_it_is_carried(act: impl FnOnce() -> Result<()> + Send + 'static) {
    let queue = Device::new().queue(QueueKind::Compute, "queue").unwrap();
    queue.submit(&[], move |_| act(), &[]).unwrap();
}

/// The published side was signalled ahead, and has gone on, when the bridge looks at both.
#[test]
fn a_published_side_goes_on_from_a_value_that_is_yet_to_be_carried() {
    let sides = with_a_page();
    let [page, side] = sides.clone();
    before_it_is_carried(move || {
        side.signal(1)?;
        page.signal(2)
    });
    for side in &sides {
        side.at(2).wait(LONG).unwrap();
    }
}

/// The published side has gone on by itself: no signal ahead hides that.
#[test]
fn a_published_side_that_has_gone_on_by_itself_is_not_signalled_ahead() {
    let sides = with_a_page();
    let [page, side] = sides.clone();
    before_it_is_carried(move || {
        page.signal(3)?;
        side.signal(5)
    });
    both_failed(&sides, 3, 5);
}

/// The driver of a published side has reached 3, which nothing has noticed, when the other side is
/// signalled to 5.
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

/// What waits for the published side is let go in the middle of a signal of the other side, and
/// signals that side itself.
#[test]
fn work_that_a_signal_ahead_lets_go_may_signal_the_same_side() {
    let sides = with_a_page();
    let [page, side] = sides.clone();
    let queue = Device::new().queue(QueueKind::Compute, "queue").unwrap();
    let answers = side.clone();
    let work = move |_: &mut Recorder<'_>| answers.signal(2);
    queue.submit(&[page.at(1)], work, &[]).unwrap();
    let (tell, told) = channel();
    thread::spawn(move || tell.send(side.signal(1)));
    told.recv_timeout(LONG).unwrap().unwrap();
    for side in &sides {
        side.at(2).wait(LONG).unwrap();
    }
}
