#![allow(clippy::unwrap_used, reason = "a test's")]

use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{QueueKind, host, info::Uuid};

use super::*;
use crate::driver::emulated::{
    device, device_with, device_without_platform, finish, put, shared_events, streams_go_on,
};
use crate::driver::table::Optional;
use crate::queue::submission::Queue;

fn queue(device: &Device) -> Queue {
    device.queue(QueueKind::Compute, "q").unwrap()
}

/// The event's handle, as if another process had sent it.
fn from_elsewhere(event: &InterprocessEvent) -> EventIpcHandle {
    let this = Process::this();
    let other = Process {
        id: this.id ^ 1,
        ..this
    };
    let handle = event.handle();
    // SAFETY: a handle of the emulated driver, which does not distinguish processes.
    unsafe { EventIpcHandle::from_bytes(*handle.bytes(), handle.origin().clone(), other) }
}

fn import(device: &Device, event: &InterprocessEvent) -> Fence {
    // SAFETY: the tests keep the event as long as the fence.
    unsafe { device.import_event(&from_elsewhere(event), "theirs") }.unwrap()
}

fn reached(point: &KeptPoint) -> bool {
    point.point().is_reached().unwrap()
}

#[test]
fn a_wait_is_for_the_latest_record_and_stays_so() {
    let device = device();
    let queue = queue(&device);
    streams_go_on(true);
    let event = device.interprocess_event("ours").unwrap();
    let theirs = import(&device, &event);
    // Never recorded, so complete.
    assert!(theirs.is_complete().unwrap() && theirs.point().unwrap().is_empty());
    assert!(event.fence().is_complete().unwrap() && !event.fence().is_recorded());
    assert!(theirs.is_recorded() && !theirs.is_timed());

    let mut ends = Vec::new();
    let mut points = Vec::new();
    for _ in 0..2 {
        queue.record(event.fence()).unwrap();
        ends.push(put(&queue));
        let here = event.fence().point().unwrap();
        points.push([theirs.point().unwrap(), here]);
        assert!(!theirs.is_complete().unwrap() && !event.fence().is_complete().unwrap());
    }
    assert!(event.fence().is_recorded());
    assert!(!points.iter().flatten().any(reached));
    finish(&queue, ends[0]);
    assert!(points[0].iter().all(reached), "the first record is reached");
    assert!(!points[1].iter().any(reached), "the second is not");
    assert!(!theirs.is_complete().unwrap() && !event.fence().is_complete().unwrap());
    finish(&queue, ends[1]);
    assert!(points[1].iter().all(reached));
    assert!(theirs.is_complete().unwrap() && event.fence().is_complete().unwrap());
    theirs.wait(Duration::ZERO).unwrap();
}

#[test]
fn other_processes_do_not_see_a_held_record() {
    let device = device();
    let queue = queue(&device);
    streams_go_on(true);
    let event = device.interprocess_event("ours").unwrap();
    let theirs = import(&device, &event);
    assert!(event.position().is_empty());
    let gate = host::Device::new().timeline("gate").unwrap();
    let before = shared_events().recorded;
    queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
    queue.record(event.fence()).unwrap();
    assert_eq!(shared_events().recorded, before);
    // This process treats the held record as a record, other processes do not.
    assert!(!event.fence().is_complete().unwrap());
    assert!(theirs.is_complete().unwrap());
    let position = event.position();
    assert!(!position.point().is_pending().unwrap());
    let timed_out = position.point().wait_pending(Duration::ZERO);
    assert!(matches!(timed_out, Err(Error::TimedOut { .. })));
    let here = event.fence().point().unwrap();

    gate.signal(1).unwrap();
    position
        .point()
        .wait_pending(Duration::from_secs(10))
        .unwrap();
    assert!(!theirs.is_complete().unwrap());
    let there = theirs.point().unwrap();
    assert!(!reached(&here) && !reached(&there));
    finish(&queue, put(&queue));
    assert!(reached(&here) && reached(&there));
}

#[test]
fn work_records_the_event_in_order() {
    let device = device();
    let queue = queue(&device);
    streams_go_on(true);
    let event = device.interprocess_event("ours").unwrap();
    let theirs = import(&device, &event);
    let recorded = event.clone();
    let work = move |r: &mut Recorder<'_>| r.record_event(&recorded);
    let gate = host::Device::new().timeline("gate").unwrap();
    let sent = queue.submit(&[gate.at(1)], work, &[]).unwrap();
    assert!(sent.is_held());
    assert!(theirs.is_complete().unwrap() && !event.fence().is_recorded());
    let end = sent.end();
    gate.signal(1).unwrap();
    end.wait_pending(Duration::from_secs(10)).unwrap();
    assert!(event.fence().is_recorded() && event.position().is_empty());
    assert!(!theirs.is_complete().unwrap() && !event.fence().is_complete().unwrap());
    finish(&queue, put(&queue));
    assert!(theirs.is_complete().unwrap() && event.fence().is_complete().unwrap());
}

#[test]
fn an_event_of_another_process_or_device_is_not_recorded() {
    let device = device();
    let queue = queue(&device);
    let event = device.interprocess_event("ours").unwrap();
    let theirs = import(&device, &event);
    let before = shared_events();
    let refused = queue.record(&theirs);
    assert!(
        matches!(&refused, Err(Error::ForeignFence { fence, .. }) if fence == theirs.object()),
        "{refused:?}"
    );
    // A graph cannot record it either.
    assert!(queue.record_external(&theirs).is_err());
    let other_device = crate::driver::emulated::device();
    let other = self::queue(&other_device);
    let refused = other.record(event.fence());
    assert!(
        matches!(refused, Err(Error::WrongDevice { .. })),
        "{refused:?}"
    );
    let recorded = event.clone();
    let work = move |r: &mut Recorder<'_>| r.record_event(&recorded);
    let refused = other.submit(&[], work, &[]);
    assert!(
        matches!(&refused, Err(Error::WrongDevice { object, .. }) if object == event.object()),
        "{refused:?}"
    );
    assert_eq!(shared_events(), before);
    assert!(theirs.is_complete().unwrap() && !event.fence().is_recorded());
}

#[test]
fn invalid_imports_are_rejected_before_any_driver_call() {
    let device = device();
    let event = device.interprocess_event("ours").unwrap();
    let opened = shared_events().opened;
    // SAFETY: refused.
    let own = unsafe { device.import_event(event.handle(), "own") };
    let this = Process::this().to_string();
    assert!(
        matches!(&own, Err(Error::Unsupported { object, asked, .. })
            if object == device.object() && asked.contains(&this)),
        "{own:?}"
    );
    let mut elsewhere = from_elsewhere(&event);
    elsewhere.origin.uuid = Some(Uuid([7; 16]));
    for uuid in [Some(Uuid([7; 16])), None] {
        elsewhere.origin.uuid = uuid;
        // SAFETY: refused.
        let other = unsafe { device.import_event(&elsewhere, "another GPU's") };
        assert!(
            matches!(&other, Err(Error::CannotShare { left, what, .. })
                if *left == elsewhere.origin.to_string() && *what == WHAT),
            "{other:?}"
        );
    }
    let old = device_with(Optional::none());
    // SAFETY: refused.
    let imported = unsafe { old.import_event(&from_elsewhere(&event), "too old") };
    for refused in [imported.err(), old.interprocess_event("too old").err()] {
        let refused = refused.unwrap();
        let limits = &old.info().capabilities.limits;
        let (_, limit) = limits
            .iter()
            .find(|(what, _)| *what == EVENTS_LIMIT)
            .unwrap();
        assert!(
            matches!(&refused, Error::Unsupported { object, reason, .. }
                if object == old.object() && reason == limit),
            "{refused}"
        );
    }
    assert_eq!(shared_events().opened, opened);
    let limits = &device.info().capabilities.limits;
    assert!(limits.iter().all(|(what, _)| *what != EVENTS_LIMIT));
}

#[test]
fn a_platform_without_events_returns_an_error_and_leaks_nothing() {
    let device = device_without_platform();
    let before = shared_events();
    let refused = device.interprocess_event("ours");
    assert!(
        matches!(&refused, Err(Error::Unsupported { object, reason, .. })
            if object == device.object() && reason.contains("cuIpcGetEventHandle") && reason.contains("801")),
        "{refused:?}"
    );
    let after = shared_events();
    assert_eq!(after.made - before.made, after.destroyed - before.destroyed);
}

#[test]
fn events_are_destroyed_with_their_last_user() {
    let device = device();
    let queue = queue(&device);
    streams_go_on(true);
    let before = shared_events();
    let event = device.interprocess_event("ours").unwrap();
    let theirs = import(&device, &event);
    queue.record(event.fence()).unwrap();
    let waited = theirs.point().unwrap();
    finish(&queue, put(&queue));
    assert!(reached(&waited));
    let gone = || shared_events().destroyed - before.destroyed;
    drop(theirs);
    assert_eq!(gone(), 1);
    let (fence, twin) = (event.fence().clone(), event.clone());
    drop(event);
    assert_eq!(gone(), 1);
    drop((fence, twin));
    assert_eq!(gone(), 2);
    // Bytes that are no event's handle open nothing.
    let event = device.interprocess_event("ours").unwrap();
    let mut wrong = from_elsewhere(&event);
    wrong.bytes.0[63] = 1;
    // SAFETY: the emulated driver checks the handle.
    let refused = unsafe { device.import_event(&wrong, "wrong") };
    assert!(
        matches!(
            &refused,
            Err(Error::Native {
                call: "cuIpcOpenEventHandle",
                code: 400,
                ..
            })
        ),
        "{refused:?}"
    );
    drop(event);
    assert_eq!(shared_events().made - before.made, 3);
    assert_eq!(gone(), 3);
}
