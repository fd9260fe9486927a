//! Drivers are not taken down while the process exits.

#![allow(unsafe_code, reason = "registers functions that run at exit")]

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use syncline_core::backend::kit::{RunsInProcess, TeardownGuard};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::internal::{DroppedByMaker, MakerProcess};
use syncline_core::{QueueKind, host};

const CHILD: &str = "SYNCLINE_TEST_EXITS";

static EXITS: AtomicBool = AtomicBool::new(false);

/// True once the destructors of a driver have run.
static DESTRUCTED: AtomicBool = AtomicBool::new(false);

/// Writes to standard error without a lock or buffer, because std may have shut down by then.
fn say(what: &str) {
    // SAFETY: the pointer and the length are those of `what`.
    unsafe { libc::write(2, what.as_ptr().cast(), what.len()) };
}

extern "C" fn exit_begins() {
    EXITS.store(true, Ordering::SeqCst);
}

/// An object of an application that takes a driver down when it is dropped.
struct Owner(&'static str);

impl Drop for Owner {
    fn drop(&mut self) {
        say(self.0);
    }
}

/// Stands for the destructors of a driver.
extern "C" fn destructors() {
    say("destructors run, ");
    DESTRUCTED.store(true, Ordering::SeqCst);
    TeardownGuard::drop_owner(Owner("an owner is dropped, "));
    drop(DroppedByMaker::new(Owner("a value is dropped, ")));
    if MakerProcess::this().for_destroy().is_some() {
        say("objects are still destroyed, ");
    }
    match TeardownGuard::begin() {
        Some(_) => say("and drivers are still taken down"),
        None => say("and no driver is taken down any more"),
    }
}

/// A queue whose work ends after the exit has begun.
#[derive(Default)]
struct Works(AtomicBool);

impl RunsInProcess for Works {
    fn is_idle(&self) -> bool {
        if DESTRUCTED.load(Ordering::SeqCst) {
            say("a driver is asked afterwards, ");
        }
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        say("the queue is dropped, ");
    }
}

fn start_work() -> Arc<Works> {
    let works = Arc::new(Works::default());
    let queue: Weak<Works> = Arc::downgrade(&works);
    TeardownGuard::register_queue(queue);
    // SAFETY: the function does not unwind.
    unsafe { libc::atexit(exit_begins) };
    let working = works.clone();
    thread::spawn(move || {
        while !EXITS.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // An exit that does not wait runs the destructors before this ends.
        thread::sleep(Duration::from_millis(50));
        say("work ends, ");
        working.0.store(true, Ordering::SeqCst);
    });
    works
}

/// A thread that waits for a value that no party signals.
static WAITING: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// Stands for the application's own function at exit, which joins its threads.
extern "C" fn joins() {
    if let Some(thread) = WAITING.lock().unwrap().take() {
        thread.join().unwrap();
    }
}

/// Waits in a thread, which tells what calls return while the process exits.
fn waits_in_a_thread() {
    // SAFETY: the function does not unwind.
    unsafe { libc::atexit(joins) };
    let device = host::Device::new();
    let line = device.timeline("line").unwrap();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    TeardownGuard::register();
    let (begun, begins) = channel();
    let thread = thread::spawn(move || {
        begun.send(()).unwrap();
        let waited = line.at(1).wait(Duration::MAX);
        let signalled = line.signal(1);
        let submitted = queue
            .submit(&[], |_| Ok(()), &[line.signal_at(1)])
            .map(drop);
        for ended in [waited, signalled, submitted] {
            let is_of_exit = ended.is_err_and(|error| error.to_string().contains("exits"));
            say(if is_of_exit {
                "refused, "
            } else {
                "accepted, "
            });
        }
        // Its drops come after the drivers' destructors.
        std::mem::forget((device, line, queue));
    });
    begins.recv().unwrap();
    *WAITING.lock().unwrap() = Some(thread);
    std::process::exit(0);
}

/// A thread has a guard while the first library of a driver is loaded, and another one at the exit.
fn guarded_before() {
    let (begun, begins) = channel();
    let (loaded, loads) = channel();
    thread::spawn(move || {
        let first = MakerProcess::this().for_destroy();
        begun.send(()).unwrap();
        loads.recv().unwrap();
        drop(first);
        let second = MakerProcess::this().for_destroy();
        begun.send(()).unwrap();
        while !EXITS.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // An exit that does not wait runs the destructors before this ends.
        thread::sleep(Duration::from_millis(50));
        say("an object is destroyed, ");
        drop(second);
    });
    begins.recv().unwrap();
    TeardownGuard::register();
    loaded.send(()).unwrap();
    begins.recv().unwrap();
    // SAFETY: the function does not unwind.
    unsafe { libc::atexit(exit_begins) };
    std::process::exit(0);
}

/// Not a test. The child of the tests below runs it.
#[test]
fn the_process_that_exits() {
    let Ok(how) = std::env::var(CHILD) else {
        return;
    };
    if how.ends_with("loaded later") {
        TeardownGuard::register();
    }
    // SAFETY: the function does not unwind.
    unsafe { libc::atexit(destructors) };
    if how == "many" {
        let before = allocated();
        for _ in 0..10_000 {
            drop(TeardownGuard::begin());
        }
        // 10 000 entries of 32 bytes would be more.
        let grown = allocated().saturating_sub(before);
        say(if grown < 100_000 { "flat, " } else { "grown, " });
        std::process::exit(0);
    }
    if how == "moving, loaded later" {
        TeardownGuard::register();
        let (begun, begins) = channel();
        // Moves the registration all the time. An exit must find it at any time.
        thread::spawn(move || {
            for n in 0.. {
                drop(TeardownGuard::begin());
                if n == 100 {
                    begun.send(()).unwrap();
                }
            }
        });
        begins.recv().unwrap();
        std::process::exit(0);
    }
    if how == "waiting" {
        waits_in_a_thread();
    }
    if how == "guarded before" {
        guarded_before();
    }
    if how == "prepared" || how == "loaded later" {
        TeardownGuard::register();
        std::process::exit(0);
    }
    if how == "stuck" {
        for _ in 0..200 {
            drop(TeardownGuard::begin());
            // The library's function is then not the last one that is registered.
            // SAFETY: the function does not unwind.
            unsafe { libc::atexit(exit_begins) };
        }
        let (begun, begins) = channel();
        thread::spawn(move || {
            let _stuck = TeardownGuard::begin();
            begun.send(()).unwrap();
            thread::sleep(Duration::from_secs(600));
        });
        begins.recv().unwrap();
        std::process::exit(0);
    }
    if how.starts_with("working") {
        let gone = Arc::new(Works::default());
        let queue: Weak<Works> = Arc::downgrade(&gone);
        TeardownGuard::register_queue(queue);
        drop(gone);
        let _works = start_work();
        std::process::exit(0);
    }
    let (begun, begins) = channel();
    thread::spawn(move || {
        let going = TeardownGuard::begin();
        begun.send(()).unwrap();
        while !EXITS.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // An exit that does not wait runs the destructors before this ends.
        thread::sleep(Duration::from_millis(50));
        say("a driver is taken down, ");
        drop(going);
    });
    begins.recv().unwrap();
    // The function that is registered last runs first.
    // SAFETY: the function does not unwind.
    unsafe { libc::atexit(exit_begins) };
    std::process::exit(0);
}

/// The bytes of all live allocations of this process.
fn allocated() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::mallinfo2() }.uordblks
}

fn said(how: &str) -> String {
    let _alone = crate::alone();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "exits::the_process_that_exits", "--nocapture"])
        .env(CHILD, how)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success(), "{}: {said}", child.status);
    said
}

/// No driver was taken down before the exit.
#[test]
fn an_exit_does_not_take_a_loaded_driver_down() {
    assert_eq!(
        said("prepared"),
        "destructors run, and no driver is taken down any more"
    );
}

/// The first registration keeps the guards that other threads have by then.
#[test]
fn an_exit_waits_for_guards_from_before_the_first_driver() {
    assert_eq!(
        said("guarded before"),
        "an object is destroyed, destructors run, and no driver is taken down any more"
    );
}

/// The registration moves behind the destructors of a driver that is loaded after the first one.
#[test]
fn an_exit_does_not_take_down_a_driver_that_was_loaded_later() {
    assert_eq!(
        said("loaded later"),
        "destructors run, and no driver is taken down any more"
    );
}

/// A thread that waits must not keep the process from exiting. A signal in memory needs no driver.
#[test]
fn an_exit_ends_waits_and_refuses_submissions() {
    assert_eq!(
        said("waiting"),
        "refused, accepted, refused, destructors run, and no driver is taken down any more"
    );
}

/// While the registration moves, an exit finds another one.
#[test]
fn an_exit_finds_a_registration_that_moves() {
    for _ in 0..40 {
        assert_eq!(
            said("moving, loaded later"),
            "destructors run, and no driver is taken down any more"
        );
    }
}

#[test]
fn ten_thousand_teardowns_leave_no_memory_allocated() {
    assert_eq!(
        said("many"),
        "flat, destructors run, and no driver is taken down any more"
    );
}

#[test]
fn an_exit_waits_for_a_driver_that_is_being_taken_down() {
    assert_eq!(
        said("taking down"),
        "a driver is taken down, destructors run, and no driver is taken down any more"
    );
}

/// A queue that is gone is not waited for.
#[test]
fn an_exit_waits_for_work_on_threads_of_the_process() {
    assert_eq!(
        said("working"),
        "the queue is dropped, work ends, destructors run, and no driver is taken down any more"
    );
}

/// The first registration runs after the destructors of such a driver.
#[test]
fn an_exit_asks_no_driver_after_its_destructors() {
    assert_eq!(
        said("working, loaded later"),
        "the queue is dropped, work ends, destructors run, and no driver is taken down any more"
    );
}

#[test]
fn an_exit_waits_two_seconds_in_all_for_a_stuck_teardown() {
    let begun = Instant::now();
    assert_eq!(
        said("stuck"),
        "destructors run, and no driver is taken down any more"
    );
    let waited = begun.elapsed();
    // One wait of two seconds for each of the 200 teardowns would take longer.
    assert!(waited < Duration::from_secs(60), "{waited:?}");
}
