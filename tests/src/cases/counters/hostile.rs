//! X4, T1, E1, E5: descriptors that are no counters, and pages with wrong content.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use syncline::backend::{Attachments, Device as _};
use syncline::{
    Error, Timeline,
    handle::{CounterFd, Rejected},
};

use super::parts::{
    ANNOUNCED, Exported, FAILED, Hostile, REACHED, RECORD, exported, import, sides, view,
};
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::cases::kinds::kinds;
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
    match CounterFd::from_fd(fd) {
        Ok(_) => Stop::fail(format!("{what} was taken for a counter")),
        Err(Rejected { handle, error }) => {
            check!(handle.as_raw_fd() == number, "{what} did not come back");
            check!(rustix::fs::fstat(&handle).is_ok(), "{what} was closed");
            let Error::Import {
                reason,
                what: named,
                ..
            } = &error
            else {
                return Stop::fail(format!("{what} is refused with: {error}"));
            };
            check!(
                reason.len() > 8 && named.contains(&number.to_string()),
                "{what} is refused with: {error}"
            );
            Ok(())
        }
    }
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
fn good_head(source: &syncline::host::Exporter) -> Result<[u8; 12], Stop> {
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
    for (what, bytes, head, seals) in [
        ("memory without seals", 4096, &head[..], SealFlags::empty()),
        (
            "memory that can shrink",
            4096,
            &head,
            seals - SealFlags::SHRINK,
        ),
        ("memory that can grow", 4096, &head, seals - SealFlags::GROW),
        (
            "memory that takes more seals",
            4096,
            &head,
            seals - SealFlags::SEAL,
        ),
        (
            "memory to be read alone",
            4096,
            &head,
            seals | SealFlags::WRITE,
        ),
        ("no memory", 0, &head, seals),
        ("short memory", 4095, &head, seals),
        ("long memory", 1 << 20, &head, seals),
        ("memory of zeroes", 4096, &[0; 12], seals),
        ("memory of another make", 4096, &magic, seals),
        ("memory of another version", 4096, &version, seals),
    ] {
        refused(what, memfd(bytes, head, seals)?)?;
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
            check!(
                matches!(&error, Error::Import { .. }),
                "it is refused with: {error}"
            );
            check!(
                rustix::fs::fstat(handle.into_fd()).is_ok(),
                "the handle was closed"
            );
        }
    }
    importer.check()?;
    Ok(())
}

/// Waits for more than `frozen` fail with a corruption at `found`. Reached values stay reached.
fn corrupted(line: &Timeline, frozen: u64, found: u64) -> Verdict {
    let error = match line.at(frozen + 1).wait(patience()) {
        Err(Error::Failed { cause, .. }) => cause,
        other => return Stop::fail(format!("{found} in the page ends a wait with {other:?}")),
    };
    check!(
        matches!(&*error, Error::Corrupted { found: at, .. } if *at == found),
        "{found} in the page fails the timeline with: {error}"
    );
    check!(
        line.frozen_value() == frozen,
        "it froze at {} instead of {frozen}",
        line.frozen_value()
    );
    line.at(frozen).wait(patience())?;
    check!(
        line.signal(frozen + 2).is_err(),
        "a failed timeline is signalled"
    );
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
    lines.iter().try_for_each(|line| corrupted(line, 20, 19))
}

fn all_ones(world: &World<Equipped>) -> Verdict {
    let (lines, hostile) = two(world)?;
    hostile.write_word(ANNOUNCED, u64::MAX)?;
    hostile.write_word(REACHED, u64::MAX)?;
    let ones = |line| corrupted(line, 20, u64::MAX);
    lines.iter().try_for_each(ones)
}

fn ahead(world: &World<Equipped>) -> Verdict {
    let (lines, hostile) = two(world)?;
    hostile.write_word(REACHED, 21)?;
    lines.iter().try_for_each(|line| corrupted(line, 20, 21))
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
            "its words are {cause:?}"
        );
    }
    Ok(())
}
