//! Host ports: the engine's own state is the counter.

use crate::Result;
use crate::backend::{ByEngine, Port};

/// A port without a native object. Every signal is made through the engine, which so knows the
/// value.
#[derive(Debug)]
pub(crate) struct HostPort;

/// A port like those of the host, on `device`. For the cases that loom runs.
#[cfg(syncline_loom)]
pub fn value_port(device: crate::info::DeviceId) -> crate::backend::Attachment {
    use crate::port::attachment::Nature;
    crate::backend::Attachment::new(device, 0, HostPort).of_nature(Nature::Value)
}

impl Port for HostPort {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn signal(&self, _value: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}
