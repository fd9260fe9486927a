//! What the suite does not show: loss, refused calls, forks. Without a device, they show nothing.
#![allow(unsafe_code, reason = "forks, and vouches for kernels")]

use std::time::Duration;

use syncline_core::backend::{Candidate as _, Device as _, EngineQueue, Queue as _};
use syncline_core::{Error, QueueKind, Result, Timeline};

use crate::cl::Event;
use crate::{Adapter, Arg, Device, Recorder};

const PATIENCE: Duration = Duration::from_secs(20);

/// The first device, or `None` after the reason was printed.
fn device() -> Option<Device> {
    match Adapter::all() {
        Ok(adapters) => Some(adapters[0].open().unwrap()),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

type QueueOf = EngineQueue<crate::Channel>;

fn nothing(_: &mut Recorder<'_>) -> Result<()> {
    Ok(())
}

#[test]
fn a_failed_command_loses_the_device() {
    let Some(device) = device() else { return };
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let (done, owed) = (
        device.timeline("done").unwrap(),
        device.timeline("owed").unwrap(),
    );
    let gate = device.host_event().unwrap();
    let copy = gate.clone();
    let blocked = move |recorder: &mut Recorder<'_>| recorder.wait(&copy);
    queue.submit(&[], nothing, &[done.signal_at(1)]).unwrap();
    queue.submit(&[], blocked, &[owed.signal_at(1)]).unwrap();
    done.at(1).wait(PATIENCE).unwrap();
    device.check().unwrap();

    // No command of PoCL fails by itself, and PoCL 3.1 crashes if a command fails by another one
    // whose event is released. So two events of the host stand for commands.
    let attachment = device.port(0).unwrap();
    let port = attachment.port::<crate::device::Port>().unwrap();
    for value in [1, 2] {
        let event = Event::of_host(device.context()).unwrap();
        port.will_signal(value, event.again(device.object()).unwrap());
        if value == 1 {
            event.complete(device.object()).unwrap();
        } else {
            event.fail();
        }
    }
    // What was reached before counts.
    assert_eq!(attachment.value().unwrap(), Some(1));
    let is_lost = |error: &Error| matches!(error.root(), Error::DeviceLost { code: -5, .. });
    assert!(attachment.value().is_err_and(|error| is_lost(&error)));
    assert!(device.check().is_err_and(|error| is_lost(&error)));
    assert!(
        owed.at(1)
            .wait(PATIENCE)
            .is_err_and(|error| is_lost(&error))
    );
    assert!(done.at(1).is_reached().unwrap());
    gate.complete().unwrap();
}

#[test]
fn the_drop_of_a_host_event_completes_it() {
    let Some(device) = device() else { return };
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let event = device.host_event().unwrap();
    let copy = event.clone();
    queue
        .submit(&[], move |recorder| recorder.wait(&copy), &[])
        .unwrap();
    assert!(queue.idle(Duration::ZERO).is_err());
    drop(event);
    queue.idle(PATIENCE).unwrap();
}

/// The error of a submission with `work` that would signal 1.
fn refused<W>(queue: &QueueOf, line: &Timeline, work: W) -> Error
where
    W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()> + Send + 'static,
{
    let submitted = queue.submit(&[], work, &[line.signal_at(1)]);
    submitted.map(drop).unwrap_err()
}

#[test]
fn refused_calls_are_typed_and_signal_nothing() {
    let Some(device) = device() else { return };
    let Some(another) = self::device() else {
        return;
    };
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let line = device.timeline("line").unwrap();
    let (large, small) = (device.buffer(8).unwrap(), device.buffer(4).unwrap());
    let foreign = another.buffer(4).unwrap();
    let source = "kernel void put(global uint *to, uint word) { *to = word; }";
    // SAFETY: it writes the first word of its buffer.
    let kernel = unsafe { device.kernel(source, c"put") }.unwrap();

    let (from, to) = (large.clone(), small.clone());
    let error = refused(&queue, &line, move |recorder| recorder.copy(&from, &to));
    let wanted = "clEnqueueCopyBuffer";
    assert!(
        matches!(error, Error::Native { call, code: -30, .. } if call == wanted),
        "{error}"
    );
    let error = refused(&queue, &line, move |recorder| recorder.fill(&foreign, 1));
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    let (put, to) = (kernel.clone(), small.clone());
    let error = refused(&queue, &line, move |r| {
        r.launch(&put, 1, &[Arg::Buffer(&to)])
    });
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let put = kernel.clone();
    let error = refused(&queue, &line, move |r| {
        r.launch(&put, 1, &[Arg::Word(1), Arg::Word(1)])
    });
    assert!(
        matches!(
            error,
            Error::Native {
                call: "clSetKernelArg",
                ..
            }
        ),
        "{error}"
    );

    // Nothing was signalled, and the queue goes on.
    assert!(!line.at(1).is_reached().unwrap());
    let (put, to) = (kernel, small.clone());
    let work = move |r: &mut Recorder<'_>| r.launch(&put, 1, &[Arg::Buffer(&to), Arg::Word(7)]);
    queue.submit(&[], work, &[line.signal_at(1)]).unwrap();
    line.at(1).wait(PATIENCE).unwrap();
    assert_eq!(small.read().unwrap(), [7, 0, 0, 0]);

    // SAFETY: it does not compile.
    let error = unsafe { device.kernel("kernel void put(", c"put") }.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Native {
                call: "clBuildProgram",
                ..
            }
        ),
        "{error}"
    );
    for words in [0, isize::MAX as usize / 2] {
        let error = device.buffer(words).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    let error = device.queue(QueueKind::Graphics, "graphics").unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn a_forked_child_drops_copies_and_opens_nothing() {
    let Some(device) = device() else { return };
    let adapters = Adapter::all().unwrap();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let line = device.timeline("line").unwrap();
    let event = device.host_event().unwrap();
    let copy = event.clone();
    let blocked = move |recorder: &mut Recorder<'_>| recorder.wait(&copy);
    queue.submit(&[], blocked, &[line.signal_at(1)]).unwrap();
    // SAFETY: the child allocates, which glibc allows, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let submitted = queue.submit(&[], nothing, &[]).map(drop);
        let opened = [adapters[0].open().map(drop), Adapter::all().map(drop)];
        drop((event, line, queue, device));
        let right = matches!(submitted, Err(Error::MadeBeforeFork { .. }))
            && opened
                .iter()
                .all(|it| matches!(it, Err(Error::Unavailable { .. })));
        // SAFETY: ends the child, without the destructors of libraries.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = -1;
    // SAFETY: it waits for the child of this test.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    // The child's copy of the event has not completed the parent's.
    assert!(!line.at(1).is_reached().unwrap());
    event.complete().unwrap();
    line.at(1).wait(PATIENCE).unwrap();
}

#[test]
fn what_it_says_of_itself_is_so() {
    let Some(device) = device() else { return };
    let info = device.info();
    assert!(!info.name.is_empty() && !info.name.contains('\0'));
    let reasons = &info.capabilities.limits;
    let has = |what: &str| reasons.iter().any(|(limit, _)| *limit == what);
    assert!(has("calibrated clock") && !info.capabilities.calibrated_clock);
    assert_eq!(has("UUID"), info.uuid.is_none());
    assert_eq!(device.trim().deferred_frees, 0);
    let (one, two) = (device.clock().unwrap(), device.clock().unwrap());
    assert!(one.is_same(&two));
}
