//! E3: native waits for a device of this process that is lost.
//!
//! This table lists changes to the engine, each with a test that was seen to fail with it:
//!
//! | change | test |
//! |---|---|
//! | a device that owes a signal is never checked | `what_waits_natively_fails_and_then_the_wait_is_released` |
//! | a wait is released before what depends on it fails | `what_waits_natively_fails_and_then_the_wait_is_released` |
//! | a wait is released before the page of the timeline fails | `a_published_timeline_fails_on_its_page_first` |
//! | signals that other devices owe are made, too | `missing_signals_are_made_in_order` |
//! | a signal is made before the value below it is reached | `missing_signals_are_made_in_order` |
//! | the page of a counter replaces the cause in the process of the lost device | `the_page_does_not_replace_the_loss` |
//! | an error of a check that is no loss counts as one | `another_error_of_a_check_is_no_loss` |
//! | a claim is owed by every device, although one is named | `a_claim_of_another_device_is_not_owed` |
//! | a queue with more finished dependents than it drops at a time does not continue | `the_dependents_of_finished_work_are_dropped_by_the_next_submissions` |
//! | what a lost device holds does not fail | `what_a_lost_device_holds_fails` |
//! | only the first held submission fails | `what_a_lost_device_holds_fails` |
//! | a failing poll of another device's port hides the value of the home | `a_value_that_was_reached_stays_reached` |
//! | the home is not polled after the loss is known | `a_value_that_was_reached_stays_reached` |
//! | a time-out names no lost device | `a_time_out_names_a_lost_device` |
//! | other processes have no time, or the release is forgotten | `other_processes_have_time_before_a_recovery` in `state/owed.rs` |

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rstest::rstest;
use syncline_core::backend::kit::Counter;
use syncline_core::backend::{
    Attachment, ByEngine, Port, Recovered, SharedPort, SubmissionQueue, Watch, Watcher,
};
use syncline_core::internal::Page;
use syncline_core::{Error, Result, Timeline, error::Object, host, info::DeviceId};

use crate::script::{Script, Scripted, scripted};
use crate::until;
use crate::words::{Of, Word, Words};

const LONG: Duration = Duration::from_secs(20);

/// A device that a test can lose. Its driver takes submissions, and the test executes them.
#[derive(Clone)]
struct Device {
    id: DeviceId,
    object: Object,
    words: Arc<Words>,
    is_lost: Arc<AtomicBool>,
    is_short: Arc<AtomicBool>,
    checks: Arc<Mutex<Checks>>,
    /// The number of checks.
    checked: Arc<AtomicU64>,
}

/// Lets a test act while a check of its device runs.
#[derive(Default)]
struct Checks {
    /// True if the next check waits for the test.
    begin: bool,
    /// True while a check waits for the test.
    begun: bool,
}

impl Device {
    fn new() -> Self {
        Self {
            id: DeviceId::new::<Of<Scripted<Takes>>>(),
            object: Object::new("device", ""),
            words: Arc::default(),
            is_lost: Arc::default(),
            is_short: Arc::default(),
            checks: Arc::default(),
            checked: Arc::default(),
        }
    }

    fn queue(&self) -> Arc<SubmissionQueue<Scripted<Takes>>> {
        self.queue_at(Arc::default())
    }

    /// A queue whose position is `word`, which the watch of this device watches.
    fn queue_at(&self, word: Arc<AtomicU64>) -> Arc<SubmissionQueue<Scripted<Takes>>> {
        let (id, watch) = (self.id, Arc::new(self.clone()));
        let home = Of::new(id, move || {
            Attachment::new(id, 0, Word(word.clone())).watched_by(watch.clone())
        });
        scripted(home, Takes)
    }

    fn timeline(&self) -> Timeline {
        self.words.timeline(self.id, "own", Arc::default())
    }

    /// From now on checks return another error than a loss.
    fn be_short_of_memory(&self) {
        self.is_short.store(true, Ordering::SeqCst);
    }

    fn loss(&self) -> Error {
        Error::device_lost(&self.object, "the check", 700, "lost")
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    fn until_a_check_has_begun(&self) {
        until("the device is not checked", || {
            self.checks.lock().unwrap().begun
        });
    }

    /// Waits for the test, and then a little longer, so that the test acts during the check.
    fn wait_in_check(&self) {
        {
            let mut checks = self.checks.lock().unwrap();
            if !std::mem::take(&mut checks.begin) {
                return;
            }
            checks.begun = true;
        }
        while self.checks.lock().unwrap().begun {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Watch for Device {
    fn watcher(&self) -> &Watcher {
        self.words.watcher()
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        self.words.watch(ports, until)
    }

    fn nudge(&self) {
        self.words.nudge();
    }

    fn check(&self) -> Result<()> {
        self.wait_in_check();
        self.checked.fetch_add(1, Ordering::SeqCst);
        if !self.is_lost.load(Ordering::SeqCst) {
            return match self.is_short.load(Ordering::SeqCst) {
                true => Err(Error::work(std::io::Error::other("out of memory"))),
                false => Ok(()),
            };
        }
        Err(self.loss())
    }
}

/// A driver that takes every submission.
struct Takes;

impl Script for Takes {}

/// A counter that several devices have.
#[derive(Default)]
struct Semaphore {
    value: AtomicU64,
    /// The values before and after each signal in place of a lost device.
    made: Mutex<Vec<(u64, u64)>>,
    /// Must have failed before such a signal is made.
    behind: Mutex<Vec<Timeline>>,
    page: OnceLock<Arc<Counter>>,
    /// True once its page tells other processes of the loss.
    tells: AtomicBool,
}

impl Semaphore {
    fn made(&self) -> Vec<(u64, u64)> {
        self.made.lock().unwrap().clone()
    }

    /// The device executes a signal.
    fn execute(&self, value: u64) {
        let before = self.value.swap(value, Ordering::SeqCst);
        assert!(before < value, "signalled from {before} to {value}");
    }

    fn until_made(&self, count: usize) {
        until("too few are made", || self.made().len() >= count);
    }
}

/// A device's port of a [`Semaphore`].
struct Half {
    of: Arc<Semaphore>,
    is_readable: bool,
    device: Device,
}

impl Port for Half {
    fn is_readable(&self) -> bool {
        self.is_readable
    }

    fn poll(&self) -> Result<Option<u64>> {
        if self.is_lost() {
            return Err(Error::failed_elsewhere(
                Object::new("counter", ""),
                700,
                "the device is lost",
            ));
        }
        let value = self.of.value.load(Ordering::SeqCst);
        Ok(self.is_readable.then_some(value))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.of.execute(value);
        Ok(())
    }

    fn visible(&self, reached: u64) -> Result<u64> {
        match self.device.is_lost.load(Ordering::SeqCst) {
            true => Err(self.device.loss()),
            false => Ok(reached),
        }
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }
}

impl SharedPort for Half {
    fn is_lost(&self) -> bool {
        self.of.tells.load(Ordering::SeqCst)
    }

    fn recover(&self, after: u64, value: u64, by: ByEngine<'_>) -> Result<Recovered> {
        if !self.is_readable {
            panic!("a port that can read the counter comes first");
        }
        let before = self.of.value.load(Ordering::SeqCst);
        if before < after {
            return Ok(Recovered::NotYet);
        }
        for behind in self.of.behind.lock().unwrap().iter() {
            assert!(behind.value().is_err(), "released before it failed");
        }
        if let Some(page) = self.of.page.get() {
            page.check().unwrap_err();
        }
        self.signal(value, by)?;
        self.of.made.lock().unwrap().push((before, value));
        Ok(Recovered::Signalled)
    }
}

/// A timeline of both devices with its home on `home`.
fn shared(home: &Device, other: &Device) -> (Timeline, Arc<Semaphore>) {
    let of = Arc::<Semaphore>::default();
    let half = |device: &Device, is_readable| {
        let port = Half {
            of: of.clone(),
            is_readable,
            device: device.clone(),
        };
        let attachment = Attachment::imported(device.id, port);
        attachment.watched_by(Arc::new(device.clone()))
    };
    let halves = [half(home, true), half(other, false)];
    let line = Timeline::new("shared", 0, |_| Ok(halves.into_iter().collect())).unwrap();
    (line, of)
}

fn signal(queue: &Arc<SubmissionQueue<Scripted<Takes>>>, line: &Timeline, value: u64) {
    let submitted = queue.submit(&[], |_| Ok(()), &[line.signal_at(value)]);
    assert!(!submitted.unwrap().is_held());
}

fn fails(line: &Timeline, value: u64) {
    let error = line.at(value).wait(LONG).unwrap_err();
    let root = error.root();
    assert!(
        matches!(root, Error::DeviceLost { code: 700, .. }),
        "{error}"
    );
}

/// The work behind a native wait has failed when the wait is released. No call asks for anything.
#[test]
fn what_waits_natively_fails_and_then_the_wait_is_released() {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    let (behind, later) = (working.timeline(), working.timeline());
    signal(&lost.queue(), &line, 5);
    let queue = working.queue();
    for (waited, signalled) in [(line.at(5), &behind), (behind.at(1), &later)] {
        let signals = [signalled.signal_at(1)];
        queue.submit(&[waited], |_| Ok(()), &signals).unwrap();
    }
    *semaphore.behind.lock().unwrap() = vec![line.clone(), behind.clone(), later.clone()];
    lost.lose();
    semaphore.until_made(1);
    assert_eq!(semaphore.made(), [(0, 5)]);
    for (failed, value) in [(&line, 5), (&behind, 1), (&later, 1)] {
        fails(failed, value);
    }
}

/// The signals of the other device come by themselves. Those of the lost device come between them.
#[rstest]
#[case::by_queues(false)]
#[case::by_the_application(true)]
fn missing_signals_are_made_in_order(#[case] raw: bool) {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    let (ours, theirs) = (working.queue(), lost.queue());
    for value in 1..=5 {
        match value {
            2 | 4 if raw => line.claim(value).unwrap().submitted().unwrap(),
            2 | 4 => signal(&theirs, &line, value),
            _ => signal(&ours, &line, value),
        }
    }
    lost.lose();
    fails(&line, 4);
    for value in [1, 3] {
        assert_eq!(semaphore.made().len(), value as usize / 2);
        semaphore.execute(value);
        semaphore.until_made(value as usize / 2 + 1);
    }
    semaphore.execute(5);
    assert_eq!(semaphore.made(), [(1, 2), (3, 4)]);
}

/// A signal of the application's own submission is owed by the device that the application names.
#[test]
fn a_claim_of_another_device_is_not_owed() {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    let (owed, owed_semaphore) = shared(&working, &lost);
    let mut claim = line.claim(1).unwrap();
    claim.submitted_on(working.id).unwrap();
    let mut claim = owed.claim(1).unwrap();
    claim.submitted_on(lost.id).unwrap();
    lost.lose();
    fails(&owed, 1);
    // One check finds all timelines to which the device owes a signal, and then releases them.
    owed_semaphore.until_made(1);
    semaphore.execute(1);
    line.at(1).wait(LONG).unwrap();
    assert_eq!(semaphore.made(), []);
}

/// The claim stays open if the named device does not have the timeline.
#[test]
fn a_claim_of_a_foreign_device_is_refused() {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    let mut claim = line.claim(1).unwrap();
    let refused = claim.submitted_on(DeviceId::new::<()>()).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    assert!(!line.at(1).is_pending().unwrap());
    claim.submitted_on(working.id).unwrap();
    assert!(line.at(1).is_pending().unwrap());
    semaphore.execute(1);
}

/// Other processes read on the page that the timeline has failed, before its waits are released.
#[test]
fn a_published_timeline_fails_on_its_page_first() {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    let exporter = host::Device::new().exportable_port(0).unwrap().1;
    let page = semaphore.page.get_or_init(|| exporter.counter().clone());
    line.publish(page.clone(), Page::Beside).unwrap();
    signal(&lost.queue(), &line, 1);
    lost.lose();
    semaphore.until_made(1);
    assert_eq!(semaphore.made(), [(0, 1)]);
}

/// The application drops its handle while queues of both devices still use the timeline.
#[test]
fn a_wait_for_a_dropped_timeline_is_released() {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    let behind = working.timeline();
    let (ours, theirs) = (working.queue(), lost.queue());
    signal(&theirs, &line, 1);
    ours.submit(&[line.at(1)], |_| Ok(()), &[behind.signal_at(1)])
        .unwrap();
    drop(line);
    lost.lose();
    semaphore.until_made(1);
    fails(&behind, 1);
}

/// The lost device tells other processes on the page of a counter. This process reads that, too.
///
/// It knows which signals the device owes, so it does not act like the other processes.
#[test]
fn the_page_does_not_replace_the_loss() {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    let behind = working.timeline();
    let (ours, theirs) = (working.queue(), lost.queue());
    signal(&theirs, &line, 1);
    ours.submit(&[line.at(1)], |_| Ok(()), &[behind.signal_at(1)])
        .unwrap();
    signal(&ours, &line, 2);
    lost.lose();
    semaphore.tells.store(true, Ordering::SeqCst);
    let error = line.value().unwrap_err();
    assert!(
        matches!(error.root(), Error::DeviceLost { code: 700, .. }),
        "{error}"
    );
    fails(&behind, 1);
    semaphore.until_made(1);
    semaphore.execute(2);
    assert_eq!(semaphore.made(), [(0, 1)]);
}

/// An error of a check that is no loss changes nothing, and the device is checked again.
#[test]
fn another_error_of_a_check_is_no_loss() {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    signal(&lost.queue(), &line, 1);
    lost.be_short_of_memory();
    until("the device is not checked again", || {
        lost.checked.load(Ordering::SeqCst) >= 3
    });
    assert_eq!(semaphore.made(), []);
    semaphore.execute(1);
    line.at(1).wait(LONG).unwrap();
}

/// A signal that a driver takes after the loss is known is made in its place, too.
#[test]
fn a_signal_that_comes_after_the_loss_is_made() {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    let theirs = lost.queue();
    signal(&theirs, &line, 1);
    let mut claim = line.claim(2).unwrap();
    lost.lose();
    semaphore.until_made(1);
    claim.submitted().unwrap();
    semaphore.until_made(2);
    assert_eq!(semaphore.made(), [(0, 1), (1, 2)]);
}

/// The watching thread does not keep a timeline that is dropped while it checks the device for it.
#[test]
fn a_dropped_timeline_is_gone_when_the_drop_returns() {
    let (working, lost) = (Device::new(), Device::new());
    let theirs = lost.queue();
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < LONG, "each drop takes its whole time");
        let (line, semaphore) = shared(&working, &lost);
        lost.checks.lock().unwrap().begin = true;
        signal(&theirs, &line, 1);
        lost.until_a_check_has_begun();
        semaphore.execute(1);
        line.at(1).wait(LONG).unwrap();
        let start = Instant::now();
        lost.checks.lock().unwrap().begun = false;
        drop(line);
        // The drop waits for the watching thread for 50 ms at most.
        if start.elapsed() < Duration::from_millis(40) {
            assert_eq!(Arc::strong_count(&semaphore), 1);
            return;
        }
    }
}

/// A submission drops up to eight that are known to be finished, and the next one continues.
#[test]
fn the_dependents_of_finished_work_are_dropped_by_the_next_submissions() {
    const DEPENDENTS: u64 = 100;
    const AT_A_TIME: u64 = 8;
    let (working, other) = (Device::new(), Device::new());
    let position = Arc::<AtomicU64>::default();
    let queue = working.queue_at(position.clone());
    let theirs = other.queue();
    let waited = (0..DEPENDENTS).map(|_| {
        let (line, semaphore) = shared(&working, &other);
        signal(&theirs, &line, 1);
        queue.submit(&[line.at(1)], |_| Ok(()), &[]).unwrap();
        semaphore.execute(1);
        line.at(1).wait(LONG).unwrap();
        semaphore
    });
    let waited: Vec<_> = waited.collect();
    let kept = || {
        let kept = waited.iter().filter(|of| Arc::strong_count(of) > 1);
        kept.count() as u64
    };
    assert_eq!(kept(), DEPENDENTS);
    position.store(DEPENDENTS, Ordering::SeqCst);
    queue.position().is_reached().unwrap();
    for dropped in 1..=DEPENDENTS.div_ceil(AT_A_TIME) {
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        let left = DEPENDENTS.saturating_sub(dropped * AT_A_TIME);
        // A watching thread may have a timeline for a moment.
        until("too many are kept", || kept() <= left);
        assert_eq!(kept(), left);
    }
}

/// Which call learns of the loss first.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Finds {
    /// A check, in which the value is reached before the loss.
    Check,
    /// A poll. The port of the lost device cannot be asked any more.
    Poll,
}

/// The lost device has waited for a value of the other device, so that value was reached.
#[rstest]
fn a_value_that_was_reached_stays_reached(#[values(Finds::Check, Finds::Poll)] finds: Finds) {
    let (working, lost) = (Device::new(), Device::new());
    let (line, semaphore) = shared(&working, &lost);
    signal(&working.queue(), &line, 1);
    lost.checks.lock().unwrap().begin = finds == Finds::Check;
    let theirs = lost.queue();
    theirs
        .submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])
        .unwrap();
    if finds == Finds::Check {
        lost.until_a_check_has_begun();
    }
    semaphore.execute(1);
    lost.lose();
    lost.checks.lock().unwrap().begun = false;
    fails(&line, 2);
    line.at(1).wait(LONG).unwrap();
    semaphore.until_made(1);
    assert_eq!(semaphore.made(), [(1, 2)]);
}

/// The wait has nothing to do with the device, except that the application may have.
#[test]
fn a_time_out_names_a_lost_device() {
    let (working, lost) = (Device::new(), Device::new());
    let (line, queue) = (working.timeline(), lost.queue());
    let times_out = || {
        let timed_out = line.at(1).wait(Duration::ZERO).unwrap_err();
        assert!(timed_out.is_timeout(), "{timed_out}");
        timed_out.to_string()
    };
    // Tests beside this one lose other devices.
    let name = lost.object.to_string();
    assert!(!times_out().contains(&name));
    lost.lose();
    let told = times_out();
    assert!(
        told.contains(&format!("{name} is lost: the check returned lost (700)")),
        "{told}"
    );
    drop(queue);
    assert!(!times_out().contains(&name));
}

/// A held submission makes no call that could find the loss. The device is checked all the same.
#[test]
fn what_a_lost_device_holds_fails() {
    let (working, lost) = (Device::new(), Device::new());
    let (shared, semaphore) = shared(&working, &lost);
    let [line, first, second, behind] = [(); 4].map(|()| working.timeline());
    let (ours, theirs) = (working.queue(), lost.queue());
    let held = theirs
        .submit(&[line.at(2)], |_| Ok(()), &[first.signal_at(1)])
        .unwrap();
    let signals = [second.signal_at(1), shared.signal_at(1)];
    theirs.submit(&[], |_| Ok(()), &signals).unwrap();
    ours.submit(&[second.at(1)], |_| Ok(()), &[behind.signal_at(1)])
        .unwrap();
    let open = first.at(1).wait(Duration::ZERO).unwrap_err();
    assert!(open.is_timeout(), "{open}");
    lost.lose();
    for (of, value) in [(&first, 1), (&second, 1), (&shared, 1), (&behind, 1)] {
        fails(of, value);
    }
    let told = held.wait_submitted(LONG).unwrap_err();
    assert!(matches!(told.root(), Error::DeviceLost { .. }), "{told}");
    let idle = theirs.idle(LONG).unwrap_err();
    assert!(matches!(idle.root(), Error::DeviceLost { .. }), "{idle}");
    // The driver has no signal, so none is made.
    assert_eq!(semaphore.made(), []);
    // The timeline that was waited for goes on, and so does the other device.
    line.signal(2).unwrap();
    let further = working.timeline();
    ours.submit(&[line.at(2)], |_| Ok(()), &[further.signal_at(1)])
        .unwrap();
    further.at(1).wait_pending(LONG).unwrap();
    // What is held from now on fails, too.
    let late = working.timeline();
    let signals = [late.signal_at(1)];
    theirs.submit(&[line.at(3)], |_| Ok(()), &signals).unwrap();
    fails(&late, 1);
}
