//! X2, T1: one counter for both sides.

use crate::case::{Verdict, check};
use crate::dice::seeds;
use crate::user::{Queue, Submitted, Timeline};
use crate::workload::Equipped;
use crate::{World, patience};

linked_cases! {
    "one_counter": [X2] or [Q3 T1] => one_counter;
    "counter_across_31_and_32_bits": [X2 T1] or [Q3 T1] => across_32_bits;
    "many_lines_at_once": [X2] or [Q3] => many_lines;
}

/// Left, right and the host signal one counter in turn, and each side sees its values in order.
fn one_counter(world: &World<Equipped>) -> Verdict {
    let link = super::linked(world.left.library(), world.right.library());
    for initial in [0, 5, 1 << 40] {
        let line = world.left.own(link.timeline_from("shared", initial)?);
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let mut last = initial;
        for _ in 0..10 {
            left.submit(&[line.at(last)], |_| Ok(()), &[line.signal_at(last + 1)])?;
            right.submit(
                &[line.at(last + 1)],
                |_| Ok(()),
                &[line.signal_at(last + 3)],
            )?;
            line.at(last + 3).wait(patience())?;
            check!(
                line.value()? == last + 3,
                "the value is {} instead of {}",
                line.value()?,
                last + 3
            );
            line.signal(last + 4)?;
            // Each side waits for the host's signal.
            left.submit(&[line.at(last + 4)], |_| Ok(()), &[])?
                .end()
                .wait(patience())?;
            right
                .submit(&[line.at(last + 4)], |_| Ok(()), &[])?
                .end()
                .wait(patience())?;
            last += 4;
        }
    }
    Ok(())
}

/// Counters that start just below the limits of 31, 32, 63 and 64 bits.
///
/// Both sides and the host see the same values, in order, and none too early.
fn across_32_bits(world: &World<Equipped>) -> Verdict {
    let link = super::linked(world.left.library(), world.right.library());
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for initial in [(1 << 31) - 2, (1 << 32) - 2, (1 << 63) - 2, u64::MAX - 8] {
        let line = world.left.own(link.timeline_from("line", initial)?);
        let mut last = initial;
        for (nth, step) in [1, 1, 1, 2, 1, 1].into_iter().enumerate() {
            let next = last + step;
            // A wait for it now must not end early because of a comparison in 32 bits.
            let (early, late) = (
                line.at(next),
                line.at(next + u64::from(next < u64::MAX - 1)),
            );
            check!(!early.is_reached()?, "{next} is reached at {last}");
            let waits = [&left, &right].map(|queue| queue.submit(&[early], |_| Ok(()), &[]));
            match nth % 3 {
                0 => drop(signalled(&world.left_queue("left too")?, &line, next)?),
                1 => drop(signalled(&world.right_queue("right too")?, &line, next)?),
                _ => line.signal(next)?,
            }
            for waiting in waits {
                waiting?.end().wait(patience())?;
            }
            early.wait(patience())?;
            check!(
                line.value()? == next,
                "at {} instead of {next}",
                line.value()?
            );
            check!(
                late.value() == next || !late.is_reached()?,
                "{} is reached at {next}",
                next + 1
            );
            last = next;
        }
    }
    Ok(())
}

fn signalled<'q>(
    queue: &'q Queue<Equipped>,
    line: &Timeline<Equipped>,
    value: u64,
) -> syncline::Result<Submitted<'q, Equipped>> {
    queue.submit(&[], |_| Ok(()), &[line.signal_at(value)])
}

/// Both sides signal many counters in random order. Each submission also waits for another one.
///
/// Each counter has the value of its own signals.
fn many_lines(world: &World<Equipped>) -> Verdict {
    const LINES: usize = 64;
    let link = super::linked(world.left.library(), world.right.library());
    let lines: Vec<_> = (0..LINES)
        .map(|nth| Ok(world.left.own(link.timeline(&format!("line {nth}"))?)))
        .collect::<syncline::Result<_>>()?;
    let queues = [
        world.left_queue("left 0")?,
        world.right_queue("right 0")?,
        world.left_queue("left 1")?,
        world.right_queue("right 1")?,
    ];
    seeds(2, |dice| {
        let start: Vec<u64> = lines
            .iter()
            .map(|line| line.value())
            .collect::<Result<_, _>>()?;
        let mut model = start.clone();
        for _ in 0..4 * LINES {
            let (one, other) = (dice.index(LINES), dice.index(LINES));
            let value = model[one] + dice.within(1..1000);
            let mut waits = vec![lines[one].at(model[one])];
            if one != other {
                waits.push(lines[other].at(model[other]));
            }
            queues[dice.index(4)].submit(&waits, |_| Ok(()), &[lines[one].signal_at(value)])?;
            model[one] = value;
        }
        for (line, value) in lines.iter().zip(&model) {
            line.at(*value).wait(patience())?;
        }
        for (line, value) in lines.iter().zip(&model) {
            check!(
                line.value()? == *value,
                "{} is at {} instead of {value}",
                line.object(),
                line.value()?
            );
            check!(
                !line.at(value + 1).is_reached()?,
                "{} has gone on",
                line.object()
            );
        }
        Ok(())
    })
}
