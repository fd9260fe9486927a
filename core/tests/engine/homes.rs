//! A timeline's home is a port that the host can read: otherwise nobody would ever see it advance.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use syncline_core::backend::{Attachment, ByEngine, Device as _, Port, Queue as _};
use syncline_core::{DeviceId, Error, QueueKind, Result, Timeline};

use crate::words::Words;

/// A counter on the host, or one that only a device sees.
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
    let port = |&readable: &bool| Attachment::new(DeviceId::new(), 0, Counter { readable });
    Timeline::new("line", 0, |_| Ok(readable.iter().map(port).collect()))
}

#[test]
fn a_home_that_the_host_cannot_read_is_refused() {
    for ports in [&[][..], &[false], &[false, true]] {
        let refused = timeline(ports);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{ports:?}: {refused:?}"
        );
    }
    timeline(&[true, false]).unwrap().signal(1).unwrap();
}

/// The home of a timeline that two devices share, and the other port, which tells how often it is
/// asked.
#[derive(Clone, Default)]
struct Shared(Arc<[AtomicU64; 3]>);

/// What the home reads, what of that is visible, and how often that was asked.
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

/// The other device is asked what of a value is visible only by who wants that value: while its
/// work goes on, every question may hold it up.
#[test]
fn only_who_wants_a_value_has_the_other_device_asked() {
    let shared = Shared::default();
    let of = &shared.0;
    let ports = [
        Attachment::new(DeviceId::new(), 0, Home(shared.clone())),
        Attachment::new(DeviceId::new(), 0, Other(shared.clone())),
    ];
    let ports = ports.map(|port| port.signalled_elsewhere(true));
    let line = Timeline::new("line", 0, |_| Ok(ports.into_iter().collect())).unwrap();
    of[COUNTER].store(3, Ordering::Relaxed);
    of[VISIBLE].store(3, Ordering::Relaxed);
    assert!(!line.at(5).is_reached().unwrap());
    assert_eq!(of[ASKED].load(Ordering::Relaxed), 0);
    // Who tells how far it is does ask.
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

/// A port behind which nothing is visible until it was asked so many times.
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

/// Q9. The application may know from another timeline a value that does not count here yet. Its
/// next signal waits until that value counts.
#[test]
fn a_signal_waits_until_what_the_counter_shows_is_visible() {
    let (words, counter) = (Arc::new(Words::default()), Arc::default());
    let questions = Arc::new(AtomicU64::new(u64::MAX));
    let ports = [
        words.port(DeviceId::new(), Arc::clone(&counter)),
        Attachment::new(DeviceId::new(), 0, VisibleAfter(questions.clone())),
    ];
    let line = Timeline::new("line", 0, |_| Ok(ports.into_iter().collect())).unwrap();
    let mut claim = line.claim(5, 0).unwrap();
    claim.submitted().unwrap();
    drop(claim);
    // Neither reached nor shown: the signal would come in between.
    let refused = line.signal(6);
    assert!(
        matches!(refused, Err(Error::SignalOverlapsClaim { .. })),
        "{refused:?}"
    );
    counter.store(5, Ordering::SeqCst);
    assert_eq!(line.value().unwrap(), 0);
    // A call that asks once is refused; to wait is to ask again.
    questions.store(2, Ordering::Relaxed);
    line.signal(6).unwrap();
    assert_eq!(line.value().unwrap(), 6);
}

/// A counter that has its own value signalled backwards is no counter any more, whatever driver is
/// behind it.
#[test]
fn a_port_that_stands_at_another_value_is_refused() {
    let port = || Attachment::new(DeviceId::new(), 100, Counter { readable: true });
    for initial in [0, 99, 101] {
        let refused = Timeline::new("line", initial, |_| Ok([port()].into_iter().collect()));
        let Err(Error::Unsupported { asked, reason, .. }) = &refused else {
            panic!("at {initial}: {refused:?}");
        };
        assert_eq!(asked, &format!("start at {initial}"));
        assert!(reason.ends_with("stands at 100"), "{reason}");
        // The second port, too.
        let refused = Timeline::new("line", initial, |_| {
            let home = Attachment::new(DeviceId::new(), initial, Counter { readable: true });
            Ok([home, port()].into_iter().collect())
        });
        assert!(refused.is_err(), "{refused:?}");
    }
    let line = Timeline::new("line", 100, |_| Ok([port()].into_iter().collect())).unwrap();
    line.signal(1).unwrap_err();
    line.signal(101).unwrap();
}

/// What an imported counter shows has been signalled, by whichever side.
#[test]
fn an_imported_home_is_not_signalled_backwards() {
    let shared = Shared::default();
    shared.0[COUNTER].store(100, Ordering::Relaxed);
    let home = Attachment::imported(DeviceId::new(), Home(shared.clone()));
    let line = Timeline::new("line", 0, |_| Ok([home].into_iter().collect())).unwrap();
    assert_eq!(line.frozen_value(), 0);
    let claimed = line.downgrade();
    assert!(claimed.at(100).unwrap().point().is_pending().unwrap());
    // A queue's claim asks no driver.
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

/// T1: an imported port that is not the home may stand further than the home, too.
#[test]
fn an_imported_second_port_is_not_signalled_backwards() {
    let home = Shared::default();
    let second = Shared::default();
    second.0[COUNTER].store(100, Ordering::Relaxed);
    let host = syncline_core::host::Device::new();
    let ports = || {
        [
            Attachment::new(DeviceId::new(), 0, Home(home.clone())),
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
    // The home shows the same counter in the end, and then the timeline goes on.
    home.0[COUNTER].store(100, Ordering::Relaxed);
    line.signal(101).unwrap();
}

/// T1: a timeline begins at no value that its imported home has yet to reach.
#[test]
fn an_imported_home_below_the_first_value_is_refused() {
    let shared = Shared::default();
    shared.0[COUNTER].store(3, Ordering::Relaxed);
    let make = |initial| {
        let home = Attachment::imported(DeviceId::new(), Home(shared.clone()));
        Timeline::new("line", initial, |_| Ok([home].into_iter().collect()))
    };
    for initial in [4, 5] {
        let Err(Error::Unsupported { asked, reason, .. }) = make(initial) else {
            panic!("it begins at {initial}");
        };
        assert_eq!(asked, format!("start at {initial}"));
        assert!(reason.ends_with("stands at 3"), "{reason}");
    }
    make(3).unwrap().signal(4).unwrap();
}

/// An attachment by itself goes forwards only, and not at all where others signal.
#[test]
fn an_attachment_is_not_signalled_backwards() {
    let shared = Shared::default();
    let attach = || Attachment::new(DeviceId::new(), 5, Home(shared.clone()));
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
    let mut imported = Attachment::imported(DeviceId::new(), Home(shared.clone()));
    imported.signal(8).unwrap_err();
    assert_eq!(port.value().unwrap(), Some(7));
    Timeline::new("line", 5, |_| Ok([port].into_iter().collect())).unwrap_err();
}

/// The right to signal one port does not do for another one, not even while it lasts.
#[test]
fn the_right_to_signal_is_for_one_port() {
    struct Careful(AtomicU64);
    impl Port for Careful {
        fn poll(&self) -> Result<Option<u64>> {
            Ok(Some(self.0.load(Ordering::Relaxed)))
        }
        fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
            by.check(self, &syncline_core::Object::new("counter", ""))?;
            self.0.store(value, Ordering::Relaxed);
            Ok(())
        }
    }
    /// Passes on what it is signalled with.
    struct Thief(Arc<Timeline>, DeviceId);
    impl Port for Thief {
        fn poll(&self) -> Result<Option<u64>> {
            Ok(Some(0))
        }
        fn signal(&self, _: u64, by: ByEngine<'_>) -> Result<()> {
            self.0.port::<Careful>(self.1).unwrap().signal(1, by)
        }
    }
    let device = DeviceId::new();
    let counter = Attachment::new(device, 100, Careful(AtomicU64::new(100)));
    let line = Timeline::new("line", 100, |_| Ok([counter].into_iter().collect())).unwrap();
    let line = Arc::new(line);
    let thief = Attachment::new(DeviceId::new(), 0, Thief(line.clone(), device));
    let theft = Timeline::new("theft", 0, |_| Ok([thief].into_iter().collect())).unwrap();
    let refused = theft.signal(1).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    line.signal(101).unwrap();
    let port = line.port::<Careful>(device).unwrap();
    assert_eq!(port.poll().unwrap(), Some(101));
}

/// A page that others have failed already is a timeline that has failed, and no error of making
/// one.
#[test]
fn an_imported_home_that_cannot_be_read_is_found_by_the_first_query() {
    struct Broken;
    impl Port for Broken {
        fn poll(&self) -> Result<Option<u64>> {
            Err(Error::NothingToWaitFor)
        }
        fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
            Ok(())
        }
    }
    let home = Attachment::imported(DeviceId::new(), Broken).signalled_elsewhere(true);
    let line = Timeline::new("line", 3, |_| Ok([home].into_iter().collect())).unwrap();
    assert_eq!(line.frozen_value(), 3);
    let failed = line.value().unwrap_err();
    assert!(matches!(failed, Error::Failed { .. }), "{failed}");
}
