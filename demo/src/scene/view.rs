//! The camera of the scene, and the numbers that the shaders take.

use crate::Size;

/// A picture of a square field of heights.
///
/// These are the push constants of both shaders, in this order. The camera is above the water and
/// looks straight ahead. A lens shift puts the horizon above the middle of the picture. So a wave
/// moves points of the surface up and down, but never sideways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct View {
    /// Pixels of a row.
    pub width: i32,
    /// Rows of pixels.
    pub height: i32,
    /// Cells of a row of the field, and rows of the field.
    pub side: i32,
    /// Rows of pixels above the horizon.
    pub horizon: i32,
    /// Distance of the picture from the eye, in pixels.
    pub focus: i32,
    /// Scale of a height on the picture.
    pub lift: i32,
    /// Scale of a slope.
    pub steep: i32,
    /// Rows of pixels from the horizon to the first one with waves of their full height.
    ///
    /// Beyond, the pixels of a column are too far apart to show a wave.
    pub whole: i32,
}

impl View {
    /// Words of the push constants.
    pub const WORDS: usize = 8;

    /// Pixels of the shortest and of the longest side of a picture.
    pub const SIDES: [u32; 2] = [16, 2048];

    /// A picture of `width * height` pixels, in [`Self::SIDES`], of `side * side` cells.
    #[must_use]
    pub fn new(width: u32, height: u32, side: u32) -> Self {
        let [shortest, longest] = Self::SIDES;
        let [width, height] = [width, height].map(|side| side.clamp(shortest, longest) as i32);
        let side = side.clamp(shortest, 4096) as i32;
        // That of the emitters. Waves are as steep in a small field as in a large one.
        let wavelength = (side / 16).clamp(10, 32);
        let focus = width * 11 / 16;
        let whole = (focus * side / wavelength / 2).isqrt();
        Self {
            width,
            height,
            side,
            horizon: height * 5 / 16,
            focus,
            lift: wavelength * 6400 / side,
            steep: wavelength * 5 / 4,
            whole: whole.clamp(1, 255),
        }
    }

    /// The picture of the demo of a field with `side` cells in a row, twice as many pixels.
    #[must_use]
    pub fn of_field(side: u32) -> Self {
        Self::new(2 * side, side * 5 / 4, side)
    }

    /// The size of the field.
    #[must_use]
    pub const fn field(&self) -> Size {
        let side = self.side.cast_unsigned();
        Size {
            width: side,
            height: side,
        }
    }

    /// The size of the picture.
    #[must_use]
    pub const fn picture(&self) -> Size {
        Size {
            width: self.width.cast_unsigned(),
            height: self.height.cast_unsigned(),
        }
    }

    /// Squares of the surface from left to right, each a pixel wide.
    #[must_use]
    pub const fn columns(&self) -> u32 {
        self.width.cast_unsigned()
    }

    /// Strips of the surface, from below the picture to the horizon.
    ///
    /// Crests can lift those below the picture into it.
    #[must_use]
    pub const fn strips(&self) -> u32 {
        ((self.height - self.horizon) * 9 / 8).cast_unsigned()
    }

    /// The push constants.
    #[must_use]
    pub const fn words(&self) -> [i32; Self::WORDS] {
        [
            self.width,
            self.height,
            self.side,
            self.horizon,
            self.focus,
            self.lift,
            self.steep,
            self.whole,
        ]
    }
}
