//! E3: recovery after the death of a process, when one of the survivors makes its signals.
//!
//! It must work although other survivors died, too, and with any content of the page.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rstest::rstest;
use syncline_core::backend::{Attachment, ByEngine, Port, Recovered, SharedPort};
use syncline_core::internal::RecoveryMode;
use syncline_core::{Error, Result, info::DeviceId};

use super::*;

/// The offset of the number of recovery turns in the page.
const RECOVERY_TURNS: u64 = 392;

/// A semaphore of a driver that several processes share.
#[derive(Default)]
struct Semaphore {
    value: AtomicU64,
    signals: Mutex<Vec<u64>>,
    /// True if the thread that made the last signal has the name [`RECOVERY_THREAD`].
    is_named: AtomicBool,
}

impl Semaphore {
    /// Waits for the signals `expected`, and checks that no others are made.
    #[track_caller]
    fn gets(&self, expected: &[u64]) {
        let made = || self.signals.lock().unwrap();
        // A recovery thread that has just started may have no name yet.
        until(|| made().len() >= expected.len() && !is_recovering());
        let mut made = made().clone();
        // A thread that the system did not run for longer than a turn signals late.
        made.sort_unstable();
        assert_eq!(made, expected);
    }
}

/// The name of a recovery thread, as the system cuts it.
const RECOVERY_THREAD: &str = "syncline-recove";

/// True if this process has a recovery thread.
fn is_recovering() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads.flatten().any(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == RECOVERY_THREAD)
    })
}

/// Otherwise [`Semaphore::gets`] would search for a wrong name and could miss a late signal.
#[test]
fn a_recovery_thread_has_the_name_that_tests_search_for() {
    let _alone = alone();
    let scene = Scene::new();
    let line = scene.with_device(true);
    scene.report_death();
    hears(&line);
    scene.semaphore.gets(&[6]);
    assert!(scene.semaphore.is_named.load(Ordering::SeqCst));
}

#[track_caller]
fn until(is_done: impl Fn() -> bool) {
    let patience = Instant::now() + LONG;
    while !is_done() {
        assert!(Instant::now() < patience, "the condition stays false");
        std::thread::yield_now();
    }
}

/// The port of one device for the semaphore.
struct Native {
    of: Arc<Semaphore>,
    is_readable: bool,
}

impl Port for Native {
    fn is_readable(&self) -> bool {
        self.is_readable
    }

    fn poll(&self) -> Result<Option<u64>> {
        let value = self.of.value.load(Ordering::SeqCst);
        Ok(self.is_readable.then_some(value))
    }

    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        unreachable!("another process signals")
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }
}

impl SharedPort for Native {
    fn recover(&self, _: u64, value: u64, _: ByEngine<'_>) -> Result<Recovered> {
        self.of.value.fetch_max(value, Ordering::SeqCst);
        let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        let named = name.trim_end() == RECOVERY_THREAD;
        self.of.is_named.store(named, Ordering::SeqCst);
        self.of.signals.lock().unwrap().push(value);
        Ok(Recovered::Signalled)
    }
}

/// A page whose signaller has reported 6 as pending and reached 2.
struct Scene {
    exporter: host::Exporter,
    page: Hostile,
    semaphore: Arc<Semaphore>,
}

impl Scene {
    fn new() -> Self {
        let (_, exporter) = host::Device::new().exportable_port(2).unwrap();
        exporter.counter().announce(6).unwrap();
        exporter.counter().note_pending(6);
        Self {
            page: Hostile::of(&exporter),
            exporter,
            semaphore: Arc::default(),
        }
    }

    /// The timeline in a process that has only the page.
    fn by_the_page(&self) -> Timeline {
        self.line(None)
    }

    /// The timeline in a process whose device also waits for the semaphore natively.
    fn with_device(&self, is_readable: bool) -> Timeline {
        let of = self.semaphore.clone();
        self.line(Some(Native { of, is_readable }))
    }

    fn line(&self, native: Option<Native>) -> Timeline {
        let page = host::Device::new().import_timeline(self.exporter.export().unwrap());
        let page = page.map_err(|rejected| rejected.error).unwrap();
        let native = native.map(|port| {
            Attachment::imported(DeviceId::new::<()>(), port).with_max_value_difference(1000)
        });
        Timeline::new("heard", 2, |_| {
            Ok([page].into_iter().chain(native).collect())
        })
        .unwrap()
    }

    /// A process with a connection to the signaller reports its death on the page, and then dies.
    fn report_death(&self) {
        let counter = self.exporter.counter();
        counter.fail_as_lost(&Error::work(io::Error::other("the process has died")));
    }
}

#[track_caller]
fn hears(line: &Timeline) {
    let told = line.at(3).wait(LONG).unwrap_err().to_string();
    assert!(told.contains("has died"), "{told}");
}

/// A survivor makes the signal in its turn, whatever number of turns the page shows.
///
/// The survivors that took the earlier turns have died, or a process wrote a wrong number.
#[rstest]
#[case::no_turn_taken(0)]
#[case::one_turn_taken(1)]
#[case::three_turns_taken(3)]
#[case::a_wrong_number(u32::MAX)]
fn turns_of_others_do_not_prevent_recovery(
    #[case] taken: u32,
    #[values(true, false)] is_readable: bool,
) {
    let _alone = alone();
    let scene = Scene::new();
    scene.page.write(RECOVERY_TURNS, &taken.to_ne_bytes());
    let line = scene.with_device(is_readable);
    scene.report_death();
    hears(&line);
    // Each earlier turn may have made the signal, so the value is higher by their number.
    let owed = 6 + u64::from(taken);
    scene.semaphore.gets(&[owed.min(1002)]);
}

/// A survivor that can read the semaphore makes the signal only if the value is too low.
#[rstest]
#[case::made_before_any_turn(0, 6, &[])]
#[case::made_in_an_earlier_turn(1, 6, &[])]
#[case::made_with_a_higher_value(1, 9, &[])]
#[case::made_with_a_value_that_is_too_low(1, 5, &[7])]
fn a_survivor_that_sees_the_signal_does_not_make_it(
    #[case] turn: u32,
    #[case] before: u64,
    #[case] made: &[u64],
) {
    let _alone = alone();
    let scene = Scene::new();
    let lines = [scene.with_device(true), scene.by_the_page()];
    scene.page.write(RECOVERY_TURNS, &u32::to_ne_bytes(turn));
    scene.semaphore.value.store(before, Ordering::SeqCst);
    scene.report_death();
    lines.iter().for_each(hears);
    scene.semaphore.gets(made);
}

/// Survivors that cannot read the semaphore all signal, each with a value that is higher by one.
#[test]
fn survivors_that_cannot_read_the_semaphore_all_signal() {
    let _alone = alone();
    let scene = Scene::new();
    let lines = [false; 3].map(|is_readable| scene.with_device(is_readable));
    scene.report_death();
    lines.iter().for_each(hears);
    scene.semaphore.gets(&[6, 7, 8]);
}

/// A survivor without a driver's semaphore raises the counter of the page and takes no turn.
#[test]
fn a_survivor_with_only_the_page_takes_no_turn() {
    let _alone = alone();
    let scene = Scene::new();
    let first = scene.by_the_page();
    scene.report_death();
    hears(&first);
    until(|| scene.page.read_word(REACHED) == 6);
    assert_eq!(scene.page.read_word(RECOVERY_TURNS) as u32, 0);
    let second = scene.with_device(true);
    hears(&second);
    scene.semaphore.gets(&[6]);
    assert_eq!(second.frozen_value(), 2, "a recovery signal counts");
}

/// Pending values of all ones fail the timeline. Recovery signals the last correct pending value.
///
/// The wrong values are found before the loss is reported.
#[rstest]
#[case::one_survivor(RecoveryMode::Alone)]
#[case::several_survivors(RecoveryMode::InTurn)]
fn a_pending_value_of_all_ones_is_not_signalled(#[case] survivors: RecoveryMode) {
    let _alone = alone();
    let scene = Scene::new();
    let line = scene.with_device(true);
    for at in [ANNOUNCED, ANNOUNCED + 8] {
        scene.page.write_word(at, u64::MAX);
    }
    let dead = Error::work(io::Error::other("the process has died"));
    let counter = scene.exporter.counter();
    line.downgrade().lose(counter, dead, survivors);
    let told = line.at(3).wait(LONG).unwrap_err().to_string();
    assert!(told.contains("all ones"), "{told}");
    scene.semaphore.gets(&[6]);
}

/// If the page shows a pending value that is too high, recovery signals the largest legal value.
#[rstest]
#[case::the_largest_word(u64::MAX - 1)]
#[case::the_highest_bit(1 << 63)]
#[case::just_above_the_largest_legal_value(1003)]
fn a_pending_value_that_is_too_high_is_not_signalled(
    #[case] pending: u64,
    #[values(RecoveryMode::Alone, RecoveryMode::InTurn)] survivors: RecoveryMode,
) {
    let _alone = alone();
    let scene = Scene::new();
    let line = scene.with_device(true);
    scene.page.write_word(ANNOUNCED, pending);
    scene.page.write_word(ANNOUNCED + 8, pending);
    let dead = Error::work(io::Error::other("the process has died"));
    let counter = scene.exporter.counter();
    line.downgrade().lose(counter, dead, survivors);
    hears(&line);
    scene.semaphore.gets(&[1002]);
    until(|| scene.page.read_word(REACHED) == 1002);
}

/// A port whose value is higher at each poll, because another process keeps raising it.
struct Rising(Arc<AtomicU64>);

/// The value at which it stops rising, so that a loop until the value stays the same ends.
const HIGH: u64 = 10_000;

impl Port for Rising {
    fn poll(&self) -> Result<Option<u64>> {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Some((before + 1).min(HIGH)))
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }

    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        unreachable!("another process signals")
    }
}

impl SharedPort for Rising {
    fn pending_elsewhere(&self) -> Result<u64> {
        Ok(HIGH)
    }
}

/// A process that keeps raising the value does not delay a survivor.
#[test]
fn a_value_that_keeps_rising_does_not_delay_a_survivor() {
    let _alone = alone();
    let scene = Scene::new();
    let polls = Arc::new(AtomicU64::new(2));
    let port = Attachment::new(DeviceId::new::<()>(), 2, Rising(polls.clone()))
        .with_max_value_difference(2 * HIGH)
        .signalled_elsewhere(true);
    let line = Timeline::new("heard", 2, |_| Ok([port].into_iter().collect())).unwrap();
    let dead = Error::work(io::Error::other("the process has died"));
    let counter = scene.exporter.counter();
    let before = polls.load(Ordering::SeqCst);
    line.downgrade().lose(counter, dead, RecoveryMode::Alone);
    let polled = polls.load(Ordering::SeqCst) - before;
    assert!(polled < 10, "{polled} polls");
    let told = line.at(HIGH).wait(LONG).unwrap_err().to_string();
    assert!(told.contains("has died"), "{told}");
}

/// The only survivor makes the signal at once, whatever number of turns the page shows.
#[test]
fn the_only_survivor_does_not_wait_for_turns() {
    let _alone = alone();
    let scene = Scene::new();
    scene.page.write(RECOVERY_TURNS, &5_u32.to_ne_bytes());
    let line = scene.with_device(true);
    let dead = Error::work(io::Error::other("the process has died"));
    let counter = scene.exporter.counter();
    line.downgrade().lose(counter, dead, RecoveryMode::Alone);
    let signals = scene.semaphore.signals.lock().unwrap();
    assert_eq!(*signals, [6]);
}

/// A process dies while it writes a failure. A survivor replaces the failure and reports the death.
///
/// Values that were reached stay reached.
#[rstest]
#[case::attempt_0(1)]
#[case::attempt_1(3)]
#[case::attempt_3(7)]
#[case::the_last_attempt(u32::MAX)]
fn an_incomplete_failure_of_a_dead_process_is_replaced(#[case] begun: u32) {
    let _alone = alone();
    let scene = Scene::new();
    let lines = [scene.by_the_page(), scene.by_the_page()];
    scene.page.write_word(REACHED, 5);
    scene.page.write(FAILED, &begun.to_ne_bytes());
    let dead = Error::work(io::Error::other("the process has died"));
    let counter = scene.exporter.counter();
    lines[0]
        .downgrade()
        .lose(counter, dead, RecoveryMode::InTurn);
    for line in &lines {
        let told = line.at(6).wait(LONG).unwrap_err().to_string();
        assert!(told.contains("has died"), "{told}");
        assert_eq!(line.frozen_value(), 5, "a reached value is lost");
    }
}

/// No process reports the death. The timeline still fails at the value that was reached.
#[test]
fn an_incomplete_failure_that_is_not_replaced_ends_the_timeline() {
    let _alone = alone();
    let scene = Scene::new();
    let line = scene.by_the_page();
    scene.page.write_word(REACHED, 5);
    scene.page.write(FAILED, &3_u32.to_ne_bytes());
    line.at(5).wait(LONG).unwrap();
    let told = line.at(6).wait(LONG).unwrap_err().to_string();
    assert!(told.contains("not said why"), "{told}");
    assert_eq!(line.frozen_value(), 5);
}
