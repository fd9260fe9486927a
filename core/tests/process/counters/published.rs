//! P4, E3: what a page tells of a timeline that another process signals, here with that process's
//! part played by a timeline of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use syncline_core::backend::{
    Attachment, ByEngine, Counter, Page, Port, RemainingPeers, Watch, Watcher,
};
use syncline_core::{DeviceId, Error, Object, Result};

use super::*;

/// A timeline of the one who signals, with a page beside it, and as another process has it through
/// that.
fn beside(initial: u64) -> (Timeline, Timeline, Arc<Counter>) {
    let device = host::Device::new();
    let (_, exporter) = device.exportable_port(initial).unwrap();
    let signalled = device.timeline_from("signalled", initial).unwrap();
    signalled
        .publish(exporter.counter().clone(), Page::Beside)
        .unwrap();
    let heard = imported_at(exporter.export().unwrap(), initial);
    (signalled, heard, exporter.counter().clone())
}

/// The same where the page's counter is the timeline's own.
fn own(initial: u64) -> (Timeline, Timeline, Arc<Counter>) {
    let (port, exporter) = host::Device::new().exportable_port(initial).unwrap();
    let signalled = Timeline::new("signalled", initial, |_| Ok([port].into_iter().collect()));
    let signalled = signalled.unwrap();
    signalled
        .publish(exporter.counter().clone(), Page::Own)
        .unwrap();
    let heard = imported_at(exporter.export().unwrap(), initial);
    (signalled, heard, exporter.counter().clone())
}

fn imported_at(handle: CounterFd, initial: u64) -> Timeline {
    let device = host::Device::new();
    let port = device.import_timeline(handle).map_err(|r| r.error).unwrap();
    Timeline::new("heard", initial, |_| Ok([port].into_iter().collect())).unwrap()
}

/// Work on a queue of `line`'s device that signals it to `value` once it is let go.
fn gated(queue: &host::Queue, line: &Timeline, value: u64) -> Sender<()> {
    let (go, gate) = channel();
    let job = move |r: &mut host::Recorder| {
        r.run(move || gate.recv().unwrap());
        Ok(())
    };
    queue.submit(&[], job, &[line.signal_at(value)]).unwrap();
    go
}

/// Calls `act` where whatever that wakes waits until it is done: inside a submission's work.
fn put_off<T: Send + 'static>(queue: &host::Queue, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    let work = move |_: &mut host::Recorder| {
        tell.send(act()).unwrap();
        Ok(())
    };
    queue.submit(&[], work, &[]).unwrap();
    told.recv().unwrap()
}

/// P4: this process may end as soon as a value is reported in it.
#[test]
fn a_value_is_told_before_it_is_reported() {
    let _alone = alone();
    let queue = host::Device::new().queue(QueueKind::Compute, "queue");
    let queue = queue.unwrap();
    for (signalled, _heard, counter) in [beside(0), own(0)] {
        for value in 1..20 {
            let (line, page) = (signalled.clone(), counter.clone());
            let told = put_off(&queue, move || {
                line.signal(value).unwrap();
                page.value().unwrap()
            });
            assert_eq!(told, value);
        }
    }
}

/// The same through a bridge, one of whose sides other processes have.
#[test]
fn a_bridge_tells_a_value_before_it_is_reported() {
    let _alone = alone();
    let device = host::Device::new();
    let (page, exporter) = device.exportable_port(0).unwrap();
    let counter = exporter.counter();
    let sides = [Ok(page), host::Device::new().port(0), device.port(0)];
    let sides = Timeline::bridged_as("bridge", 0, sides, |at, side| {
        if at == 0 {
            side.publish(counter.clone(), Page::Own).unwrap();
        }
        Ok(())
    });
    let sides = sides.unwrap();
    let queue = device.queue(QueueKind::Compute, "signals").unwrap();
    for value in (1..60).step_by(3) {
        let (side, told) = (sides[1].clone(), counter.clone());
        let told = put_off(&queue, move || {
            side.signal(value).unwrap();
            told.value().unwrap()
        });
        assert_eq!(told, value);
        // Another side goes on from there, and then that of the page.
        let (waits, signals) = ([sides[2].at(value)], [sides[2].signal_at(value + 1)]);
        queue.submit(&waits, |_| Ok(()), &signals).unwrap();
        sides[0].at(value + 1).wait(LONG).unwrap();
        sides[0].signal(value + 2).unwrap();
        for side in &sides {
            side.at(value + 2).wait(LONG).unwrap();
        }
    }
}

/// One side goes on without the other, although what one of them brings is signalled ahead: the
/// bridge still fails.
#[test]
fn sides_that_part_fail_although_one_is_signalled_ahead() {
    let _alone = alone();
    let device = host::Device::new();
    for round in 0..50 {
        let (page, exporter) = device.exportable_port(0).unwrap();
        let counter = exporter.counter();
        let sides = [Ok(page), device.port(0), device.port(0)];
        let sides = Timeline::bridged_as("bridge", 0, sides, |at, side| {
            if at == 0 {
                side.publish(counter.clone(), Page::Own).unwrap();
            }
            Ok(())
        });
        let sides = sides.unwrap();
        let [left, right] = [1, 2].map(|at| {
            let queue = device.queue(QueueKind::Compute, "signals").unwrap();
            gated(&queue, &sides[at], 1)
        });
        std::thread::scope(|scope| {
            scope.spawn(|| left.send(()).unwrap());
            scope.spawn(|| right.send(()).unwrap());
        });
        let ended = sides[0].at(9).wait(LONG);
        assert!(
            matches!(ended, Err(Error::Failed { .. })),
            "in round {round}: {ended:?}"
        );
    }
}

/// A queue is idle once the host has made the signals of its submissions, too.
#[test]
fn an_idle_queue_owes_no_signals_of_the_host() {
    let _alone = alone();
    let device = host::Device::new();
    let (signalled, heard, _) = own(0);
    let [first, second] = ["first", "second"].map(|label| {
        let queue = device.queue(QueueKind::Compute, label);
        queue.unwrap()
    });
    let go = gated(&first, &signalled, 1);
    let signals = [signalled.signal_at(2)];
    let submitted = second.submit(&[], |_| Ok(()), &signals).unwrap();
    submitted.end().wait(LONG).unwrap();
    // The host signals 2 once 1 is reached.
    let early = second.idle(Duration::from_millis(20));
    assert!(matches!(early, Err(Error::TimedOut { .. })), "{early:?}");
    std::thread::scope(|scope| {
        let idle = scope.spawn(|| second.idle(LONG).map(|()| heard.value().unwrap()));
        go.send(()).unwrap();
        assert_eq!(idle.join().unwrap().unwrap(), 2);
    });
    // One that is refused, or never comes, is not waited for.
    let gate = device.timeline("gate").unwrap();
    let (waits, signals) = ([gate.at(1)], [signalled.signal_at(3)]);
    second.submit(&waits, |_| Ok(()), &signals).unwrap();
    gate.fail(Error::work(io::Error::other("the lens is dirty")));
    second.idle(LONG).unwrap();
    let work = |_: &mut host::Recorder| Err(Error::work(io::Error::other("the lens is dirty")));
    let (other, _heard, _) = own(0);
    let refused = second.submit(&[], work, &[other.signal_at(1)]);
    refused.unwrap_err();
    second.idle(LONG).unwrap();
}

/// What is pending is heard of before it is reached, by threads that sleep for it; and not before
/// it is pending.
#[test]
fn pending_and_reached_are_two_things() {
    let _alone = alone();
    let device = host::Device::new();
    let (_, exporter) = device.exportable_port(5).unwrap();
    let signalled = device.timeline_from("signalled", 5).unwrap();
    signalled
        .publish(exporter.counter().clone(), Page::Beside)
        .unwrap();
    let heard = imported_at(exporter.export().unwrap(), 5);
    let queue = device.queue(QueueKind::Compute, "signals").unwrap();
    for value in (6..300).step_by(3) {
        let early = heard.at(value).wait_pending(Duration::ZERO);
        assert!(matches!(early, Err(Error::TimedOut { .. })), "{early:?}");
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| heard.at(value).wait_pending(LONG));
            let go = gated(&queue, &signalled, value);
            sleeper.join().unwrap().unwrap();
            assert!(!heard.at(value).is_reached().unwrap());
            go.send(()).unwrap();
            heard.at(value).wait(LONG).unwrap();
        });
        assert_eq!(heard.value().unwrap(), value);
    }
}

#[test]
fn a_failure_comes_with_its_cause() {
    let _alone = alone();
    for (signalled, heard, _) in [beside(0), own(0)] {
        signalled.signal(3).unwrap();
        heard.at(3).wait(LONG).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| heard.at(4).wait(LONG));
            signalled.fail(Error::work(io::Error::other("the lens is dirty")));
            let told = sleeper.join().unwrap().unwrap_err().to_string();
            assert!(told.contains("the lens is dirty"), "{told}");
        });
        heard.at(3).wait(LONG).unwrap();
        let told = heard.at(5).wait_pending(LONG).unwrap_err();
        assert!(matches!(told, Error::Failed { .. }), "{told:?}");
    }
}

/// With the last handle gone nothing comes but what was claimed: that does, and what is above it
/// ends.
#[test]
fn the_end_of_the_last_handle_is_told() {
    let _alone = alone();
    for (signalled, heard, _) in [beside(0), own(0)] {
        signalled.signal(1).unwrap();
        drop(signalled);
        heard.at(1).wait(LONG).unwrap();
        let told = heard.at(2).wait(LONG).unwrap_err().to_string();
        assert!(told.contains("last handle"), "{told}");
    }
    let device = host::Device::new();
    let (_, exporter) = device.exportable_port(0).unwrap();
    let signalled = device.timeline("signalled").unwrap();
    signalled
        .publish(exporter.counter().clone(), Page::Beside)
        .unwrap();
    let heard = imported_at(exporter.export().unwrap(), 0);
    let queue = device.queue(QueueKind::Compute, "signals").unwrap();
    let first = gated(&queue, &signalled, 7);
    // Held, and not pending before the gate's signal is.
    let gate = device.timeline("gate").unwrap();
    let waits = [gate.at(1)];
    queue
        .submit(&waits, |_| Ok(()), &[signalled.signal_at(9)])
        .unwrap();
    drop(signalled);
    first.send(()).unwrap();
    heard.at(7).wait(LONG).unwrap();
    gate.signal(1).unwrap();
    heard.at(9).wait(LONG).unwrap();
    let told = heard.at(10).wait(LONG).unwrap_err().to_string();
    assert!(told.contains("last handle"), "{told}");
}

/// The same where nothing but the claim keeps the timeline, whose signal the host makes once the
/// work is done.
#[test]
fn the_end_behind_a_relayed_signal_is_told() {
    let _alone = alone();
    for _ in 0..50 {
        let (signalled, heard, _) = own(0);
        let queue = host::Device::new().queue(QueueKind::Compute, "signals");
        let queue = queue.unwrap();
        let go = gated(&queue, &signalled, 1);
        drop(signalled);
        go.send(()).unwrap();
        heard.at(1).wait(LONG).unwrap();
        let told = heard.at(2).wait(LONG).unwrap_err().to_string();
        assert!(told.contains("last handle"), "{told}");
    }
}

/// Who signals has died: everybody who has the page hears of it, with what was reached kept; and
/// what waits natively is let go.
#[test]
fn the_dead_are_told_of_and_stood_in_for() {
    let _alone = alone();
    let (port, exporter) = host::Device::new().exportable_port(0).unwrap();
    let signalled = Timeline::new("signalled", 0, |_| Ok([port].into_iter().collect())).unwrap();
    signalled.signal(2).unwrap();
    let counter = exporter.counter();
    // It has promised more, and dies.
    counter.announce(6).unwrap();
    counter.note_pending(6);
    let hears: Vec<_> = (0..3)
        .map(|_| imported_at(exporter.export().unwrap(), 0))
        .collect();
    for heard in &hears {
        heard.at(6).wait_pending(LONG).unwrap();
    }
    let page = super::Hostile::of(&exporter);
    let dead = || Error::work(io::Error::other("the process has died"));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| hears[2].at(6).wait(LONG));
        hears[0]
            .downgrade()
            .lose(counter, dead(), RemainingPeers::One);
        let told = sleeper.join().unwrap().unwrap_err().to_string();
        assert!(told.contains("has died"), "{told}");
    });
    assert_eq!(page.read_word(REACHED), 6, "nobody lets go what waits");
    hears[1]
        .downgrade()
        .lose(counter, dead(), RemainingPeers::One);
    for heard in &hears {
        assert_eq!(heard.frozen_value(), 2, "a signal of the dead counts");
        heard.at(2).wait(LONG).unwrap();
        let told = heard.at(3).wait(LONG).unwrap_err();
        assert!(matches!(told, Error::Failed { .. }), "{told:?}");
    }
}

/// More said to be pending than was ever announced is a lie, and the end of the timeline.
#[test]
fn a_promise_beyond_what_was_announced_fails_it() {
    let _alone = alone();
    let (_signalled, heard, counter) = own(0);
    counter.note_pending(4);
    let told = heard.at(4).wait_pending(LONG).unwrap_err().to_string();
    assert!(told.contains("announced"), "{told}");
}

/// The first cause stays, if it stands on the page: who has failed his timeline and then dies was
/// not killed in the middle.
#[test]
fn the_first_cause_stays() {
    let _alone = alone();
    let (signalled, heard, counter) = own(0);
    signalled.signal(1).unwrap();
    signalled.fail(Error::work(io::Error::other("the lens is dirty")));
    let dead = Error::work(io::Error::other("the process has died"));
    heard.downgrade().lose(&counter, dead, RemainingPeers::One);
    let told = heard.at(2).wait(LONG).unwrap_err().to_string();
    assert!(told.contains("the lens is dirty"), "{told}");
    heard.at(1).wait(LONG).unwrap();
}

/// Who follows another process's timeline may let go of his handles: what he kept with it goes with
/// the last point.
#[test]
fn handles_of_who_follows_close_nothing() {
    let _alone = alone();
    let (signalled, heard, _) = beside(0);
    let kept = Arc::new(());
    heard.follow(kept.clone());
    let (views, point) = (heard.wait_only(), heard.at(2).keep());
    let weak = heard.downgrade();
    drop(heard);
    signalled.signal(1).unwrap();
    views.at(1).wait(LONG).unwrap();
    drop(views);
    assert!(weak.at(2).is_some_and(|known| weak.has(known.point())));
    assert_eq!(Arc::strong_count(&kept), 2);
    signalled.signal(2).unwrap();
    point.point().wait(LONG).unwrap();
    drop(point);
    assert_eq!(Arc::strong_count(&kept), 1, "it is kept by nobody");
    assert!(weak.at(2).is_none());
}

/// How often a watch has ended before its time without a nudge.
struct Watched {
    device: Arc<dyn Watch>,
    nudged: AtomicBool,
    early: AtomicUsize,
}

impl Watch for Watched {
    fn watcher(&self) -> &Watcher {
        self.device.watcher()
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<(), Error> {
        let ended = self.device.watch(ports, until);
        if Instant::now() < until && !self.nudged.swap(false, Ordering::SeqCst) {
            self.early.fetch_add(1, Ordering::SeqCst);
        }
        ended
    }

    fn nudge(&self) {
        self.nudged.store(true, Ordering::SeqCst);
        self.device.nudge();
    }

    fn lends(&self) -> bool {
        self.device.lends()
    }
}

/// A raw claim asks what is pending; once it is gone, threads sleep as before: the news of it ends
/// one sleep.
#[test]
fn a_watch_sleeps_after_a_raw_claim() {
    let _alone = alone();
    let (port, exporter) = host::Device::new().exportable_port(0).unwrap();
    let watched = Arc::new(Watched {
        device: port.watch().unwrap().clone(),
        nudged: AtomicBool::new(false),
        early: AtomicUsize::new(0),
    });
    let port = port.watched_by(watched.clone());
    let line = Timeline::new("line", 0, |_| Ok([port].into_iter().collect())).unwrap();
    let mut claim = line.claim(2, 0).unwrap();
    let counter = exporter.counter();
    counter.announce(2).unwrap();
    // As long as there is a claim it is asked what is pending; this says that nothing is.
    assert!(!line.at(2).is_reached().unwrap());
    counter.note_pending(2);
    claim.submitted().unwrap();
    drop(claim);
    let told = line.at(2).wait(Duration::from_millis(300));
    assert!(matches!(told, Err(Error::TimedOut { .. })), "{told:?}");
    assert_eq!(watched.early.load(Ordering::SeqCst), 1);
}

/// A signal, and a failure behind it, come while another thread writes to the page: that has what
/// was reached before the failure.
#[test]
fn a_failure_freezes_the_page_at_what_was_reached() {
    let _alone = alone();
    for round in 0..200 {
        let (signalled, heard, counter) = beside(0);
        std::thread::scope(|scope| {
            // Who sleeps there makes it long to write that something is reached.
            let sleeper = scope.spawn(|| heard.at(3).wait(LONG));
            let fails = scope.spawn(|| {
                while counter.value().unwrap() < 1 {
                    std::hint::spin_loop();
                }
                signalled.signal(2).unwrap();
                signalled.fail(Error::work(io::Error::other("the lens is dirty")));
            });
            signalled.signal(1).unwrap();
            fails.join().unwrap();
            sleeper.join().unwrap().unwrap_err();
        });
        assert_eq!(heard.frozen_value(), 2, "in round {round}");
    }
}

/// A device that is lost: the memory that it has written cannot be asked for any more.
struct Lost(Arc<AtomicBool>);

impl Port for Lost {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }

    fn visible(&self, reached: u64) -> Result<u64> {
        match self.0.load(Ordering::SeqCst) {
            false => Ok(reached),
            true => Err(Error::DeviceLost {
                object: Object::new("device", "lost"),
                call: "cuEventQuery",
                code: 719,
                name: "CUDA_ERROR_LAUNCH_FAILED".into(),
            }),
        }
    }
}

/// A device that writes the page itself is lost, and its process lives, where nobody waits: who
/// waits elsewhere hears of it, and is let go.
#[test]
fn a_lost_device_of_a_signaller_that_lives_is_told() {
    let _alone = alone();
    let (port, exporter) = host::Device::new().exportable_port(0).unwrap();
    let lost = Arc::new(AtomicBool::new(false));
    let device = Attachment::new(DeviceId::new(), 0, Lost(lost.clone()));
    let signalled = Timeline::new("signalled", 0, |_| Ok([port, device].into_iter().collect()));
    let signalled = signalled.unwrap();
    let counter = exporter.counter();
    signalled.publish(counter.clone(), Page::Own).unwrap();
    let heard = imported_at(exporter.export().unwrap(), 0);
    // As a stream that signals 4 does.
    let mut claim = signalled.claim(4, 0).unwrap();
    counter.announce(4).unwrap();
    counter.note_pending(4);
    claim.submitted().unwrap();
    drop(claim);
    heard.at(4).wait_pending(LONG).unwrap();
    lost.store(true, Ordering::SeqCst);
    let Error::Failed { cause, .. } = heard.at(4).wait(LONG).unwrap_err() else {
        panic!("it is reached");
    };
    assert!(
        matches!(*cause, Error::FailedElsewhere { code: 719, .. }),
        "{cause}"
    );
    assert_eq!(heard.frozen_value(), 0);
    let page = super::Hostile::of(&exporter);
    let patience = Instant::now() + LONG;
    while page.read_word(REACHED) < 4 {
        assert!(Instant::now() < patience, "nobody lets go what waits");
        std::thread::yield_now();
    }
}
