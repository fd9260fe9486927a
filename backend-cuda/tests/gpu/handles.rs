//! Raw handles of this crate, and wrong handles that callers pass in.
#![allow(unsafe_code, reason = "makes hostile handles")]

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{
    Error,
    handle::{MemoryContent, MemoryFd, MemoryInfo, Origin, TimelineFd},
    info::Uuid,
    wait_any,
};

use crate::common::{LIMIT, trials};
use crate::setup::{gpu, hand_over};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        raw_handles_say_what_is_held,
        hostile_handles_stay_with_the_caller,
        another_gpus_handles_are_refused_unasked,
    ]
}

fn raw_handles_say_what_is_held() {
    let gpu = gpu();
    let (queue, gate) = (gpu.queue("raw"), gpu.device.timeline("gate").unwrap());
    let done = gpu.device.timeline("done").unwrap();
    queue
        .submit(&[gate.at(1)], |_| Ok(()), &[done.signal_at(1)])
        .unwrap();
    assert_eq!(queue.stream().held(), 1);
    assert!(matches!(
        gpu.device.event(done.at(1)),
        Err(Error::NotPending { .. })
    ));
    gate.signal(1).unwrap();
    queue.settle(LIMIT).unwrap();
    assert_eq!(queue.stream().held(), 0);
    let _ = gpu.device.event(done.at(1)).unwrap();
    done.at(1).wait(LIMIT).unwrap();
    assert!(gpu.device.event(done.at(1)).unwrap().is_none());

    // The application submits itself: it claims, submits, and reports that.
    let busy = gpu.queue("the application's");
    let stall = gpu.stalled(&busy);
    let mut claim = done.claim(2).unwrap();
    // Without an event this library cannot see the signal. The call fails and the claim stays open.
    assert!(matches!(claim.submitted(), Err(Error::Unsupported { .. })));
    assert!(!done.at(2).is_pending().unwrap());
    // SAFETY: a claim of this timeline; the queue keeps its stream alive.
    unsafe {
        gpu.device
            .submit_claimed(&done, &mut claim, busy.stream().raw())
    }
    .unwrap();
    queue
        .submit(&[done.at(2)], |_| Ok(()), &[done.signal_at(3)])
        .unwrap();
    assert!(gpu.device.event(done.at(2)).unwrap().is_some());
    assert_eq!(done.value().unwrap(), 1);
    stall.release();
    done.at(3).wait(LIMIT).unwrap();
    assert_eq!(wait_any(&[done.at(3)], LIMIT).unwrap(), 0);
    gpu.device.check().unwrap();
}

/// Descriptors of wrong kinds. The first one is not even open.
fn hostile() -> [OwnedFd; 4] {
    // SAFETY: no process has that many descriptors, so no other descriptor can be closed. The test
    // never drops it.
    let closed = unsafe { OwnedFd::from_raw_fd(1_000_000) };
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap().into();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    [closed, pipe, file, socket.into()]
}

fn still_the_callers(index: usize, fd: OwnedFd) {
    if index == 0 {
        let _ = fd.into_raw_fd();
    } else {
        rustix::io::fcntl_getfd(&fd).expect("still open");
    }
}

fn hostile_handles_stay_with_the_caller() {
    let gpu = gpu();
    let origin = Origin::of(gpu.device.info());
    for (index, fd) in hostile().into_iter().enumerate() {
        // SAFETY: the descriptor has the wrong kind on purpose. Drivers refuse these kinds.
        let imported = unsafe {
            let handle = TimelineFd::from_fd(fd, origin.clone());
            gpu.device.import_timeline(handle)
        };
        let rejected = imported.expect_err("no semaphore");
        eprintln!("timeline {index}: {}", rejected.error);
        still_the_callers(index, rejected.handle.into_fd());
    }
    for (index, fd) in hostile().into_iter().enumerate() {
        let mut info = MemoryInfo::new(4096, MemoryContent::Buffer(4096));
        info.dedicated = true;
        // SAFETY: as above.
        let handle = unsafe { MemoryFd::from_fd(fd, origin.clone(), info) };
        let rejected = gpu.device.import_memory(handle).expect_err("no memory");
        eprintln!("memory {index}: {}", rejected.error);
        still_the_callers(index, rejected.handle.into_fd());
    }
    gpu.device.check().unwrap();
    assert!(hand_over(&gpu, true, true).iter().all(|&word| word == 2));
}

fn another_gpus_handles_are_refused_unasked() {
    let gpu = gpu();
    let origin = Origin {
        device: "another GPU".into(),
        uuid: Some(Uuid([7; 16])),
        driver_uuid: None,
    };
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    // SAFETY: the call is refused before it uses the descriptor.
    let imported = unsafe {
        gpu.device
            .import_timeline(TimelineFd::from_fd(pipe, origin))
    };
    let rejected = imported.expect_err("another GPU's");
    let text = rejected.error.to_string();
    assert!(
        matches!(rejected.error, Error::CannotShare { .. }),
        "{text}"
    );
    assert!(
        text.contains("another GPU") && text.contains(&gpu.device.info().name),
        "{text}"
    );
    still_the_callers(1, rejected.handle.into_fd());
}
