//! X9, P1, Q9: images that two processes share.

use syncline::backend::Device as _;
use syncline::info::BackendKind;
use syncline::negotiate::{Mechanism, Needs};

use crate::World;
use crate::case::{Stop, Verdict, check, equipped_cases};
use crate::peer::{Scene, Side};
use crate::texels::SHAPES;
use crate::user::Device;
use crate::workload::Equipped;

equipped_cases! {
    "process.images_of_one_gpu": [X9 Q9] => images;
    "process.image_of_the_application": [X9 P1] => own_image;
    "process.images_are_described_equally": [X9 P1 E5] => described;
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
    let found = scene.by(Side::Waiter, &format!("load frames {value}"))?;
    check!(found == "right", "what was stored for {value} is {found}");
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
        let is_cuda = |of: &Device<Equipped>| of.library().info().backend == BackendKind::Cuda;
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
        let unwaited = scene.by(Side::Waiter, &format!("load_early frames {value}"))?;
        check!(
            unwaited == "wrong",
            "the wait is not what orders the two: {unwaited} without it"
        );
        scene.by(Side::Signaller, "open")?;
        let found = scene.by(Side::Waiter, &format!("load frames {value}"))?;
        check!(found == "right", "what was stored at last is {found}");
        Ok(())
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
                match scene.together(one, other) {
                    Err(Stop::Failed(reason)) if reason.contains(field) => {}
                    told => return Stop::fail(format!("{one} and {other}: {told:?}")),
                }
            }
            scene.together("image 2", "image 2")?;
            value += 1;
            exchange(scene, value)
        })
    })
}
