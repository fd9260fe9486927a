//! The checks of the Vulkan loader and of what its drivers offer.
#![allow(unsafe_code, reason = "loads the Vulkan loader")]

use syncline::info::BackendKind;

use super::checks::Outcome;
use super::facts::Facts;
use super::files;

#[cfg(feature = "vulkan")]
pub(super) fn loader(_: &Facts) -> Outcome {
    // SAFETY: the loader's initializers are trusted, as they are by every Vulkan program.
    match unsafe { syncline::vulkan::ash::Entry::load() } {
        Ok(_) => Outcome::ok("the Vulkan loader is loaded"),
        Err(error) => Outcome::found(
            format!("the Vulkan loader cannot be loaded: {error}"),
            "Install it (Debian and Ubuntu: `apt install libvulkan1`; Fedora: `dnf install vulkan-loader`), and take other \
             copies of libvulkan.so.1 out of LD_LIBRARY_PATH.",
        ),
    }
}

/// Not reached, because the check `build` comes first.
#[cfg(not(feature = "vulkan"))]
pub(super) fn loader(_: &Facts) -> Outcome {
    Outcome::ok("not needed")
}

pub(super) fn render_permissions(facts: &Facts) -> Outcome {
    if facts.has_vulkan() {
        return Outcome::ok("Vulkan lists a device");
    }
    let nodes = facts.names("dev/dri").into_iter();
    let nodes = nodes.filter(|name| name.starts_with("renderD"));
    match files::open_any(facts, nodes.map(|name| format!("dev/dri/{name}"))) {
        Ok(Some(path)) => Outcome::ok(format!("/{path} can be opened")),
        Ok(None) => Outcome::ok("there is no render node, which not every driver needs"),
        Err((path, error)) => files::refused(facts, &path, &error),
    }
}

pub(super) fn device(facts: &Facts) -> Outcome {
    let names = |found: &mut dyn Iterator<Item = &syncline::Found>| {
        let names: Vec<_> = found.map(|found| found.info().marked_name()).collect();
        names.join(", ")
    };
    if facts.has_vulkan() {
        return Outcome::ok(names(&mut facts.wanted_vulkan()));
    }
    let kind = if facts.is_software() {
        "software device"
    } else {
        "GPU of NVIDIA"
    };
    let what = match facts.unavailable(BackendKind::Vulkan) {
        Some(error) => error.to_string(),
        None => {
            let others = names(&mut facts.all(BackendKind::Vulkan));
            format!("Vulkan has no {kind}. Its devices: {others}")
        }
    };
    Outcome::found(
        what,
        "Run `VK_LOADER_DEBUG=error,warn,driver syncline info`, which says what becomes of the driver. NVIDIA's needs the \
         version of the kernel module, and /dev/nvidia-modeset (`sudo nvidia-modprobe -m`).",
    )
}

pub(super) fn timelines(facts: &Facts) -> Outcome {
    let mut usable = facts
        .wanted_vulkan()
        .filter(|found| found.rejected().is_none());
    if let Some(found) = usable.next() {
        return Outcome::ok(format!("{} has them", found.info().name));
    }
    let reasons = facts.wanted_vulkan();
    let reasons = reasons.filter_map(|found| Some(found.rejected()?.to_string()));
    Outcome::found(
        reasons.collect::<Vec<_>>().join("; "),
        "Update the driver (NVIDIA: 470 or later), and take layers that hide features out of VK_INSTANCE_LAYERS.",
    )
}
