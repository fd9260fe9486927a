//! The events of the feature `tracing`: submissions, waits and failures.

#![cfg(feature = "tracing")]
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::fmt::{Debug, Write as _};
use std::future::{Future as _, IntoFuture as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind, host};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const LONG: Duration = Duration::from_secs(30);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

/// A subscriber that calls a closure for each event of the library.
struct Events<F>(F);

impl<F: Fn(&Event<'_>) + 'static> Subscriber for Events<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "syncline"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        (self.0)(event);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The event of a wait comes on the thread that waits, which can be a worker.
#[test]
fn a_subscriber_that_panics_does_not_end_a_worker() {
    let panics = |_: &Event<'_>| {
        let thread = std::thread::current();
        assert!(thread.name() != Some("syncline-unlucky"), "the subscriber");
    };
    tracing::subscriber::set_global_default(Events(panics)).unwrap();
    let device = host::Device::new();
    let line = device.timeline("line").unwrap();
    let producer = device.queue(QueueKind::Compute, "producer").unwrap();
    let consumer = device.queue(QueueKind::Compute, "unlucky").unwrap();
    let (go, gone) = std::sync::mpsc::channel();
    let work = move |recorder: &mut host::Recorder<'_>| {
        recorder.run(move || gone.recv().unwrap());
        Ok(())
    };
    producer.submit(&[], work, &[line.signal_at(1)]).unwrap();
    consumer
        .submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])
        .unwrap();
    // The worker waits by then. If it does not, there is no event and nothing to show.
    std::thread::sleep(Duration::from_millis(20));
    go.send(()).unwrap();
    line.at(2).wait(LONG).unwrap();
}

#[test]
fn submissions_waits_and_failures_are_events() {
    let device = host::Device::new();
    let signalled = device.timeline("events").unwrap();
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let collected = lines.clone();
    let subscriber = Events(move |event: &Event<'_>| {
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        let mut lines = collected.lock().unwrap();
        lines.push(text.0);
        // A deadlock or an error here would mean that the engine holds a lock during the event.
        signalled.signal(lines.len() as u64).unwrap();
    });
    let told = move |part: &str| lines.lock().unwrap().iter().any(|line| line.contains(part));
    tracing::subscriber::with_default(subscriber, || {
        let queue = device.queue(QueueKind::Compute, "worker").unwrap();
        let (gate, line) = (
            device.timeline("gate").unwrap(),
            device.timeline("line").unwrap(),
        );
        queue
            .submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])
            .unwrap();
        assert!(told("TRACE message=submitted queue=host queue \"worker\""));
        assert!(told("submission=1 held=true"));
        line.at(1).wait(Duration::from_millis(1)).unwrap_err();
        assert!(told("DEBUG message=wait failed"));
        gate.signal(1).unwrap();
        line.at(1).wait(LONG).unwrap();
        let (mut future, mut context) =
            (line.at(2).into_future(), Context::from_waker(Waker::noop()));
        assert!(Pin::new(&mut future).poll(&mut context).is_pending());
        let awaited = format!("TRACE message=wait ended points=[{:?}]", line.at(2));
        assert!(!told(&awaited));
        let submitted = queue
            .submit(&[gate.at(2)], |_| Ok(()), &[line.signal_at(2)])
            .unwrap();
        let end = format!("{:?}", submitted.end());
        submitted
            .wait_submitted(Duration::from_millis(1))
            .unwrap_err();
        assert!(told(&format!("DEBUG message=wait failed points=[{end}]")));
        gate.signal(2).unwrap();
        submitted.wait_submitted(LONG).unwrap();
        assert!(told(&format!("TRACE message=wait ended points=[{end}]")));
        queue.idle(LONG).unwrap();
        assert!(Pin::new(&mut future).poll(&mut context).is_ready());
        assert!(told(&awaited));
        let twice = [line.signal_at(3), line.signal_at(3)];
        queue.submit(&[], |_| Ok(()), &twice).unwrap_err();
        assert!(told("DEBUG message=submission refused"));
        line.fail(Error::work("no frame"));
        assert!(told(
            "WARN message=timeline failed timeline=timeline \"line\""
        ));
        assert!(told("cause=work failed: no frame"));
        queue.idle(LONG).unwrap();
    });
}
