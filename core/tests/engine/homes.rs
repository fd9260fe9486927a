//! A timeline's home is a port that the host can read: otherwise nobody would ever see it advance.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use syncline_core::backend::{Attachment, ByEngine, Port};
use syncline_core::{DeviceId, Error, Result, Timeline};

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
    fn signal(&self, _: u64, _: ByEngine) -> Result<()> {
        Ok(())
    }
}

fn timeline(readable: &[bool]) -> Result<Timeline> {
    let port = |&readable: &bool| Attachment {
        device: DeviceId::new(),
        port: Box::new(Counter { readable }),
        watch: None,
        max_value_difference: u64::MAX,
        signalled_elsewhere: false,
    };
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

/// The home of a timeline that two devices share, and the other port, which tells how often it is asked.
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
    fn signal(&self, value: u64, _: ByEngine) -> Result<()> {
        self.0.0[COUNTER].store(value, Ordering::Relaxed);
        Ok(())
    }
}

impl Port for Other {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    fn signal(&self, _: u64, _: ByEngine) -> Result<()> {
        Ok(())
    }
    fn visible(&self, reached: u64) -> Result<u64> {
        self.0.0[ASKED].fetch_add(1, Ordering::Relaxed);
        Ok(reached.min(self.0.0[VISIBLE].load(Ordering::Relaxed)))
    }
}

/// The other device is asked what of a value is visible only by who wants that value: while its work goes on, every question may
/// hold it up.
#[test]
fn only_who_wants_a_value_has_the_other_device_asked() {
    let shared = Shared::default();
    let of = &shared.0;
    let attachment = |port| Attachment {
        device: DeviceId::new(),
        port,
        watch: None,
        max_value_difference: u64::MAX,
        signalled_elsewhere: true,
    };
    let ports: [Box<dyn Port>; 2] = [
        Box::new(Home(shared.clone())),
        Box::new(Other(shared.clone())),
    ];
    let line = Timeline::new("line", 0, |_| {
        Ok(ports.into_iter().map(attachment).collect())
    })
    .unwrap();
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
