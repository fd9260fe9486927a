//! The held submissions of one queue, in order: the waits, claims and rank of each.
//!
//! A queue may hold very many, so nothing is stored that follows from something else. A
//! submission's number follows from its index, and so does its wait for the submission before it.
//! Waits and claims of all submissions are in two lists. Ranks that grow by the same amount from
//! one submission to the next are one [`RankRun`].

use std::collections::VecDeque;
use std::ops::Range;

use smallvec::SmallVec;

use super::node::{Lists, OwnedClaim, Parts};
use crate::base::steps;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::Interval;

#[derive(Default)]
pub(super) struct QueueEntries {
    /// The number of the first submission.
    first: u64,
    /// For each submission, the end of its part of the two lists.
    ends: VecDeque<Ends>,
    /// The beginning of the first submission's part.
    begin: Ends,
    waits: VecDeque<KeptPoint>,
    claims: VecDeque<OwnedClaim>,
    runs: VecDeque<RankRun>,
}

/// Positions in the two lists, counted from the first element ever.
///
/// They wrap around; only distances matter.
#[derive(Clone, Copy, Default)]
struct Ends {
    waits: u32,
    claims: u32,
}

impl Ends {
    // No overflow: 2^32 waits or claims of one queue need more than 64 GiB.
    fn after(self, lists: &Lists) -> Self {
        Self {
            waits: self.waits.wrapping_add(lists.waits.len() as u32),
            claims: self.claims.wrapping_add(lists.claims.len() as u32),
        }
    }

    const fn since(self, begin: Self) -> Self {
        Self {
            waits: self.waits.wrapping_sub(begin.waits),
            claims: self.claims.wrapping_sub(begin.claims),
        }
    }

    fn before(self, lists: &Lists) -> Self {
        Self {
            waits: self.waits.wrapping_sub(lists.waits.len() as u32),
            claims: self.claims.wrapping_sub(lists.claims.len() as u32),
        }
    }
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

/// What remains of a claim that was taken out.
const EMPTY_CLAIM: Interval = Interval { above: 0, upto: 0 };

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

/// Moves all of `from` to the end of `to`.
fn push_all<T, const N: usize>(to: &mut VecDeque<T>, from: &mut SmallVec<[T; N]>) {
    // Usually there are one or two, for which `drain` costs several times as much.
    if from.len() > 2 {
        to.extend(from.drain(..));
        return;
    }
    let last = from.pop();
    if let Some(first) = from.pop() {
        to.push_back(first);
    }
    if let Some(last) = last {
        to.push_back(last);
    }
}

/// The elements `part` of `list`.
fn slices<T>(list: &VecDeque<T>, part: Range<usize>) -> Parts<'_, T> {
    let (front, back) = list.as_slices();
    let middle = front.len();
    let before = part.start.min(middle)..part.end.min(middle);
    let behind = part.start.max(middle) - middle..part.end.max(middle) - middle;
    [
        front.get(before).unwrap_or_default(),
        back.get(behind).unwrap_or_default(),
    ]
}

impl QueueEntries {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        number >= self.first && number - self.first < self.ends.len() as u64
    }

    /// The number of the first submission, if there is one.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// The numbers of the submissions from `least` on.
    pub(super) fn numbers_from(&self, least: u64) -> Range<u64> {
        least.max(self.first)..self.first + self.ends.len() as u64
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

    /// Where the lists of a submission begin and end.
    fn part(&self, number: u64) -> Option<(Ends, Ends)> {
        if !self.contains(number) {
            return None;
        }
        let index = (number - self.first) as usize;
        let before = index.checked_sub(1).and_then(|i| self.ends.get(i));
        let begin = before.unwrap_or(&self.begin).since(self.begin);
        Some((begin, self.ends.get(index)?.since(self.begin)))
    }

    /// The waits and claims of a submission. Empty after [`take`](Self::take).
    pub(super) fn lists(&self, number: u64) -> (Parts<'_, KeptPoint>, Parts<'_, OwnedClaim>) {
        self.part(number)
            .map_or_else(Default::default, |(from, upto)| {
                let waits = slices(&self.waits, from.waits as usize..upto.waits as usize);
                let claims = slices(&self.claims, from.claims as usize..upto.claims as usize);
                (waits, claims)
            })
    }

    /// Adds a submission after the last or before the first, and moves `lists` into it.
    pub(super) fn add(&mut self, number: u64, rank: i128, lists: &mut Lists) {
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
            let end = self.begin;
            self.begin = end.before(lists);
            self.ends.push_front(end);
            for wait in lists.waits.drain(..).rev() {
                self.waits.push_front(wait);
            }
            for claim in lists.claims.drain(..).rev() {
                self.claims.push_front(claim);
            }
            self.runs.push_front(RankRun {
                from: number,
                rank,
                slope: 0,
            });
        } else {
            let last = self.ends.back().copied().unwrap_or(self.begin);
            self.ends.push_back(last.after(lists));
            push_all(&mut self.waits, &mut lists.waits);
            push_all(&mut self.claims, &mut lists.claims);
            extend(&mut self.runs, number, rank);
        }
    }

    /// Moves the waits and claims of a submission to `to`. The submission keeps its position.
    pub(super) fn take(&mut self, number: u64, to: &mut Lists) {
        let Some((from, upto)) = self.part(number) else {
            return;
        };
        let waits = self
            .waits
            .range_mut(from.waits as usize..upto.waits as usize);
        to.waits.extend(waits.map(std::mem::take));
        let claims = self
            .claims
            .range_mut(from.claims as usize..upto.claims as usize);
        to.claims
            .extend(claims.map(|claim| std::mem::replace(claim, (None, EMPTY_CLAIM))));
    }

    /// True if the submission is the first.
    pub(super) fn is_first(&self, number: u64) -> bool {
        number == self.first && !self.is_empty()
    }

    /// Removes the first submission.
    ///
    /// Its waits and claims are moved to `to`, or dropped if a caller has copies.
    pub(super) fn leave_first(&mut self, mut to: Option<&mut Lists>) {
        let Some(end) = self.ends.pop_front() else {
            return;
        };
        let gone = end.since(self.begin);
        for _ in 0..gone.waits {
            let wait = self.waits.pop_front();
            if let (Some(wait), Some(to)) = (wait, &mut to) {
                to.waits.push(wait);
            }
        }
        for _ in 0..gone.claims {
            let claim = self.claims.pop_front();
            if let (Some(claim), Some(to)) = (claim, &mut to) {
                to.claims.push(claim);
            }
        }
        self.begin = end;
        self.first += 1;
        while self.runs.get(1).is_some_and(|run| run.from <= self.first) {
            steps::count(1);
            self.runs.pop_front();
        }
        if self.ends.is_empty() {
            self.runs.clear();
        }
    }

    /// Removes the first or the last submission.
    pub(super) fn leave(&mut self, number: u64) {
        if !self.contains(number) {
            return;
        }
        if number == self.first {
            self.leave_first(None);
        } else {
            // It was refused before another submission was added.
            debug_assert_eq!(number + 1, self.numbers_from(0).end);
            self.ends.pop_back();
            let last = self.ends.back().copied().unwrap_or(self.begin);
            let left = last.since(self.begin);
            self.waits.truncate(left.waits as usize);
            self.claims.truncate(left.claims as usize);
            if self.runs.back().is_some_and(|run| run.from == number) {
                self.runs.pop_back();
            }
            if self.ends.is_empty() {
                self.runs.clear();
            }
        }
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
        let mut entries = QueueEntries::default();
        let mut none = Lists::default();
        for number in 10..1010 {
            entries.add(number, i128::from(number) * 7, &mut none);
        }
        assert_eq!(entries.runs.len(), 1);
        entries.set_ranks(&[(20, 1000), (21, 2000), (500, 1 << 80)]);
        for number in 10..1010_u64 {
            let expected = match number {
                20 => 1000,
                21 => 2000,
                500 => 1 << 80,
                other => i128::from(other) * 7,
            };
            assert_eq!(entries.rank(number), Some(expected), "{number}");
        }
        assert!(entries.runs.len() <= 7, "{}", entries.runs.len());
        entries.set_ranks(&[(20, 140), (21, 147), (499, 3499), (1009, 7 * 1009)]);
        for number in 10..30 {
            entries.leave(number);
        }
        entries.add(29, -5, &mut none);
        assert_eq!(entries.rank(29), Some(-5));
        assert_eq!(entries.rank(30), Some(210));
        assert_eq!(entries.rank(28), None);
        entries.leave(1009);
        assert_eq!(entries.rank(1009), None);
        entries.add(1009, 1 << 90, &mut none);
        assert_eq!(entries.rank(1008), Some(1008 * 7));
        assert_eq!(entries.rank(1009), Some(1 << 90));
        for number in 29..1010 {
            assert_eq!(entries.number(number as u32), number);
            entries.leave(number);
        }
        assert!(entries.is_empty() && entries.runs.is_empty());
    }
}
