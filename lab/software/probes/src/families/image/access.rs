//! Kernels that access images: surfaces are read and written, and textures are read.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use ash::vk;

use super::{
    FLOAT, Question, U8, U8X4, U32X4, described, imported, judged, level, mapped, plain, texels,
};
use crate::vulkan::*;

/// `CU_RESOURCE_TYPE_MIPMAPPED_ARRAY`.
const LEVELS: u32 = 1;
/// `CU_TRSF_READ_AS_INTEGER`.
const AS_INTEGER: u32 = 1;
/// An access: the coordinates of surfaces and of textures, the layer or slice, and the level.
#[derive(Clone, Copy)]
struct Access {
    geometry: &'static str,
    surface: &'static str,
    texture: &'static str,
    z: i32,
    level: u32,
    /// The texture is of the level's array alone.
    of_array: bool,
}

const PLANE: Access = access("2d", "{%byte, %y}", "{%x, %y}", 0);
const PLANES: Access = access("a2d", "{%z, %byte, %y, %y}", "{%z, %x, %y, %y}", 1);
const VOLUME: Access = access("3d", "{%byte, %y, %z, %z}", "{%x, %y, %z, %z}", 2);
const VOLUME_1: Access = Access {
    z: 1,
    ..VOLUME.level(1)
};

const fn access(
    geometry: &'static str,
    surface: &'static str,
    texture: &'static str,
    z: i32,
) -> Access {
    let (level, of_array) = (0, false);
    Access {
        geometry,
        surface,
        texture,
        z,
        level,
        of_array,
    }
}

impl Access {
    const fn level(self, level: u32) -> Self {
        Self { level, ..self }
    }

    fn of_array(self) -> Self {
        Self {
            of_array: true,
            ..self
        }
    }
}

fn rgba8() -> Question {
    plain(vk::Format::R8G8B8A8_UINT, 4, U8X4)
}

pub(crate) fn list(all: &mut Probes) {
    use vk::Format as F;
    let volume = rgba8().extent(3, [61, 37, 5]);
    let accesses = [
        ("kernel_rgba8", (rgba8(), PLANE)),
        ("kernel_level", (rgba8().levels(4), PLANE.level(1))),
        ("kernel_behind_buffer", (rgba8().behind_buffer(), PLANE)),
        ("kernel_layer", (rgba8().layers(3), PLANES)),
        ("kernel_face", (rgba8().cube(6), PLANES)),
        ("kernel_slice", (volume, VOLUME)),
        ("kernel_slice_of_level", (volume.levels(2), VOLUME_1)),
        (
            "kernel_array_level",
            (rgba8().levels(4), PLANE.level(1).of_array()),
        ),
        ("kernel_array_slice", (volume, VOLUME.of_array())),
        // A layer without its number: which one is it?
        ("kernel_layer_unsaid", (rgba8().layers(3), PLANE)),
        ("kernel_slice_unsaid", (volume, PLANE)),
        ("kernel_srgb", (plain(F::R8G8B8A8_SRGB, 4, U8X4), PLANE)),
        ("kernel_r8", (plain(F::R8_UINT, 1, U8), PLANE)),
        ("kernel_r32f", (plain(F::R32_SFLOAT, 4, FLOAT), PLANE)),
        (
            "kernel_rgba32",
            (plain(F::R32G32B32A32_UINT, 16, U32X4), PLANE),
        ),
    ];
    all.each("image", &accesses, |(question, access)| {
        exchange(question, access)
    });
    all.each("image", FAULTS, |(x, before, instruction)| {
        fault(&format!("{before}{instruction}"), x);
    });
    all.family("image", &[("kernel_outside", outside)]);
}

pub(super) const LOAD: &str = "suld.b.2d.b32.trap {%r0}, [%object, {%byte, %y}];";
const LOAD_ZERO: &str = "suld.b.2d.b32.zero {%r0}, [%object, {%byte, %y}];";
const LOAD_ROW: &str = "suld.b.1d.b32.trap {%r0}, [%object, {%byte}];";
const LOAD_LAYER: &str = "suld.b.a2d.b32.trap {%r0}, [%object, {%z, %byte, %y, %y}];";
const STORE: &str = "sust.b.2d.b32.trap [%object, {%byte, %y}], {%r0};";

/// The column of the texel, and two instructions.
const FAULTS: Table<(i32, &str, &str)> = &[
    ("kernel_trap_load", (61, "", LOAD)),
    ("kernel_trap_store", (61, "", STORE)),
    ("kernel_misaligned_load", (0, "mov.s32 %byte, 2; ", LOAD)),
    (
        "kernel_misaligned_zero",
        (0, "mov.s32 %byte, 2; ", LOAD_ZERO),
    ),
    ("kernel_object_0", (0, "mov.u64 %object, 0; ", LOAD)),
    ("kernel_as_row", (0, "", LOAD_ROW)),
    ("kernel_as_layers", (0, "", LOAD_LAYER)),
    ("kernel_as_second_layer", (0, "mov.s32 %z, 1; ", LOAD_LAYER)),
];

/// An image that CUDA has mapped, with a surface and a texture.
struct Opened {
    image: SharedImage,
    surface: u64,
    texture: u64,
}

/// Opens a level of an image. The texture is of this level alone or of all.
fn open(question: &Question, number: u32, of_array: bool, flags: u32) -> Opened {
    let image = vulkan().shared_image(question.shape);
    let (code, array) = mapped(imported(&image), &described(question));
    check(code);
    let (code, one) = level(array, number);
    check(code);
    let (code, surface) = surface(one);
    check(code);
    let (kind, array) = if of_array { (0, one) } else { (LEVELS, array) };
    let resource = ResourceDesc {
        kind,
        array,
        ..Default::default()
    };
    let desc = TextureDesc {
        flags,
        levels: [0., if of_array { 0. } else { 16. }],
        ..Default::default()
    };
    let mut texture = 0;
    check(texture_create(&mut texture, &resource, &desc, 0));
    Opened {
        image,
        surface,
        texture,
    }
}

/// An image of whole numbers that Vulkan has written, and its texels.
fn written(question: &Question) -> (Opened, Vec<u8>) {
    let mut opened = open(question, 0, false, AS_INTEGER);
    let shape = opened.image.shape;
    let written = texels(&shape, shape.places().1, 1);
    opened.image.write(&written);
    (opened, written)
}

/// Runs an instruction for one texel. Returns the result and its words.
fn run_one(instruction: &str, object: u64, at: [i32; 3], level: u32) -> (Code, [u32; 4]) {
    let mut words = [[VALUE; 4]];
    let code = run(instruction, 4, object, (at, level), [1, 1], &mut words);
    (code, words[0])
}

/// What a word has before an access.
const VALUE: u32 = 0x5555_5555;
const TEX: &str = "tex.2d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%object, {%x, %y}];";
const TEX_LEVEL: &str =
    "tex.level.2d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%object, {%x, %y}], %level;";

/// A result, and whether words are those of the nearest texel, zero, or something else.
fn seen(code: Code, words: &[u32], nearest: &[u32]) -> String {
    let seen = match words {
        words if words == nearest => "nearest".into(),
        words if words.iter().all(|word| *word == 0) => "zero".into(),
        words => format!("{words:x?}"),
    };
    format!("{code}, {seen}")
}

/// A surface of an array.
pub(super) fn surface(array: Handle) -> (Code, u64) {
    let mut surface = 0;
    let resource = ResourceDesc {
        array,
        ..Default::default()
    };
    (surface_create(&mut surface, &resource), surface)
}

/// Runs an instruction for texels from a place on, each with four words. Returns the result.
pub(super) fn run(
    instruction: &str,
    bytes: usize,
    object: u64,
    (at, level): ([i32; 3], u32),
    size: [u32; 2],
    words: &mut [[u32; 4]],
) -> Code {
    let text = include_str!("access.ptx")
        .replace("BYTES", &bytes.to_string())
        .replace("INSTRUCTION", instruction);
    let kernel = kernel_of(module_of(&format!("{text}\0")), c"access");
    let (host, length) = (words.as_mut_ptr() as usize, size_of_val(words));
    let memory = alloc(length);
    check(memcpy_htod(memory, host, length));
    let [x, y, z] = at.map(|at| u64::from(at.cast_unsigned()));
    let params = [memory, object, x, y, z, level.into()];
    let pointers = params.each_ref().map(std::ptr::from_ref);
    let (grid, pointers) = (size, pointers.as_ptr() as usize);
    let code = launch_kernel(kernel, grid[0], grid[1], 1, 1, 1, 1, 0, 0, pointers, 0);
    check(code);
    let code = ctx_synchronize();
    match code.number {
        0 => memcpy_dtoh(host, memory, length),
        _ => code,
    }
}

/// Reads what Vulkan has written through both objects, and writes through the surface.
fn exchange(question: Question, access: Access) {
    let Access {
        geometry,
        surface: place,
        texture: coordinates,
        z,
        level,
        of_array,
    } = access;
    let (shape, bytes) = (question.shape, question.shape.block.0);
    let is_float = question.format == FLOAT;
    let flags = if is_float { 0 } else { AS_INTEGER };
    let mut opened = open(&question, level, of_array, flags);
    let (places, size) = shape.places();
    let [width, height, _] = shape.blocks(level);
    // The texels of the layer or slice.
    let count = width * height;
    let start = places[level as usize] + z as usize * count * bytes;
    let range = start..start + count * bytes;
    let run = |instruction: &str, object, words: &mut [[u32; 4]]| {
        let size = [width as u32, height as u32];
        run(instruction, bytes, object, ([0, 0, z], level), size, words)
    };
    let (unit, list) = match bytes {
        8 => ("v2.b32", "{%r0, %r1}"),
        16 => ("v4.b32", "{%r0, %r1, %r2, %r3}"),
        4 => ("b32", "{%r0}"),
        _ => ("b8", "{%r0}"),
    };
    let texels = |seed| texels(&shape, size, seed);
    let written = texels(1);
    opened.image.write(&written);
    let mut words = vec![[0; 4]; count];
    let load = format!("suld.b.{geometry}.{unit}.trap {list}, [%object, {place}];");
    let code = run(&load, opened.surface, &mut words);
    let texel = |words: &[u32; 4]| {
        words
            .map(u32::to_le_bytes)
            .into_iter()
            .flatten()
            .take(bytes)
    };
    let seen: Vec<u8> = words.iter().flat_map(texel).collect();
    line("suld", judged(code, &written[range.clone()], &seen, bytes));
    if code != 0 {
        return;
    }

    let mut new = texels(2);
    for (words, texel) in words.iter_mut().zip(new[range.clone()].chunks(bytes)) {
        for (word, bytes) in words.iter_mut().zip(texel.chunks(4)) {
            *word = extended(bytes);
        }
    }
    let store = format!("sust.b.{geometry}.{unit}.trap [%object, {place}], {list};");
    let code = run(&store, opened.surface, &mut words);
    let seen = opened.image.read();
    let [one, other] = [&new, &seen].map(|bytes| &bytes[range.clone()]);
    line("sust", judged(code, one, other, bytes));
    // All other texels are as before.
    let rest = |bytes: &[u8]| [&bytes[..range.start], &bytes[range.end..]].concat();
    let others = judged(code, &rest(&written), &rest(&seen), bytes);
    line("others", others);
    new.copy_from_slice(&seen);

    let channels = question.format.1 as usize;
    let components = new[range].chunks(bytes / channels).map(extended);
    let expected: Vec<u8> = components.flat_map(u32::to_le_bytes).collect();
    let ty = if is_float { "f32" } else { "u32" };
    let d = "{%r0, %r1, %r2, %r3}";
    let base = format!("tex.{geometry}.v4.{ty}.s32 {d}, [%object, {coordinates}];");
    let of_level =
        format!("tex.level.{geometry}.v4.{ty}.s32 {d}, [%object, {coordinates}], %level;");
    for (what, instruction) in [("tex_level", of_level), ("tex", base)] {
        // Without a level, a texture of all of them is read at the first.
        let is_meant = if of_array {
            what == "tex"
        } else {
            what != "tex" || level == 0
        };
        if !is_meant {
            continue;
        }
        let mut words = vec![[VALUE; 4]; count];
        let code = run(&instruction, opened.texture, &mut words);
        let texels = words.iter().flat_map(|texel| &texel[..channels]);
        let seen: Vec<u8> = texels.flat_map(|word| word.to_le_bytes()).collect();
        line(what, judged(code, &expected, &seen, 4 * channels));
        if channels < 4 {
            // The components that the texels do not have.
            let rest = format!("{:x?}", &words[0][channels..]);
            line(format!("{what}_rest"), rest);
        }
    }
}

/// At most 4 bytes as a word.
fn extended(bytes: &[u8]) -> u32 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Accesses beyond the edges, without a trap.
fn outside() {
    let (opened, written) = written(&rgba8().levels(2));
    let (surface, texture) = (opened.surface, opened.texture);
    // Texel 0, 3 is the nearest one to the left, and 5, 36 is the nearest one below.
    for (what, [x, y], nearest) in [("left", [-1, 3], 183), ("below", [5, 37], 2201)] {
        let bytes = [0, 1, 2, 3].map(|byte| written[4 * nearest + byte]);
        let (at, word) = ([x, y, 0], [u32::from_le_bytes(bytes)]);
        for clamp in ["zero", "clamp"] {
            let load = format!("suld.b.2d.b32.{clamp} {{%r0}}, [%object, {{%byte, %y}}];");
            let (code, words) = run_one(&load, surface, at, 0);
            let seen = seen(code, &words[..1], &word);
            line(format!("suld_{clamp}.{what}"), seen);
        }
        for (part, tex) in [("tex_0", TEX), ("tex.level_0", TEX_LEVEL)] {
            let (code, words) = run_one(tex, texture, at, 0);
            let seen = seen(code, &words, &bytes.map(u32::from));
            line(format!("{part}.{what}"), seen);
        }
    }
    for (what, level) in [("level_2", 2), ("level_minus_1", u32::MAX)] {
        let (code, [r, g, b, a]) = run_one(TEX_LEVEL, texture, [0; 3], level);
        line(what, format!("{code}, {r:x} {g:x} {b:x} {a:x}"));
    }
}

/// An access that may be a fault: its result, and the word that is loaded if it is none.
fn fault(instruction: &str, x: i32) {
    let (opened, written) = written(&rgba8());
    let (code, words) = run_one(instruction, opened.surface, [x, 0, 0], 0);
    line("result", code);
    if code == 0 {
        let first = u32::from_le_bytes([0, 1, 2, 3].map(|byte| written[byte]));
        let what = match words[0] {
            0 => "zero",
            word if word == first => "the first texel",
            _ => "something else",
        };
        line("word", what);
    }
    line("context", ctx_synchronize());
}
