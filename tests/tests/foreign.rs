//! Devices of a backend outside this library take part in inventories and links by their own types.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

#[path = "../examples/clockwork/backend/mod.rs"]
#[allow(dead_code, reason = "the suite uses the rest")]
mod clockwork;

use std::time::Duration;

use syncline::Mechanism;
use syncline::{
    Error, Inventory, Link, ProbeOptions, QueueKind, Result, connect,
    error::Object,
    handle::TimelineFd,
    host,
    info::{BackendKind, Info},
    share,
};
use syncline_core::backend::{
    Attachment, Backend, Batch, Candidate, Device as _, EngineQueue, Enqueue, Flush, Home,
    Identity, Keep, NoStamp, Queue as _, Sharing, Waker,
};

use clockwork::Device;
use clockwork::device::Hardware;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn two_devices_of_one_machine_share_a_native_timeline() {
    let left = Device::start().unwrap();
    let right = left.open_again();
    let link: Link<Device, Device> = share(&left, &right).unwrap();
    assert_eq!(link.mechanism(), Mechanism::ExternalTimeline);
    let timeline = link.timeline_from("frames", 7).unwrap();
    let devices: Vec<_> = timeline.devices().collect();
    assert_eq!(devices, [left.id(), right.id()]);

    let data = left.buffer(4);
    let (target, source) = (data.clone(), data);
    let copied = right.buffer(4);
    let target_of_copy = copied.clone();
    let consumer = right.queue(QueueKind::Compute, "consumer").unwrap();
    let producer = left.queue(QueueKind::Compute, "producer").unwrap();
    let copy = move |r: &mut clockwork::Recorder<'_>| {
        r.copy(&source, &target_of_copy);
        Ok(())
    };
    let consumed = [timeline.signal_at(9)];
    consumer.submit(&[timeline.at(8)], copy, &consumed).unwrap();
    let fill = move |r: &mut clockwork::Recorder<'_>| {
        r.busy(Duration::from_millis(20));
        r.fill(&target, 5);
        Ok(())
    };
    producer
        .submit(&[], fill, &[timeline.signal_at(8)])
        .unwrap();
    timeline.at(9).wait(LONG).unwrap();
    assert_eq!(copied.read(), [5; 4]);
    assert!(
        left.faults().list().is_empty(),
        "{:?}",
        left.faults().list()
    );
}

#[test]
fn devices_of_two_machines_are_linked_through_the_engine_only() {
    let (left, right) = (Device::start().unwrap(), Device::start().unwrap());
    let error = share(&left, &right).unwrap_err();
    let Error::CannotShare { reason, .. } = &error else {
        panic!("{error}");
    };
    assert!(reason.contains("different GPUs"), "{reason}");
    let link = connect(&left, &right);
    assert_eq!(link.mechanism(), Mechanism::Engine);
    let timeline = link.timeline("frames").unwrap();
    assert_eq!(timeline.devices().collect::<Vec<_>>(), [left.id()]);
}

#[test]
fn a_link_to_the_host_goes_through_the_engine() {
    let (machine, host) = (Device::start().unwrap(), host::Device::new());
    let error = share(&machine, &host).unwrap_err();
    assert!(matches!(error, Error::CannotShare { .. }), "{error}");
    let link: Link<Device, host::Device> = connect(&machine, &host);
    assert_eq!(link.mechanism(), Mechanism::Engine);
    let timeline = link.timeline("frames").unwrap();
    let worker = link.right().queue(QueueKind::Compute, "worker").unwrap();
    worker
        .submit(&[], |_| Ok(()), &[timeline.signal_at(1)])
        .unwrap();
    timeline.at(1).wait(LONG).unwrap();
}

#[test]
fn a_handle_is_imported_once_and_by_its_machine_only() {
    let left = Device::start().unwrap();
    let stranger = Device::start().unwrap();
    let (_, handles) = left.export_timeline(0, 1).unwrap();
    let handle = handles.into_iter().next().unwrap();
    #[allow(unsafe_code, reason = "the counter is signalled by nothing")]
    // SAFETY: nothing signals the counter.
    let rejected = unsafe { stranger.import_timeline(handle) }.unwrap_err();
    assert!(matches!(rejected.error, Error::CannotShare { .. }));
    // The handle came back unchanged.
    #[allow(unsafe_code, reason = "the counter is signalled by nothing")]
    // SAFETY: nothing signals the counter.
    let imported = unsafe { left.open_again().import_timeline(rejected.handle) }.unwrap();
    assert_eq!(imported.value().unwrap(), Some(0));
}

/// A device whose capabilities promise native sharing, which its backend lacks.
#[derive(Clone)]
struct Promising {
    device: Device,
    /// Exports a timeline, but never a handle of it.
    sparing: bool,
}

#[allow(unsafe_code, reason = "the trait is a promise")]
// SAFETY: it exports what the inner device exports, or fewer handles.
unsafe impl Sharing for Promising {
    fn name(&self) -> &Object {
        self.device.object()
    }

    fn export_timeline(
        &self,
        initial: u64,
        _handles: usize,
    ) -> Result<(Attachment, Vec<TimelineFd>)> {
        self.device.export_timeline(initial, 0)
    }
}

/// It has no queues.
enum Never {}

impl Enqueue for Never {
    type Device = Promising;
    type Recorder<'a> = ();
    type Ready<'a> = ();
    type State = ();
    type Stamp = NoStamp;

    fn device(&self) -> &Promising {
        match *self {}
    }

    fn ready(&self) -> Option<()> {
        match *self {}
    }

    fn record<W>(&self, (): (), (): &mut (), _: &Batch<'_, Self>, _: &mut Keep, _: W) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        match *self {}
    }

    fn flush(&self, (): &mut (), _: &dyn Fn() -> Waker) -> Flush {
        match *self {}
    }
}

impl Home for Promising {
    type Enqueue = Never;

    fn port(&self, initial: u64) -> Result<Attachment> {
        Home::port(&self.device, initial)
    }
}

impl Backend for Promising {
    type Queue = EngineQueue<Never>;

    fn identity(&self) -> Identity<'_> {
        self.device.identity()
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&self, _: QueueKind, queue: &Object) -> Result<Never> {
        Err(Error::unsupported(queue, "be made", "it only shares"))
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        self.sparing.then_some(self)
    }
}

#[test]
fn a_broken_promise_to_share_is_an_error() {
    let device = Device::start().unwrap();
    for (sparing, expected) in [(false, "does not do so"), (true, "returned 0")] {
        let [left, right] =
            [device.open_again(), device.open_again()].map(|device| Promising { device, sparing });
        let link = share(&left, &right).unwrap();
        let error = link.timeline("frames").unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn an_added_device_is_listed_selected_and_opened_with_its_type() {
    let mut inventory = Inventory::probe(&ProbeOptions::default());
    let before = inventory.devices().len();
    inventory.add(Hardware::start().unwrap());
    assert_eq!(inventory.devices().len(), before + 1);

    let found = inventory.select("clockwork").unwrap();
    assert_eq!(found.index(), before);
    assert_eq!(found.info().name, "clockwork machine");
    let left: Device = found.open_as().unwrap();
    let right: Device = found.open_as().unwrap();
    assert_ne!(left.id(), right.id());
    let link = share(&left, &right).unwrap();
    assert_eq!(link.mechanism(), Mechanism::ExternalTimeline);

    for refused in [
        found.open().map(|_| ()),
        found.open_as::<host::Device>().map(|_| ()),
        inventory
            .select("host")
            .unwrap()
            .open_as::<Device>()
            .map(|_| ()),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    let host: host::Device = inventory.select("host").unwrap().open_as().unwrap();
    assert_eq!(host.info().backend, BackendKind::Host);
}

/// A machine that cannot be used.
#[derive(Debug)]
struct Broken(Info, Error);

impl Candidate for Broken {
    type Device = Device;

    fn info(&self) -> &Info {
        &self.0
    }

    fn rejected(&self) -> Option<&Error> {
        Some(&self.1)
    }

    fn open(&self) -> Result<Device> {
        panic!("a rejected device is not opened")
    }
}

#[test]
fn a_rejected_device_is_not_opened() {
    let hardware = Hardware::start().unwrap();
    let reason = Error::unsupported(
        Object::new("device", "clockwork"),
        "be used",
        "a spring is broken",
    );
    let mut inventory = Inventory::probe(&ProbeOptions::default());
    inventory.add(Broken(Candidate::info(&hardware).clone(), reason));
    let found = inventory.devices().last().unwrap();
    let errors = [
        found.open_as::<Device>().map(|_| ()).unwrap_err(),
        found.open().map(|_| ()).unwrap_err(),
        inventory.select("clockwork").map(|_| ()).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("a spring is broken"), "{error}");
    }
    // A usable device of the same backend is preferred.
    inventory.add(hardware);
    assert!(inventory.select("clockwork").unwrap().rejected().is_none());
}
