//! The values of the threads of a warp: for each slot a row with a value for each lane.

use crate::op::{Guard, Slot};

/// A value for each lane.
pub(super) type Row<const W: usize> = [u64; W];

/// Which lanes take part: all ones or zero for each.
pub(super) type Mask<const W: usize> = Row<W>;

#[derive(Debug)]
pub(super) struct Rows<const W: usize>(Vec<Row<W>>);

impl<const W: usize> Rows<W> {
    pub(super) fn new(slots: usize) -> Self {
        Self(vec![[0; W]; slots])
    }

    #[inline(always)]
    pub(super) fn row(&self, slot: Slot) -> &Row<W> {
        &self.0[usize::from(slot)]
    }

    #[inline(always)]
    pub(super) fn row_mut(&mut self, slot: Slot) -> &mut Row<W> {
        &mut self.0[usize::from(slot)]
    }

    /// Gives the lanes of `mask` the values of `values`.
    #[inline(always)]
    pub(super) fn put(&mut self, d: Slot, values: &Row<W>, mask: &Mask<W>) {
        let row = self.row_mut(d);
        for lane in 0..W {
            row[lane] = values[lane] & mask[lane] | row[lane] & !mask[lane];
        }
    }

    /// The lanes of `mask` in which the predicate is what the guard asks for.
    #[inline(always)]
    pub(super) fn guarded(&self, guard: Guard, mask: &Mask<W>) -> Mask<W> {
        let row = self.row(guard.slot);
        let negated = u64::from(guard.negated);
        let mut guarded = *mask;
        for lane in 0..W {
            guarded[lane] &= (row[lane] ^ negated).wrapping_neg();
        }
        guarded
    }
}

/// Whether a lane of `mask` is set.
#[inline(always)]
pub(super) fn any<const W: usize>(mask: &Mask<W>) -> bool {
    mask.iter().fold(0, |all, lane| all | lane) != 0
}
