//! Frames as PNG files.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

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
    let written = File::create(&path).and_then(|file| encode(file, size, rgba));
    written.map_err(Failure::write(&path))
}

/// Writes a frame to a new file in the folder for temporary files. Returns its path.
pub(crate) fn write_new(size: Size, rgba: &[u32]) -> Result<PathBuf, Failure> {
    let name = format!("syncline-{}.png", std::process::id());
    let path = std::env::temp_dir().join(name);
    // Not through a file or a link of another user.
    let _ = fs::remove_file(&path);
    let written = File::create_new(&path).and_then(|file| encode(file, size, rgba));
    written.map_err(Failure::write(&path))?;
    Ok(path)
}

fn encode(file: File, size: Size, rgba: &[u32]) -> io::Result<()> {
    let mut encoder = png::Encoder::new(BufWriter::new(file), size.width, size.height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let bytes: Vec<u8> = rgba.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes)?;
    writer.finish()?;
    Ok(())
}
