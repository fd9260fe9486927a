//! The command line, and what becomes of the last frame. In place of a window.

use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;

use syncline::vulkan::Buffer;
use syncline::{Error, Result};

use crate::SIZE;

/// The command line: `[--float] [--no-sync] [PICTURE.png]`.
#[derive(Default)]
pub(crate) struct Arguments {
    /// The kernel computes with floating-point numbers. The software driver has none.
    pub(crate) float: bool,
    /// The waits between CUDA and Vulkan are left out, and the picture is wrong.
    pub(crate) no_sync: bool,
    picture: Option<String>,
}

impl Arguments {
    pub(crate) fn parse() -> Result<Self> {
        let mut found = Self::default();
        for argument in std::env::args().skip(1) {
            match &*argument {
                "--float" => found.float = true,
                "--no-sync" => found.no_sync = true,
                other if other.starts_with('-') => {
                    return Err(Error::work("usage: [--float] [--no-sync] [PICTURE.png]"));
                }
                _ => found.picture = Some(argument),
            }
        }
        Ok(found)
    }

    /// Writes the picture, and ends with an error if more than `allowed` pixels were wrong.
    pub(crate) fn end(&self, picture: &Buffer, wrong: usize, allowed: usize) -> Result<()> {
        if let Some(path) = &self.picture {
            let colours = words(picture).map(u32::to_le_bytes);
            let pixels: Vec<_> = colours.flat_map(|[r, g, b, _]| [r, g, b]).collect();
            let file = File::create(path).map_err(Error::work)?;
            let mut png = png::Encoder::new(file, SIZE, SIZE);
            png.set_color(png::ColorType::Rgb);
            let header = png.write_header();
            header
                .and_then(|mut png| png.write_image_data(&pixels))
                .map_err(Error::work)?;
        }
        println!("{wrong} pixels are wrong");
        match wrong > allowed {
            true => Err(Error::work(
                "Vulkan has seen something else than CUDA's result",
            )),
            false => Ok(()),
        }
    }
}

/// The words of a buffer of the host.
fn words(buffer: &Buffer) -> impl Iterator<Item = u32> {
    let words = buffer.as_words().unwrap_or_default();
    words.iter().map(|word| word.load(Relaxed))
}

/// How many pixels are not the expected ones.
pub(crate) fn wrong(seen: &Buffer, expected: &[u32]) -> usize {
    let pairs = words(seen).zip(expected);
    pairs.filter(|(seen, expected)| seen != *expected).count()
}
