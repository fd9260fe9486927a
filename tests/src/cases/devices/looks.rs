//! D1, D2, D3: inventories of devices, and their descriptions.

use std::thread;
use std::time::Instant;

use syncline::{
    Device, Error, Inventory, ProbeOptions, QueueKind,
    info::{BackendKind, Info, Uuid},
};

use super::{look, open_again};
use crate::blocked::join;
use crate::case::{Stop, Verdict, check, check_eq, equipped_cases};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "device.two_users_do_not_meet": [D1] => two_users;
    "device.looked_for_from_many_threads": [D1] => from_many_threads;
    "device.unknown_names_are_answered": [D1 E5] => unknown_name;
    "device.identity": [D2] => identity;
    "device.matched_by_uuid_alone": [D2] => by_uuid;
    "device.says_what_its_driver_says": [D2 D3] => as_driver;
    "device.capabilities": [D3] => capabilities;
}

/// A second inventory with devices of its own, beside the one of this case.
fn two_users(world: &World<Equipped>) -> Verdict {
    let inventory = look();
    let other = open_again(&world.left, &inventory)?;
    let other = crate::user::Device::new(Equipped::new(other)?);
    check!(other.id() != world.left.id(), "two users got one device");
    let line = other.timeline("other")?;
    let (ours, theirs) = (
        world.left_queue("ours")?,
        other.queue(QueueKind::Compute, "theirs")?,
    );
    ours.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    theirs.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    line.at(2).wait(patience())?;
    theirs.idle(patience())?;
    // Dropping a device shows what it leaves behind.
    drop((theirs, line, other));
    let said = inventory.validation_errors();
    check!(said.is_empty(), "validation: {}", said.join("; "));
    drop(inventory);
    world.left.check()?;
    ours.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    Ok(())
}

fn unknown_name(_: &World<Equipped>) -> Verdict {
    let inventory = Inventory::probe(&ProbeOptions::default());
    for asked in ["no such device", "", "4711", "-1"] {
        match inventory.select(asked) {
            Err(error @ syncline::Error::NoSuchDevice { .. }) => {
                let text = error.to_string();
                for found in inventory.devices() {
                    check!(text.contains(&found.info().name), "{text}");
                }
            }
            Err(other) => return Err(other.into()),
            Ok(found) => return Stop::fail(format!("{asked:?} is {}", found.info().name)),
        }
    }
    Ok(())
}

fn identity(world: &World<Equipped>) -> Verdict {
    for device in [&world.left, &world.right] {
        let info = device.info();
        check!(!info.name.is_empty() && !info.vendor.is_empty());
        check!(!info.driver.is_empty(), "no driver version");
        check_eq!(info.uuid.is_some(), (info.backend != BackendKind::Host));
        device.check()?;
    }
    let gpus = (world.left.info().uuid, world.right.info().uuid);
    let same = world.left.info().same_gpu(world.right.info());
    check_eq!(same, (gpus.0.is_some() && gpus.0 == gpus.1));
    Ok(())
}

/// A GPU has one UUID, whatever else is equal or different.
fn by_uuid(world: &World<Equipped>) -> Verdict {
    for device in [&world.left, &world.right] {
        let info = device.info();
        let same = Info {
            name: "another name".into(),
            backend: BackendKind::Other("another API"),
            driver: "another driver".into(),
            driver_uuid: None,
            luid: None,
            ..info.clone()
        };
        let is_known = info.uuid.is_some();
        check_eq!([info.same_gpu(&same), same.same_gpu(info)], [is_known; 2]);
        for uuid in [Some(Uuid([0xAB; 16])), None] {
            let mut twin = info.clone();
            twin.uuid = uuid;
            check!(!info.same_gpu(&twin) && !twin.same_gpu(info), "{uuid:?}");
        }
    }
    Ok(())
}

/// Identity and capabilities equal the driver's direct answers.
fn as_driver(world: &World<Equipped>) -> Verdict {
    for device in [&world.left, &world.right] {
        let info = device.info();
        match device.library() {
            Device::Host(_) => check!(
                info.driver_uuid.is_none()
                    && info.luid.is_none()
                    && info.parent_uuid.is_none()
                    && !info.software,
                "the host has an identity that only GPUs have"
            ),
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => super::cuda::as_driver(device)?,
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => super::vulkan::as_driver(device)?,
            _ => {}
        }
        let can = &info.capabilities;
        check!(can.native_timelines != (info.backend == BackendKind::Cuda));
        check!(can.driver_queues != (info.backend == BackendKind::Host));
        check_eq!(can.binary_semaphores, (info.backend == BackendKind::Vulkan));
        for (has, limit) in [
            (can.native_timelines, "native timelines"),
            (can.calibrated_clock, "calibrated clock"),
            (can.stream_memory_ops, "stream memory operations"),
        ] {
            let said = can.limits.iter().any(|(what, _)| *what == limit);
            check!(!has || !said, "it has {limit}, and says why not");
        }
    }
    Ok(())
}

fn capabilities(world: &World<Equipped>) -> Verdict {
    for device in [&world.left, &world.right] {
        let can = &device.info().capabilities;
        check!(can.max_value_difference > 1 << 30);
        check!(!can.queues.is_empty(), "no queues");
        check!(can.timestamp_bits == 0 || can.timestamp_period_ns > 0.0);
        for (what, reason) in &can.limits {
            check!(!what.is_empty() && reason.len() > 8, "{what:?} {reason:?}");
        }
    }
    Ok(())
}

/// Many threads make inventories at once. All get the same result.
fn from_many_threads(world: &World<Equipped>) -> Verdict {
    let seen = |inventory: &Inventory| -> Vec<String> {
        let devices = inventory.devices().iter();
        let absent = inventory.unavailable().iter();
        devices
            .map(|found| format!("{:?} {:?}", found.info(), found.rejected()))
            .chain(absent.map(ToString::to_string))
            .collect()
    };
    let threads = if world.is_pair() { 2 } else { 8 };
    let start = Instant::now();
    let inventory = look();
    check!(start.elapsed() < patience());
    for absent in inventory.unavailable() {
        check!(
            matches!(absent, Error::Unavailable { reason, .. } if reason.len() > 8),
            "a backend is not there for no reason: {absent:?}"
        );
    }
    let alone = seen(&inventory);
    let together: Vec<Vec<String>> = thread::scope(|scope| {
        let looking: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| seen(&look())))
            .collect();
        looking.into_iter().map(join).collect::<Result<_, Stop>>()
    })?;
    for list in together {
        check!(list == alone, "one look finds {alone:?}, another {list:?}");
    }
    world.left.check()?;
    Ok(())
}
