//! The devices: one for each twin in the settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use syncline_software_payload::{Twin, UUID_BYTES};

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::context::{CONTEXTS, Context};
use crate::settings::{print, settings};
use crate::table::new_handle;
use crate::{abi, host_thread, lock};

/// The version of the driver API, unless the settings name another one.
pub(crate) const VERSION: i32 = 13_000;
/// The highest stream priority. The lowest is 0.
pub(crate) const GREATEST_PRIORITY: i32 = -5;
/// The largest number of threads of a block.
pub(crate) const MAX_THREADS: u32 = 1024;
/// Bytes of memory of a device.
pub(crate) const MEMORY: u64 = 8 << 30;

/// A device.
pub(crate) struct Device {
    pub(crate) twin: Twin,
    /// The sticky error of all contexts.
    ///
    /// After a fault the device works in no context of this process.
    pub(crate) fault: AtomicU32,
    /// The number of allocated bytes.
    pub(crate) used: AtomicU64,
    /// The handle of its primary context, which never changes.
    primary_handle: usize,
    primary: Mutex<Primary>,
}

#[derive(Default)]
struct Primary {
    context: Option<Arc<Context>>,
    retained: u64,
}

static INITIALIZED: AtomicBool = AtomicBool::new(false);

/// `cuInit`.
pub(crate) fn initialize() -> Answer {
    match settings() {
        Ok(settings) => {
            if !INITIALIZED.swap(true, Ordering::AcqRel) {
                abi::refuse_when_forked();
                if let Some(seed) = settings.seed {
                    print(format_args!("random delays from seed {seed}"));
                }
            }
            Ok(())
        }
        Err(reason) => {
            print(reason);
            Err(Code::INVALID_VALUE)
        }
    }
}

/// Returns an error before `cuInit`.
pub(crate) fn require_initialized() -> Answer {
    if INITIALIZED.load(Ordering::Acquire) {
        return Ok(());
    }
    Err(Code::NOT_INITIALIZED)
}

/// Returns all devices, once the driver is initialized. An error in a host function.
pub(crate) fn devices() -> Answer<&'static [Device]> {
    static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
        let twins = settings().map_or(&[][..], |settings| &settings.devices);
        twins.iter().copied().map(Device::new).collect()
    });
    if host_thread::is_inside() {
        return Err(Code::NOT_PERMITTED);
    }
    require_initialized()?;
    Ok(&DEVICES)
}

/// Returns the device of a `CUdevice`.
pub(crate) fn device(ordinal: i32) -> Answer<&'static Device> {
    let devices = devices()?;
    let index = usize::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
    devices.get(index).ok_or(Code::INVALID_DEVICE)
}

/// Returns the `CUdevice` of a device.
pub(crate) fn ordinal(of: &Device) -> Answer<i32> {
    let at = devices()?.iter().position(|it| std::ptr::eq(it, of));
    let at = at.and_then(|at| i32::try_from(at).ok());
    at.ok_or(Code::INVALID_DEVICE)
}

impl Device {
    pub(crate) fn new(twin: Twin) -> Self {
        Self {
            twin,
            fault: AtomicU32::new(0),
            used: AtomicU64::new(0),
            primary_handle: new_handle(),
            primary: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> String {
        // So that every report shows the bug of the driver.
        let bug = settings().ok().and_then(|settings| settings.bug);
        let bug = bug.map_or_else(String::new, |bug| format!(", planted bug: {}", bug.name()));
        format!("Software CUDA ({}{bug})", self.twin.name())
    }

    pub(crate) fn uuid(&self) -> [u8; UUID_BYTES] {
        let mut uuid = self.twin.uuid().unwrap_or_default();
        if Bug::UuidChanges.is_planted() {
            static QUESTIONS: AtomicU64 = AtomicU64::new(0);
            uuid[0] = QUESTIONS.fetch_add(1, Ordering::Relaxed) as u8;
        }
        if Bug::PosesAsFirst.is_planted() {
            uuid = Twin::Lavapipe.uuid().unwrap_or_default();
        }
        uuid
    }

    /// Returns the sticky error, if the device has faulted.
    pub(crate) fn check(&self) -> Answer {
        match self.fault.load(Ordering::Acquire) {
            0 => Ok(()),
            fault => Err(Code::from_number(fault)),
        }
    }

    /// Allocates memory of the device. [`Device::give_back`] returns it.
    pub(crate) fn take(&self, bytes: u64) -> Answer {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= MEMORY);
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .map(|_| ())
            .map_err(|_| Code::OUT_OF_MEMORY)
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Returns the handle of the primary context, and creates it if necessary.
    pub(crate) fn retain_primary(&'static self, ordinal: i32) -> Answer<usize> {
        let mut primary = lock(&self.primary);
        if primary.context.is_none() {
            self.check()?;
            let context = Context::new(self, ordinal, self.primary_handle)?;
            CONTEXTS.put(self.primary_handle, context.clone());
            primary.context = Some(context);
        }
        primary.retained += 1;
        Ok(self.primary_handle)
    }

    /// Destroys the primary context with its last reference.
    pub(crate) fn release_primary(&self) -> Answer {
        let gone = {
            let mut primary = lock(&self.primary);
            if primary.retained == 0 {
                return Err(Code::INVALID_CONTEXT);
            }
            primary.retained -= 1;
            if primary.retained > 0 && !Bug::ReleaseEndsContext.is_planted() {
                return Ok(());
            }
            self.take_primary(&mut primary)
        };
        if let Some(gone) = gone {
            gone.end();
        }
        Ok(())
    }

    /// Destroys the primary context with all its objects, even if others retain it.
    pub(crate) fn reset_primary(&self) {
        let gone = {
            let mut primary = lock(&self.primary);
            primary.retained = 0;
            self.take_primary(&mut primary)
        };
        if let Some(gone) = gone {
            gone.end();
        }
    }

    /// Makes the handle invalid, with the lock held. The next primary context has the same handle.
    fn take_primary(&self, primary: &mut Primary) -> Option<Arc<Context>> {
        let _ = CONTEXTS.remove(self.primary_handle);
        primary.context.take()
    }

    pub(crate) const fn is_primary(&self, handle: usize) -> bool {
        self.primary_handle == handle
    }
}

/// The number of attributes of CUDA 13.
const ATTRIBUTES: u32 = 147;

/// Returns the value of an attribute. Other attributes are 0: the device lacks the feature.
pub(crate) const fn attribute(attribute: u32) -> Answer<i32> {
    if attribute == 0 || attribute > ATTRIBUTES {
        return Err(Code::INVALID_VALUE);
    }
    Ok(match attribute {
        // Threads of a block, block dimensions, grid dimensions.
        1..=3 => MAX_THREADS as i32,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65_535,
        // Shared and constant memory, warp, pitch, registers.
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX,
        12 => 65_536,
        // Clock rate in kHz, texture alignment, overlap of copies, multiprocessors.
        13 => 1_980_000,
        14 => 512,
        15 | 16 => 1,
        // Mapped host memory, concurrent kernels, copy engines, unified addressing.
        19 | 31 | 40 | 41 => 1,
        // Threads of a multiprocessor.
        39 => 2048,
        // Compute capability 9.0; its minor number is 0.
        75 => 9,
        // Stream priorities.
        78 => 1,
        // Registered memory has the host's address, host memory can be registered (also for reading
        // only), timeline semaphores can be imported.
        91 | 99 | 113 | 114 => 1,
        // Virtual memory management, and its descriptors.
        102 | 103 => 1,
        // Memory operations of 64 bits and with NOR, events of other processes.
        122 | 123 | 125 => 1,
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_those_that_the_backend_asks_for() {
        for asked in [19, 41, 102, 103, 114, 122, 125] {
            assert_eq!(attribute(asked), Ok(1), "{asked}");
        }
        // No prohibited compute mode, flush of remote writes, memory pools, or CUDA in Vulkan's
        // context.
        for asked in [20, 98, 115, 138] {
            assert_eq!(attribute(asked), Ok(0), "{asked}");
        }
        assert_eq!(attribute(0), Err(Code::INVALID_VALUE));
        assert_eq!(attribute(100_000), Err(Code::INVALID_VALUE));
    }
}
