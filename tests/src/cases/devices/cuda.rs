//! D5, D6, Q8: CUDA's current contexts, its default stream, and the guards of its streams.

#![allow(unsafe_code, reason = "an application's own handles are raw")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaContext, sys};
use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{self, Device};
use syncline::{Error, QueueKind, Recorder, info::Uuid};

use super::adopted::{PanicsInDrop, kept, raw_object_agrees};
use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases};
use crate::cases::{LONG_DELAY, let_go, several, shows, until};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "adopted.made_streams_do_not_meet_the_default_stream": [D6] => default_stream;
    "adopted.current_context_is_left_as_found": [D5] => current_context;
    "adopted.context_and_streams_of_cudarc": [D4 D2] => of_cudarc;
    "adopted.one_guard_for_a_stream": [D5 Q8] => one_guard;
}

pub(super) fn cuda_device(world: &World<Equipped>) -> Result<&Device, Stop> {
    match world.left.library() {
        syncline::Device::Cuda(device) => Ok(device),
        _ => Stop::skip("only CUDA has them"),
    }
}

/// A driver call that must succeed.
pub(super) fn ok(call: &'static str, code: sys::CUresult) -> Verdict {
    match code {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        code => Stop::fail(format!("{call} returned {code:?}")),
    }
}

fn filling(
    to: &cuda::Buffer,
    word: u32,
) -> impl FnOnce(&mut cuda::Recorder<'_>) -> syncline::Result<()> + Send + 'static {
    let to = to.clone();
    move |recorder| recorder.memset_d32(&to, word)
}

fn current() -> Result<sys::CUcontext, Stop> {
    let mut context = null_mut();
    // SAFETY: writes one handle.
    ok("cuCtxGetCurrent", unsafe {
        sys::cuCtxGetCurrent(&raw mut context)
    })?;
    Ok(context)
}

/// Makes a context current on this thread. The drop restores the previous one.
pub(in crate::cases) struct Current(sys::CUcontext);

impl Current {
    pub(in crate::cases) fn make(context: sys::CUcontext) -> Result<Self, Stop> {
        let before = current()?;
        // SAFETY: a live context, or none.
        ok("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
        Ok(Self(before))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // SAFETY: was current before.
        let _ = unsafe { sys::cuCtxSetCurrent(self.0) };
    }
}

/// A stream of the application that synchronizes with the legacy default stream.
struct Blocking(sys::CUstream);

impl Blocking {
    fn new(device: &Device) -> Result<Self, Stop> {
        let _current = Current::make(device.raw_context())?;
        let mut stream = null_mut();
        // SAFETY: writes one handle, of a stream of the current context.
        ok("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&raw mut stream, 0)
        })?;
        Ok(Self(stream))
    }
}

// SAFETY: the driver lets any thread use any handle.
unsafe impl Send for Blocking {}
// SAFETY: as above.
unsafe impl Sync for Blocking {}

impl Drop for Blocking {
    fn drop(&mut self) {
        // SAFETY: created here, and destroyed once.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// Streams made here run while the legacy default stream is busy.
///
/// An adopted stream that the application created without flags does not run then.
fn default_stream(world: &World<Equipped>) -> Verdict {
    shows(
        || runs_beside_the_default_stream(world),
        "no stream made here ran while the default stream was busy",
    )
}

fn runs_beside_the_default_stream(world: &World<Equipped>) -> Result<bool, Stop> {
    let device = cuda_device(world)?;
    let blocking = Blocking::new(device)?;
    // SAFETY: the stream lives until the queues made of it are idle.
    let blocking_queue = unsafe { device.adopt_raw_stream(blocking.0, None, "blocking") }?;
    // SAFETY: null is the legacy default stream, always valid.
    let legacy = unsafe { device.adopt_raw_stream(null_mut(), None, "legacy") }?;
    let made = several(8, |_| device.queue(QueueKind::Compute, "made"))?;
    let subject = world.left.clone();
    let work = move |recorder: &mut cuda::Recorder<'_>| {
        subject.busy(&mut Recorder::Cuda(recorder.reborrow()), LONG_DELAY)
    };
    let busy = legacy.submit(&[], work, &[])?.end().keep();
    let small = device.host_buffer(64)?;
    let meeting = blocking_queue
        .submit(&[], filling(&small, 1), &[])?
        .end()
        .keep();
    let mut free = 0;
    for (nth, queue) in (2..).zip(&made) {
        queue
            .submit(&[], filling(&small, nth), &[])?
            .end()
            .wait(patience())?;
        // Streams share connections to the hardware, so one of them may have had to wait.
        free += usize::from(!busy.point().is_reached()?);
    }
    meeting.point().wait(patience())?;
    check!(busy.point().is_reached()?);
    blocking_queue.idle(patience())?;
    legacy.idle(patience())?;
    Ok(free > 0)
}

/// A stream has one guard for all its users: its own queue, an adopting queue, and claims.
fn one_guard(world: &World<Equipped>) -> Verdict {
    let device = cuda_device(world)?;
    let made = device.queue(QueueKind::Compute, "made")?;
    let raw = made.stream().raw();
    // SAFETY: the other queue keeps the stream for longer.
    let twin = unsafe { device.adopt_raw_stream(raw, None, "twin") }?;
    let line = device.timeline("line")?;
    let mut claim = line.claim(1)?;
    let signalled = std::thread::scope(|scope| -> Result<_, Stop> {
        let guard = twin.stream();
        let held = scope.spawn(|| made.submit(&[], |_| Ok(()), &[]).map(|sent| sent.is_held()));
        let held = held.join();
        check!(matches!(held, Ok(Ok(true))));
        let address = raw.addr();
        let (line, claim) = (&line, &mut claim);
        let signal = scope.spawn(move || {
            let raw = std::ptr::without_provenance_mut(address);
            // SAFETY: the claim is of this timeline, and the queue keeps the stream.
            unsafe { device.submit_claimed(line, claim, raw) }
        });
        std::thread::sleep(Duration::from_millis(5));
        check!(!line.at(1).is_pending()?);
        drop(guard);
        Ok(signal.join())
    });
    check!(matches!(signalled?, Ok(Ok(()))), "the signal was refused");
    line.at(1).wait(patience())?;
    made.settle(patience())?;
    made.idle(patience()).map_err(Into::into)
}

/// Creates a context that is not the primary one, as an application does.
pub(super) fn own_context(device: &Device) -> Result<Arc<CudaContext>, Stop> {
    type Create = unsafe extern "C" fn(*mut sys::CUcontext, u32, sys::CUdevice) -> u32;
    let (mut gpu, mut raw) = (0, null_mut());
    {
        let _current = Current::make(device.raw_context())?;
        // SAFETY: writes one integer.
        ok("cuCtxGetDevice", unsafe {
            sys::cuCtxGetDevice(&raw mut gpu)
        })?;
    }
    let _none = Current::make(null_mut())?;
    // cudarc declares another function for each version of CUDA. Every driver has this one.
    // SAFETY: the library is loaded already, and stays loaded.
    let create = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        libc::dlsym(library, c"cuCtxCreate_v2".as_ptr())
    };
    if create.is_null() {
        return Stop::skip("the driver makes no contexts by the name that all drivers had so far");
    }
    // SAFETY: cuda.h has declared it like this since CUDA 3.2.
    let create: Create = unsafe { std::mem::transmute(create) };
    // SAFETY: writes one handle.
    let code = unsafe { create(&raw mut raw, 0, gpu) };
    check!(code == 0, "cuCtxCreate returned {code}");
    // SAFETY: just created for that device, and owned by cudarc from now on. cudarc uses the
    // ordinal for its own reports only.
    let context = unsafe { CudaContext::from_raw_context(0, gpu, raw) };
    context.or_else(|error| Stop::fail(format!("cudarc does not take a context: {error}")))
}

/// All calls leave the calling thread's current context as it was: none, or another one.
fn current_context(world: &World<Equipped>) -> Verdict {
    let device = cuda_device(world)?;
    let context = own_context(device)?;
    check!(context.cu_ctx() != device.raw_context());
    for context in [null_mut(), context.cu_ctx()] {
        let _current = Current::make(context)?;
        calls(world, device, context)?;
    }
    let _kept = Current::make(null_mut())?;
    drop(context);
    Ok(())
}

/// Streams and contexts that are adopted with an owner.
pub(super) fn owners(world: &World<Equipped>, device: &Device) -> Verdict {
    // All handles of the queue are dropped while work is in flight.
    let stream = Blocking::new(device)?;
    let raw = stream.0;
    let owner = Arc::new(PanicsInDrop::new(stream));
    let alive = Arc::downgrade(&owner);
    // SAFETY: the owner keeps the stream.
    let queue = unsafe { device.adopt_raw_stream(raw, Some(owner), "given away") }?;
    let (still, line) = (world.left.stall()?, device.timeline("line")?);
    let latch = still.latch();
    let work = move |recorder: &mut cuda::Recorder<'_>| {
        latch.block(&mut Recorder::Cuda(recorder.reborrow()))
    };
    queue.submit(&[], work, &[line.signal_at(1)])?;
    drop(queue);
    check_error!(line.at(1).wait(Duration::from_millis(5)), TimedOut);
    check!(alive.strong_count() > 0);
    still.release()?;
    line.at(1).wait(patience())?;
    let_go(&alive)?;

    let context = own_context(device)?;
    let raw = context.cu_ctx();
    let owner = Arc::new(PanicsInDrop::new(context));
    let alive = Arc::downgrade(&owner);
    // SAFETY: the owner keeps the context.
    let adopted = unsafe { Device::adopt_context(raw, Some(owner)) }?;
    check_eq!(adopted.raw_context(), raw);
    let queue = adopted.queue(QueueKind::Compute, "adopted")?;
    let (line, buffer) = (adopted.timeline("line")?, adopted.host_buffer(64)?);
    let kept = |after| kept(&alive, after);
    drop(adopted);
    kept("the device's own handle")?;
    queue.submit(&[], filling(&buffer, 9), &[line.signal_at(1)])?;
    line.at(1).wait(patience())?;
    check_eq!(buffer.read_words()?[0], 9);
    queue.idle(patience())?;
    drop(queue);
    kept("a queue")?;
    drop(line);
    kept("a timeline")?;
    // cudarc makes a context current to destroy it.
    let _kept = Current::make(null_mut())?;
    drop(buffer);
    let_go(&alive)
}

/// A context of cudarc and a stream in it are adopted, and return the same handles.
///
/// They remain cudarc's after the device and the queue are dropped.
fn of_cudarc(world: &World<Equipped>) -> Verdict {
    let device = cuda_device(world)?;
    let theirs = |error| Stop::Failed(format!("cudarc: {error}"));
    let _kept = Current::make(null_mut())?;
    let context = own_context(device)?;
    let stream = context.new_stream().map_err(theirs)?;
    let handles = (Arc::strong_count(&context), Arc::strong_count(&stream));
    let adopted = Device::adopt(&context)?;
    check_eq!(adopted.raw_context(), context.cu_ctx());
    check!(adopted.id() != device.id() && adopted.info().same_gpu(device.info()));
    check_error!(
        // SAFETY: the stream is not captured.
        unsafe { device.adopt_stream(&stream, "of another context") },
        WrongDevice
    );
    // SAFETY: as above.
    let queue = unsafe { adopted.adopt_stream(&stream, "theirs") }?;
    check_eq!(queue.stream().raw(), stream.cu_stream());
    let (line, buffer) = (adopted.timeline("line")?, adopted.host_buffer(64)?);
    let other = world.left_queue("left")?;
    queue.submit(&[line.at(1)], filling(&buffer, 11), &[line.signal_at(2)])?;
    let line = world.left.own(line);
    // The other device has another context, so the host passes its signals on.
    other.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    line.at(2).wait(patience())?;
    check_eq!(buffer.read_words()?[0], 11);
    stream.synchronize().map_err(theirs)?;
    queue.idle(patience())?;
    other.idle(patience())?;
    drop((queue, line, buffer, adopted));
    let now = || (Arc::strong_count(&context), Arc::strong_count(&stream));
    until(|| Ok(now() == handles))?;
    let again = context.new_stream().map_err(theirs)?;
    again.synchronize().map_err(theirs)?;
    stream.synchronize().map_err(theirs)?;
    drop((again, stream, context));
    Ok(())
}

pub(super) fn no_raw_event(world: &World<Equipped>, device: &Device) -> Verdict {
    raw_object_agrees(
        world,
        |point| device.event(point),
        |event, point| {
            let Some(event) = event else {
                return Stop::fail(
                    "there is no event of a fence before a device that stands still",
                );
            };
            // SAFETY: the guard keeps the event.
            let is_reached = match unsafe { sys::cuEventQuery(event.raw()) } {
                sys::CUresult::CUDA_ERROR_NOT_READY => false,
                code => ok("cuEventQuery", code).map(|()| true)?,
            };
            check_eq!(device.event(point)?.is_none(), is_reached);
            Ok(is_reached)
        },
    )
}

fn calls(world: &World<Equipped>, device: &Device, context: sys::CUcontext) -> Verdict {
    let unchanged = |call: &str| -> Verdict {
        let now = current()?;
        check_eq!(now, context, "{call}");
        Ok(())
    };
    let queue = device.queue(QueueKind::Compute, "calls")?;
    unchanged("making a queue")?;
    let line = device.timeline("calls")?;
    unchanged("making a timeline")?;
    let (begin, end) = (device.timed_fence("begin"), device.timed_fence("end"));
    let buffer = device.buffer(256)?;
    unchanged("making a buffer")?;
    queue.record(&begin)?;
    unchanged("recording a fence")?;
    queue.submit(&[], filling(&buffer, 3), &[line.signal_at(1)])?;
    unchanged("submitting")?;
    queue.submit(&[line.at(2)], |_| Ok(()), &[line.signal_at(3)])?;
    unchanged("a submission that is held")?;
    let asked = line.value()?;
    unchanged("asking for a value")?;
    check!(asked <= 1, "the value is {asked}");
    line.at(1).wait(patience())?;
    unchanged("waiting")?;
    line.signal(2)?;
    unchanged("releasing what is held")?;
    queue.record(&end)?;
    end.wait(patience())?;
    unchanged("waiting for a fence")?;
    let time = end.elapsed_since(&begin)?;
    check!(time >= 0, "{time} ns");
    unchanged("asking for a time")?;
    let words = buffer.read_words()?;
    check!(words[0] == 3, "the buffer reads {}", words[0]);
    unchanged("reading a buffer")?;
    device.check()?;
    unchanged("checking the device")?;
    let refused = queue.submit(&[], |_| Err(Error::NothingToWaitFor), &[line.signal_at(4)]);
    check!(refused.is_err(), "refused work was accepted");
    unchanged("a rejection")?;
    let shared = world.timeline("shared")?;
    unchanged("sharing a timeline")?;
    shared.signal(1)?;
    unchanged("signalling a shared timeline")?;
    drop(shared);
    unchanged("dropping a shared timeline")?;
    queue.idle(patience())?;
    unchanged("idle")?;
    drop((begin, end));
    unchanged("dropping fences")?;
    drop(buffer);
    unchanged("dropping a buffer")?;
    drop(line);
    unchanged("dropping a timeline")?;
    drop(queue);
    unchanged("dropping a queue")
}

/// Compares the device's description with CUDA's answers.
pub(super) fn as_driver(device: &Device) -> Verdict {
    // From cuda.h, as numbers: cudarc's enums differ between versions.
    const CAN_MAP_HOST_MEMORY: u32 = 19;
    const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
    const CAN_FLUSH_REMOTE_WRITES: u32 = 98;
    const CAN_USE_64_BIT_STREAM_MEM_OPS: u32 = 122;
    const CAN_USE_STREAM_WAIT_VALUE_NOR: u32 = 123;
    const VULKAN_CIG_SUPPORTED: u32 = 138;
    const INVALID_VALUE: u32 = 1;
    type Attribute = unsafe extern "C" fn(*mut i32, u32, sys::CUdevice) -> u32;
    let (mut gpu, mut uuid) = (0, sys::CUuuid { bytes: [0; 16] });
    let _current = Current::make(device.raw_context())?;
    // SAFETY: each call writes to memory of the right size.
    unsafe {
        ok("cuCtxGetDevice", sys::cuCtxGetDevice(&raw mut gpu))?;
        ok(
            "cuDeviceGetUuid",
            sys::cuDeviceGetUuid_v2(&raw mut uuid, gpu),
        )?;
    }
    let info = device.info();
    let asked = Uuid(uuid.bytes.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes())));
    check_eq!(info.uuid, Some(asked));
    check!(info.parent_uuid.is_none_or(|parent| parent != asked));
    let (mut luid, mut mask) = ([0_u8; 8], 0);
    // SAFETY: writes 8 bytes and an integer.
    let code = unsafe { sys::cuDeviceGetLuid(luid.as_mut_ptr().cast(), &raw mut mask, gpu) };
    let luid = Some(luid).filter(|luid| code == sys::CUresult::CUDA_SUCCESS && *luid != [0; 8]);
    check_eq!(info.luid, luid);
    // SAFETY: the library is loaded already, and stays loaded.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    // SAFETY: as above. Only this project's software driver has the function.
    let software = unsafe { libc::dlsym(library, c"synclineSoftwareDriver".as_ptr()) };
    check!(info.software != software.is_null());
    // SAFETY: as above.
    let attribute = unsafe { libc::dlsym(library, c"cuDeviceGetAttribute".as_ptr()) };
    check!(!attribute.is_null(), "there is no cuDeviceGetAttribute");
    // SAFETY: cuda.h has always declared it like this.
    let attribute: Attribute = unsafe { std::mem::transmute(attribute) };
    let ask = |number: u32| -> Result<i32, Stop> {
        let mut value = 0;
        // SAFETY: writes one integer.
        let code = unsafe { attribute(&raw mut value, number, gpu) };
        // A driver before CUDA 12.9 rejects the last number.
        let is_known = code == 0 || (code == INVALID_VALUE && number == VULKAN_CIG_SUPPORTED);
        check!(is_known, "attribute {number}: {code}");
        Ok(value)
    };
    let has = |number| Ok::<_, Stop>(ask(number)? != 0);
    let can = &info.capabilities;
    check_eq!(can.stream_memory_flush, has(CAN_FLUSH_REMOTE_WRITES)?);
    check_eq!(can.stream_memory_ops, has(CAN_USE_64_BIT_STREAM_MEM_OPS)?);
    check_eq!(can.stream_memory_nor, has(CAN_USE_STREAM_WAIT_VALUE_NOR)?);
    check_eq!(can.cuda_in_graphics, has(VULKAN_CIG_SUPPORTED)?);
    let compiles = std::env::var_os("CUDA_DISABLE_PTX_JIT").is_none_or(|value| value != "1");
    let reads = ask(COMPUTE_CAPABILITY_MAJOR)? >= 5 && has(CAN_MAP_HOST_MEMORY)? && compiles;
    check_eq!(can.calibrated_clock, reads);
    Ok(())
}
