//! Semaphores and memory of other APIs.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use syncline_software_payload::{Kind, Memory, Semaphore};

use super::cuda::*;

const BINARY: u32 = 1;

pub(crate) fn import(kind: u32, descriptor: i32) -> Result<Handle, u32> {
    let desc = SemaphoreDesc {
        kind,
        padding: 0,
        descriptor,
        rest: [0; 21],
    };
    let mut semaphore = 0;
    match cuImportExternalSemaphore(&raw mut semaphore, &raw const desc) {
        0 => Ok(semaphore),
        code => Err(code),
    }
}

fn signal(semaphore: Handle, number: u64, stream: Handle) -> u32 {
    cuSignalExternalSemaphoresAsync(&semaphore, &value(number), 1, stream)
}

fn wait(semaphore: Handle, number: u64, stream: Handle) -> u32 {
    cuWaitExternalSemaphoresAsync(&semaphore, &value(number), 1, stream)
}

/// Makes memory as the layer exports it.
pub(crate) fn memory_file(bytes: u64) -> OwnedFd {
    Memory::create(bytes, [0; 16]).unwrap().1
}

/// Makes a file of memory that is none of a driver.
pub(crate) fn plain_file(bytes: u64) -> OwnedFd {
    // SAFETY: makes a file that nothing else has.
    let file = unsafe {
        let fd = libc::memfd_create(c"memory".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    };
    std::fs::File::from(file.try_clone().unwrap())
        .set_len(bytes)
        .unwrap();
    file
}

#[test]
fn a_refused_operation_leaves_no_trace() {
    let _context = Context::new();
    let (payload, file) = Semaphore::create(Kind::Binary, 0).unwrap();
    let semaphore = import(BINARY, file.into_raw_fd()).unwrap();
    let blocking = made(|to| cuStreamCreate(to, 0));
    // The legacy stream must not be used during the capture.
    ok(cuStreamBeginCapture_v2(blocking, 1));
    assert_eq!(signal(semaphore, 0, 0), 906);
    assert_eq!(wait(semaphore, 0, 0), 906);
    assert_eq!(cuStreamEndCapture(blocking, &mut 0), 901);
    assert_eq!((payload.number_signal(), payload.number_wait()), (1, 1));
    // It waits for outstanding operations, so none is left.
    ok(cuDestroyExternalSemaphore(semaphore));
}
