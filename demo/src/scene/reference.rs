//! The scene on the CPU: what the graphics pipeline draws, bit for bit.
//!
//! The surface is a mesh with a square for each pixel below the horizon. Far from the camera a
//! square covers many cells. Waves lift its corners. `vertex` is the vertex shader, `colour` the
//! fragment shader, and [`draw`] the rasterizer with its depth test.

use super::View;
use crate::compute::LIMIT;
use crate::compute::reference::Load;

/// Fractional bits of a vertical position on the picture. Every device has at least as many.
const SUB_PIXEL: i32 = 4;

/// The largest vertical position.
const LOWEST: i32 = 4096 << SUB_PIXEL;

/// A length of 1, or all of the light.
const ONE: i32 = 1 << 14;

/// Height of the camera. A field has 2<sup>16</sup> of these units.
const CAMERA: i32 = 13107;

/// The place below the camera, in the same units.
const PLACE: [i32; 2] = [32768, 8000];

/// The direction of the sun: to the right, up, ahead.
const SUN: [i32; 3] = [2700, 2500, 15965];

type Colour = [i32; 3];

const ZENITH: Colour = [22, 44, 104];
const MIDDLE: Colour = [104, 112, 168];
const HORIZON: Colour = [255, 190, 132];
const GLOW: Colour = [130, 70, 26];
const LIGHT: Colour = [255, 244, 206];
const DEEP: Colour = [4, 30, 54];
const SHALLOW: Colour = [20, 122, 128];

/// A corner of a square.
#[derive(Clone, Copy, Debug, Default)]
struct Vertex {
    /// Vertical position on the picture, with [`SUB_PIXEL`] fractional bits.
    y: i32,
    /// Rise to the right, and rise ahead, with 10 fractional bits.
    slope: [i32; 2],
    /// Height above still water, with the fractional bits of the field.
    height: i32,
}

/// The part of the vertex shader that is the same in a row of the mesh.
struct Row {
    /// Pixels below the horizon.
    below: i32,
    /// Distance of two columns.
    across: i32,
    /// Whether the field is mirrored here: -1 if it is.
    sign: i32,
    /// The first words of three rows of the field.
    lines: [usize; 3],
    /// [`weights`] and [`differences`] of these rows.
    weights: [i32; 3],
    differences: [i32; 3],
    /// How much of a wave is shown, in 256ths.
    shown: i32,
}

/// Mirrors a coordinate into the field.
///
/// The walls of the field reflect waves with their sign changed, so the mirrored field continues
/// them.
const fn fold(at: i32) -> (i32, i32) {
    if at & 0x1_0000 == 0 {
        (at & 0xffff, 1)
    } else {
        (!at & 0xffff, -1)
    }
}

/// The nearest cell to a coordinate in the field, and the distance from it in 256ths.
const fn cell(view: &View, at: i32) -> (i32, i32) {
    let at = (at * (view.side - 1)) >> 8;
    let cell = (at + 128) >> 8;
    (cell, at - (cell << 8))
}

/// The weights of three cells in a height between them, in 256ths.
///
/// They are those of a quadratic B-spline, so that slopes do not jump.
const fn weights(part: i32) -> [i32; 3] {
    let before = ((128 - part) * (128 - part)) >> 9;
    let behind = ((128 + part) * (128 + part)) >> 9;
    [before, 256 - before - behind, behind]
}

/// The weights of three cells in a slope between them, in 256ths.
const fn differences(part: i32) -> [i32; 3] {
    [part - 128, -2 * part, part + 128]
}

const fn dot(left: [i32; 3], right: [i32; 3]) -> i32 {
    left[0] * right[0] + left[1] * right[1] + left[2] * right[2]
}

impl Row {
    fn new(view: &View, row: i32) -> Self {
        let below = row.max(1);
        let across = (CAMERA << 10) / below;
        let (along, sign) = fold((view.focus.wrapping_mul(across) >> 10) + PLACE[1]);
        let (middle, part) = cell(view, along);
        let last = view.side - 1;
        let line = |cell: i32| (cell.clamp(0, last) * view.side) as usize;
        let near = below.min(view.whole);
        Self {
            below,
            across,
            sign,
            lines: [line(middle - 1), line(middle), line(middle + 1)],
            weights: weights(part),
            differences: differences(part),
            shown: ((near * near) << 8) / (view.whole * view.whole),
        }
    }

    fn vertex<H: Load>(&self, view: &View, heights: &[H], column: i32) -> Vertex {
        let across = (column - view.width / 2).wrapping_mul(self.across);
        let (across, sign) = fold((across >> 10) + PLACE[0]);
        let (middle, part) = cell(view, across);
        let last = view.side - 1;
        let cells = [middle - 1, middle, middle + 1].map(|cell| cell.clamp(0, last) as usize);
        let (weights, differences) = (weights(part), differences(part));
        let (mut levels, mut rises) = ([0; 3], [0; 3]);
        for row in 0..3 {
            let mut three = [0; 3];
            for (height, cell) in three.iter_mut().zip(cells) {
                if let Some(word) = heights.get(self.lines[row] + cell) {
                    *height = word.load().cast_signed().clamp(-LIMIT, LIMIT);
                }
            }
            levels[row] = dot(weights, three) >> 8;
            rises[row] = dot(differences, three) >> 8;
        }
        let height = sign * self.sign * (dot(self.weights, levels) >> 8);
        let right = self.sign * (dot(self.weights, rises) >> 8);
        let ahead = sign * (dot(self.differences, levels) >> 8);
        let height = ((height >> 4) * self.shown) >> 4;
        let slope = |rise: i32| {
            let slope = ((rise >> 4) * view.steep) >> 6;
            ((slope * self.shown) >> 8).clamp(-2047, 2047)
        };
        let lift = (self.below * (((height >> 4) * view.lift) >> 6)) >> 16;
        let y = ((view.horizon + self.below) << SUB_PIXEL) - lift;
        Vertex {
            y: y.clamp(0, LOWEST),
            slope: [slope(right), slope(ahead)],
            height,
        }
    }
}

/// The square root, rounded down.
fn root(of: i32) -> i32 {
    // Exact, because `f64` has more than twice the bits of the result.
    f64::from(of).sqrt() as i32
}

/// Raises a share to the power of 2<sup>`doublings`</sup>.
const fn power(mut share: i32, mut doublings: u32) -> i32 {
    while doublings > 0 {
        share = (share * share) >> 14;
        doublings -= 1;
    }
    share
}

const fn mix(from: Colour, to: Colour, share: i32) -> Colour {
    add(
        from,
        [to[0] - from[0], to[1] - from[1], to[2] - from[2]],
        share,
    )
}

const fn add(to: Colour, light: Colour, share: i32) -> Colour {
    [
        to[0] + ((light[0] * share) >> 14),
        to[1] + ((light[1] * share) >> 14),
        to[2] + ((light[2] * share) >> 14),
    ]
}

/// The light from a direction of the sky.
fn sky(up: i32, sun: i32) -> Colour {
    let up = up.clamp(0, ONE);
    let low = (ONE - 3 * up).max(0);
    let high = (2 * up).min(ONE);
    let plain = mix(mix(MIDDLE, ZENITH, high), HORIZON, (low * low) >> 14);
    add(plain, GLOW, power(sun, 4))
}

/// The direction from the eye through the middle of a pixel.
fn direction(view: &View, x: i32, y: i32) -> [i32; 3] {
    let right = 2 * x + 1 - view.width;
    let up = 2 * (view.horizon - y) - 1;
    let ahead = 2 * view.focus;
    let scale = (1 << 27) / root((right * right + up * up + ahead * ahead) << 4);
    scaled([right, up, ahead], scale, 11)
}

/// A vector times `scale`, divided by 2<sup>`bits`</sup>.
const fn scaled(of: [i32; 3], scale: i32, bits: u32) -> [i32; 3] {
    [
        (of[0] * scale) >> bits,
        (of[1] * scale) >> bits,
        (of[2] * scale) >> bits,
    ]
}

fn pixel(colour: Colour) -> u32 {
    let [red, green, blue] = colour.map(|part| part.clamp(0, 255).cast_unsigned());
    0xff00_0000 | blue << 16 | green << 8 | red
}

/// The fragment shader in the sky.
fn sky_colour(view: &View, x: i32, y: i32) -> u32 {
    let to = direction(view, x, y);
    let sun = (dot(to, SUN) >> 14).clamp(0, ONE);
    let near = power(sun, 8);
    let disc = ((sun - (ONE - 26)) * 1500).clamp(0, ONE);
    let plain = add(sky(to[1], sun), LIGHT, near >> 1);
    pixel(add(plain, LIGHT, disc))
}

/// The fragment shader on the water.
fn water_colour(view: &View, x: i32, y: i32, vertex: &Vertex) -> u32 {
    let to = direction(view, x, y);
    let [right, ahead] = vertex.slope;
    let scale = (1 << 22) / root(right * right + ahead * ahead + (1 << 20));
    let normal = scaled([-right, 1 << 10, -ahead], scale, 8);
    let facing = (-dot(to, normal) >> 14).clamp(0, ONE);
    let back = scaled(normal, facing, 13);
    let mirrored = [to[0] + back[0], to[1] + back[1], to[2] + back[2]];
    let sun = (dot(mirrored, SUN) >> 14).clamp(0, ONE);
    // Schlick's approximation, with the third power instead of the fifth.
    let away = ONE - facing;
    let share = 330 + ((((power(away, 2) * away) >> 14) * 15) >> 4);
    let crest = ((vertex.height >> 3) + 6 * ahead + 1000).clamp(0, ONE);
    let water = mix(DEEP, SHALLOW, crest);
    let mirror = sky(mirrored[1], sun);
    pixel(add(mix(water, mirror, share), LIGHT, power(sun, 7)))
}

/// Draws a picture, as `0xAABBGGRR` words.
///
/// A cell that `heights` lacks counts as still water.
#[must_use]
pub fn draw<H: Load>(view: &View, heights: &[H]) -> Vec<u32> {
    let columns = view.columns().cast_signed();
    let mut picture = Picture {
        view,
        rgba: vec![0; (view.width * view.height) as usize],
    };
    let vertices = |row: u32| -> Vec<Vertex> {
        let row = Row::new(view, row.cast_signed());
        let column = |column| row.vertex(view, heights, column);
        (0..=columns).map(column).collect()
    };
    let mut near = vertices(view.strips() + 1);
    // The nearest strip first: with this order, what has been drawn is what the depth test keeps.
    for row in (1..=view.strips()).rev() {
        let far = vertices(row);
        for ((near, far), x) in near.windows(2).zip(far.windows(2)).zip(0..) {
            let diagonal = [far[0].y, near[1].y];
            picture.triangle(x, diagonal, [near[0].y, near[1].y], &near[0]);
            picture.triangle(x, [far[0].y, far[1].y], diagonal, &far[0]);
        }
        near = far;
    }
    picture.sky();
    picture.rgba
}

/// A picture with the pixels that are drawn already. The others are 0.
struct Picture<'v> {
    view: &'v View,
    rgba: Vec<u32>,
}

impl Picture<'_> {
    /// Draws a triangle over column `x` of the picture.
    ///
    /// Above and below it are edges with a vertical position at the left and at the right of the
    /// column. Its third edge is the left or the right of the column. A triangle that is seen from
    /// behind has these edges the other way round, and no pixels. `first` is the first corner,
    /// which has the colour.
    fn triangle(&mut self, x: i32, above: [i32; 2], below: [i32; 2], first: &Vertex) {
        // The edges cross the middle of the column at half of these sums. A pixel whose middle is
        // on an edge is inside if that is a left one or a horizontal one above: those above that
        // do not fall to the right, and those below that do.
        let pixel = 2 << SUB_PIXEL;
        let half = pixel / 2;
        let from = above[0] + above[1] + half - i32::from(above[1] <= above[0]);
        let to = below[0] + below[1] + half - i32::from(below[0] >= below[1]);
        for y in from / pixel..(to / pixel).min(self.view.height) {
            if let Some(pixel @ 0) = self.rgba.get_mut((y * self.view.width + x) as usize) {
                *pixel = water_colour(self.view, x, y, first);
            }
        }
    }

    /// Draws the sky where nothing else is.
    fn sky(&mut self) {
        let places = (0..self.view.height).flat_map(|y| (0..self.view.width).map(move |x| (x, y)));
        for (pixel, (x, y)) in self.rgba.iter_mut().zip(places) {
            if *pixel == 0 {
                *pixel = sky_colour(self.view, x, y);
            }
        }
    }
}
