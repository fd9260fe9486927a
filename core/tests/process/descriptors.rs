//! Descriptors as fences, and eventfds that are notified of points.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::pipe;
use syncline_core::backend::Device as _;
use syncline_core::{Error, Fence, host};

use crate::alone;

const LONG: Duration = Duration::from_secs(20);

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
