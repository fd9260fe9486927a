//! Memory, copies and kernels.

use std::ffi::c_void;
use std::ptr::null_mut;

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::sys;
use syncline::{Error, QueueKind};

use super::{DROPPING, PATIENCE, Stop, Verdict, expect, open, step};

/// Adds a number to the words of a buffer.
pub(super) const PTX: &str = r#"
.version 6.4
.target sm_60
.address_size 64

.visible .entry add(.param .u64 words, .param .u32 more)
{
    .reg .u32 %thread, %more, %word;
    .reg .u64 %words, %offset;
    ld.param.u64 %words, [words];
    ld.param.u32 %more, [more];
    cvta.to.global.u64 %words, %words;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %thread, 4;
    add.u64 %words, %words, %offset;
    ld.global.u32 %word, [%words];
    add.u32 %word, %word, %more;
    st.global.u32 [%words], %word;
    ret;
}
"#;

/// Device memory, copies and a kernel.
pub(super) fn memory() -> Verdict {
    let device = open()?;
    step("set-up");
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let (first, second) = (device.buffer(64)?, device.buffer(64)?);
    let module = device.module(PTX)?;
    let function = module.function("add")?;
    first.write_words(&[5; 16])?;
    step("submitting");
    let (from, to) = (first.clone(), second.clone());
    queue.submit(
        &[],
        move |recorder| {
            recorder.copy(&from, &to)?;
            let (mut words, mut more) = (to.pointer(), 4_u32);
            let mut params = [
                (&raw mut words).cast::<c_void>(),
                (&raw mut more).cast::<c_void>(),
            ];
            // SAFETY: the kernel has these two parameters, and accesses 16 words.
            unsafe { recorder.launch(&function, [1, 1, 1], [16, 1, 1], &mut params) }
        },
        &[],
    )?;
    step("waiting");
    queue.idle(PATIENCE)?;
    expect(
        second.read_words()? == [9; 16],
        "the kernel did not add 4 to 5",
    )?;
    step("freeing");
    drop((first, second));
    device.free_what_is_due()?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// A copy between two host buffers, also in a graph.
pub(super) fn copies() -> Verdict {
    let device = open()?;
    step("set-up");
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let (first, second) = (device.host_buffer(64)?, device.host_buffer(64)?);
    first.write_words(&[5; 16])?;
    let (from, to) = (first.clone(), second.clone());
    step("submitting");
    queue.submit(&[], move |recorder| recorder.copy(&from, &to), &[])?;
    step("waiting");
    queue.idle(PATIENCE)?;
    expect(second.read_words()? == [5; 16], "the copy was not made")?;
    step("capturing");
    let captured = queue.submit(
        &[],
        move |recorder| {
            let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            let mut graph = null_mut();
            // SAFETY: a live stream, whose lock the submission has. The graph is destroyed once.
            unsafe {
                sys::cuStreamBeginCapture_v2(recorder.stream(), mode);
                let copied = recorder.copy(&first, &second);
                sys::cuStreamEndCapture(recorder.stream(), &raw mut graph);
                sys::cuGraphDestroy(graph);
                copied
            }
        },
        &[],
    );
    step("idle");
    queue.idle(PATIENCE)?;
    captured?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Text that is no PTX, so that the driver names a code.
pub(super) fn refused() -> Verdict {
    let device = open()?;
    match device.module("no PTX") {
        // What the driver returns for such text.
        Err(Error::Native {
            code: 200 | 218,
            name,
            ..
        }) => {
            device.check()?;
            step(DROPPING);
            expect(
                name.starts_with("CUDA_") || name.contains("not name"),
                format!("the code has the name {name}"),
            )
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err(Stop::Wrong("text that is no PTX became a module".into())),
    }
}

/// Memory of one device that another one of the same GPU imports.
pub(super) fn exports() -> Verdict {
    let (left, right) = (open()?, open()?);
    step("exporting");
    let (ours, handle) = left.export_buffer(1 << 16)?;
    step("importing");
    let theirs = right.import_memory(handle)?;
    let (writes, reads) = (
        left.queue(QueueKind::Compute, "writes")?,
        right.queue(QueueKind::Compute, "reads")?,
    );
    let line = left.timeline("line")?;
    let target = right.host_buffer(64)?;
    step("submitting");
    let part = ours.view(4096, 64)?;
    writes.submit(
        &[],
        move |recorder| recorder.memset_d32(&part, 7),
        &[line.signal_at(1)],
    )?;
    // The importer keeps the memory.
    drop(ours);
    let (from, to) = (theirs.view(4096, 64)?, target.clone());
    reads.submit(
        &[line.at(1)],
        move |recorder| recorder.copy(&from, &to),
        &[line.signal_at(2)],
    )?;
    step("waiting");
    line.at(2).wait(PATIENCE)?;
    expect(
        target.read_words()? == [7; 16],
        "the importer reads other words",
    )?;
    writes.idle(PATIENCE)?;
    reads.idle(PATIENCE)?;
    left.free_what_is_due()?;
    left.check()?;
    right.check()?;
    step(DROPPING);
    Ok(())
}
