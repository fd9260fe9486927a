//! X3, X4, E5: descriptors that are no counters, and counts of open descriptors and mappings.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use rstest::rstest;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::pipe::pipe;
use syncline_core::{
    Error,
    handle::{CounterFd, Rejected},
    host,
};

use super::{Hostile, alone, exported, imported};
use crate::{open_descriptors, settled, soon};

const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// A memfd with a size, first bytes and seals.
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

/// A memfd that is a correct page except for its seals.
fn sealed(seals: SealFlags) -> OwnedFd {
    memfd(4096, &header(b"SYNCLCTR", 3), seals)
}

/// A memfd that is a correct page except for its size.
fn sized(bytes: u64) -> OwnedFd {
    memfd(bytes, &header(b"SYNCLCTR", 3), SEALS)
}

/// A memfd that is a correct page except for the first bytes.
fn headed(header: &[u8]) -> OwnedFd {
    memfd(4096, header, SEALS)
}

fn open(path: &str, flags: OFlags) -> OwnedFd {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// A correct page, opened again with other flags.
fn reopened(flags: OFlags) -> OwnedFd {
    let fd = sealed(SEALS);
    open(&format!("/proc/self/fd/{}", fd.as_raw_fd()), flags)
}

fn socket() -> OwnedFd {
    std::os::unix::net::UnixStream::pair().unwrap().0.into()
}

/// `make` makes the descriptor, and the error's reason contains `reason`.
#[rstest]
#[case::reading_end_of_a_pipe(|| pipe().unwrap().0, "read and written")]
#[case::writing_end_of_a_pipe(|| pipe().unwrap().1, "read and written")]
#[case::socket(socket, "else than a memfd")]
#[case::directory(|| open("/", OFlags::RDONLY), "read and written")]
#[case::device_file(|| open("/dev/zero", OFlags::RDWR), "else than a memfd")]
#[case::program_file(|| open("/proc/self/exe", OFlags::RDONLY), "read and written")]
#[case::path_only(|| reopened(OFlags::PATH), "read and written")]
#[case::page_for_reading(|| reopened(OFlags::RDONLY), "read and written")]
#[case::page_for_writing(|| reopened(OFlags::WRONLY), "read and written")]
#[case::no_seals(|| sealed(SealFlags::empty()), "lacks the seals")]
#[case::no_seal_against_shrinking(|| sealed(SEALS - SealFlags::SHRINK), "SHRINK")]
#[case::no_seal_against_growing(|| sealed(SEALS - SealFlags::GROW), "GROW")]
#[case::no_seal_against_more_seals(|| sealed(SEALS - SealFlags::SEAL), "SEAL")]
#[case::sealed_against_writing(|| sealed(SEALS | SealFlags::WRITE), "against writing")]
#[case::sealed_against_new_mappings(|| sealed(SEALS | SealFlags::FUTURE_WRITE), "against writing")]
#[case::empty(|| sized(0), "0 bytes")]
#[case::too_short(|| sized(4095), "4095 bytes")]
#[case::too_long(|| sized(8192), "8192 bytes")]
#[case::all_zero(|| headed(&[0; 12]), "begins with")]
#[case::other_magic(|| headed(&header(b"SYNCLCTS", 3)), "begins with")]
#[case::version_0(|| headed(&header(b"SYNCLCTR", 0)), "version 0")]
#[case::version_1(|| headed(&header(b"SYNCLCTR", 1)), "version 1")]
#[case::version_4(|| headed(&header(b"SYNCLCTR", 4)), "version 4")]
fn a_descriptor_that_is_no_counter_is_refused_and_stays_open(
    #[case] make: fn() -> OwnedFd,
    #[case] reason: &str,
) {
    let _alone = alone();
    let fd = make();
    let number = fd.as_raw_fd();
    let Rejected { handle, error } = CounterFd::from_fd(fd).unwrap_err();
    assert_eq!(handle.as_raw_fd(), number);
    assert!(rustix::fs::fstat(&handle).is_ok(), "it was closed");
    let Error::Import {
        what, reason: told, ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert!(told.contains(reason), "{error}");
    assert!(what.contains(&number.to_string()), "{error}");
}

#[test]
fn a_closed_descriptor_is_refused_and_not_closed_again() {
    let _alone = alone();
    let spare = memfd(0, &[], SealFlags::empty());
    // The number is so high that no other thread gets it meanwhile.
    let closed = rustix::io::fcntl_dupfd_cloexec(&spare, 700)
        .unwrap()
        .into_raw_fd();
    #[allow(unsafe_code, reason = "makes a descriptor that is not open")]
    let fd = unsafe {
        // SAFETY: it is open, and `into_raw_fd` left it without an owner.
        drop(OwnedFd::from_raw_fd(closed));
        // SAFETY: the test calls `into_raw_fd` on it again, so it is never closed.
        OwnedFd::from_raw_fd(closed)
    };
    let rejected = CounterFd::from_fd(fd).unwrap_err();
    assert_eq!(rejected.handle.into_raw_fd(), closed);
    assert!(matches!(rejected.error, Error::Import { .. }));
}

/// Another process writes over the header after the handle was checked and before the import.
#[test]
fn an_import_checks_the_header_again() {
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
fn no_descriptor_and_no_mapping_is_left_open() {
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
        // An import closes its handle and keeps the mapping.
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
    // Counters that are dropped, and imports that fail.
    for _ in 0..1000 {
        let (_line, exporter) = exported(&device, 7);
        let handle = exporter.export().unwrap();
        Hostile::of(&exporter).write(0, b"nothing!");
        drop(device.import_timeline(handle).unwrap_err());
        drop(CounterFd::from_fd(exporter.export().unwrap().into_fd()).unwrap_err());
    }
    is(before);
}
