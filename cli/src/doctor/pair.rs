//! The checks of two devices together: one GPU, and what each can hand to the other.

use syncline::Found;
use syncline::handle::HandleKind;
use syncline::info::BackendKind;

use super::checks::Outcome;
use super::facts::Facts;

/// A CUDA device and a Vulkan device of one GPU, that `Inventory::pair` would open.
fn pair(facts: &Facts) -> Option<(&Found, &Found)> {
    let mut cuda = facts.inventory.of(BackendKind::Cuda);
    cuda.find_map(|cuda| {
        let mut vulkan = facts.inventory.of(BackendKind::Vulkan);
        let same = vulkan.find(|vulkan| vulkan.info().same_gpu(cuda.info()))?;
        Some((cuda, same))
    })
}

pub(super) fn partition(facts: &Facts) -> Outcome {
    let mut partitions = facts.inventory.of(BackendKind::Cuda);
    let partition = partitions.find(|found| found.info().parent_uuid.is_some());
    let Some((partition, whole)) = partition.and_then(|p| Some((p, p.info().parent_uuid?))) else {
        return Outcome::ok("no CUDA device is a partition");
    };
    if pair(facts).is_some() {
        return Outcome::ok("Vulkan has the same device");
    }
    Outcome::found(
        format!(
            "{} is a MIG partition of the GPU {whole}, and Vulkan does not have that partition",
            partition.info().marked_name()
        ),
        "Use a whole GPU: `sudo nvidia-smi -mig 0`, or let CUDA_VISIBLE_DEVICES name a GPU without MIG.",
    )
}

pub(super) fn same_gpu(facts: &Facts) -> Outcome {
    if let Some((cuda, vulkan)) = pair(facts) {
        let names = [cuda, vulkan].map(|found| found.info().marked_name());
        return Outcome::ok(format!("{} is {}", names[0], names[1]));
    }
    let list = |backend| {
        let devices = facts.inventory.of(backend).map(|found| {
            let info = found.info();
            let uuid = info.uuid.map_or_else(String::new, |uuid| uuid.to_string());
            format!("{} {uuid}", info.marked_name())
        });
        devices.collect::<Vec<_>>().join(", ")
    };
    let vulkan = facts.wanted_vulkan().find_map(|found| found.info().uuid);
    let is_software = facts
        .inventory
        .of(BackendKind::Cuda)
        .all(|cuda| cuda.info().software);
    let advice = if is_software {
        "Let SYNCLINE_SOFTWARE_CUDA_DEVICES and VK_DRIVER_FILES choose the same software driver."
            .into()
    } else {
        format!(
            "Let CUDA take the GPU of Vulkan: `CUDA_VISIBLE_DEVICES=GPU-{}`; or give Vulkan that of CUDA, in a container with \
             NVIDIA_VISIBLE_DEVICES.",
            vulkan.map_or_else(|| "UUID".into(), |uuid| uuid.to_string())
        )
    };
    Outcome::found(
        format!(
            "CUDA has {}, and Vulkan has {}: no two have the same UUID",
            list(BackendKind::Cuda),
            list(BackendKind::Vulkan)
        ),
        advice,
    )
}

pub(super) fn semaphores(facts: &Facts) -> Outcome {
    passes(
        facts,
        HandleKind::TimelineOpaqueFd,
        "timelines",
        "sharing timelines",
    )
}

pub(super) fn memory(facts: &Facts) -> Outcome {
    passes(
        facts,
        HandleKind::MemoryOpaqueFd,
        "memory",
        "sharing memory",
    )
}

/// Tells whether CUDA could run in Vulkan's context. Finds nothing, because sharing works without.
pub(super) fn own_context(facts: &Facts) -> Outcome {
    let answer = |found: &Found| match found.info().capabilities.cuda_in_graphics {
        true => "yes",
        false => "no",
    };
    let (cuda, vulkan) = pair(facts).map_or(("no", "no"), |(c, v)| (answer(c), answer(v)));
    Outcome::ok(format!(
        "CUDA in Vulkan's own context, which Syncline does not need: CUDA says {cuda} \
         (CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED, 138), Vulkan says {vulkan} (VK_NV_external_compute_queue)"
    ))
}

/// Vulkan exports, and CUDA imports. `limit` is Vulkan's name of what it cannot do.
fn passes(facts: &Facts, kind: HandleKind, objects: &str, limit: &str) -> Outcome {
    let Some((cuda, vulkan)) = pair(facts) else {
        return Outcome::found("there is no pair of devices", "Repair the earlier checks.");
    };
    let (exports, imports) = (
        vulkan.info().capabilities.exports.contains(&kind),
        cuda.info().capabilities.imports.contains(&kind),
    );
    if exports && imports {
        return Outcome::ok(format!("CUDA can import Vulkan's {objects}"));
    }
    let reason = |found: &Found, limit: &str| {
        let mut limits = found.info().capabilities.limits.iter();
        let known = limits.find(|(what, _)| *what == limit);
        known.map_or_else(
            || "its driver does not say why".into(),
            |(_, why)| why.clone(),
        )
    };
    let what = if exports {
        let name = cuda.info().marked_name();
        format!(
            "CUDA's {name} imports no {objects}: {}",
            reason(cuda, "imports")
        )
    } else {
        let name = vulkan.info().marked_name();
        format!(
            "Vulkan's {name} exports no {objects}: {}",
            reason(vulkan, limit)
        )
    };
    let fix = if exports {
        "Update the CUDA driver (NVIDIA: 470 or later)."
    } else if vulkan.info().software {
        "Add `--software`: it loads the layer with which software drivers share."
    } else {
        "Update the driver (NVIDIA: 470 or later), and take layers that hide extensions out of VK_INSTANCE_LAYERS."
    };
    Outcome::found(what, fix)
}
