//! Semaphores and memory of other APIs.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use syncline_software_payload::{Kind, Memory, Semaphore};

use super::cuda::*;

const BINARY: u32 = 1;
const TIMELINE: u32 = 9;

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

fn is_open(descriptor: i32) -> bool {
    // SAFETY: asks for flags.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) >= 0 }
}

#[test]
fn a_timeline_goes_both_ways() {
    let _context = Context::new();
    let (payload, file) = Semaphore::create(Kind::Timeline, 0).unwrap();
    let semaphore = import(TIMELINE, file.into_raw_fd()).unwrap();
    let (stream, words) = (stream(), Pinned::new(1));
    ok(wait(semaphore, 5, stream));
    ok(cuStreamWriteValue64_v2(stream, words.address(), 1, 0));
    ok(signal(semaphore, 6, stream));
    payload.reach(4);
    assert_eq!(cuStreamQuery(stream), 600);
    assert_eq!(words.get(), 0);
    payload.reach(5);
    ok(cuStreamSynchronize(stream));
    assert_eq!((words.get(), payload.value()), (1, 6));
    ok(cuDestroyExternalSemaphore(semaphore));
    assert_eq!(signal(semaphore, 7, stream), 400);
}

#[test]
fn binary_semaphores_pair_signals_and_waits() {
    let _context = Context::new();
    let (payload, file) = Semaphore::create(Kind::Binary, 0).unwrap();
    let semaphore = import(BINARY, file.into_raw_fd()).unwrap();
    let (first, second) = (stream(), stream());
    ok(wait(semaphore, 0, first));
    ok(wait(semaphore, 0, second));
    payload.reach(payload.number_signal());
    ok(cuStreamSynchronize(first));
    assert_eq!(cuStreamQuery(second), 600);
    ok(signal(semaphore, 0, first));
    ok(cuStreamSynchronize(second));
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

#[test]
fn descriptors_that_are_no_semaphores_stay_open() {
    let _context = Context::new();
    let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    let socket: OwnedFd = std::os::unix::net::UnixStream::pair().unwrap().0.into();
    let others = plain_file(65_536);
    for refused in [&file, &socket, &others] {
        let descriptor = refused.as_raw_fd();
        for kind in [BINARY, TIMELINE] {
            assert_eq!(import(kind, descriptor), Err(999));
        }
        assert!(is_open(descriptor));
        // The descriptor of refused memory is closed.
        let taken = refused.try_clone().unwrap().into_raw_fd();
        let memory = MemoryDesc {
            kind: 1,
            descriptor: taken.into(),
            unused: 0,
            size: 64,
            rest: [0; 9],
        };
        assert_eq!(cuImportExternalMemory(&mut 0, &raw const memory), 999);
        let link = std::fs::read_link(format!("/proc/self/fd/{taken}")).ok();
        let original = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok();
        assert_ne!(link, original);
    }
    assert_eq!(import(TIMELINE, 1_000_000), Err(999));
    assert_eq!(import(TIMELINE, -1), Err(1));
    assert_eq!(import(BINARY, -1), Err(999));
    assert_eq!(import(77, file.as_raw_fd()), Err(1));
}

/// The same as in NVIDIA's driver. `processes` tests the strict mode.
#[test]
fn wrong_kinds_are_taken_and_signal_nothing() {
    let _context = Context::new();
    let stream = stream();
    let (binary, binary_file) = Semaphore::create(Kind::Binary, 0).unwrap();
    let (timeline, timeline_file) = Semaphore::create(Kind::Timeline, 0).unwrap();
    for (kind, file) in [
        (TIMELINE, binary_file),
        (BINARY, timeline_file),
        (TIMELINE, memory_file(65_536)),
    ] {
        let descriptor = file.into_raw_fd();
        let semaphore = import(kind, descriptor).unwrap();
        let waiting = super::cuda::stream();
        ok(wait(semaphore, 3, waiting));
        assert_eq!(cuStreamQuery(waiting), 600);
        ok(signal(semaphore, 3, stream));
        ok(cuStreamSynchronize(stream));
        // It reaches only waits for the same import.
        ok(cuStreamSynchronize(waiting));
    }
    assert_eq!((binary.value(), timeline.value()), (0, 0));
}

#[test]
fn memory_is_the_same_on_both_sides() {
    let _context = Context::new();
    let (map, file) = Memory::create(4096, [0; 16]).unwrap();
    let desc = MemoryDesc {
        kind: 1,
        descriptor: file.into_raw_fd().into(),
        unused: 0,
        size: 4096,
        rest: [0; 9],
    };
    let memory = made(|to| cuImportExternalMemory(to, &raw const desc));
    let buffer = |offset, size| BufferDesc {
        offset,
        size,
        rest: [0; 9],
    };
    for (offset, size) in [(0, 4097), (4096, 1), (u64::MAX, 2), (0, 0)] {
        let refused = buffer(offset, size);
        assert_eq!(
            cuExternalMemoryGetMappedBuffer(&mut 0, memory, &raw const refused),
            1
        );
    }
    // An address has the alignment of its offset.
    let desc = buffer(2, 64);
    let odd = made(|to| cuExternalMemoryGetMappedBuffer(to, memory, &raw const desc));
    let stream = stream();
    assert_eq!(cuMemsetD32Async(odd, 1, 1, stream), 1);
    ok(cuMemsetD32Async(odd + 2, 0x0302_0100, 1, stream));
    let desc = buffer(1024, 512);
    let address = made(|to| cuExternalMemoryGetMappedBuffer(to, memory, &raw const desc));
    ok(cuMemsetD8Async(address, 7, 512, stream));
    assert_eq!(cuMemsetD8Async(address, 7, 513, stream), 1);
    // The mapping keeps the memory.
    ok(cuDestroyExternalMemory(memory));
    ok(cuStreamSynchronize(stream));
    // SAFETY: within the mapping, and nothing writes any more.
    let bytes = unsafe { std::slice::from_raw_parts(map.address(), 4096) };
    assert!(bytes[1024..1536].iter().all(|byte| *byte == 7));
    assert_eq!((bytes[1023], bytes[1536]), (0, 0));
    assert_eq!(bytes[..9], [0, 0, 0, 0, 0, 1, 2, 3, 0]);
    ok(cuMemFree_v2(address));
}
