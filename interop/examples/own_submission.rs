//! The application's own `VkDevice` and `vkQueueSubmit2`, ordered by a timeline of Syncline.

#![allow(unsafe_code, reason = "calls Vulkan as an application does")]

use std::{error::Error, sync::Arc, time::Duration};

use syncline::prelude::*;
use syncline::vulkan::ash::{self, vk};
use syncline::vulkan::{self, AdoptInfo, Offer};

const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let info = own_device()?;
    // SAFETY: the handles belong together, and the owner among them destroys them.
    let device = unsafe { vulkan::Device::adopt(info) }?;
    println!("{}", device.info().name);
    let queue = device.queue_on(0, 0, "own")?; // the adopted queue: family, index
    let line = device.timeline("line")?; // or of a link: `share(&device, &cuda)`

    let functions = device.raw().clone();
    // Held, because nothing signals 1 yet. The call does not block.
    queue.submit_raw(&[line.at(1)], &[line.signal_at(2)], move |raw| {
        let waits: Vec<_> = raw.wait_infos().collect();
        let signals: Vec<_> = raw.signal_infos().collect();
        let info = vk::SubmitInfo2::default() // with command buffers of the application
            .wait_semaphore_infos(&waits)
            .signal_semaphore_infos(&signals);
        // SAFETY: the queue is locked, and the handles live until the submission has finished.
        unsafe { functions.queue_submit2(raw.queue, &[info], vk::Fence::null()) }
    })?;
    line.signal(1)?; // by the host; the closure is called before this returns
    line.at(2).wait(PATIENCE)?;
    println!("the line is at {}", line.value()?);
    Ok(queue.idle(PATIENCE)?)
}

/// Makes a device as an engine does, with what Syncline needs.
fn own_device() -> Result<AdoptInfo, Box<dyn Error>> {
    // SAFETY: the structures are valid. The device offers what it is created with.
    unsafe {
        let entry = ash::Entry::load()?;
        let new = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let info = vk::InstanceCreateInfo::default().application_info(&new);
        let instance = entry.create_instance(&info, None)?;
        let mut all = instance.enumerate_physical_devices()?.into_iter();
        let physical = all.next().ok_or("no Vulkan device")?;
        let offer = Offer::of(&entry, &instance, physical)?;
        let names: Vec<_> = offer.extensions.iter().map(|name| name.as_ptr()).collect();
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])]; // family 0
        let mut features = vk::PhysicalDeviceVulkan12Features::default()
            .timeline_semaphore(true)
            .host_query_reset(offer.enabled.host_query_reset);
        let mut newer = vk::PhysicalDeviceVulkan13Features::default().synchronization2(true);
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names)
            .push_next(&mut features)
            .push_next(&mut newer);
        let device = instance.create_device(physical, &info, None)?;
        Ok(AdoptInfo {
            queues: vec![(0, 0, device.get_device_queue(0, 0))],
            owner: Some(Arc::new(Own(instance.clone(), device.clone()))),
            enabled: offer.enabled,
            entry,
            instance,
            physical,
            device,
        })
    }
}

/// Dropped when Syncline uses the device no more.
struct Own(ash::Instance, ash::Device);
impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: nothing uses the handles any more.
        unsafe { (self.1.destroy_device(None), self.0.destroy_instance(None)) };
    }
}
