//! Copies between devices and the host.
#![allow(unsafe_code, reason = "copies memory that devices reach")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::allocation::{Access, Allocation, MemoryKind};
use crate::array::Array;
use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::device::Device;
use crate::engine::Engine;
use crate::{lock, space};

/// The delay of a copy with [`Bug::CopyCompleteTooEarly`].
const LATE: Duration = Duration::from_millis(500);

/// Copies bytes, or a box of rows and slices of bytes.
#[derive(Clone)]
pub(crate) struct Copy {
    pub(crate) from: Side,
    pub(crate) to: Side,
    /// Bytes of a row, rows of a slice, and slices.
    extent: [u64; 3],
    from_pitches: Pitches,
    to_pitches: Pitches,
}

/// Bytes from one row to the next, and from one slice to the next.
pub(crate) type Pitches = [u64; 2];

/// One side of a copy.
#[derive(Clone)]
pub(crate) enum Side {
    /// An address that the context can reach.
    Device(u64),
    /// Memory of the host that no device reaches.
    ///
    /// The application keeps it until the copy has ended.
    Host(HostPointer),
    /// Bytes of the driver, which a call has read from the host or will write to it.
    Staged(Arc<Mutex<Vec<u8>>>),
    /// An array, from this byte, this row and this slice on.
    Array(Arc<Array>, [u64; 3]),
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

    /// True for pinned and registered memory of the host.
    fn is_pinned(&self) -> bool {
        let Self::Device(address) = self else {
            return false;
        };
        let kind = space::kind(*address);
        matches!(
            kind,
            Some((MemoryKind::Pinned { .. } | MemoryKind::Registered { .. }, _))
        )
    }

    /// True if the context can reach it, or if it is memory of the host.
    fn is_there(&self, device: &Device, extent: [u64; 3], span: u64, access: Access) -> bool {
        match self {
            Self::Device(address) => space::find(device, *address, span, access).is_some(),
            Self::Host(_) | Self::Staged(_) => true,
            Self::Array(array, at) => array.is_of(device) && array.address(*at, extent).is_some(),
        }
    }
}

/// The bytes of a side, and the object that keeps them.
enum Found<'s> {
    Device { at: *mut u8, _kept: Arc<Allocation> },
    Host(*mut u8),
    Staged(std::sync::MutexGuard<'s, Vec<u8>>),
}

impl Found<'_> {
    fn pointer(&mut self) -> *mut u8 {
        match self {
            Found::Device { at, .. } | Found::Host(at) => *at,
            Found::Staged(bytes) => bytes.as_mut_ptr(),
        }
    }
}

/// Returns the bytes between the first and the last one of rows and slices, both included.
pub(crate) fn span([bytes, rows, slices]: [u64; 3], [row, slice]: Pitches) -> Option<u64> {
    let last_row = row.checked_mul(rows.checked_sub(1)?)?;
    let last_slice = slice.checked_mul(slices.checked_sub(1)?)?;
    last_row.checked_add(last_slice)?.checked_add(bytes)
}

impl Copy {
    /// A copy of `bytes` bytes.
    pub(crate) const fn new(from: Side, to: Side, bytes: u64) -> Self {
        Self {
            from,
            to,
            extent: [bytes, 1, 1],
            from_pitches: [0; 2],
            to_pitches: [0; 2],
        }
    }

    /// True if both sides are pinned or registered memory of the host.
    ///
    /// The calling thread waits for such a copy on a GPU, too, whatever function makes it.
    pub(crate) fn is_within_host(&self) -> bool {
        self.from.is_pinned() && self.to.is_pinned()
    }

    /// A copy of so many bytes, rows and slices. Each side has its pitches beside it.
    ///
    /// An invalid value if no memory has so many bytes.
    pub(crate) fn of_rows(
        (from, from_pitches): (Side, Pitches),
        (to, to_pitches): (Side, Pitches),
        extent: [u64; 3],
    ) -> Answer<Self> {
        let copy = Self {
            from,
            to,
            extent,
            from_pitches,
            to_pitches,
        };
        let spans = [from_pitches, to_pitches, copy.tight()].map(|pitches| span(extent, pitches));
        let is_there = copy.is_empty() || spans.iter().all(Option::is_some);
        is_there.then_some(copy).ok_or(Code::INVALID_VALUE)
    }

    fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    /// The pitches of rows without gaps.
    const fn tight(&self) -> Pitches {
        let [bytes, rows, _] = self.extent;
        [bytes, bytes.saturating_mul(rows)]
    }

    /// Returns an invalid value if one side does not exist now.
    pub(crate) fn check(&self, device: &Device) -> Answer {
        let there = |side: &Side, pitches, access| {
            let span = span(self.extent, pitches);
            span.is_some_and(|span| side.is_there(device, self.extent, span, access))
        };
        let are_there = || {
            there(&self.from, self.from_pitches, Access::Read)
                && there(&self.to, self.to_pitches, Access::Write)
        };
        if self.is_empty() || are_there() {
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
            let mut staged = self.stage()?;
            let (from, to) = ((pointer.0, self.from_pitches), staged.as_mut_ptr());
            // SAFETY: the application has given so many bytes of memory of the host to be read by
            // this call, and the buffer has room for them.
            unsafe { self.transfer(from, (to, self.tight())) };
            self.from = Side::Staged(Arc::new(Mutex::new(staged)));
            self.from_pitches = self.tight();
        }
        Ok(())
    }

    /// Lets the copy write to a buffer, if its target is memory that no device reaches.
    ///
    /// Returns what then writes the buffer there. The application has room for that.
    pub(crate) fn defer_host(&mut self) -> Answer<Option<impl FnOnce() + use<>>> {
        let Side::Host(to) = self.to else {
            return Ok(None);
        };
        let staged = Arc::new(Mutex::new(self.stage()?));
        let mut rest = self.clone();
        self.to = Side::Staged(staged.clone());
        self.to_pitches = self.tight();
        rest.from_pitches = self.tight();
        Ok(Some(move || {
            let mut staged = lock(&staged);
            let from = (staged.as_mut_ptr(), rest.from_pitches);
            // SAFETY: the application has room for so many bytes there, for the time of its call,
            // and the buffer has them.
            unsafe { rest.transfer(from, (to.0, rest.to_pitches)) };
        }))
    }

    /// Returns a buffer of the driver for the bytes of the copy.
    fn stage(&self) -> Answer<Vec<u8>> {
        let bytes = if self.is_empty() {
            Some(0)
        } else {
            span(self.extent, self.tight())
        };
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.unwrap_or(usize::MAX);
        let mut staged = Vec::new();
        let reserved = staged.try_reserve_exact(bytes);
        reserved.map_err(|_| Code::OUT_OF_MEMORY)?;
        staged.resize(bytes, 0);
        Ok(staged)
    }

    /// Copies from one address to the other. Each has its pitches beside it.
    ///
    /// # Safety
    /// Both sides have the bytes of the copy.
    unsafe fn transfer(&self, from: (*mut u8, Pitches), to: (*mut u8, Pitches)) {
        let [bytes, rows, slices] = self.extent;
        let at = |(first, [row, slice]): (*mut u8, Pitches), y: u64, z: u64| {
            first.wrapping_add((y * row + z * slice) as usize)
        };
        for (z, y) in (0..slices).flat_map(|z| (0..rows).map(move |y| (z, y))) {
            // SAFETY: by this function's contract.
            unsafe { std::ptr::copy(at(from, y, z), at(to, y, z), bytes as usize) };
        }
    }

    pub(crate) fn run(&self, engine: &Engine) -> Answer {
        if self.is_empty() {
            return Ok(());
        }
        if Bug::CopyCompleteTooEarly.is_planted() && self.is_between_devices() {
            self.clone().run_late(engine.device);
            return Ok(());
        }
        let (mut from, mut to) = self.find(engine.device)?;
        let from = (from.pointer(), self.from_pitches);
        // SAFETY: both sides have so many bytes: `find` has found them, the application has
        // promised them, or they were staged. They are kept meanwhile.
        unsafe { self.transfer(from, (to.pointer(), self.to_pitches)) };
        Ok(())
    }

    fn find(&self, device: &Device) -> Answer<(Found<'_>, Found<'_>)> {
        let from = self.found(&self.from, self.from_pitches, device, Access::Read)?;
        let to = self.found(&self.to, self.to_pitches, device, Access::Write)?;
        Ok((from, to))
    }

    fn found<'s>(
        &self,
        side: &'s Side,
        pitches: Pitches,
        device: &Device,
        access: Access,
    ) -> Answer<Found<'s>> {
        let span = span(self.extent, pitches).ok_or(Code::ILLEGAL_ADDRESS)?;
        Ok(match side {
            Side::Device(address) => {
                let found = space::find(device, *address, span, access);
                let (kept, at) = found.ok_or(Code::ILLEGAL_ADDRESS)?;
                Found::Device { at, _kept: kept }
            }
            Side::Host(pointer) => Found::Host(pointer.0),
            Side::Staged(staged) => Found::Staged(lock(staged)),
            Side::Array(array, at) => {
                let address = array.address(*at, self.extent);
                let address = address.filter(|_| array.is_usable());
                Found::Host(address.ok_or(Code::ILLEGAL_ADDRESS)?)
            }
        })
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
                let from = (from.pointer(), self.from_pitches);
                // SAFETY: both sides have so many bytes, and are kept meanwhile.
                unsafe { self.transfer(from, (to.pointer(), self.to_pitches)) };
            }
        });
    }
}
