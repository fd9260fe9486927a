//! X3, X4, E5: descriptors of pages that cannot be mapped for reading and writing.
//!
//! The suite has the other descriptors that are no counters.

use std::os::fd::{AsRawFd, OwnedFd};

use rstest::rstest;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use syncline_core::Error;
use syncline_core::handle::{CounterFd, Rejected};

use crate::alone;

/// A correct page, except for the additional seal.
fn sealed(additional: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("hostile", flags).unwrap();
    rustix::fs::ftruncate(&fd, 4096).unwrap();
    rustix::io::pwrite(&fd, b"SYNCLCTR\x03\0\0\0", 0).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | additional;
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// A correct page, opened again with other flags.
fn reopened(flags: OFlags) -> OwnedFd {
    let fd = sealed(SealFlags::empty());
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

#[rstest]
#[case::for_reading(|| reopened(OFlags::RDONLY), "read and written")]
#[case::for_writing(|| reopened(OFlags::WRONLY), "read and written")]
#[case::sealed_against_new_mappings(|| sealed(SealFlags::FUTURE_WRITE), "against writing")]
fn a_page_that_cannot_be_mapped_is_refused_and_stays_open(
    #[case] make: fn() -> OwnedFd,
    #[case] reason: &str,
) {
    let _alone = alone();
    let fd = make();
    let number = fd.as_raw_fd();
    let Rejected { handle, error } = CounterFd::from_fd(fd).unwrap_err();
    assert_eq!(handle.as_raw_fd(), number);
    assert!(rustix::fs::fstat(&handle).is_ok(), "it was closed");
    let refused = matches!(&error, Error::Import { reason: told, .. } if told.contains(reason));
    assert!(refused, "{error}");
}
