//! A timeline's home is a port that the host can read: otherwise nobody would ever see it advance.

#![allow(clippy::unwrap_used, missing_docs)]

use syncline_core::backend::{Attachment, Port};
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
    fn signal(&self, _: u64) -> Result<()> {
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
