//! Adopted objects of the application: contexts, streams and events. The current context is kept.
#![allow(unsafe_code, reason = "calls the driver as an application does")]

use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind};
use syncline_cuda::{Device, Recorder, sys};

use crate::common::{LIMIT, trials};
use crate::setup::gpu;

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        cudarcs_context_and_streams_are_adopted,
        a_bare_context_is_adopted_by_itself,
        a_captured_stream_is_refused_and_not_harmed,
        the_callers_context_survives_work_that_sets_none,
        an_applications_event_becomes_a_fence,
        a_guarded_stream_takes_no_submissions,
        a_raw_stream_has_one_guard,
        a_signal_of_a_claim_waits_for_the_guard,
        the_callers_current_context_is_left_as_found,
    ]
}

fn cudarcs_context_and_streams_are_adopted() {
    let _gpu = gpu();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let device = Device::adopt(&context).unwrap();
    assert_eq!(device.raw_context(), context.cu_ctx());
    for stream in [context.new_stream().unwrap(), context.default_stream()] {
        // SAFETY: the stream is not captured.
        let queue = unsafe { device.adopt_stream(&stream, "adopted") }.unwrap();
        // SAFETY: as above.
        let twin = unsafe { device.adopt_stream(&stream, "its twin") }.unwrap();
        let buffer = device.host_buffer(16).unwrap();
        let timeline = device.timeline("adopted").unwrap();
        let filled = buffer.clone();
        queue
            .submit(
                &[],
                move |r| r.memset_d32(&filled, 7),
                &[timeline.signal_at(1)],
            )
            .unwrap();
        twin.submit(&[timeline.at(1)], |_| Ok(()), &[timeline.signal_at(2)])
            .unwrap();
        timeline.at(2).wait(LIMIT).unwrap();
        assert_eq!(buffer.read_words().unwrap(), [7; 4]);
        assert_eq!(twin.stream().held(), 0);
    }
    // SAFETY: it is not captured.
    let refused = unsafe { device.adopt_stream(&context.per_thread_stream(), "per thread") };
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    // The device outlives the application's own handle.
    drop(context);
    let timeline = device.timeline("after").unwrap();
    let queue = device.queue(QueueKind::Transfer, "after").unwrap();
    queue
        .submit(&[], |_| Ok(()), &[timeline.signal_at(1)])
        .unwrap();
    timeline.at(1).wait(LIMIT).unwrap();
}

fn a_bare_context_is_adopted_by_itself() {
    let _gpu = gpu();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    // SAFETY: it lives as long as cudarc's handle, which is kept.
    let device = unsafe { Device::adopt_context(context.cu_ctx(), Some(context.clone())) }.unwrap();
    assert_eq!(device.raw_context(), context.cu_ctx());
    assert_eq!(
        device.info().uuid.unwrap().0,
        // C's `char`, which has a sign on some machines.
        context
            .uuid()
            .unwrap()
            .bytes
            .map(|byte| byte.to_ne_bytes()[0])
    );
    let (queue, done) = (
        device.queue(QueueKind::Compute, "bare").unwrap(),
        device.timeline("done").unwrap(),
    );
    queue.submit(&[], |_| Ok(()), &[done.signal_at(1)]).unwrap();
    done.at(1).wait(LIMIT).unwrap();
    queue.idle(LIMIT).unwrap();
    // SAFETY: null is refused before it is used.
    let refused = unsafe { Device::adopt_context(std::ptr::null_mut(), None) };
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}

fn a_captured_stream_is_refused_and_not_harmed() {
    let gpu = gpu();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let device = Device::adopt(&context).unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: no other thread asks for the capture.
    let queue = unsafe { device.adopt_stream(&stream, "captured") }.unwrap();
    let other = gpu.queue("beside the capture");
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).unwrap();
    let refused = queue
        .submit(&[], |_| Ok(()), &[])
        .map(|sent| sent.is_held());
    assert!(
        matches!(refused, Err(Error::Capturing { .. })),
        "{refused:?}"
    );
    // Queries of other streams succeed meanwhile, on this thread and on the watching thread.
    other.submit(&[], |_| Ok(()), &[]).unwrap();
    other.idle(LIMIT).unwrap();
    let flags = sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    stream.end_capture(flags).expect("the capture is whole");
    queue.submit(&[], |_| Ok(()), &[]).unwrap();
    queue.idle(LIMIT).unwrap();
}

fn the_callers_context_survives_work_that_sets_none() {
    fn set(context: sys::CUcontext) {
        // SAFETY: none, or the device's own, which lives.
        let set = unsafe { sys::cuCtxSetCurrent(context) };
        assert_eq!(set, sys::CUresult::CUDA_SUCCESS);
    }
    let gpu = gpu();
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let asked = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
        assert_eq!(asked, sys::CUresult::CUDA_SUCCESS);
        context
    };
    let queue = gpu.queue("rude");
    for before in [gpu.device.raw_context(), std::ptr::null_mut()] {
        set(before);
        let rude = |_: &mut Recorder| {
            set(std::ptr::null_mut());
            Ok(())
        };
        queue.submit(&[], rude, &[]).unwrap();
        assert_eq!(current(), before);
        queue.idle(LIMIT).unwrap();
        assert_eq!(current(), before);
    }
    set(std::ptr::null_mut());
}

fn an_applications_event_becomes_a_fence() {
    let gpu = gpu();
    let (busy, waiter) = (gpu.queue("busy"), gpu.queue("waiter"));
    let mut event = std::ptr::null_mut();
    let ok = |result| assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
    // SAFETY: the context lives to the end of the test.
    ok(unsafe { sys::cuCtxSetCurrent(gpu.device.raw_context()) });
    // SAFETY: writes one handle.
    ok(unsafe { sys::cuEventCreate(&raw mut event, 0) });
    // SAFETY: a live event, never recorded.
    let never = unsafe { gpu.device.adopt_event(event, "never recorded") }.unwrap();
    never.wait(LIMIT).unwrap();
    let stall = gpu.stalled(&busy);
    // SAFETY: a live event and stream.
    ok(unsafe { sys::cuEventRecord(event, busy.stream().raw()) });
    // SAFETY: as above.
    let fence = unsafe { gpu.device.adopt_event(event, "the application's") }.unwrap();
    assert!(!fence.is_complete().unwrap());
    // A later record does not change the fence, and the event may be destroyed.
    // SAFETY: as above.
    ok(unsafe { sys::cuEventRecord(event, waiter.stream().raw()) });
    // SAFETY: made above, destroyed once.
    ok(unsafe { sys::cuEventDestroy_v2(event) });
    waiter.wait(&fence).unwrap();
    let waited = fence.wait(Duration::from_millis(20));
    assert!(waited.unwrap_err().is_timeout());
    assert!(!waiter.position().is_reached().unwrap());
    assert!(matches!(
        busy.record(&fence),
        Err(Error::ForeignFence { .. })
    ));
    stall.release();
    fence.wait(LIMIT).unwrap();
    waiter.idle(LIMIT).unwrap();
    // SAFETY: none is current.
    ok(unsafe { sys::cuCtxSetCurrent(std::ptr::null_mut()) });
}

fn a_guarded_stream_takes_no_submissions() {
    let gpu = gpu();
    let queue = gpu.queue("guarded");
    let timeline = gpu.device.timeline("done").unwrap();
    let guard = queue.stream();
    // The same thread may take the guard again.
    assert_eq!(queue.stream().raw(), guard.raw());
    for value in 1..=3 {
        let sent = std::thread::scope(|scope| {
            let submit = || {
                let signal = [timeline.signal_at(value)];
                queue.submit(&[], |_| Ok(()), &signal).unwrap().is_held()
            };
            scope.spawn(submit).join().unwrap()
        });
        assert!(sent);
    }
    assert!(
        timeline
            .at(1)
            .wait(Duration::from_millis(20))
            .unwrap_err()
            .is_timeout()
    );
    assert_eq!(queue.held().count, 3);
    drop(guard);
    timeline.at(3).wait(LIMIT).unwrap();
    queue.idle(LIMIT).unwrap();
}

/// D5: one guard for a raw stream, whether its queue, a second queue, or a second device has it.
fn a_raw_stream_has_one_guard() {
    let gpu = gpu();
    let made = gpu.queue("made");
    let raw = made.stream().raw();
    // SAFETY: the first device keeps the context for longer.
    let other_device = unsafe { Device::adopt_context(gpu.device.raw_context(), None) }.unwrap();
    // SAFETY: the first queue keeps the stream for longer.
    let twin = unsafe { gpu.device.adopt_raw_stream(raw, None, "twin") }.unwrap();
    // SAFETY: as above.
    let there = unsafe { other_device.adopt_raw_stream(raw, None, "there") }.unwrap();
    for (guarded, others) in [(&there, [&made, &twin]), (&made, [&there, &twin])] {
        let guard = guarded.stream();
        assert_eq!(guard.raw(), raw);
        for queue in others {
            let held = std::thread::scope(|scope| {
                let submit = || queue.submit(&[], |_| Ok(()), &[]).unwrap().is_held();
                scope.spawn(submit).join().unwrap()
            });
            assert!(held);
        }
        drop(guard);
        for queue in others {
            queue.settle(LIMIT).unwrap();
            queue.idle(LIMIT).unwrap();
        }
    }
}

/// D5: another thread's signal of a claim waits for the guard.
fn a_signal_of_a_claim_waits_for_the_guard() {
    let gpu = gpu();
    let queue = gpu.queue("guarded");
    let timeline = gpu.device.timeline("claimed").unwrap();
    std::thread::scope(|scope| {
        let guard = queue.stream();
        let address = guard.raw().addr();
        let signalled = scope.spawn({
            let (device, timeline) = (&gpu.device, &timeline);
            move || {
                let raw = std::ptr::without_provenance_mut(address);
                let mut claim = timeline.claim(1).unwrap();
                // SAFETY: a claim of this timeline; the queue keeps the stream.
                unsafe { device.submit_claimed(timeline, &mut claim, raw) }
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!timeline.at(1).is_pending().unwrap());
        // The thread that has the guard does not wait.
        let own = gpu.device.timeline("own").unwrap();
        let mut claim = own.claim(1).unwrap();
        // SAFETY: as above.
        unsafe { gpu.device.submit_claimed(&own, &mut claim, guard.raw()) }.unwrap();
        own.at(1).wait(LIMIT).unwrap();
        drop(guard);
        signalled.join().unwrap().unwrap();
    });
    timeline.at(1).wait(LIMIT).unwrap();
    queue.idle(LIMIT).unwrap();
}

fn the_callers_current_context_is_left_as_found() {
    let gpu = gpu();
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle; the driver is there.
        let asked = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
        assert_eq!(asked, sys::CUresult::CUDA_SUCCESS);
        context
    };
    let before = current();
    let (queue, timeline) = (gpu.queue("polite"), gpu.device.timeline("polite").unwrap());
    let ours = gpu.device.raw_context() as usize;
    let work = move |_: &mut Recorder| {
        let mut context = std::ptr::null_mut();
        // SAFETY: as above.
        let _ = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
        assert_eq!(context as usize, ours);
        Ok(())
    };
    queue.submit(&[], work, &[timeline.signal_at(1)]).unwrap();
    timeline.at(1).wait(LIMIT).unwrap();
    let _ = gpu.device.buffer(64).unwrap().read_words().unwrap();
    assert_eq!(current(), before);
}
