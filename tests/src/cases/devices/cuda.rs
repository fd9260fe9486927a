//! D5, D6: CUDA's current contexts, and its default stream.

#![allow(unsafe_code, reason = "an application's own handles are raw")]

use std::ptr::null_mut;

use cudarc::driver::sys;
use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::Device;
use syncline::{Error, QueueKind};

use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::cases::LONG_DELAY;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "adopted.made_streams_do_not_meet_the_default_stream": [D6] => default_stream;
    "adopted.current_context_is_left_as_found": [D5] => current_context;
}

fn cuda_device(world: &World<Equipped>) -> Result<&Device, Stop> {
    match world.left.library() {
        syncline::Device::Cuda(device) => Ok(device),
        _ => Stop::skip("only CUDA has them"),
    }
}

/// A driver call that must succeed.
fn ok(call: &'static str, code: sys::CUresult) -> Verdict {
    match code {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        code => Stop::fail(format!("{call} returned {code:?}")),
    }
}

fn current() -> Result<sys::CUcontext, Stop> {
    let mut context = null_mut();
    // SAFETY: writes one handle.
    ok("cuCtxGetCurrent", unsafe {
        sys::cuCtxGetCurrent(&raw mut context)
    })?;
    Ok(context)
}

/// A context that is current on this thread until it goes; then what was before.
struct Current(sys::CUcontext);

impl Current {
    fn make(context: sys::CUcontext) -> Result<Self, Stop> {
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

/// A stream of the application that synchronizes with the legacy default stream, as its kind does.
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

impl Drop for Blocking {
    fn drop(&mut self) {
        // SAFETY: made here, and destroyed once.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// While the legacy default stream is busy, streams made here run; one that the application made the
/// ordinary way, and had adopted, does not.
fn default_stream(world: &World<Equipped>) -> Verdict {
    let device = cuda_device(world)?;
    let blocking = Blocking::new(device)?;
    // SAFETY: the stream lives until the queues made of it are idle.
    let blocking_queue = unsafe { device.adopt_raw_stream(blocking.0, None, "blocking") }?;
    // SAFETY: null is the legacy default stream, always valid.
    let legacy = unsafe { device.adopt_raw_stream(null_mut(), None, "legacy") }?;
    let made = (0..8)
        .map(|_| device.queue(QueueKind::Compute, "made"))
        .collect::<syncline::Result<Vec<_>>>()?;
    let subject = world.left.clone();
    let busy = legacy
        .submit(
            &[],
            move |recorder| subject.busy(&mut syncline::Recorder::Cuda(recorder), LONG_DELAY),
            &[],
        )?
        .end()
        .keep();
    let small = device.host_buffer(64)?;
    let fill = |word| {
        let to = small.clone();
        move |recorder: &mut syncline::cuda::Recorder| recorder.memset_d32(&to, word)
    };
    let meeting = blocking_queue.submit(&[], fill(1), &[])?.end().keep();
    let mut free = 0;
    for (nth, queue) in (2..).zip(&made) {
        queue.submit(&[], fill(nth), &[])?.end().wait(patience())?;
        // Connections to the hardware are shared, so one of them may have had to wait.
        free += usize::from(!busy.point().is_reached()?);
    }
    check!(
        free > 0,
        "no stream made here ran while the default stream was busy"
    );
    meeting.point().wait(patience())?;
    check!(
        busy.point().is_reached()?,
        "an adopted stream has lost its barrier with the default stream"
    );
    blocking_queue.idle(patience())?;
    legacy.idle(patience())?;
    Ok(())
}

/// Whatever is called, the calling thread's current context is afterwards what it was: none, or another one.
fn current_context(world: &World<Equipped>) -> Verdict {
    let device = cuda_device(world)?;
    let mut other = null_mut();
    let _none = Current::make(null_mut())?;
    let mut ordinal = 0;
    // SAFETY: each call writes one handle; the context is released below.
    unsafe {
        ok("cuDeviceGet", sys::cuDeviceGet(&raw mut ordinal, 0))?;
        let code = sys::cuDevicePrimaryCtxRetain(&raw mut other, ordinal);
        ok("cuDevicePrimaryCtxRetain", code)?;
    }
    let mut verdict = Ok(());
    for context in [null_mut(), other] {
        let result = Current::make(context).and_then(|_current| calls(world, device, context));
        verdict = verdict.and(result);
    }
    // SAFETY: retained above.
    let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(ordinal) };
    verdict
}

fn calls(world: &World<Equipped>, device: &Device, context: sys::CUcontext) -> Verdict {
    let unchanged = |call: &str| -> Verdict {
        let now = current()?;
        check!(
            now == context,
            "{call} has left {now:p} current instead of {context:p}"
        );
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
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 3),
        &[line.signal_at(1)],
    )?;
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
