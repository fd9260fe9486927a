//! Contexts, streams and events of the application.

use std::ptr::null_mut;
use std::sync::Arc;

use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{Device, sys};

use super::{DROPPING, PATIENCE, Stop, Verdict, done, open, step};

/// An application's own context, stream and event.
pub(super) fn adopt() -> Verdict {
    let owner = open()?;
    step("adopting");
    // SAFETY: the context lives as long as its device, which the new device keeps.
    let device =
        unsafe { Device::adopt_context(owner.raw_context(), Some(Arc::new(owner.clone()))) }?;
    let own = owner.queue(QueueKind::Compute, "owner's")?;
    let raw = own.stream().raw();
    // SAFETY: the stream lives as long as its queue, which the new queue keeps.
    let queue = unsafe { device.adopt_raw_stream(raw, Some(Arc::new(own.clone())), "adopted") }?;
    let line = device.timeline("line")?;
    let buffer = device.host_buffer(1 << 16)?;
    step("submitting");
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 1),
        &[line.signal_at(1)],
    )?;
    let other = device.queue(QueueKind::Compute, "other")?;
    other.submit(&[], |_| Ok(()), &[line.signal_at(2)])?;
    if let Some(event) = device.event(line.at(2))? {
        // SAFETY: a live event, recorded outside of captures.
        let fence = unsafe { device.adopt_event(event.raw(), "adopted") }?;
        fence.wait(PATIENCE)?;
    }
    let mut claim = line.claim(3)?;
    claim.wait_ready(PATIENCE)?;
    // SAFETY: the claim is of this timeline, and the queue keeps the stream.
    unsafe { device.submit_claimed(&line, &mut claim, own.stream().raw()) }?;
    step("waiting");
    line.at(3).wait(PATIENCE)?;
    queue.idle(PATIENCE)?;
    other.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    drop((queue, other, line, claim, buffer, device, own));
    drop(owner);
    Ok(())
}

/// A stream of the application, and work that leaves another context current.
pub(super) fn foreign() -> Verdict {
    let device = open()?;
    step("an own stream");
    let own = device.queue(QueueKind::Compute, "own")?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let submitted = own.submit(
        &[],
        move |_| {
            let mut stream = null_mut::<sys::CUstream_st>();
            // SAFETY: writes one handle, of a stream of the current context.
            let made = unsafe { sys::cuStreamCreate(&raw mut stream, 1) };
            let _ = sender.send((made, stream.expose_provenance()));
            Ok(())
        },
        &[],
    );
    let made = receiver.try_recv();
    submitted?;
    let Ok((code, address)) = made else {
        return Err(Stop::Wrong("work was not recorded".into()));
    };
    done("cuStreamCreate", code)?;
    let stream = Arc::new(OwnStream(address));
    step("adopting");
    // SAFETY: the queue keeps the stream.
    let queue = unsafe { device.adopt_raw_stream(stream.raw(), Some(stream), "foreign") }?;
    let line = device.timeline("line")?;
    let context = device.raw_context().expose_provenance();
    step("submitting");
    queue.submit(
        &[],
        move |_| {
            // SAFETY: a live context, which stays on the thread's stack of contexts.
            let _ =
                unsafe { sys::cuCtxPushCurrent_v2(std::ptr::with_exposed_provenance_mut(context)) };
            Ok(())
        },
        &[line.signal_at(1)],
    )?;
    step("waiting");
    line.at(1).wait(PATIENCE)?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// A stream of the application, by its address. The drop destroys it.
struct OwnStream(usize);

impl OwnStream {
    fn raw(&self) -> sys::CUstream {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: created by the application, and used no more.
        unsafe { sys::cuStreamDestroy_v2(self.raw()) };
    }
}
