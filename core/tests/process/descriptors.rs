//! Descriptors as fences, and eventfds that are notified of points.

#![allow(unsafe_code, reason = "makes descriptors that are not open")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::pipe;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{
    Error, Fence, QueueKind, handle::HandleKind, host, wait::Signaller, wait_all, wait_any,
};

use crate::{alone, open_descriptors, settled, soon};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(5);

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn add(fd: impl AsFd, count: u64) {
    assert_eq!(rustix::io::write(fd, &count.to_ne_bytes()).unwrap(), 8);
}

/// The count of an eventfd since the last call.
fn take(fd: impl AsFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        Err(rustix::io::Errno::AGAIN) => 0,
        other => panic!("{other:?}"),
    }
}

fn twin(fd: &OwnedFd) -> OwnedFd {
    fd.try_clone().unwrap()
}

fn import(device: &host::Device, fd: OwnedFd, label: &str) -> Fence {
    device.import_descriptor(Some(fd), label).unwrap()
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn an_eventfd_is_a_fence() {
    let _alone = alone();
    let device = host::Device::new();
    let can = &device.info().capabilities;
    assert!(can.imports.contains(&HandleKind::PollableFd));
    let theirs = event();
    let fence = import(&device, twin(&theirs), "theirs");
    assert!(!fence.is_complete().unwrap());
    let error = fence.wait(SHORT).unwrap_err();
    println!("{error}");
    let Error::TimedOut { blockers, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(blockers.steps()[0].by, Signaller::Outside);
    assert!(matches!(
        fence.wait(Duration::ZERO),
        Err(Error::TimedOut { .. })
    ));
    add(&theirs, 1);
    assert!(fence.is_complete().unwrap());
    fence.wait(LONG).unwrap();
    // The wait read nothing from the eventfd, and the fence stays complete.
    assert_eq!(take(&theirs), 1);
    assert!(fence.is_complete().unwrap());
    fence.wait(Duration::ZERO).unwrap();
}

#[test]
fn a_fence_stays_complete_although_its_eventfd_is_drained_at_once() {
    let _alone = alone();
    let device = host::Device::new();
    for _ in 0..200 {
        let theirs = event();
        let fence = import(&device, twin(&theirs), "drained");
        let waiter = {
            let fence = fence.clone();
            std::thread::spawn(move || fence.wait_with(syncline_core::WaitMode::Block, LONG))
        };
        // The eventfd is signalled and drained until one poll has seen it. That poll must suffice.
        let start = Instant::now();
        while !waiter.is_finished() {
            add(&theirs, 1);
            assert_eq!(take(&theirs), 1);
            assert!(start.elapsed() < LONG, "the watch never saw it");
        }
        waiter.join().unwrap().unwrap();
        assert!(fence.is_complete().unwrap());
    }
}

#[test]
fn a_fence_without_a_descriptor_is_complete() {
    let _alone = alone();
    let device = host::Device::new();
    let fence = device
        .import_descriptor(None, "nothing to wait for")
        .unwrap();
    assert!(fence.is_complete().unwrap());
    fence.wait(Duration::ZERO).unwrap();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let sent = queue
        .submit(&[fence.point().unwrap().point()], |_| Ok(()), &[])
        .unwrap();
    assert!(!sent.is_held());
    sent.end().wait(LONG).unwrap();
    assert!(matches!(
        queue.record(&fence),
        Err(Error::ForeignFence { .. })
    ));
}

#[test]
fn every_kind_of_descriptor_that_can_be_polled_is_imported() {
    let _alone = alone();
    let device = host::Device::new();
    let timer = {
        use rustix::time::{
            Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
            timerfd_settime,
        };
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).unwrap();
        let soon = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: 20_000_000,
            },
        };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &soon).unwrap();
        timer
    };
    let mut child = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    let process = rustix::process::Pid::from_child(&child);
    let process =
        rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).unwrap();
    let (reader, writer) = pipe().unwrap();
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let fences = [
        import(&device, timer, "timer"),
        import(&device, process, "process"),
        import(&device, reader, "pipe"),
        import(&device, near.into(), "socket"),
    ];
    for fence in &fences[1..] {
        assert!(!fence.is_complete().unwrap(), "{fence:?}");
    }
    fences[0].wait(LONG).unwrap();
    child.kill().unwrap();
    fences[1].wait(LONG).unwrap();
    child.wait().unwrap();
    assert!(!fences[2].is_complete().unwrap());
    rustix::io::write(&writer, b"x").unwrap();
    fences[2].wait(LONG).unwrap();
    assert!(!fences[3].is_complete().unwrap());
    rustix::io::write(&far, b"x").unwrap();
    fences[3].wait(LONG).unwrap();
}

#[test]
fn a_descriptor_that_cannot_be_polled_is_refused_and_stays_open() {
    let _alone = alone();
    let device = host::Device::new();
    // The first import starts the device's watch, which opens descriptors that stay.
    drop(import(&device, event(), "warm up"));
    let open = |path: &str, flags| rustix::fs::open(path, flags, Mode::empty()).unwrap();
    let (_reader, writer) = pipe().unwrap();
    // SAFETY: no process has that many descriptors, so none is closed by accident. The value is
    // never dropped.
    let closed = unsafe { OwnedFd::from_raw_fd(1_000_000) };
    let memory = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    for (what, fd) in [
        ("closed", closed),
        ("file", open("/proc/self/exe", OFlags::RDONLY)),
        ("mounts", open("/proc/self/mounts", OFlags::RDONLY)),
        ("memory", memory),
        ("directory", open("/", OFlags::RDONLY)),
        ("/dev/null", open("/dev/null", OFlags::RDWR)),
        ("writing end", writer),
        ("path", open("/dev/null", OFlags::PATH)),
    ] {
        let number = fd.as_raw_fd();
        let before = settled(open_descriptors);
        let rejected = device.import_descriptor(Some(fd), what).unwrap_err();
        println!("{what}: {rejected}");
        assert!(
            matches!(rejected.error, Error::Import { .. }),
            "{what}: {rejected:?}"
        );
        assert!(rejected.error.to_string().contains(&number.to_string()));
        assert_eq!(rejected.handle.as_raw_fd(), number);
        assert_eq!(soon(open_descriptors, &before), before, "{what}");
        if what == "closed" {
            let _ = rejected.handle.into_raw_fd();
        } else {
            rustix::io::fcntl_getfd(&rejected.handle).expect(what);
        }
    }
}

#[test]
fn a_closed_other_end_fails_only_its_fence() {
    let _alone = alone();
    let device = host::Device::new();
    let theirs = event();
    let fine = import(&device, twin(&theirs), "fine");
    let (reader, writer) = pipe().unwrap();
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let gone = [
        import(&device, reader, "pipe"),
        import(&device, near.into(), "socket"),
    ];
    let waiters = gone.clone().map(|fence| {
        std::thread::spawn(move || fence.wait_with(syncline_core::WaitMode::Block, LONG))
    });
    drop((writer, far));
    for waiter in waiters {
        let error = waiter.join().unwrap().unwrap_err();
        println!("{error}");
        let Error::Failed { cause, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(matches!(**cause, Error::Native { call: "poll", .. }));
    }
    for fence in &gone {
        assert!(fence.is_complete().is_err());
    }
    // Data that was written before the end closed completes the fence.
    let (reader, writer) = pipe().unwrap();
    let written = import(&device, reader, "written");
    rustix::io::write(&writer, b"x").unwrap();
    drop(writer);
    written.wait(LONG).unwrap();
    assert!(!fine.is_complete().unwrap());
    add(&theirs, 1);
    fine.wait(LONG).unwrap();
}

#[test]
fn all_kinds_of_waits_take_descriptors() {
    let _alone = alone();
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "consumer").unwrap();
    let (timeline, gate) = (
        device.timeline("timeline").unwrap(),
        device.timeline("gate").unwrap(),
    );
    let theirs = [event(), event()];
    let fences = [
        import(&device, twin(&theirs[0]), "first"),
        import(&device, twin(&theirs[1]), "second"),
    ];
    let points = fences.clone().map(|fence| fence.point().unwrap());
    let list = [gate.at(1), points[0].point(), points[1].point()];
    assert!(matches!(
        wait_any(&list, SHORT),
        Err(Error::TimedOut { .. })
    ));
    let ran = Arc::new(AtomicBool::new(false));
    let runs = ran.clone();
    let sent = queue
        .submit(
            &[points[0].point()],
            move |r| {
                r.run(move || runs.store(true, Ordering::SeqCst));
                Ok(())
            },
            &[timeline.signal_at(1)],
        )
        .unwrap();
    assert!(sent.is_held());
    assert!(timeline.at(1).wait(SHORT).is_err());
    assert!(!ran.load(Ordering::SeqCst));
    // The fence may be dropped, because the point keeps the descriptor.
    let [first, second] = fences;
    drop(first);
    add(&theirs[0], 1);
    timeline.at(1).wait(LONG).unwrap();
    assert!(ran.load(Ordering::SeqCst));
    assert_eq!(wait_any(&list, LONG).unwrap(), 1);
    assert!(wait_all(&list[1..], SHORT).unwrap_err().is_timeout());
    add(&theirs[1], 1);
    wait_all(&list[1..], LONG).unwrap();
    assert!(second.is_complete().unwrap());
}

#[test]
fn a_fence_of_a_descriptor_is_neither_recorded_nor_timed() {
    let _alone = alone();
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let fence = import(&device, event(), "theirs");
    let refused = queue.record(&fence).unwrap_err();
    println!("{refused}");
    assert!(
        matches!(&refused, Error::ForeignFence { fence, .. } if fence.label() == "theirs"),
        "{refused:?}"
    );
    let position = queue.position().value();
    assert_eq!(position, 0, "a refused record took a number");
    let other = host::Device::new();
    let elsewhere = other.queue(QueueKind::Compute, "q").unwrap();
    assert!(matches!(
        elsewhere.record(&fence),
        Err(Error::ForeignFence { .. })
    ));
    assert!(matches!(
        fence.elapsed_since(&fence),
        Err(Error::TimingDisabled { .. })
    ));
    assert!(!fence.is_complete().unwrap());
}

#[test]
fn thousands_of_imports_leave_no_descriptor() {
    let _alone = alone();
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let round = |count: u64| {
        for n in 0..count {
            let theirs = event();
            let fence = import(&device, twin(&theirs), "theirs");
            match n % 4 {
                // Never queried.
                0 => {}
                // Queried, and dropped without a signal.
                1 => assert!(!fence.is_complete().unwrap()),
                2 => {
                    add(&theirs, 1);
                    fence.wait(LONG).unwrap();
                }
                _ => {
                    let point = fence.point().unwrap();
                    queue.submit(&[point.point()], |_| Ok(()), &[]).unwrap();
                    add(&theirs, 1);
                }
            }
        }
        queue.idle(LONG).unwrap();
    };
    round(8);
    let before = settled(open_descriptors);
    round(4000);
    // The watching thread drops its descriptors at the end of its round.
    until("descriptors are left open", || open_descriptors() <= before);
}

#[test]
fn a_descriptor_is_closed_once() {
    let _alone = alone();
    let device = host::Device::new();
    let (reader, writer) = pipe().unwrap();
    let number = reader.as_raw_fd();
    let fence = import(&device, reader, "reader");
    let points: Vec<_> = (0..10).map(|_| fence.point().unwrap()).collect();
    assert!(fence.wait(SHORT).is_err());
    drop(fence);
    rustix::io::write(&writer, b"x").expect("open while a point is left");
    drop(points);
    until("the reading end was never closed", || {
        rustix::io::fcntl_getfd(
            // SAFETY: the borrow only serves to ask whether the number is open.
            unsafe { std::os::fd::BorrowedFd::borrow_raw(number) },
        )
        .is_err()
    });
    // The next descriptor with this number must stay open.
    let (mut others, mut found) = (Vec::new(), false);
    while !found {
        let other = event();
        found = other.as_raw_fd() == number;
        others.push(other);
    }
    drop(device);
    std::thread::yield_now();
    for other in &others {
        rustix::io::fcntl_getfd(other).expect("the descriptor was closed twice");
    }
}

#[test]
fn an_eventfd_is_not_notified_of_an_impossible_value() {
    let _alone = alone();
    let device = host::Device::new();
    let timeline = device.timeline("line").unwrap();
    let ours = event();
    let refused = timeline.at(u64::MAX).notify(twin(&ours)).unwrap_err();
    assert!(
        matches!(
            refused.error,
            Error::ValueOutOfRange {
                asked: u64::MAX,
                ..
            }
        ),
        "{}",
        refused.error
    );
    // It comes back open.
    rustix::io::fcntl_getfd(&refused.handle).unwrap();
}

#[test]
fn an_eventfd_is_notified_of_points() {
    let _alone = alone();
    let device = host::Device::new();
    let timeline = device.timeline("heard of").unwrap();
    let ours = event();
    // Each notification adds to the count.
    timeline.at(1).notify(twin(&ours)).unwrap().detach();
    timeline.at(1).notify(twin(&ours)).unwrap().detach();
    let taken_back = timeline.at(1).notify(twin(&ours)).unwrap();
    timeline.at(2).notify(twin(&ours)).unwrap().detach();
    assert_eq!(take(&ours), 0);
    drop(taken_back);
    timeline.signal(1).unwrap();
    assert_eq!(take(&ours), 2);
    timeline.signal(2).unwrap();
    assert_eq!(take(&ours), 1);
    // Points that are reached already, and empty points.
    timeline.at(2).notify(twin(&ours)).unwrap().detach();
    syncline_core::Point::EMPTY
        .notify(twin(&ours))
        .unwrap()
        .detach();
    assert_eq!(take(&ours), 2);
    // A failure notifies, too. The point reports the error.
    timeline.at(9).notify(twin(&ours)).unwrap().detach();
    timeline.fail(Error::work(std::io::Error::other("on purpose")));
    assert_eq!(take(&ours), 1);
    assert!(timeline.at(9).is_reached().is_err());
    // So does the drop of the last handle.
    let timeline = device.timeline("dropped").unwrap();
    timeline.at(1).notify(twin(&ours)).unwrap().detach();
    drop(timeline);
    assert_eq!(take(&ours), 1);
}

#[test]
fn an_eventfd_is_notified_of_pending_points() {
    let _alone = alone();
    let device = host::Device::new();
    let (queue, timeline) = (
        device.queue(QueueKind::Compute, "q").unwrap(),
        device.timeline("timeline").unwrap(),
    );
    let ours = event();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    timeline.at(1).notify_pending(twin(&ours)).unwrap().detach();
    let reached = event();
    timeline.at(1).notify(twin(&reached)).unwrap().detach();
    queue
        .submit(
            &[],
            move |r| {
                r.run(move || gate.recv().unwrap());
                Ok(())
            },
            &[timeline.signal_at(1)],
        )
        .unwrap();
    assert_eq!(take(&ours), 1);
    assert_eq!(take(&reached), 0);
    open.send(()).unwrap();
    timeline.at(1).wait(LONG).unwrap();
    until("no notification came", || take(&reached) == 1);
}

#[test]
fn a_notified_eventfd_can_be_imported_as_a_fence() {
    let _alone = alone();
    let device = host::Device::new();
    let timeline = device.timeline("timeline").unwrap();
    let ours = event();
    timeline.at(1).notify(twin(&ours)).unwrap().detach();
    let fence = import(&device, ours, "round trip");
    let waiter = {
        let fence = fence.clone();
        std::thread::spawn(move || fence.wait(LONG))
    };
    timeline.signal(1).unwrap();
    waiter.join().unwrap().unwrap();
}

#[test]
fn only_an_eventfd_can_be_notified() {
    let _alone = alone();
    let device = host::Device::new();
    let timeline = device.timeline("timeline").unwrap();
    let (reader, writer) = pipe().unwrap();
    let file = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).unwrap();
    let polling = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    for fd in [reader, writer, file, polling] {
        let number = fd.as_raw_fd();
        let rejected = timeline.at(1).notify(fd).unwrap_err();
        assert!(
            matches!(rejected.error, Error::Import { .. }),
            "{rejected:?}"
        );
        assert_eq!(rejected.handle.as_raw_fd(), number);
        rustix::io::fcntl_getfd(&rejected.handle).unwrap();
    }
    // A full eventfd does not block the signalling thread.
    let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    add(&full, u64::MAX - 1);
    timeline.at(1).notify(full).unwrap().detach();
    timeline.signal(1).unwrap();
}
