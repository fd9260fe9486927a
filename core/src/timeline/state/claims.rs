//! The claims of a timeline: which values are promised to which signals.

use std::collections::VecDeque;

use crate::timeline::interval::Interval;

/// The claims of one timeline, lowest first, never overlapping.
///
/// Pending claims need no entry, because they lie without a gap between the reached and the pending
/// value. [`Claims::settle`] removes them.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    intervals: VecDeque<Interval>,
}

impl Claims {
    /// Claims up to `upto` for a submission whose highest wait on the timeline is `own_wait`.
    ///
    /// Everything up to `settled` is pending or reached. The claim reaches down to the highest
    /// value that is settled, claimed by another signal, or waited for by the submission itself
    /// (T2). So a consumer that is submitted first leaves values for its producer. A signaller that
    /// waits for an old value claims only free values.
    ///
    /// # Errors
    /// The interval that already holds `upto`.
    #[inline]
    pub(crate) fn take(
        &mut self,
        upto: u64,
        own_wait: u64,
        settled: u64,
    ) -> Result<Interval, Interval> {
        let above = own_wait.max(settled);
        let highest = self.intervals.back().map_or(0, |claim| claim.upto);
        if highest >= upto {
            return self.take_between(upto, above);
        }
        // The usual case: above all other claims.
        let above = above.max(highest);
        let claim = Interval { above, upto };
        self.intervals.push_back(claim);
        Ok(claim)
    }

    /// Same as [`Claims::take`], for a value below the highest claim.
    fn take_between(&mut self, upto: u64, above: u64) -> Result<Interval, Interval> {
        let at = self.intervals.partition_point(|claim| claim.upto < upto);
        if let Some(&next) = self.intervals.get(at)
            && next.above < upto
        {
            return Err(next);
        }
        let below = at.checked_sub(1).map_or(0, |i| self.intervals[i].upto);
        let above = above.max(below);
        let claim = Interval { above, upto };
        self.intervals.insert(at, claim);
        Ok(claim)
    }

    /// All claims, lowest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = Interval> + '_ {
        self.intervals.iter().copied()
    }

    /// True if there is no claim.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Removes the claim that ends with `upto`.
    pub(crate) fn remove(&mut self, upto: u64) {
        let key = |claim: &Interval| claim.upto;
        if let Ok(at) = self.intervals.binary_search_by_key(&upto, key) {
            self.intervals.remove(at);
        }
    }

    /// Removes the claims up to `settled`.
    #[inline]
    pub(crate) fn settle(&mut self, settled: u64) {
        let is_settled = |claim: &Interval| claim.upto <= settled;
        // The usual case.
        if self.intervals.back().is_none_or(is_settled) {
            self.intervals.clear();
            return;
        }
        while self.intervals.front().is_some_and(is_settled) {
            self.intervals.pop_front();
        }
    }

    /// The lowest claim. The next host signal must stay below it.
    pub(crate) fn lowest(&self) -> Option<Interval> {
        self.intervals.front().copied()
    }

    /// True if a claim covers `value`.
    pub(crate) fn covers(&self, value: u64) -> bool {
        let at = self.intervals.partition_point(|claim| claim.upto < value);
        self.intervals
            .get(at)
            .is_some_and(|claim| claim.above < value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_that_claims_first_does_not_claim_the_producers_value() {
        let mut claims = Claims::default();
        assert_eq!(claims.take(2, 1, 0), Ok(Interval { above: 1, upto: 2 }));
        assert_eq!(claims.take(1, 0, 0), Ok(Interval { above: 0, upto: 1 }));
        assert_eq!(claims.lowest(), Some(Interval { above: 0, upto: 1 }));
    }

    #[test]
    fn equal_and_enclosed_signals_are_refused() {
        let mut claims = Claims::default();
        let five = claims.take(5, 0, 0).unwrap();
        assert_eq!(claims.take(5, 0, 0), Err(five));
        assert_eq!(claims.take(3, 0, 0), Err(five));
        assert_eq!(claims.take(6, 0, 0), Ok(Interval { above: 5, upto: 6 }));
        claims.remove(5);
        assert_eq!(claims.take(3, 0, 0), Ok(Interval { above: 0, upto: 3 }));
        assert!(claims.covers(6) && !claims.covers(4) && claims.covers(1));
    }

    #[test]
    fn an_old_wait_claims_only_free_values() {
        let mut claims = Claims::default();
        assert_eq!(claims.take(9, 3, 6), Ok(Interval { above: 6, upto: 9 }));
        claims.settle(9);
        assert_eq!(claims.lowest(), None);
    }
}
