//! F7, X10: slots of words of the application.

#![allow(unsafe_code, reason = "an application's memory is raw")]

use std::time::Duration;

use syncline::{Device, cuda};

use super::super::captures::{Stall, cuda_queue};
use super::{Slotted, Timeline, pass_on};
use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "slot.words_of_the_application": [F7 X10 T7] => words;
}

/// Slots of words of 64 and of 32 bits, which wrap, in memory that the host can read and cannot.
fn words(world: &World<Equipped>) -> Verdict {
    const START: u64 = 0x3_ffff_fffe;
    /// The largest step of a word of 32 bits.
    const STEP: u64 = (1 << 31) - 1;
    let (Device::Cuda(device), false) = (world.left.library(), world.is_pair()) else {
        return Stop::skip("only one CUDA device captures words of its memory");
    };
    if !world.left.info().capabilities.stream_memory_ops {
        return Stop::skip("the device's streams do not wait for memory");
    }
    let (queue, native) = cuda_queue(world, "captured")?;
    let (asking, seeing) = (world.left_queue("asking")?, world.left_queue("seeing")?);
    for (is_wide, on_host) in [(true, true), (false, true), (true, false), (false, false)] {
        let make = |label| -> Result<Timeline, Stop> {
            let memory = match on_host {
                true => device.host_buffer(8)?,
                false => device.buffer(8)?,
            };
            let high = if is_wide { (START >> 32) as u32 } else { 0 };
            memory.write_words(&[START as u32, high])?;
            let word = match is_wide {
                true => cuda::Word::Bits64(memory.pointer()),
                false => cuda::Word::Bits32(memory.pointer()),
            };
            let owner = std::sync::Arc::new(memory);
            // SAFETY: the owner keeps the memory, which only this timeline writes.
            let line = unsafe { device.adopt_word(word, START, Some(owner), label) }?;
            Ok(world.left.own(line))
        };
        let (asked, answered) = (make("asked")?, make("answered")?);
        let seen = world.left.timeline("seen")?;
        let stall = Stall::released();
        let mut slotted = Slotted::begin(world, &native)?;
        let wait = slotted.wait(&asked)?;
        let signal = slotted.signal(&answered)?;
        slotted.stall(&stall)?;
        let graph = slotted.end()?;
        stall.hold();
        let (first, second) = (START + 1, START + 2);
        let launch = native.launch(&graph, &[wait.at(first), signal.at(first)])?;
        check!(launch.is_held(), "launched before its wait is pending");
        asking.signal(&asked, first)?;
        pass_on(&seeing, &answered, first, &seen, 1)?;
        let begun = seen.at(1).wait(patience());
        check!(begun.is_ok());
        check_error!(queue.position().wait(Duration::ZERO), TimedOut);
        stall.release();
        // T7 counts from the value that the host has seen.
        asked.at(first).wait(patience())?;
        // So far past the value that a word of 32 bits seems to be before it.
        for value in [first + STEP, first + 2 * STEP] {
            asking.signal(&asked, value)?;
            asked.at(value).wait(patience())?;
        }
        native.launch(&graph, &[wait.at(first), signal.at(second)])?;
        let ended = answered.at(second).wait(patience());
        check!(ended.is_ok());
        queue.idle(patience())?;
        for idle in [&asking, &seeing] {
            idle.idle(patience())?;
        }
    }
    Ok(())
}
