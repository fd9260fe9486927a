//! Timelines on the host: signals, waits and values.
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;

use crate::bug::Bug;
use crate::chain;
use crate::device::Device;
use crate::payload::Payload;

/// The shortest and the longest pause between two checks of a wait for any of several semaphores.
const PAUSE: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));

/// Returns the payload of a shared timeline.
fn shared(device: &Device, semaphore: vk::Semaphore) -> Option<Arc<Payload>> {
    device.shared(semaphore)?.payload()
}

/// `vkSignalSemaphore`.
pub(crate) unsafe extern "system" fn signal_semaphore(
    raw: vk::Device,
    info: *const vk::SemaphoreSignalInfo<'_>,
) -> vk::Result {
    // SAFETY: valid usage: a live device.
    let Some(device) = (unsafe { Device::of(raw) }) else {
        return vk::Result::ERROR_DEVICE_LOST;
    };
    // SAFETY: valid usage: a valid structure.
    let asked = unsafe { &*info };
    let Some(payload) = shared(&device, asked.semaphore) else {
        // SAFETY: valid usage.
        return unsafe { (device.driver.signal_semaphore)(raw, info) };
    };
    let status = payload.device_status();
    if status == vk::Result::SUCCESS && !Bug::ForgetsHostSignal.is_planted() {
        let excess = u64::from(Bug::HostSignalsTooHigh.is_planted());
        payload.reach(asked.value.saturating_add(excess));
    }
    status
}

/// `vkGetSemaphoreCounterValue`.
pub(crate) unsafe extern "system" fn get_semaphore_counter_value(
    raw: vk::Device,
    semaphore: vk::Semaphore,
    value: *mut u64,
) -> vk::Result {
    // SAFETY: valid usage: a live device.
    let Some(device) = (unsafe { Device::of(raw) }) else {
        return vk::Result::ERROR_DEVICE_LOST;
    };
    let Some(payload) = shared(&device, semaphore) else {
        // SAFETY: valid usage.
        let got = unsafe { (device.driver.get_semaphore_counter_value)(raw, semaphore, value) };
        device.catch_up();
        return got;
    };
    device.catch_up();
    let status = payload.device_status();
    if status == vk::Result::SUCCESS {
        // SAFETY: valid usage.
        unsafe { *value = payload.value() };
    }
    status
}

/// `vkWaitSemaphores`.
pub(crate) unsafe extern "system" fn wait_semaphores(
    raw: vk::Device,
    info: *const vk::SemaphoreWaitInfo<'_>,
    timeout: u64,
) -> vk::Result {
    // SAFETY: valid usage: a live device.
    let Some(device) = (unsafe { Device::of(raw) }) else {
        return vk::Result::ERROR_DEVICE_LOST;
    };
    // SAFETY: valid usage: a valid structure with as many values as semaphores.
    let (flags, semaphores, values) = unsafe {
        let asked = &*info;
        let count = asked.semaphore_count;
        (
            asked.flags,
            chain::slice(asked.p_semaphores, count),
            chain::slice(asked.p_values, count),
        )
    };
    let mut wait = Wait::default();
    for (&semaphore, &value) in semaphores.iter().zip(values) {
        match shared(&device, semaphore) {
            Some(payload) => wait.pages.push((payload, value)),
            None => {
                wait.semaphores.push(semaphore);
                wait.values.push(value);
            }
        }
    }
    if wait.pages.is_empty() {
        // SAFETY: valid usage.
        let waited = unsafe { (device.driver.wait_semaphores)(raw, info, timeout) };
        device.catch_up();
        return waited;
    }
    // A deadline that the clock cannot represent means no deadline.
    let deadline = Instant::now().checked_add(Duration::from_nanos(timeout));
    let deadline = deadline.filter(|_| timeout < u64::MAX);
    if flags.contains(vk::SemaphoreWaitFlags::ANY) && semaphores.len() > 1 {
        wait.any(&device, deadline)
    } else {
        wait.all(&device, deadline)
    }
}

/// A wait for semaphores, some of which are shared.
#[derive(Default)]
struct Wait {
    /// Semaphores of the driver, with as many values.
    semaphores: Vec<vk::Semaphore>,
    values: Vec<u64>,
    pages: Vec<(Arc<Payload>, u64)>,
}

impl Wait {
    /// Waits for one after the other, because a reached value stays reached.
    fn all(&self, device: &Device, deadline: Option<Instant>) -> vk::Result {
        if !self.semaphores.is_empty() {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.map_or(u64::MAX, |left| {
                u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)
            });
            let waited = self.driver(device, vk::SemaphoreWaitFlags::empty(), left);
            if waited != vk::Result::SUCCESS {
                return waited;
            }
        }
        for (payload, value) in &self.pages {
            let waited = payload.wait(device, *value, deadline);
            if waited != vk::Result::SUCCESS {
                return waited;
            }
        }
        vk::Result::SUCCESS
    }

    /// Checks all of them, and sleeps for a time in proportion to the time that has passed.
    ///
    /// Lavapipe's own wait for any is a busy loop.
    fn any(&self, device: &Device, deadline: Option<Instant>) -> vk::Result {
        let start = Instant::now();
        let Some((first, _)) = self.pages.first() else {
            return vk::Result::SUCCESS;
        };
        loop {
            let seen = first.page.news();
            device.catch_up();
            let reached = |(payload, value): &(Arc<Payload>, u64)| payload.value() >= *value;
            if self.pages.iter().any(reached) {
                return vk::Result::SUCCESS;
            }
            let looked = if self.semaphores.is_empty() {
                match first.device_status() {
                    vk::Result::SUCCESS => vk::Result::TIMEOUT,
                    lost => lost,
                }
            } else {
                self.driver(device, vk::SemaphoreWaitFlags::ANY, 0)
            };
            if looked != vk::Result::TIMEOUT {
                return looked;
            }
            let now = Instant::now();
            let mut pause = ((now - start) / 4).clamp(PAUSE.0, PAUSE.1);
            if let Some(deadline) = deadline {
                if now >= deadline {
                    return vk::Result::TIMEOUT;
                }
                pause = pause.min(deadline - now);
            }
            // A change of this page ends the sleep at once.
            first.page.sleep(seen, Some(pause));
        }
    }

    fn driver(&self, device: &Device, flags: vk::SemaphoreWaitFlags, timeout: u64) -> vk::Result {
        // SAFETY: valid usage: the application's live timelines, each with its value.
        let waited = unsafe {
            device
                .driver
                .wait(&self.semaphores, &self.values, flags, timeout)
        };
        device.catch_up();
        waited
    }
}
