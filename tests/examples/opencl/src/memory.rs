//! Memory, and events of the host.

use std::sync::Arc;

use cl3::types::cl_mem;
use syncline_core::Result;

use crate::cl::{Context, Event, Memory};
use crate::device::Device;

/// Words of a device. Cheap to clone, and freed with the last clone.
#[derive(Clone, Debug)]
pub struct Buffer {
    memory: Arc<Memory>,
    /// Its queue reads for the host.
    device: Device,
}

impl Buffer {
    pub(crate) fn new(device: &Device, words: usize) -> Result<Self> {
        Ok(Self {
            memory: Arc::new(Memory::new(device.transfer(), words)?),
            device: device.clone(),
        })
    }

    /// The number of its words.
    #[must_use]
    pub fn words(&self) -> usize {
        self.memory.size / 4
    }

    /// The OpenCL object, which lives as long as this buffer.
    ///
    /// # Errors
    /// None, for a buffer that lives.
    pub fn raw(&self) -> Result<cl_mem> {
        self.memory.raw()
    }

    /// Reads all of it. A word that is being written may be old or new.
    ///
    /// # Errors
    /// A driver error.
    pub fn read(&self) -> Result<Vec<u32>> {
        self.device.transfer().read(&self.memory)
    }

    pub(crate) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

/// An event that the host completes. Cheap to clone.
///
/// The drop of the last clone completes it, so that no queue stands still for ever. An event that
/// fails would also fail later commands of the queues that wait for it, so this one cannot.
#[derive(Clone, Debug)]
pub struct HostEvent(Arc<OfHost>);

#[derive(Debug)]
struct OfHost {
    event: Event,
    context: Arc<Context>,
    completed: std::sync::Once,
}

impl HostEvent {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        Ok(Self(Arc::new(OfHost {
            event: Event::of_host(context)?,
            context: context.clone(),
            completed: std::sync::Once::new(),
        })))
    }

    /// Completes it. Does nothing if it is complete.
    ///
    /// # Errors
    /// A driver error.
    pub fn complete(&self) -> Result<()> {
        self.0.complete()
    }

    pub(crate) fn event(&self) -> &Event {
        &self.0.event
    }
}

impl OfHost {
    fn complete(&self) -> Result<()> {
        let mut result = Ok(());
        let set = || result = self.event.complete(&self.context.object);
        self.completed.call_once(set);
        result
    }
}

impl Drop for OfHost {
    fn drop(&mut self) {
        if let Some(_guard) = crate::cl::releasing() {
            let _ = self.complete();
        }
    }
}
