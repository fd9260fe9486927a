//! Copies between devices and the host.
#![allow(unsafe_code, reason = "copies memory that devices reach")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::allocation::{Access, Allocation};
use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::device::Device;
use crate::engine::Engine;
use crate::{lock, space};

/// The delay of a copy with [`Bug::CopyCompleteTooEarly`].
const LATE: Duration = Duration::from_millis(500);

/// Copies `bytes` bytes.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    pub(crate) from: Side,
    pub(crate) to: Side,
    pub(crate) bytes: u64,
}

/// One side of a copy.
#[derive(Debug, Clone)]
pub(crate) enum Side {
    /// An address that the context can reach.
    Device(u64),
    /// Memory of the host that no device reaches.
    ///
    /// The application keeps it until the copy has ended.
    Host(HostPointer),
    /// Bytes of the driver, which a call has read from the host or will write to it.
    Staged(Arc<Mutex<Vec<u8>>>),
}

/// An address of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostPointer(pub(crate) *mut u8);

// SAFETY: an address; the application keeps what it points to.
unsafe impl Send for HostPointer {}
// SAFETY: as for sending.
unsafe impl Sync for HostPointer {}

impl Side {
    /// Returns the side of a host pointer: memory that devices reach, or other memory.
    pub(crate) fn of_host(device: &Device, pointer: *mut u8, bytes: u64) -> Answer<Self> {
        if pointer.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let address = pointer.addr() as u64;
        let is_reached = || space::find(device, address, bytes, Access::Read).is_some();
        Ok(if space::is_device_address(address) || is_reached() {
            Self::Device(address)
        } else {
            Self::Host(HostPointer(pointer))
        })
    }

    /// True if the context can reach it, or if it is memory of the host.
    fn is_there(&self, device: &Device, bytes: u64, access: Access) -> bool {
        match self {
            Self::Device(address) => space::find(device, *address, bytes, access).is_some(),
            Self::Host(_) | Self::Staged(_) => true,
        }
    }
}

/// Returns a buffer of the driver with `bytes` bytes.
pub(crate) fn stage(bytes: u64) -> Answer<Vec<u8>> {
    let mut staged = Vec::new();
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let reserved = staged.try_reserve_exact(bytes);
    reserved.map(|()| staged).map_err(|_| Code::OUT_OF_MEMORY)
}

/// The bytes of a side, and the object that keeps them.
enum Found<'s> {
    Device { at: *mut u8, _kept: Arc<Allocation> },
    Host(*mut u8),
    Staged(std::sync::MutexGuard<'s, Vec<u8>>),
}

impl Found<'_> {
    fn of<'s>(side: &'s Side, device: &Device, bytes: u64, access: Access) -> Answer<Found<'s>> {
        Ok(match side {
            Side::Device(address) => {
                let found = space::find(device, *address, bytes, access);
                let (kept, at) = found.ok_or(Code::ILLEGAL_ADDRESS)?;
                Found::Device { at, _kept: kept }
            }
            Side::Host(pointer) => Found::Host(pointer.0),
            Side::Staged(staged) => Found::Staged(lock(staged)),
        })
    }

    fn pointer(&mut self) -> *mut u8 {
        match self {
            Found::Device { at, .. } | Found::Host(at) => *at,
            Found::Staged(bytes) => bytes.as_mut_ptr(),
        }
    }
}

impl Copy {
    /// Returns an invalid value if one side does not exist now.
    pub(crate) fn check(&self, device: &Device) -> Answer {
        let there = |side: &Side, access| side.is_there(device, self.bytes, access);
        if self.bytes == 0 || there(&self.from, Access::Read) && there(&self.to, Access::Write) {
            Ok(())
        } else {
            Err(Code::INVALID_VALUE)
        }
    }

    /// Reads the present bytes of the host, if it is memory that no device reaches.
    ///
    /// The copy has been checked.
    pub(crate) fn read_host(&mut self) -> Answer {
        if let Side::Host(pointer) = &self.from {
            let mut staged = stage(self.bytes)?;
            // SAFETY: the application has given so many bytes of memory of the host to be read by
            // this call. They are no more than a vector has room for.
            let bytes = unsafe { std::slice::from_raw_parts(pointer.0, self.bytes as usize) };
            staged.extend_from_slice(bytes);
            self.from = Side::Staged(Arc::new(Mutex::new(staged)));
        }
        Ok(())
    }

    pub(crate) fn run(&self, engine: &Engine) -> Answer {
        if self.bytes == 0 {
            return Ok(());
        }
        if Bug::CopyCompleteTooEarly.is_planted() && self.is_between_devices() {
            self.clone().run_late(engine.device);
            return Ok(());
        }
        let (mut from, mut to) = self.find(engine.device)?;
        let (from, to) = (from.pointer(), to.pointer());
        // SAFETY: both sides have so many bytes: `find` has found them, the application has
        // promised them, or they were staged. They are kept meanwhile.
        unsafe { std::ptr::copy(from, to, self.bytes as usize) };
        Ok(())
    }

    fn find(&self, device: &Device) -> Answer<(Found<'_>, Found<'_>)> {
        let from = Found::of(&self.from, device, self.bytes, Access::Read)?;
        Ok((
            from,
            Found::of(&self.to, device, self.bytes, Access::Write)?,
        ))
    }

    /// True if the driver can keep both sides for any time.
    const fn is_between_devices(&self) -> bool {
        matches!((&self.from, &self.to), (Side::Device(_), Side::Device(_)))
    }

    /// Copies a moment later. Only [`Bug::CopyCompleteTooEarly`] does that.
    fn run_late(self, device: &'static Device) {
        std::thread::spawn(move || {
            std::thread::sleep(LATE);
            if let Ok((mut from, mut to)) = self.find(device) {
                // SAFETY: both sides have so many bytes, and are kept meanwhile.
                unsafe { std::ptr::copy(from.pointer(), to.pointer(), self.bytes as usize) };
            }
        });
    }
}
