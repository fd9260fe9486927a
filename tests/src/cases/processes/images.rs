//! X9, P1, Q9: images that two processes share.

use syncline::Mechanism;
use syncline::backend::{Device as _, Queue as _};
use syncline::info::BackendKind;
use syncline::negotiate::{Needs, Party, negotiate};
use syncline::vulkan::Contents;
use syncline::vulkan::ash::vk::ImageLayout;
use syncline::{Device, Error, Image, QueueKind, Recorder};

use super::super::devices::{look, open_again};
use crate::arena::Arena;
use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::cases::let_go;
use crate::peer::{Scene, Side, fails};
use crate::texels::{PLAIN, SHAPES};
use crate::user;
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "process.images_of_one_gpu": [X9 Q9] => images;
    "process.image_of_the_application": [X9 P1] => own_image;
    "process.images_are_described_equally": [X9 P1 E5] => described;
    "process.images_are_made_by_vulkan": [X9 E5] => made_by_vulkan;
    "process.images_within_one_process": [X9 D4 E5] => within_a_process;
}

/// Makes a timeline that images go with, or skips the case.
fn make(scene: &mut Scene<'_>) -> Verdict {
    scene.make(Needs::MEMORY, "frames", 0)?;
    match scene.here().mechanism()? {
        Mechanism::ExternalTimeline => Ok(()),
        _ => Stop::skip("no image goes with the timeline"),
    }
}

/// The signaller stores texels, and the waiter finds them.
fn exchange(scene: &mut Scene<'_>, value: u64) -> Verdict {
    scene.by(Side::Signaller, &format!("store frames {value}"))?;
    scene.expect(Side::Waiter, &format!("load frames {value}"), "right")?;
    Ok(())
}

/// Images of each shape. After a wait the texels are there, and without a wait the old ones.
fn images(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        make(scene)?;
        let mut value = 0;
        for shape in 0..SHAPES.len() {
            let image = format!("image {shape}");
            scene.together(&image, &image)?;
            for _ in 0..3 {
                value += 1;
                exchange(scene, value)?;
            }
        }
        // With levels and layers, which CUDA does not share.
        let both = format!("image {}", SHAPES.len());
        let subjects = [&world.left, &world.right];
        let is_cuda =
            |of: &user::Device<Equipped>| of.library().info().backend == BackendKind::Cuda;
        let has_cuda = subjects.into_iter().any(is_cuda);
        match scene.together(&both, &both) {
            Ok(_) if !has_cuda => {
                value += 1;
                exchange(scene, value)?;
            }
            Err(Stop::Failed(reason))
                if has_cuda && reason.contains("mipLevels 4, arrayLayers 3") => {}
            told => return Stop::fail(format!("{both}: {told:?}")),
        }
        value += 1;
        // The control: nothing is stored until the latch opens, and this has no wait before it.
        scene.by(Side::Signaller, &format!("store_closed frames {value}"))?;
        scene.expect(Side::Waiter, &format!("load_early frames {value}"), "wrong")?;
        scene.by(Side::Signaller, "open")?;
        scene.expect(Side::Waiter, &format!("load frames {value}"), "right")?;
        scene.only_the_home_shares("image 0")
    })
}

/// An image in memory of the home's application, alone there and behind buffers.
fn own_image(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        make(scene)?;
        let mut value = 0;
        for image in ["own_image 0", "lone_image 0", "own_image 2", "lone_image 3"] {
            scene.together(image, image)?;
            for _ in 0..3 {
                value += 1;
                exchange(scene, value)?;
            }
        }
        Ok(())
    })
}

/// Two that ask for two images get none, and lose nothing. Then they get the same one.
fn described(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        make(scene)?;
        let mut value = 0;
        scene.keeps_no_descriptors(|scene| {
            for (one, other, field) in [
                ("image 0", "image 2", "mipLevels"),
                ("image 3", "image 0", "arrayLayers"),
                ("image 0", "image 11", "usage"),
                ("own_image 0", "own_image 1", "extent"),
                ("image 0", "memory_as_image 4096", "4096 bytes"),
                ("memory_as_image 4096", "image 0", "4096 bytes"),
            ] {
                fails(scene.together(one, other), field)?;
            }
            scene.together("image 2", "image 2")?;
            value += 1;
            exchange(scene, value)
        })
    })
}

/// If the plan's home makes no images, each process says so, and waits for no other.
fn made_by_vulkan(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.make(Needs::MEMORY, "frames", 0)?;
        let home = scene.here().plan()?.home().backend();
        if home != Some(BackendKind::Cuda) {
            return Stop::skip("the plan's home is not CUDA");
        }
        for side in [Side::Signaller, Side::Waiter] {
            fails(scene.by(side, "image 0"), "only Vulkan's devices make")?;
        }
        Ok(())
    })
}

/// A new image is new on each `VkDevice` of the home's process, and importers keep its memory.
fn within_a_process(world: &World<Equipped>) -> Verdict {
    let left = world.left.library().clone();
    let right = match (world.is_pair(), &left) {
        (true, _) => world.right.library().clone(),
        (false, Device::Vulkan(_)) => open_again(&world.left, &look())?,
        _ => return Stop::skip("the device makes no images"),
    };
    let devices = [left, right];
    let [left, right] = [0, 1].map(|side| Party::of(&devices[side]).needing(Needs::MEMORY));
    let plan = match negotiate([left.signals(), right.waits()]) {
        Ok(plan) if plan.mechanism() == Mechanism::ExternalTimeline => plan,
        _ => return Stop::skip("no image goes with a timeline of the two"),
    };
    let made = plan.image_across("planned", &PLAIN, &devices, &[], patience())?;
    check!(made.len() == 2, "{plan}: {} have the image", made.len());
    for (party, image) in made {
        let Image::Vulkan(image) = image else {
            continue;
        };
        let mut sides = devices.iter();
        let Some(side) = sides.find(|side| side.id().get() == party.device) else {
            return Stop::fail(format!("no device is {party:?}"));
        };
        let queue = side.queue(QueueKind::Graphics, "queue")?;
        let keep = move |recorder: &mut Recorder<'_>| {
            let recorder = recorder.vulkan()?;
            recorder.acquire_image(&image, Contents::Keep, ImageLayout::GENERAL)
        };
        check_error!(
            queue.submit(&[], keep, &[]),
            Error::Unsupported { reason, .. } if reason.contains("it is new")
        );
    }
    // In memory of the application.
    let home = plan.home().id();
    for device in &devices {
        let (Device::Vulkan(vulkan), true) = (device, home == Party::of(device).id()) else {
            continue;
        };
        for alone in [false, true] {
            let (adopted, is_dropped) = Arena::image(vulkan, PLAIN, &PLAIN, alone)?;
            let shared = plan.share_image_across("own", &adopted, &devices, &[], patience())?;
            drop(adopted);
            let imported: Vec<_> = shared.into_iter().filter(|(id, _)| *id != home).collect();
            check!(is_dropped.strong_count() > 0);
            drop(imported);
            let_go(&is_dropped)?;
        }
    }
    Ok(())
}
