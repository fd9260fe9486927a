//! X2, X4, T6, T9: a page is one counter for all its handles, whatever is dropped.

use std::any::Any;
use std::thread;

use syncline::backend::{Device as _, Queue as _};
use syncline::{QueueKind, handle::CounterFd};

use super::parts::{Exported, Hostile, REACHED, drop_in_order, ended, exported, sides, view};
use crate::blocked::{blocked, join};
use crate::case::{Verdict, check, check_eq, equipped_cases};
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
    for before in [2, 1 << 31, 1 << 32, 1 << 63, u64::MAX - 198] {
        let initial = before - 2;
        let Exported { line, source } = exported(exporter, initial)?;
        // As after a passage through a socket.
        let handle = CounterFd::from_fd(source.export()?.into_fd());
        let handle = handle.map_err(|rejected| rejected.error)?;
        let seen = view(importer, &source, handle, initial)?;
        for round in 0..30 {
            let at = initial + 3 * round;
            let waits = [seen.at(at + 1)];
            let waiting = other.submit(&waits, |_| Ok(()), &[seen.signal_at(at + 2)])?;
            check!(waiting.is_held());
            own.submit(&[], |_| Ok(()), &[line.signal_at(at + 1)])?;
            line.at(at + 2).wait(patience())?;
            line.signal(at + 3)?;
            seen.at(at + 3).wait(patience())?;
            let values = (line.value()?, seen.value()?);
            check_eq!(values, (at + 3, at + 3));
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
        let queues = Box::new((own, other));
        let parts: Vec<Box<dyn Any>> =
            vec![Box::new(line), Box::new(source), Box::new(import), queues];
        drop_in_order(order, parts, &gate)?;
        last.point().wait(patience())?;
        ended(order, end.point())?;
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
    other.submit(&ends, |_| Ok(()), &[])?;
    other.idle(patience())?;
    for (line, seen) in &pages {
        let values = (line.value()?, seen.value()?);
        check_eq!(values, (1000, 1000));
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
        check!(line.at(6).wait(patience()).is_err());
        check_eq!(page.word(REACHED)?, 5);
    }
    Ok(())
}
