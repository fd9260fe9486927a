//! The parameters of a step, besides the two buffers.

use super::{EMITTERS, POSITION_BITS};

/// A bump that pushes the water up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emitter {
    /// Centre, in cells, with [`POSITION_BITS`] fractional bits.
    pub x: i32,
    /// As [`x`](Self::x), downwards.
    pub y: i32,
    /// Strength and direction of the push; see [`FORCE_SHIFT`](super::FORCE_SHIFT).
    pub amplitude: i32,
}

/// The parameters of one step. [`words`](Self::words) has them as the kernels take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepParams {
    /// Cells in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The emitters, as they are in this step.
    pub emitters: [Emitter; EMITTERS],
}

/// The path and the tone of an emitter. Lengths are in sixteenths of the field,
/// rates relative to those that [`StepParams::at`] derives from its size.
struct Path {
    centre: [i64; 2],
    radius: [i64; 2],
    /// Turns per common turn, along each axis; a minus sign turns the other way.
    turns: [i32; 2],
    /// Where on the path it starts, as a fraction of 2<sup>32</sup>.
    start: u32,
    /// Eighths of the common frequency.
    tone: u32,
}

/// Three slightly detuned emitters on paths that neither meet nor repeat soon:
/// equal tones on fixed places would freeze into a standing pattern.
const PATHS: [Path; EMITTERS] = [
    Path {
        centre: [5, 6],
        radius: [3, 3],
        turns: [1, 1],
        start: 0,
        tone: 8,
    },
    Path {
        centre: [11, 10],
        radius: [3, 4],
        turns: [-1, -1],
        start: 1 << 30,
        tone: 9,
    },
    Path {
        centre: [8, 8],
        radius: [6, 5],
        turns: [1, 2],
        start: 5 << 29,
        tone: 7,
    },
];

/// What [`arc`] calls 1.0.
const ARC_ONE: i32 = 1 << 14;

/// Approximates a sine; a phase of 2<sup>32</sup> is a full turn.
///
/// It consists of two parabolas, which integers compute exactly. The range is `-ARC_ONE..=ARC_ONE`.
const fn arc(phase: u32) -> i32 {
    let half_turn = (phase >> 16) & 0x7fff;
    let height = ((half_turn * (0x8000 - half_turn)) >> 14).cast_signed();
    if phase >> 31 == 0 { height } else { -height }
}

/// The phase step that makes a full turn in `numerator / denominator` steps.
fn rate(numerator: u32, denominator: u32) -> u32 {
    let turn = (1_u64 << 32) * u64::from(denominator) / u64::from(numerator.max(1));
    u32::try_from(turn).unwrap_or(u32::MAX)
}

impl StepParams {
    /// Words in [`words`](Self::words).
    pub const WORDS: usize = 2 + 3 * EMITTERS;

    /// The parameters of step `step`, counted from 0 over all frames.
    ///
    /// Everything scales with the field of `width * height`, so that a small one and a large one
    /// show the same scene. Emitters keep their speed, well below that of the waves, and take
    /// longer for their larger paths. The wavelength grows as well, up to a bound above which the
    /// picture would look blurred.
    #[must_use]
    pub fn at(width: u32, height: u32, step: u32) -> Self {
        let side = width.min(height).max(1);
        let wavelength = (side / 16).clamp(10, 32);
        // Waves move sqrt(3/8), or about 8/13, cells a step.
        let swing = rate(wavelength * 13, 8);
        let orbit = rate(side.saturating_mul(16), 1);

        let place = |cells: u32, centre: i64, radius: i64, phase: u32| {
            let sixteenths = centre * i64::from(ARC_ONE) + radius * i64::from(arc(phase));
            let scaled = (i64::from(cells) * sixteenths) << POSITION_BITS;
            // A sixteenth, and the fraction of `arc`. Fits unless a side has
            // more than 2^27 cells, far beyond what can be allocated.
            (scaled >> (4 + ARC_ONE.ilog2())) as i32
        };
        let emitters = PATHS.map(|path| {
            let turned = step.wrapping_mul(orbit);
            let along = |turns: i32| {
                turned
                    .wrapping_mul(turns.cast_unsigned())
                    .wrapping_add(path.start)
            };
            const QUARTER_TURN: u32 = 1 << 30;
            let [across, down] = path.turns.map(along);
            Emitter {
                x: place(width, path.centre[0], path.radius[0], across),
                y: place(
                    height,
                    path.centre[1],
                    path.radius[1],
                    down.wrapping_add(QUARTER_TURN),
                ),
                amplitude: arc(step.wrapping_mul(swing / 8 * path.tone)),
            }
        });
        Self {
            width,
            height,
            emitters,
        }
    }

    /// The parameters in the order of the kernels: width, height, then each emitter.
    ///
    /// An emitter has `x`, `y` and `amplitude`. On CUDA each word is one 32-bit parameter behind
    /// the two buffers. On Vulkan the words are the push constants.
    #[must_use]
    pub fn words(&self) -> [u32; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        let emitters = self
            .emitters
            .iter()
            .flat_map(|emitter| [emitter.x, emitter.y, emitter.amplitude])
            .map(i32::cast_unsigned);
        let all = [self.width, self.height].into_iter().chain(emitters);
        for (word, value) in words.iter_mut().zip(all) {
            *word = value;
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn arc_is_a_wave() {
        assert_eq!(arc(0), 0);
        assert_eq!(arc(1 << 30), ARC_ONE);
        assert_eq!(arc(1 << 31), 0);
        assert_eq!(arc(3 << 30), -ARC_ONE);
    }

    #[rstest]
    #[case::small(64)]
    #[case::demo(512)]
    #[case::large(4096)]
    fn emitters_stay_inside_and_move(#[case] side: u32) {
        let mut seen = Vec::new();
        for step in (0..100_000).step_by(97) {
            let params = StepParams::at(side, side, step);
            for emitter in params.emitters {
                let inside = 0..=(side << POSITION_BITS).cast_signed();
                assert!(inside.contains(&emitter.x) && inside.contains(&emitter.y));
            }
            seen.push(params.emitters[0].x);
        }
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 100);
    }

    #[test]
    fn words_are_in_the_documented_order() {
        let params = StepParams {
            width: 1,
            height: 2,
            emitters: [0, 1, 2].map(|n| Emitter {
                x: 3 + 3 * n,
                y: 4 + 3 * n,
                amplitude: 5 + 3 * n,
            }),
        };
        assert_eq!(params.words(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }
}
