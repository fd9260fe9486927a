//! A wait in a process that cannot start threads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncline_core::backend::{Attachment, ByEngine, Port, Watch, Watcher};
use syncline_core::{DeviceId, Result, Timeline};

/// A device whose ports need a watching thread.
#[derive(Default)]
struct Driver {
    watcher: Watcher,
    watched: AtomicBool,
}

impl Watch for Driver {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, _: &[(&dyn Port, u64)], _: Instant) -> Result<()> {
        self.watched.store(true, Ordering::SeqCst);
        std::thread::yield_now();
        Ok(())
    }

    fn nudge(&self) {}
}

struct Counter(Arc<AtomicU64>);

impl Port for Counter {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::SeqCst)))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.store(value, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_wait_ends_although_no_thread_can_be_started_to_watch() {
    if crate::runs_apart() {
        return;
    }
    let driver = Arc::new(Driver::default());
    let counter = Arc::new(AtomicU64::new(0));
    let line = Timeline::new("line", 0, |_| {
        let attachment = Attachment::new(DeviceId::new(), 0, Counter(counter.clone()))
            .watched_by(driver.clone())
            .signalled_elsewhere(true);
        Ok([attachment].into_iter().collect())
    })
    .unwrap();
    let (go, told) = std::sync::mpsc::channel::<()>();
    let (runs, running) = std::sync::mpsc::channel::<()>();
    let signalled = counter.clone();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            runs.send(()).unwrap();
            told.recv().unwrap();
            std::thread::sleep(Duration::from_millis(50));
            signalled.store(1, Ordering::SeqCst);
        });
        // A thread that is starting needs memory, so the limit comes after it runs.
        running.recv().unwrap();
        // Address space for smaller objects, but not for another stack of 2 MiB.
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        let used = pages * rustix::param::page_size() as u64;
        let before = getrlimit(Resource::As);
        setrlimit(
            Resource::As,
            Rlimit {
                current: Some(used + (1 << 20)),
                maximum: before.maximum,
            },
        )
        .unwrap();
        let refused = std::thread::Builder::new().spawn(|| ()).is_err();
        go.send(()).unwrap();
        let started = Instant::now();
        let ended = line.at(1).wait(Duration::from_secs(20));
        let took = started.elapsed();
        setrlimit(Resource::As, before).unwrap();
        other.join().unwrap();
        assert!(refused, "the system still starts threads");
        ended.unwrap();
        assert!(
            !driver.watched.load(Ordering::SeqCst),
            "a thread called watch"
        );
        // The wait also polls at its time-out.
        assert!(
            took < Duration::from_secs(10),
            "it slept through the signal"
        );
    });
    // Without the limit the next wait has a watching thread.
    counter.store(0, Ordering::SeqCst);
    assert!(line.at(2).wait(Duration::from_millis(20)).is_err());
    assert!(driver.watched.load(Ordering::SeqCst));
}
