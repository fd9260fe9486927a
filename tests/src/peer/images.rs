//! Commands for an image of both processes.

use std::sync::atomic::Ordering;

use syncline::backend::Queue as _;
use syncline::image::ImageInfo;
use syncline::negotiate::Party;
use syncline::vulkan::Contents;
use syncline::vulkan::ash::vk::ImageLayout;
use syncline::{Buffer, Device, Image, Recorder};

use super::bug::Bug;
use super::half::{Half, LATE, made, number};
use crate::arena::Arena;
use crate::case::Stop;
use crate::texels::{LEVELS_AND_LAYERS, SHAPES, cut, texels, words_of};
use crate::workload::Equipped;
use crate::{Subject as _, Verdict, patience};

/// The image with this number. The last one is only for `VkDevice`s.
fn info_of(shape: &str) -> Result<ImageInfo, Stop> {
    let mut all = SHAPES.into_iter().chain([LEVELS_AND_LAYERS]);
    let found = all.nth(number(shape)? as usize);
    found.map_or_else(|| Stop::fail(format!("there is no image {shape}")), Ok)
}

impl Half {
    /// See [`Half::run`]. Returns `None` for other commands.
    pub(super) fn run_with_images(
        &mut self,
        what: &str,
        label: &str,
        rest: &str,
    ) -> Option<Result<String, Stop>> {
        let said = |()| String::new();
        Some(match what {
            "image" => self.make_image(label).map(said),
            "own_image" => self.share_image(label, false).map(said),
            "lone_image" => self.share_image(label, true).map(said),
            "store" => {
                let device = self.device.clone();
                let late = move |r: &mut Recorder<'_>| device.busy(r, LATE);
                self.store(label, rest, late).map(said)
            }
            "store_closed" => match self.latch() {
                Ok(latch) => self
                    .store(label, rest, move |r| Equipped::block(r, &latch))
                    .map(said),
                Err(error) => Err(error),
            },
            "load" => number(rest).and_then(|value| self.load(label, value, value)),
            "load_early" => number(rest).and_then(|value| self.load(label, 0, value)),
            _ => return None,
        })
    }

    /// Carries the plan out for an image of this shape.
    fn make_image(&mut self, shape: &str) -> Verdict {
        let mut info = info_of(shape)?;
        if Bug::DescribesAnotherImage.is_planted() {
            info.extent.width += 1;
        }
        let (plan, endpoint, devices) = (self.plan()?, self.endpoint()?, self.devices());
        let made = plan.image_across("image", &info, &devices, &[&endpoint], patience())?;
        self.take_image(made.into_iter().next().map(|(_, image)| image))
    }

    /// Shares an image of the application, if this is the process of the plan's home.
    ///
    /// It is at an offset, or `alone` in its memory. The other process does as for other images.
    fn share_image(&mut self, shape: &str, alone: bool) -> Verdict {
        let (plan, endpoint, devices) = (self.plan()?, self.endpoint()?, self.devices());
        let is_home = plan.home().id() == Party::of(&devices[0]).id();
        let vulkan = match &devices[0] {
            Device::Vulkan(vulkan) if is_home => vulkan,
            _ => return self.make_image(shape),
        };
        let described = info_of(shape)?;
        let mut info = described;
        if Bug::MakesAnotherImage.is_planted() {
            std::mem::swap(&mut info.extent.width, &mut info.extent.height);
        }
        let (image, _) = Arena::image(vulkan, info, &described, alone)?;
        let peers = [&endpoint];
        let made = plan.share_image_across("image", &image, &devices, &peers, patience())?;
        self.take_image(made.into_iter().next().map(|(_, image)| image))
    }

    /// Keeps the image, and discards its contents in the process of the plan's home (X9).
    fn take_image(&mut self, image: Option<Image>) -> Verdict {
        let is_home = self.plan()?.home().id() == Party::of(&self.devices()[0]).id();
        if let (Some(Image::Vulkan(image)), true) = (&image, is_home) {
            let image = image.clone();
            let discard = move |recorder: &mut Recorder<'_>| {
                let recorder = recorder.vulkan()?;
                recorder.acquire_image(&image, Contents::Discard, ImageLayout::GENERAL)
            };
            let queue = self.queue()?;
            queue.submit(&[], discard, &[])?;
            queue.idle(patience())?;
        }
        self.image = image;
        Ok(())
    }

    fn image(&self) -> Result<Image, Stop> {
        made(&self.image, "image")
    }

    /// Writes all levels after `before`, and signals.
    fn store(
        &mut self,
        label: &str,
        value: &str,
        before: impl FnOnce(&mut Recorder<'_>) -> syncline::Result<()> + Send + 'static,
    ) -> Verdict {
        let (line, image, value) = (self.signals(label)?, self.image()?, number(value)?);
        let mut sources = Vec::new();
        for level in 0..image.info().levels {
            let words = texels(image.info(), level, value as u32);
            let source = self.device.buffer(words.len())?;
            for (to, word) in source.words().unwrap_or_default().iter().zip(words) {
                to.store(word, Ordering::Relaxed);
            }
            sources.push(source);
        }
        let work = move |recorder: &mut Recorder<'_>| {
            before(recorder)?;
            let copy = |(level, from): (u32, &Buffer)| recorder.copy_to_image(from, &image, level);
            (0..).zip(&sources).try_for_each(copy)
        };
        let queue = self.queue()?;
        queue.submit(&[], work, &[line.signal_at(value)])?;
        Ok(())
    }

    /// Waits for `wait` in the queue, and checks that all levels have what was stored for `value`.
    fn load(&mut self, label: &str, wait: u64, value: u64) -> Result<String, Stop> {
        let (line, image) = (self.waits(label)?, self.image()?);
        let info = *image.info();
        let levels = (0..info.levels).map(|level| self.device.buffer(words_of(&info, level)));
        let targets = levels.collect::<syncline::Result<Vec<_>>>()?;
        let to = targets.clone();
        let work = move |recorder: &mut Recorder<'_>| {
            let copy = |(level, to): (u32, &Buffer)| recorder.copy_from_image(&image, level, to);
            (0..).zip(&to).try_for_each(copy)
        };
        let queue = self.queue()?;
        queue.submit(&[line.at(wait)], work, &[])?;
        queue.idle(patience())?;
        let is_right = |(level, target): (u32, &Buffer)| {
            let found = cut(Equipped::read(target), &info, level);
            found == cut(texels(&info, level, value as u32), &info, level)
        };
        let right = (0..).zip(&targets).all(is_right);
        Ok(if right { "right" } else { "wrong" }.into())
    }
}
