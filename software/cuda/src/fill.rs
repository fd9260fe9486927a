//! Setting memory.
#![allow(unsafe_code, reason = "writes memory that devices reach")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use crate::code::{Answer, Code};
use crate::device::Device;
use crate::engine::Engine;
use crate::space;

/// Sets `count` elements to one value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    pub(crate) to: u64,
    pub(crate) value: Value,
    pub(crate) count: u64,
}

/// The value of an element.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    Byte(u8),
    Half(u16),
    Word(u32),
}

impl Value {
    const fn size(self) -> u64 {
        match self {
            Self::Byte(_) => 1,
            Self::Half(_) => 2,
            Self::Word(_) => 4,
        }
    }
}

impl Fill {
    /// An invalid value if the memory is not there now.
    pub(crate) fn check(&self, device: &Device) -> Answer {
        if !self.to.is_multiple_of(self.value.size()) {
            return Err(Code::INVALID_VALUE);
        }
        if self.count == 0 {
            return Ok(());
        }
        let bytes = self.count.checked_mul(self.value.size());
        let found = bytes.and_then(|bytes| space::find(device, self.to, bytes));
        found.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn run(&self, engine: &Engine) -> Answer {
        if self.count == 0 {
            return Ok(());
        }
        let bytes = self.count * self.value.size();
        let found = space::find(engine.device, self.to, bytes);
        let (_kept, at) = found.ok_or(Code::ILLEGAL_ADDRESS)?;
        let count = self.count as usize;
        // The host may look meanwhile, so each element is written at once.
        match self.value {
            Value::Byte(value) => {
                // SAFETY: `find` has found so many bytes, which are kept, and any bytes are atomics.
                let to = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU8>(), count) };
                to.iter().for_each(|to| to.store(value, Ordering::Relaxed));
            }
            Value::Half(value) => {
                // SAFETY: as above; `check` has seen that the address is aligned, and so is the alias.
                let to = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU16>(), count) };
                to.iter().for_each(|to| to.store(value, Ordering::Relaxed));
            }
            Value::Word(value) => {
                // SAFETY: as above.
                let to = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU32>(), count) };
                to.iter().for_each(|to| to.store(value, Ordering::Relaxed));
            }
        }
        Ok(())
    }
}
