//! P4, E3: pages that report the state of a timeline to other processes.
//!
//! A second timeline of this process stands for the timeline of the other process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use syncline_core::backend::kit::Counter;
use syncline_core::backend::{Attachment, ByEngine, Port};
use syncline_core::internal::{Page, RecoveryMode};
use syncline_core::{Error, Result, error::Object, info::DeviceId};

use super::*;

/// A timeline with a page beside it, the same timeline in another process, and the page's counter.
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

/// Same as [`beside`], with a page whose counter is the timeline's own.
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

/// Submits work that signals `line` to `value` after the returned sender has sent.
fn gated(queue: &host::Queue, line: &Timeline, value: u64) -> Sender<()> {
    let (go, gate) = channel();
    let job = move |r: &mut host::Recorder| {
        r.run(move || gate.recv().unwrap());
        Ok(())
    };
    queue.submit(&[], job, &[line.signal_at(value)]).unwrap();
    go
}

/// A queue is idle only after the host has made the signals of its submissions.
#[test]
fn an_idle_queue_has_no_relayed_signals_left() {
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
    // A relayed signal of a skipped or refused submission is not waited for.
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

/// The signalling process has died. All processes with the page learn of it.
///
/// Reached values stay reached, and the page is raised to release native waits.
#[test]
fn the_death_of_the_signaller_is_published_and_recovered() {
    let _alone = alone();
    let (port, exporter) = host::Device::new().exportable_port(0).unwrap();
    let signalled = Timeline::new("signalled", 0, |_| Ok([port].into_iter().collect())).unwrap();
    signalled.signal(2).unwrap();
    let counter = exporter.counter();
    // The signaller reports 6 as pending, and dies.
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
            .lose(counter, dead(), RecoveryMode::Alone);
        let told = sleeper.join().unwrap().unwrap_err().to_string();
        assert!(told.contains("has died"), "{told}");
    });
    assert_eq!(page.read_word(REACHED), 6, "native waits are not released");
    hears[1]
        .downgrade()
        .lose(counter, dead(), RecoveryMode::Alone);
    for heard in &hears {
        assert_eq!(heard.frozen_value(), 2, "a recovery signal counts");
        heard.at(2).wait(LONG).unwrap();
        let told = heard.at(3).wait(LONG).unwrap_err();
        assert!(matches!(told, Error::Failed { .. }), "{told:?}");
    }
}

#[test]
fn a_pending_value_above_the_announced_one_fails_the_timeline() {
    let _alone = alone();
    let (_signalled, heard, counter) = own(0);
    counter.note_pending(4);
    let told = heard.at(4).wait_pending(LONG).unwrap_err().to_string();
    assert!(told.contains("announced"), "{told}");
}

/// A process fails its timeline and then dies. The cause that it wrote to the page stays.
#[test]
fn the_first_cause_of_a_failure_stays() {
    let _alone = alone();
    let (signalled, heard, counter) = own(0);
    signalled.signal(1).unwrap();
    signalled.fail(Error::work(io::Error::other("the lens is dirty")));
    let dead = Error::work(io::Error::other("the process has died"));
    heard.downgrade().lose(&counter, dead, RecoveryMode::Alone);
    let told = heard.at(2).wait(LONG).unwrap_err().to_string();
    assert!(told.contains("the lens is dirty"), "{told}");
    heard.at(1).wait(LONG).unwrap();
}

/// The handles of a timeline that another process signals may be dropped.
///
/// Points stay usable, and an object kept with the timeline is dropped with the last point.
#[test]
fn dropping_the_handles_of_an_imported_timeline_keeps_its_points() {
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
    assert_eq!(Arc::strong_count(&kept), 1, "the object was not dropped");
    assert!(weak.at(2).is_none());
}

/// A signal and then a failure come while another thread writes an earlier value to the page.
///
/// The page shows the last value that was reached before the failure.
#[test]
fn a_failure_freezes_the_page_at_the_reached_value() {
    let _alone = alone();
    for round in 0..200 {
        let (signalled, heard, counter) = beside(0);
        std::thread::scope(|scope| {
            // A sleeping thread makes the write of a reached value slow, because it is woken.
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

/// A device that is lost once the flag is set. Its memory cannot be read then.
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
            true => Err(Error::device_lost(
                Object::new("device", "lost"),
                "cuEventQuery",
                719,
                "CUDA_ERROR_LAUNCH_FAILED",
            )),
        }
    }
}

/// A device that writes the page itself is lost. Its process lives, and none of its threads waits.
///
/// Waits in other processes fail, and native waits are released.
#[test]
fn a_lost_device_of_a_living_signaller_is_published() {
    let _alone = alone();
    let (port, exporter) = host::Device::new().exportable_port(0).unwrap();
    let lost = Arc::new(AtomicBool::new(false));
    let device = Attachment::imported(DeviceId::new::<()>(), Lost(lost.clone()));
    let signalled = Timeline::new("signalled", 0, |_| Ok([port, device].into_iter().collect()));
    let signalled = signalled.unwrap();
    let counter = exporter.counter();
    signalled.publish(counter.clone(), Page::Own).unwrap();
    let heard = imported_at(exporter.export().unwrap(), 0);
    // The same calls as for a stream that signals 4.
    let mut claim = signalled.claim(4).unwrap();
    counter.announce(4).unwrap();
    counter.note_pending(4);
    claim.submitted().unwrap();
    drop(claim);
    heard.at(4).wait_pending(LONG).unwrap();
    lost.store(true, Ordering::SeqCst);
    let Error::Failed { cause, .. } = heard.at(4).wait(LONG).unwrap_err() else {
        panic!("the value is reached");
    };
    assert!(
        matches!(*cause, Error::FailedElsewhere { code: 719, .. }),
        "{cause}"
    );
    assert_eq!(heard.frozen_value(), 0);
    let page = super::Hostile::of(&exporter);
    let patience = Instant::now() + LONG;
    while page.read_word(REACHED) < 4 {
        assert!(Instant::now() < patience, "native waits are not released");
        std::thread::yield_now();
    }
}
