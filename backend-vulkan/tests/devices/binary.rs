//! Binary semaphores: fences for their signals, exports and imports.
#![allow(unsafe_code, reason = "guarantees signals, and makes invalid handles")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::common::{Stall, TIMEOUT, all_words, on_each_device, skip, words};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{
    Error, QueueKind,
    handle::{BinaryFd, HandleKind, Origin},
    host,
    info::Uuid,
    wait_all,
};
use syncline_vulkan::{BinarySemaphore, Buffer, Device, Queue, Recorder};

const COUNT: u64 = 1 << 18;

fn shares(device: &Device) -> bool {
    let can = &device.info().capabilities;
    let kind = HandleKind::BinaryOpaqueFd;
    can.exports.contains(&kind) && can.imports.contains(&kind)
}

/// Fills `buffer` with `value`, then signals `semaphore`.
fn produce(queue: &Queue, buffer: &Buffer, value: u32, semaphore: &BinarySemaphore) {
    let (buffer, semaphore) = (buffer.clone(), semaphore.clone());
    let work = move |r: &mut Recorder| {
        for word in [value + 1, value + 2, value] {
            r.fill_buffer(&buffer, word)?;
        }
        // SAFETY: each test consumes every signal before the next one.
        unsafe { r.signal_semaphore(&semaphore) }
    };
    queue.submit(&[], work, &[]).unwrap();
}

/// Signals `signals` once per round, and waits for fences of `waits` in every way.
fn rounds(device: &Device, signals: &BinarySemaphore, waits: &BinarySemaphore) {
    let producer = device.queue(QueueKind::Compute, "producer").unwrap();
    let consumers = [
        device.queue(QueueKind::Compute, "consumer").unwrap(),
        device.queue(QueueKind::Transfer, "consumer too").unwrap(),
    ];
    let host = host::Device::new();
    let worker = host.queue(QueueKind::Compute, "worker").unwrap();
    let (data, copies) = (
        words(device, COUNT),
        [words(device, COUNT), words(device, COUNT)],
    );
    for round in 1..=20 {
        let value = round * 10;
        produce(&producer, &data, value, signals);
        // SAFETY: just submitted, and nothing else waits for it.
        let fence = unsafe { waits.pending("rendered") }.unwrap();
        let mut ends = Vec::new();
        for (queue, copy) in consumers.iter().zip(&copies) {
            let (from, to) = (data.clone(), copy.clone());
            let sent = queue
                .submit(
                    &[fence.point().unwrap().point()],
                    move |r| r.copy_buffer(&from, &to),
                    &[],
                )
                .unwrap();
            ends.push(sent.end().keep());
        }
        let seen = worker
            .submit(&[fence.point().unwrap().point()], |_| Ok(()), &[])
            .unwrap();
        ends.push(seen.end().keep());
        fence.wait(TIMEOUT).unwrap();
        assert_eq!(all_words(&data), value);
        assert!(fence.is_complete().unwrap());
        assert!(matches!(
            producer.record(&fence),
            Err(Error::ForeignFence { .. })
        ));
        // Submissions that wait for the fence do not need it.
        drop(fence);
        let points: Vec<_> = ends.iter().map(|end| end.point()).collect();
        wait_all(&points, TIMEOUT).unwrap();
        for copy in &copies {
            assert_eq!(all_words(copy), value);
        }
    }
    for queue in consumers.iter().chain([&producer]) {
        queue.idle(TIMEOUT).unwrap();
    }
    worker.idle(TIMEOUT).unwrap();
}

fn a_signal_is_consumed_once_and_waited_for_by_all() {
    on_each_device(|device| {
        let semaphore = device.binary_semaphore("rendered").unwrap();
        rounds(device, &semaphore, &semaphore);
    });
}

fn an_exported_semaphore_shares_its_payload_with_the_import() {
    on_each_device(|device| {
        if !shares(device) {
            let error = device
                .binary_semaphore("kept")
                .and_then(|semaphore| semaphore.export());
            if !device
                .info()
                .capabilities
                .exports
                .contains(&HandleKind::BinaryOpaqueFd)
            {
                assert!(matches!(error, Err(Error::Unsupported { .. })), "{error:?}");
            }
            return skip("it does not share binary semaphores");
        }
        let ours = device.binary_semaphore("ours").unwrap();
        let theirs = device
            .import_binary(ours.export().unwrap(), "theirs")
            .unwrap();
        rounds(device, &ours, &theirs);
        rounds(device, &theirs, &ours);
        assert!(matches!(theirs.export(), Err(Error::Unsupported { .. })));
    });
}

fn a_binary_signal_waits_only_for_its_own_work() {
    on_each_device(|device| {
        let first = device.queue(QueueKind::Graphics, "first").unwrap();
        let second = device.queue(QueueKind::Graphics, "second").unwrap();
        let steps = device.timeline("steps").unwrap();
        let (data, semaphore) = (
            words(device, COUNT),
            device.binary_semaphore("drawn").unwrap(),
        );
        let consumer = device.queue(QueueKind::Transfer, "consumer").unwrap();
        let place = |queue: &Queue| (queue.family(), queue.index());
        if place(&first) == place(&second) || place(&first) == place(&consumer) {
            return skip("it has too few driver queues");
        }
        let stall = Stall::on(device, &first);
        first
            .submit(&[], |_| Ok(()), &[steps.signal_at(1)])
            .unwrap();
        let (filled, signalled) = (data.clone(), semaphore.clone());
        let work = move |r: &mut Recorder| {
            r.fill_buffer(&filled, 4)?;
            // SAFETY: nothing else signals it.
            unsafe { r.signal_semaphore(&signalled) }
        };
        // Its timeline signal waits for the first queue's signal. Its work does not.
        second.submit(&[], work, &[steps.signal_at(2)]).unwrap();
        let drawn = semaphore.clone();
        // SAFETY: its signal is pending, and nothing else waits for it.
        let work = move |r: &mut Recorder| unsafe { r.wait_semaphore(&drawn) };
        let ready = consumer.submit(&[], work, &[]);
        ready.unwrap().end().wait(TIMEOUT).unwrap();
        assert_eq!(all_words(&data), 4);
        assert_eq!(steps.value().unwrap(), 0);
        stall.release();
        steps.at(2).wait(TIMEOUT).unwrap();
        for queue in [&first, &second, &consumer] {
            queue.idle(TIMEOUT).unwrap();
        }
    });
}

fn a_submission_waits_for_a_binary_signal() {
    on_each_device(|device| {
        let producer = device.queue(QueueKind::Compute, "producer").unwrap();
        let consumer = device.queue(QueueKind::Compute, "consumer").unwrap();
        let (data, copy) = (words(device, COUNT), words(device, COUNT));
        for round in 1..=10 {
            let value = round * 10;
            let semaphore = device.binary_semaphore("written").unwrap();
            produce(&producer, &data, value, &semaphore);
            let (from, to) = (data.clone(), copy.clone());
            let work = move |r: &mut Recorder| {
                // SAFETY: just submitted, and nothing else waits for it.
                unsafe { r.wait_semaphore(&semaphore) }?;
                r.copy_buffer(&from, &to)
            };
            let sent = consumer.submit(&[], work, &[]).unwrap();
            sent.end().wait(TIMEOUT).unwrap();
            assert_eq!(all_words(&copy), value);
        }
        producer.idle(TIMEOUT).unwrap();
        consumer.idle(TIMEOUT).unwrap();
    });
}

fn a_semaphore_may_be_dropped_while_its_signal_is_pending() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Compute, "producer").unwrap();
        let data = words(device, COUNT);
        for value in [7, 8, 9] {
            let semaphore = device.binary_semaphore("short-lived").unwrap();
            produce(&queue, &data, value, &semaphore);
            // SAFETY: just submitted, and nothing else waits for it.
            let fence = unsafe { semaphore.pending("rendered") }.unwrap();
            drop(semaphore);
            fence.wait(TIMEOUT).unwrap();
            assert_eq!(all_words(&data), value);
        }
        queue.idle(TIMEOUT).unwrap();
    });
}

fn a_semaphore_of_another_device_is_refused() {
    on_each_device(|device| {
        let instance = syncline_vulkan::Instance::load().unwrap();
        let other = instance.open_first().unwrap();
        let semaphore = other.binary_semaphore("another's").unwrap();
        let queue = device.queue(QueueKind::Compute, "q").unwrap();
        // SAFETY: refused before it is recorded.
        let work = move |r: &mut Recorder| unsafe { r.signal_semaphore(&semaphore) };
        let refused = queue.submit(&[], work, &[]).map(|sent| sent.is_held());
        assert!(
            matches!(refused, Err(Error::WrongDevice { .. })),
            "{refused:?}"
        );
        queue.idle(TIMEOUT).unwrap();
    });
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn imports_leave_no_descriptor_open() {
    on_each_device(|device| {
        if !shares(device) {
            return skip("it does not share binary semaphores");
        }
        let round = |count: u32| {
            let ours = device.binary_semaphore("ours").unwrap();
            for _ in 0..count {
                drop(
                    device
                        .import_binary(ours.export().unwrap(), "theirs")
                        .unwrap(),
                );
            }
        };
        round(4);
        let before = open_descriptors();
        round(2000);
        // A starting thread of the test program has a file open for a moment.
        let begun = Instant::now();
        while open_descriptors() > before && begun.elapsed() < TIMEOUT {
            std::thread::yield_now();
        }
        assert!(open_descriptors() <= before, "descriptors are left open");
    });
}

fn hostile_handles_stay_with_the_caller() {
    on_each_device(|device| {
        let ours = Origin::of(device.info());
        let pipe = || rustix::pipe::pipe().unwrap().0;
        let file = || OwnedFd::from(File::open("/proc/self/exe").unwrap());
        let socket = || OwnedFd::from(std::os::unix::net::UnixStream::pair().unwrap().0);
        for fd in [pipe(), file(), socket()] {
            // SAFETY: not a semaphore on purpose. It is refused without a driver call.
            let handle = unsafe { BinaryFd::from_fd(fd, ours.clone()) };
            let number = handle.as_fd().as_raw_fd();
            if !imports_binaries(device) {
                // The driver imports none, and the device refuses before it checks the file.
                let rejected = device.import_binary(handle, "junk").unwrap_err();
                assert!(matches!(rejected.error, Error::Unsupported { .. }));
                continue;
            }
            let rejected = device.import_binary(handle, "junk").unwrap_err();
            println!("{rejected}");
            assert!(
                matches!(rejected.error, Error::Import { .. }),
                "{rejected:?}"
            );
            assert_eq!(rejected.handle.as_fd().as_raw_fd(), number);
            rustix::io::fcntl_getfd(rejected.handle.as_fd()).unwrap();
        }
        // SAFETY: refused before it is used. No process has that many descriptors.
        let closed = unsafe { std::os::fd::FromRawFd::from_raw_fd(1_000_000) };
        // SAFETY: as above.
        let handle = unsafe { BinaryFd::from_fd(closed, ours.clone()) };
        let rejected = device.import_binary(handle, "closed").unwrap_err();
        let _ = rejected.handle.into_fd().into_raw_fd();
        for origin in [
            Origin {
                uuid: Some(Uuid([7; 16])),
                ..ours.clone()
            },
            Origin {
                driver_uuid: Some(Uuid([7; 16])),
                ..ours.clone()
            },
        ] {
            // SAFETY: refused without a driver call.
            let handle = unsafe { BinaryFd::from_fd(pipe(), origin) };
            let rejected = device.import_binary(handle, "elsewhere").unwrap_err();
            assert!(matches!(rejected.error, Error::CannotShare { .. }));
            rustix::io::fcntl_getfd(rejected.handle.as_fd()).unwrap();
        }
        // The device still works.
        let semaphore = Arc::new(device.binary_semaphore("still fine").unwrap());
        if shares(device) {
            device
                .import_binary(semaphore.export().unwrap(), "still fine")
                .unwrap();
        }
    });
}

fn imports_binaries(device: &Device) -> bool {
    let imports = &device.info().capabilities.imports;
    imports.contains(&HandleKind::BinaryOpaqueFd)
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![
        a_signal_is_consumed_once_and_waited_for_by_all,
        an_exported_semaphore_shares_its_payload_with_the_import,
        a_binary_signal_waits_only_for_its_own_work,
        a_submission_waits_for_a_binary_signal,
        a_semaphore_may_be_dropped_while_its_signal_is_pending,
        a_semaphore_of_another_device_is_refused,
        imports_leave_no_descriptor_open,
        hostile_handles_stay_with_the_caller,
    ]
}
