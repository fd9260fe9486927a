#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan;
use syncline::{Buffer, Device, Inventory, ProbeOptions, Queue, QueueKind, Recorder};

use super::reference::draw;
use super::{FRAGMENT_SPV, VERTEX_SPV, View};
use crate::compute::reference::Reference;
use crate::compute::{DELAY_SPV, STEP_SPV};
use crate::stage::{Between, Consumer as _, painter::Painter};

const PATIENCE: Duration = Duration::from_secs(60);

/// The stage on a device, with one slot and one picture.
struct Drawing {
    queue: Queue,
    painter: Arc<Painter>,
    heights: Buffer,
    picture: Buffer,
}

impl Drawing {
    fn new(device: &vulkan::Device, view: View) -> Self {
        let of = Device::Vulkan(device.clone());
        let heights = Buffer::host_visible(&of, view.field().bytes()).unwrap();
        let picture = Buffer::host_visible(&of, view.picture().bytes()).unwrap();
        let slots = Between::Buffers(vec![heights.clone()]);
        let readbacks = vec![picture.clone()];
        Self {
            queue: of.queue(QueueKind::Graphics, "draw").unwrap(),
            painter: Arc::new(Painter::new(device, view, slots, readbacks).unwrap()),
            heights,
            picture,
        }
    }

    /// Draws `heights` and returns the pixels.
    fn draw(&self, heights: &[u32]) -> Vec<u32> {
        for (to, from) in self.heights.words().unwrap().iter().zip(heights) {
            to.store(*from, Ordering::Relaxed);
        }
        let painter = self.painter.clone();
        let record = move |recorder: &mut Recorder<'_>| painter.record(recorder, 0, 0);
        self.queue.submit(&[], record, &[]).unwrap();
        self.queue.idle(PATIENCE).unwrap();
        let words = self.picture.words().unwrap().iter();
        words.map(|word| word.load(Ordering::Relaxed)).collect()
    }
}

/// Width and height of a picture, and the side of its field.
const SMALL: &[[u32; 3]] = &[[256, 160, 128], [515, 259, 61], [16, 33, 200]];

/// For GPUs, beside those.
const LARGE: &[[u32; 3]] = &[[1280, 720, 512], [2048, 1024, 1024]];

/// Frames of each size. The last one shows what is in memory that nothing has written.
const FRAMES: u32 = 6;

/// Prints how many pixels differ, and the times, which `--nocapture` shows.
#[test]
fn every_device_draws_the_reference() {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let mut wrong = Vec::new();
    for found in inventory.devices() {
        let Ok(Device::Vulkan(device)) = found.open() else {
            continue;
        };
        let large = if device.info().software { &[] } else { LARGE };
        for &[width, height, side] in SMALL.iter().chain(large) {
            let view = View::new(width, height, side);
            let drawing = Drawing::new(&device, view);
            let mut waves = Reference::new(side, side);
            let noise: Vec<u32> = (0..side * side)
                .map(|n| n.wrapping_mul(0x9e37_79b9))
                .collect();
            for frame in 1..=FRAMES {
                let heights = match frame {
                    FRAMES => &noise,
                    _ => waves.advance_frame(),
                };
                let begun = Instant::now();
                let drawn = drawing.draw(heights);
                let drawing = begun.elapsed();
                let begun = Instant::now();
                let expected = draw(&view, heights);
                let computing = begun.elapsed();
                assert_eq!(drawn.len(), expected.len());
                let differ = drawn
                    .iter()
                    .zip(&expected)
                    .filter(|(left, right)| left != right);
                let differ = differ.count();
                let line = format!(
                    "{}, {width}x{height} of {side}x{side}, frame {frame}: {differ} pixels differ",
                    found.info().name
                );
                println!("{line}; {drawing:.1?}, the reference takes {computing:.1?}");
                if differ > 0 {
                    wrong.push(line);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The version of the compiler that made the files.
const COMPILER: &str = "Glslang Version: 11:12.0.0";

/// A file of the examples.
macro_rules! example {
    ($path:literal) => {
        include_bytes!(concat!("../../../interop/examples/", $path))
    };
}

/// Compiles all shaders of the frames and of the examples.
///
/// Does nothing if this version of the compiler is not installed.
#[test]
fn spirv_files_are_those_of_the_compiler() {
    let glslang = |arguments: &[&str]| {
        let output = Command::new("glslangValidator").args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    if !glslang(&["--version"]).is_ok_and(|said| said.starts_with(COMPILER)) {
        return;
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let target = std::env::temp_dir().join(format!("syncline-{}.spv", std::process::id()));
    for (source, expected) in [
        ("demo/src/compute/step.comp", STEP_SPV),
        ("demo/src/compute/delay.comp", DELAY_SPV),
        ("demo/src/scene/water.vert", VERTEX_SPV),
        ("demo/src/scene/water.frag", FRAGMENT_SPV),
        (
            "interop/examples/vertices/wave.vert",
            example!("vertices/wave.vert.spv"),
        ),
        (
            "interop/examples/vertices/wave.frag",
            example!("vertices/wave.frag.spv"),
        ),
        (
            "interop/examples/filter/paint.comp",
            example!("filter/paint.comp.spv"),
        ),
        (
            "interop/examples/filter/show.comp",
            example!("filter/show.comp.spv"),
        ),
    ] {
        let (source, made) = (format!("{root}/{source}"), target.to_string_lossy());
        let said = glslang(&["-V", "--target-env", "vulkan1.1", "-o", &made, &source]).unwrap();
        let made = std::fs::read(&target).unwrap_or_else(|_| panic!("{said}"));
        std::fs::remove_file(&target).unwrap();
        assert!(made == expected, "{source} has changed: compile it again");
    }
}
