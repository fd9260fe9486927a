//! X4, X8: thousands of handles, and handles of many threads.

#![allow(
    unsafe_code,
    reason = "raw descriptors come in through unsafe constructors only"
)]

#[cfg(feature = "cuda")]
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::thread;

use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};
#[cfg(feature = "cuda")]
use syncline::{Device, handle::MemoryFd};

use super::parts::{Exported, exported, import, sides_of_one_gpu, view};
use crate::blocked::join_all;
#[cfg(feature = "cuda")]
use crate::case::{Stop, check_eq};
use crate::case::{Verdict, equipped_cases};
use crate::footprint::grows_nothing;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "handle.imports_by_the_thousands": [X4] => thousands;
    #[cfg(feature = "cuda")]
    "handle.memory_imported_by_the_thousand": [X8 X4] => memory;
    "handle.imported_from_many_threads": [X4] => many_threads;
}

/// Exports and imports handles, uses every tenth, and drops them and as many that are not imported.
fn thousands(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    // A leak shows in any number. The driver takes longer for an import the more processes import.
    let times = 200;
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let other = importer.queue(QueueKind::Compute, "importer")?;
    grows_nothing(|| {
        for nth in 0..times {
            drop(exporter.export_timeline(0)?);
            if nth % 10 != 0 {
                let (_home, handle) = exporter.export_timeline(0)?;
                drop(import(importer, handle).map_err(|rejected| rejected.error)?);
                continue;
            }
            let Exported { line, source } = exported(exporter, "line", 0)?;
            let seen = view(exporter, importer, &source, source.export()?, 0)?;
            own.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
            other.submit(&[seen.at(1)], |_| Ok(()), &[seen.signal_at(2)])?;
            line.at(2).wait(patience())?;
        }
        own.idle(patience())?;
        other.idle(patience())?;
        Ok(())
    })
}

/// Imports one buffer repeatedly, and a new one every twentieth time. Writes to some imports.
#[cfg(feature = "cuda")]
fn memory(world: &World<Equipped>) -> Verdict {
    const ROUND: u32 = 1000;
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let Device::Cuda(importer) = importer else {
        return Stop::skip("the importing side is not CUDA");
    };
    let system = |error: std::io::Error| Stop::Failed(format!("no descriptor: {error}"));
    let queue = importer.queue(QueueKind::Transfer, "importer")?;
    let (_kept, exported) = exporter.export_buffer(4096)?;
    let origin = exported.origin().clone();
    grows_nothing(|| {
        for nth in 0..ROUND {
            if nth % 20 == 0 {
                let (_buffer, handle) = exporter.export_buffer(4096)?;
                let imported = importer.import_memory(handle);
                drop(imported.map_err(|rejected| rejected.error)?);
            }
            let twin = exported.as_fd().try_clone_to_owned().map_err(system)?;
            // SAFETY: a duplicate of an export's descriptor, with the export's description.
            let handle = unsafe { MemoryFd::from_fd(twin, origin.clone(), exported.info()) };
            let buffer = importer.import_memory(handle);
            let buffer = buffer.map_err(|rejected| rejected.error)?;
            if nth % 100 == 0 {
                let to = buffer.clone();
                queue.submit(&[], move |recorder| recorder.memset_d32(&to, nth), &[])?;
                queue.idle(patience())?;
                check_eq!(buffer.read_words()?, [nth; 1024]);
            }
        }
        Ok(())
    })
}

/// Threads export, import, use and drop at the same time.
fn many_threads(world: &World<Equipped>) -> Verdict {
    const THREADS: usize = 8;
    const EACH: u64 = 20;
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let start = Barrier::new(THREADS);
    let one = || -> Verdict {
        let own = exporter.queue(QueueKind::Compute, "exporter")?;
        let other = importer.queue(QueueKind::Compute, "importer")?;
        start.wait();
        for nth in 0..EACH {
            let Exported { line, source } = exported(exporter, "line", nth)?;
            let seen = view(exporter, importer, &source, source.export()?, nth)?;
            other.submit(&[seen.at(nth + 1)], |_| Ok(()), &[seen.signal_at(nth + 2)])?;
            own.submit(&[], |_| Ok(()), &[line.signal_at(nth + 1)])?;
            line.at(nth + 2).wait(patience())?;
        }
        own.idle(patience())?;
        other.idle(patience())?;
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
        join_all(threads)
    })?;
    exporter.check()?;
    importer.check()?;
    Ok(())
}
