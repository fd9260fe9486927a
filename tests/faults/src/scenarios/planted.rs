//! Scenarios with defects, which the program must find. They run only if they are named.
#![allow(unsafe_code, reason = "imports by a call of its own")]

use std::os::fd::{AsRawFd, IntoRawFd};
use std::time::Duration;

use syncline::backend::Device as _;
use syncline::vulkan::ash::{khr, vk};
use syncline::{Error, QueueKind, cuda::Driver, error::Object};

use super::{Scenario, Verdict, cuda, events, vulkan};
use crate::one_run::step;

pub(super) static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "self.deaf",
        run: deaf,
    },
    Scenario {
        name: "self.leaks",
        run: leaks,
    },
    Scenario {
        name: "self.hangs",
        run: hangs,
    },
    Scenario {
        name: "self.closes-again",
        run: closes_again,
    },
];

/// Ignores an error.
fn deaf() -> Verdict {
    let _ = Driver::load()?.devices();
    Ok(())
}

/// Leaks a descriptor after an error.
fn leaks() -> Verdict {
    let device = cuda::open()?;
    let notice = events::EventFd::new()?;
    let queue = device.queue(QueueKind::Compute, "queue");
    if queue.is_err() {
        std::mem::forget(notice);
    }
    queue?;
    Ok(())
}

/// Waits for ever after an error.
fn hangs() -> Verdict {
    step("a hang on purpose");
    let devices = Driver::load()?.devices();
    while devices.is_err() {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Closes a refused descriptor, although the driver may have done so.
fn closes_again() -> Verdict {
    let device = vulkan::open()?;
    let (port, handle) = device.export_timeline(0)?;
    let fd = handle.into_fd();
    let mut timeline =
        vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut timeline);
    let functions = khr::external_semaphore_fd::Device::new(device.instance(), device.raw());
    // SAFETY: valid structures, and the handle of a timeline semaphore of the same driver.
    let imported = unsafe {
        let made = device.raw().create_semaphore(&info, None);
        let made = made.map_err(|code| native("vkCreateSemaphore", code))?;
        let info = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore(made)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
            .fd(fd.as_raw_fd());
        let imported = functions.import_semaphore_fd(&info);
        device.raw().destroy_semaphore(made, None);
        imported
    };
    drop(port);
    imported.map_err(|code| native("vkImportSemaphoreFdKHR", code))?;
    let _ = fd.into_raw_fd();
    Ok(())
}

fn native(call: &'static str, code: vk::Result) -> Error {
    let object = Object::new("semaphore", "");
    Error::native(object, call, code.as_raw().into(), format!("{code:?}"))
}
