//! A kernel writes a word of the application's memory. A queue of Syncline waits for the word.

#![allow(unsafe_code, reason = "adopts memory, and calls the driver")]

use std::sync::Arc;
use std::time::Duration;

use syncline::cuda::sys::{self, CUresult, CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_AND};
use syncline::cuda::{Device, Word};
use syncline::prelude::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> syncline::Result<()> {
    let device = Device::open(0)?;
    let put = device.module(include_str!("put.ptx"))?.function("put")?;
    let memory = device.buffer(128)?; // of your own: from cuMemAlloc, pinned or registered
    memory.write_words(&[0; 32])?;
    let (word, mut data) = (memory.pointer(), memory.pointer() + 64);
    let owner = Arc::new(memory.clone());
    // SAFETY: the owner keeps the memory. Only promised values are written from now on.
    let line = unsafe { device.adopt_word(Word::Bits64(word), 0, Some(owner), "word") }?;

    let (reads, seen) = (
        device.queue(QueueKind::Compute, "reads")?,
        device.host_buffer(4)?,
    );
    let (from, to) = (memory.view(64, 4)?, seen.clone());
    // Held: 1 is not promised yet.
    reads.submit(
        &[line.at(1)],
        move |stream| stream.copy(&from, &to),
        &[line.signal_at(2)],
    )?;

    let writes = device.queue(QueueKind::Compute, "writes")?;
    let launch = move |stream: &mut syncline::cuda::Recorder<'_>| {
        let mut word = word;
        let mut parameters = [(&raw mut data).cast(), (&raw mut word).cast()];
        // SAFETY: the kernel takes two addresses. The owner keeps the memory.
        unsafe { stream.launch(&put, [1; 3], [1; 3], &mut parameters) }
    };
    writes.submit(&[], launch, &[])?;
    line.signalled_by_others(1)?; // the promise: the kernel is with the driver
    line.at(2).wait(PATIENCE)?;
    println!("the kernel has left {:?}", seen.read_words()?);

    // A wait for equality, AND or NOR is a call of your own. Submit what sets the bits before. Such
    // a wait misses a value that is passed over, so nothing may clear the bits again.
    let bits = memory.pointer() + 64;
    let waits = move |stream: &mut syncline::cuda::Recorder<'_>| {
        // SAFETY: the stream is alive. The address is an aligned word, which the owner keeps.
        let code = unsafe {
            sys::cuStreamWaitValue32_v2(stream.stream(), bits, 4, CU_STREAM_WAIT_VALUE_AND as u32)
        };
        match code {
            CUresult::CUDA_SUCCESS => Ok(()),
            code => Err(Error::work(format!(
                "cuStreamWaitValue32 returned {code:?}"
            ))),
        }
    };
    reads.submit(&[], waits, &[line.signal_at(3)])?;
    line.at(3).wait(PATIENCE)?;
    println!("the word is at {}", line.value()?);
    writes.idle(PATIENCE)
}
