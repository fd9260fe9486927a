//! Timelines in shared memory, as an application has them: handles that are none, pages that lie,
//! threads that sleep, and a second process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unsafe_code,
    missing_docs
)]

mod handles;
mod lost;
mod pages;
mod processes;
mod published;
mod times;
mod waits;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use syncline_core::backend::{Attachment, Device as _, Queue as _};
use syncline_core::{CounterFd, QueueKind, Timeline, host};

use crate::alone;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(20);

/// Where the counter, what was announced, the failure and the first record of why lie in the page.
const REACHED: u64 = 128;
const ANNOUNCED: u64 = 136;
const FAILED: u64 = 512;
const RECORD: u64 = 640;

/// A timeline over one port, that others signal, too.
fn line(label: &str, initial: u64, port: Attachment) -> Timeline {
    let port = port.signalled_elsewhere(true);
    Timeline::new(label, initial, |_| Ok([port].into_iter().collect())).unwrap()
}

/// A timeline, and what makes handles of it.
fn exported(device: &host::Device, initial: u64) -> (Timeline, host::Exporter) {
    let (port, exporter) = device.exportable_port(initial).unwrap();
    (line("exported", initial, port), exporter)
}

fn imported(device: &host::Device, handle: CounterFd) -> Timeline {
    let port = device.import_timeline(handle).map_err(|r| r.error).unwrap();
    line("imported", 0, port)
}

/// The page, as somebody has it who keeps to nothing.
struct Hostile(OwnedFd);

impl Hostile {
    fn of(exporter: &host::Exporter) -> Self {
        Self(exporter.export().unwrap().into_fd())
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let written = rustix::io::pwrite(self.0.as_fd(), bytes, at).unwrap();
        assert_eq!(written, bytes.len());
    }

    fn write_word(&self, at: u64, value: u64) {
        self.write(at, &value.to_ne_bytes());
    }

    fn read_word(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        rustix::io::pread(self.0.as_fd(), &mut word, at).unwrap();
        u64::from_ne_bytes(word)
    }
}

/// Queues of two devices pass values to and fro through two timelines over one page, with the host
/// in between.
#[test]
fn two_ports_of_one_page_are_one_counter() {
    let _alone = alone();
    for initial in [0, (1 << 32) - 2, (1 << 63) - 2, u64::MAX - 200] {
        let (left, right) = (host::Device::new(), host::Device::new());
        let (ours, exporter) = exported(&left, initial);
        let theirs = imported(&right, exporter.export().unwrap());
        let one = left.queue(QueueKind::Compute, "left").unwrap();
        let other = right.queue(QueueKind::Compute, "right").unwrap();
        for round in 0..30 {
            let at = initial + 3 * round;
            // The waiting side first: nobody here has claimed what it waits for.
            let waits = other
                .submit(
                    &[theirs.at(at + 1)],
                    |_| Ok(()),
                    &[theirs.signal_at(at + 2)],
                )
                .unwrap();
            assert!(
                waits.is_held(),
                "a wait went to the worker before its signal"
            );
            one.submit(&[ours.at(at)], |_| Ok(()), &[ours.signal_at(at + 1)])
                .unwrap();
            ours.at(at + 2).wait(LONG).unwrap();
            ours.signal(at + 3).unwrap();
            theirs.at(at + 3).wait(LONG).unwrap();
            assert_eq!(theirs.value().unwrap(), at + 3);
        }
        one.idle(LONG).unwrap();
        other.idle(LONG).unwrap();
    }
}

#[test]
fn the_host_says_that_it_does() {
    use syncline_core::HandleKind::CounterMemfd;
    let device = host::Device::new();
    let can = &device.info().capabilities;
    assert!(can.exports.contains(&CounterMemfd) && can.imports.contains(&CounterMemfd));
    assert_eq!(CounterMemfd.name(), "counter-memfd");
    // Its other timelines have nobody who watches them, and nothing to export.
    assert!(device.port(0).unwrap().watch().is_none());
}
