//! X2, X4, T6, T9: a page is one counter for all its handles, whatever is dropped.

use std::thread;

use syncline::backend::{Device as _, Queue as _};
use syncline::{QueueKind, handle::CounterFd};

use super::parts::{Exported, Hostile, REACHED, exported, sides, view};
use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::footprint::grows_nothing;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "counter.to_and_fro": [X2 T1 Q2] => to_and_fro;
    "counter.both_sides_wait_asleep": [T6 X2] => asleep;
    "counter.dropped_in_every_order": [X4 T9] => dropped;
    "counter.nothing_leaks": [X4] => nothing_leaks;
    "counter.many_in_one_submission": [X2 H1] => many;
    "counter.what_fails_is_not_stored": [E2] => not_stored;
}

/// Queues of both sides and the host signal in turn, from several initial values.
///
/// The waiting side submits first.
fn to_and_fro(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let other = importer.queue(QueueKind::Compute, "importer")?;
    for initial in [
        0,
        (1 << 31) - 2,
        (1 << 32) - 2,
        (1 << 63) - 2,
        u64::MAX - 200,
    ] {
        let Exported { line, source } = exported(exporter, initial)?;
        // As after a passage through a socket.
        let handle = CounterFd::from_fd(source.export()?.into_fd());
        let handle = handle.map_err(|rejected| rejected.error)?;
        let seen = view(importer, &source, handle, initial)?;
        for round in 0..30 {
            let at = initial + 3 * round;
            let waits = [seen.at(at + 1)];
            let waiting = other.submit(&waits, |_| Ok(()), &[seen.signal_at(at + 2)])?;
            check!(
                waiting.is_held(),
                "a wait went to the driver before its signal"
            );
            own.submit(&[], |_| Ok(()), &[line.signal_at(at + 1)])?;
            line.at(at + 2).wait(patience())?;
            line.signal(at + 3)?;
            seen.at(at + 3).wait(patience())?;
            let values = (line.value()?, seen.value()?);
            check!(
                values == (at + 3, at + 3),
                "{values:?} instead of {}",
                at + 3
            );
        }
    }
    own.idle(patience())?;
    other.idle(patience())?;
    Ok(())
}

/// Two threads sleep until the other side's queue has signalled.
fn asleep(world: &World<Equipped>) -> Verdict {
    const ROUNDS: u64 = 500;
    let (exporter, importer) = sides(world)?;
    let Exported { line, source } = exported(exporter, 0)?;
    let seen = view(importer, &source, source.export()?, 0)?;
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let other = importer.queue(QueueKind::Compute, "importer")?;
    thread::scope(|scope| {
        let there = blocked(scope, || -> Verdict {
            for round in 0..ROUNDS {
                seen.at(2 * round + 1).wait(patience())?;
                other.submit(&[], |_| Ok(()), &[seen.signal_at(2 * round + 2)])?;
            }
            Ok(())
        })?;
        for round in 0..ROUNDS {
            own.submit(&[], |_| Ok(()), &[line.signal_at(2 * round + 1)])?;
            line.at(2 * round + 2).wait(patience())?;
        }
        join(there)?
    })?;
    own.idle(patience())?;
    other.idle(patience())?;
    Ok(())
}

/// Exporter, timeline, import and queues are dropped in every order, with work in flight.
fn dropped(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    for order in 0..24_usize {
        let Exported { line, source } = exported(exporter, 0)?;
        let import = view(importer, &source, source.export()?, 0)?;
        let gate = importer.timeline("gate")?;
        let own = exporter.queue(QueueKind::Compute, "exporter")?;
        let other = importer.queue(QueueKind::Compute, "importer")?;
        other.submit(&[gate.at(1)], |_| Ok(()), &[import.signal_at(1)])?;
        let end = own.submit(&[line.at(1)], |_| Ok(()), &[])?.end().keep();
        let last = import.at(1).keep();
        let (mut line, mut source) = (Some(line), Some(source));
        let (mut import, mut queues) = (Some(import), Some((own, other)));
        let mut left = vec![0, 1, 2, 3];
        let mut choice = order;
        for among in (1..=4).rev() {
            match left.remove(choice % among) {
                0 => drop(line.take()),
                1 => drop(source.take()),
                2 => drop(import.take()),
                _ => drop(queues.take()),
            }
            choice /= among;
            if among == 3 {
                gate.signal(1)?;
            }
        }
        last.point().wait(patience())?;
        // If the timeline was dropped first, its waits were cancelled. The queue's position passes
        // them nevertheless.
        if let Err(error) = end.point().wait(patience()) {
            return Stop::fail(format!("in order {order}: {error}"));
        }
    }
    importer.check()?;
    Ok(())
}

/// Makes a thousand handles. Some are imported, and some imports are used.
fn nothing_leaks(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let other = importer.queue(QueueKind::Compute, "importer")?;
    grows_nothing(|| {
        let Exported { line, source } = exported(exporter, 0)?;
        for nth in 0..1000 {
            let handle = source.export()?;
            if nth % 2 == 0 {
                continue;
            }
            let seen = view(importer, &source, handle, 0)?;
            if nth % 50 == 1 {
                let at = line.value()?;
                own.submit(&[], |_| Ok(()), &[line.signal_at(at + 1)])?;
                other.submit(&[seen.at(at + 1)], |_| Ok(()), &[seen.signal_at(at + 2)])?;
                line.at(at + 2).wait(patience())?;
            }
        }
        own.idle(patience())?;
        other.idle(patience())?;
        Ok(())
    })
}

/// Uses more pages than fit into one driver call.
fn many(world: &World<Equipped>) -> Verdict {
    const PAGES: usize = 300;
    let (exporter, importer) = sides(world)?;
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let other = importer.queue(QueueKind::Compute, "importer")?;
    let mut pages = Vec::new();
    for _ in 0..PAGES {
        let Exported { line, source } = exported(exporter, 0)?;
        let seen = view(importer, &source, source.export()?, 0)?;
        pages.push((line, seen));
    }
    let value = |nth: usize| 10 + nth as u64;
    let signals: Vec<_> = (0..PAGES).map(|n| pages[n].1.signal_at(value(n))).collect();
    let waits: Vec<_> = (0..PAGES).map(|n| pages[n].0.at(value(n))).collect();
    let back: Vec<_> = (0..PAGES).map(|n| pages[n].0.signal_at(1000)).collect();
    let ends: Vec<_> = (0..PAGES).map(|n| pages[n].1.at(1000)).collect();
    let waiting = own.submit(&waits, |_| Ok(()), &back)?;
    check!(waiting.is_held(), "nothing was signalled yet");
    other.submit(&[], |_| Ok(()), &signals)?;
    other
        .submit(&ends, |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    for (line, seen) in &pages {
        let values = (line.value()?, seen.value()?);
        check!(values == (1000, 1000), "{values:?} instead of 1000");
    }
    own.idle(patience())?;
    other.idle(patience())?;
    Ok(())
}

/// A submission that is skipped because of a failure does not change the page.
fn not_stored(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    let Exported { line, source } = exported(exporter, 5)?;
    let seen = view(importer, &source, source.export()?, 5)?;
    let page = Hostile::of(&source)?;
    for (device, line) in [
        (&syncline::Device::from(exporter.clone()), &line),
        (importer, &seen),
    ] {
        let queue = device.queue(QueueKind::Compute, "queue")?;
        let gate = device.timeline("gate")?;
        queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(6)])?;
        gate.fail(syncline::Error::NothingToWaitFor);
        queue.idle(patience())?;
        let failed = line.at(6).wait(patience());
        check!(failed.is_err(), "6 is reached by what never ran");
        let stored = page.word(REACHED)?;
        check!(stored == 5, "{stored} stands in the page");
    }
    Ok(())
}
