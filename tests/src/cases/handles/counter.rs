//! X2, X4, T9: an import is the exporter's counter, whenever it was made, whatever is dropped.

use std::any::Any;
use std::thread;

use syncline::backend::{Device as _, Queue as _};
use syncline::{QueueKind, Timeline};

use super::parts::{Exported, exported, sides_of_one_gpu, view};
use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, check, check_eq, equipped_cases};
use crate::cases::counters::parts::{drop_in_order, ended};
use crate::cases::several;
use crate::dice::Dice;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "handle.exported_at_every_stage": [X2] => every_stage;
    "handle.one_line_imported_twice": [X2 X4] => imported_twice;
    "handle.many_exports_one_counter": [X4 X2] => many_exports;
    "handle.dropped_in_every_order": [X4 T9] => dropped;
}

fn is_at(line: &Timeline, value: u64, when: &str) -> Verdict {
    line.at(value).wait(patience())?;
    let now = line.value()?;
    check_eq!(now, value, "{when}");
    let next = line.at(value + 1).is_reached()?;
    check!(!next, "{when}, {} is reached too", value + 1);
    Ok(())
}

/// The counter advances before the export, between export and import, and after the import.
///
/// It also advances while the other side waits for it. Then both sides change roles.
fn every_stage(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let Exported { line, source } = exported(exporter, "line", 0)?;
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let other = importer.queue(QueueKind::Compute, "importer")?;

    own.submit(&[], |_| Ok(()), &[line.signal_at(3)])?;
    line.at(3).wait(patience())?;
    let handle = source.export()?;
    let before = view(exporter, importer, &source, source.export()?, 3)?;
    is_at(&before, 3, "signalled before the export")?;
    line.signal(5)?;
    let between = view(exporter, importer, &source, handle, 3)?;
    is_at(&between, 5, "signalled between export and import")?;
    own.submit(&[], |_| Ok(()), &[line.signal_at(7)])?;
    is_at(&between, 7, "signalled after the import")?;
    is_at(&before, 7, "signalled after the import")?;

    // The signal is after work, so the importer's own driver waits. The importer is told that the
    // signal is pending.
    let gate = exporter.timeline("gate")?;
    let mut claim = between.claim_after(8, 7)?;
    let waiting = other.submit(&[between.at(8)], |_| Ok(()), &[])?;
    check!(waiting.is_held());
    thread::scope(|scope| {
        let host = blocked(scope, || before.at(8).wait(patience()))?;
        own.submit(&[gate.at(1)], |_| Ok(()), &[])?;
        own.submit(&[], |_| Ok(()), &[line.signal_at(8)])?;
        check!(!line.at(8).is_reached()?);
        gate.signal(1)?;
        own.settle(patience())?;
        claim.submitted()?;
        join(host)??;
        Ok::<_, Stop>(())
    })?;
    waiting.end().wait(patience())?;
    is_at(&between, 8, "waited for meanwhile")?;

    // The importer signals now.
    let back = own.submit(&[line.at(10)], |_| Ok(()), &[])?;
    other.submit(&[], |_| Ok(()), &[between.signal_at(10)])?;
    back.end().wait(patience())?;
    is_at(&line, 10, "signalled by the importer")?;
    is_at(&before, 10, "signalled by another importer")?;
    own.idle(patience())?;
    other.idle(patience())?;
    Ok(())
}

/// Two imports of one counter, one of which is dropped.
fn imported_twice(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let Exported { line, source } = exported(exporter, "line", 10)?;
    let view = || view(exporter, importer, &source, source.export()?, 10);
    let (one, two) = (view()?, view()?);
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let other = importer.queue(QueueKind::Compute, "importer")?;
    own.submit(&[], |_| Ok(()), &[line.signal_at(11)])?;
    is_at(&one, 11, "signalled by the exporter")?;
    is_at(&two, 11, "signalled by the exporter")?;
    other.submit(&[], |_| Ok(()), &[one.signal_at(12)])?;
    is_at(&two, 12, "signalled through the other import")?;
    is_at(&line, 12, "signalled through an import")?;
    other.idle(patience())?;
    drop(one);
    let back = other.submit(&[two.at(13)], |_| Ok(()), &[two.signal_at(14)])?;
    own.submit(&[], |_| Ok(()), &[line.signal_at(13)])?;
    back.end().wait(patience())?;
    is_at(&two, 14, "with the other import gone")?;
    is_at(&line, 14, "with one import gone")?;
    own.idle(patience())?;
    Ok(())
}

/// Many handles of one counter, imported in one order and dropped in another.
fn many_exports(world: &World<Equipped>) -> Verdict {
    const EXPORTS: u64 = 64;
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let mut dice = Dice::new(EXPORTS);
    let Exported { line, source } = exported(exporter, "line", 0)?;
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let mut handles = several(EXPORTS as usize, |_| source.export())?;
    dice.shuffle(&mut handles);
    let mut views = Vec::new();
    for handle in handles {
        views.push(view(exporter, importer, &source, handle, 0)?);
    }
    dice.shuffle(&mut views);
    for round in 1..=EXPORTS {
        own.submit(&[], |_| Ok(()), &[line.signal_at(round)])?;
        // The last one is dropped, and the others see its signal.
        let (first, last) = (&views[0], &views[views.len() - 1]);
        is_at(first, round, "with others let go")?;
        is_at(last, round, "with others let go")?;
        if views.len() > 1 {
            views.pop();
        }
    }
    own.idle(patience())?;
    Ok(())
}

/// Exporter, timeline, import and queues are dropped in every order, with work in flight.
fn dropped(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    for order in 0..24_usize {
        let Exported { line, source } = exported(exporter, "line", 0)?;
        let import = view(exporter, importer, &source, source.export()?, 0)?;
        let gate = exporter.timeline("gate")?;
        let own = exporter.queue(QueueKind::Compute, "exporter")?;
        let other = importer.queue(QueueKind::Compute, "importer")?;
        own.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
        let end = other.submit(&[import.at(1)], |_| Ok(()), &[])?.end().keep();
        let last = line.at(1).keep();
        let queues = Box::new((own, other));
        let parts: Vec<Box<dyn Any>> =
            vec![Box::new(line), Box::new(source), Box::new(import), queues];
        drop_in_order(order, parts, &gate)?;
        last.point().wait(patience())?;
        ended(order, end.point())?;
    }
    exporter.check()?;
    importer.check()?;
    Ok(())
}
