//! F8: pollable descriptors as fences, and eventfds that are notified of points.

#![allow(
    unsafe_code,
    reason = "a descriptor that is not open can only be made up"
)]

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::time::Timespec;
use syncline::{Error, handle::Rejected};

use super::kinds::kinds;
use super::until;
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::footprint::grows_nothing;
use crate::user::{Fence, wait_all, wait_any};
use crate::{RecorderOf, Subject, World, patience};

/// A wait that must time out.
const SHORT: Duration = Duration::from_millis(3);

/// No process has that many descriptors.
const CLOSED: RawFd = 1_000_000;

/// Kinds that can never be polled, or for writing only.
const NEVER_READABLE: [&str; 8] = [
    "the writing end of a pipe",
    "an empty file",
    "a sealed file",
    "a directory",
    "a path",
    "the program",
    "/dev/null",
    "/dev/zero",
];

cases! {
    "descriptor.eventfd_completes_a_fence": [F8 F4 T5] => eventfd_completes;
    "descriptor.a_readiness_seen_stays": [F8] => drained;
    "descriptor.minus_one_is_done": [F8] => minus_one;
    "descriptor.recording_is_refused": [F8 E5] => recording;
    "descriptor.hang_up_is_not_success": [F8 E1 E2] => hang_up;
    "descriptor.every_kind_that_can_be_polled": [F8] => pollable;
    "descriptor.hostile_kinds": [F8 X4 E5] => hostile;
    "descriptor.closed_once": [F8 X4] => closed_once;
    "descriptor.a_thousand_leave_nothing": [F8 X4] => a_thousand;
    "descriptor.eventfd_hears_of_points": [F8 T10] => hears;
    "descriptor.out_and_in_again": [F8] => out_and_in;
}

fn system(error: rustix::io::Errno) -> Stop {
    Stop::Skipped(format!("the system refuses a descriptor: {error}"))
}

fn refused(error: std::io::Error) -> Stop {
    Stop::Skipped(format!("the system refuses a descriptor: {error}"))
}

/// Returns a socket address that is unique and outside the file system.
fn unnamed() -> Result<SocketAddr, Stop> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("syncline-conformance-{}-{number}", std::process::id());
    SocketAddr::from_abstract_name(name).map_err(refused)
}

fn event() -> Result<OwnedFd, Stop> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system)
}

fn twin(fd: &OwnedFd) -> Result<OwnedFd, Stop> {
    fd.try_clone().map_err(refused)
}

/// Creates an eventfd, and a fence of a duplicate of it.
fn pair<S: Subject>(world: &World<S>, label: &str) -> Result<(OwnedFd, Fence<S>), Stop> {
    let theirs = event()?;
    let fence = import(world, twin(&theirs)?, label)?;
    Ok((theirs, fence))
}

fn import<S: Subject>(world: &World<S>, fd: OwnedFd, label: &str) -> syncline::Result<Fence<S>> {
    Ok(world.left.import_descriptor(Some(fd), label)?)
}

fn add(fd: &OwnedFd) -> Verdict {
    match rustix::io::write(fd, &1_u64.to_ne_bytes()) {
        Ok(8) => Ok(()),
        other => Stop::fail(format!("an eventfd could not be written: {other:?}")),
    }
}

/// Reads the count of an eventfd since the last call.
fn take(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

/// Waits until the eventfd has counted `expected` since the last call.
fn heard(fd: &OwnedFd, expected: u64, of: &str) -> Verdict {
    let deadline = Instant::now() + patience();
    let mut count = 0;
    while count < expected && Instant::now() < deadline {
        count += take(fd);
        std::thread::yield_now();
    }
    check_eq!(count, expected, "{of}");
    Ok(())
}

fn eventfd_completes<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (done, never) = (world.timeline("done")?, world.timeline("never")?);
    let (theirs, fence) = pair(world, "theirs")?;
    let (others, other) = pair(world, "other")?;
    check!(!fence.is_complete()?, "complete before a signal");
    check_error!(fence.wait(Duration::ZERO), TimedOut);
    check_error!(fence.wait(SHORT), TimedOut);
    let (first, second) = (fence.point()?, other.point()?);
    let sent = right.submit(&[first.point()], |_| Ok(()), &[done.signal_at(1)])?;
    check!(sent.is_held(), "a descriptor's wait went to a driver");
    left.wait(&other)?;
    let after = left.submit(&[done.at(1)], |_| Ok(()), &[done.signal_at(2)])?;
    let list = [never.at(1), second.point(), first.point()];
    check_error!(wait_any(&list, SHORT), TimedOut);
    check_error!(done.at(1).wait(SHORT), TimedOut);
    add(&theirs)?;
    done.at(1).wait(patience())?;
    fence.wait(patience())?;
    let any = wait_any(&list, patience())?;
    check!(any == 2, "index {any} is said to be reached");
    check_error!(wait_all(&list[1..], SHORT), TimedOut);
    check!(!done.at(2).is_reached()?);
    add(&others)?;
    after.end().wait(patience())?;
    wait_all(&list[1..], patience())?;
    check!(take(&theirs) == 1 && take(&others) == 1);
    Ok(())
}

/// Readiness that was seen stays, whether it came before the import or after it.
fn drained<S: Subject>(world: &World<S>) -> Verdict {
    let right = world.right_queue("right")?;
    for is_before in [true, false] {
        let theirs = event()?;
        if is_before {
            add(&theirs)?;
        }
        let fence = import(world, twin(&theirs)?, "drained")?;
        if !is_before {
            add(&theirs)?;
        }
        check!(fence.is_complete()?);
        take(&theirs);
        check!(fence.is_complete()?);
        fence.wait(Duration::ZERO)?;
        let sent = right.submit_empty(&[fence.point()?.point()], &[])?;
        sent.end().wait(patience())?;
    }
    Ok(())
}

fn minus_one<S: Subject>(world: &World<S>) -> Verdict {
    let right = world.right_queue("right")?;
    let done = world.left.import_descriptor(None, "nothing to wait for");
    let fence = done.map_err(|rejected| rejected.error)?;
    check!(fence.is_complete()?, "-1 is not complete");
    fence.wait(Duration::ZERO)?;
    right.wait(&fence)?;
    let sent = right.submit(&[fence.point()?.point()], |_| Ok(()), &[])?;
    sent.end().wait(patience())?;
    check_error!(right.record(&fence), ForeignFence);
    Ok(())
}

fn recording<S: Subject>(world: &World<S>) -> Verdict {
    let left = world.left_queue("left")?;
    let (_theirs, fence) = pair(world, "theirs")?;
    let before = left.position().value();
    check_error!(
        left.record(&fence),
        Error::ForeignFence { fence, .. } if fence.label() == "theirs"
    );
    check_eq!(left.position().value(), before);
    check!(!fence.is_complete()?, "a refused record changed the fence");
    check_error!(fence.elapsed_since(&fence), TimingDisabled);
    Ok(())
}

fn hang_up<S: Subject>(world: &World<S>) -> Verdict {
    let right = world.right_queue("right")?;
    let (spoilt, fine) = (world.timeline("spoilt")?, world.timeline("fine")?);
    let (reader, writer) = rustix::pipe::pipe().map_err(system)?;
    let fence = import(world, reader, "pipe")?;
    right.submit_empty(&[fence.point()?.point()], &[spoilt.signal_at(1)])?;
    drop(writer);
    let told = |result: syncline::Result<()>| matches!(result, Err(Error::Failed { cause, .. }) if matches!(*cause, Error::Native { call: "poll", .. }));
    check!(told(spoilt.at(1).wait(patience())));
    check!(told(fence.wait(patience())));
    check!(fence.is_complete().is_err(), "a closed pipe counts as done");
    right.submit(&[], |_| Ok(()), &[fine.signal_at(1)])?;
    fine.at(1).wait(patience())?;
    // Data that was written before the import counts.
    let (reader, writer) = rustix::pipe::pipe().map_err(system)?;
    let fence = import(world, reader, "pipe")?;
    rustix::io::write(&writer, b"x").map_err(system)?;
    drop(writer);
    fence.wait(patience())?;
    Ok(())
}

/// A pollable descriptor, and a function that makes it readable while it is kept.
type Pollable = (&'static str, OwnedFd, Box<dyn FnMut() -> Verdict>);

/// Creates a descriptor of each pollable kind. None is readable yet.
fn pollables() -> Result<Vec<Pollable>, Stop> {
    let done = |result: rustix::io::Result<()>| result.map_err(system);
    let write = move |fd: &OwnedFd| done(rustix::io::write(fd, b"x").map(drop));
    let (reader, writer) = rustix::pipe::pipe().map_err(system)?;
    let (socket, peer) = UnixStream::pair().map_err(refused)?;
    let (socket, peer) = (OwnedFd::from(socket), OwnedFd::from(peer));
    let listening = UnixListener::bind_addr(&unnamed()?).map_err(refused)?;
    let address = listening.local_addr().map_err(refused)?;
    let counter = event()?;
    let counted = twin(&counter)?;
    let flags = rustix::time::TimerfdFlags::CLOEXEC;
    let timer = rustix::time::timerfd_create(rustix::time::TimerfdClockId::Monotonic, flags);
    let timer = timer.map_err(system)?;
    let set = twin(&timer)?;
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    let epoll = epoll.map_err(system)?;
    let polled = event()?;
    let data = rustix::event::epoll::EventData::new_u64(0);
    let readable = rustix::event::epoll::EventFlags::IN;
    rustix::event::epoll::add(&epoll, &polled, data, readable).map_err(system)?;
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(refused)?;
    let no_flags = rustix::process::PidfdFlags::empty();
    let process = rustix::process::pidfd_open(rustix::process::Pid::from_child(&child), no_flags);
    let process = process.map_err(system)?;
    Ok(vec![
        (
            "the reading end of a pipe",
            reader,
            Box::new(move || write(&writer)),
        ),
        ("a socket", socket, Box::new(move || write(&peer))),
        (
            "a listening socket",
            listening.into(),
            Box::new(move || {
                UnixStream::connect_addr(&address)
                    .map(drop)
                    .map_err(refused)
            }),
        ),
        ("an eventfd", counter, Box::new(move || add(&counted))),
        (
            "a timer",
            timer,
            Box::new(move || {
                let [never, soon] = [0, 1].map(|tv_nsec| Timespec { tv_sec: 0, tv_nsec });
                let once = rustix::time::Itimerspec {
                    it_interval: never,
                    it_value: soon,
                };
                let flags = rustix::time::TimerfdTimerFlags::empty();
                done(rustix::time::timerfd_settime(&set, flags, &once).map(drop))
            }),
        ),
        ("an epoll", epoll, Box::new(move || add(&polled))),
        (
            "a process",
            process,
            Box::new(move || {
                // The child ends at the end of its input.
                drop(child.stdin.take());
                child.wait().map(drop).map_err(refused)
            }),
        ),
    ])
}

/// Each of them becomes a fence, which completes once the descriptor is readable.
fn pollable<S: Subject>(world: &World<S>) -> Verdict {
    let right = world.right_queue("right")?;
    for (what, fd, mut make_readable) in pollables()? {
        let fence = match import(world, fd, what) {
            Ok(fence) => fence,
            Err(error) => return Stop::fail(format!("{what} did not become a fence: {error}")),
        };
        check!(!fence.is_complete()?, "{what}");
        let sent = right.submit(&[fence.point()?.point()], |_| Ok(()), &[])?;
        check!(sent.is_held(), "{what}");
        make_readable()?;
        if let Err(error) = sent.end().wait(patience()) {
            return Stop::fail(format!("{what} can be read, and its fence: {error}"));
        }
        check!(fence.is_complete()?, "{what}");
    }
    Ok(())
}

/// Descriptors that cannot be polled are refused and returned.
fn hostile<S: Subject>(world: &World<S>) -> Verdict {
    let file = rustix::fs::open("/proc/self/mounts", OFlags::RDONLY, Mode::empty());
    // SAFETY: no process has that many descriptors. The returned one is forgotten before it could
    // be closed.
    let closed = unsafe { OwnedFd::from_raw_fd(CLOSED) };
    let mut offered = vec![
        ("a closed descriptor", closed),
        ("a file that says it can be polled", file.map_err(system)?),
    ];
    offered.extend(
        kinds()?
            .into_iter()
            .filter(|(what, _)| NEVER_READABLE.contains(what)),
    );
    check_eq!(offered.len(), 2 + NEVER_READABLE.len());
    for (what, fd) in offered {
        let number = fd.as_raw_fd();
        let Err(Rejected { handle, error }) = world.left.import_descriptor(Some(fd), what) else {
            return Stop::fail(format!("{what} became a fence"));
        };
        let back = handle.into_raw_fd();
        check!(back == number, "{what} came back as another descriptor");
        check!(
            matches!(&error, Error::Import { object, .. } if object.label() == "host"),
            "{what} is refused with: {error}"
        );
        if number != CLOSED {
            // SAFETY: ours, and open unless the import has closed it, which the case then detects.
            let handle = unsafe { OwnedFd::from_raw_fd(back) };
            let still = rustix::io::fcntl_getfd(&handle);
            if still.is_err() {
                let _ = handle.into_raw_fd();
                return Stop::fail(format!("{what} was closed by a refused import"));
            }
        }
    }
    let (theirs, fence) = pair(world, "still fine")?;
    add(&theirs)?;
    fence.wait(patience())?;
    Ok(())
}

/// Closing a descriptor too early or twice would close a new one with the same number.
fn closed_once<S: Subject>(world: &World<S>) -> Verdict {
    let is_open =
        |number: i32| std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    let theirs = event()?;
    let ours = twin(&theirs)?;
    let number = ours.as_raw_fd();
    let fence = import(world, ours, "closed once")?;
    let next = event()?;
    if next.as_raw_fd() == number {
        // The fence will close this number, so this descriptor must not be closed here.
        let _ = next.into_raw_fd();
        return Stop::fail("the import closed a descriptor that the fence has");
    }
    add(&theirs)?;
    fence.wait(patience())?;
    drop(fence);
    until(|| Ok(!is_open(number)))?;
    let reused = event()?;
    let again = import(world, twin(&theirs)?, "another")?;
    again.wait(patience())?;
    drop(again);
    if !is_open(reused.as_raw_fd()) {
        let _ = reused.into_raw_fd();
        return Stop::fail("a descriptor was closed twice, and took another with it");
    }
    Ok(())
}

fn a_thousand<S: Subject>(world: &World<S>) -> Verdict {
    let right = world.right_queue("right")?;
    let round = || -> Verdict {
        for n in 0..1000 {
            let theirs = event()?;
            let fence = import(world, twin(&theirs)?, "one of many")?;
            match n % 4 {
                0 => {}
                1 => check!(!fence.is_complete()?, "complete without a signal"),
                2 => {
                    add(&theirs)?;
                    fence.wait(patience())?;
                }
                _ => {
                    // Dropped while a queue waits for it.
                    right.wait(&fence)?;
                    drop(fence);
                    add(&theirs)?;
                }
            }
        }
        right.idle(patience())?;
        Ok(())
    };
    grows_nothing(round)
}

fn hears<S: Subject>(world: &World<S>) -> Verdict {
    let (left, line) = (world.left_queue("left")?, world.timeline("line")?);
    let (gate, still) = (world.timeline("gate")?, world.left.stall()?);
    let ours = event()?;
    let tell = |value, pending: bool| -> Result<_, Stop> {
        let (point, eventfd) = (line.at(value), twin(&ours)?);
        let told = if pending {
            point.notify_pending(eventfd)
        } else {
            point.notify(eventfd)
        };
        Ok(told.map_err(|rejected| rejected.error)?)
    };
    tell(1, false)?.detach();
    tell(1, false)?.detach();
    tell(1, true)?.detach();
    tell(3, false)?.detach();
    let taken_back = tell(1, false)?;
    let latch = still.latch();
    let work = move |recorder: &mut RecorderOf<'_, S>| latch.block(recorder);
    left.submit(&[gate.at(1)], work, &[line.signal_at(1)])?;
    drop(taken_back);
    check!(take(&ours) == 0, "told of a point that is only claimed");
    gate.signal(1)?;
    // The driver has the submission and the device is blocked. An event for a reached point would
    // come too early now.
    heard(&ours, 1, "a point that is pending")?;
    check_eq!(take(&ours), 0);
    still.release()?;
    heard(&ours, 2, "a point that was reached")?;
    // A value that is there already is notified at once.
    tell(1, true)?.detach();
    heard(&ours, 1, "a point that is reached")?;
    line.fail(super::cause("on purpose"));
    heard(&ours, 1, "a point that never will be reached")?;
    check!(line.at(3).is_reached().is_err());
    let (reader, _writer) = rustix::pipe::pipe().map_err(system)?;
    check_error!(
        line.at(9).notify(reader).map_err(|rejected| rejected.error),
        Import
    );
    check!(take(&ours) == 0, "told more often than asked");
    Ok(())
}

fn out_and_in<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (line, gate) = (world.timeline("line")?, world.timeline("gate")?);
    let ours = event()?;
    let told = line.at(1).notify(twin(&ours)?);
    told.map_err(|rejected| rejected.error)?.detach();
    let fence = import(world, ours, "there and back")?;
    let sent = right.submit(&[fence.point()?.point()], |_| Ok(()), &[])?;
    left.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
    check_error!(sent.end().wait(SHORT), TimedOut);
    gate.signal(1)?;
    sent.end().wait(patience())?;
    check!(line.at(1).is_reached()?, "the fence came before the point");
    Ok(())
}
