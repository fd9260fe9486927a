//! The programs of `missing/` with the right that each one lacks there. They compile.
//!
//! So each program of `missing/` fails to compile for the missing right only.
#![allow(
    unsafe_code,
    reason = "callers vouch for binary semaphores, and for what a descriptor is"
)]
#![expect(dead_code, reason = "compiled, and never called")]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use syncline::backend::Queue as _;
use syncline::negotiate::{BinarySignalOnly, BinaryWaitOnly};
use syncline::{
    Error, Point, Queue, Recorder, Result, Signal, SignalOnly, WaitOnly,
    handle::{BinaryFd, Origin, SyncFd, TimelineFd},
    host,
};

fn signaller(view: &SignalOnly) -> Result<()> {
    view.signal(1)
}

fn signaller_submits(queue: &Queue, view: &SignalOnly) -> Result<()> {
    let signal: Signal<'_> = view.signal_at(1);
    queue.submit(&[], |_| Ok(()), &[signal]).map(|_| ())
}

fn signaller_fails(view: &SignalOnly, cause: Error) {
    view.fail(cause);
}

fn waiter(view: &WaitOnly) -> Point<'_> {
    view.at(1)
}

fn waiter_asks(view: &WaitOnly) -> Result<u64> {
    view.value()
}

/// # Safety
/// As there.
unsafe fn binary_signaller(recorder: &mut Recorder<'_>, image: &BinarySignalOnly) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { image.signal(recorder) }
}

/// # Safety
/// As there.
unsafe fn binary_waiter(queue: &Queue, image: &BinaryWaitOnly) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { image.wait_on(queue) }
}

fn recorder_by_value(recorder: &mut host::Recorder<'_>) {
    Recorder::Host(recorder.reborrow()).keep(Arc::new(()));
    recorder.run(|| ());
}

fn nested_work(outer: &Queue, inner: Queue) -> Result<()> {
    let nested = |recorder: &mut Recorder<'_>| {
        recorder.keep(Arc::new(()));
        Ok(())
    };
    let work = move |recorder: &mut Recorder<'_>| {
        inner.submit(&[], nested, &[])?;
        recorder.keep(Arc::new(()));
        Ok(())
    };
    outer.submit(&[], work, &[]).map(|_| ())
}

fn each_handle_its_kind(timeline: TimelineFd, binary: BinaryFd, sync: SyncFd) {
    let _: (TimelineFd, BinaryFd, SyncFd) = (timeline, binary, sync);
}

/// # Safety
/// As there.
unsafe fn adopt(fd: OwnedFd, origin: Origin) -> TimelineFd {
    // SAFETY: the caller's promise.
    unsafe { TimelineFd::from_fd(fd, origin) }
}
