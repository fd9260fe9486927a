//! The held submissions of one queue, in order: the edges and the rank of each.
//!
//! A queue may hold very many, so nothing is stored that follows from something else. A
//! submission's number follows from its index, and so does its wait for the submission before it.
//! Ranks that grow by the same amount from one submission to the next are one [`RankRun`].

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::node::Edges;
use crate::base::steps;

#[derive(Default)]
pub(super) struct QueueNodes {
    /// The number of the first submission.
    first: u64,
    /// The edges of each submission. `None` for one that is skipped and has only its position.
    edges: VecDeque<Option<Arc<Edges>>>,
    runs: VecDeque<RankRun>,
}

/// The ranks of submissions from number `from` up to the next run.
#[derive(Clone, Copy)]
struct RankRun {
    from: u64,
    rank: i128,
    /// The difference of successive ranks. Without meaning while the run has one element.
    slope: i128,
}

impl RankRun {
    fn rank(&self, number: u64) -> i128 {
        self.rank + i128::from(number - self.from) * self.slope
    }
}

/// Adds the rank of `number`, which is above all numbers in `runs`.
fn extend(runs: &mut VecDeque<RankRun>, number: u64, rank: i128) {
    if let Some(last) = runs.back_mut() {
        if last.from + 1 == number {
            last.slope = rank - last.rank;
            return;
        }
        if last.rank(number) == rank {
            return;
        }
    }
    runs.push_back(RankRun {
        from: number,
        rank,
        slope: 0,
    });
}

/// Adds the part of an `old` run with these numbers.
fn extend_from(runs: &mut VecDeque<RankRun>, old: RankRun, numbers: Range<u64>) {
    let (from, rank) = (numbers.start, old.rank(numbers.start));
    match numbers.end.saturating_sub(from) {
        0 => {}
        1 => extend(runs, from, rank),
        _ => runs.push_back(RankRun { from, rank, ..old }),
    }
}

impl QueueNodes {
    pub(super) fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        number >= self.first && number - self.first < self.edges.len() as u64
    }

    /// The number of the first submission, if there is one.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// The numbers of the submissions from `least` on.
    pub(super) fn numbers_from(&self, least: u64) -> Range<u64> {
        least.max(self.first)..self.first + self.edges.len() as u64
    }

    /// The number with this lower half.
    pub(super) const fn number(&self, low: u32) -> u64 {
        self.first + low.wrapping_sub(self.first as u32) as u64
    }

    pub(super) fn rank(&self, number: u64) -> Option<i128> {
        if !self.contains(number) {
            return None;
        }
        let behind = self.runs.partition_point(|run| run.from <= number);
        Some(self.runs.get(behind.checked_sub(1)?)?.rank(number))
    }

    /// The edges of a submission. `None` if it has only its position.
    pub(super) fn edges(&self, number: u64) -> Option<&Edges> {
        let index = number.checked_sub(self.first)?;
        self.edges.get(index as usize)?.as_deref()
    }

    /// Adds a submission after the last or before the first.
    pub(super) fn add(&mut self, number: u64, rank: i128, edges: Arc<Edges>) {
        if self.is_empty() {
            self.first = number;
        }
        if number < self.first {
            // The first run may have been cut at its front, so its origin moves to the present
            // first number.
            if let Some(run) = self.runs.front_mut() {
                run.rank = run.rank(self.first);
                run.from = self.first;
            }
            self.first = number;
            self.edges.push_front(Some(edges));
            self.runs.push_front(RankRun {
                from: number,
                rank,
                slope: 0,
            });
        } else {
            self.edges.push_back(Some(edges));
            extend(&mut self.runs, number, rank);
        }
    }

    /// Takes the edges of a submission, which keeps its position.
    pub(super) fn take_edges(&mut self, number: u64) -> Option<Arc<Edges>> {
        let index = number.checked_sub(self.first)?;
        self.edges.get_mut(index as usize)?.take()
    }

    /// Removes the first or the last submission. Returns its edges, to be dropped without a lock.
    pub(super) fn leave(&mut self, number: u64) -> Option<Arc<Edges>> {
        if !self.contains(number) {
            return None;
        }
        let left = if number == self.first {
            self.first += 1;
            while self.runs.get(1).is_some_and(|run| run.from <= self.first) {
                steps::count(1);
                self.runs.pop_front();
            }
            self.edges.pop_front()
        } else {
            // It was refused before another submission was added.
            debug_assert_eq!(number + 1, self.numbers_from(0).end);
            if self.runs.back().is_some_and(|run| run.from == number) {
                self.runs.pop_back();
            }
            self.edges.pop_back()
        };
        if self.edges.is_empty() {
            self.runs.clear();
        }
        left?
    }

    /// Changes the ranks of some submissions, given in order. Rewrites only the runs that contain
    /// them.
    pub(super) fn set_ranks(&mut self, new: &[(u64, i128)]) {
        let (Some(&(first, _)), Some(&(last, _))) = (new.first(), new.last()) else {
            return;
        };
        let from = self
            .runs
            .partition_point(|run| run.from <= first)
            .saturating_sub(1);
        let upto = self.runs.partition_point(|run| run.from <= last);
        let end = self.numbers_from(0).end;
        let mut changed = new.iter().copied().peekable();
        let mut runs = VecDeque::new();
        for at in from..upto {
            let old = self.runs[at];
            let end = self.runs.get(at + 1).map_or(end, |next| next.from);
            let mut at = old.from.max(self.first);
            while let Some((number, rank)) = changed.next_if(|&(number, _)| number < end) {
                extend_from(&mut runs, old, at..number);
                extend(&mut runs, number, rank);
                at = number + 1;
            }
            extend_from(&mut runs, old, at..end);
        }
        let behind = self.runs.split_off(upto);
        steps::count(runs.len() + behind.len());
        self.runs.truncate(from);
        self.runs.extend(runs.into_iter().chain(behind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equally_spaced_ranks_are_one_run() {
        let mut nodes = QueueNodes::default();
        let none = Arc::new(Edges::default());
        for number in 10..1010 {
            nodes.add(number, i128::from(number) * 7, none.clone());
        }
        assert_eq!(nodes.runs.len(), 1);
        nodes.set_ranks(&[(20, 1000), (21, 2000), (500, 1 << 80)]);
        for number in 10..1010_u64 {
            let expected = match number {
                20 => 1000,
                21 => 2000,
                500 => 1 << 80,
                other => i128::from(other) * 7,
            };
            assert_eq!(nodes.rank(number), Some(expected), "{number}");
        }
        assert!(nodes.runs.len() <= 7, "{}", nodes.runs.len());
        nodes.set_ranks(&[(20, 140), (21, 147), (499, 3499), (1009, 7 * 1009)]);
        for number in 10..30 {
            assert!(nodes.leave(number).is_some());
        }
        nodes.add(29, -5, none.clone());
        assert_eq!(nodes.rank(29), Some(-5));
        assert_eq!(nodes.rank(30), Some(210));
        assert_eq!(nodes.rank(28), None);
        nodes.leave(1009);
        assert_eq!(nodes.rank(1009), None);
        nodes.add(1009, 1 << 90, none.clone());
        assert_eq!(nodes.rank(1008), Some(1008 * 7));
        assert_eq!(nodes.rank(1009), Some(1 << 90));
        for number in 29..1010 {
            assert_eq!(nodes.number(number as u32), number);
            nodes.leave(number);
        }
        assert!(nodes.is_empty() && nodes.runs.is_empty());
    }
}
