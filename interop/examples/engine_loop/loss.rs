//! Loses a device on purpose. No engine does that.

#![allow(unsafe_code, reason = "calls Vulkan wrongly")]

use syncline::prelude::*;
use syncline::vulkan::ash::vk;
use syncline::{Device, Error};

/// Loses lavapipe's device.
///
/// No other device can be lost on purpose, and be opened again in the same process. There the
/// timeline fails with the same error, as if the device were lost.
pub(crate) fn lose(device: &Device, frames: &Timeline) -> syncline::Result<()> {
    let name = &device.info().name;
    let vulkan = match device {
        Device::Vulkan(vulkan) if name.contains("llvmpipe") => vulkan.raw(),
        _ => {
            println!("the timeline fails in place of the device");
            frames.fail(Error::device_lost(
                device.object(),
                "the example",
                0,
                "an invented loss",
            ));
            return Ok(());
        }
    };
    let mut kind = vk::SemaphoreTypeCreateInfo::default()
        .semaphore_type(vk::SemaphoreType::TIMELINE)
        .initial_value(9);
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: nothing else uses the semaphore. A signal of a lower value is a wrong use, which this
    // driver answers with `VK_ERROR_DEVICE_LOST`, as intended.
    unsafe {
        let semaphore = vulkan.create_semaphore(&info, None).map_err(Error::work)?;
        let lower = vk::SemaphoreSignalInfo::default()
            .semaphore(semaphore)
            .value(5);
        let answer = vulkan.signal_semaphore(&lower);
        println!("{name} answers a wrong call with {answer:?}");
        vulkan.destroy_semaphore(semaphore, None);
    }
    Ok(())
}
