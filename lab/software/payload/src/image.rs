//! The table of images in the header of shared memory.
//!
//! The Vulkan layer lists each image that is bound to the memory, with the places of its levels.
//! The CUDA driver maps arrays by this table. Processes share it without a lock: an entry has a
//! state, which one atomic operation changes.
#![allow(unsafe_code, reason = "reads and writes a table that processes share")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::memory::{Memory, MemoryError};

/// The images that a table has room for.
pub(crate) const IMAGES: usize = 128;
/// The levels that an entry has room for. An image of 32768 texels has so many.
const LEVELS: usize = 16;
/// The words of an entry: its state, the description, and three words for each level.
const WORDS: usize = 60;
/// The word of the first level.
const FIRST_LEVEL: usize = WORDS - 3 * LEVELS;
/// Bytes of the table.
pub(crate) const BYTES: usize = IMAGES * WORDS * size_of::<u64>();

/// The phase of an entry, in the low bits of its state. The other bits count its images.
const PHASE: u64 = 0b11;
const FREE: u64 = 0;
/// A process writes the entry. If that process is killed, the entry stays as it is.
const WRITTEN: u64 = 1;
const LISTED: u64 = 2;

/// An image of Vulkan that is bound to memory, as its driver lays it out there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The first byte of the image in the allocation.
    pub offset: u64,
    /// The `VkFormat`.
    pub format: u32,
    /// 1, 2 or 3.
    pub dimensions: u32,
    /// The extent of level 0: width, height and depth in texels.
    pub extent: [u32; 3],
    /// Array layers.
    pub layers: u32,
    /// Samples of a texel.
    pub samples: u32,
    /// `VK_IMAGE_CREATE_CUBE_COMPATIBLE_BIT`.
    pub is_cube: bool,
    /// `VK_IMAGE_TILING_LINEAR`.
    pub is_linear: bool,
    /// The place of each level.
    pub levels: Vec<Level>,
}

/// The place of a level in its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The first byte of layer 0, counted from the first byte of the image.
    pub offset: u64,
    /// Bytes from one row of texels or blocks to the next.
    pub row_pitch: u64,
    /// Bytes from one slice to the next: a slice of the depth, or an array layer.
    pub slice_pitch: u64,
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

impl Image {
    /// Returns the words of an entry without its state. `None` if there are too many levels.
    fn to_words(&self) -> Option<[u64; WORDS]> {
        if self.levels.len() > LEVELS {
            return None;
        }
        let [width, height, depth] = self.extent;
        let mut words = [0; WORDS];
        words[1] = self.offset;
        words[2] = pair(self.format, self.dimensions);
        words[3] = pair(width, height);
        words[4] = pair(depth, self.layers);
        words[5] = pair(self.samples, self.levels.len() as u32);
        words[6] = pair(self.is_cube.into(), self.is_linear.into());
        let places = words[FIRST_LEVEL..].chunks_exact_mut(3);
        for (to, level) in places.zip(&self.levels) {
            to.copy_from_slice(&[level.offset, level.row_pitch, level.slice_pitch]);
        }
        Some(words)
    }

    fn from_words(words: &[u64; WORDS]) -> Self {
        let [format, dimensions] = halves(words[2]);
        let [width, height] = halves(words[3]);
        let [depth, layers] = halves(words[4]);
        let [samples, levels] = halves(words[5]);
        let [is_cube, is_linear] = halves(words[6]).map(|flag| flag != 0);
        let places = words[FIRST_LEVEL..].chunks_exact(3);
        let places = places.map(|level| Level {
            offset: level[0],
            row_pitch: level[1],
            slice_pitch: level[2],
        });
        Self {
            offset: words[1],
            format,
            dimensions,
            extent: [width, height, depth],
            layers,
            samples,
            is_cube,
            is_linear,
            levels: places.take(levels as usize).collect(),
        }
    }
}

/// The entry of one image, until it is dropped.
#[derive(Debug)]
pub struct BoundImage {
    memory: Arc<Memory>,
    entry: usize,
}

impl Drop for BoundImage {
    fn drop(&mut self) {
        let [state, ..] = &self.memory.table()[self.entry];
        let listed = state.load(Ordering::Relaxed);
        state.store(listed & !PHASE | FREE, Ordering::Release);
    }
}

impl Memory {
    /// Returns the entries of the table. Memory without a header has none.
    fn table(&self) -> &[[AtomicU64; WORDS]] {
        let (first, count) = self.table_pointer();
        // SAFETY: the mapping has so many entries there, for as long as `self` lives. Any bytes are
        // atomics.
        unsafe { std::slice::from_raw_parts(first.cast(), count) }
    }

    /// Adds an image to the table. It is there until the result is dropped.
    ///
    /// Each call adds an entry, although there may be an equal one: several devices bind the same
    /// image. The entry of a process that is killed stays.
    ///
    /// # Errors
    /// [`MemoryError::TableFull`], or [`MemoryError::Levels`].
    pub fn add_image(self: &Arc<Self>, image: &Image) -> Result<BoundImage, MemoryError> {
        let levels = image.levels.len();
        let words = image.to_words().ok_or(MemoryError::Levels(levels))?;
        let take = |[state, ..]: &[AtomicU64; WORDS]| {
            let free = state.load(Ordering::Relaxed);
            let written = free & !PHASE | WRITTEN;
            let (set, get) = (Ordering::Acquire, Ordering::Relaxed);
            free & PHASE == FREE && state.compare_exchange(free, written, set, get).is_ok()
        };
        let entry = self.table().iter().position(take);
        let entry = entry.ok_or(MemoryError::TableFull)?;
        let [state, places @ ..] = &self.table()[entry];
        // A reader that sees a new word also sees that the entry is written.
        fence(Ordering::Release);
        for (place, word) in places.iter().zip(&words[1..]) {
            place.store(*word, Ordering::Relaxed);
        }
        let number = (state.load(Ordering::Relaxed) & !PHASE).wrapping_add(PHASE + 1);
        state.store(number | LISTED, Ordering::Release);
        let memory = self.clone();
        Ok(BoundImage { memory, entry })
    }

    /// Returns the images that are in the table now.
    #[must_use]
    pub fn images(&self) -> Vec<Image> {
        let read = |[state, places @ ..]: &[AtomicU64; WORDS]| {
            let before = state.load(Ordering::Acquire);
            if before & PHASE != LISTED {
                return None;
            }
            let mut words = [0; WORDS];
            for (word, place) in words[1..].iter_mut().zip(places) {
                *word = place.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            // An entry that has changed meanwhile is of an image that is gone.
            let is_same = state.load(Ordering::Relaxed) == before;
            is_same.then(|| Image::from_words(&words))
        };
        self.table().iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::os::fd::AsFd;

    use super::*;

    /// An image whose fields all follow from one number.
    fn image(number: u32) -> Image {
        let level = |level: u64| Level {
            offset: u64::from(number) << 32 | level,
            row_pitch: u64::from(number) * level,
            slice_pitch: !u64::from(number),
        };
        Image {
            offset: u64::from(number),
            format: number,
            dimensions: 1 + number % 3,
            extent: [number, number + 1, number + 2],
            layers: number,
            samples: number,
            is_cube: number.is_multiple_of(2),
            is_linear: number.is_multiple_of(3),
            levels: (0..u64::from(number % 17)).map(level).collect(),
        }
    }

    fn memory() -> (Arc<Memory>, Arc<Memory>) {
        let (memory, file) = Memory::create(5000, [0; 16]).unwrap();
        let other = Memory::open(file.as_fd()).unwrap();
        (Arc::new(memory), Arc::new(other))
    }

    #[test]
    fn all_that_open_the_memory_see_its_images() {
        let (memory, other) = memory();
        assert!(other.images().is_empty());
        let first = memory.add_image(&image(5)).unwrap();
        let equal = other.add_image(&image(5)).unwrap();
        let third = memory.add_image(&image(16)).unwrap();
        assert_eq!(other.images(), [image(5), image(5), image(16)]);
        drop((first, third));
        assert_eq!(memory.images(), [image(5)]);
        let second = memory.add_image(&image(33)).unwrap();
        assert_eq!(memory.images(), [image(33), image(5)]);
        drop((equal, second));
        assert!(memory.images().is_empty());
        // SAFETY: mapped, and nothing else has it.
        assert_eq!(unsafe { memory.address().read() }, 0);
    }

    #[test]
    fn a_full_table_takes_no_image() {
        let (memory, other) = memory();
        let add = |number| memory.add_image(&image(number));
        let mut all: Vec<_> = (0..128).map(|number| add(number).unwrap()).collect();
        assert!(matches!(add(1), Err(MemoryError::TableFull)));
        assert!(matches!(
            other.add_image(&image(1)),
            Err(MemoryError::TableFull)
        ));
        all.swap_remove(77);
        let again = add(1).unwrap();
        assert!(matches!(add(1), Err(MemoryError::TableFull)));
        drop(again);
        let mut levels = image(16);
        levels.levels.push(levels.levels[0]);
        let told = memory.add_image(&levels);
        assert!(matches!(told, Err(MemoryError::Levels(17))));
        assert_eq!(memory.images().len(), 127);
    }

    #[test]
    fn threads_see_whole_images_alone() {
        let (memory, other) = memory();
        std::thread::scope(|scope| {
            let writers = [1, 16, 200].map(|first| {
                let memory = memory.clone();
                scope.spawn(move || {
                    for number in first..first + 3000 {
                        drop(memory.add_image(&image(number)).unwrap());
                    }
                })
            });
            while writers.iter().any(|writer| !writer.is_finished()) {
                for seen in other.images() {
                    assert_eq!(seen, image(seen.format));
                }
            }
        });
        assert!(memory.images().is_empty());
    }

    #[test]
    fn the_payload_of_a_semaphore_has_no_images() {
        let (_payload, file) = crate::Semaphore::create(crate::Kind::Timeline, 0).unwrap();
        let memory = Arc::new(Memory::of_semaphore(file.as_fd()).unwrap());
        assert!(memory.images().is_empty());
        let told = memory.add_image(&image(1));
        assert!(matches!(told, Err(MemoryError::TableFull)));
    }
}
