//! External semaphores and external memory.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use ash::vk;

use super::external_memory::import_fd;
use crate::vulkan::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("external", QUESTIONS);
}

/// Descriptors that are neither a semaphore nor memory of Vulkan's.
pub(super) fn fds() -> Vec<(&'static str, i32)> {
    let mut pipe = [-1; 2];
    // SAFETY: makes new descriptors, and writes two integers.
    unsafe {
        libc::pipe(pipe.as_mut_ptr());
        let file = libc::memfd_create(c"probe".as_ptr(), 0);
        libc::ftruncate(file, 65536);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        // No later descriptor gets a number that is so high.
        let closed = libc::fcntl(null, libc::F_DUPFD, 500);
        libc::close(closed);
        let mut sockets = [-1; 2];
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, sockets.as_mut_ptr());
        vec![
            ("closed", closed),
            ("minus_1", -1),
            ("pipe", pipe[0]),
            ("memfd", file),
            ("eventfd", libc::eventfd(0, 0)),
            ("dev_null", null),
            ("directory", libc::open(c"/".as_ptr(), libc::O_RDONLY)),
            ("socket", sockets[0]),
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
    let (stream, vulkan) = (stream(), need(device.semaphore(timeline)));
    let (code, cuda) = import(kind, device.export(vulkan));
    line("import", code);
    if code != 0 {
        return;
    }
    let wait = wait_one(cuda, 1, stream);
    line("wait", wait);
    line("waits", !idle(stream));
    let second = stream_with(1);
    line("signal", ended(signal_one(cuda, 1, second), second));
    line("wait_then", outcome(stream));
    if timeline {
        line("value", device.value(vulkan));
    }
    let again = wait_one(cuda, 1, stream);
    line("wait_again", again);
    line("waits_again", !idle(stream));
    line("signal_again", ended(signal_one(cuda, 2, second), second));
    line("wait_again_then", outcome(stream));
    if timeline {
        line("value_again", device.value(vulkan));
    }
}

/// Signals these values one after the other, and shows the value after each.
fn signals(values: &[u64]) {
    let (semaphore, stream) = (timeline(), stream());
    for (index, value) in values.iter().enumerate() {
        let codes = ended(semaphore.signal_code(*value, stream), stream);
        let is = semaphore.value();
        line(
            format!("{index}_signal_{value}"),
            format!("{}, value {is}", names(&codes)),
        );
    }
    line("wait_5", ended(semaphore.wait_code(5, stream), stream));
    line("host_wait_5", semaphore.wait_host(5));
}

/// Makes semaphores for export until there is no descriptor for one, and then allows more.
fn make_until_refused(device: &Vulkan) -> Vec<vk::Semaphore> {
    let mut before = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes the limits.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut before) };
    // SAFETY: makes a new descriptor: the lowest that is free.
    let free = u64::try_from(unsafe { libc::dup(0) });
    let few = libc::rlimit {
        rlim_cur: need(free.map_err(|_| "no descriptor is free".into())) + 20,
        ..before
    };
    // SAFETY: a valid limit.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &few) };
    let mut made = vec![];
    let refused = loop {
        match device.semaphore(true) {
            Ok(semaphore) if made.len() < 64 => made.push(semaphore),
            other => break other,
        }
    };
    // SAFETY: the limit from before.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &before) };
    line("refused", shown(&refused));
    made
}

fn shown(made: &Result<vk::Semaphore, String>) -> &str {
    match made {
        Ok(_) => "0",
        Err(reason) => reason,
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
        // SAFETY: makes a new descriptor.
        let fd = unsafe { libc::eventfd(0, 0) };
        for kind in [0, 2, 3, 4, 5, 6, 7, 8, 10, 11, 100] {
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
        let device = vulkan();
        for (what, kind) in [("opaque", OPAQUE_FD), ("timeline", TIMELINE_FD)] {
            let memory = device.exported_memory(65536, true);
            let (code, semaphore) = import(kind, memory.fd);
            line(format!("{what}.import"), (code, open(memory.fd)));
            if code == 0 {
                let stream = stream();
                line(
                    format!("{what}.signal"),
                    ended(signal_one(semaphore, 1, stream), stream),
                );
                line(
                    format!("{what}.wait"),
                    ended(wait_one(semaphore, 1, stream), stream),
                );
            }
        }
    }),
    ("semaphore_as_memory", || {
        let device = vulkan();
        for (what, timeline) in [("binary", false), ("timeline", true)] {
            for size in [8, 4096, 65536] {
                let fd = device.export(need(device.semaphore(timeline)));
                let (code, memory) = import_fd(fd, size, 0);
                let part = format!("{what}.{size}");
                line(format!("{part}.import"), (code, open(fd)));
                if code == 0 {
                    let (mut pointer, desc) = (
                        0,
                        BufferDesc {
                            size,
                            ..Default::default()
                        },
                    );
                    line(
                        format!("{part}.map"),
                        mapped_buffer(&mut pointer, memory, &desc),
                    );
                }
            }
        }
    }),
    ("wait_0", || {
        let (semaphore, stream) = (timeline(), stream());
        answer(ended(semaphore.wait_code(0, stream), stream));
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
        let stream = stream();
        let (first, second) = (timeline(), timeline());
        line(
            "signal_0",
            signal_semaphores(&first.cuda, &params(1), 0, stream),
        );
        line(
            "wait_0",
            wait_semaphores(&first.cuda, &params(1), 0, stream),
        );
        let (both, values) = ([first.cuda, second.cuda], [params(3), params(4)]);
        line(
            "signal_2",
            ended(
                signal_semaphores(both.as_ptr(), values.as_ptr(), 2, stream),
                stream,
            ),
        );
        let read = |semaphore: &Imported| semaphore.value();
        line("values", format!("{} {}", read(&first), read(&second)));
        line(
            "wait_2",
            ended(
                wait_semaphores(both.as_ptr(), values.as_ptr(), 2, stream),
                stream,
            ),
        );
        line("null_handle", signal_one(0, 1, stream));
    }),
    ("destroy_pending_signal", || {
        let (semaphore, stream, words) = (timeline(), stream(), Words::new());
        park(stream, words, 0);
        line("signal", semaphore.signal_code(1, stream));
        let opener = words.open_after(1000);
        line("destroy", destroy_semaphore(semaphore.cuda));
        line("returns_while_parked", words.load(0) == 0);
        let _ = opener.join();
        line("then", outcome(stream));
        line("value", semaphore.value());
    }),
    ("destroy_pending_wait", || {
        let (semaphore, stream, words) = (timeline(), stream(), Words::new());
        semaphore.wait(1, stream);
        mark(stream, words, 0);
        line("destroy", destroy_semaphore(semaphore.cuda));
        line("passes", marked_early(words, 0));
        need(semaphore.signal_host(1));
        line("then", outcome(stream));
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
        line("destroy", [destroy_semaphore(one), destroy_semaphore(two)]);
    }),
    // Whether the descriptor is still open after a successful import.
    ("fd_after_import", || {
        let device = vulkan();
        let fd = device.export(need(device.semaphore(true)));
        let (code, _) = import(TIMELINE_FD, fd);
        line("semaphore", (code, open(fd)));
        let memory = device.exported_memory(65536, true);
        let (code, _) = import_fd(memory.fd, memory.size, 1);
        line("memory", (code, open(memory.fd)));
    }),
    ("wait_flags", || {
        let (semaphore, stream) = (timeline(), stream());
        need(semaphore.signal_host(1));
        for flags in [1, 2, 4, 1 << 31] {
            let mut with = params(1);
            // The flags stand behind 72 bytes.
            with.rest[8] = flags;
            line(
                format!("wait_{flags}"),
                ended(wait_semaphores(&semaphore.cuda, &with, 1, stream), stream),
            );
        }
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
    // Runs out of descriptors while Vulkan makes semaphores, and destroys one of them afterwards.
    ("descriptors_out_then_destroy", || {
        let device = vulkan();
        let all = make_until_refused(device);
        line("raised", shown(&device.semaphore(true)));
        let one = need(all.first().ok_or_else(|| "no semaphore was made".into()));
        device.destroy(*one);
        line("destroyed", shown(&device.semaphore(true)));
    }),
    // Runs out of descriptors while Vulkan makes semaphores, and opens a second device afterwards.
    ("descriptors_out_then_open", || {
        let device = vulkan();
        make_until_refused(device);
        line("raised", shown(&device.semaphore(true)));
        line("second", shown(&Vulkan::open().semaphore(true)));
        line("first", shown(&device.semaphore(true)));
    }),
    // Signals behind a kernel that faults, and in a stream that is parked meanwhile.
    ("after_fault", || {
        let words = Words::new();
        let (faulty, parked) = (stream(), stream());
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
        line("value_end", behind.value());
        need(behind.signal_host(3));
        line("value_host", behind.value());
    }),
    ("signal_lower", || signals(&[9, 5, 6])),
    ("signal_same", || signals(&[5, 5])),
    ("signal_0", || signals(&[0, 5, 0, 1 << 40, u64::MAX, 6])),
];
