//! Code of the application and of a backend that panics where the engine runs it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rstest::rstest;
use syncline_core::backend::{Attachment, ByEngine, Device as _, Port, Queue as _, Watch, Watcher};
use syncline_core::{Error, QueueKind, Result, Timeline, host, info::DeviceId};

use crate::until;
use crate::words::Words;

const LONG: Duration = Duration::from_secs(20);

/// An error whose text panics, and that counts how often it was asked for its text.
#[derive(Debug, Default)]
struct NoText(Arc<AtomicUsize>);

impl fmt::Display for NoText {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("no text today");
    }
}

impl std::error::Error for NoText {}

/// E5: the text is read when the failure is made, and no report of it runs the application's code.
#[test]
fn the_text_of_an_error_is_read_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let error = Error::work(NoText(asked.clone()));
    let device = host::Device::new();
    let line = device.timeline("line").unwrap();
    line.fail(error);
    for _ in 0..3 {
        let told = line.at(1).wait(LONG).unwrap_err();
        assert!(told.to_string().contains("no text today"));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// What a device of an author does at a call.
#[derive(Default)]
struct Wild {
    words: Arc<Words>,
    watch_panics: AtomicBool,
}

impl Watch for Wild {
    fn watcher(&self) -> &Watcher {
        self.words.watcher()
    }
    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        assert!(!self.watch_panics.load(Ordering::SeqCst), "watch panics");
        self.words.watch(ports, until)
    }
    fn nudge(&self) {
        self.words.nudge();
    }
}

/// A counter whose calls panic once it is told so.
struct WildPort {
    word: Arc<AtomicU64>,
    panics: Arc<AtomicBool>,
}

impl Port for WildPort {
    fn poll(&self) -> Result<Option<u64>> {
        assert!(!self.panics.load(Ordering::SeqCst), "poll panics");
        Ok(Some(self.word.load(Ordering::SeqCst)))
    }
    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        assert!(!self.panics.load(Ordering::SeqCst), "signal panics");
        self.word.store(value, Ordering::SeqCst);
        Ok(())
    }
}

/// A timeline of `device`, whose counter something else signals, too.
fn wild(
    device: &Arc<Wild>,
    id: DeviceId,
    label: &str,
) -> (Timeline, Arc<AtomicU64>, Arc<AtomicBool>) {
    let (word, panics) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let port = WildPort {
        word: word.clone(),
        panics: panics.clone(),
    };
    let attachment = Attachment::new(id, 0, port)
        .watched_by(device.clone())
        .signalled_elsewhere(true);
    let line = Timeline::new(label, 0, |_| Ok([attachment].into_iter().collect()));
    (line.unwrap(), word, panics)
}

/// Waits for `value` on another thread, which only the watching thread wakes.
fn awaited(line: &Timeline, value: u64) -> Receiver<Result<()>> {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (tell, told) = channel();
    let (ready, is_ready) = channel();
    let mut future = line.at(value).into_future();
    thread::spawn(move || {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(&mut future);
        loop {
            let polled = future.as_mut().poll(&mut context);
            let _ = ready.send(());
            if let Poll::Ready(ended) = polled {
                let _ = tell.send(ended);
                return;
            }
            thread::park();
        }
    });
    is_ready.recv().unwrap();
    told
}

/// E3, E4: a port whose poll panics fails its timeline. Others of the device go on.
#[test]
fn a_port_that_panics_does_not_end_the_watching_thread() {
    let (device, id) = (Arc::new(Wild::default()), host::Device::new().id());
    let (bad, _, panics) = wild(&device, id, "bad");
    let (good, word, _) = wild(&device, id, "good");
    let (never, comes) = (awaited(&bad, 1), awaited(&good, 1));
    panics.store(true, Ordering::SeqCst);
    device.nudge();
    let error = never
        .recv_timeout(LONG)
        .expect("the wait hangs")
        .unwrap_err();
    let text = error.root().to_string();
    assert!(
        matches!(
            error.root(),
            Error::Native {
                call: "Port::poll",
                ..
            }
        ),
        "{text}"
    );
    assert!(text.contains("it panicked: poll panics"), "{text}");
    word.store(1, Ordering::SeqCst);
    device.nudge();
    comes
        .recv_timeout(LONG)
        .expect("the other wait hangs")
        .unwrap();
}

/// E3: a watch that panics counts as one that fails. The ports are polled instead.
#[test]
fn a_watch_that_panics_does_not_end_the_watching_thread() {
    let (device, id) = (Arc::new(Wild::default()), host::Device::new().id());
    let (line, word, _) = wild(&device, id, "line");
    device.watch_panics.store(true, Ordering::SeqCst);
    let comes = awaited(&line, 1);
    word.store(1, Ordering::SeqCst);
    comes.recv_timeout(LONG).expect("the wait hangs").unwrap();
    device.watch_panics.store(false, Ordering::SeqCst);
    let comes = awaited(&line, 2);
    word.store(2, Ordering::SeqCst);
    device.nudge();
    comes.recv_timeout(LONG).expect("the wait hangs").unwrap();
}

/// E3: a host signal whose port panics fails the timeline, and no wait hangs for its claim.
#[test]
fn a_signal_that_panics_fails_the_timeline() {
    let (device, id) = (Arc::new(Wild::default()), host::Device::new().id());
    let (line, _, panics) = wild(&device, id, "line");
    panics.store(true, Ordering::SeqCst);
    let told = catch_unwind(AssertUnwindSafe(|| line.signal(1)));
    let error = told.expect("the panic comes through").unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    let error = line.at(1).wait(LONG).unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error}");
}

/// T8: a waker whose drop panics does not keep a future from being dropped.
#[test]
#[allow(unsafe_code, reason = "a waker whose drop panics")]
fn a_waker_whose_drop_panics_ends_at_the_future() {
    use std::task::{RawWaker, RawWakerVTable};
    fn clone(data: *const ()) -> RawWaker {
        RawWaker::new(data, &TABLE)
    }
    fn nothing(_: *const ()) {}
    fn drop_it(_: *const ()) {
        panic!("the waker is dropped");
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, drop_it);
    // SAFETY: the functions use no data, and any thread may call them.
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) };
    let device = host::Device::new();
    let line = device.timeline("line").unwrap();
    let mut future = Box::pin(line.at(1).into_future());
    let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    // The test's own waker never drops.
    std::mem::forget(waker);
    catch_unwind(AssertUnwindSafe(|| drop(future))).expect("the panic comes through");
    line.signal(1).unwrap();
    line.at(1).wait(LONG).unwrap();
}

/// A closure panics on the worker thread, alone in its submission or beside another closure.
#[rstest]
#[case::alone(false)]
#[case::beside_another_closure(true)]
fn a_panic_on_the_worker_fails_only_its_signals_and_dependents(#[case] more: bool) {
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let (line, next, fine) = (
        device.timeline("line").unwrap(),
        device.timeline("next").unwrap(),
        device.timeline("fine").unwrap(),
    );
    let oh = move |recorder: &mut host::Recorder| {
        recorder.run(|| panic!("oh"));
        if more {
            recorder.run(|| ());
        }
        Ok(())
    };
    let never = |recorder: &mut host::Recorder| {
        recorder.run(|| unreachable!("its wait has failed"));
        Ok(())
    };
    queue.submit(&[], oh, &[line.signal_at(1)]).unwrap();
    queue
        .submit(&[line.at(1)], never, &[line.signal_at(2)])
        .unwrap();
    queue
        .submit(&[line.at(1)], never, &[next.signal_at(1)])
        .unwrap();
    queue.submit(&[], |_| Ok(()), &[fine.signal_at(1)]).unwrap();
    for failed in [line.at(1), line.at(2), next.at(1)] {
        let cause = failed.wait(LONG).unwrap_err().to_string();
        assert!(cause.contains("oh"), "{cause}");
    }
    fine.at(1).wait(LONG).unwrap();
    queue.idle(LONG).unwrap();
}

/// An error that counts its drops, and panics in each.
#[derive(Debug)]
struct Bomb(Arc<AtomicUsize>);

impl fmt::Display for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bomb")
    }
}

impl std::error::Error for Bomb {}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("dropped");
    }
}

/// The worker threads have the last handles of the cause.
#[rstest]
#[case::no_signal(0)]
#[case::one_signal(1)]
#[case::two_signals(2)]
fn a_cause_that_a_worker_drops_does_not_harm_the_worker(#[case] signals: usize) {
    let device = host::Device::new();
    let [first, second] =
        ["first", "second"].map(|label| device.queue(QueueKind::Compute, label).unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let line = device.timeline("line").unwrap();
    let [out, more] = ["out", "more"].map(|label| device.timeline(label).unwrap());
    let blocks = move |recorder: &mut host::Recorder| {
        recorder.run(move || {
            let _ = gate.recv();
        });
        Ok(())
    };
    first.submit(&[], blocks, &[line.signal_at(1)]).unwrap();
    let runs = |recorder: &mut host::Recorder| {
        recorder.run(|| ());
        Ok(())
    };
    let all = [out.signal_at(1), more.signal_at(1)];
    second.submit(&[line.at(1)], runs, &all[..signals]).unwrap();
    line.fail(Error::work(Bomb(count.clone())));
    drop((line, out, more));
    drop(go);
    until("the cause is not dropped", || {
        count.load(Ordering::SeqCst) > 0
    });
    for queue in [&first, &second] {
        queue.submit(&[], runs, &[]).unwrap();
        queue.idle(LONG).unwrap();
    }
}
