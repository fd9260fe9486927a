//! What the commands of a context run on.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::code::{Answer, Code};
use crate::device::Device;
use crate::host_thread::HostThread;
use crate::settings::settings;
use crate::{lock, news};

/// The part of a context that its commands need. It lives as long as one of them.
pub(crate) struct Engine {
    /// The id of the context.
    pub(crate) context: u64,
    pub(crate) device: &'static Device,
    pub(crate) life: Life,
    pub(crate) connections: Connections,
    pub(crate) host: HostThread,
}

impl Engine {
    pub(crate) fn new(context: u64, device: &'static Device) -> Self {
        Self {
            context,
            device,
            life: Life {
                fault: &device.fault,
                ended: AtomicBool::new(false),
            },
            connections: Connections::new(),
            host: HostThread::default(),
        }
    }
}

/// Whether a context still runs work.
pub(crate) struct Life {
    /// The sticky error. 0 while there is none. All contexts of a device have it in common.
    fault: &'static AtomicU32,
    /// The context is destroyed.
    ended: AtomicBool,
}

impl Life {
    /// True if nothing of the context runs any more. Waiting commands give up then.
    pub(crate) fn is_over(&self) -> bool {
        self.fault.load(Ordering::Acquire) != 0 || self.ended.load(Ordering::Acquire)
    }

    /// The sticky error, if there is one.
    pub(crate) fn check(&self) -> Answer {
        match self.fault.load(Ordering::Acquire) {
            0 if self.ended.load(Ordering::Acquire) => Err(Code::CONTEXT_IS_DESTROYED),
            0 => Ok(()),
            fault => Err(Code::from_number(fault)),
        }
    }

    /// Makes `code` the sticky error, unless there is one.
    pub(crate) fn fail(&self, code: Code) {
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.fault.compare_exchange(0, code.number(), set, get);
        news::tell();
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        news::tell();
    }
}

/// The hardware connections of a context.
///
/// A command has one while the hardware handles it. A wait for memory or for an external semaphore keeps it until it
/// ends, so with all connections in such waits nothing else goes on.
pub(crate) struct Connections {
    count: usize,
    used: Mutex<usize>,
    free: Condvar,
}

/// A connection that a command has.
pub(crate) struct Connection<'c>(&'c Connections);

impl Connections {
    /// A command that waits for a connection looks at its context after so much time.
    const LOOK: Duration = Duration::from_millis(20);

    fn new() -> Self {
        Self {
            count: settings().map_or(1, |settings| settings.connections),
            used: Mutex::new(0),
            free: Condvar::new(),
        }
    }

    /// Waits for a free connection. `None` if the context is over.
    pub(crate) fn take(&self, life: &Life) -> Option<Connection<'_>> {
        let mut used = lock(&self.used);
        while !life.is_over() {
            if *used < self.count {
                *used += 1;
                return Some(Connection(self));
            }
            let waited = self.free.wait_timeout(used, Self::LOOK);
            used = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        *lock(&self.0.used) -= 1;
        self.0.free.notify_one();
    }
}
