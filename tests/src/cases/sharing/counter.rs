//! X2, T1: one counter for both sides.

use super::super::several;
use super::Pair;
use crate::case::{Verdict, check, check_eq};
use crate::dice::seeds;
use crate::workload::Equipped;
use crate::{World, patience};

linked_cases! {
    "one_counter": [X2] or [Q3 T1] => one_counter;
    "counter_across_31_and_32_bits": [X2 T1] or [Q3 T1] => across_32_bits;
    "many_lines_at_once": [X2] or [Q3] => many_lines;
}

/// Left, right and the host signal one counter in turn, and each side sees its values in order.
fn one_counter(world: &World<Equipped>) -> Verdict {
    let pair = Pair::of(world)?;
    let [left, right] = &pair.queues;
    for initial in [0, 5, 1 << 40] {
        let line = world.left.own(pair.link.timeline_from("shared", initial)?);
        for last in (initial..initial + 40).step_by(4) {
            left.submit_empty(&[line.at(last)], &[line.signal_at(last + 1)])?;
            right.submit_empty(&[line.at(last + 1)], &[line.signal_at(last + 3)])?;
            line.at(last + 3).wait(patience())?;
            check_eq!(line.value()?, last + 3);
            line.signal(last + 4)?;
            // Each side waits for the host's signal.
            for queue in [left, right] {
                queue
                    .submit_empty(&[line.at(last + 4)], &[])?
                    .end()
                    .wait(patience())?;
            }
        }
    }
    Ok(())
}

/// Counters that start just below the limits of 31, 32, 63 and 64 bits.
///
/// Both sides and the host see the same values, in order, and none too early.
fn across_32_bits(world: &World<Equipped>) -> Verdict {
    let pair = Pair::of(world)?;
    let too = [
        world.left_queue("left too")?,
        world.right_queue("right too")?,
    ];
    for initial in [(1 << 31) - 2, (1 << 32) - 2, (1 << 63) - 2, u64::MAX - 8] {
        let line = world.left.own(pair.link.timeline_from("line", initial)?);
        let mut last = initial;
        for (nth, step) in [1, 1, 1, 2, 1, 1].into_iter().enumerate() {
            let next = last + step;
            // A wait for it now must not end early because of a comparison in 32 bits.
            let early = line.at(next);
            check!(!early.is_reached()?, "{next} at {last}");
            let waits = pair
                .queues
                .each_ref()
                .map(|queue| queue.submit_empty(&[early], &[]));
            match too.get(nth % 3) {
                Some(queue) => drop(queue.signal(&line, next)?),
                None => line.signal(next)?,
            }
            for waiting in waits {
                waiting?.end().wait(patience())?;
            }
            early.wait(patience())?;
            check_eq!(line.value()?, next);
            check!(
                next >= u64::MAX - 1 || !line.at(next + 1).is_reached()?,
                "{next}"
            );
            last = next;
        }
    }
    Ok(())
}

/// Both sides signal many counters in random order. Each submission also waits for another one.
///
/// Each counter has the value of its own signals.
fn many_lines(world: &World<Equipped>) -> Verdict {
    const LINES: usize = 64;
    let pair = Pair::of(world)?;
    let lines = several(LINES, |nth| pair.line(&format!("line {nth}")))?;
    let [left, right] = &pair.queues;
    let queues = [
        left,
        right,
        &world.left_queue("left 1")?,
        &world.right_queue("right 1")?,
    ];
    seeds(2, |dice| {
        let mut model = several(LINES, |nth| lines[nth].value())?;
        for _ in 0..4 * LINES {
            let (one, other) = (dice.index(LINES), dice.index(LINES));
            let value = model[one] + dice.within(1..1000);
            let mut waits = vec![lines[one].at(model[one])];
            if one != other {
                waits.push(lines[other].at(model[other]));
            }
            queues[dice.index(4)].submit_empty(&waits, &[lines[one].signal_at(value)])?;
            model[one] = value;
        }
        for (line, value) in lines.iter().zip(&model) {
            line.at(*value).wait(patience())?;
        }
        for (line, value) in lines.iter().zip(&model) {
            check_eq!(line.value()?, *value, "{}", line.object());
            check!(!line.at(value + 1).is_reached()?, "{}", line.object());
        }
        Ok(())
    })
}
