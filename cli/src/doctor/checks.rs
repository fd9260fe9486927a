//! The list of checks, in the order of repair, and how they are run.

use super::facts::Facts;
use super::{cuda, exchange, manifests, pair, vulkan};

/// A question about this machine.
pub(super) struct Check {
    pub(super) id: &'static str,
    /// What is true if the check finds nothing.
    about: &'static str,
    /// The checks without which this check means nothing.
    needs: &'static [&'static str],
    look: fn(&Facts) -> Outcome,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing prevents sharing here. The sentence says how that is known.
    Ok(String),
    /// Something prevents sharing.
    Found {
        /// What was found.
        what: String,
        /// What to do.
        fix: String,
    },
    /// An earlier check has found something, or was skipped.
    Skipped {
        /// The id of the earlier check.
        after: &'static str,
    },
}

impl Outcome {
    pub(super) fn ok(how: impl Into<String>) -> Self {
        Self::Ok(how.into())
    }

    pub(super) fn found(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Found {
            what: what.into(),
            fix: fix.into(),
        }
    }
}

const CHECKS: &[Check] = &[
    Check {
        id: "build",
        about: "this command was built with CUDA and Vulkan",
        needs: &[],
        look: build,
    },
    Check {
        id: "gpu",
        about: "there is a GPU of NVIDIA",
        needs: &["build"],
        look: cuda::gpu,
    },
    Check {
        id: "kernel-module",
        about: "NVIDIA's kernel module is loaded",
        needs: &["gpu"],
        look: cuda::kernel_module,
    },
    Check {
        id: "container",
        about: "the container gives both APIs access to the GPU",
        needs: &["gpu"],
        look: cuda::container,
    },
    Check {
        id: "device-files",
        about: "/dev has the device files of the GPU",
        needs: &["kernel-module", "container"],
        look: cuda::device_files,
    },
    Check {
        id: "device-permissions",
        about: "this user may open them",
        needs: &["device-files"],
        look: cuda::device_permissions,
    },
    Check {
        id: "cuda-library",
        about: "libcuda.so.1 is there, and is a driver for CUDA 11.4 or later",
        needs: &["kernel-module", "container"],
        look: cuda::library,
    },
    Check {
        id: "cuda-versions",
        about: "the library and the kernel module are of one version",
        needs: &["cuda-library"],
        look: cuda::versions,
    },
    Check {
        id: "cuda-visible",
        about: "CUDA_VISIBLE_DEVICES hides no device that is needed",
        needs: &["cuda-library", "device-permissions"],
        look: cuda::visible,
    },
    Check {
        id: "cuda-start",
        about: "the CUDA driver starts",
        needs: &["cuda-versions", "cuda-visible"],
        look: cuda::start,
    },
    Check {
        id: "cuda-device",
        about: "a CUDA device can be used",
        needs: &["cuda-start"],
        look: cuda::device,
    },
    Check {
        id: "vulkan-loader",
        about: "the Vulkan loader, libvulkan.so.1, is there",
        needs: &["gpu"],
        look: vulkan::loader,
    },
    Check {
        id: "vulkan-environment",
        about: "no variable keeps the loader from the GPU's driver",
        needs: &["vulkan-loader"],
        look: manifests::environment,
    },
    Check {
        id: "vulkan-manifest",
        about: "the driver has a manifest (ICD), and it can be read",
        needs: &["vulkan-environment", "kernel-module", "container"],
        look: manifests::manifest,
    },
    Check {
        id: "vulkan-library",
        about: "the library that the manifest names can be loaded",
        needs: &["vulkan-manifest"],
        look: manifests::library,
    },
    Check {
        id: "render-permissions",
        about: "this user may open /dev/dri/renderD*",
        needs: &["vulkan-library"],
        look: vulkan::render_permissions,
    },
    Check {
        id: "vulkan-device",
        about: "Vulkan has a device of the GPU, not only software",
        needs: &["render-permissions", "device-permissions"],
        look: vulkan::device,
    },
    Check {
        id: "timeline-semaphores",
        about: "that device has Vulkan 1.2 and timeline semaphores",
        needs: &["vulkan-device"],
        look: vulkan::timelines,
    },
    Check {
        id: "mig",
        about: "CUDA's device is no MIG partition that Vulkan does not have",
        needs: &["cuda-device", "timeline-semaphores"],
        look: pair::partition,
    },
    Check {
        id: "same-gpu",
        about: "a CUDA device and a Vulkan device have the same UUID",
        needs: &["mig"],
        look: pair::same_gpu,
    },
    Check {
        id: "semaphores",
        about: "timelines pass from Vulkan to CUDA (VK_KHR_external_semaphore_fd)",
        needs: &["same-gpu"],
        look: pair::semaphores,
    },
    Check {
        id: "memory",
        about: "memory passes from Vulkan to CUDA (VK_KHR_external_memory_fd)",
        needs: &["same-gpu"],
        look: pair::memory,
    },
    Check {
        id: "own-context",
        about: "CUDA runs in a context of its own, whether or not it could run in Vulkan's",
        needs: &["same-gpu"],
        look: pair::own_context,
    },
    Check {
        id: "exchange",
        about: "CUDA writes shared memory, and Vulkan reads it behind a shared timeline",
        needs: &["semaphores", "memory"],
        look: exchange::exchange,
    },
];

fn build(facts: &Facts) -> Outcome {
    let missing = [("cuda", facts.built.cuda), ("vulkan", facts.built.vulkan)];
    let missing = missing.into_iter().filter(|(_, there)| !there);
    let missing: Vec<_> = missing.map(|(name, _)| name).collect();
    if missing.is_empty() {
        return Outcome::ok("CUDA and Vulkan are in this command");
    }
    Outcome::found(
        format!("this command was built without {}", missing.join(" and ")),
        "Build it with its default features: `cargo build --release -p syncline-cli`.",
    )
}

/// Runs the checks. Returns each with its result, in the order of repair.
pub(super) fn run(facts: &Facts) -> Vec<(&'static Check, Outcome)> {
    let mut results: Vec<(&Check, Outcome)> = Vec::new();
    for check in CHECKS {
        let holds = |id: &str| {
            let mut earlier = results.iter();
            earlier.any(|(check, outcome)| check.id == id && matches!(outcome, Outcome::Ok(_)))
        };
        let outcome = match check.needs.iter().find(|id| !holds(id)) {
            Some(after) => Outcome::Skipped { after },
            None => (check.look)(facts),
        };
        results.push((check, outcome));
    }
    results
}

/// The checks in words, for `--help`.
pub(super) fn list() -> String {
    let lines = CHECKS
        .iter()
        .map(|check| format!("  {:<20} {}", check.id, check.about));
    format!("Checks:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_needs_only_earlier_checks() {
        for (at, check) in CHECKS.iter().enumerate() {
            for id in check.needs {
                let is_earlier = CHECKS[..at].iter().any(|earlier| earlier.id == *id);
                assert!(is_earlier, "{} needs {id}", check.id);
            }
        }
    }

    #[test]
    fn the_page_lists_every_check() {
        let page = include_str!("../../../docs/command.md");
        let rows = page.lines().filter_map(|line| {
            let id = line.strip_prefix("| `")?.split_once('`')?.0;
            CHECKS.iter().map(|check| check.id).find(|own| *own == id)
        });
        let listed: Vec<_> = rows.collect();
        let own: Vec<_> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(listed, own);
    }
}
