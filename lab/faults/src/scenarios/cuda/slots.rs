//! A graph that waits for timelines and signals them at each launch.

use std::sync::Arc;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{self, Device, Graph, GraphSlots, Queue, Slot};
use syncline::{Error, QueueKind, Timeline, host, share};

use super::capture::capture_into;
use super::{DROPPING, PATIENCE, Stop, Verdict, expect, open, step, vulkan};

/// A wait that must time out.
const SHORT: Duration = Duration::from_millis(20);

/// A graph with a slot for each of the waits, then one for each of the signals.
pub(crate) fn captured(
    (queue, other): (&Queue, &Queue),
    mut slots: GraphSlots,
    waits: &[&Timeline],
    signals: &[&Timeline],
) -> Verdict<(Graph, Vec<Slot>)> {
    let (owned, added) = capture_into(queue, other, || {
        let mut added = Vec::new();
        for line in waits {
            added.push(slots.wait(queue, line.at(0))?);
        }
        for line in signals {
            added.push(slots.signal(queue, line)?);
        }
        Ok(added)
    })?;
    let (graph, executable) = (owned.graph(), owned.executable());
    // SAFETY: the owner keeps both. The graph has only the nodes of the slots.
    let graph = unsafe { slots.adopt(graph, executable, Some(Arc::new(owned))) }?;
    Ok((graph, added))
}

/// The graph of the scenario, and what it waits for and signals.
struct Launched<'t> {
    queue: &'t Queue,
    other: &'t Queue,
    graph: Graph,
    slots: Vec<Slot>,
    waits: [&'t Timeline; 3],
    signals: [&'t Timeline; 3],
}

impl Launched<'_> {
    fn launch(&self, waits: [u64; 3], signals: [u64; 3]) -> Verdict {
        let values = waits.into_iter().chain(signals);
        let values: Vec<_> = self.slots.iter().zip(values).collect();
        let values: Vec<_> = values.iter().map(|(slot, value)| slot.at(*value)).collect();
        self.queue.launch(&self.graph, &values)?;
        Ok(())
    }

    /// Launches again after a launch with `refused` as all values was refused.
    ///
    /// Each of three launches has values of its own, and waits with another slot for a value that
    /// is pending and not reached. So a value of the refused launch in any slot shows.
    fn launch_again(&self, device: &Device, refused: u64) -> Verdict {
        let opener = device.host_buffer(64)?;
        let word = cuda::Word::Bits64(opener.pointer());
        // SAFETY: the owner keeps the memory. Only promised values are written.
        let gate = unsafe { device.adopt_word(word, 0, Some(Arc::new(opener.clone())), "gate") }?;
        let mut waits = [refused; 3];
        for nth in 0..3_u32 {
            let (at, open) = (nth as usize, nth + 1);
            gate.signalled_by_others(open.into())?;
            waits[at] += 1;
            let signal = [self.waits[at].signal_at(waits[at])];
            let gated = self
                .other
                .submit(&[gate.at(open.into())], |_| Ok(()), &signal);
            let first = refused + 10 * u64::from(open);
            let signals = [first, first + 1, first + 2];
            let launched = (|| {
                gated?;
                self.launch(waits, signals)?;
                self.signals
                    .iter()
                    .zip(signals)
                    .try_for_each(|(line, value)| match line.at(value).wait(SHORT) {
                        Err(Error::TimedOut { .. }) => Ok(()),
                        Err(error) => Err(error.into()),
                        Ok(()) => Err(Stop::Wrong(format!(
                            "slot {at} of a later launch waits for a value of the refused one"
                        ))),
                    })
            })();
            opener.write_words(&[open])?;
            launched?;
            for (line, value) in self.signals.iter().zip(signals) {
                match line.at(value).wait(PATIENCE) {
                    Err(Error::TimedOut { .. }) => {
                        let what = format!("{line:?} does not come to {value} after a refusal");
                        return Err(Stop::Wrong(what));
                    }
                    other => other?,
                }
                let found = line.value()?;
                expect(
                    found == value,
                    format!("{line:?} is at {found}, not {value}"),
                )?;
            }
        }
        Ok(())
    }
}

pub(super) fn slots() -> Verdict {
    let (cuda, vulkan) = (open()?, vulkan::open()?);
    step("sharing");
    let link = share(&cuda, &vulkan)?;
    let (theirs, ours) = (link.timeline("theirs")?, link.timeline("ours")?);
    let counters = share(&cuda, &host::Device::new())?;
    let (told, heard) = (counters.timeline("told")?, counters.timeline("heard")?);
    let (before, after) = (cuda.timeline("before")?, cuda.timeline("after")?);
    let seen = vulkan.timeline("seen")?;
    let (queue, other) = (
        cuda.queue(QueueKind::Compute, "captured")?,
        cuda.queue(QueueKind::Compute, "other")?,
    );
    let right = vulkan.queue(QueueKind::Compute, "right")?;
    step("capturing");
    let slots = cuda.graph_slots("graph");
    let (waits, signals) = ([&before, &theirs, &told], [&after, &ours, &heard]);
    let (graph, slots) = captured((&queue, &queue), slots, &waits, &signals)?;
    let launched = Launched {
        queue: &queue,
        other: &other,
        graph,
        slots,
        waits,
        signals,
    };
    step("launching");
    let ended = (|| -> Verdict {
        for round in 1..=3 {
            right.submit(&[], |_| Ok(()), &[theirs.signal_at(round)])?;
            other.submit(&[], |_| Ok(()), &[before.signal_at(round)])?;
            told.signal(round)?;
            if let Err(refused) = launched.launch([round; 3], [round; 3]) {
                queue.idle(PATIENCE)?;
                // The timeline does not tell of a value that nothing claims.
                let semaphore = vulkan.semaphore_of(&ours)?;
                // SAFETY: a live semaphore, which the timeline keeps.
                let value = unsafe { vulkan.raw().get_semaphore_counter_value(semaphore) };
                let signalled = value.is_ok_and(|value| value >= round);
                // A lost device may have executed what it refuses.
                let is_lost = cuda.check().is_err();
                expect(is_lost || !signalled, "a refused launch has signalled")?;
                if !is_lost {
                    step("launching again");
                    // The driver may refuse that, too.
                    if let Err(wrong @ Stop::Wrong(_)) = launched.launch_again(&cuda, round) {
                        return Err(wrong);
                    }
                }
                return Err(refused);
            }
            let waits = [ours.at(round), after.at(round)];
            right.submit(&waits, |_| Ok(()), &[seen.signal_at(round)])?;
        }
        step("waiting");
        after.at(3).wait(PATIENCE)?;
        ours.at(3).wait(PATIENCE)?;
        seen.at(3).wait(PATIENCE)?;
        heard.at(3).wait(PATIENCE)?;
        expect(ours.value()? == 3, "the shared timeline is not at 3")
    })();
    // Work of it may be in flight after an error.
    let idle = queue.idle(PATIENCE).and(other.idle(PATIENCE));
    ended?;
    idle?;
    cuda.check()?;
    vulkan.check()?;
    step(DROPPING);
    Ok(())
}
