//! Modules, launches and faults.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use rstest::rstest;

use super::cuda::*;

pub(crate) const KERNELS: &str = "
.version 6.4
.target sm_60
.address_size 64
.visible .entry add(.param .u64 to, .param .u32 more)
{
    .reg .u64 %to;
    .reg .u32 %more, %old;
    ld.param.u64 %to, [to];
    ld.param.u32 %more, [more];
    ld.global.u32 %old, [%to];
    add.u32 %old, %old, %more;
    st.global.u32 [%to], %old;
    ret;
}
.visible .entry wait(.param .u64 word)
{
    .reg .pred %open;
    .reg .u64 %word;
    .reg .u32 %value;
    ld.param.u64 %word, [word];
LOOK:
    ld.volatile.global.u32 %value, [%word];
    setp.ne.u32 %open, %value, 0;
    @!%open bra LOOK;
    ret;
}
.visible .entry spin()
{
LOOK:
    bra LOOK;
}
";

#[test]
fn a_binary_for_a_gpu_is_refused() {
    let _context = Context::new();
    assert_eq!(cuModuleLoadData(&mut 0, c"\x7fELF\x02".as_ptr()), 209);
}

#[test]
fn the_log_of_the_compiler_tells_why_a_module_is_refused() {
    const ERROR_LOG_BUFFER: u32 = 5;
    const ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
    const NO_OTHER: u32 = 0;
    let _context = Context::new();
    let image = c".version 6.4\n.target sm_60\n.address_size 64\n.shared .u32 x;\n";
    // The whole text, and the part of it that fits.
    for size in [200, 8, 1, 0] {
        let mut log = [0xff_u8; 200];
        let options = [NO_OTHER, ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [0, log.as_mut_ptr().expose_provenance(), size];
        let to = &mut 0;
        let (options, values_at) = (options.as_ptr(), values.as_mut_ptr());
        let code = cuModuleLoadDataEx(to, image.as_ptr(), 3, options, values_at);
        assert_eq!(code, 218);
        assert!(log[size..].iter().all(|byte| *byte == 0xff), "{size}");
        if size == 0 {
            continue;
        }
        let end = log.iter().position(|byte| *byte == 0).unwrap();
        assert_eq!(values[2], end + 1);
        assert!(b"line 4: ".starts_with(&log[..end.min(8)]), "{log:?}");
        assert_eq!(end < size - 1, size == 200);
    }
    // No options at all, and fewer options than stated.
    let (to, at) = (&mut 0, image.as_ptr());
    assert_eq!(cuModuleLoadDataEx(to, at, 0, null(), null_mut()), 218);
    assert_eq!(cuModuleLoadDataEx(to, at, 1, null(), null_mut()), 1);
}

#[test]
fn a_module_is_loaded_from_a_file() {
    let _context = Context::new();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let load = |name: &str, image: Option<&[u8]>| {
        let path = folder.join(name);
        if let Some(image) = image {
            std::fs::write(&path, image).unwrap();
        }
        let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        let mut module = 0;
        let code = cuModuleLoad(&mut module, path.as_ptr());
        (code, module)
    };
    let (code, module) = load("add.ptx", Some(KERNELS.as_bytes()));
    ok(code);
    let add = made(|to| cuModuleGetFunction(to, module, c"add".as_ptr()));
    let sum = Pinned::new(1);
    sum.set(2);
    let stream = stream();
    ok(launch(add, stream, &[sum.address(), 3]));
    ok(cuStreamSynchronize(stream));
    assert_eq!(sum.get(), 5);
    ok(cuModuleUnload(module));
    assert_eq!(load("refused.ptx", Some(b"not PTX")).0, 200);
    assert_eq!(load("gpu.cubin", Some(b"\x7fELF\x02\0\0")).0, 209);
    assert_eq!(load("there is no such file", None).0, 301);
    assert_eq!(cuModuleLoad(&mut 0, null()), 1);
    assert_eq!(cuModuleLoad(null_mut(), c"".as_ptr()), 1);
}

/// The reason is printed unless the environment forbids it.
#[rstest]
#[case::empty("", true)]
#[case::one("1", true)]
#[case::zero("0", false)]
fn the_reason_for_a_refused_module_is_printed(#[case] verbose: &str, #[case] is_printed: bool) {
    let output = super::processes::child("kernels::a_kernel_with_floats_is_refused")
        .env("SYNCLINE_SOFTWARE_CUDA_VERBOSE", verbose)
        .output()
        .unwrap();
    super::processes::passes(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = "software CUDA driver: a module is refused: line 6: `.f32`";
    assert_eq!(said.contains(reason), is_printed, "{said}");
}

#[test]
#[ignore = "run by the_reason_for_a_refused_module_is_printed"]
fn a_kernel_with_floats_is_refused() {
    const FLOATS: &CStr = c".version 6.4
.target sm_60
.address_size 64
.visible .entry floats()
{
    .reg .f32 %f<2>;
    ret;
}
";
    let _context = Context::new();
    assert_eq!(cuModuleLoadData(&mut 0, FLOATS.as_ptr()), 218);
}

#[test]
fn a_destroyed_context_calls_nothing_of_the_application() {
    let mut child = super::processes::child("kernels::a_graph_faults");
    super::processes::passes(&child.output().unwrap());
}

#[test]
#[ignore = "run by a_destroyed_context_calls_nothing_of_the_application"]
fn a_graph_faults() {
    extern "C" fn slow(flags: *mut c_void) {
        // SAFETY: the test passes flags that outlive the call.
        let [begun, over, returned] = unsafe { &*flags.cast::<[AtomicU64; 3]>() };
        begun.store(1, Ordering::SeqCst);
        while over.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // A context that does not wait would be destroyed in this time.
        std::thread::sleep(std::time::Duration::from_millis(50));
        returned.store(1, Ordering::SeqCst);
    }
    let context = Context::new();
    let flags = [const { AtomicU64::new(0) }; 3];
    let data = (&raw const flags).cast_mut().cast();
    let (gate, add) = (Pinned::new(2), function(KERNELS, "add"));
    let (fork, [captured, left, right]) = (event(), [(); 3].map(|()| stream()));
    ok(cuStreamBeginCapture_v2(captured, 2));
    ok(cuEventRecord(fork, captured));
    ok(cuStreamWaitEvent(left, fork, 0));
    ok(cuStreamWaitEvent(right, fork, 0));
    ok(cuLaunchHostFunc(left, slow, data));
    // It ends only with the context.
    ok(cuStreamWaitValue64_v2(right, gate.address(), 1, 0));
    ok(cuStreamWaitValue64_v2(captured, gate.address() + 8, 1, 0));
    ok(launch(add, captured, &[16, 1]));
    for joined in [left, right] {
        let join = event();
        ok(cuEventRecord(join, joined));
        ok(cuStreamWaitEvent(captured, join, 0));
    }
    let graph = made(|to| cuStreamEndCapture(captured, to));
    let graph = made(|to| cuGraphInstantiateWithFlags(to, graph, 0));
    ok(cuGraphLaunch(graph, captured));
    eventually(|| flags[0].load(Ordering::SeqCst) == 1);
    gate.words()[1].store(1, Ordering::SeqCst);
    assert_eq!(cuStreamSynchronize(captured), 700);
    flags[1].store(1, Ordering::SeqCst);
    ok(cuCtxDestroy_v2(context.0));
    assert_eq!(flags[2].load(Ordering::SeqCst), 1);
}

/// In a process of its own, because the fault stays.
#[test]
fn a_fault_is_one_of_its_device() {
    let mut child = super::processes::child("kernels::writes_what_can_only_be_read");
    super::processes::passes(&child.output().unwrap());
}

#[test]
#[ignore = "run by a_fault_is_one_of_its_device"]
fn writes_what_can_only_be_read() {
    let _context = Context::new();
    let (faulty, add) = (stream(), function(KERNELS, "add"));
    ok(launch(add, faulty, &[super::memory::read_only(4096), 1]));
    assert_eq!(cuStreamSynchronize(faulty), 700);
    assert_eq!(cuCtxCreate_v2(&mut 0, 0, 0), 700);
    // Another device still works.
    let other = made(|to| cuCtxCreate_v2(to, 0, 1));
    ok(cuCtxSynchronize());
    ok(cuCtxDestroy_v2(other));
}

/// A thread that requests a new function waits for all work. At the same time another thread
/// requests a known one, and then lets the work end.
#[test]
fn a_known_function_is_found_while_a_new_one_waits() {
    let context = Context::new();
    let (stream, gate) = (stream(), Pinned::new(1));
    let text = std::ffi::CString::new(KERNELS).unwrap();
    let module = made(|to| cuModuleLoadData(to, text.as_ptr()));
    let known = made(|to| cuModuleGetFunction(to, module, c"add".as_ptr()));
    ok(cuStreamWaitValue64_v2(stream, gate.address(), 1, 0));
    let (thread, asks) = std::sync::mpsc::channel();
    let current = context.0;
    let new = std::thread::spawn(move || {
        ok(cuCtxSetCurrent(current));
        thread
            .send(std::fs::read_link("/proc/thread-self").unwrap())
            .unwrap();
        made(|to| cuModuleGetFunction(to, module, c"spin".as_ptr()))
    });
    let status = std::path::Path::new("/proc")
        .join(asks.recv().unwrap())
        .join("stat");
    // Until the thread sleeps in the call, which cannot end yet.
    eventually(|| {
        let status = std::fs::read_to_string(&status).unwrap();
        status.rsplit_once(')').unwrap().1.starts_with(" S")
    });
    let (found, is_found) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        found.send(made(|to| cuModuleGetFunction(to, module, c"add".as_ptr())))
    });
    let again = is_found.recv_timeout(std::time::Duration::from_secs(60));
    gate.set(1);
    assert_eq!(again, Ok(known));
    assert_ne!(new.join().unwrap(), known);
}
