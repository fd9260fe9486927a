//! Home ports: the host must be able to read them, and they are never signalled backwards.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rstest::rstest;
use syncline_core::backend::{Attachment, ByEngine, Device as _, Port, Queue as _};
use syncline_core::{Error, QueueKind, Result, Timeline, info::DeviceId};

use crate::words::Words;

/// A counter of the host, or one that only a device can read.
struct Counter {
    readable: bool,
}

impl Port for Counter {
    fn is_readable(&self) -> bool {
        self.readable
    }
    fn poll(&self) -> Result<Option<u64>> {
        Ok(self.readable.then_some(0))
    }
    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}

fn timeline(readable: &[bool]) -> Result<Timeline> {
    let port = |(index, &readable): (usize, &bool)| match index {
        0 => Attachment::new(DeviceId::new::<()>(), 0, Counter { readable }),
        _ => Attachment::imported(DeviceId::new::<()>(), Counter { readable }),
    };
    let ports = readable.iter().enumerate().map(port);
    Timeline::new("line", 0, |_| Ok(ports.collect()))
}

#[rstest]
#[case::no_port(&[])]
#[case::only_an_unreadable_port(&[false])]
#[case::an_unreadable_port_first(&[false, true])]
fn a_home_that_the_host_cannot_read_is_refused(#[case] ports: &[bool]) {
    let refused = timeline(ports);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_readable_home_with_an_unreadable_second_port_is_accepted() {
    timeline(&[true, false]).unwrap().signal(1).unwrap();
}

/// X7: a counter of its own would be signalled although the home does not show these signals.
#[test]
fn a_second_port_with_a_counter_of_its_own_is_refused() {
    let port = || Attachment::new(DeviceId::new::<()>(), 0, Counter { readable: true });
    let refused = Timeline::new("line", 0, |_| Ok([port(), port()].into_iter().collect()));
    let Err(Error::Unsupported { reason, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("one counter"), "{reason}");
}

/// The state of the two ports of a timeline that two devices share.
///
/// The second port counts the queries of what is visible.
#[derive(Clone, Default)]
struct Shared(Arc<[AtomicU64; 3]>);

/// The indices of the home's value, of the visible value, and of the number of queries of it.
const COUNTER: usize = 0;
const VISIBLE: usize = 1;
const ASKED: usize = 2;

struct Home(Shared);
struct Other(Shared);

impl Port for Home {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.0[COUNTER].load(Ordering::Relaxed)))
    }
    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.0[COUNTER].store(value, Ordering::Relaxed);
        Ok(())
    }
}

impl Port for Other {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
    fn visible(&self, reached: u64) -> Result<u64> {
        self.0.0[ASKED].fetch_add(1, Ordering::Relaxed);
        Ok(reached.min(self.0.0[VISIBLE].load(Ordering::Relaxed)))
    }
}

/// The engine asks the other device what is visible only for a query that needs the answer.
///
/// Each question may delay the work of that device.
#[test]
fn only_a_query_that_needs_it_asks_the_other_device() {
    let shared = Shared::default();
    let of = &shared.0;
    let ports = [
        Attachment::new(DeviceId::new::<()>(), 0, Home(shared.clone())),
        Attachment::imported(DeviceId::new::<()>(), Other(shared.clone())),
    ];
    let ports = ports.map(|port| port.signalled_elsewhere(true));
    let line = Timeline::new("line", 0, |_| Ok(ports.into_iter().collect())).unwrap();
    of[COUNTER].store(3, Ordering::Relaxed);
    of[VISIBLE].store(3, Ordering::Relaxed);
    assert!(!line.at(5).is_reached().unwrap());
    assert_eq!(of[ASKED].load(Ordering::Relaxed), 0);
    // A time-out asks, because its error reports the reached value.
    let waited = line.at(5).wait(Duration::ZERO);
    assert!(
        matches!(waited, Err(Error::TimedOut { reached: 3, .. })),
        "{waited:?}"
    );
    of[COUNTER].store(5, Ordering::Relaxed);
    assert!(!line.at(5).is_reached().unwrap());
    assert!(line.at(3).is_reached().unwrap());
    of[VISIBLE].store(4, Ordering::Relaxed);
    assert_eq!(line.value().unwrap(), 4);
    of[VISIBLE].store(5, Ordering::Relaxed);
    assert!(line.at(5).is_reached().unwrap());
}

/// A port that reports values as visible only after a number of queries.
struct VisibleAfter(Arc<AtomicU64>);

impl Port for VisibleAfter {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
    fn visible(&self, reached: u64) -> Result<u64> {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
        Ok(if left == 0 { reached } else { 0 })
    }
}

/// Q9: a host signal waits until the value that the counter shows is visible.
///
/// The application may know that value from another timeline.
#[test]
fn a_signal_waits_until_the_value_below_is_visible() {
    let (words, counter) = (Arc::new(Words::default()), Arc::default());
    let questions = Arc::new(AtomicU64::new(u64::MAX));
    let ports = [
        words.port(DeviceId::new::<()>(), Arc::clone(&counter)),
        Attachment::imported(DeviceId::new::<()>(), VisibleAfter(questions.clone())),
    ];
    let line = Timeline::new("line", 0, |_| Ok(ports.into_iter().collect())).unwrap();
    let mut claim = line.claim(5).unwrap();
    claim.submitted().unwrap();
    drop(claim);
    // The counter does not show 5 yet, so the signal of 6 would come before it.
    let refused = line.signal(6);
    assert!(
        matches!(refused, Err(Error::SignalOverlapsClaim { .. })),
        "{refused:?}"
    );
    counter.store(5, Ordering::SeqCst);
    assert_eq!(line.value().unwrap(), 0);
    // One query is not enough here, so the signal must repeat it.
    questions.store(2, Ordering::Relaxed);
    line.signal(6).unwrap();
    assert_eq!(line.value().unwrap(), 6);
}

/// A port that stands at 100.
fn port_at_100() -> Attachment {
    Attachment::new(DeviceId::new::<()>(), 100, Counter { readable: true })
}

/// A timeline starts at the value of its ports, so that no counter is signalled backwards.
#[rstest]
#[case::far_below(0)]
#[case::just_below(99)]
#[case::just_above(101)]
fn a_port_at_another_value_is_refused(#[case] initial: u64) {
    let refused = Timeline::new("line", initial, |_| {
        Ok([port_at_100()].into_iter().collect())
    });
    let Err(Error::Unsupported { asked, reason, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(asked, &format!("start at {initial}"));
    assert!(reason.ends_with("stands at 100"), "{reason}");
    // Also as the second port.
    let refused = Timeline::new("line", initial, |_| {
        let home = Attachment::new(DeviceId::new::<()>(), initial, Counter { readable: true });
        Ok([home, port_at_100()].into_iter().collect())
    });
    assert!(refused.is_err(), "{refused:?}");
}

/// Values up to the one that an imported counter shows have been signalled already.
#[test]
fn an_imported_home_is_not_signalled_backwards() {
    let shared = Shared::default();
    shared.0[COUNTER].store(100, Ordering::Relaxed);
    let home = Attachment::imported(DeviceId::new::<()>(), Home(shared.clone()));
    let line = Timeline::new("line", 0, |_| Ok([home].into_iter().collect())).unwrap();
    assert_eq!(line.frozen_value(), 0);
    let claimed = line.downgrade();
    assert!(claimed.at(100).unwrap().point().is_pending().unwrap());
    // The claim of a queue is refused without a call of the port.
    let queue = syncline_core::host::Device::new();
    let queue = queue.queue(QueueKind::Compute, "queue").unwrap();
    for value in [1, 100] {
        let signals = [line.signal_at(value)];
        let refused = queue.submit(&[], |_| Ok(()), &signals).unwrap_err();
        let fine = matches!(refused, Error::SignalOverlapsClaim { upto: 100, .. });
        assert!(fine, "{refused}");
    }
    let refused = line.signal(1).unwrap_err();
    assert!(
        matches!(refused, Error::SignalNotAboveReached { reached: 100, .. }),
        "{refused}"
    );
    assert_eq!(shared.0[COUNTER].load(Ordering::Relaxed), 100);
    line.signal(101).unwrap();
}

/// A counter that others signal, too. The host may act on less than it shows.
struct Judged(Shared);

impl Port for Judged {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.0[VISIBLE].load(Ordering::Relaxed)))
    }
    fn counter_value(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.0[COUNTER].load(Ordering::Relaxed)))
    }
    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.0[COUNTER].store(value, Ordering::Relaxed);
        Ok(())
    }
}

/// T2: the counter decides whether it may be signalled, and not what counts for the host (Q9).
#[test]
fn a_counter_is_read_before_a_signal() {
    let shared = Shared::default();
    let of = &shared.0;
    let home = Attachment::new(DeviceId::new::<()>(), 0, Judged(shared.clone()));
    let home = home.signalled_elsewhere(true);
    let line = Timeline::new("line", 0, |_| Ok([home].into_iter().collect())).unwrap();
    of[COUNTER].store(3, Ordering::Relaxed);
    let refused = line.signal(2).unwrap_err();
    assert!(
        matches!(refused, Error::Corrupted { found: 3, .. }),
        "{refused}"
    );
    assert_eq!(of[COUNTER].load(Ordering::Relaxed), 3);
    assert_eq!(line.frozen_value(), 0);
}

/// T1: an imported port that is not the home may show a higher value than the home.
#[test]
fn an_imported_second_port_is_not_signalled_backwards() {
    let home = Shared::default();
    let second = Shared::default();
    second.0[COUNTER].store(100, Ordering::Relaxed);
    let host = syncline_core::host::Device::new();
    let ports = || {
        [
            Attachment::new(DeviceId::new::<()>(), 0, Home(home.clone())),
            Attachment::imported(host.id(), Home(second.clone())),
        ]
    };
    let line = Timeline::new("line", 0, |_| Ok(ports().into_iter().collect())).unwrap();
    let queue = host.queue(QueueKind::Compute, "queue").unwrap();
    for value in [1, 100] {
        let refused = queue.submit(&[], |_| Ok(()), &[line.signal_at(value)]);
        assert!(
            matches!(refused, Err(Error::SignalOverlapsClaim { upto: 100, .. })),
            "{refused:?}"
        );
        line.signal(value).unwrap_err();
    }
    assert_eq!(second.0[COUNTER].load(Ordering::Relaxed), 100);
    assert!(line.at(100).is_pending().unwrap());
    // Once the home shows the same value, the timeline can be signalled.
    home.0[COUNTER].store(100, Ordering::Relaxed);
    line.signal(101).unwrap();
}

/// Makes a timeline at `initial` whose imported home stands at 3.
fn imported_at_3(initial: u64) -> Result<Timeline> {
    let shared = Shared::default();
    shared.0[COUNTER].store(3, Ordering::Relaxed);
    let home = Attachment::imported(DeviceId::new::<()>(), Home(shared));
    Timeline::new("line", initial, |_| Ok([home].into_iter().collect()))
}

/// T1: a timeline does not start at a value that its imported home has not reached.
#[rstest]
#[case::one_below(4)]
#[case::two_below(5)]
fn an_imported_home_below_the_first_value_is_refused(#[case] initial: u64) {
    let refused = imported_at_3(initial);
    let Err(Error::Unsupported { asked, reason, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(asked, &format!("start at {initial}"));
    assert!(reason.ends_with("stands at 3"), "{reason}");
}

/// An attachment that is not in a timeline can only be signalled to higher values.
///
/// It cannot be signalled at all if other processes or devices signal it.
#[test]
fn an_attachment_is_not_signalled_backwards() {
    let shared = Shared::default();
    let attach = || Attachment::new(DeviceId::new::<()>(), 5, Home(shared.clone()));
    let mut port = attach();
    port.signal(7).unwrap();
    for value in [0, 5, 7] {
        port.signal(value).unwrap_err();
        assert_eq!(port.value().unwrap(), Some(7));
    }
    let mut narrow = attach().with_max_value_difference(10);
    for value in [16, u64::MAX] {
        let refused = narrow.signal(value).unwrap_err();
        assert!(
            matches!(refused, Error::ValueOutOfRange { largest: 15, .. }),
            "{refused}"
        );
    }
    attach().signal(u64::MAX).unwrap_err();
    attach().signalled_elsewhere(true).signal(8).unwrap_err();
    let mut imported = Attachment::imported(DeviceId::new::<()>(), Home(shared.clone()));
    imported.signal(8).unwrap_err();
    assert_eq!(port.value().unwrap(), Some(7));
    Timeline::new("line", 5, |_| Ok([port].into_iter().collect())).unwrap_err();
}

/// A [`ByEngine`] for one port is refused by another port, also during the call that received it.
#[test]
fn the_right_to_signal_is_for_one_port() {
    struct Careful(AtomicU64);
    impl Port for Careful {
        fn poll(&self) -> Result<Option<u64>> {
            Ok(Some(self.0.load(Ordering::Relaxed)))
        }
        fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
            by.check(self, &syncline_core::error::Object::new("counter", ""))?;
            self.0.store(value, Ordering::Relaxed);
            Ok(())
        }
    }
    /// A port that signals another port with the [`ByEngine`] that it receives.
    struct Thief(Arc<Timeline>, DeviceId);
    impl Port for Thief {
        fn poll(&self) -> Result<Option<u64>> {
            Ok(Some(0))
        }
        fn signal(&self, _: u64, by: ByEngine<'_>) -> Result<()> {
            self.0.port::<Careful>(self.1).unwrap().signal(1, by)
        }
    }
    let device = DeviceId::new::<()>();
    let counter = Attachment::new(device, 100, Careful(AtomicU64::new(100)));
    let line = Timeline::new("line", 100, |_| Ok([counter].into_iter().collect())).unwrap();
    let line = Arc::new(line);
    let thief = Attachment::new(DeviceId::new::<()>(), 0, Thief(line.clone(), device));
    let theft = Timeline::new("theft", 0, |_| Ok([thief].into_iter().collect())).unwrap();
    let refused = theft.signal(1).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    line.signal(101).unwrap();
    let port = line.port::<Careful>(device).unwrap();
    assert_eq!(port.poll().unwrap(), Some(101));
}

/// An imported home that cannot be read does not prevent making the timeline.
///
/// An example is a page that another process has failed. The first query reports the failure.
#[test]
fn an_imported_home_that_cannot_be_read_fails_the_first_query() {
    struct Broken;
    impl Port for Broken {
        fn poll(&self) -> Result<Option<u64>> {
            Err(Error::NothingToWaitFor)
        }
        fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
            Ok(())
        }
    }
    let home = Attachment::imported(DeviceId::new::<()>(), Broken).signalled_elsewhere(true);
    let line = Timeline::new("line", 3, |_| Ok([home].into_iter().collect())).unwrap();
    assert_eq!(line.frozen_value(), 3);
    let failed = line.value().unwrap_err();
    assert!(matches!(failed, Error::Failed { .. }), "{failed}");
}
