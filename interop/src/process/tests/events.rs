//! F8, P1: CUDA's interprocess events between endpoints, without a driver.

#![allow(unsafe_code, reason = "no driver gets these handles")]

use std::os::fd::AsFd;

use syncline_core::{
    Error, Result,
    error::Process,
    handle::{HandleKind, Origin},
    info::Uuid,
};
use syncline_cuda::EventIpcHandle;

use super::{LONG, NOW, both};
use crate::process::Endpoint;
use crate::process::hostile::offer;
use crate::process::message::{Content, Handle, Offer};
use crate::process::offers::Answer;
use crate::process::poll::Deadline;

fn origin() -> Origin {
    Origin {
        device: "cuda Some GPU".into(),
        uuid: Some(Uuid([3; 16])),
        driver_uuid: None,
    }
}

fn handle() -> EventIpcHandle {
    let mut bytes = [0; 64];
    for (number, byte) in (0_u8..).zip(&mut bytes) {
        *byte = number;
    }
    // SAFETY: no driver gets it.
    unsafe { EventIpcHandle::from_bytes(bytes, origin(), Process::this()) }
}

fn refuse(reason: &str) -> Error {
    Error::cannot_share("one", "the other", "an interprocess event", reason, None)
}

/// Sends an event from the first end and receives it at the second under `label`.
fn pass<T: Send>(
    (one, other): &(Endpoint, Endpoint),
    label: &str,
    import: impl FnMut(&EventIpcHandle) -> Result<T> + Send,
) -> (Result<()>, Result<T>) {
    std::thread::scope(|scope| {
        let receives =
            scope.spawn(|| other.receive_event_with(label, Deadline::after(LONG), import));
        let sent = one.send_event_handle(&handle(), "frames", Deadline::after(LONG));
        (sent, receives.join().unwrap())
    })
}

/// Two ends. The second trusts handles of the first.
fn trusting() -> (Endpoint, Endpoint) {
    let ends = both();
    // SAFETY: both ends are this process, and no driver imports an event.
    unsafe { ends.1.trust_handles() };
    ends
}

#[test]
fn a_handle_arrives_unchanged_with_its_process() {
    let ends = trusting();
    let (sent, received) = pass(&ends, "frames", |received| Ok(received.clone()));
    sent.unwrap();
    assert_eq!(received.unwrap(), handle());
    // The process is the one that the kernel names.
    assert_eq!(handle().process(), *ends.1.peer());
}

#[test]
fn a_failed_import_is_reported_and_both_sides_stay_usable() {
    let ends = trusting();
    let (sent, received) = pass(&ends, "frames", |_| Err::<(), _>(refuse("not that GPU")));
    assert!(
        matches!(&sent, Err(Error::Import { what, reason, .. })
            if what.contains("frames") && reason.contains("not that GPU")),
        "{sent:?}"
    );
    assert!(matches!(received, Err(Error::CannotShare { .. })));
    let (sent, received) = pass(&ends, "frames", |_| Ok(()));
    sent.unwrap();
    received.unwrap();
}

#[test]
fn an_incomplete_event_is_not_opened() {
    let (one, other) = trusting();
    let (end, _) = std::io::pipe().unwrap();
    let event = Offer {
        content: Content::CudaEvent,
        label: "frames".into(),
        event: Some(*handle().bytes()),
        origin: Some(origin()),
        ..offer(0, &[])
    };
    let without_origin = Offer {
        origin: None,
        ..event.clone()
    };
    let with_descriptor = Offer {
        handles: vec![Handle {
            party: None,
            kind: HandleKind::CounterMemfd,
        }],
        ..event.clone()
    };
    for (number, event) in (1..).zip([without_origin, with_descriptor]) {
        let event = Offer { number, ..event };
        let fds = vec![end.as_fd(); event.handles.len()];
        let sent = one.offer(&event, &fds, Deadline::after(LONG)).unwrap();
        let received = other.receive_event_with("frames", Deadline::after(LONG), |handle| {
            panic!("{handle:?} is opened");
            #[allow(unreachable_code, reason = "gives the closure its type")]
            Ok(())
        });
        assert!(
            matches!(&received, Err(Error::Message { .. })),
            "{received:?}"
        );
        let answer = sent.answer(Deadline::after(LONG)).unwrap();
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    }
    let silent = other.receive_event_with("frames", Deadline::after(NOW), |_| Ok(()));
    assert!(matches!(silent, Err(Error::PeerSilent { .. })));
    let unheard = one.send_event_handle(&handle(), "frames", Deadline::after(NOW));
    assert!(matches!(unheard, Err(Error::PeerSilent { .. })));
}

/// No driver checks the bytes either.
#[test]
fn events_are_accepted_only_from_a_trusted_process() {
    let ends = both();
    let (sent, received) = pass(&ends, "frames", |_| Ok(()));
    for refused in [sent, received] {
        assert!(
            matches!(&refused, Err(Error::Import { reason, .. }) if reason.contains("is not trusted")),
            "{refused:?}"
        );
    }
    // SAFETY: no driver imports it.
    unsafe { ends.1.trust_handles() };
    let (sent, received) = pass(&ends, "frames", |_| Ok(()));
    sent.unwrap();
    received.unwrap();
}
