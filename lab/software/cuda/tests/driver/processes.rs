//! Tests that need their own process: settings, host faults, exits, events of other processes.

use std::process::{Command, Output, Stdio};

use rstest::rstest;
use syncline_software_payload::{Kind, Semaphore};

use super::cuda::*;
use super::external::{import, memory_file};
use super::kernels::KERNELS;

/// Runs one of the ignored tests below.
pub(super) fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", test, "--nocapture"]);
    command
}

#[track_caller]
pub(super) fn passes(output: &Output) {
    let (out, err) = (&output.stdout, &output.stderr);
    let text = [String::from_utf8_lossy(out), String::from_utf8_lossy(err)].join("\n");
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

/// Threads are started with contexts and streams, and not by the commands that need them.
#[test]
fn commands_need_no_new_thread() {
    passes(&child("processes::no_thread_any_more").output().unwrap());
}

#[test]
#[ignore = "run by commands_need_no_new_thread"]
fn no_thread_any_more() {
    let _context = Context::new();
    let (stream, event) = (stream(), event());
    let memory = made(|to| cuMemAlloc_v2(to, 64));
    let statistics = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statistics
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    // Less than the stack of a thread.
    let most = pages * 4096 + (1 << 20);
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a valid limit of this process.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(limited, 0);
    assert!(std::thread::Builder::new().spawn(|| ()).is_err());
    // The legacy stream, a stream, and the thread of host functions.
    ok(cuMemsetD32Async(memory, 7, 1, 0));
    ok(cuEventRecord(event, 0));
    ok(cuMemsetD32Async(memory, 7, 1, stream));
    ok(cuLaunchHostFunc(stream, nothing, std::ptr::null_mut()));
    ok(cuEventRecord(event, stream));
    ok(cuEventSynchronize(event));
    // A new stream needs a thread, and says so.
    assert_eq!(cuStreamCreate(&mut 0, 1), 304);
    assert_eq!(cuCtxCreate_v2(&mut 0, 0, 1), 304);
}

extern "C" fn nothing(_: *mut std::ffi::c_void) {}

#[test]
fn settings_choose_and_refuse() {
    let one = child("processes::one_device")
        .env("SYNCLINE_SOFTWARE_CUDA_DEVICES", "swiftshader")
        .output();
    passes(&one.unwrap());
    let senseless = child("processes::no_start")
        .env("SYNCLINE_SOFTWARE_CUDA_DEVICES", "voodoo")
        .output()
        .unwrap();
    passes(&senseless);
    let said = String::from_utf8_lossy(&senseless.stderr).into_owned();
    assert!(
        said.contains("SYNCLINE_SOFTWARE_CUDA_DEVICES=voodoo"),
        "{said}"
    );
    let strict = child("processes::wrong_kinds_are_refused")
        .env("SYNCLINE_SOFTWARE_CUDA_STRICT", "1")
        .output();
    passes(&strict.unwrap());
    let strict = child("arrays::other_descriptions_are_refused")
        .env("SYNCLINE_SOFTWARE_CUDA_STRICT", "1")
        .output();
    passes(&strict.unwrap());
    let seeded = child("processes::delayed")
        .env("SYNCLINE_SOFTWARE_CUDA_SEED", "7")
        .env("SYNCLINE_SOFTWARE_CUDA_SLOW", "100")
        .output()
        .unwrap();
    passes(&seeded);
    let said = String::from_utf8_lossy(&seeded.stderr).into_owned();
    assert_eq!(said.matches("seed 7").count(), 1, "{said}");
}

#[test]
#[ignore = "run by settings_choose_and_refuse"]
fn one_device() {
    ok(cuInit(0));
    assert_eq!(made(cuDeviceGetCount), 1);
    let uuid = made(|to| cuDeviceGetUuid_v2(to, 0));
    assert_eq!(&uuid, b"syncline-soft-ss");
}

#[test]
#[ignore = "run by settings_choose_and_refuse"]
fn no_start() {
    assert_eq!(cuInit(0), 1);
    for answer in [
        cuDeviceGetCount(&mut 0),
        cuDeviceGet(&mut 0, -1),
        cuCtxSynchronize(),
        cuGraphCreate(&mut 0, 0),
        cuUserObjectCreate(&mut 0, std::ptr::null_mut(), sleeps, 1, 1),
    ] {
        assert_eq!(answer, 3);
    }
}

#[test]
#[ignore = "run by settings_choose_and_refuse"]
fn wrong_kinds_are_refused() {
    use std::os::fd::AsRawFd;
    let _context = Context::new();
    let (_binary, binary_file) = Semaphore::create(Kind::Binary, 0).unwrap();
    let (_timeline, timeline_file) = Semaphore::create(Kind::Timeline, 0).unwrap();
    for (kind, file) in [
        (9, binary_file),
        (1, timeline_file),
        (9, memory_file(65_536)),
    ] {
        assert_eq!(import(kind, file.as_raw_fd()), Err(999));
        // The test still owns the descriptor: a second close of it would abort.
        drop(file);
    }
}

#[test]
#[ignore = "run by settings_choose_and_refuse"]
fn delayed() {
    let _context = Context::new();
    let (stream, words) = (stream(), Pinned::new(1));
    for value in 1..=50 {
        ok(cuStreamWriteValue64_v2(stream, words.address(), value, 0));
    }
    ok(cuStreamSynchronize(stream));
    assert_eq!(words.get(), 50);
}

#[rstest]
#[case::once("")]
#[case::from_then_on(":always")]
#[case::after_its_effect(":after")]
fn a_chosen_call_fails(#[case] mode: &str) {
    let fail = format!("cuEventRecord:2:2{mode}");
    let output = child("processes::second_record_fails")
        .env("SYNCLINE_SOFTWARE_CUDA_FAIL", fail)
        .output();
    passes(&output.unwrap());
}

#[test]
#[ignore = "run by a_chosen_call_fails"]
fn second_record_fails() {
    let mode = std::env::var("SYNCLINE_SOFTWARE_CUDA_FAIL").unwrap();
    let _context = Context::new();
    let (stream, gate, event) = (stream(), Pinned::new(1), event());
    ok(cuEventRecord(event, stream));
    ok(cuEventSynchronize(event));
    ok(cuStreamWaitValue64_v2(stream, gate.address(), 1, 0));
    assert_eq!(cuEventRecord(event, stream), 2);
    let took_effect = cuEventQuery(event) == 600;
    assert_eq!(took_effect, mode.ends_with(":after"));
    let third = if mode.ends_with(":always") { 2 } else { 0 };
    assert_eq!(cuEventRecord(event, stream), third);
    gate.set(1);
    ok(cuStreamSynchronize(stream));
}

#[test]
fn a_process_exits_whatever_its_streams_do() {
    passes(&child("processes::leaves_work_behind").output().unwrap());
}

#[test]
#[ignore = "run by a_process_exits_whatever_its_streams_do"]
fn leaves_work_behind() {
    std::mem::forget(Context::new());
    let gate = Pinned::new(1);
    ok(launch(function(KERNELS, "spin"), stream(), &[]));
    ok(cuStreamWaitValue64_v2(stream(), gate.address(), 1, 0));
    let sleep: Callback = sleeps;
    ok(cuLaunchHostFunc(stream(), sleep, std::ptr::null_mut()));
    // A child of a process with such threads.
    let status = Command::new("true").status().unwrap();
    assert!(status.success());
}

#[test]
fn a_forked_process_is_not_initialized() {
    passes(&child("processes::forks").output().unwrap());
}

#[test]
#[ignore = "run by a_forked_process_is_not_initialized"]
fn forks() {
    let _context = Context::new();
    let stream = stream();
    ok(cuStreamSynchronize(stream));
    // SAFETY: the child calls the driver and exits.
    let status = unsafe {
        match libc::fork() {
            0 => {
                let names = cuGetErrorName(3, &mut std::ptr::null());
                let answer = cuInit(0);
                if names != 0 || answer != 3 {
                    libc::_exit(1);
                }
                cuStreamDestroy_v2(stream);
                libc::_exit(2);
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            }
        }
    };
    assert_eq!(libc::WTERMSIG(status), libc::SIGABRT, "{status:#x}");
    // The parent is not affected.
    ok(cuStreamQuery(stream));
}

extern "C" fn sleeps(_: *mut std::ffi::c_void) {
    std::thread::sleep(std::time::Duration::from_secs(3600));
}

#[test]
fn an_event_is_opened_by_another_process() {
    let _context = Context::new();
    let (stream, gate) = (stream(), Pinned::new(1));
    let event = made(|to| cuEventCreate(to, 6));
    let mut handle = [0_u8; 64];
    ok(cuIpcGetEventHandle(&raw mut handle, event));
    assert_eq!(
        cuIpcGetEventHandle(&raw mut handle, super::cuda::event()),
        400
    );
    let opened = cuIpcOpenEventHandle(&mut 0, words_of(handle));
    assert_eq!(opened, 201);
    assert_eq!(cuIpcOpenEventHandle(&mut 0, IpcHandle([7; 8])), 205);
    ok(cuStreamWaitValue64_v2(stream, gate.address(), 1, 0));
    ok(cuEventRecord(event, stream));
    let hex: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut waiter = child("processes::waits_for_an_event")
        .env("EVENT", hex)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(waiter.stdout.take().unwrap());
    let mut text = String::new();
    let mut reads = |line: &str| {
        while !text.contains(line) {
            let read = std::io::BufRead::read_line(&mut out, &mut text).unwrap();
            assert_ne!(read, 0, "{text}");
        }
    };
    reads("its stream waits");
    gate.set(1);
    reads("it is complete");
    // From now on a real driver would have undefined behaviour in the other process.
    ok(cuEventDestroy_v2(event));
    drop(waiter.stdin.take());
    std::io::Read::read_to_string(&mut out, &mut text).unwrap();
    assert!(waiter.wait().unwrap().success(), "{text}");
}

fn words_of(handle: [u8; 64]) -> IpcHandle {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(handle.chunks(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap());
    }
    IpcHandle(words)
}

#[test]
#[ignore = "run by an_event_is_opened_by_another_process"]
fn waits_for_an_event() {
    let hex = std::env::var("EVENT").unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap();
    let handle = words_of(std::array::from_fn(byte));
    let _context = Context::new();
    let event = made(|to| cuIpcOpenEventHandle(to, handle));
    let stream = stream();
    assert_eq!(cuEventQuery(event), 600);
    ok(cuStreamWaitEvent(stream, event, 0));
    assert_eq!(cuStreamQuery(stream), 600);
    println!("its stream waits");
    ok(cuStreamSynchronize(stream));
    ok(cuEventQuery(event));
    println!("it is complete");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    assert_eq!(cuEventQuery(event), 400);
    assert_eq!(cuStreamWaitEvent(stream, event, 0), 400);
}

#[test]
fn nothing_is_left_of_a_context() {
    passes(&child("processes::counts_objects").output().unwrap());
}

#[test]
#[ignore = "run by nothing_is_left_of_a_context"]
fn counts_objects() {
    ok(cuInit(0));
    assert_eq!(live_objects(), 0);
    let context = Context::new();
    let (stream, event) = (stream(), event());
    let memory = made(|to| cuMemAlloc_v2(to, 64));
    assert_eq!(live_objects(), 4);
    ok(cuEventDestroy_v2(event));
    ok(cuStreamDestroy_v2(stream));
    ok(cuMemFree_v2(memory));
    assert_eq!(live_objects(), 1);
    let _left = (made(|to| cuStreamCreate(to, 0)), Pinned::new(1));
    drop(context);
    assert_eq!(live_objects(), 0);
    let _primary: Handle = made(|to| cuDevicePrimaryCtxRetain(to, 0));
    ok(cuDevicePrimaryCtxReset_v2(0));
    assert_eq!(live_objects(), 0);
}
