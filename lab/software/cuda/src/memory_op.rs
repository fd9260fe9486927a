//! Memory operations of streams: waits for values in memory, and writes of them.
#![allow(unsafe_code, reason = "accesses memory that devices reach")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::allocation::{Access, Allocation};
use crate::backoff::Backoff;
use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::device::Device;
use crate::engine::Engine;
use crate::space;

/// One operation on 32 or 64 bits of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MemoryOp {
    Wait {
        address: u64,
        value: u64,
        width: Width,
        until: Until,
    },
    Write {
        address: u64,
        value: u64,
        width: Width,
    },
    /// Orders earlier and later commands. Commands of a stream are always in order in this driver.
    Barrier,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Bits32,
    Bits64,
}

/// When a wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The value is reached or passed, in a counter that wraps around.
    Reached,
    Equal,
    /// A common bit is set.
    And,
    /// Some bit is set in neither.
    Nor,
}

impl Width {
    const fn bytes(self) -> u64 {
        match self {
            Self::Bits32 => 4,
            Self::Bits64 => 8,
        }
    }
}

impl Until {
    /// Converts the flags of a wait.
    pub(crate) const fn from_flags(flags: u32) -> Answer<Self> {
        Ok(match flags {
            0 => Self::Reached,
            1 => Self::Equal,
            2 => Self::And,
            3 => Self::Nor,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    /// True if a wait for `value` ends when the word is `now`.
    pub(crate) const fn is_met(self, now: u64, value: u64, width: Width) -> bool {
        match (self, width) {
            (Self::Reached, Width::Bits64) => now.wrapping_sub(value) as i64 >= 0,
            (Self::Reached, Width::Bits32) => (now as u32).wrapping_sub(value as u32) as i32 >= 0,
            (Self::Equal, Width::Bits64) => now == value,
            (Self::Equal, Width::Bits32) => now as u32 == value as u32,
            (Self::And, Width::Bits64) => now & value != 0,
            (Self::And, Width::Bits32) => (now & value) as u32 != 0,
            (Self::Nor, Width::Bits64) => !(now | value) != 0,
            (Self::Nor, Width::Bits32) => !(now | value) as u32 != 0,
        }
    }
}

/// A word that devices reach, and the object that keeps it.
struct Word {
    at: *mut u8,
    width: Width,
    _kept: std::sync::Arc<Allocation>,
}

impl Word {
    fn find(device: &Device, address: u64, width: Width, access: Access) -> Option<Self> {
        if !address.is_multiple_of(width.bytes()) {
            return None;
        }
        let (kept, at) = space::find(device, address, width.bytes(), access)?;
        Some(Self {
            at,
            width,
            _kept: kept,
        })
    }

    const fn narrow(&self) -> &AtomicU32 {
        // SAFETY: found, kept and aligned. Any bytes are an atomic.
        unsafe { AtomicU32::from_ptr(self.at.cast()) }
    }

    const fn wide(&self) -> &AtomicU64 {
        // SAFETY: as above; only for 64 bits.
        unsafe { AtomicU64::from_ptr(self.at.cast()) }
    }

    fn load(&self) -> u64 {
        match self.width {
            Width::Bits32 => self.narrow().load(Ordering::Acquire).into(),
            Width::Bits64 => self.wide().load(Ordering::Acquire),
        }
    }

    fn store(&self, value: u64) {
        match self.width {
            Width::Bits32 => self.narrow().store(value as u32, Ordering::Release),
            Width::Bits64 => self.wide().store(value, Ordering::Release),
        }
    }
}

impl MemoryOp {
    pub(crate) const fn is_wait(&self) -> bool {
        matches!(self, Self::Wait { .. })
    }

    /// Returns an invalid value if the word does not exist now.
    pub(crate) fn check(&self, device: &Device) -> Answer {
        match *self {
            Self::Barrier => Ok(()),
            Self::Wait { address, width, .. } => {
                let found = Word::find(device, address, width, Access::Read);
                found.map(|_| ()).ok_or(Code::INVALID_VALUE)
            }
            Self::Write { address, width, .. } => {
                let found = Word::find(device, address, width, Access::Write);
                found.map(|_| ()).ok_or(Code::INVALID_VALUE)
            }
        }
    }

    pub(crate) fn run(&self, engine: &Engine) -> Answer {
        match *self {
            Self::Barrier => {}
            Self::Write {
                address,
                value,
                width,
            } => {
                let word = Word::find(engine.device, address, width, Access::Write);
                word.ok_or(Code::ILLEGAL_ADDRESS)?.store(value);
            }
            Self::Wait {
                address,
                value,
                width,
                until,
            } => {
                let word = Word::find(engine.device, address, width, Access::Read);
                let word = word.ok_or(Code::ILLEGAL_ADDRESS)?;
                // The host and other processes write without notice.
                let mut backoff = Backoff::new();
                let is_met = |now| {
                    if Bug::WaitsComparePlainly.is_planted() && until == Until::Reached {
                        return now >= value;
                    }
                    until.is_met(now, value, width) || Bug::ForgetsMemoryWait.is_planted()
                };
                while !is_met(word.load()) && !engine.life.is_over() {
                    backoff.rest();
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::reached_equal(Until::Reached, 5, 5, Width::Bits64, true)]
    #[case::reached_below(Until::Reached, 4, 5, Width::Bits64, false)]
    #[case::reached_above(Until::Reached, 6, 5, Width::Bits64, true)]
    #[case::reached_after_the_wrap(Until::Reached, 3, u64::MAX, Width::Bits64, true)]
    #[case::reached_before_the_wrap(Until::Reached, u64::MAX, 3, Width::Bits64, false)]
    #[case::reached_half_way_round(Until::Reached, 5 + (1 << 63), 5, Width::Bits64, false)]
    #[case::reached_after_the_wrap_of_32_bits(
        Until::Reached,
        3,
        u64::from(u32::MAX),
        Width::Bits32,
        true
    )]
    #[case::equal_above(Until::Equal, 6, 5, Width::Bits64, false)]
    #[case::and_common_bit(Until::And, 6, 2, Width::Bits64, true)]
    #[case::and_no_common_bit(Until::And, 4, 3, Width::Bits64, false)]
    #[case::nor_bit_clear_in_both(Until::Nor, 1, 2, Width::Bits64, true)]
    #[case::nor_all_bits_set(Until::Nor, u64::MAX, 0, Width::Bits64, false)]
    #[case::nor_all_of_32_bits_set(Until::Nor, 0xffff_ffff, 0, Width::Bits32, false)]
    fn a_wait_is_met_by_its_comparison(
        #[case] until: Until,
        #[case] now: u64,
        #[case] value: u64,
        #[case] width: Width,
        #[case] met: bool,
    ) {
        let is_met = until.is_met(now, value, width);
        assert_eq!(is_met, met);
    }
}
