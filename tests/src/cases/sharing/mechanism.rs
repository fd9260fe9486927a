//! X5, E5, Q3: how two devices share, or the reason why they cannot.

use syncline::backend::Device as _;
use syncline::{
    Error, Mechanism, connect,
    handle::HandleKind,
    info::{BackendKind, Info},
    negotiate::Conflict,
    share,
};

use crate::case::{Verdict, check, check_eq, equipped_cases};
use crate::cases::devices::one_device_only;
use crate::cases::{copying, filled};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "share.says_how_and_why": [X5 E5] => says_how;
    "share.either_order_of_the_sides": [X5] => either_order;
    "engine.one_device_linked_to_itself": [Q3] => itself;
}

fn says_how(world: &World<Equipped>) -> Verdict {
    super::pair_only(world)?;
    let link = connect(world.left.library(), world.right.library());
    check!(!link.why().is_empty());
    match share(world.left.library(), world.right.library()) {
        Ok(native) => {
            // The engine's way to the host is shorter, although there is a native one.
            let shorter = (native.mechanism(), link.mechanism())
                == (Mechanism::SharedMemory, Mechanism::Engine);
            check!(shorter || native.mechanism() == link.mechanism());
            let line = native.timeline("line")?;
            let devices: Vec<_> = line.devices().collect();
            for side in [&world.left, &world.right] {
                // Host threads are no device that waits natively.
                let is_host = side.info().backend == BackendKind::Host;
                check!(is_host || devices.contains(&side.id()));
            }
            check!(could_share(world.left.info(), world.right.info()));
        }
        Err(Error::CannotShare {
            left,
            right,
            reason,
            conflict,
            ..
        }) => {
            check_eq!(link.mechanism(), Mechanism::Engine);
            check!(
                !could_share(world.left.info(), world.right.info()),
                "{reason}"
            );
            let names = (&world.left.info().name, &world.right.info().name);
            check!(
                left.contains(names.0) && right.contains(names.1),
                "{left} {right}"
            );
            let conflict = conflict.as_ref();
            let conflict = conflict.and_then(|error| error.downcast_ref::<Conflict>());
            check!(
                conflict.is_some_and(|conflict| !conflict.refused().is_empty()),
                "without the obstacles of each mechanism: {conflict:?}"
            );
            check_eq!(*reason, *link.why());
        }
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

/// Returns whether two devices could have a native timeline, by their capabilities.
///
/// They need one GPU that is no partition, and one API that exports what the other imports. Host
/// memory belongs to no GPU.
fn could_share(left: &Info, right: &Info) -> bool {
    let pass = |from: &Info, to: &Info| {
        from.backend == BackendKind::Vulkan
            && (to.backend == BackendKind::Cuda
                || to.backend == BackendKind::Vulkan && from.driver_uuid == to.driver_uuid)
            && from
                .capabilities
                .exports
                .contains(&HandleKind::TimelineOpaqueFd)
            && to
                .capabilities
                .imports
                .contains(&HandleKind::TimelineOpaqueFd)
            && to.parent_uuid.is_none()
    };
    // A counter in shared memory, which the host or the other CUDA device reaches too.
    let counts = |info: &Info| {
        let capabilities = &info.capabilities;
        match info.backend {
            BackendKind::Host => capabilities.exports.contains(&HandleKind::CounterMemfd),
            BackendKind::Cuda => {
                capabilities.stream_memory_ops
                    && capabilities.imports.contains(&HandleKind::CounterMemfd)
            }
            _ => false,
        }
    };
    let has_cuda = [left, right]
        .map(|info| info.backend)
        .contains(&BackendKind::Cuda);
    counts(left) && counts(right) && has_cuda
        || left.same_gpu(right) && (pass(left, right) || pass(right, left))
}

/// The order in which the devices are named makes no difference.
fn either_order(world: &World<Equipped>) -> Verdict {
    super::pair_only(world)?;
    let (left, right) = (world.left.library(), world.right.library());
    let (there, back) = (connect(left, right), connect(right, left));
    check_eq!(there.mechanism(), back.mechanism());
    check_eq!(there.why(), back.why());
    check_eq!(share(left, right).is_ok(), share(right, left).is_ok());
    check_eq!(
        (there.left().id(), there.right().id()),
        (back.right().id(), back.left().id())
    );
    let (one, other) = (world.left_queue("left")?, world.right_queue("right")?);
    for link in [&there, &back] {
        let line = world.left.own(link.timeline_from("line", 7)?);
        other.submit_empty(&[line.at(8)], &[line.signal_at(9)])?;
        one.submit(&[line.at(7)], |_| Ok(()), &[line.signal_at(8)])?;
        one.submit(&[line.at(9)], |_| Ok(()), &[line.signal_at(10)])?;
        line.at(10).wait(patience())?;
        let sizes = link.buffer_or_relay(256)?;
        check!(sizes.size() == 256, "{} bytes", sizes.size());
    }
    Ok(())
}

/// A link of one device with itself has the device's own timelines and memory.
fn itself(world: &World<Equipped>) -> Verdict {
    one_device_only(world)?;
    let device = world.left.library();
    let link = share(device, device)?;
    check!(link.mechanism() == Mechanism::SameDevice && !link.why().is_empty());
    let line = world.left.own(link.timeline_from("line", 7)?);
    let shared = link.buffer_or_relay(256)?;
    check!(!shared.is_relayed());
    let (one, other) = (world.left_queue("one")?, world.left_queue("other")?);
    let target = world.left.buffer(64)?;
    let copies = copying::<Equipped>(shared.right(), &target);
    let sent = other.submit(&[line.at(8)], copies, &[line.signal_at(9)])?;
    check!(sent.is_held());
    one.fill(&[line.at(7)], shared.left(), 3, &[line.signal_at(8)])?;
    line.at(9).wait(patience())?;
    filled::<Equipped>(&target, 3, "the copy")
}
