//! [`BackendQueue`] for queues: the engine's calls need nothing else.

use syncline_core::backend::{BackendQueue, EngineQueue};

use crate::device::open::Device;
use crate::queue::submission::{Queue, Submitter};

impl From<EngineQueue<Device, Submitter>> for Queue {
    fn from(engine: EngineQueue<Device, Submitter>) -> Self {
        Self::with_engine(engine)
    }
}

impl BackendQueue for Queue {
    type Device = Device;

    #[inline]
    fn engine(&self) -> &EngineQueue<Device, Submitter> {
        self.inner()
    }
}
