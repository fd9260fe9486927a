//! An opened device.

use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::{
    Result,
    error::Object,
    info::{DeviceId, Info},
};

use crate::device::context::Context;
use crate::device::event::Events;
use crate::device::inner::Inner;
use crate::driver::table::Driver;

/// A CUDA context and what the engine needs of it. Cheap to clone, and usable from any thread.
///
/// Each call restores the current context of the calling thread.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

impl Device {
    /// Opens `device` on its primary context.
    pub(crate) fn open_probed(driver: &Driver, device: sys::CUdevice, info: Info) -> Result<Self> {
        let object = Object::new("device", &format!("cuda {}", info.marked_name()));
        let context = Context::primary(driver, device, &object)?;
        Self::new(context, object, info)
    }

    /// Creates a device over an existing context.
    pub(crate) fn new(context: Context, object: Object, info: Info) -> Result<Self> {
        Inner::new(context, object, info).map(Self)
    }

    /// The state that the device's clones and its watch keep.
    #[inline]
    pub(crate) const fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.0.id()
    }

    pub(crate) fn object(&self) -> &Object {
        self.0.object()
    }

    pub(crate) fn info(&self) -> &Info {
        self.0.info()
    }

    #[inline]
    pub(crate) fn context(&self) -> &Arc<Context> {
        self.0.context()
    }

    #[inline]
    pub(crate) fn plain_events(&self) -> &Events {
        self.0.plain_events()
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.0.object(), f)
    }
}
