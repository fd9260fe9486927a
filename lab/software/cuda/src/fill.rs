//! Setting memory.
#![allow(unsafe_code, reason = "writes memory that devices reach")]

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::allocation::Access;
use crate::code::{Answer, Code};
use crate::device::Device;
use crate::engine::Engine;
use crate::space;

/// Sets elements to one value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    to: u64,
    value: Value,
    count: usize,
    bytes: u64,
}

/// The value of an element.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    Byte(u8),
    Word(u32),
}

impl Value {
    const fn size(self) -> u64 {
        match self {
            Self::Byte(_) => 1,
            Self::Word(_) => 4,
        }
    }
}

impl Fill {
    /// Returns a fill of `count` elements.
    ///
    /// An invalid value if the address is not aligned, or no memory has that many bytes.
    pub(crate) fn new(to: u64, value: Value, count: usize) -> Answer<Self> {
        let bytes = (count as u64).checked_mul(value.size());
        let bytes = bytes.filter(|_| to.is_multiple_of(value.size()));
        Ok(Self {
            to,
            value,
            count,
            bytes: bytes.ok_or(Code::INVALID_VALUE)?,
        })
    }

    /// Returns an invalid value if the memory does not exist now.
    pub(crate) fn check(&self, device: &Device) -> Answer {
        let found = || space::find(device, self.to, self.bytes, Access::Write);
        if self.bytes == 0 || found().is_some() {
            Ok(())
        } else {
            Err(Code::INVALID_VALUE)
        }
    }

    pub(crate) fn run(&self, engine: &Engine) -> Answer {
        if self.bytes == 0 {
            return Ok(());
        }
        let found = space::find(engine.device, self.to, self.bytes, Access::Write);
        // As measured for memory that is unmapped before the fill.
        let (_kept, at) = found.ok_or(Code::LAUNCH_FAILED)?;
        let count = self.count;
        // The host may read at the same time, so each element is written at once.
        match self.value {
            Value::Byte(value) => {
                // SAFETY: `find` has found so many bytes, which are kept, and any bytes are
                // atomics.
                let to = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU8>(), count) };
                to.iter().for_each(|to| to.store(value, Ordering::Relaxed));
            }
            Value::Word(value) => {
                // SAFETY: as above; `new` has seen that the address is aligned, and so is the
                // alias.
                let to = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU32>(), count) };
                to.iter().for_each(|to| to.store(value, Ordering::Relaxed));
            }
        }
        Ok(())
    }
}
