//! The content of frames, the verdict on them, and the end of a program.

use std::error::Error;
use std::process::ExitCode;

use syncline::info::Uuid;
use syncline::vulkan::Offer;

use crate::WORDS;

/// Returns word `index` of a frame as produced. The same as the kernel in `produce.ptx`, in Rust.
#[must_use]
pub const fn produced(frame: u32, index: u32) -> u32 {
    let word = frame
        .wrapping_mul(0x9E37_79B9)
        .wrapping_add(index)
        .wrapping_mul(0x85EB_CA6B);
    word ^ word >> 15
}

/// How many frames were right.
#[derive(Debug, Default)]
pub struct Verdict {
    frames: u32,
    right: u32,
}

impl Verdict {
    /// Compares each word of a frame with `expected(frame, index)`.
    pub fn compare(
        &mut self,
        frame: u32,
        words: impl ExactSizeIterator<Item = u32>,
        expected: impl Fn(u32, u32) -> u32,
    ) {
        let whole = words.len() == WORDS as usize;
        let same = (0..).zip(words).all(|(i, word)| word == expected(frame, i));
        self.frames += 1;
        self.right += u32::from(whole && same);
    }
}

/// Why a program ends without a verdict.
#[derive(Debug)]
pub enum Stop {
    /// There is no usable Vulkan device, for this reason.
    NoVulkan(String),
    /// No Vulkan device has the name that was asked for. Contains the names of all devices.
    NoSuchDevice(Vec<String>),
    /// Something failed.
    Failed(Box<dyn Error>),
}

impl<E: Into<Box<dyn Error>>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Chooses one of these devices.
///
/// With `name` it is the first device with that in its name. Else it is the GPU with this UUID,
/// else the first device.
///
/// # Errors
/// [`Stop::NoVulkan`] with the reasons in `refused` if there is no device. Also
/// [`Stop::NoSuchDevice`].
pub fn pick<T>(
    mut offers: Vec<(T, Offer)>,
    refused: &[String],
    name: Option<&str>,
    uuid: Option<Uuid>,
) -> Result<(T, Offer), Stop> {
    if offers.is_empty() {
        return Err(Stop::NoVulkan(if refused.is_empty() {
            "no driver offers one".into()
        } else {
            refused.join("; ")
        }));
    }
    let place = match name {
        Some(name) => offers
            .iter()
            .position(|(_, it)| it.info.name.contains(name)),
        None => {
            let same = |(_, it): &(T, Offer)| uuid.is_some() && it.info.uuid == uuid;
            Some(offers.iter().position(same).unwrap_or(0))
        }
    };
    match place {
        Some(place) => Ok(offers.swap_remove(place)),
        None => {
            let names = offers.into_iter().map(|(_, offer)| offer.info.name);
            Err(Stop::NoSuchDevice(names.collect()))
        }
    }
}

/// Prints the outcome, and returns the exit code for it.
#[must_use]
pub fn end(outcome: Result<Verdict, Stop>) -> ExitCode {
    match outcome {
        Ok(Verdict { frames, right }) => {
            println!("verified {right} of {frames} frames");
            ExitCode::from(u8::from(right != frames))
        }
        Err(Stop::NoVulkan(reason)) => {
            println!("skipped: there is no Vulkan device to show this on: {reason}");
            ExitCode::from(3)
        }
        Err(Stop::NoSuchDevice(names)) => {
            eprintln!("no such Vulkan device; there are: {}", names.join(", "));
            ExitCode::from(2)
        }
        Err(Stop::Failed(error)) => {
            eprintln!("failed: {error}");
            ExitCode::from(1)
        }
    }
}
