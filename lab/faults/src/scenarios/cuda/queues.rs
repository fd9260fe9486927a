//! Queues, timelines, fences and events.

use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};

use super::{DROPPING, PATIENCE, Verdict, events, expect, open, step};

/// One queue, one timeline, memory, and a wait.
pub(super) fn submit() -> Verdict {
    let device = open()?;
    step("set-up");
    let line = device.timeline("line")?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let buffer = device.host_buffer(64)?;
    step("submitting");
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 7),
        &[line.signal_at(1)],
    )?;
    step("waiting");
    line.at(1).wait(PATIENCE)?;
    expect(
        buffer.read_words()? == [7; 16],
        "the memset did not write 7",
    )?;
    queue.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    expect(
        line.at(2).is_pending()?,
        "a submission is not pending after a wait that was reached",
    )?;
    step("idle");
    queue.idle(PATIENCE)?;
    expect(line.value()? == 2, "the timeline is not at 2")?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Waits across queues, before and after their signals, and for several timelines.
pub(super) fn waits() -> Verdict {
    let device = open()?;
    step("set-up");
    let (first, second) = (device.timeline("first")?, device.timeline("second")?);
    let gate = device.timeline("gate")?;
    let queues = [
        device.queue(QueueKind::Compute, "a")?,
        device.queue(QueueKind::Transfer, "b")?,
    ];
    let buffer = device.host_buffer(64)?;
    step("a wait before its signal");
    let to = buffer.clone();
    queues[1].submit(
        &[first.at(1), gate.at(1)],
        move |recorder| recorder.memset_d32(&to, 2),
        &[second.signal_at(1)],
    )?;
    let to = buffer.clone();
    queues[0].submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 1),
        &[first.signal_at(1)],
    )?;
    step("a signal of the host");
    first.at(1).wait(PATIENCE)?;
    gate.signal(1)?;
    step("work of two queues");
    for value in 2..6 {
        let queue = &queues[value as usize % 2];
        queue.submit(
            &[first.at(value - 1), second.at(value - 1)],
            |_| Ok(()),
            &[first.signal_at(value), second.signal_at(value)],
        )?;
    }
    step("waits of the host");
    syncline::wait_all(&[first.at(5), second.at(5)], PATIENCE)?;
    syncline::wait_any(&[first.at(5), gate.at(1)], PATIENCE)?;
    expect(
        buffer.read_words()? == [2; 16],
        "the second memset came first",
    )?;
    for queue in &queues {
        queue.idle(PATIENCE)?;
    }
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Futures and eventfds, whose wakes other threads make.
pub(super) fn notices() -> Verdict {
    let device = open()?;
    step("set-up");
    let (line, gate) = (device.timeline("line")?, device.timeline("gate")?);
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let buffer = device.host_buffer(1 << 16)?;
    let notice = events::EventFd::new()?;
    step("submitting");
    let kept = line.at(2).notify(notice.duplicate()?)?;
    queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 5),
        &[line.signal_at(2)],
    )?;
    gate.signal(1)?;
    step("an eventfd");
    notice.wait(PATIENCE, &line.at(2))?;
    drop(kept);
    line.at(2).wait(PATIENCE)?;
    step("a future");
    queue.submit(&[], |_| Ok(()), &[line.signal_at(3)])?;
    events::block_on(line.at(3), PATIENCE)?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Fences without a time and with one.
pub(super) fn fences() -> Verdict {
    let device = open()?;
    step("set-up");
    let (first, second) = (
        device.queue(QueueKind::Compute, "a")?,
        device.queue(QueueKind::Compute, "b")?,
    );
    let buffer = device.host_buffer(64)?;
    let (plain, start, stop) = (
        device.fence("plain"),
        device.timed_fence("start"),
        device.timed_fence("stop"),
    );
    step("recording");
    first.record(&start)?;
    let to = buffer.clone();
    first.submit(&[], move |recorder| recorder.memset_d32(&to, 3), &[])?;
    first.record(&stop)?;
    first.record(&plain)?;
    second.wait(&plain)?;
    second.wait(&stop)?;
    let to = buffer.clone();
    second.submit(&[], move |recorder| recorder.memset_d32(&to, 4), &[])?;
    step("waiting");
    second.idle(PATIENCE)?;
    stop.wait(PATIENCE)?;
    plain.wait(PATIENCE)?;
    expect(plain.is_complete()?, "a fence is not complete")?;
    expect(stop.elapsed_since(&start)? >= 0, "time goes backwards")?;
    expect(
        buffer.read_words()? == [4; 16],
        "the second memset came first",
    )?;
    first.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// An event that other processes can open.
pub(super) fn event() -> Verdict {
    let device = open()?;
    step("set-up");
    let event = device.interprocess_event("shared")?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let recorded = event.clone();
    step("recording");
    queue.submit(&[], move |recorder| recorder.record_event(&recorded), &[])?;
    event.fence().wait(PATIENCE)?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}
