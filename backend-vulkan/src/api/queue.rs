//! [`BackendQueue`] for the Vulkan queue.

use syncline_core::backend::{BackendQueue, EngineQueue};

use crate::device::open::Device;
use crate::queue::submission::{Feed, Queue};

impl From<EngineQueue<Device, Feed>> for Queue {
    fn from(engine: EngineQueue<Device, Feed>) -> Self {
        Self::with_engine(engine)
    }
}

impl BackendQueue for Queue {
    type Device = Device;

    #[inline]
    fn engine(&self) -> &EngineQueue<Device, Feed> {
        self.inner()
    }
}
