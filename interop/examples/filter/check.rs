//! The expected picture of a frame, computed by the host.

use crate::SIZE;
use crate::kernel::radius;

/// A texel of the scene, as in paint.comp: red, green and blue.
fn scene(x: i32, y: i32, frame: i32) -> [i32; 3] {
    let (across, along) = (x - 40 - 2 * frame, y - 56);
    let ring = (((across * across + along * along) >> 7) - frame) & 3;
    let light = [255, 128, 16, 16][ring as usize];
    [
        (light * x) >> 7,
        (light * 3) >> 2,
        light - ((light * y) >> 7),
    ]
}

/// The pixels of a frame, row by row. Their right half is filtered, as in box.ptx.
pub(crate) fn picture(frame: u64) -> Vec<u32> {
    let (side, radius, frame) = (SIZE as i32, radius(frame), frame as i32);
    let (last, count) = (side - 1, (2 * radius + 1).pow(2));
    let average = |x: i32, y: i32| {
        let (rows, columns) = (y - radius..=y + radius, x - radius..=x + radius);
        let at = rows.flat_map(|y| {
            columns
                .clone()
                .map(move |x| (x.clamp(0, last), y.clamp(0, last)))
        });
        let sum = at.fold([0; 3], |sum, (x, y)| {
            let texel = scene(x, y, frame);
            [0, 1, 2].map(|channel| sum[channel] + texel[channel])
        });
        sum.map(|sum| (sum + count / 2) / count)
    };
    let pixels = (0..side).flat_map(|y| (0..side).map(move |x| (x, y)));
    let pixel = |(x, y)| {
        let rgb = if x < side / 2 {
            scene(x, y, frame)
        } else {
            average(x, y)
        };
        let [red, green, blue] = rgb.map(|channel| channel as u8);
        u32::from_le_bytes([red, green, blue, 255])
    };
    pixels.map(pixel).collect()
}
