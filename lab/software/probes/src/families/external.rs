//! External semaphores.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

use super::external_memory::{import_fd, map};
use crate::vulkan::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("external", QUESTIONS);
}

/// Descriptors that are neither a semaphore nor memory of Vulkan's.
pub(super) fn fds() -> [(&'static str, i32); 4] {
    let mut pipe = [-1; 2];
    // SAFETY: makes new descriptors, and writes two integers.
    unsafe {
        libc::pipe(pipe.as_mut_ptr());
        let file = libc::memfd_create(c"probe".as_ptr(), 0);
        libc::ftruncate(file, 65536);
        // No later descriptor gets a number that is so high.
        let closed = libc::fcntl(file, libc::F_DUPFD, 500);
        libc::close(closed);
        [
            ("closed", closed),
            ("minus_1", -1),
            ("pipe", pipe[0]),
            ("memfd", file),
        ]
    }
}

/// Whether a descriptor is open.
pub(super) fn open(fd: i32) -> String {
    // SAFETY: asks for the flags of a descriptor, which may be closed.
    that("open", unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0)
}

/// Uses an import of a kind that may be wrong.
fn used(timeline: bool, kind: u32) {
    let device = vulkan();
    let (waiting, signalling, vulkan) = (stream(), stream(), need(device.semaphore(timeline)));
    let (code, cuda) = import(kind, device.export(vulkan));
    line("import", code);
    for (again, value) in [("", 1), ("_again", 2)] {
        let part = |part: &str| format!("{part}{again}");
        line(part("wait"), wait_one(cuda, 1, waiting));
        line(part("waits"), !idle(waiting));
        let signalled = signal_one(cuda, value, signalling);
        line(part("signal"), ended(signalled, signalling));
        line(part("wait") + "_then", outcome(waiting));
        if timeline {
            line(part("value"), device.value(vulkan));
        }
    }
}

/// Signals these values one after the other, and shows the value after each.
fn signals(values: &[u64]) {
    let (semaphore, stream) = (timeline(), stream());
    for (index, value) in values.iter().enumerate() {
        let codes = names(&ended(semaphore.signal_code(*value, stream), stream));
        let is = semaphore.value();
        let part = format!("{index}_signal_{value}");
        line(part, format!("{codes}, value {is}"));
    }
}

const QUESTIONS: Questions = &[
    ("semaphore_fds", || {
        for (kind, number) in [("opaque", OPAQUE_FD), ("timeline", TIMELINE_FD)] {
            for (what, fd) in fds() {
                let (code, _) = import(number, fd);
                line(format!("{kind}.{what}"), (code, open(fd)));
            }
        }
        line("context", ctx_synchronize());
    }),
    ("semaphore_kinds", || {
        let [.., (_, fd)] = fds();
        for kind in [0, 2, 8, 10, 11] {
            line(kind, import(kind, fd).0);
        }
    }),
    ("timeline", || {
        let (semaphore, stream) = (timeline(), stream());
        line("signal", ended(semaphore.signal_code(5, stream), stream));
        line("value", semaphore.value());
        line("wait_host", semaphore.wait_host(5));
        line("wait", semaphore.wait_code(7, stream));
        line("waits", !idle(stream));
        need(semaphore.signal_host(8));
        line("then", outcome(stream));
        line("destroy", destroy_semaphore(semaphore.cuda));
    }),
    ("timeline_as_binary", || used(true, OPAQUE_FD)),
    ("binary", || {
        let device = vulkan();
        let (stream, vulkan) = (stream(), need(device.semaphore(false)));
        let (code, cuda) = import(OPAQUE_FD, device.export(vulkan));
        line("import_signalled", code);
        need(device.signal_binary(vulkan));
        line("wait_signalled", ended(wait_one(cuda, 0, stream), stream));
        used(false, OPAQUE_FD)
    }),
    ("binary_as_timeline", || used(false, TIMELINE_FD)),
    ("memory_as_semaphore", || {
        for (what, kind) in [("opaque", OPAQUE_FD), ("timeline", TIMELINE_FD)] {
            let (memory, stream) = (vulkan().exported_memory(65536, true), stream());
            let (code, semaphore) = import(kind, memory.fd);
            line(format!("{what}.import"), (code, open(memory.fd)));
            let signalled = ended(signal_one(semaphore, 1, stream), stream);
            line(format!("{what}.signal"), signalled);
            let waited = ended(wait_one(semaphore, 1, stream), stream);
            line(format!("{what}.wait"), waited);
        }
    }),
    ("semaphore_as_memory", || {
        let device = vulkan();
        for (what, timeline) in [("binary", false), ("timeline", true)] {
            for size in [4096, 65536] {
                let fd = device.export(need(device.semaphore(timeline)));
                let (code, memory) = import_fd(fd, size, 0);
                let part = format!("{what}.{size}");
                line(format!("{part}.import"), (code, open(fd)));
                line(format!("{part}.map"), map(memory, 0, size, 0).0);
            }
        }
    }),
    // A signal is not visible before the work in front of it.
    ("signal_order", || {
        let (semaphore, stream, words) = (timeline(), stream(), Words::new());
        park(stream, words, 0);
        line("signal", semaphore.signal_code(1, stream));
        pause(200);
        line("value_while_parked", semaphore.value());
        words.store(0, 1);
        line("then", outcome(stream));
        line("value", semaphore.value());
    }),
    ("counts", || {
        let (first, second, stream) = (timeline(), timeline(), stream());
        let (both, values) = ([first.cuda, second.cuda], [params(3), params(4)]);
        let signal = |count| signal_semaphores(both.as_ptr(), values.as_ptr(), count, stream);
        let wait = |count| wait_semaphores(both.as_ptr(), values.as_ptr(), count, stream);
        line("signal_0", signal(0));
        line("wait_0", wait(0));
        line("signal_2", ended(signal(2), stream));
        line("values", format!("{} {}", first.value(), second.value()));
        line("wait_2", ended(wait(2), stream));
    }),
    ("destroy_pending_signal", || {
        let (semaphore, stream, words) = (timeline(), stream(), Words::new());
        park(stream, words, 0);
        line("signal", semaphore.signal_code(1, stream));
        let (code, early) = words.call_before(1000, || destroy_semaphore(semaphore.cuda));
        line("destroy", code);
        line("returns_while_parked", early);
        line("then", outcome(stream));
        line("value", semaphore.value());
    }),
    ("destroy_pending_wait", || {
        let (semaphore, stream) = (timeline(), stream());
        semaphore.wait(1, stream);
        line("destroy", destroy_semaphore(semaphore.cuda));
    }),
    ("vulkan_destroys_first", || {
        let (semaphore, stream) = (timeline(), stream());
        semaphore.destroy_vulkan();
        line("signal", ended(semaphore.signal_code(1, stream), stream));
        line("wait", ended(semaphore.wait_code(1, stream), stream));
        line("destroy", destroy_semaphore(semaphore.cuda));
    }),
    ("import_twice", || {
        let (device, stream) = (vulkan(), stream());
        let vulkan = need(device.semaphore(true));
        let (first, one) = import(TIMELINE_FD, device.export(vulkan));
        let (second, two) = import(TIMELINE_FD, device.export(vulkan));
        line("import", [first, second]);
        line("signal_one", ended(signal_one(one, 1, stream), stream));
        line("wait_two", ended(wait_one(two, 1, stream), stream));
    }),
    // Whether the descriptor is still open after a successful import.
    ("fd_after_import", || {
        let device = vulkan();
        let fd = device.export(need(device.semaphore(true)));
        line("semaphore", (import(TIMELINE_FD, fd).0, open(fd)));
        let memory = device.exported_memory(65536, true);
        let (code, _) = import_fd(memory.fd, memory.size, 1);
        line("memory", (code, open(memory.fd)));
    }),
    ("wait_flags", || {
        let (semaphore, stream) = (timeline(), stream());
        let mut with = params(1);
        // The flags stand behind 72 bytes.
        with.rest[8] = 1;
        let code = wait_semaphores(&semaphore.cuda, &with, 1, stream);
        line("wait_1", ended(code, stream));
    }),
    ("no_current", || {
        let (device, stream) = (vulkan(), stream());
        let (semaphore, other) = (timeline(), need(device.semaphore(true)));
        let memory = device.exported_memory(65536, true);
        current(0);
        line("signal", ended(semaphore.signal_code(1, stream), stream));
        line("wait", ended(semaphore.wait_code(1, stream), stream));
        line("import", import(TIMELINE_FD, device.export(other)).0);
        line("import_memory", import_fd(memory.fd, memory.size, 1).0);
        line("destroy", destroy_semaphore(semaphore.cuda));
    }),
    // Vulkan's host signals less than the value while CUDA waits.
    ("host_signal_lower", || {
        let (semaphore, stream) = (timeline(), stream());
        need(semaphore.signal_host(9));
        let lower = semaphore.signal_host(5);
        line("lower", lower.err().unwrap_or_else(|| "0".into()));
        line("value", semaphore.value());
        line("wait_7", semaphore.wait_code(7, stream));
        line("waits", !idle(stream));
        need(semaphore.signal_host(10));
        line("then", outcome(stream));
    }),
    // Signals behind a kernel that faults, and in a stream that is parked meanwhile.
    ("after_fault", || {
        let (faulty, parked, words) = (stream(), stream(), Words::new());
        let (behind, beside) = (timeline(), timeline());
        let put = kernel(c"put");
        park(parked, words, 0);
        beside.signal(1, parked);
        line("launch", launch(put, faulty, &[16, 1]));
        line("signal", behind.signal_code(1, faulty));
        line("synchronize", stream_synchronize(faulty));
        words.store(0, 1);
        pause(500);
        line("value_behind", behind.value());
        line("value_beside", beside.value());
        line("signal_then", behind.signal_code(1, parked));
        line("wait_then", behind.wait_code(1, parked));
        line("destroy", destroy_semaphore(behind.cuda));
        need(behind.signal_host(3));
        line("value_host", behind.value());
    }),
    ("signal_lower", || signals(&[9, 5, 6])),
    ("signal_same", || signals(&[5, 5])),
];
