//! X4, T1, E1, E5: descriptors that are no counters, and pages with wrong content.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use syncline::{
    Error, Timeline,
    handle::{CounterFd, Rejected},
};
use syncline_core::backend::{Attachments, Device as _};

use super::parts::{
    ANNOUNCED, Exported, FAILED, Hostile, REACHED, RECORD, exported, import, sides, view,
};
use crate::case::{Stop, Verdict, check, check_eq, equipped_cases};
use crate::cases::kinds::{came_back, kinds};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "counter.every_kind_of_descriptor": [X3 X4 E5] => every_kind;
    "counter.memory_that_is_none": [X4 E5] => memory;
    "counter.head_written_over_before_the_import": [X4 E5] => head;
    "counter.value_that_goes_back": [T1 E1 E5] => goes_back;
    "counter.value_of_all_ones": [T1 E1] => all_ones;
    "counter.value_ahead_of_what_was_announced": [T1 E1 E5] => ahead;
    "counter.failed_in_the_page": [E1 E5] => failed_there;
}

/// Checks that a refusal returns the descriptor open, and says what was found.
fn refused(what: &str, fd: OwnedFd) -> Verdict {
    let number = fd.as_raw_fd();
    let error = came_back(what, number, CounterFd::from_fd(fd))?;
    let number = number.to_string();
    check!(
        matches!(&error, Error::Import { reason, what: named, .. }
            if reason.len() > 8 && named.contains(&number)),
        "{what}: {error}"
    );
    Ok(())
}

fn every_kind(world: &World<Equipped>) -> Verdict {
    sides(world)?;
    for (what, fd) in kinds()? {
        refused(what, fd)?;
    }
    Ok(())
}

/// Creates a memfd of this size that begins with `head` and has these seals.
fn memfd(bytes: u64, head: &[u8], seals: SealFlags) -> Result<OwnedFd, Stop> {
    let made = || -> rustix::io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("hostile", flags)?;
        rustix::fs::ftruncate(&fd, bytes)?;
        if bytes > 0 {
            rustix::io::pwrite(&fd, head, 0)?;
        }
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        Ok(fd)
    };
    made().map_err(|errno| Stop::Failed(format!("no memory to test with: {errno}")))
}

/// Returns the beginning of a counter's page.
fn good_head(source: &syncline_core::host::Exporter) -> Result<[u8; 12], Stop> {
    let mut head = [0; 12];
    let read = rustix::io::pread(source.export()?, &mut head, 0);
    match read {
        Ok(12) => Ok(head),
        other => Stop::fail(format!("a page cannot be read: {other:?}")),
    }
}

fn memory(world: &World<Equipped>) -> Verdict {
    let (exporter, _) = sides(world)?;
    let Exported { source, .. } = exported(exporter, 0)?;
    let head = good_head(&source)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let (mut magic, mut version) = (head, head);
    magic[0] ^= 1;
    version[8] ^= 2;
    let wrong_seals = [
        ("memory without seals", SealFlags::empty()),
        ("memory that can shrink", seals - SealFlags::SHRINK),
        ("memory that can grow", seals - SealFlags::GROW),
        ("memory that takes more seals", seals - SealFlags::SEAL),
        ("memory to be read alone", seals | SealFlags::WRITE),
    ];
    for (what, seals) in wrong_seals {
        refused(what, memfd(4096, &head, seals)?)?;
    }
    for (what, bytes, head) in [
        ("no memory", 0, head),
        ("short memory", 4095, head),
        ("long memory", 1 << 20, head),
        ("memory of zeroes", 4096, [0; 12]),
        ("memory of another make", 4096, magic),
        ("memory of another version", 4096, version),
    ] {
        refused(what, memfd(bytes, &head, seals)?)?;
    }
    // Without these faults a page is accepted.
    match CounterFd::from_fd(memfd(4096, &head, seals)?) {
        Ok(_) => Ok(()),
        Err(rejected) => Stop::fail(format!("a counter is refused: {rejected}")),
    }
}

/// A process overwrites the head after the handle is made.
fn head(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    let Exported { source, .. } = exported(exporter, 0)?;
    let handle = source.export()?;
    Hostile::of(&source)?.write(0, b"something else")?;
    match import(importer, handle, &mut Attachments::new()) {
        Ok(()) => return Stop::fail("a page without a head was imported"),
        Err(Rejected { handle, error }) => {
            check!(matches!(&error, Error::Import { .. }), "{error}");
            check!(rustix::fs::fstat(handle.into_fd()).is_ok());
        }
    }
    importer.check()?;
    Ok(())
}

/// Waits for more than 20 fail with a corruption at `found`. Reached values stay reached.
fn corrupted(lines: &[Timeline], found: u64) -> Verdict {
    for line in lines {
        let waited = line.at(21).wait(patience());
        check!(
            matches!(&waited, Err(error @ Error::Failed { .. })
                if matches!(error.root(), Error::Corrupted { found: at, .. } if *at == found)),
            "{found} in the page: {waited:?}"
        );
        check_eq!(line.frozen_value(), 20);
        line.at(20).wait(patience())?;
        check!(line.signal(22).is_err());
    }
    Ok(())
}

/// Creates two timelines over one page, both at 20, and a hostile writer of the page.
fn two(world: &World<Equipped>) -> Result<([Timeline; 2], Hostile), Stop> {
    let (exporter, importer) = sides(world)?;
    let Exported { line, source } = exported(exporter, 10)?;
    let seen = view(importer, &source, source.export()?, 10)?;
    line.signal(20)?;
    seen.at(20).wait(patience())?;
    Ok(([line, seen], Hostile::of(&source)?))
}

fn goes_back(world: &World<Equipped>) -> Verdict {
    let (lines, hostile) = two(world)?;
    hostile.write_word(REACHED, 19)?;
    corrupted(&lines, 19)
}

fn all_ones(world: &World<Equipped>) -> Verdict {
    let (lines, hostile) = two(world)?;
    hostile.write_word(ANNOUNCED, u64::MAX)?;
    hostile.write_word(REACHED, u64::MAX)?;
    corrupted(&lines, u64::MAX)
}

fn ahead(world: &World<Equipped>) -> Verdict {
    let (lines, hostile) = two(world)?;
    hostile.write_word(REACHED, 21)?;
    corrupted(&lines, 21)
}

/// A failure in the page with more text than fits.
fn failed_there(world: &World<Equipped>) -> Verdict {
    let (lines, hostile) = two(world)?;
    hostile.write(RECORD + 32, &[b'\n'; 512])?;
    hostile.write_word(RECORD + 16, 20)?;
    hostile.write_word(RECORD + 8, 77)?;
    hostile.write(RECORD, &u32::MAX.to_ne_bytes())?;
    hostile.write(FAILED, &2_u32.to_ne_bytes())?;
    for line in &lines {
        let cause = match line.at(21).wait(patience()) {
            Err(Error::Failed { cause, .. }) => cause,
            other => return Stop::fail(format!("a failed page ends a wait with {other:?}")),
        };
        let Error::FailedElsewhere {
            code: 77, cause, ..
        } = &*cause
        else {
            return Stop::fail(format!("a failed page fails the timeline with: {cause}"));
        };
        check!(
            cause.chars().count() == 512 && !cause.contains(char::is_control),
            "{cause:?}"
        );
    }
    Ok(())
}
