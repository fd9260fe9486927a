//! Images that CUDA describes in a way that cannot be right.

use super::access::{LOAD, run, surface};
use super::{COLOUR, Question, SURFACE, described, imported, level, mapped, rgba8};
use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

/// What is said wrongly.
type Change = fn(&mut ArrayDesc);

/// An image of 64 x 64 texels and one level.
fn square() -> Question {
    rgba8().extent(2, [64, 64, 1])
}

pub(crate) fn list(all: &mut Probes) {
    let (one, six) = (square(), rgba8().cube(6));
    let changes: [(&str, (Question, Change)); 18] = [
        ("wrong_width_0", (one, |desc| desc.extent[0] = 0)),
        ("wrong_height_0", (one, |desc| desc.extent[1] = 0)),
        ("wrong_depth_1", (one, |desc| desc.extent[2] = 1)),
        (
            "wrong_extent_twice",
            (one, |desc| desc.extent = [128, 128, 0]),
        ),
        ("wrong_width_half", (one, |desc| desc.extent[0] = 32)),
        ("wrong_levels_2", (one, |desc| desc.levels = 2)),
        ("wrong_levels_8", (one, |desc| desc.levels = 8)),
        ("wrong_offset_512", (one, |desc| desc.offset = 512)),
        ("wrong_offset_beyond", (one, |desc| desc.offset = 1 << 30)),
        (
            "wrong_offset_wraps",
            (one, |desc| desc.offset = u64::MAX - 1023),
        ),
        ("wrong_channels_3", (one, |desc| desc.channels = 3)),
        ("wrong_format_unknown", (one, |desc| desc.format = 0x77)),
        (
            "wrong_flags_unknown",
            (one, |desc| desc.flags = 0x8000_0000),
        ),
        (
            "wrong_colour_unmade",
            (one, |desc| desc.flags = SURFACE | COLOUR),
        ),
        ("wrong_reserved", (one, |desc| desc.reserved = [1; 16])),
        ("wrong_cube_5", (six, |desc| desc.extent[2] = 5)),
        ("wrong_cube_7", (six, |desc| desc.extent[2] = 7)),
        ("wrong_cube_not_square", (six, |desc| desc.extent[1] = 32)),
    ];
    all.each("image", &changes, |(question, change)| {
        wrong(question, change)
    });
    all.family("image", &[("wrong_surface_unflagged", unflagged)]);
}

/// The result of the mapping, of its levels, and whether the context lives.
fn wrong(question: Question, change: Change) {
    let image = vulkan().shared_image(question.shape);
    let mut desc = described(&question);
    change(&mut desc);
    let (code, array) = mapped(imported(&image), &desc);
    line("map", code);
    if code == 0 {
        let last = desc.levels.max(1) - 1;
        line("last_level", level(array, last).0);
        line("next_level", level(array, last + 1).0);
    }
    line("context", ctx_synchronize());
}

/// A surface of an array that was not made for surfaces.
fn unflagged() {
    let question = square().flags(0);
    let image = vulkan().shared_image(question.shape);
    let (code, array) = mapped(imported(&image), &described(&question));
    check(code);
    let (code, array) = level(array, 0);
    check(code);
    let (code, surface) = surface(array);
    line("surface", code);
    if code == 0 {
        let code = run(LOAD, 4, surface, ([0; 3], 0), [1, 1], &mut [[0; 4]]);
        line("suld", code);
    }
    line("context", ctx_synchronize());
}
