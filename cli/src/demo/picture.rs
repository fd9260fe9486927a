//! Frames as PNG files.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use syncline_demo::Size;

use crate::failure::Failure;

/// Creates the folder. Fails before the first frame if no file can be written to it.
pub(crate) fn prepare(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(Failure::write(folder))?;
    let probe = folder.join(".syncline-writable");
    File::create(&probe)
        .and_then(|_| fs::remove_file(&probe))
        .map_err(Failure::write(folder))
}

/// Writes one frame of `0xAABBGGRR` words.
pub(crate) fn write(folder: &Path, frame: u32, size: Size, rgba: &[u32]) -> Result<(), Failure> {
    let path = folder.join(format!("frame-{:04}.png", frame + 1));
    encode(&path, size, rgba).map_err(Failure::write(&path))
}

fn encode(path: &Path, size: Size, rgba: &[u32]) -> io::Result<()> {
    let mut encoder =
        png::Encoder::new(BufWriter::new(File::create(path)?), size.width, size.height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let bytes: Vec<u8> = rgba.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes)?;
    writer.finish()?;
    Ok(())
}
