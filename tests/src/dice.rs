//! Random numbers that repeat for the same seed, for cases that try things at random.

use std::ops::Range;

use crate::Verdict;
use crate::case::Stop;

/// The first seed that [`seeds`] tries. The default is 0. A failure names its seed.
const FIRST_SEED: &str = "SYNCLINE_SEED";

/// A stream of numbers that depends only on its seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Creates the stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any number.
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, or 0 if there is none.
    pub const fn below(&mut self, limit: u64) -> u64 {
        // The bias is negligible, because limits are tiny compared with 2^64.
        let roll = self.roll();
        if limit == 0 { 0 } else { roll % limit }
    }

    /// Returns a number of `range`, or its start if it is empty.
    pub const fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// Returns an index below `length`, or 0 if that is 0.
    pub const fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns true once in `n` times.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// Returns independent dice, for example for another thread.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self(self.roll())
    }
}

/// Runs `body` with the dice of `count` seeds, one after the other. A failure names its seed.
///
/// # Errors
/// The first error of `body`.
pub fn seeds(count: u64, mut body: impl FnMut(&mut Dice) -> Verdict) -> Verdict {
    let first = std::env::var(FIRST_SEED).ok();
    let first: u64 = first.and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in (0..count).map(|nth| first.wrapping_add(nth)) {
        body(&mut Dice::new(seed)).map_err(|stop| match stop {
            Stop::Failed(why) => {
                Stop::Failed(format!("with seed {seed} ({FIRST_SEED}={seed}): {why}"))
            }
            skipped => skipped,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_falls_the_same_way() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            [dice.roll(), dice.fork().roll(), dice.below(10)]
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
    }

    #[test]
    fn numbers_stay_within_their_limits() {
        let mut dice = Dice::new(1);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[dice.index(5)] = true;
            assert!((3..9).contains(&dice.within(3..9)));
        }
        assert_eq!(seen, [true; 5], "some index never comes");
        assert_eq!((dice.below(0), dice.within(4..4)), (0, 4));
        let mut items: Vec<_> = (0..100).collect();
        dice.shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.iter().copied().eq(0..100));
    }

    #[test]
    fn a_failure_names_its_seed() {
        let mut tried = 0;
        let ended = seeds(5, |_| {
            tried += 1;
            if tried < 3 {
                Ok(())
            } else {
                Stop::fail("lost")
            }
        });
        let Err(Stop::Failed(why)) = ended else {
            unreachable!("the third seed fails, not {ended:?}");
        };
        assert!(why.contains("seed 2") && why.ends_with("lost"), "{why}");
    }
}
