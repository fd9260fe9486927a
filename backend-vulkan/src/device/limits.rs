//! The names of limits in a device's capabilities, and their reasons.

use syncline_core::{handle::HandleKind, info::Capabilities};

/// Name of the limit with the reason why a device does not share sync files.
pub(crate) const SYNC_FILES_LIMIT: &str = "sync files";

/// Adds what the device lacks, with the reasons, to its capabilities.
///
/// `semaphores` and `memory` say whether the extensions for their descriptors are enabled.
pub(crate) fn explain(capabilities: &mut Capabilities, semaphores: bool, memory: bool) {
    let limits = &mut capabilities.limits;
    let why = |there, extension| {
        if there {
            "the driver neither exports nor imports it as an opaque file descriptor".to_owned()
        } else {
            format!("{extension} is not there")
        }
    };
    let shares =
        |kind| capabilities.exports.contains(&kind) || capabilities.imports.contains(&kind);
    for (what, kind, reason) in [
        (
            "sharing timelines",
            HandleKind::TimelineOpaqueFd,
            why(semaphores, "VK_KHR_external_semaphore_fd"),
        ),
        (
            "sharing binary semaphores",
            HandleKind::BinaryOpaqueFd,
            why(semaphores, "VK_KHR_external_semaphore_fd"),
        ),
        (
            SYNC_FILES_LIMIT,
            HandleKind::SyncFd,
            if semaphores {
                "the driver neither exports nor imports binary semaphores as sync files".to_owned()
            } else {
                why(semaphores, "VK_KHR_external_semaphore_fd")
            },
        ),
        (
            "sharing memory",
            HandleKind::MemoryOpaqueFd,
            why(memory, "VK_KHR_external_memory_fd"),
        ),
    ] {
        if !shares(kind) {
            limits.push((what, reason));
        }
    }
    if capabilities.timestamp_bits == 0 {
        limits.push((
            "timestamps",
            "no queue family has valid timestamp bits".into(),
        ));
    }
    if !capabilities.calibrated_clock {
        let reason = if capabilities.timestamp_bits == 0 {
            "no queue family has valid timestamp bits"
        } else {
            "neither VK_KHR_ nor VK_EXT_calibrated_timestamps is there with a monotonic clock of the host; \
             submitted timestamps are bracketed instead, to some tens of microseconds"
        };
        limits.push(("calibrated clock", reason.into()));
    }
    limits.push((
        "stream memory operations",
        "Vulkan queues wait for semaphores, not for values in memory".into(),
    ));
}
