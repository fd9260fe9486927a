//! X2–X5, X8: what two devices share, and what is refused.

use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::{
    Device, Error, KeptPoint, Mechanism, QueueKind, SharedBuffer, connect, host, share,
};

use super::{DELAY, LONG, WORDS};
use crate::case::{Case, Stop, Verdict, check, check_error};
use crate::{Subject, World};

/// The cases of this family; they need the devices of this project.
#[must_use]
pub fn cases() -> Vec<Case<Device>> {
    let mut cases = vec![
        Case {
            id: "share.one_counter",
            rules: &["X2", "Q3"],
            run: one_counter,
        },
        Case {
            id: "share.says_how_and_why",
            rules: &["X5", "E5"],
            run: says_how,
        },
        Case {
            id: "share.memory_travels_with_the_sync",
            rules: &["X8", "Q9"],
            run: memory,
        },
        Case {
            id: "share.memory_without_the_wait_is_wrong",
            rules: &["X8"],
            run: memory_without_wait,
        },
    ];
    #[cfg(feature = "vulkan")]
    cases.extend(handles::cases());
    cases
}

fn pair_only(world: &World<Device>) -> Verdict {
    if world.is_pair() {
        Ok(())
    } else {
        Stop::skip("it takes two devices")
    }
}

/// Signals from left, right and the host in turn: one counter, which each side sees in order.
fn one_counter(world: &World<Device>) -> Verdict {
    let link = connect(&world.left, &world.right);
    for initial in [0, 5, 1 << 40] {
        let line = link.timeline_from("shared", initial)?;
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let mut last = initial;
        for _ in 0..10 {
            left.submit(&[line.at(last)], |_| Ok(()), &[line.signal_at(last + 1)])?;
            right.submit(
                &[line.at(last + 1)],
                |_| Ok(()),
                &[line.signal_at(last + 3)],
            )?;
            line.at(last + 3).wait(LONG)?;
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
                .wait(LONG)?;
            right
                .submit(&[line.at(last + 4)], |_| Ok(()), &[])?
                .end()
                .wait(LONG)?;
            last += 4;
        }
    }
    Ok(())
}

fn says_how(world: &World<Device>) -> Verdict {
    let link = connect(&world.left, &world.right);
    check!(
        !link.why().is_empty(),
        "no reason is given for {}",
        link.mechanism()
    );
    let line = link.timeline("line")?;
    match share(&world.left, &world.right) {
        Ok(native) => {
            check!(
                native.mechanism() == link.mechanism(),
                "share and connect disagree"
            );
            let devices: Vec<_> = line.devices().collect();
            for side in [&world.left, &world.right] {
                check!(
                    devices.contains(&side.id()),
                    "{} has no port",
                    side.object()
                );
            }
            let gpu = world.left.info().same_gpu(world.right.info());
            check!(
                !world.is_pair() || gpu,
                "two GPUs share {}",
                native.mechanism()
            );
        }
        Err(Error::CannotShare {
            left,
            right,
            reason,
            ..
        }) => {
            check!(
                link.mechanism() == Mechanism::Engine,
                "refused, but linked by {}",
                link.mechanism()
            );
            let names = (&world.left.info().name, &world.right.info().name);
            check!(
                left.contains(names.0) && right.contains(names.1),
                "{left} and {right} are not the sides"
            );
            check!(
                reason == link.why(),
                "two reasons: {reason:?} and {:?}",
                link.why()
            );
        }
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

/// The left side fills a shared buffer, the right side copies it to where the host reads it.
/// Returns the words, and the point at which the left side was done.
fn carry(world: &World<Device>, synchronized: bool) -> Result<(Vec<u32>, KeptPoint), Stop> {
    let link = connect(&world.left, &world.right);
    let (produced, carried) = (link.timeline("produced")?, link.timeline("carried")?);
    let shared: SharedBuffer = link.buffer(WORDS as u64 * 4)?;
    let target = world.right.buffer(WORDS)?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let relay = host::Device::new().queue(QueueKind::Transfer, "relay")?;

    let (device, source) = (world.left.clone(), shared.left().clone());
    left.submit(
        &[],
        move |recorder| {
            device.busy(recorder, DELAY)?;
            fill(recorder, &source, 0xC0FFEE)
        },
        &[produced.signal_at(1)],
    )?;
    let wait = |point| {
        if synchronized {
            point
        } else {
            syncline::Point::EMPTY
        }
    };
    let mut ready = wait(produced.at(1));
    if shared.is_relayed() {
        let buffer = shared.clone();
        let work = move |recorder: &mut host::Recorder| {
            recorder.run(move || buffer.relay());
            Ok(())
        };
        relay.submit(&[ready], work, &[carried.signal_at(1)])?;
        ready = wait(carried.at(1));
    }
    let (from, to) = (shared.right().clone(), target.clone());
    right
        .submit(&[ready], move |recorder| copy(recorder, &from, &to), &[])?
        .end()
        .wait(LONG)?;
    let words = Device::read(&target);
    let end = produced.at(1).keep();
    end.point().wait(LONG)?;
    relay.idle(LONG)?;
    Ok((words, end))
}

/// As [`Subject::fill`], also for memory of another device that the host addresses.
fn fill(
    recorder: &mut syncline::Recorder<'_>,
    memory: &syncline::Memory,
    value: u32,
) -> syncline::Result<()> {
    use std::sync::atomic::Ordering::Relaxed;
    match (recorder, memory.words().is_some()) {
        (syncline::Recorder::Host(recorder), true) => {
            let memory = memory.clone();
            recorder.run(move || {
                memory
                    .words()
                    .unwrap_or_default()
                    .iter()
                    .for_each(|word| word.store(value, Relaxed));
            });
            Ok(())
        }
        (recorder, _) => Device::fill(recorder, memory, value),
    }
}

/// As [`Subject::copy`], also for memory of another device that the host addresses.
fn copy(
    recorder: &mut syncline::Recorder<'_>,
    from: &syncline::Memory,
    to: &syncline::Memory,
) -> syncline::Result<()> {
    use std::sync::atomic::Ordering::Relaxed;
    match recorder {
        syncline::Recorder::Host(recorder) => {
            let (from, to) = (from.clone(), to.clone());
            recorder.run(move || {
                let words = from.words().unwrap_or_default().iter();
                for (from, to) in words.zip(to.words().unwrap_or_default()) {
                    to.store(from.load(Relaxed), Relaxed);
                }
            });
            Ok(())
        }
        #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
        recorder => Device::copy(recorder, from, to),
    }
}

fn memory(world: &World<Device>) -> Verdict {
    let (words, _) = carry(world, true)?;
    let right = words.iter().filter(|&&word| word == 0xC0FFEE).count();
    check!(right == WORDS, "{right} of {WORDS} words arrived");
    Ok(())
}

/// The control of the case above.
fn memory_without_wait(world: &World<Device>) -> Verdict {
    pair_only(world)?;
    let (words, produced) = carry(world, false)?;
    check!(
        words.contains(&0),
        "nothing went wrong without a wait: this pair cannot show a missing one"
    );
    check!(produced.point().is_reached()?, "the producer never ended");
    Ok(())
}

/// What needs a device that exports or imports file descriptors.
#[cfg(feature = "vulkan")]
mod handles {
    #![allow(
        unsafe_code,
        reason = "hostile handles enter only through unsafe constructors"
    )]

    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

    use rustix::fs::MemfdFlags;
    use syncline::backend::Attachment;
    use syncline::{HandleKind, Origin, Rejected, TimelineFd, Uuid, vulkan};

    use super::*;

    pub(super) fn cases() -> Vec<Case<Device>> {
        vec![
            Case {
                id: "handle.every_export_is_new",
                rules: &["X4"],
                run: exports,
            },
            Case {
                id: "handle.wrong_gpu_is_refused_first",
                rules: &["X5", "X4"],
                run: wrong_gpu,
            },
            Case {
                id: "handle.hostile_descriptors",
                rules: &["X3", "X4", "E5"],
                run: hostile,
            },
            Case {
                id: "handle.nothing_leaks",
                rules: &["X4"],
                run: nothing_leaks,
            },
        ]
    }

    /// The Vulkan device that exports, and the device that imports.
    fn sides(world: &World<Device>) -> Result<(&vulkan::Device, &Device), Stop> {
        let exporter = match (&world.left, &world.right) {
            (Device::Vulkan(device), _) | (_, Device::Vulkan(device)) => device,
            _ => return Stop::skip("neither side exports file descriptors"),
        };
        if !exporter
            .info()
            .capabilities
            .exports
            .contains(&HandleKind::TimelineOpaqueFd)
        {
            return Stop::skip(format!("{} exports no timelines", exporter.info().name));
        }
        let importer = if world.left.id() == exporter.id() {
            &world.right
        } else {
            &world.left
        };
        if !importer
            .info()
            .capabilities
            .imports
            .contains(&HandleKind::TimelineOpaqueFd)
        {
            return Stop::skip(format!("{} imports no timelines", importer.info().name));
        }
        Ok((exporter, importer))
    }

    fn import(
        device: &Device,
        handle: TimelineFd,
    ) -> Result<Attachment, Box<Rejected<TimelineFd>>> {
        match device {
            Device::Host(_) => {
                let error = Error::NothingToWaitFor;
                Err(Box::new(Rejected { handle, error }))
            }
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => device.import_timeline(handle).map_err(Box::new),
            Device::Vulkan(device) => device.import_timeline(handle),
        }
    }

    fn open_descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
    }

    fn is_open(fd: RawFd) -> bool {
        std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok()
    }

    fn exports(world: &World<Device>) -> Verdict {
        let (exporter, importer) = sides(world)?;
        let (home, source) = exporter.exportable_port(3)?;
        let (first, second) = (source.export()?, source.export()?);
        let numbers = [first.into_fd(), second.into_fd()].map(|fd| fd.as_raw_fd());
        check!(numbers[0] != numbers[1], "two exports are one descriptor");
        let port = import(importer, source.export()?).map_err(|rejected| rejected.error)?;
        let mut home = Some(home);
        let line = syncline::Timeline::new("line", 3, |_| {
            Ok(home.take().into_iter().chain(Some(port)).collect())
        })?;
        let queue = importer.queue(QueueKind::Compute, "importer")?;
        queue.submit(&[line.at(3)], |_| Ok(()), &[line.signal_at(4)])?;
        line.at(4).wait(LONG)?;
        Ok(())
    }

    fn wrong_gpu(world: &World<Device>) -> Verdict {
        let (exporter, importer) = sides(world)?;
        let (_home, handle) = exporter.export_timeline(0)?;
        let mut origin = handle.origin().clone();
        origin.uuid = Some(Uuid([0xAB; 16]));
        // SAFETY: the descriptor is the timeline that was just exported; only its origin is a lie.
        let forged = unsafe { TimelineFd::from_fd(handle.into_fd(), origin) };
        match import(importer, forged) {
            Err(rejected) => {
                check!(
                    matches!(&rejected.error, Error::CannotShare { .. }),
                    "refused, but not for the GPU: {}",
                    rejected.error
                );
                let text = rejected.error.to_string();
                check!(
                    text.contains(&importer.info().name),
                    "the importer is not named: {text}"
                );
                check!(
                    is_open(rejected.handle.into_fd().as_raw_fd()),
                    "the handle was closed"
                );
            }
            Ok(_) => return Stop::fail("a timeline of another GPU was imported"),
        }
        Ok(())
    }

    fn hostile(world: &World<Device>) -> Verdict {
        let (exporter, importer) = sides(world)?;
        let origin = Origin::of(exporter.info());
        let system =
            |error: rustix::io::Errno| Stop::Failed(format!("no descriptor to test with: {error}"));
        let (pipe, _write) = rustix::pipe::pipe().map_err(system)?;
        let file = rustix::fs::memfd_create(c"hostile", MemfdFlags::CLOEXEC).map_err(system)?;
        let (socket, _peer) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .map_err(system)?;
        for (what, fd) in [("a pipe", pipe), ("a file", file), ("a socket", socket)] {
            let number = fd.as_raw_fd();
            // SAFETY: not what it says; drivers are known to answer such descriptors with an error.
            let handle = unsafe { TimelineFd::from_fd(fd, origin.clone()) };
            match import(importer, handle) {
                Ok(_) => return Stop::fail(format!("{what} was imported as a timeline")),
                Err(rejected) => {
                    check!(is_open(number), "{what} was closed by a failed import");
                    check!(
                        rejected.handle.into_fd().as_raw_fd() == number,
                        "{what} did not come back"
                    );
                }
            }
        }
        // A number that was open and is not any more, high enough that nobody takes it meanwhile.
        let spare = rustix::fs::memfd_create(c"closed", MemfdFlags::CLOEXEC).map_err(system)?;
        let closed = rustix::io::fcntl_dupfd_cloexec(&spare, 700)
            .map_err(system)?
            .into_raw_fd();
        // SAFETY: just opened, and forgotten by its owner.
        drop(unsafe { OwnedFd::from_raw_fd(closed) });
        // SAFETY: not open: what comes back is forgotten before it could be closed again.
        let handle = unsafe { TimelineFd::from_fd(OwnedFd::from_raw_fd(closed), origin) };
        match import(importer, handle) {
            Ok(_) => return Stop::fail("a closed descriptor was imported as a timeline"),
            Err(rejected) => {
                let _forgotten = rejected.handle.into_fd().into_raw_fd();
            }
        }
        importer.check()?;
        // The device still works.
        let queue = importer.queue(QueueKind::Compute, "after")?;
        queue.submit(&[], |_| Ok(()), &[])?.end().wait(LONG)?;
        Ok(())
    }

    fn nothing_leaks(world: &World<Device>) -> Verdict {
        const ROUNDS: usize = 200;
        let (exporter, importer) = sides(world)?;
        let round = || -> Verdict {
            let (_home, handle) = exporter.export_timeline(0)?;
            drop(import(importer, handle).map_err(|rejected| rejected.error)?);
            let (_home, unused) = exporter.export_timeline(0)?;
            drop(unused);
            Ok(())
        };
        // What drivers keep once is kept by then.
        for _ in 0..10 {
            round()?;
        }
        let before = open_descriptors();
        for _ in 0..ROUNDS {
            round()?;
        }
        let after = open_descriptors();
        check!(
            after <= before + 4,
            "{} descriptors more after {ROUNDS} rounds",
            after - before
        );
        check_error!(
            exporter.timeline("probe")?.at(1).wait(Duration::ZERO),
            Error::TimedOut { .. }
        );
        Ok(())
    }
}
