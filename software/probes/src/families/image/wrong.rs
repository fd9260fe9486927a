//! Images that CUDA describes in a way that cannot be right.

use super::access::{run, surface};
use super::{COLOUR, CUBE, LAYERED, Question, SURFACE, described, imported, level, mapped, rgba8};
use crate::cuda::{ArrayDesc, cu};
use crate::harness::{Probe, line};
use crate::kit::{Answer, check, context, name};
use crate::vulkan::Vulkan;

/// What is said wrongly.
type Change = fn(&mut ArrayDesc);

/// An image of 64 x 64 texels and one level.
fn square() -> Question {
    rgba8().extent(2, [64, 64, 1])
}

pub(super) fn list() -> Vec<Probe> {
    let (one, six, twelve) = (square(), rgba8().cube(6), rgba8().cube(12));
    let changes: Vec<(&str, Question, Change)> = vec![
        ("width_0", one, |desc| desc.extent[0] = 0),
        ("height_0", one, |desc| desc.extent[1] = 0),
        ("extent_0", one, |desc| desc.extent = [0; 3]),
        ("depth_1", one, |desc| desc.extent[2] = 1),
        ("extent_twice", one, |desc| desc.extent = [128, 128, 0]),
        ("extent_huge", one, |desc| {
            desc.extent = [1 << 20, 1 << 20, 0]
        }),
        ("width_half", one, |desc| desc.extent[0] = 32),
        ("levels_0", one, |desc| desc.levels = 0),
        ("levels_2", one, |desc| desc.levels = 2),
        ("levels_7", one, |desc| desc.levels = 7),
        ("levels_8", one, |desc| desc.levels = 8),
        ("levels_20", one, |desc| desc.levels = 20),
        ("offset_4", one, |desc| desc.offset = 4),
        ("offset_512", one, |desc| desc.offset = 512),
        ("offset_end", one, |desc| desc.offset = 1 << 16),
        ("offset_beyond", one, |desc| desc.offset = 1 << 30),
        ("offset_wraps", one, |desc| desc.offset = u64::MAX - 1023),
        ("channels_0", one, |desc| desc.channels = 0),
        ("channels_3", one, |desc| desc.channels = 3),
        ("channels_5", one, |desc| desc.channels = 5),
        ("format_0", one, |desc| desc.format = 0),
        ("format_unknown", one, |desc| desc.format = 0x77),
        ("flags_unknown", one, |desc| desc.flags = 0x8000_0000),
        ("colour_unmade", one, |desc| desc.flags = SURFACE | COLOUR),
        ("reserved", one, |desc| desc.reserved = [1; 16]),
        ("layers_unflagged", six, |desc| desc.flags = SURFACE),
        ("layers_0", six, |desc| {
            (desc.extent[2], desc.flags) = (0, SURFACE | LAYERED);
        }),
        ("cube_5", six, |desc| desc.extent[2] = 5),
        ("cube_7", six, |desc| desc.extent[2] = 7),
        ("cube_0", six, |desc| desc.extent[2] = 0),
        ("cubes_11", twelve, |desc| desc.extent[2] = 11),
        ("cubes_flat", twelve, |desc| desc.flags = SURFACE | CUBE),
        ("cube_not_square", six, |desc| desc.extent[1] = 32),
    ];
    let changes = changes.into_iter().map(|(what, question, change)| {
        Probe::new(format!("image.wrong_{what}"), move || {
            wrong(question, change)
        })
    });
    let surface = Probe::new("image.wrong_surface_unflagged", unflagged);
    changes.chain([surface]).collect()
}

/// The result of the mapping, of its levels, and whether the context lives.
fn wrong(question: Question, change: Change) -> Answer {
    context()?;
    let image = Vulkan::open()?.shared_image(question.shape)?;
    line("memory", format!("~{} bytes", image.size));
    let mut desc = described(&question);
    change(&mut desc);
    let (code, array) = mapped(imported(&image)?, &desc);
    line("map", name(code));
    if code == 0 {
        let last = desc.levels.max(1) - 1;
        line("last_level", name(level(array, last).0));
        line("next_level", name(level(array, last + 1).0));
    }
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

/// A surface of an array that was not made for surfaces.
fn unflagged() -> Answer {
    context()?;
    let question = square().flags(0);
    let image = Vulkan::open()?.shared_image(question.shape)?;
    let (code, array) = mapped(imported(&image)?, &described(&question));
    check("cuExternalMemoryGetMappedMipmappedArray", code)?;
    let (code, array) = level(array, 0);
    check("cuMipmappedArrayGetLevel", code)?;
    let (code, surface) = surface(array);
    line("surface", name(code));
    if code == 0 {
        let load = "suld.b.2d.b32.trap {%r0}, [%object, {%byte, %y}];";
        let code = run(load, 4, surface, ([0; 3], 0), [1, 1], &mut [[0; 4]])?;
        line("suld", name(code));
    }
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}
