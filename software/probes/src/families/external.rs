//! External semaphores and external memory.

use ash::vk;

use super::external_memory::import_memory;
use crate::cuda::{BufferDesc, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, Words, context, mark, marked_early, name, names, outcome, park, pause, stream, within,
    yes,
};
use crate::vulkan::{Imported, NONE, OPAQUE_FD, TIMELINE_FD, Vulkan, import, params};

pub(crate) fn list() -> Vec<Probe> {
    without_vulkan(
        family!["external"; semaphore_fds,  semaphore_kinds, timeline,
        timeline_as_binary, binary, binary_as_timeline, memory_as_semaphore, semaphore_as_memory,
        wait_0, signal_lower, signal_same, signal_0, signal_order, counts, destroy_pending_signal,
        destroy_pending_wait, vulkan_destroys_first, import_twice, fd_after_import, wait_flags, no_current,
        host_signal_lower, descriptors_out_then_destroy, descriptors_out_then_open, after_fault],
    )
}

/// They answer [`NONE`] where there is no Vulkan.
pub(super) fn without_vulkan(mut list: Vec<Probe>) -> Vec<Probe> {
    for probe in &mut list {
        let ask = std::mem::replace(&mut probe.ask, Box::new(|| Ok(String::new())));
        probe.ask = Box::new(move || match ask() {
            Err(reason) if reason == NONE => Ok(reason),
            answer => answer,
        });
    }
    list
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

pub(super) fn open(fd: i32) -> &'static str {
    // SAFETY: asks for the flags of a descriptor, which may be closed.
    yes(unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0)
}

fn semaphore_fds() -> Answer {
    context()?;
    for (kind, number) in [("opaque", OPAQUE_FD), ("timeline", TIMELINE_FD)] {
        for (what, fd) in fds() {
            let (code, _) = import(number, fd);
            line(
                format!("{kind}.{what}"),
                format!("{}, open: {}", name(code), open(fd)),
            );
        }
    }
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

fn semaphore_kinds() -> Answer {
    context()?;
    // SAFETY: makes a new descriptor.
    let fd = unsafe { libc::eventfd(0, 0) };
    for kind in [0, 2, 3, 4, 5, 6, 7, 8, 10, 11, 100] {
        line(kind, name(import(kind, fd).0));
    }
    Ok(String::new())
}

fn timeline() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let semaphore = device.imported_timeline()?;
    line(
        "signal",
        names(&[semaphore.signal_code(5, stream), outcome(stream)]),
    );
    line("value", device.value(semaphore.vulkan())?);
    line("wait_host", device.wait_host(semaphore.vulkan(), 5));
    line("wait", name(semaphore.wait_code(7, stream)));
    line(
        "waits",
        yes(!within(300, || cu().stream_query(stream) == 0)),
    );
    device.signal_host(semaphore.vulkan(), 8)?;
    line("then", name(outcome(stream)));
    line("destroy", name(cu().destroy_semaphore(semaphore.cuda)));
    Ok(String::new())
}

/// Uses an import of a kind that may be wrong.
fn used(device: &Vulkan, timeline: bool, kind: u32) -> Answer {
    let (stream, vulkan) = (stream()?, device.semaphore(timeline)?);
    let (code, cuda) = import(kind, device.export(vulkan)?);
    line("import", name(code));
    if code != 0 {
        return Ok(String::new());
    }
    let wait = cu().wait_semaphores(&cuda, &params(1), 1, stream);
    line("wait", name(wait));
    line(
        "waits",
        yes(!within(300, || cu().stream_query(stream) == 0)),
    );
    let second = crate::kit::stream()?;
    let signal = cu().signal_semaphores(&cuda, &params(1), 1, second);
    line("signal", names(&[signal, outcome(second)]));
    line("wait_then", name(outcome(stream)));
    if timeline {
        line("value", device.value(vulkan)?);
    }
    let again = cu().wait_semaphores(&cuda, &params(1), 1, stream);
    line("wait_again", name(again));
    line(
        "waits_again",
        yes(!within(300, || cu().stream_query(stream) == 0)),
    );
    let signal = cu().signal_semaphores(&cuda, &params(2), 1, second);
    line("signal_again", names(&[signal, outcome(second)]));
    line("wait_again_then", name(outcome(stream)));
    if timeline {
        line("value_again", device.value(vulkan)?);
    }
    Ok(String::new())
}

fn timeline_as_binary() -> Answer {
    context()?;
    used(&Vulkan::open()?, true, OPAQUE_FD)
}

fn binary() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let (stream, vulkan) = (stream()?, device.semaphore(false)?);
    let (code, cuda) = import(OPAQUE_FD, device.export(vulkan)?);
    line("import_signalled", name(code));
    device.signal_binary(vulkan)?;
    let wait = cu().wait_semaphores(&cuda, &params(0), 1, stream);
    line("wait_signalled", names(&[wait, outcome(stream)]));
    used(&device, false, OPAQUE_FD)
}

fn binary_as_timeline() -> Answer {
    context()?;
    used(&Vulkan::open()?, false, TIMELINE_FD)
}

fn memory_as_semaphore() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    for (what, kind) in [("opaque", OPAQUE_FD), ("timeline", TIMELINE_FD)] {
        let memory = device.exported_memory(65536, true)?;
        let (code, semaphore) = import(kind, memory.fd);
        line(
            format!("{what}.import"),
            format!("{}, open: {}", name(code), open(memory.fd)),
        );
        if code == 0 {
            let stream = stream()?;
            let signal = cu().signal_semaphores(&semaphore, &params(1), 1, stream);
            line(format!("{what}.signal"), names(&[signal, outcome(stream)]));
            let wait = cu().wait_semaphores(&semaphore, &params(1), 1, stream);
            line(format!("{what}.wait"), names(&[wait, outcome(stream)]));
        }
    }
    Ok(String::new())
}

fn semaphore_as_memory() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    for (what, timeline) in [("binary", false), ("timeline", true)] {
        for size in [8, 4096, 65536] {
            let fd = device.export(device.semaphore(timeline)?)?;
            let (code, memory) = import_memory(fd, size, 0);
            let part = format!("{what}.{size}");
            line(
                format!("{part}.import"),
                format!("{}, open: {}", name(code), open(fd)),
            );
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
                    name(cu().mapped_buffer(&mut pointer, memory, &desc)),
                );
            }
        }
    }
    Ok(String::new())
}

fn wait_0() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let semaphore = device.imported_timeline()?;
    Ok(names(&[semaphore.wait_code(0, stream), outcome(stream)]))
}

/// Signals these values one after the other, and shows the value after each.
fn signals(values: &[u64]) -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let semaphore = device.imported_timeline()?;
    for (index, value) in values.iter().enumerate() {
        let codes = [semaphore.signal_code(*value, stream), outcome(stream)];
        let is = device.value(semaphore.vulkan())?;
        line(
            format!("{index}_signal_{value}"),
            format!("{}, value {is}", names(&codes)),
        );
    }
    line(
        "wait_5",
        names(&[semaphore.wait_code(5, stream), outcome(stream)]),
    );
    line("host_wait_5", device.wait_host(semaphore.vulkan(), 5));
    Ok(String::new())
}

fn signal_lower() -> Answer {
    signals(&[9, 5, 6])
}

fn signal_same() -> Answer {
    signals(&[5, 5])
}

fn signal_0() -> Answer {
    signals(&[0, 5, 0, 1 << 40, u64::MAX, 6])
}

/// A signal is not visible before the work in front of it.
fn signal_order() -> Answer {
    context()?;
    let (device, stream, words) = (Vulkan::open()?, stream()?, Words::new()?);
    let semaphore = device.imported_timeline()?;
    park(stream, words, 0)?;
    line("signal", name(semaphore.signal_code(1, stream)));
    pause(200);
    line("value_while_parked", device.value(semaphore.vulkan())?);
    words.store(0, 1);
    line("then", name(outcome(stream)));
    line("value", device.value(semaphore.vulkan())?);
    Ok(String::new())
}

fn counts() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let (first, second) = (device.imported_timeline()?, device.imported_timeline()?);
    line(
        "signal_0",
        name(cu().signal_semaphores(&first.cuda, &params(1), 0, stream)),
    );
    line(
        "wait_0",
        name(cu().wait_semaphores(&first.cuda, &params(1), 0, stream)),
    );
    let (both, values) = ([first.cuda, second.cuda], [params(3), params(4)]);
    let code = cu().signal_semaphores(both.as_ptr(), values.as_ptr(), 2, stream);
    line("signal_2", names(&[code, outcome(stream)]));
    let read = |semaphore: &Imported| device.value(semaphore.vulkan());
    line("values", format!("{} {}", read(&first)?, read(&second)?));
    line(
        "wait_2",
        names(&[
            cu().wait_semaphores(both.as_ptr(), values.as_ptr(), 2, stream),
            outcome(stream),
        ]),
    );
    line(
        "null_handle",
        name(cu().signal_semaphores(&0, &params(1), 1, stream)),
    );
    Ok(String::new())
}

fn destroy_pending_signal() -> Answer {
    context()?;
    let (device, stream, words) = (Vulkan::open()?, stream()?, Words::new()?);
    let semaphore = device.imported_timeline()?;
    park(stream, words, 0)?;
    line("signal", name(semaphore.signal_code(1, stream)));
    let opener = std::thread::spawn(move || {
        pause(1000);
        words.store(0, 1);
    });
    line("destroy", name(cu().destroy_semaphore(semaphore.cuda)));
    line("returns_while_parked", yes(words.load(0) == 0));
    let _ = opener.join();
    line("then", name(outcome(stream)));
    line("value", device.value(semaphore.vulkan())?);
    Ok(String::new())
}

fn destroy_pending_wait() -> Answer {
    context()?;
    let (device, stream, words) = (Vulkan::open()?, stream()?, Words::new()?);
    let semaphore = device.imported_timeline()?;
    semaphore.wait(1, stream)?;
    mark(stream, words, 0)?;
    line("destroy", name(cu().destroy_semaphore(semaphore.cuda)));
    line("passes", yes(marked_early(words, 0)));
    device.signal_host(semaphore.vulkan(), 1)?;
    line("then", name(outcome(stream)));
    Ok(String::new())
}

fn vulkan_destroys_first() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let semaphore = device.imported_timeline()?;
    device.destroy(semaphore.vulkan());
    line(
        "signal",
        names(&[semaphore.signal_code(1, stream), outcome(stream)]),
    );
    line(
        "wait",
        names(&[semaphore.wait_code(1, stream), outcome(stream)]),
    );
    line("destroy", name(cu().destroy_semaphore(semaphore.cuda)));
    Ok(String::new())
}

fn import_twice() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let vulkan = device.semaphore(true)?;
    let (first, one) = import(TIMELINE_FD, device.export(vulkan)?);
    let (second, two) = import(TIMELINE_FD, device.export(vulkan)?);
    line("import", names(&[first, second]));
    line(
        "signal_one",
        names(&[
            cu().signal_semaphores(&one, &params(1), 1, stream),
            outcome(stream),
        ]),
    );
    line(
        "wait_two",
        names(&[
            cu().wait_semaphores(&two, &params(1), 1, stream),
            outcome(stream),
        ]),
    );
    line(
        "destroy",
        names(&[cu().destroy_semaphore(one), cu().destroy_semaphore(two)]),
    );
    Ok(String::new())
}

/// Whether the descriptor is still open after a successful import.
fn fd_after_import() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let fd = device.export(device.semaphore(true)?)?;
    let (code, _) = import(TIMELINE_FD, fd);
    line("semaphore", format!("{}, open: {}", name(code), open(fd)));
    let memory = device.exported_memory(65536, true)?;
    let (code, _) = import_memory(memory.fd, memory.size, 1);
    line(
        "memory",
        format!("{}, open: {}", name(code), open(memory.fd)),
    );
    Ok(String::new())
}

fn wait_flags() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let semaphore = device.imported_timeline()?;
    device.signal_host(semaphore.vulkan(), 1)?;
    for flags in [1, 2, 4, 1 << 31] {
        let mut with = params(1);
        // The flags stand behind 72 bytes.
        with.rest[8] = flags;
        let wait = cu().wait_semaphores(&semaphore.cuda, &with, 1, stream);
        line(format!("wait_{flags}"), names(&[wait, outcome(stream)]));
    }
    Ok(String::new())
}

fn no_current() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let (semaphore, other) = (device.imported_timeline()?, device.semaphore(true)?);
    let memory = device.exported_memory(65536, true)?;
    crate::kit::current(0)?;
    line(
        "signal",
        names(&[semaphore.signal_code(1, stream), outcome(stream)]),
    );
    line(
        "wait",
        names(&[semaphore.wait_code(1, stream), outcome(stream)]),
    );
    line("import", name(import(TIMELINE_FD, device.export(other)?).0));
    line(
        "import_memory",
        name(import_memory(memory.fd, memory.size, 1).0),
    );
    line("destroy", name(cu().destroy_semaphore(semaphore.cuda)));
    Ok(String::new())
}

/// Vulkan's host signals less than the value while CUDA waits.
fn host_signal_lower() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let semaphore = device.imported_timeline()?;
    device.signal_host(semaphore.vulkan(), 9)?;
    let lower = device.signal_host(semaphore.vulkan(), 5);
    line("lower", lower.err().unwrap_or_else(|| "0".into()));
    line("value", device.value(semaphore.vulkan())?);
    line("wait_7", name(semaphore.wait_code(7, stream)));
    line(
        "waits",
        yes(!within(300, || cu().stream_query(stream) == 0)),
    );
    device.signal_host(semaphore.vulkan(), 10)?;
    line("then", name(outcome(stream)));
    Ok(String::new())
}

/// Runs out of descriptors while Vulkan makes semaphores, and destroys one of them afterwards.
fn descriptors_out_then_destroy() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let made = make_until_refused(&device)?;
    line("raised", answer(&device.semaphore(true)));
    let one = made.first().ok_or("no semaphore was made")?;
    device.destroy(*one);
    line("destroyed", answer(&device.semaphore(true)));
    Ok(String::new())
}

/// Runs out of descriptors while Vulkan makes semaphores, and opens a second device afterwards.
fn descriptors_out_then_open() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    make_until_refused(&device)?;
    line("raised", answer(&device.semaphore(true)));
    line("second", answer(&Vulkan::open()?.semaphore(true)));
    line("first", answer(&device.semaphore(true)));
    Ok(String::new())
}

/// Makes semaphores for export until there is no descriptor for one, and then allows more.
fn make_until_refused(device: &Vulkan) -> Result<Vec<vk::Semaphore>, String> {
    let mut before = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes the limits.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut before) };
    // SAFETY: makes a new descriptor: the lowest that is free.
    let free = unsafe { libc::dup(0) };
    let few = libc::rlimit {
        rlim_cur: u64::try_from(free).map_err(|_| "no descriptor is free")? + 20,
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
    line("refused", answer(&refused));
    Ok(made)
}

fn answer(made: &Result<vk::Semaphore, String>) -> &str {
    match made {
        Ok(_) => "0",
        Err(reason) => reason,
    }
}

/// Signals behind a kernel that faults, and in a stream that is parked meanwhile.
fn after_fault() -> Answer {
    context()?;
    let (device, words) = (Vulkan::open()?, Words::new()?);
    let (faulty, parked) = (stream()?, stream()?);
    let (behind, beside) = (device.imported_timeline()?, device.imported_timeline()?);
    let put = crate::kit::kernel(c"put")?;
    park(parked, words, 0)?;
    beside.signal(1, parked)?;
    line("launch", name(crate::kit::launch(put, faulty, &[16, 1])));
    line("signal", name(behind.signal_code(1, faulty)));
    line("synchronize", name(cu().stream_synchronize(faulty)));
    words.store(0, 1);
    pause(500);
    line("value_behind", device.value(behind.vulkan())?);
    line("value_beside", device.value(beside.vulkan())?);
    line("signal_then", name(behind.signal_code(1, parked)));
    line("wait_then", name(behind.wait_code(1, parked)));
    line("destroy", name(cu().destroy_semaphore(behind.cuda)));
    line("value_end", device.value(behind.vulkan())?);
    device.signal_host(behind.vulkan(), 3)?;
    line("value_host", device.value(behind.vulkan())?);
    Ok(String::new())
}
