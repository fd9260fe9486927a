//! The neutral work of [`Subject`], for the devices of this project.

#[cfg(feature = "cuda")]
mod cuda;
mod host;
#[cfg(feature = "vulkan")]
mod vulkan;

use std::sync::atomic::Ordering;
use std::time::Duration;

use syncline::backend::Device as _;
use syncline::{Device, Error, Memory, Recorder, Result, Timeline, connect};

use crate::Subject;

/// A buffer of another backend than the recorder's.
fn foreign() -> Error {
    Error::work(std::io::Error::other(
        "a buffer was used on a device of another backend",
    ))
}

/// Work was asked of a device that [`Subject::prepare`] has not seen.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn unprepared() -> Error {
    Error::work(std::io::Error::other(
        "the device was not prepared for the suite's work",
    ))
}

impl Subject for Device {
    type Buffer = Memory;

    fn prepare(&self) -> Result<()> {
        match self {
            Self::Host(_) => Ok(()),
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => cuda::prepare(device),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(device) => vulkan::prepare(device),
        }
    }

    fn buffer(&self, words: usize) -> Result<Memory> {
        Memory::host_visible(self, words as u64 * 4)
    }

    fn read(buffer: &Memory) -> Vec<u32> {
        let words = buffer.words().unwrap_or_default();
        words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect()
    }

    fn fill(recorder: &mut Recorder<'_>, buffer: &Memory, value: u32) -> Result<()> {
        match (recorder, buffer) {
            (Recorder::Host(recorder), Memory::Host(words)) => host::fill(recorder, words, value),
            #[cfg(feature = "cuda")]
            (Recorder::Cuda(recorder), Memory::Cuda(buffer)) => cuda::fill(recorder, buffer, value),
            #[cfg(feature = "vulkan")]
            (Recorder::Vulkan(recorder), Memory::Vulkan(buffer)) => {
                vulkan::fill(recorder, buffer, value)
            }
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(foreign()),
        }
    }

    fn copy(recorder: &mut Recorder<'_>, from: &Memory, to: &Memory) -> Result<()> {
        match (recorder, from, to) {
            (Recorder::Host(recorder), Memory::Host(from), Memory::Host(to)) => {
                host::copy(recorder, from, to)
            }
            #[cfg(feature = "cuda")]
            (Recorder::Cuda(recorder), Memory::Cuda(from), Memory::Cuda(to)) => {
                cuda::copy(recorder, from, to)
            }
            #[cfg(feature = "vulkan")]
            (Recorder::Vulkan(recorder), Memory::Vulkan(from), Memory::Vulkan(to)) => {
                vulkan::copy(recorder, from, to)
            }
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(foreign()),
        }
    }

    fn busy(&self, recorder: &mut Recorder<'_>, time: Duration) -> Result<()> {
        match (self, recorder) {
            (Self::Host(_), Recorder::Host(recorder)) => {
                host::busy(recorder, time);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            (Self::Cuda(device), Recorder::Cuda(recorder)) => cuda::busy(device, recorder, time),
            #[cfg(feature = "vulkan")]
            (Self::Vulkan(device), Recorder::Vulkan(recorder)) => {
                vulkan::busy(device, recorder, time)
            }
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(foreign()),
        }
    }

    fn timeline_with(&self, other: &Self, label: &str, initial: u64) -> Result<Timeline> {
        if self.id() == other.id() {
            return self.timeline_from(label, initial);
        }
        connect(self, other).timeline_from(label, initial)
    }
}
