//! The kernels of the demo: a wave field in fixed-point integers.
//!
//! They exist once for each place where they can run. A [`scene`](super::scene) shows the field.
//!
//! # One formula, four spellings
//!
//! | where  | source                     | what runs            |
//! |--------|----------------------------|----------------------|
//! | CPU    | [`mod@reference`]          | the Rust itself      |
//! | CUDA   | `wave.cu`, for reading     | `wave.ptx`, by hand  |
//! | Vulkan | `step.comp`, `delay.comp`  | the `.spv` beside it |
//!
//! All of them give the same bits, so the demo can *compare* frames: a missing wait between two
//! devices is a different checksum. For this, nothing may depend on the platform. The kernels use
//! 32-bit integers only, every addition and multiplication wraps, every shift to the right is
//! arithmetic, and nothing is divided. Only the emitters need some trigonometry. The CPU computes
//! them once and passes them to the kernels as parameters ([`StepParams`]).
//!
//! # The model
//!
//! A field of `width * height` heights, `i32` with [`FRACTION_BITS`] fractional
//! bits, stored row by row. One step is the damped wave equation on the
//! five-point stencil:
//!
//! ```text
//! around = left + right + up + down
//! accel  = ((around - 4 * now) * SPEED_FACTOR + round) >> SPEED_SHIFT
//! free   = 2 * now - prev + accel + force
//! next   = clamp(free - ((free + round) >> DAMPING_SHIFT), -LIMIT, LIMIT)
//! ```
//!
//! Each `round` is half of what its shift divides by. Without it every shift
//! would round down, and the field, which integrates twice, would drift.
//! Cells on the border are always 0, so waves reflect there. `force` is the sum
//! over [`EMITTERS`] small bumps that move and oscillate.
//!
//! # Two buffers
//!
//! A step overwrites `prev` with `next`: a cell reads only its own `prev`, so
//! this needs no third buffer and no order between cells. The two buffers then
//! swap roles. [`prev_buffer`] says which is which; as [`STEPS_PER_FRAME`] is
//! even, every frame ends in [`FRAME_BUFFER`]. Both start as zeros.

mod params;
pub mod reference;

pub use params::{Emitter, StepParams};

/// Steps between two pictures.
pub const STEPS_PER_FRAME: u32 = 8;

/// The buffer, of the two, that holds the newest heights when a frame is done.
pub const FRAME_BUFFER: usize = prev_buffer(STEPS_PER_FRAME - 1);

// Were the number odd, frames would end in either buffer in turn.
const _: () = assert!(STEPS_PER_FRAME.is_multiple_of(2));

/// Which of the two height buffers is `prev` in step `step`.
///
/// The step overwrites it. The other one is `now`.
#[must_use]
pub const fn prev_buffer(step: u32) -> usize {
    (step & 1) as usize
}

/// Fractional bits of a height.
pub const FRACTION_BITS: u32 = 16;

/// No height leaves `-LIMIT..=LIMIT` (8.0).
///
/// Heights stay near 1.0 by themselves; the bound is there so that, whatever a
/// buffer held before, the arithmetic has settled far from overflow after one
/// step.
pub const LIMIT: i32 = 8 << FRACTION_BITS;

/// With [`SPEED_SHIFT`], the wave speed squared: 3/8, in cells per step.
/// The stencil is stable up to 1/2.
pub const SPEED_FACTOR: i32 = 3;

/// See [`SPEED_FACTOR`].
pub const SPEED_SHIFT: u32 = 3;

/// A step takes 2<sup>-`DAMPING_SHIFT`</sup> off a height.
///
/// So a wave has less than half of its height when it has crossed 512 cells.
pub const DAMPING_SHIFT: u32 = 9;

/// How many emitters a step has.
pub const EMITTERS: usize = 3;

/// Fractional bits of an emitter's position. Whole cells would make a moving
/// emitter jump, and each jump would send out a ripple of its own.
pub const POSITION_BITS: u32 = 4;

/// Radius of an emitter's bump, in the units of its position (six cells).
pub const EMITTER_REACH: i32 = 6 << POSITION_BITS;

/// The scale of forces.
///
/// An emitter pushes a cell at distance `d` by `(amplitude * max(0, EMITTER_REACH^2 - d^2)) >>
/// FORCE_SHIFT`.
pub const FORCE_SHIFT: u32 = 16;

/// Side of a block (CUDA) or workgroup (Vulkan) of `step`.
///
/// Each has two dimensions. [`group_count`] gives the grid.
pub const GROUP_SIDE: u32 = 16;

/// Number of groups of [`GROUP_SIDE`] that cover `cells` cells along one side.
///
/// The kernels ignore invocations outside the field.
#[must_use]
pub const fn group_count(cells: u32) -> u32 {
    cells.div_ceil(GROUP_SIDE)
}

/// The most iterations of the Vulkan `delay` kernel that every device performs:
/// llvmpipe, which is lavapipe's engine, silently ends a loop after 65,535
/// rounds. For a longer delay, dispatch it more than once.
pub const DELAY_MAX_ITERATIONS: u32 = 65_000;

/// The CUDA kernels `step` and `delay`, as PTX text without a
/// terminating NUL. The parameters are listed above each entry in the file.
pub const WAVE_PTX: &str = include_str!("wave.ptx");

/// SPIR-V of `step.comp`, entry point `main`; see [`spirv_words`].
pub const STEP_SPV: &[u8] = include_bytes!("step.spv");

/// SPIR-V of `delay.comp`, entry point `main`; see [`spirv_words`].
pub const DELAY_SPV: &[u8] = include_bytes!("delay.spv");

/// Turns the bytes of a SPIR-V file, little-endian, into the words that Vulkan
/// takes. `include_bytes!` promises no alignment, hence a copy and not a cast.
/// Bytes beyond the last whole word are dropped.
#[must_use]
pub fn spirv_words(bytes: &[u8]) -> Vec<u32> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::step(STEP_SPV)]
    #[case::delay(DELAY_SPV)]
    fn spirv_files_are_spirv(#[case] file: &[u8]) {
        const MAGIC: u32 = 0x0723_0203;
        assert_eq!(file.len() % 4, 0);
        assert_eq!(spirv_words(file).first(), Some(&MAGIC));
    }

    #[rstest]
    #[case::step("step")]
    #[case::delay("delay")]
    fn ptx_has_an_entry_for_each_kernel(#[case] kernel: &str) {
        assert!(WAVE_PTX.contains(&format!(".visible .entry {kernel}(")));
    }

    #[test]
    fn ptx_is_ascii_without_a_nul() {
        assert!(WAVE_PTX.is_ascii() && !WAVE_PTX.contains('\0'));
    }

    #[test]
    fn groups_cover_the_field() {
        assert_eq!([1, 16, 17, 200].map(group_count), [1, 1, 2, 13]);
    }

    #[test]
    fn steps_alternate_between_the_buffers() {
        assert_eq!([0, 1, 2, u32::MAX].map(prev_buffer), [0, 1, 0, 1]);
        assert_eq!(FRAME_BUFFER, 1);
    }
}
