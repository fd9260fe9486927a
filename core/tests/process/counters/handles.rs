//! X3, X4, E5: descriptors that are no counters, and the count of those that are.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use syncline_core::{CounterFd, Error, Rejected, host};

use super::{Hostile, alone, exported, imported};
use crate::{open_descriptors, settled, soon};

const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// A memfd of so many bytes, with what a page begins with and these seals.
fn memfd(bytes: u64, header: &[u8], seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("hostile", flags).unwrap();
    rustix::fs::ftruncate(&fd, bytes).unwrap();
    if bytes > 0 {
        rustix::io::pwrite(&fd, header, 0).unwrap();
    }
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn header(magic: &[u8; 8], version: u32) -> Vec<u8> {
    [&magic[..], &version.to_ne_bytes()].concat()
}

/// What each is, and what the refusal says of it.
fn hostile() -> Vec<(&'static str, OwnedFd, &'static str)> {
    let good = header(b"SYNCLCTR", 3);
    let open =
        |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let twin = |flags| {
        let fd = memfd(4096, &good, SEALS);
        open(&format!("/proc/self/fd/{}", fd.as_raw_fd()), flags)
    };
    let (reading, writing) = rustix::pipe::pipe().unwrap();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    vec![
        ("the reading end of a pipe", reading, "read and written"),
        ("the writing end of a pipe", writing, "read and written"),
        ("a socket", socket.into(), "else than a memfd"),
        ("a directory", open("/", OFlags::RDONLY), "read and written"),
        (
            "/dev/zero",
            open("/dev/zero", OFlags::RDWR),
            "else than a memfd",
        ),
        (
            "the program",
            open("/proc/self/exe", OFlags::RDONLY),
            "read and written",
        ),
        ("a path", twin(OFlags::PATH), "read and written"),
        (
            "a memfd for reading",
            twin(OFlags::RDONLY),
            "read and written",
        ),
        (
            "a memfd for writing",
            twin(OFlags::WRONLY),
            "read and written",
        ),
        (
            "a memfd without seals",
            memfd(4096, &good, SealFlags::empty()),
            "lacks the seals",
        ),
        (
            "one that can shrink",
            memfd(4096, &good, SEALS - SealFlags::SHRINK),
            "SHRINK",
        ),
        (
            "one that can grow",
            memfd(4096, &good, SEALS - SealFlags::GROW),
            "GROW",
        ),
        (
            "one that takes more seals",
            memfd(4096, &good, SEALS - SealFlags::SEAL),
            "SEAL",
        ),
        (
            "one that nobody writes to",
            memfd(4096, &good, SEALS | SealFlags::WRITE),
            "against writing",
        ),
        (
            "one that others cannot map",
            memfd(4096, &good, SEALS | SealFlags::FUTURE_WRITE),
            "against writing",
        ),
        ("an empty memfd", memfd(0, &good, SEALS), "0 bytes"),
        ("a short memfd", memfd(4095, &good, SEALS), "4095 bytes"),
        ("a long memfd", memfd(8192, &good, SEALS), "8192 bytes"),
        (
            "a memfd of zeroes",
            memfd(4096, &[0; 12], SEALS),
            "begins with",
        ),
        (
            "one of another make",
            memfd(4096, &header(b"SYNCLCTS", 3), SEALS),
            "begins with",
        ),
        (
            "one of version 0",
            memfd(4096, &header(b"SYNCLCTR", 0), SEALS),
            "version 0",
        ),
        (
            "one of version 1",
            memfd(4096, &header(b"SYNCLCTR", 1), SEALS),
            "version 1",
        ),
        (
            "one of version 4",
            memfd(4096, &header(b"SYNCLCTR", 4), SEALS),
            "version 4",
        ),
    ]
}

#[test]
fn what_is_no_counter_is_refused_and_comes_back_open() {
    let _alone = alone();
    for (what, fd, says) in hostile() {
        let number = fd.as_raw_fd();
        let Err(Rejected { handle, error }) = CounterFd::from_fd(fd) else {
            panic!("{what} was taken for a counter");
        };
        assert_eq!(handle.as_raw_fd(), number, "{what}");
        assert!(rustix::fs::fstat(&handle).is_ok(), "{what} was closed");
        let Error::Import {
            what: named,
            reason,
            ..
        } = &error
        else {
            panic!("{what}: {error:?}");
        };
        assert!(reason.contains(says), "{what}: {error}");
        assert!(named.contains(&number.to_string()), "{what}: {error}");
    }
}

#[test]
fn a_closed_descriptor_is_refused_and_not_closed_again() {
    let _alone = alone();
    let spare = memfd(0, &[], SealFlags::empty());
    // High enough that nobody takes it meanwhile.
    let closed = rustix::io::fcntl_dupfd_cloexec(&spare, 700)
        .unwrap()
        .into_raw_fd();
    #[allow(unsafe_code, reason = "makes a descriptor that is not open")]
    let fd = unsafe {
        // SAFETY: just opened, and forgotten by its owner.
        drop(OwnedFd::from_raw_fd(closed));
        // SAFETY: what comes back is forgotten before it could be closed again.
        OwnedFd::from_raw_fd(closed)
    };
    let rejected = CounterFd::from_fd(fd).unwrap_err();
    assert_eq!(rejected.handle.into_raw_fd(), closed);
    assert!(matches!(rejected.error, Error::Import { .. }));
}

/// Between the handle and the import somebody writes over the head.
#[test]
fn a_head_that_changes_is_seen_by_the_import() {
    let _alone = alone();
    let device = host::Device::new();
    let (_line, exporter) = exported(&device, 0);
    let handle = exporter.export().unwrap();
    let number = std::os::fd::AsFd::as_fd(&handle).as_raw_fd();
    Hostile::of(&exporter).write(8, &9_u32.to_ne_bytes());
    let rejected = device.import_timeline(handle).unwrap_err();
    assert!(
        matches!(rejected.error, Error::Import { .. }),
        "{}",
        rejected.error
    );
    assert_eq!(rejected.handle.into_fd().as_raw_fd(), number);
}

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("syncline-counter"))
        .count()
}

#[test]
fn descriptors_and_pages_are_counted_exactly() {
    let _alone = alone();
    let device = host::Device::new();
    let count = || (open_descriptors(), mappings());
    let before = settled(count);
    let is = |expected| assert_eq!(soon(count, &expected), expected);
    {
        let (line, exporter) = exported(&device, 0);
        is((before.0 + 1, before.1 + 1));
        let handles: Vec<_> = (0..1000).map(|_| exporter.export().unwrap()).collect();
        is((before.0 + 1001, before.1 + 1));
        // Each is consumed by its import, which leaves the page.
        let views: Vec<_> = handles.into_iter().map(|h| imported(&device, h)).collect();
        is((before.0 + 1, before.1 + 1001));
        drop(exporter);
        is((before.0, before.1 + 1001));
        line.signal(1).unwrap();
        for view in &views {
            assert_eq!(view.value().unwrap(), 1);
        }
    }
    is(before);
    // Counters that come and go, and imports that fail.
    for _ in 0..1000 {
        let (_line, exporter) = exported(&device, 7);
        let handle = exporter.export().unwrap();
        Hostile::of(&exporter).write(0, b"nothing!");
        drop(device.import_timeline(handle).unwrap_err());
        drop(CounterFd::from_fd(exporter.export().unwrap().into_fd()).unwrap_err());
    }
    is(before);
}
