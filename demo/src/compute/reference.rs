//! The wave on the CPU, with which the kernels must agree.
//!
//! The host backend runs it as well.
//!
//! The functions are generic over how a word is read ([`Load`]) and written
//! ([`Store`]), so that both kinds of buffer share one formula:
//!
//! * the host backend's, [`AtomicU32`] with relaxed ordering: two threads that
//!   meet in a buffer because a wait is missing give a wrong picture, and not
//!   undefined behaviour;
//! * plain memory, [`Cell`], which [`Reference`] uses and which the compiler
//!   can vectorise.
//!
//! A buffer that is too short is no error here: rows that are not there are
//! skipped, just as the kernels skip invocations outside the field.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    DAMPING_SHIFT, EMITTER_REACH, Emitter, FORCE_SHIFT, FRAME_BUFFER, LIMIT, POSITION_BITS,
    SPEED_FACTOR, SPEED_SHIFT, STEPS_PER_FRAME, StepParams, prev_buffer,
};

/// A 32-bit word that can be read.
pub trait Load {
    /// The word's value.
    fn load(&self) -> u32;
}

/// A 32-bit word that can be written through a shared reference.
pub trait Store: Load {
    /// Replaces the word's value.
    fn store(&self, value: u32);
}

impl Load for u32 {
    #[inline]
    fn load(&self) -> u32 {
        *self
    }
}

impl Load for Cell<u32> {
    #[inline]
    fn load(&self) -> u32 {
        self.get()
    }
}

impl Store for Cell<u32> {
    #[inline]
    fn store(&self, value: u32) {
        self.set(value);
    }
}

impl Load for AtomicU32 {
    #[inline]
    fn load(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
}

impl Store for AtomicU32 {
    #[inline]
    fn store(&self, value: u32) {
        self.store(value, Ordering::Relaxed);
    }
}

/// The height that a word holds.
#[inline]
fn height_of(word: &impl Load) -> i32 {
    word.load().cast_signed()
}

/// Row `y` of a buffer, if all of it is there.
fn row<T>(words: &[T], width: usize, y: u32) -> Option<&[T]> {
    let start = width.checked_mul(usize::try_from(y).ok()?)?;
    words.get(start..)?.get(..width)
}

/// Half of the divisor of a shift by `shift`.
///
/// Added before the shift, it makes the shift round to the nearest.
const fn half(shift: u32) -> i32 {
    1 << (shift - 1)
}

/// The wave equation for one cell inside the border. `around` is the sum of the four neighbours.
#[inline]
fn next_height(prev: i32, now: i32, around: i32, force: i32) -> i32 {
    let curvature = around.wrapping_sub(now.wrapping_mul(4));
    let accel = curvature
        .wrapping_mul(SPEED_FACTOR)
        .wrapping_add(half(SPEED_SHIFT))
        >> SPEED_SHIFT;
    let free = now
        .wrapping_mul(2)
        .wrapping_sub(prev)
        .wrapping_add(accel)
        .wrapping_add(force);
    let loss = free.wrapping_add(half(DAMPING_SHIFT)) >> DAMPING_SHIFT;
    free.wrapping_sub(loss).clamp(-LIMIT, LIMIT)
}

impl Emitter {
    /// The distance of a cell's middle from the emitter along one axis.
    ///
    /// Cut off at the edge of the bump, so that squares stay small in any field.
    fn distance(cell: u32, centre: i32) -> i32 {
        let cell = cell.wrapping_shl(POSITION_BITS).cast_signed();
        cell.wrapping_sub(centre)
            .clamp(-EMITTER_REACH, EMITTER_REACH)
    }

    /// The push on cell `x`, `y`.
    fn force(&self, x: u32, y: u32) -> i32 {
        let (dx, dy) = (Self::distance(x, self.x), Self::distance(y, self.y));
        let bump = (EMITTER_REACH * EMITTER_REACH - dx * dx - dy * dy).max(0);
        self.amplitude.wrapping_mul(bump) >> FORCE_SHIFT
    }

    /// Whether the push can be other than 0 in row `y`.
    fn touches_row(&self, y: u32) -> bool {
        Self::distance(y, self.y).abs() < EMITTER_REACH
    }
}

/// Computes row `y` of a step: reads it and three rows of `now`, and overwrites it.
///
/// Rows may be computed in any order, or at the same time.
pub fn step_row<P: Store, N: Load>(prev: &[P], now: &[N], y: u32, params: &StepParams) {
    let StepParams { width, height, .. } = *params;
    let width = width as usize;
    if y >= height {
        return;
    }
    let Some(target) = row(prev, width, y) else {
        return;
    };
    let ([left_border, inner @ .., right_border], true) = (target, y > 0 && y + 1 < height) else {
        target.iter().for_each(|cell| cell.store(0));
        return;
    };
    let rows = (
        row(now, width, y - 1),
        row(now, width, y),
        row(now, width, y + 1),
    );
    let (Some(above), Some(level), Some(below)) = rows else {
        return;
    };

    left_border.store(0);
    right_border.store(0);
    // Most rows are out of every emitter's reach, and quicker without them.
    if params.emitters.iter().any(|emitter| emitter.touches_row(y)) {
        let force = |x| {
            let forces = params.emitters.iter().map(|emitter| emitter.force(x, y));
            forces.fold(0, i32::wrapping_add)
        };
        sweep(inner, [above, level, below], force);
    } else {
        sweep(inner, [above, level, below], |_| 0);
    }
}

/// The cells of a row between the borders; `force` takes the column. The three
/// rows of `now` are whole: two cells longer than `inner`.
fn sweep<P: Store, N: Load>(inner: &[P], rows: [&[N]; 3], force: impl Fn(u32) -> i32) {
    let [above, level, below] = rows;
    let count = inner.len();
    // Slices of one length, so that the loop needs no bounds checks.
    let (left, now, right) = (&level[..count], &level[1..=count], &level[2..][..count]);
    let (above, below) = (&above[1..=count], &below[1..=count]);
    for (i, x) in (0..count).zip(1..) {
        let around = height_of(&left[i])
            .wrapping_add(height_of(&right[i]))
            .wrapping_add(height_of(&above[i]))
            .wrapping_add(height_of(&below[i]));
        let next = next_height(height_of(&inner[i]), height_of(&now[i]), around, force(x));
        inner[i].store(next.cast_unsigned());
    }
}

/// One whole step: every row of [`step_row`].
pub fn step<P: Store, N: Load>(prev: &[P], now: &[N], params: &StepParams) {
    for y in 0..params.height {
        step_row(prev, now, y, params);
    }
}

/// Plain memory, seen as words that can be written while they are shared.
fn cells(words: &mut [u32]) -> &[Cell<u32>] {
    Cell::from_mut(words).as_slice_of_cells()
}

/// The simulation in plain memory, from still water on.
///
/// This is what the demo's pipeline is checked against, frame by frame.
#[derive(Clone, Debug)]
pub struct Reference {
    width: u32,
    height: u32,
    /// The number of the next step.
    step: u32,
    buffers: [Vec<u32>; 2],
}

impl Reference {
    /// Still water.
    #[must_use]
    pub fn new(width: u32, height: u32) -> Self {
        let still = vec![0; width as usize * height as usize];
        Self {
            width,
            height,
            step: 0,
            buffers: [still.clone(), still],
        }
    }

    /// Computes the next frame, which is [`STEPS_PER_FRAME`] steps, and returns
    /// its heights.
    pub fn advance_frame(&mut self) -> &[u32] {
        for _ in 0..STEPS_PER_FRAME {
            let params = StepParams::at(self.width, self.height, self.step);
            let [first, second] = &mut self.buffers;
            let (prev, now) = if prev_buffer(self.step) == 0 {
                (first, second)
            } else {
                (second, first)
            };
            step(cells(prev), now, &params);
            self.step = self.step.wrapping_add(1);
        }
        &self.buffers[FRAME_BUFFER]
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// FNV-1a over the words.
    fn checksum(words: &[u32]) -> u64 {
        words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &word| {
            (hash ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Mean square of the heights.
    fn energy(heights: &[u32]) -> f64 {
        let total: f64 = heights
            .iter()
            .map(|&h| f64::from(h.cast_signed()).powi(2))
            .sum();
        let one = f64::from(1 << super::super::FRACTION_BITS);
        total / (one * one) / heights.len() as f64
    }

    #[rstest]
    #[case::square(64, 64)]
    #[case::wide(120, 72)]
    fn energy_stays_bounded_and_heights_off_the_limit(#[case] width: u32, #[case] height: u32) {
        let mut wave = Reference::new(width, height);
        for frame in 0..375 {
            let heights = wave.advance_frame();
            assert!(energy(heights) < 1.0, "frame {frame}");
            let top = heights.iter().map(|h| h.cast_signed().unsigned_abs()).max();
            assert!(top < Some(LIMIT.unsigned_abs()), "frame {frame}");
        }
        assert!(energy(&wave.buffers[FRAME_BUFFER]) > 0.001);
    }

    #[test]
    fn frames_are_never_constant_and_differ() {
        let mut wave = Reference::new(64, 64);
        let mut last = Vec::new();
        for frame in 1..=400 {
            let heights = wave.advance_frame().to_vec();
            if frame >= 2 {
                assert!(
                    heights.iter().any(|&h| h != heights[64 * 32 + 32]),
                    "frame {frame}"
                );
            }
            assert_ne!(heights, last, "frame {frame}");
            last = heights;
        }
    }

    #[test]
    fn golden_frame() {
        let mut wave = Reference::new(64, 64);
        for _ in 0..9 {
            wave.advance_frame();
        }
        let sum = checksum(wave.advance_frame());
        assert_eq!(sum, 0xce16_8bc9_257a_63ac, "{sum:#018x}");
    }

    #[test]
    fn atomics_give_the_same_bits_in_any_order_of_rows() {
        let (width, height) = (40, 24);
        let atomics = || {
            (0..width * height)
                .map(|_| AtomicU32::new(0))
                .collect::<Vec<_>>()
        };
        let buffers = [atomics(), atomics()];
        let mut wave = Reference::new(width, height);
        for frame in 0..20 {
            for step in frame * STEPS_PER_FRAME..(frame + 1) * STEPS_PER_FRAME {
                let params = StepParams::at(width, height, step);
                let prev = prev_buffer(step);
                for y in (0..height).rev() {
                    step_row(&buffers[prev], &buffers[1 - prev], y, &params);
                }
            }
            let expected = wave.advance_frame();
            let heights: Vec<u32> = buffers[FRAME_BUFFER].iter().map(Load::load).collect();
            assert_eq!(heights, expected, "frame {frame}");
        }
    }

    #[test]
    fn rounding_does_not_make_the_field_drift() {
        let mut wave = Reference::new(96, 96);
        let mut mean = 0.0;
        for _ in 0..375 {
            let heights = wave.advance_frame();
            let total: i64 = heights.iter().map(|h| i64::from(h.cast_signed())).sum();
            mean += total as f64 / heights.len() as f64 / 375.0;
        }
        let one = f64::from(1 << super::super::FRACTION_BITS);
        assert!(mean.abs() / one < 0.02, "{}", mean / one);
    }

    #[test]
    fn any_contents_are_in_range_after_a_step() {
        let mut seed = 1_u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed
        };
        let mut prev: Vec<u32> = (0..32 * 32).map(|_| noise()).collect();
        let now: Vec<u32> = (0..32 * 32).map(|_| noise()).collect();
        step(cells(&mut prev), &now, &StepParams::at(32, 32, 5));
        assert!(
            prev.iter()
                .all(|h| (-LIMIT..=LIMIT).contains(&h.cast_signed()))
        );
        assert!(prev[..32].iter().all(|&h| h == 0), "the border is still");
    }

    #[rstest]
    #[case::empty(0, 0)]
    #[case::no_columns(0, 3)]
    #[case::no_rows(3, 0)]
    #[case::one_cell(1, 1)]
    #[case::two_columns(2, 5)]
    #[case::two_rows(5, 2)]
    #[case::one_inner_cell(3, 3)]
    fn a_tiny_field_can_be_computed(#[case] width: u32, #[case] height: u32) {
        let mut wave = Reference::new(width, height);
        wave.advance_frame();
        let cells = width as usize * height as usize;
        assert_eq!(wave.advance_frame().len(), cells);
    }

    #[test]
    fn rows_beyond_a_short_buffer_are_skipped() {
        let short = [0; 100];
        step(cells(&mut [0; 70]), &short, &StepParams::at(16, 16, 0));
    }
}
