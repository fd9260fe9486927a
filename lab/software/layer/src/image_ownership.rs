//! Which device owns a shared image, and the layout of the image.
//!
//! An image is followed as a whole. See [`crate::ownership`].

use ash::vk;

use crate::bug::Bug;
use crate::ownership::{Action, Wrong};

/// What a command does with a whole image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageAction {
    /// A barrier from one layout to another. It transfers the image, or stays within the device.
    Barrier {
        transfer: Option<Action>,
        from: vk::ImageLayout,
        to: vk::ImageLayout,
    },
    /// A barrier for a part of the image. What the image is like is not known after that.
    Part,
    /// A copy or a clear.
    Use,
}

/// The owner of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// No command that the layer follows tells.
    Unknown,
    /// Another API or another `VkDevice`.
    Others,
    /// This device.
    Here,
}

/// An image for descriptors of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    pub(crate) memory: vk::DeviceMemory,
    levels: u32,
    layers: u32,
    owner: Owner,
    /// The layout that the last barrier has brought it into. `None` if it is not known.
    layout: Option<vk::ImageLayout>,
}

impl ImageAction {
    /// Returns what a barrier does with an image. `None` if it is only a dependency.
    pub(crate) fn of_barrier(
        image: &Image,
        transfer: Option<Action>,
        (from, to): (vk::ImageLayout, vk::ImageLayout),
        range: &vk::ImageSubresourceRange,
    ) -> Option<Self> {
        let is_release = transfer == Some(Action::Release);
        if transfer.is_none() && from == to || is_release && Bug::ImageNotReleased.is_planted() {
            return None;
        }
        let is_all = |first, count, all| first == 0 && (count == all || count == u32::MAX);
        if !is_all(range.base_mip_level, range.level_count, image.levels)
            || !is_all(range.base_array_layer, range.layer_count, image.layers)
        {
            return Some(Self::Part);
        }
        let is_left = is_release && Bug::ImageLayoutNotReleased.is_planted();
        let to = if is_left { from } else { to };
        Some(Self::Barrier { transfer, from, to })
    }
}

impl Image {
    pub(crate) const fn new(levels: u32, layers: u32) -> Self {
        Self {
            memory: vk::DeviceMemory::null(),
            levels,
            layers,
            owner: Owner::Unknown,
            layout: None,
        }
    }

    /// Binds the image to memory that is exported or imported.
    pub(crate) const fn bind(&mut self, memory: vk::DeviceMemory, is_imported: bool) {
        self.memory = memory;
        self.owner = if is_imported {
            Owner::Others
        } else {
            Owner::Unknown
        };
    }

    /// Notes that a command may have used the image which the layer does not follow.
    pub(crate) fn forget(&mut self) {
        self.layout = None;
        if self.owner == Owner::Others {
            self.owner = Owner::Unknown;
        }
    }

    /// Returns the image after an action, or what the misuse is.
    ///
    /// A barrier from `VK_IMAGE_LAYOUT_UNDEFINED` discards the contents. So it may take an image
    /// from others without an acquire.
    pub(crate) fn after(mut self, action: ImageAction) -> Result<Self, Wrong> {
        const NOT_HERE: Wrong = "which this device has released or imported, and not acquired";
        let is_others = self.owner == Owner::Others;
        let (transfer, from, to) = match action {
            ImageAction::Use if is_others => return Err(NOT_HERE),
            ImageAction::Use => return Ok(self),
            ImageAction::Part => {
                (self.owner, self.layout) = (Owner::Unknown, None);
                return Ok(self);
            }
            ImageAction::Barrier { transfer, from, to } => (transfer, from, to),
        };
        let is_acquire = transfer == Some(Action::Acquire);
        if from != vk::ImageLayout::UNDEFINED {
            if is_acquire && self.owner == Owner::Here {
                return Err("which this device has not released");
            }
            if !is_acquire && is_others {
                return Err(NOT_HERE);
            }
            if self.layout.is_some_and(|layout| layout != from) {
                return Err("which has another layout");
            }
        }
        self.owner = match transfer {
            Some(Action::Release) => Owner::Others,
            _ => Owner::Here,
        };
        self.layout = (to != vk::ImageLayout::UNDEFINED).then_some(to);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use Action::{Acquire, Release};

    use super::*;

    const UNDEFINED: vk::ImageLayout = vk::ImageLayout::UNDEFINED;
    const GENERAL: vk::ImageLayout = vk::ImageLayout::GENERAL;
    const TARGET: vk::ImageLayout = vk::ImageLayout::TRANSFER_DST_OPTIMAL;

    fn imported() -> Image {
        let mut image = Image::new(4, 3);
        image.bind(vk::DeviceMemory::null(), true);
        image
    }

    /// A barrier of `levels` levels and all layers.
    fn barrier(
        transfer: Option<Action>,
        from: vk::ImageLayout,
        to: vk::ImageLayout,
        levels: u32,
    ) -> Option<ImageAction> {
        let range = vk::ImageSubresourceRange::default()
            .level_count(levels)
            .layer_count(vk::REMAINING_ARRAY_LAYERS);
        ImageAction::of_barrier(&imported(), transfer, (from, to), &range)
    }

    fn acquire(from: vk::ImageLayout, to: vk::ImageLayout) -> Option<ImageAction> {
        barrier(Some(Acquire), from, to, 4)
    }

    fn release(from: vk::ImageLayout) -> Option<ImageAction> {
        barrier(Some(Release), from, GENERAL, 4)
    }

    fn change(from: vk::ImageLayout, to: vk::ImageLayout) -> Option<ImageAction> {
        barrier(None, from, to, 4)
    }

    /// `None` in the list is a command that is not followed.
    fn run(mut image: Image, all: &[Option<ImageAction>]) -> Result<(), Wrong> {
        for action in all {
            match action {
                Some(action) => image = image.after(*action)?,
                None => image.forget(),
            }
        }
        Ok(())
    }

    #[test]
    fn correct_commands_pass() {
        let used = Some(ImageAction::Use);
        let programs: [(Image, &[Option<ImageAction>]); 6] = [
            // A frame of the device that made the image, again and again.
            (
                Image::new(4, 3),
                &[
                    acquire(UNDEFINED, TARGET),
                    used,
                    release(TARGET),
                    acquire(GENERAL, TARGET),
                    change(TARGET, GENERAL),
                    release(GENERAL),
                    acquire(UNDEFINED, UNDEFINED),
                ],
            ),
            // The maker takes its new image without an acquire.
            (
                Image::new(4, 3),
                &[used, change(UNDEFINED, TARGET), used, release(TARGET)],
            ),
            // Nothing says in which layout others have released it.
            (imported(), &[acquire(TARGET, TARGET), used]),
            // What is discarded needs no owner.
            (
                imported(),
                &[change(UNDEFINED, TARGET), acquire(UNDEFINED, GENERAL)],
            ),
            // A render pass may change the layout, and may discard the contents.
            (
                imported(),
                &[acquire(GENERAL, TARGET), None, release(GENERAL)],
            ),
            (imported(), &[None, used, release(TARGET)]),
        ];
        for (image, program) in programs {
            assert_eq!(run(image, program), Ok(()), "{program:?}");
        }
        let part = barrier(Some(Acquire), GENERAL, TARGET, 1);
        assert_eq!(part, Some(ImageAction::Part));
        assert_eq!(run(imported(), &[part, part, release(GENERAL)]), Ok(()));
        assert_eq!(change(GENERAL, GENERAL), None);
    }

    #[test]
    fn misuse_is_found() {
        let used = Some(ImageAction::Use);
        for (program, expected) in [
            (&[used][..], "not acquired"),
            (&[release(GENERAL)], "not acquired"),
            (&[change(GENERAL, TARGET)], "not acquired"),
            (
                &[acquire(GENERAL, TARGET), release(TARGET), used],
                "not acquired",
            ),
            (
                &[acquire(GENERAL, TARGET), acquire(GENERAL, TARGET)],
                "not released",
            ),
            (
                &[acquire(GENERAL, TARGET), release(GENERAL)],
                "another layout",
            ),
            (
                &[acquire(GENERAL, TARGET), change(GENERAL, TARGET)],
                "another layout",
            ),
            (
                &[
                    acquire(UNDEFINED, TARGET),
                    release(TARGET),
                    acquire(TARGET, TARGET),
                ],
                "another layout",
            ),
        ] {
            let wrong = run(imported(), program).err().unwrap_or_default();
            assert!(wrong.contains(expected), "{program:?}: {wrong}");
        }
    }
}
