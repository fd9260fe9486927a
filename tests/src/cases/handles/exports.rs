//! X3, X4, X5: exports, and descriptors that are duplicated and sent.

#![allow(
    unsafe_code,
    reason = "raw descriptors come in through unsafe constructors only"
)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use syncline::backend::{Device as _, Queue as _};
use syncline::{
    QueueKind, Recorder,
    handle::{Origin, TimelineFd},
};

use super::parts::{
    Exported, exported, forged_origins, import, is_open, names_both, sides, sides_of_one_gpu, view,
};
use crate::case::{Stop, Verdict, check, check_eq, equipped_cases};
use crate::cases::binaries::sides as binary_sides;
use crate::footprint::grows_nothing;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "handle.kind_survives_the_passage": [X3] => kinds_survive;
    "handle.wrong_gpu_is_refused_first": [X5 X4] => wrong_gpu;
    "handle.duplicated_and_sent_descriptors": [X4] => travelling;
}

/// Handles keep the kind of their semaphore.
///
/// A value of an imported timeline can be awaited again, and a later value passes it. Each signal
/// of an imported binary semaphore is consumed. The types of the handles keep one kind from being
/// taken for the other. Doc tests show what does not compile.
fn kinds_survive(world: &World<Equipped>) -> Verdict {
    let shown = [timelines_stay(world), binaries_stay(world)];
    let all_skipped = shown
        .iter()
        .all(|verdict| matches!(verdict, Err(Stop::Skipped(_))));
    for verdict in shown {
        match verdict {
            Err(Stop::Skipped(_)) if !all_skipped => {}
            other => other?,
        }
    }
    Ok(())
}

fn timelines_stay(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let Exported { line, source } = exported(exporter, "line", 5)?;
    let seen = view(exporter, importer, &source, source.export()?, 5)?;
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let other = importer.queue(QueueKind::Compute, "importer")?;
    own.submit(&[], |_| Ok(()), &[line.signal_at(7)])?;
    // Not reached for the importer until its driver says so. Then reached for every query.
    for _ in 0..3 {
        other
            .submit(&[seen.at(7)], |_| Ok(()), &[])?
            .end()
            .wait(patience())?;
    }
    let seen_there = seen.value()?;
    check_eq!(seen_there, 7);
    other.submit(&[seen.at(7)], |_| Ok(()), &[seen.signal_at(12)])?;
    line.at(12).wait(patience())?;
    check_eq!(line.value()?, 12);
    own.idle(patience())?;
    other.idle(patience())?;
    Ok(())
}

fn binaries_stay(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = binary_sides(world)?;
    let kind = QueueKind::Compute;
    let made = exporter.library().binary_semaphore("made")?;
    let imported = importer.library().import_binary(made.export()?, "imported");
    let imported = imported.map_err(|rejected| rejected.error)?;
    // Each side consumes the other's signals in turn. On a timeline the second signal would be
    // none.
    for _ in 0..3 {
        for (signaller, signals, waits) in
            [(exporter, &made, &imported), (importer, &imported, &made)]
        {
            let queue = signaller.queue(kind, "signaller")?;
            let signals = signals.clone();
            // SAFETY: each signal is consumed before the next is made.
            let work =
                move |recorder: &mut Recorder<'_>| unsafe { recorder.signal_semaphore(&signals) };
            queue.submit(&[], work, &[])?;
            // SAFETY: the signal has just been submitted, and no other wait consumes it.
            let fence = unsafe { waits.pending("passed") }?;
            fence.wait(patience())?;
            queue.idle(patience())?;
        }
    }
    Ok(())
}

/// Handles of another GPU or driver, or of an unknown one, are refused by their origin alone.
fn wrong_gpu(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides(world)?;
    for (of, origin) in forged_origins(exporter.info(), importer.info()) {
        let (_home, handle) = exporter.export_timeline(0)?;
        // SAFETY: the descriptor is the exported timeline. Only its origin is wrong.
        let forged = unsafe { TimelineFd::from_fd(handle.into_fd(), origin) };
        match import(importer, forged) {
            Err(rejected) => {
                names_both(of, &rejected.error, importer.info())?;
                check!(is_open(rejected.handle.into_fd().as_raw_fd()));
            }
            Ok(_) => return Stop::fail(format!("a timeline of {of} was imported")),
        }
    }
    Ok(())
}

/// A duplicated or sent descriptor is a handle of the same counter, as is the original one.
///
/// That holds for dup(2), for dup2(2), and for a descriptor sent through a socket.
fn travelling(world: &World<Equipped>) -> Verdict {
    let (exporter, importer) = sides_of_one_gpu(world)?;
    let Exported { line, source } = exported(exporter, "line", 0)?;
    let own = exporter.queue(QueueKind::Compute, "exporter")?;
    let origin = Origin::of(exporter.info());
    let mut value = 0;
    // Objects of a round may be dropped a moment later, on another thread.
    grows_nothing(|| {
        for fd in ways(source.export()?.into_fd())? {
            // SAFETY: the descriptor of an export of this device, or a duplicate of it.
            let handle = unsafe { TimelineFd::from_fd(fd, origin.clone()) };
            let seen = view(exporter, importer, &source, handle, value)?;
            value += 1;
            own.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
            seen.at(value).wait(patience())?;
            check_eq!(seen.value()?, value);
        }
        own.idle(patience())?;
        Ok(())
    })
}

/// Descriptors by dup(2), by dup2(2), through a socket, and the original one as the last.
pub(in crate::cases) fn ways(original: OwnedFd) -> Result<[OwnedFd; 4], Stop> {
    let system = |error: std::io::Error| Stop::Failed(format!("no descriptor came: {error}"));
    let high = rustix::io::fcntl_dupfd_cloexec(&original, 700);
    Ok([
        original.try_clone().map_err(system)?,
        high.map_err(|errno| system(errno.into()))?,
        sent(original.as_fd()).map_err(system)?,
        original,
    ])
}

/// Sends a descriptor to this process itself.
fn sent(fd: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let (here, there) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    if !message.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(std::io::Error::other("no room for a descriptor"));
    }
    sendmsg(
        &here,
        &[IoSlice::new(b"x")],
        &mut message,
        SendFlags::empty(),
    )?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        &there,
        &mut [IoSliceMut::new(&mut byte)],
        &mut message,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut received = message.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    received
        .next()
        .ok_or_else(|| std::io::Error::other("no descriptor came through the socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_goes_through_a_socket() {
        let file = std::fs::File::open("/proc/self/exe").map(OwnedFd::from);
        let file = file.and_then(|file| Ok((sent(file.as_fd())?, file)));
        let same = file.map(|(sent, file)| {
            let link =
                |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
            (
                sent.as_raw_fd() != file.as_raw_fd(),
                link(&sent).ok() == link(&file).ok(),
            )
        });
        assert!(matches!(same, Ok((true, true))), "{same:?}");
    }
}
