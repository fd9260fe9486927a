//! Rings of slots for frames in flight.

use std::fmt;
use std::num::NonZeroU64;

use crate::base::error::{Error, Result};
use crate::timeline::access::WaitOnly;
use crate::timeline::point::Point;

/// A ring of slots, such as buffers, for frames in flight. Tells when a slot may be written again.
///
/// Frames are counted from 1. Frame n uses slot n modulo the number of slots. The producer waits
/// for [`Slot::free`], fills the slot, and signals n of a timeline of its own. The consumer waits
/// for that, uses the slot, and signals n of the timeline that the ring is made with.
///
/// The ring only computes points. It needs no lock, never blocks, and takes timelines of any
/// devices and of other processes.
///
/// ```
/// # extern crate syncline_core as syncline;
/// use syncline::backend::{Device as _, Queue as _};
/// use syncline::{QueueKind, Slots, host};
///
/// # fn main() -> syncline::Result<()> {
/// let device = host::Device::new();
/// let (filled, freed) = (device.timeline("filled")?, device.timeline("freed")?);
/// let producer = device.queue(QueueKind::Compute, "producer")?;
/// let consumer = device.queue(QueueKind::Compute, "consumer")?;
/// let slots = Slots::new(freed.wait_only(), 3)?;
/// for n in 1..=10 {
///     let slot = slots.frame(n)?; // the work of both uses buffer `slot.index()`
///     producer.submit(&[slot.free()], |_| Ok(()), &[filled.signal_at(n)])?;
///     consumer.submit(&[filled.at(n)], |_| Ok(()), &[freed.signal_at(n)])?;
/// }
/// freed.at(10).wait(std::time::Duration::from_secs(10))
/// # }
/// ```
#[derive(Clone)]
pub struct Slots {
    freed: WaitOnly,
    count: NonZeroU64,
}

impl Slots {
    /// A ring of `count` slots. `freed` reaches n when the slot of frame n may be written again.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a ring without slots.
    pub fn new(freed: WaitOnly, count: usize) -> Result<Self> {
        match NonZeroU64::new(count as u64) {
            Some(count) => Ok(Self { freed, count }),
            None => Err(Error::unsupported(
                freed.object(),
                "free the slots of a ring of 0 slots",
                "a ring has at least one slot",
            )),
        }
    }

    /// The slot of frame `n`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for 0, because frames are counted from 1. [`Error::ValueOutOfRange`]
    /// for `u64::MAX`, which no timeline reaches.
    pub fn frame(&self, n: u64) -> Result<Slot<'_>> {
        let object = self.freed.object();
        match n {
            0 => Err(Error::unsupported(
                object,
                "free the slot of frame 0",
                "frames are counted from 1",
            )),
            u64::MAX => {
                let reached = self.freed.frozen_value();
                Err(Error::value_out_of_range(object, n, reached, u64::MAX - 1))
            }
            _ => Ok(Slot { of: self, frame: n }),
        }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots freed by {}", self.count, self.freed.object())
    }
}

/// The slot of one frame. See [`Slots::frame`].
#[derive(Clone, Copy)]
pub struct Slot<'s> {
    of: &'s Slots,
    frame: u64,
}

impl<'s> Slot<'s> {
    /// The index of the slot: the number of the frame modulo the number of slots.
    #[must_use]
    pub fn index(self) -> usize {
        // Below the number of slots, which is a `usize`.
        (self.frame % self.of.count) as usize
    }

    /// The frame that had the slot before, unless this is the first one in it.
    #[must_use]
    pub fn before(self) -> Option<u64> {
        let before = self.frame.saturating_sub(self.of.count.get());
        (before > 0).then_some(before)
    }

    /// The point after which the slot may be written. Always reached for the first frame in a slot.
    pub fn free(self) -> Point<'s> {
        self.before()
            .map_or(Point::EMPTY, |before| self.of.freed.at(before))
    }
}

impl fmt::Debug for Slot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} of frame {}", self.index(), self.frame)
    }
}

#[cfg(all(test, not(syncline_loom)))]
mod tests {
    use super::*;
    use crate::Timeline;
    use crate::backend::Device as _;

    fn ring(count: usize) -> Result<(Timeline, Slots)> {
        let freed = crate::host::Device::new().timeline("freed")?;
        let slots = Slots::new(freed.wait_only(), count)?;
        Ok((freed, slots))
    }

    #[test]
    fn a_slot_is_free_once_its_last_frame_has_freed_it() {
        let (freed, slots) = ring(3).unwrap();
        let at = |n| {
            let slot = slots.frame(n).unwrap();
            (slot.index(), slot.before(), slot.free().value())
        };
        let first: Vec<_> = (1..=7).map(at).collect();
        let expected = [
            (1, None, 0),
            (2, None, 0),
            (0, None, 0),
            (1, Some(1), 1),
            (2, Some(2), 2),
            (0, Some(3), 3),
            (1, Some(4), 4),
        ];
        assert_eq!(first, expected);
        let last = u64::MAX - 1;
        assert_eq!(at(last).1, Some(last - 3));

        let is_free = |n| slots.frame(n).unwrap().free().is_reached().unwrap();
        assert!(is_free(3) && !is_free(4));
        freed.signal(1).unwrap();
        assert!(is_free(4) && !is_free(5));
        // A ring neither keeps the timeline open nor signals it. The first frames wait for nothing.
        drop(freed);
        assert!(is_free(3) && is_free(4));
        assert!(slots.frame(5).unwrap().free().is_reached().is_err());
    }

    #[test]
    fn rings_and_frames_that_cannot_be_are_refused() {
        let refused = ring(0).unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
        assert!(refused.to_string().contains("ring of 0 slots"), "{refused}");
        let (_freed, slots) = ring(usize::MAX).unwrap();
        let refused = slots.frame(0).unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
        let refused = slots.frame(u64::MAX).unwrap_err();
        assert!(
            matches!(refused, Error::ValueOutOfRange { .. }),
            "{refused}"
        );
        assert_eq!(slots.frame(u64::MAX - 1).unwrap().before(), None);
    }
}
