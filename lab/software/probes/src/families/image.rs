//! Images of Vulkan's that CUDA maps as arrays: which are the same texels on both sides.

mod access;
mod wrong;

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use ash::vk;

use super::external_memory::import_fd;
use crate::vulkan::*;

/// `CU_AD_FORMAT_*`, and the number of channels.
type Format = (u32, u32);

const U8: Format = (1, 1);
const U8X4: Format = (1, 4);
const U16: Format = (2, 1);
const U32: Format = (3, 1);
const U32X4: Format = (3, 4);
const HALF4: Format = (0x10, 4);
const FLOAT: Format = (0x20, 1);
const BC1: Format = (0x91, 4);
const BC7: Format = (0x9d, 4);
const UNORM_101010_2: Format = (0x50, 4);

const LAYERED: u32 = 1;
const SURFACE: u32 = 2;
const CUBE: u32 = 4;
const DEPTH: u32 = 0x10;
const COLOUR: u32 = 0x20;

/// Kind of memory in a copy.
const HOST: u32 = 1;
const ARRAY: u32 = 3;

const TRANSFERS: vk::ImageUsageFlags = vk::ImageUsageFlags::from_raw(
    vk::ImageUsageFlags::TRANSFER_SRC.as_raw()
        | vk::ImageUsageFlags::TRANSFER_DST.as_raw()
        | vk::ImageUsageFlags::SAMPLED.as_raw(),
);

/// A question: an image, and what CUDA is told of it.
#[derive(Clone, Copy)]
struct Question {
    shape: Shape,
    format: Format,
    flags: u32,
}

/// Two dimensions, one level, one layer.
fn plain(format: vk::Format, bytes: usize, cuda: Format) -> Question {
    Question {
        shape: Shape {
            dimensions: 2,
            format,
            extent: [61, 37, 1],
            levels: 1,
            layers: 1,
            is_cube: false,
            is_linear: false,
            block: (bytes, 1),
            usage: TRANSFERS,
            offset: 0,
        },
        format: cuda,
        flags: SURFACE,
    }
}

fn rgba8() -> Question {
    plain(vk::Format::R8G8B8A8_UNORM, 4, U8X4)
}

impl Question {
    fn extent(mut self, dimensions: u32, extent: [u32; 3]) -> Self {
        (self.shape.dimensions, self.shape.extent) = (dimensions, extent);
        self
    }

    fn levels(mut self, levels: u32) -> Self {
        self.shape.levels = levels;
        self
    }

    fn layers(mut self, layers: u32) -> Self {
        self.shape.layers = layers;
        self.flags |= LAYERED;
        self
    }

    fn cube(mut self, layers: u32) -> Self {
        self.shape.extent = [64, 64, 1];
        (self.shape.layers, self.shape.is_cube) = (layers, true);
        self.flags |= if layers > 6 { LAYERED | CUBE } else { CUBE };
        self
    }

    fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    fn attachment(mut self) -> Self {
        self.shape.usage |= vk::ImageUsageFlags::COLOR_ATTACHMENT;
        self.flags(SURFACE | COLOUR)
    }

    fn depth(mut self, flags: u32) -> Self {
        self.shape.usage |= vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT;
        self.flags(flags)
    }

    fn blocks(mut self, bytes: usize) -> Self {
        (self.shape.block, self.shape.extent) = ((bytes, 4), [64, 36, 1]);
        self
    }

    fn behind_buffer(mut self) -> Self {
        self.shape.offset = 0x1_0000;
        self
    }

    fn linear(mut self) -> Self {
        self.shape.is_linear = true;
        self
    }
}

pub(crate) fn list(all: &mut Probes) {
    use vk::Format as F;
    let row = rgba8().extent(1, [61, 1, 1]);
    let volume = rgba8().extent(3, [61, 37, 5]);
    let (d32, d16) = (plain(F::D32_SFLOAT, 4, FLOAT), plain(F::D16_UNORM, 2, U16));
    let bc1 = plain(F::BC1_RGBA_UNORM_BLOCK, 8, BC1).blocks(8);
    let a2b10g10r10 = F::A2B10G10R10_UNORM_PACK32;
    let questions = [
        ("plain", rgba8()),
        ("levels", rgba8().levels(4)),
        ("layers", rgba8().layers(3)),
        ("levels_and_layers", rgba8().levels(4).layers(3)),
        ("linear", rgba8().linear()),
        ("attachment", rgba8().attachment()),
        ("one_dimension_odd", row),
        ("one_dimension_levels", row.levels(4)),
        ("one_dimension_layers", row.layers(3)),
        ("three_dimensions", volume),
        ("three_dimensions_levels", volume.levels(3)),
        ("cube", rgba8().cube(6)),
        ("cube_levels", rgba8().cube(6).levels(4)),
        ("cubes", rgba8().cube(12)),
        ("cubes_levels", rgba8().cube(12).levels(4)),
        ("cube_as_layers", rgba8().cube(6).flags(SURFACE | LAYERED)),
        ("r8", plain(F::R8_UNORM, 1, U8)),
        ("r16", plain(F::R16_UINT, 2, U16)),
        ("bgra8", plain(F::B8G8R8A8_UNORM, 4, U8X4)),
        ("rgba16f", plain(F::R16G16B16A16_SFLOAT, 8, HALF4)),
        ("rgba32", plain(F::R32G32B32A32_UINT, 16, U32X4)),
        ("r32f", plain(F::R32_SFLOAT, 4, FLOAT)),
        ("rgba8_as_u32", plain(F::R8G8B8A8_UNORM, 4, U32)),
        ("a2b10g10r10_native", plain(a2b10g10r10, 4, UNORM_101010_2)),
        ("d32", d32.depth(SURFACE)),
        ("d32_depth", d32.depth(DEPTH)),
        ("d32_unflagged", d32.depth(0)),
        ("d16", d16.depth(SURFACE)),
        ("bc1", bc1.flags(0)),
        ("bc1_levels", bc1.levels(3).flags(0)),
        ("bc1_surface", bc1),
        (
            "bc7",
            plain(F::BC7_UNORM_BLOCK, 16, BC7).blocks(16).flags(0),
        ),
        ("behind_buffer", rgba8().behind_buffer()),
    ];
    all.each("image", &questions, exchange);
    access::list(all);
    wrong::list(all);
}

/// Maps the image as arrays, and writes and reads all texels on both sides.
fn exchange(question: Question) {
    let mut image = vulkan().shared_image(question.shape);
    let (places, size) = question.shape.places();
    // Whether Vulkan reads what it writes.
    let texels = |seed| texels(&question.shape, size, seed);
    let own = texels(3);
    image.write(&own);
    let seen = image.read();
    line("alone", compared(&image, 0, &own, &seen));
    let (code, array) = mapped(imported(&image), &described(&question));
    line("map", code);
    if code != 0 {
        return;
    }
    let (theirs, mut seen) = (texels(1), vec![0; size]);
    image.write(&theirs);
    let code = copy(&image, array, &places, &mut seen, false);
    line("to_cuda", compared(&image, code, &theirs, &seen));
    let mut ours = texels(2);
    let code = copy(&image, array, &places, &mut ours, true);
    let seen = image.read();
    line("to_vulkan", compared(&image, code, &ours, &seen));
}

fn imported(image: &SharedImage) -> Handle {
    let is_dedicated = image.shape.offset == 0;
    let (code, memory) = import_fd(image.fd, image.size, is_dedicated.into());
    check(code);
    memory
}

fn mapped(memory: Handle, desc: &ArrayDesc) -> (Code, Handle) {
    let mut array = 0;
    (mapped_array(&mut array, memory, desc), array)
}

fn level(array: Handle, level: u32) -> (Code, Handle) {
    let mut handle = 0;
    (array_level(&mut handle, array, level), handle)
}

/// The image as CUDA describes it.
fn described(question: &Question) -> ArrayDesc {
    let shape = question.shape;
    let [width, height, depth] = shape.extent.map(|size| size as usize);
    let has = |dimensions, size| {
        if shape.dimensions < dimensions {
            0
        } else {
            size
        }
    };
    let layers = match shape.layers {
        1 => has(3, depth),
        layers => layers as usize,
    };
    ArrayDesc {
        offset: shape.offset,
        extent: [width, has(2, height), layers],
        format: question.format.0,
        channels: question.format.1,
        flags: question.flags,
        padding: 0,
        levels: shape.levels,
        reserved: [0; 16],
    }
}

/// Texels that differ from each other. Floating-point numbers are between 0 and 1.
fn texels(shape: &Shape, size: usize, seed: u32) -> Vec<u8> {
    let words = (0..size.div_ceil(4) as u32).map(|index| {
        let value = (index + seed).wrapping_mul(0x9E37_79B1);
        match shape.format {
            vk::Format::D32_SFLOAT => ((value >> 8) as f32 / (1 << 24) as f32).to_bits(),
            _ => value,
        }
    });
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes.truncate(size);
    bytes
}

/// Copies all levels between the array and `bytes`. Returns the first failure.
fn copy(
    image: &SharedImage,
    array: Handle,
    places: &[usize],
    bytes: &mut [u8],
    writes: bool,
) -> Code {
    let shape = &image.shape;
    for (level, place) in (0..).zip(places) {
        let (code, handle) = self::level(array, level);
        check(code);
        let [width, height, depth] = shape.blocks(level);
        let host = CopySide {
            kind: HOST,
            host: bytes[*place..].as_mut_ptr() as usize,
            pitch: width * shape.block.0,
            height,
            ..Default::default()
        };
        let there = CopySide {
            kind: ARRAY,
            array: handle,
            ..Default::default()
        };
        let (from, to) = match writes {
            true => (host, there),
            false => (there, host),
        };
        let extent = [width * shape.block.0, height, depth * shape.layers as usize];
        let code = memcpy_3d(&Copy3d { from, to, extent });
        if code != 0 {
            return code;
        }
    }
    ctx_synchronize()
}

fn compared(image: &SharedImage, code: impl Shown, one: &[u8], other: &[u8]) -> String {
    let shape = &image.shape;
    // Levels have gaps between them.
    let levels = |bytes: &[u8]| -> Vec<u8> {
        let levels = (0..).zip(shape.places().0);
        levels
            .flat_map(|(level, place)| &bytes[place..place + shape.bytes(level)])
            .copied()
            .collect()
    };
    judged(code, &levels(one), &levels(other), shape.block.0)
}

/// A result, and how many pieces of these bytes differ.
fn judged(code: impl Shown, one: &[u8], other: &[u8], piece: usize) -> String {
    let pieces = one.chunks(piece).zip(other.chunks(piece));
    let wrong = pieces.clone().filter(|(one, other)| one != other).count();
    match wrong {
        0 => format!("{}, right", code.shown()),
        _ => format!("{}, wrong: ~{wrong} of {}", code.shown(), pieces.len()),
    }
}
