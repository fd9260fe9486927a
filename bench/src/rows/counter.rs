//! Timelines in shared memory, within one process.

use super::partner::{Partner, Way};
use super::process::{SLEEPING, SPINNING, pace};
use super::{Call, Floor, Row, Variant};
use crate::lab::Lab;
use crate::machine::On;
use crate::side::Outcome;

pub(super) const ROWS: &[Row] = &[Row {
    id: "counter.pingpong",
    ours: "two threads of one process and two timelines in shared memory, there and back",
    raw: "two futex words in a memfd, with a count of sleepers, so that no wake is made without one, and the same spinning",
    floor: Floor::Side(
        "the same with a time-out for each wait that sleeps, and by futex_waitv(2) for a second word, too, because a failure within the process ends it (E1)",
    ),
    limits: &[],
    on: &[On::Host],
    variants: &[
        Variant::new("spinning first", SPINNING),
        Variant::new("sleeping at once", SLEEPING),
    ],
    run: pingpong,
}];

fn pingpong(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let partner = Partner::thread(&call.machine.host(call.subject)?, pace(call.n))?;
    lab.race(partner.sides([Way::Timelines, Way::Words, Way::CarefulWords]))
}

#[cfg(feature = "cuda")]
pub(super) const CUDA_ROWS: &[Row] = &[Row {
    id: "counter.cuda",
    ours: "the host signals a timeline in shared memory, for which a submission to a CUDA stream waits, which signals another; the host spins for that",
    raw: "cuStreamWaitValue64 and cuStreamWriteValue64 on mapped memory, the host stores and spins",
    floor: Floor::Unmeasured(
        "a wait is held on the host until its signal is pending (Q2), and then needs no cuStreamWaitValue64",
    ),
    limits: &[],
    on: &[On::Cuda],
    variants: &[],
    run: cuda::there_and_back,
}];

#[cfg(feature = "cuda")]
mod cuda {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use syncline::backend::{Attachments, Device as _, Queue as _};
    use syncline::{QueueKind, Timeline, WaitMode, handle::Rejected, host};

    use super::Call;
    use crate::lab::Lab;
    use crate::raw::cuda::{Hand, has_memory_operations};
    use crate::side::{Outcome, Side, Stop, timed};

    /// Time-out of all waits of this row.
    const LONG: Duration = Duration::from_secs(20);

    /// A counter with its home on the host, and a port on the device.
    fn counter(device: &syncline::cuda::Device, label: &str) -> Outcome<Timeline> {
        let (home, source) = host::Device::new().exportable_port(0)?;
        let imported = device.import_counter(source.export()?);
        let port = imported.map_err(|Rejected { error, .. }| Stop::from(error))?;
        let ports = Attachments::from_iter([home, port]);
        Ok(Timeline::new(label, 0, |_| Ok(ports))?)
    }

    pub(super) fn there_and_back(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
        const PING: usize = 0;
        const PONG: usize = 1;
        let device = call.machine.cuda(call.subject)?;
        if !has_memory_operations(&device) {
            let reason = "this device's streams have no memory operations";
            return Err(Stop::Skipped(reason.into()));
        }
        let queue = device.queue(QueueKind::Compute, "there and back")?;
        let (ping, pong) = (counter(&device, "ping")?, counter(&device, "pong")?);
        let hand = Hand::new(&device)?;
        let (stream, words) = (hand.stream()?, hand.words(2)?);
        let (mut ours, mut raw) = (0, 0);
        lab.race(vec![
            Side::ours(|n| {
                timed(|| {
                    for _ in 0..n {
                        ours += 1;
                        queue.submit(&[ping.at(ours)], |_| Ok(()), &[pong.signal_at(ours)])?;
                        ping.signal(ours)?;
                        pong.at(ours).wait_with(WaitMode::Spin, LONG)?;
                    }
                    Ok(())
                })
            }),
            Side::raw(|n| {
                timed(|| {
                    for _ in 0..n {
                        raw += 1;
                        hand.wait_value(stream, &words, PING, raw)?;
                        hand.write_value(stream, &words, PONG, raw)?;
                        words.word(PING).store(raw, Ordering::Release);
                        words.poll(PONG, raw)?;
                    }
                    Ok(())
                })
            }),
        ])
    }
}
