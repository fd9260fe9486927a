//! E3: several survive a process, and one of them signals in its place: whoever else has died, and
//! whatever stands in the page.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use syncline_core::backend::{Attachment, ByEngine, Port, RemainingPeers};
use syncline_core::{DeviceId, Error, Result};

use super::*;

/// Where the page counts turns.
const RELEASED: u64 = 392;

/// A semaphore of a driver's that several processes have.
#[derive(Default)]
struct Semaphore {
    value: AtomicU64,
    signals: Mutex<Vec<u64>>,
    /// The thread that has made the last of them has the name [`RELEASES`].
    is_named: AtomicBool,
}

impl Semaphore {
    /// These are the signals that are made, and no others.
    #[track_caller]
    fn gets(&self, expected: &[u64]) {
        let made = || self.signals.lock().unwrap();
        // A thread may have begun that has no name yet.
        until(|| made().len() >= expected.len() && !is_releasing());
        let mut made = made().clone();
        // Who was kept from running for longer than a turn comes too late for his.
        made.sort_unstable();
        assert_eq!(made, expected);
    }
}

/// What the system keeps of the name of a thread that lets something go.
const RELEASES: &str = "syncline-releas";

/// A thread of this process is about to let something go.
fn is_releasing() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads.flatten().any(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == RELEASES)
    })
}

/// Otherwise [`Semaphore::gets`] would look for a thread that has another name, and not see a
/// signal too many.
#[test]
fn who_lets_go_has_the_name_that_is_looked_for() {
    let _alone = alone();
    let scene = Scene::new();
    let line = scene.with_device(true);
    scene.tell();
    hears(&line);
    scene.semaphore.gets(&[6]);
    assert!(scene.semaphore.is_named.load(Ordering::SeqCst));
}

#[track_caller]
fn until(come: impl Fn() -> bool) {
    let patience = Instant::now() + LONG;
    while !come() {
        assert!(Instant::now() < patience, "it does not come");
        std::thread::yield_now();
    }
}

/// What one device has of it.
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

    fn recover(&self, value: u64, _: ByEngine<'_>) -> Result<bool> {
        self.of.value.fetch_max(value, Ordering::SeqCst);
        let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        let named = name.trim_end() == RELEASES;
        self.of.is_named.store(named, Ordering::SeqCst);
        self.of.signals.lock().unwrap().push(value);
        Ok(true)
    }
}

/// A page whose signaller has promised 6, and come to 2.
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

    /// The timeline as a process has it that waits by the page alone.
    fn by_the_page(&self) -> Timeline {
        self.line(None)
    }

    /// As a process has it whose device waits for the semaphore natively.
    fn with_device(&self, is_readable: bool) -> Timeline {
        let of = self.semaphore.clone();
        self.line(Some(Native { of, is_readable }))
    }

    fn line(&self, native: Option<Native>) -> Timeline {
        let page = host::Device::new().import_timeline(self.exporter.export().unwrap());
        let page = page.map_err(|rejected| rejected.error).unwrap();
        let native = native.map(|port| {
            Attachment::imported(DeviceId::new(), port).with_max_value_difference(1000)
        });
        Timeline::new("heard", 2, |_| {
            Ok([page].into_iter().chain(native).collect())
        })
        .unwrap()
    }

    /// One with a way to the signaller tells everybody of its death, and dies.
    fn tell(&self) {
        let counter = self.exporter.counter();
        counter.fail_as_lost(&Error::work(io::Error::other("the process has died")));
    }
}

#[track_caller]
fn hears(line: &Timeline) {
    let told = line.at(3).wait(LONG).unwrap_err().to_string();
    assert!(told.contains("has died"), "{told}");
}

/// Those who had a turn have died with it, or nobody had one and somebody keeps to nothing.
#[test]
fn nobody_can_keep_survivors_from_letting_go() {
    let _alone = alone();
    for taken in [0, 1, 3, u32::MAX] {
        for is_readable in [true, false] {
            let scene = Scene::new();
            scene.page.write(RELEASED, &taken.to_ne_bytes());
            let line = scene.with_device(is_readable);
            scene.tell();
            hears(&line);
            // As others may have made it, and what is signalled has to grow.
            let owed = 6 + u64::from(taken);
            scene.semaphore.gets(&[owed.min(1002)]);
        }
    }
}

/// Who can look sees that another one has done it; what is not enough he makes up for.
#[test]
fn who_sees_it_done_does_nothing() {
    let _alone = alone();
    for (turn, before, made) in [(0, 6, &[][..]), (1, 6, &[]), (1, 9, &[]), (1, 5, &[7])] {
        let scene = Scene::new();
        let lines = [scene.with_device(true), scene.by_the_page()];
        scene.page.write(RELEASED, &u32::to_ne_bytes(turn));
        scene.semaphore.value.store(before, Ordering::SeqCst);
        scene.tell();
        lines.iter().for_each(hears);
        scene.semaphore.gets(made);
    }
}

/// Those who cannot look make it again, one higher each.
#[test]
fn who_sees_nothing_lets_go_too() {
    let _alone = alone();
    let scene = Scene::new();
    let lines = [false; 3].map(|is_readable| scene.with_device(is_readable));
    scene.tell();
    lines.iter().for_each(hears);
    scene.semaphore.gets(&[6, 7, 8]);
}

/// Who has nothing of a driver's raises the page's counter, and is in nobody's way.
#[test]
fn who_has_the_page_alone_takes_no_turn() {
    let _alone = alone();
    let scene = Scene::new();
    let first = scene.by_the_page();
    scene.tell();
    hears(&first);
    until(|| scene.page.read_word(REACHED) == 6);
    assert_eq!(scene.page.read_word(RELEASED) as u32, 0);
    let second = scene.with_device(true);
    hears(&second);
    scene.semaphore.gets(&[6]);
    assert_eq!(second.frozen_value(), 2, "a signal of the dead counts");
}

/// All ones are no promise: that is found before the loss is told of, and owed is what was pending
/// before.
#[test]
fn all_ones_are_no_promise() {
    let _alone = alone();
    for remaining in [RemainingPeers::One, RemainingPeers::Several] {
        let scene = Scene::new();
        let line = scene.with_device(true);
        for at in [ANNOUNCED, ANNOUNCED + 8] {
            scene.page.write_word(at, u64::MAX);
        }
        let dead = Error::work(io::Error::other("the process has died"));
        let counter = scene.exporter.counter();
        line.downgrade().lose(counter, dead, remaining);
        let told = line.at(3).wait(LONG).unwrap_err().to_string();
        assert!(told.contains("all ones"), "{told}");
        scene.semaphore.gets(&[6]);
    }
}

/// What the page promises is a lie: no driver is given more than it may be.
#[test]
fn a_lie_reaches_no_driver() {
    let _alone = alone();
    for lie in [u64::MAX - 1, 1 << 63, 1003] {
        for remaining in [RemainingPeers::One, RemainingPeers::Several] {
            let scene = Scene::new();
            let line = scene.with_device(true);
            scene.page.write_word(ANNOUNCED, lie);
            scene.page.write_word(ANNOUNCED + 8, lie);
            let dead = Error::work(io::Error::other("the process has died"));
            let counter = scene.exporter.counter();
            line.downgrade().lose(counter, dead, remaining);
            hears(&line);
            scene.semaphore.gets(&[1002]);
            until(|| scene.page.read_word(REACHED) == 1002);
        }
    }
}

/// One that shows more at each look: whoever has its page keeps raising it.
struct Rising(Arc<AtomicU64>);

/// Then it stands still, so that who looks until nothing more comes ends some time.
const HIGH: u64 = 10_000;

impl Port for Rising {
    fn poll(&self) -> Result<Option<u64>> {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Some((before + 1).min(HIGH)))
    }

    fn pending_elsewhere(&self) -> Result<u64> {
        Ok(HIGH)
    }

    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        unreachable!("another process signals")
    }
}

/// Nobody keeps a survivor busy by raising what the dead has signalled.
#[test]
fn who_goes_on_raising_a_page_holds_nobody_up() {
    let _alone = alone();
    let scene = Scene::new();
    let looks = Arc::new(AtomicU64::new(2));
    let port = Attachment::new(DeviceId::new(), 2, Rising(looks.clone()))
        .with_max_value_difference(2 * HIGH)
        .signalled_elsewhere(true);
    let line = Timeline::new("heard", 2, |_| Ok([port].into_iter().collect())).unwrap();
    let dead = Error::work(io::Error::other("the process has died"));
    let counter = scene.exporter.counter();
    let before = looks.load(Ordering::SeqCst);
    line.downgrade().lose(counter, dead, RemainingPeers::One);
    let looked = looks.load(Ordering::SeqCst) - before;
    assert!(looked < 10, "{looked} looks");
    let told = line.at(HIGH).wait(LONG).unwrap_err().to_string();
    assert!(told.contains("has died"), "{told}");
}

/// Nobody else is there: at once, whatever stands in the page.
#[test]
fn the_only_survivor_waits_for_nobody() {
    let _alone = alone();
    let scene = Scene::new();
    scene.page.write(RELEASED, &5_u32.to_ne_bytes());
    let line = scene.with_device(true);
    let dead = Error::work(io::Error::other("the process has died"));
    let counter = scene.exporter.counter();
    line.downgrade().lose(counter, dead, RemainingPeers::One);
    let signals = scene.semaphore.signals.lock().unwrap();
    assert_eq!(*signals, [6]);
}

/// A process is killed while it says why it fails the timeline: what it had reached counts, and
/// others say that it has died.
#[test]
fn who_dies_while_he_says_why_is_told_of() {
    let _alone = alone();
    for begun in [1_u32, 3, 7, u32::MAX] {
        let scene = Scene::new();
        let lines = [scene.by_the_page(), scene.by_the_page()];
        scene.page.write_word(REACHED, 5);
        scene.page.write(FAILED, &begun.to_ne_bytes());
        let dead = Error::work(io::Error::other("the process has died"));
        let counter = scene.exporter.counter();
        lines[0]
            .downgrade()
            .lose(counter, dead, RemainingPeers::Several);
        for line in &lines {
            let told = line.at(6).wait(LONG).unwrap_err().to_string();
            assert!(told.contains("has died"), "{told}");
            assert_eq!(line.frozen_value(), 5, "what was reached is lost");
        }
    }
}

/// Nobody knows of the death: it ends all the same, where it was.
#[test]
fn what_nobody_says_ends_all_the_same() {
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
