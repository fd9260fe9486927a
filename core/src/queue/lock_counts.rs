//! H1: the number of locks that an operation takes does not depend on what was done before.

use std::time::Duration;

use crate::backend::{Device as _, Queue as _};
use crate::base::sync::locks_taken;
use crate::{QueueKind, Timeline, host};

const PATIENCE: Duration = Duration::from_secs(10);

/// Checks that `operation` takes at most `most` locks each time, for values from 1.
fn takes(name: &str, most: u64, mut operation: impl FnMut(u64)) {
    for value in 1..=2_000 {
        let before = locks_taken();
        operation(value);
        let taken = locks_taken() - before;
        assert!(taken <= most, "{name} takes {taken} locks at {value}");
    }
}

#[test]
fn operations_take_a_bounded_number_of_locks() {
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let line = device.timeline("line").unwrap();
    let reached = device.timeline_from("reached", 7).unwrap();
    let fence = device.fence("fence");
    takes("a query of a reached value", 0, |_| {
        assert!(reached.at(7).is_reached().unwrap());
        assert_eq!(reached.value().unwrap(), 7);
    });
    takes("a query of an unclaimed value", 0, |_| {
        assert!(!reached.at(8).is_reached().unwrap());
    });
    takes("a signal of the host", 2, |value| {
        line.signal(value).unwrap();
    });
    let of = |label| device.timeline(label).unwrap();
    let [waited, signalled]: [Timeline; 2] = ["waited", "signalled"].map(of);
    takes("a signal and a submission", 6, |value| {
        waited.signal(value).unwrap();
        let waits = [waited.at(value)];
        let signals = [signalled.signal_at(value)];
        queue.submit(&waits, |_| Ok(()), &signals).unwrap();
    });
    takes("the record of a fence", 4, |_| {
        queue.record(&fence).unwrap();
    });
    queue.idle(PATIENCE).unwrap();
}
