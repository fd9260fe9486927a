//! Distributes intervals to as few rows as possible, so that none overlaps another in its row.

/// The position of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// From 0.
    pub(crate) row: usize,
    /// Its begin, which may be later than asked for by the tolerance of [`Rows`].
    pub(crate) begin: i64,
    /// Where it ends.
    pub(crate) end: i64,
}

/// Rows, filled from left to right.
#[derive(Debug)]
pub(crate) struct Rows {
    ends: Vec<i64>,
    least: i64,
    tolerance: i64,
    most: usize,
}

impl Rows {
    /// Creates rows for intervals that are at least `least` long.
    ///
    /// An interval may begin later by up to `tolerance`, if that keeps it in an earlier row.
    pub(crate) const fn new(least: i64, tolerance: i64) -> Self {
        Self {
            ends: Vec::new(),
            least,
            tolerance,
            most: usize::MAX,
        }
    }

    /// Sets the largest number of rows, at least one.
    ///
    /// An interval for which no row is free overlaps others in the last row.
    pub(crate) const fn at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Places the next interval. Intervals must come in the order of their begins.
    pub(crate) fn place(&mut self, begin: i64, end: i64) -> Placed {
        let late = begin.saturating_add(self.tolerance);
        let row = self.ends.iter().position(|&end| end <= late);
        let full = row.is_none() && self.ends.len() >= self.most;
        let row = row.unwrap_or_else(|| {
            if !full {
                self.ends.push(i64::MIN);
            }
            self.ends.len() - 1
        });
        let before = self.ends[row];
        let begin = if full { begin } else { begin.max(before) };
        let end = end.max(begin.saturating_add(self.least));
        self.ends[row] = end.max(before);
        Placed { row, begin, end }
    }

    /// Returns the number of rows.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_intervals_get_different_rows_and_touching_ones_the_same() {
        let mut rows = Rows::new(2, 0);
        assert_eq!(rows.place(0, 10).row, 0);
        assert_eq!(rows.place(5, 20).row, 1);
        assert_eq!(rows.place(10, 12).row, 0);
        assert_eq!(rows.place(11, 12).row, 2);
        assert_eq!(rows.count(), 3);
    }

    #[test]
    fn intervals_without_a_free_row_overlap_others_in_the_last_row() {
        let mut rows = Rows::new(0, 0).at_most(2);
        let placed = |row, begin, end| Placed { row, begin, end };
        assert_eq!(rows.place(0, 10), placed(0, 0, 10));
        assert_eq!(rows.place(1, 20), placed(1, 1, 20));
        assert_eq!(rows.place(2, 5), placed(1, 2, 5));
        assert_eq!(rows.place(6, 7), placed(1, 6, 7));
        assert_eq!(rows.place(10, 11), placed(0, 10, 11));
        assert_eq!(rows.count(), 2);
    }

    #[test]
    fn intervals_have_the_least_length_and_small_overlaps_are_tolerated() {
        let mut rows = Rows::new(2, 64);
        let placed = |row, begin, end| Placed { row, begin, end };
        assert_eq!(rows.place(100, 100), placed(0, 100, 102));
        assert_eq!(rows.place(100, 100), placed(0, 102, 104));
        assert_eq!(rows.place(100, 500), placed(0, 104, 500));
        assert_eq!(rows.place(436, 500), placed(0, 500, 502));
        assert_eq!(rows.place(437, 600), placed(1, 437, 600));
    }
}
