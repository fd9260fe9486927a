//! Intervals in as few rows as it takes for none to lie over another in its row.

/// What takes up room in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// From 0.
    pub(crate) row: usize,
    /// Where it begins, which may be later than asked for by what [`Rows`] tolerates.
    pub(crate) begin: i64,
    /// Where it ends.
    pub(crate) end: i64,
}

/// Rows that are filled from the left.
#[derive(Debug)]
pub(crate) struct Rows {
    ends: Vec<i64>,
    least: i64,
    tolerance: i64,
    most: usize,
}

impl Rows {
    /// Rows for intervals that are at least `least` long, and may begin later by up to `tolerance`
    /// if that keeps them in a row above.
    pub(crate) const fn new(least: i64, tolerance: i64) -> Self {
        Self {
            ends: Vec::new(),
            least,
            tolerance,
            most: usize::MAX,
        }
    }

    /// No more rows than these, of which there must be one: what finds no room lies over others in
    /// the last.
    pub(crate) const fn at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Places the next interval, which begins no earlier than those before it.
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

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_goes_to_another_row_and_what_only_touches_does_not() {
        let mut rows = Rows::new(2, 0);
        assert_eq!(rows.place(0, 10).row, 0);
        assert_eq!(rows.place(5, 20).row, 1);
        assert_eq!(rows.place(10, 12).row, 0);
        assert_eq!(rows.place(11, 12).row, 2);
        assert_eq!(rows.count(), 3);
    }

    #[test]
    fn what_finds_no_room_lies_over_others_in_the_last_row() {
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
    fn nothing_is_shorter_than_the_least_and_small_steps_back_are_taken_in_the_row() {
        let mut rows = Rows::new(2, 64);
        let placed = |row, begin, end| Placed { row, begin, end };
        assert_eq!(rows.place(100, 100), placed(0, 100, 102));
        assert_eq!(rows.place(100, 100), placed(0, 102, 104));
        assert_eq!(rows.place(100, 500), placed(0, 104, 500));
        assert_eq!(rows.place(436, 500), placed(0, 500, 502));
        assert_eq!(rows.place(437, 600), placed(1, 437, 600));
    }
}
