//! Host ports: the engine's own state is the counter.

use crate::Result;
use crate::backend::{ByEngine, Port};

/// A port without a native object. Every signal is made through the engine, which so knows the
/// value.
#[derive(Debug)]
pub(crate) struct HostPort;

impl Port for HostPort {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn signal(&self, _value: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}
