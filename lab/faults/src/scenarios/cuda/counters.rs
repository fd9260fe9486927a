//! Counters in shared memory, and words of the application.

use std::sync::Arc;

use syncline::Mechanism;
use syncline::backend::{Device as _, Queue as _};
use syncline::negotiate::{Granted, Party, Plan, negotiate};
use syncline::{QueueKind, Timeline, cuda, handle::HandleKind, host};

use super::{DROPPING, PATIENCE, Stop, Verdict, expect, open, step};

/// The timeline of a plan, with all rights.
pub(in crate::scenarios) fn made(
    plan: &Plan,
    label: &str,
    devices: &[syncline::Device],
) -> Verdict<Timeline> {
    let made = plan.make(label, 0, devices)?;
    match made.auto(plan.home().id())? {
        Granted::Both(timeline) => Ok(timeline),
        other => Err(Stop::Wrong(format!("the home may only {other:?}"))),
    }
}

/// A counter in shared memory, which the host and CUDA signal and wait for.
pub(super) fn counter() -> Verdict {
    let device = open()?;
    let threads = host::Device::new();
    step("set-up");
    let exports = &threads.info().capabilities.exports;
    if !exports.contains(&HandleKind::CounterMemfd) {
        // No descriptor was left for a counter. The error says so.
        threads.exportable_port(0)?;
    }
    let parties = [
        Party::of(&device).signals().waits().natively(),
        Party::of(&threads).signals().waits(),
    ];
    let plan = negotiate(parties).map_err(|conflict| Stop::Wrong(conflict.to_string()))?;
    expect(
        plan.mechanism() == Mechanism::SharedMemory,
        format!("not a counter: {plan}"),
    )?;
    let devices: [syncline::Device; 2] = [device.clone().into(), threads.into()];
    let (first, second) = (
        made(&plan, "first", &devices)?,
        made(&plan, "second", &devices)?,
    );
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let worker = devices[1].queue(QueueKind::Compute, "worker")?;
    step("submitting");
    worker.submit(&[], |_| Ok(()), &[first.signal_at(1), second.signal_at(1)])?;
    queue.submit(
        &[first.at(1), second.at(1)],
        |_| Ok(()),
        &[first.signal_at(2), second.signal_at(2)],
    )?;
    first.at(2).wait(PATIENCE)?;
    first.signal(3)?;
    queue.submit(&[first.at(3)], |_| Ok(()), &[first.signal_at(4)])?;
    // Its signal is pending for a while, so CUDA waits for the memory.
    worker.submit(
        &[first.at(4)],
        |recorder| {
            if let syncline::Recorder::Host(worker) = recorder {
                worker.run(|| std::thread::sleep(std::time::Duration::from_millis(5)));
            }
            Ok(())
        },
        &[second.signal_at(3)],
    )?;
    first.at(4).wait(PATIENCE)?;
    queue.submit(&[second.at(3)], |_| Ok(()), &[first.signal_at(5)])?;
    first.at(5).wait(PATIENCE)?;
    step("waiting");
    second.at(3).wait(PATIENCE)?;
    queue.idle(PATIENCE)?;
    worker.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Words that the application has, in device memory and in memory that the host reads.
pub(super) fn word() -> Verdict {
    let device = open()?;
    step("set-up");
    let (hidden, shown) = (device.buffer(64)?, device.host_buffer(64)?);
    hidden.write_words(&[0; 16])?;
    let queues = [
        device.queue(QueueKind::Compute, "writes")?,
        device.queue(QueueKind::Compute, "waits")?,
    ];
    step("adopting");
    let adopt = |word, label| {
        let owner = Arc::new((hidden.clone(), shown.clone()));
        // SAFETY: the owner keeps the memory. Only promised values are written.
        unsafe { device.adopt_word(word, 0, Some(owner), label) }
    };
    let first = adopt(cuda::Word::Bits64(hidden.pointer()), "hidden")?;
    let second = adopt(cuda::Word::Bits32(shown.pointer()), "shown")?;
    step("a wait before its promise");
    let lines = [&first, &second];
    queues[1].submit(
        &[first.at(1), second.at(1)],
        |_| Ok(()),
        &[first.signal_at(2), second.signal_at(2)],
    )?;
    step("writing");
    let words = [hidden.view(0, 4)?, shown.view(0, 4)?];
    queues[0].submit(
        &[],
        move |recorder| {
            for word in &words {
                recorder.memset_d32(word, 1)?;
            }
            Ok(())
        },
        &[],
    )?;
    step("promising");
    for line in lines {
        line.signalled_by_others(1)?;
    }
    step("waiting");
    for line in lines {
        line.at(2).wait(PATIENCE)?;
        expect(line.value()? == 2, "the word is not at 2")?;
    }
    step("a signal of the host");
    second.signal(3)?;
    for queue in &queues {
        queue.submit(&[second.at(3)], |_| Ok(()), &[])?;
        queue.idle(PATIENCE)?;
    }
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Two devices of one GPU and a counter in shared memory, for which streams wait.
pub(super) fn two_devices() -> Verdict {
    let (left, right) = (open()?, open()?);
    step("sharing");
    let parties = [
        Party::of(&left).signals().waits().natively(),
        Party::of(&right).signals().waits().natively(),
    ];
    let plan = negotiate(parties).map_err(|conflict| Stop::Wrong(conflict.to_string()))?;
    let devices: [syncline::Device; 2] = [left.clone().into(), right.clone().into()];
    let line = made(&plan, "line", &devices)?;
    let (first, second) = (
        left.queue(QueueKind::Compute, "first")?,
        right.queue(QueueKind::Compute, "second")?,
    );
    let buffer = left.host_buffer(1 << 20)?;
    step("submitting");
    for value in 0..3 {
        let to = buffer.clone();
        first.submit(
            &[line.at(2 * value)],
            move |recorder| recorder.memset_d32(&to, 1),
            &[line.signal_at(2 * value + 1)],
        )?;
        second.submit(
            &[line.at(2 * value + 1)],
            |_| Ok(()),
            &[line.signal_at(2 * value + 2)],
        )?;
    }
    step("waiting");
    line.at(6).wait(PATIENCE)?;
    first.idle(PATIENCE)?;
    second.idle(PATIENCE)?;
    left.check()?;
    right.check()?;
    step(DROPPING);
    Ok(())
}
