//! The expected picture of a frame, computed by the host.

use crate::{SIDE, SIZE};

/// The wave at a step of 1024 in a turn, as in wave.ptx.
fn wave(phase: u32) -> i32 {
    let step = (phase & 511) as i32;
    let height = (step * (512 - step)) >> 8;
    if phase & 512 == 0 { height } else { -height }
}

/// The height of a vertex, as in wave.ptx or in sine.ptx.
fn height(x: u32, z: u32, frame: u32, float: bool) -> i32 {
    let (across, along) = (8 * x + 16 * frame, 8 * (z + frame));
    if float {
        let sine = |phase: u32| (f64::from(phase) * std::f64::consts::PI / 512.0).sin();
        return (32.0 * sine(across) * sine(along)).round_ties_even() as i32;
    }
    (wave(across) * wave(along)) >> 11
}

/// The pixels of the last frame, row by row. Later vertices cover earlier ones.
pub(crate) fn picture(frame: u32, float: bool) -> Vec<u32> {
    let mut pixels = vec![u32::from_le_bytes([8, 12, 28, 255]); (SIZE * SIZE) as usize];
    for (z, x) in (0..SIDE).flat_map(|z| (0..SIDE).map(move |x| (z, x))) {
        let height = height(x, z, frame, float);
        let (column, row) = (256 + x - z, (128 + ((x + z) >> 1)) as i32 - height);
        let line = x & 15 == 0 || z & 15 == 0;
        let light = ((136 + 3 * height) >> u32::from(line)) as u8;
        pixels[(row as u32 * SIZE + column) as usize] =
            u32::from_le_bytes([light >> 2, light, 64 + (light >> 1), 255]);
    }
    pixels
}
