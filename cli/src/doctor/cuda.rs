//! The checks of the GPU, its kernel module and the CUDA driver.

use syncline::Error;
use syncline::info::BackendKind;

use super::checks::Outcome;
use super::facts::{Facts, GPUS, variable};
use super::files;

const SOFTWARE: &str = "the drivers are software and need no GPU";
const WORKS: &str = "CUDA lists a device";

/// Why a check of what CUDA needs cannot find anything.
fn in_order(facts: &Facts) -> Option<Outcome> {
    if facts.is_software() {
        Some(Outcome::ok(SOFTWARE))
    } else {
        facts.has_cuda().then(|| Outcome::ok(WORKS))
    }
}

pub(super) fn gpu(facts: &Facts) -> Outcome {
    if let Some(ok) = in_order(facts) {
        return ok;
    }
    if facts.module().is_some() {
        return Outcome::ok("NVIDIA's kernel module is loaded");
    }
    let devices = facts.names("sys/bus/pci/devices");
    let is_gpu = |device: &&String| {
        let of = |what| facts.text(&format!("sys/bus/pci/devices/{device}/{what}"));
        let is_display = of("class").is_some_and(|class| class.starts_with("0x03"));
        of("vendor").is_some_and(|vendor| vendor == "0x10de") && is_display
    };
    if let Some(gpu) = devices.iter().find(is_gpu) {
        return Outcome::ok(format!("the PCI device {gpu} is a GPU of NVIDIA"));
    }
    Outcome::found(
        "there is no GPU of NVIDIA on the PCI bus",
        "Use a machine with such a GPU, or software drivers: `syncline run --software PROGRAM`.",
    )
}

pub(super) fn kernel_module(facts: &Facts) -> Outcome {
    if let Some(ok) = in_order(facts) {
        return ok;
    }
    if let Some(version) = facts.module() {
        return Outcome::ok(format!("the kernel module is {version}"));
    }
    let fix = if facts.is_in_container() {
        "Install NVIDIA's driver on the host of the container, not in the container."
    } else {
        "Install NVIDIA's driver (Debian: `apt install nvidia-driver`; Ubuntu: `ubuntu-drivers install`); \
         if it is installed, `sudo modprobe nvidia` says why it is not loaded."
    };
    Outcome::found("the kernel module nvidia is not loaded", fix)
}

pub(super) fn container(facts: &Facts) -> Outcome {
    if facts.is_software() {
        return Outcome::ok(SOFTWARE);
    }
    if !facts.is_in_container() {
        return Outcome::ok("this is no container");
    }
    let fix = format!(
        "Start the container anew with {GPUS}. In Kubernetes it needs the resource nvidia.com/gpu."
    );
    let visible = std::env::var("NVIDIA_VISIBLE_DEVICES").unwrap_or_else(|_| "unset".into());
    let hides = ["", "none", "void"].contains(&visible.as_str());
    if hides && !facts.has_cuda() && gpu_files(facts).is_empty() {
        let what = format!("this container has no GPU: NVIDIA_VISIBLE_DEVICES is \"{visible}\"");
        return Outcome::found(what, fix);
    }
    let given = variable("NVIDIA_DRIVER_CAPABILITIES");
    let lacks = |what| {
        let is = |given: &String| !given.split(',').any(|part| part == "all" || part == what);
        given.as_ref().is_some_and(is)
    };
    for (api, capability, works) in [
        ("CUDA", "compute", facts.has_cuda()),
        ("Vulkan", "graphics", facts.has_vulkan()),
    ] {
        if !works && lacks(capability) {
            let what = format!(
                "{api} needs \"{capability}\" in NVIDIA_DRIVER_CAPABILITIES, which is \"{}\"",
                given.as_deref().unwrap_or_default()
            );
            return Outcome::found(what, fix);
        }
    }
    Outcome::ok("no variable of this container withholds the GPU")
}

/// `nvidia0` and the like.
fn gpu_files(facts: &Facts) -> Vec<String> {
    let is_gpu = |name: &String| {
        let number = name.strip_prefix("nvidia");
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    facts.names("dev").into_iter().filter(is_gpu).collect()
}

pub(super) fn device_files(facts: &Facts) -> Outcome {
    if let Some(ok) = in_order(facts) {
        return ok;
    }
    let mut missing: Vec<_> = ["nvidiactl", "nvidia-uvm"]
        .into_iter()
        .filter(|name| !facts.path("dev").join(name).exists())
        .collect();
    if gpu_files(facts).is_empty() {
        missing.push("nvidia0");
    }
    if missing.is_empty() {
        return Outcome::ok("nvidiactl, nvidia-uvm and a GPU are in /dev");
    }
    let fix = if facts.is_in_container() {
        format!("Give the container the GPU: start it with {GPUS}.")
    } else {
        "Make them: `sudo nvidia-modprobe -u -c 0`; if that fails, `sudo dmesg` says why.".into()
    };
    Outcome::found(format!("/dev has no {}", missing.join(", no ")), fix)
}

pub(super) fn device_permissions(facts: &Facts) -> Outcome {
    if let Some(ok) = in_order(facts) {
        return ok;
    }
    for path in ["dev/nvidiactl", "dev/nvidia-uvm"] {
        if let Err(error) = files::open(facts, path) {
            return files::refused(facts, path, &error);
        }
    }
    let gpus = gpu_files(facts).into_iter();
    if let Err((path, error)) = files::open_any(facts, gpus.map(|gpu| format!("dev/{gpu}"))) {
        return files::refused(facts, &path, &error);
    }
    Outcome::ok("the device files can be opened")
}

/// A call of the driver has failed, or its library cannot be used.
enum Refusal<'e> {
    Library(&'e str),
    Start { code: Option<u32>, text: String },
}

/// Codes of `cuda.h` that tell what is wrong.
const STUB_LIBRARY: u32 = 34;
const NO_DEVICE: u32 = 100;
const SYSTEM_NOT_READY: u32 = 802;
const SYSTEM_DRIVER_MISMATCH: u32 = 803;
const COMPAT_NOT_SUPPORTED: u32 = 804;

fn refusal(facts: &Facts) -> Option<Refusal<'_>> {
    let error = facts.unavailable(BackendKind::Cuda)?;
    let Error::Unavailable { reason, .. } = error else {
        let (code, text) = (None, error.to_string());
        return Some(Refusal::Start { code, text });
    };
    Some(match code(reason) {
        None | Some(STUB_LIBRARY) => Refusal::Library(reason),
        code => Refusal::Start {
            code,
            text: reason.clone(),
        },
    })
}

/// The code in a text such as `cuInit returned CUDA_ERROR_NO_DEVICE (100)`.
fn code(reason: &str) -> Option<u32> {
    let (_, returned) = reason.split_once(" returned ")?;
    let (_, number) = returned.split_once('(')?;
    number.split_once(')')?.0.parse().ok()
}

pub(super) fn library(facts: &Facts) -> Outcome {
    let Some(Refusal::Library(reason)) = refusal(facts) else {
        return Outcome::ok("the CUDA driver is loaded");
    };
    let fix = if variable("SYNCLINE_CUDA_DRIVER").is_some() {
        "Take SYNCLINE_CUDA_DRIVER out of the environment, and the system's driver is used.".into()
    } else if reason.contains("stub") {
        "Take the toolkit's folder stubs out of LD_LIBRARY_PATH.".into()
    } else if variable("LD_LIBRARY_PATH").is_some() && !reason.contains("was not found") {
        "Take other copies of libcuda.so.1 out of LD_LIBRARY_PATH; if there are none, update the \
         driver."
            .into()
    } else if facts.is_in_container() {
        format!("Give the container the driver of the host: start it with {GPUS}.")
    } else {
        format!(
            "Install the CUDA driver of the version of the kernel module (Debian: `apt install libcuda1`; \
             Ubuntu: `apt install libnvidia-compute-{}`).",
            facts.series()
        )
    };
    Outcome::found(reason, fix)
}

pub(super) fn versions(facts: &Facts) -> Outcome {
    let Some(Refusal::Start { code, text }) = refusal(facts) else {
        return Outcome::ok("the CUDA driver has started");
    };
    let module = facts.module().unwrap_or_else(|| "not known".into());
    let fix = match code {
        Some(SYSTEM_DRIVER_MISMATCH) => {
            "Restart the machine if its driver was updated; in a container take other copies of libcuda.so.1 \
             (the folder cuda/compat) out of LD_LIBRARY_PATH."
        }
        Some(COMPAT_NOT_SUPPORTED) => {
            "Take the folder cuda/compat out of LD_LIBRARY_PATH: this GPU has no forward compatibility."
        }
        _ => return Outcome::ok("the CUDA driver has no complaint about its version"),
    };
    Outcome::found(format!("{text}; the kernel module is {module}"), fix)
}

pub(super) fn visible(facts: &Facts) -> Outcome {
    let value = std::env::var_os("CUDA_VISIBLE_DEVICES");
    let Some(value) = value else {
        return Outcome::ok("CUDA_VISIBLE_DEVICES is not set");
    };
    let value = value.to_string_lossy();
    match refusal(facts) {
        Some(Refusal::Start {
            code: Some(NO_DEVICE),
            ..
        }) => Outcome::found(
            format!("CUDA_VISIBLE_DEVICES is \"{value}\", and CUDA finds no device"),
            "Take it out of the environment: `unset CUDA_VISIBLE_DEVICES`.",
        ),
        _ => Outcome::ok(format!("CUDA_VISIBLE_DEVICES is \"{value}\"")),
    }
}

pub(super) fn start(facts: &Facts) -> Outcome {
    let Some(Refusal::Start { code, text }) = refusal(facts) else {
        return Outcome::ok("the CUDA driver has started");
    };
    let fix = match code {
        Some(NO_DEVICE) => {
            "Look at `nvidia-smi -L`: a GPU in MIG mode needs a partition (`sudo nvidia-smi mig -cgi 0 -C`), and a GPU \
             that is not listed is explained by `sudo dmesg`."
        }
        Some(SYSTEM_NOT_READY) => {
            "Start the fabric manager of this machine: `sudo systemctl start nvidia-fabricmanager`."
        }
        _ => {
            "Load the module for memory, `sudo modprobe nvidia_uvm`, and look at `sudo dmesg` for NVRM and Xid; restart the \
             machine if that does not help."
        }
    };
    Outcome::found(text, fix)
}

pub(super) fn device(facts: &Facts) -> Outcome {
    let mut usable = facts.inventory.of(BackendKind::Cuda);
    if let Some(found) = usable.next() {
        return Outcome::ok(found.info().marked_name());
    }
    let reasons = facts.all(BackendKind::Cuda);
    let reasons = reasons.filter_map(|found| Some(found.rejected()?.to_string()));
    Outcome::found(
        reasons.collect::<Vec<_>>().join("; "),
        "Look at `nvidia-smi`: the compute mode must be Default (`sudo nvidia-smi -c 0`), and a GPU that does not answer \
         needs a reset (`sudo nvidia-smi -r`).",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_from_a_reason() {
        let reason = "the driver cannot start: cuInit returned CUDA_ERROR_UNKNOWN (999)";
        assert_eq!(code(reason), Some(999));
        assert_eq!(
            code(&format!(
                "{reason} (SYNCLINE_CUDA_DRIVER names the library)"
            )),
            Some(999)
        );
        assert_eq!(code("libcuda.so.1 cannot be loaded (no file)"), None);
    }
}
