//! Timelines in shared memory, through the interface that applications use.
//!
//! The tests pass wrong handles, write wrong values to pages, and let threads sleep.

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
mod published;
mod times;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use syncline_core::backend::{Attachment, Device as _, Queue as _};
use syncline_core::{QueueKind, Timeline, handle::CounterFd, host};

use crate::alone;

/// A time-out that no correct wait reaches.
const LONG: Duration = Duration::from_secs(20);

/// Offsets in the page: the counter, the announced value, and the failure.
const REACHED: u64 = 128;
const ANNOUNCED: u64 = 136;
const FAILED: u64 = 512;

/// A timeline over one port, which other processes may signal, too.
fn line(label: &str, initial: u64, port: Attachment) -> Timeline {
    let port = port.signalled_elsewhere(true);
    Timeline::new(label, initial, |_| Ok([port].into_iter().collect())).unwrap()
}

/// A timeline, and the exporter that makes handles of it.
fn exported(device: &host::Device, initial: u64) -> (Timeline, host::Exporter) {
    let (port, exporter) = device.exportable_port(initial).unwrap();
    (line("exported", initial, port), exporter)
}

fn imported(device: &host::Device, handle: CounterFd) -> Timeline {
    let port = device.import_timeline(handle).map_err(|r| r.error).unwrap();
    line("imported", 0, port)
}

/// The page in the hands of a process that writes anything to it.
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

#[test]
fn the_host_reports_that_it_exports_and_imports_counters() {
    use syncline_core::handle::HandleKind::CounterMemfd;
    let device = host::Device::new();
    let can = &device.info().capabilities;
    assert!(can.exports.contains(&CounterMemfd) && can.imports.contains(&CounterMemfd));
    assert_eq!(CounterMemfd.name(), "counter-memfd");
    // The ports of its other timelines need no watch.
    assert!(device.port(0).unwrap().watch().is_none());
}
