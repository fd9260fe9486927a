//! Scenarios with defects, which the program must find. They run only if they are named.
#![allow(unsafe_code, reason = "imports by a call of its own")]

use std::os::fd::{AsRawFd, IntoRawFd};
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::ash::{khr, vk};
use syncline::{Error, QueueKind, cuda::Driver, error::Object};

use super::{PATIENCE, Scenario, Verdict, cuda, events, expect, vulkan};
use crate::one_run::{live_objects, step};

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
    Scenario {
        name: "self.trims-cuda",
        run: || trims(&cuda::open()?.into()),
    },
    Scenario {
        name: "self.trims-vulkan",
        run: || trims(&vulkan::open()?.into()),
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

/// No defect: after a trim the driver has the objects that it had before.
fn trims(device: &syncline::Device) -> Verdict {
    const EACH: usize = 200;
    let submit = |queue: &syncline::Queue| -> Verdict {
        queue.submit(&[], |_| Ok(()), &[])?.end().wait(PATIENCE)?;
        Ok(queue.idle(PATIENCE)?)
    };
    // It ends the semaphores that the driver still has of earlier submissions.
    let last = device.queue(QueueKind::Transfer, "last")?;
    submit(&last)?;
    device.trim();
    let before = live_objects();
    let all = (0..EACH).map(|_| {
        let queue = device.queue(QueueKind::Transfer, "many")?;
        let (line, fence) = (device.timeline("many")?, device.timed_fence("many"));
        queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
        queue.record(&fence)?;
        queue.idle(PATIENCE)?;
        Ok((queue, line, fence))
    });
    let all = all.collect::<Result<Vec<_>, Error>>()?;
    drop(all);
    submit(&last)?;
    // The watching thread may keep an object for a moment.
    let until = Instant::now() + PATIENCE;
    loop {
        let left = device.trim();
        let now = live_objects();
        if now == before {
            return Ok(());
        }
        let what = format!("{left:?} is left: {now:?} instead of {before:?}");
        expect(Instant::now() < until, what)?;
        std::thread::yield_now();
    }
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
