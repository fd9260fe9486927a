#![allow(clippy::unwrap_used, reason = "a test's")]

use std::cell::RefCell;
use std::ptr::without_provenance_mut;
use std::rc::Rc;

use rstest::rstest;
use syncline_core::QueueKind;
use syncline_core::backend::Device as _;

use super::*;
use crate::driver::emulated::{
    device, during_graph_calls, import_timeline_to_signal, refuse_records,
};

/// An executable graph with one slot for each timeline, which signals it.
fn graph(device: &Device, lines: &[Timeline]) -> Graph {
    let slot = |line: &Timeline| SlotNode {
        raw: Raw(without_provenance_mut(1)),
        operation: Operation::Signal(line.clone()),
        object: NodeObject::Semaphore(
            line.port::<ExternalPort>(device.id())
                .unwrap()
                .object()
                .clone(),
        ),
    };
    Graph(Arc::new(Executable {
        object: Object::new("graph", "graph"),
        _owner: Owner::default(),
        device: device.clone(),
        raw: Raw(without_provenance_mut(1)),
        commands: GRAPH,
        slots: lines.iter().map(slot).collect(),
        launching: Mutex::default(),
    }))
}

fn lines(device: &Device) -> [Timeline; 2] {
    ["first", "second"].map(|label| {
        let port = import_timeline_to_signal(device, 0).unwrap();
        Timeline::new(label, 0, |_| Ok([port].into_iter().collect())).unwrap()
    })
}

fn values(graph: &Graph, value: u64) -> [SlotValue; 2] {
    let graph = graph.object().id();
    [0, 1].map(|index| Slot { graph, index }.at(value))
}

/// F7: no other thread sets a slot between the first one and the launch.
#[test]
fn a_graph_is_locked_from_its_first_slot_to_its_launch() {
    let device = device();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let lines = lines(&device);
    let graph = graph(&device, &lines);
    let is_locked = Rc::<RefCell<Vec<bool>>>::default();
    let (seen, launched) = (is_locked.clone(), graph.clone());
    during_graph_calls(move || {
        let is_free = launched.0.launching.try_lock().is_some();
        seen.borrow_mut().push(!is_free);
    });
    queue.launch(&graph, &values(&graph, 1)).unwrap();
    assert_eq!(*is_locked.borrow(), [true; 3], "two slots and the launch");
}

/// T2, Q5: the driver has the launch, so its signals are not made again.
#[rstest]
#[case::by_its_event(None, "cuEventRecord")]
#[case::by_later_work(Some("a stamp of a trace"), "a stamp of a trace")]
fn a_launch_that_fails_behind_the_graph_is_made_once(
    #[case] behind: Option<&'static str>,
    #[case] cause: &str,
) {
    let device = device();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let lines = lines(&device);
    let graph = graph(&device, &lines);
    let calls = Rc::<RefCell<u32>>::default();
    let counted = calls.clone();
    during_graph_calls(move || *counted.borrow_mut() += 1);
    let launch = || match behind {
        None => queue.launch(&graph, &values(&graph, 1)),
        Some(fails) => {
            let launch = Arc::new(Launch::new(&graph.0, graph.values(&values(&graph, 1))?));
            let launched = launch.clone();
            let work = move |recorder: &mut Recorder<'_>| {
                launched.run(recorder)?;
                Err(Error::work(std::io::Error::other(fails)))
            };
            let signals = lines.each_ref().map(|line| line.signal_at(1));
            let submissions = queue.submissions();
            submissions.submit_attached(&[], work, &signals, launch)
        }
    };
    refuse_records(behind.is_none().into());
    launch().unwrap();
    for line in &lines {
        let failed = line.at(1).is_reached().unwrap_err();
        assert!(failed.root().to_string().contains(cause), "{failed}");
    }
    let again = launch();
    assert!(matches!(again, Err(Error::Failed { .. })), "{again:?}");
    assert_eq!(*calls.borrow(), 3, "two slots and the launch");
}
