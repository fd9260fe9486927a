//! D5, Q8: features of Vulkan only.
//!
//! Binary semaphores, adopted fences, semaphores of points, and the lock of a `VkQueue`.

#![allow(unsafe_code, reason = "an application's own handles are raw")]

use std::any::Any;
use std::sync::{Arc, Barrier};
use std::thread;

use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::ash::vk;
use syncline::vulkan::{AdoptInfo, BinarySemaphore, Device, QueueGuard};
use syncline::{Error, QueueKind, Recorder, Timeline, info::Uuid};

use super::adopted::{PanicsInDrop, kept, raw_object_agrees};
use crate::blocked::join;
use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases};
use crate::cases::{DELAY, WORDS, filled, let_go, several};
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

equipped_cases! {
    "adopted.binary_semaphores_and_fences_ride_along": [Q8] => ride_along;
    "adopted.semaphores_given_or_lent": [D4 D5] => semaphores;
    "adopted.guards_race_with_submissions": [D5 Q8] => guards;
}

/// A fence of the application's own.
struct OwnFence {
    device: Device,
    raw: vk::Fence,
}

impl OwnFence {
    fn new(device: &Device) -> syncline::Result<Self> {
        // SAFETY: the device is live, and the fence is destroyed on drop.
        let raw = unsafe { device.raw().create_fence(&Default::default(), None) };
        Ok(Self {
            device: device.clone(),
            raw: raw.map_err(Error::work)?,
        })
    }

    /// Waits for the fence, and resets it.
    fn wait(&self) -> Verdict {
        let limit = patience().as_nanos() as u64;
        // SAFETY: the fence is live, and at most one submission uses it.
        unsafe {
            let waited = self.device.raw().wait_for_fences(&[self.raw], true, limit);
            waited.map_err(Error::work)?;
            let reset = self.device.raw().reset_fences(&[self.raw]);
            reset.map_err(Error::work)?;
        }
        Ok(())
    }
}

impl Drop for OwnFence {
    fn drop(&mut self) {
        // SAFETY: waited for, or never given to a driver. A case that fails before leaves the
        // device to the end of its process.
        unsafe { self.device.raw().destroy_fence(self.raw, None) };
    }
}

pub(super) fn vulkan_device(world: &World<Equipped>) -> Result<&Device, Stop> {
    match world.left.library() {
        syncline::Device::Vulkan(device) => Ok(device),
        _ => Stop::skip("only Vulkan has them"),
    }
}

/// A chain of submissions that only binary semaphores order. The last one signals a `VkFence`.
///
/// Runs twice, on one queue and on several. Every signal is consumed.
fn ride_along(world: &World<Equipped>) -> Verdict {
    const LINKS: usize = 32;
    let device = vulkan_device(world)?;
    for count in [1, 4] {
        let queues = several(count, |_| world.left_queue("linked"))?;
        let links = several(LINKS, |_| device.binary_semaphore("link"))?;
        let buffers = several(LINKS + 1, |_| world.left.buffer(WORDS))?;
        let fence = OwnFence::new(device)?;
        for word in [1, 2] {
            let (busy, to, first) = (world.left.clone(), buffers[0].clone(), links[0].clone());
            let work = move |recorder: &mut Recorder<'_>| {
                busy.busy(recorder, DELAY)?;
                Equipped::fill(recorder, &to, word)?;
                carry(recorder, None, Some(&first), vk::Fence::null())
            };
            queues[0].submit(&[], work, &[])?;
            for link in 0..LINKS {
                let (from, to) = (buffers[link].clone(), buffers[link + 1].clone());
                let (before, after) = (links[link].clone(), links.get(link + 1).cloned());
                // The last submission signals the fence instead.
                let own = after.as_ref().map_or(fence.raw, |_| vk::Fence::null());
                let work = move |recorder: &mut Recorder<'_>| {
                    Equipped::copy(recorder, &from, &to)?;
                    carry(recorder, Some(&before), after.as_ref(), own)
                };
                let submitted = queues[(link + 1) % count].submit(&[], work, &[])?;
                check!(!submitted.is_held());
            }
            fence.wait()?;
            filled::<Equipped>(&buffers[LINKS], word, "the end of the chain")?;
        }
        for queue in &queues {
            queue.idle(patience())?;
        }
    }
    Ok(())
}

/// Adds semaphores and a fence that only the driver understands to a submission.
fn carry(
    recorder: &mut Recorder<'_>,
    wait: Option<&BinarySemaphore>,
    signal: Option<&BinarySemaphore>,
    fence: vk::Fence,
) -> syncline::Result<()> {
    let Recorder::Vulkan(recorder) = recorder else {
        return Err(crate::cases::cause("not a recorder of Vulkan"));
    };
    // SAFETY: each signal is submitted before its one wait, and consumed before the next round
    // signals again. Semaphores and fence outlive the submission, and the case waits for its end.
    unsafe {
        if let Some(wait) = wait {
            recorder.wait_binary(wait.raw(), vk::PipelineStageFlags::ALL_COMMANDS);
        }
        if let Some(signal) = signal {
            recorder.signal_semaphore(signal)?;
        }
        if fence != vk::Fence::null() {
            recorder.fence(fence);
        }
    }
    Ok(())
}

pub(super) fn no_raw_event(world: &World<Equipped>, device: &Device) -> Verdict {
    raw_object_agrees(
        world,
        |point| device.semaphore(point),
        |raw, point| Ok(counter(device, *raw)? >= point.value()),
    )
}

/// Reads a semaphore as the application does.
pub(super) fn counter(device: &Device, raw: vk::Semaphore) -> syncline::Result<u64> {
    // SAFETY: a timeline semaphore of this device, which the caller keeps.
    unsafe { device.raw().get_semaphore_counter_value(raw) }.map_err(Error::work)
}

/// Creates a semaphore as the application does.
pub(super) fn application_makes(
    device: &Device,
    kind: vk::SemaphoreType,
) -> syncline::Result<vk::Semaphore> {
    let mut kind = vk::SemaphoreTypeCreateInfo::default()
        .semaphore_type(kind)
        .initial_value(5 * u64::from(kind == vk::SemaphoreType::TIMELINE));
    let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
    // SAFETY: a live device, which has timeline semaphores.
    unsafe { device.raw().create_semaphore(&info, None) }.map_err(Error::work)
}

/// The application's own semaphores, of both kinds, work here under their own handles.
///
/// A given semaphore is destroyed with the object made of it. Otherwise the validation layer would
/// complain. A lent one is the application's afterwards, and works.
fn semaphores(world: &World<Equipped>) -> Verdict {
    let device = vulkan_device(world)?;
    let queue = world.left_queue("left")?;
    for given in [false, true] {
        let raw = application_makes(device, vk::SemaphoreType::TIMELINE)?;
        // SAFETY: just created, and signalled only through the timeline. Destroyed below, or given.
        let (port, value) = unsafe { device.adopt_semaphore(raw, given) }?;
        check!(value == 5, "a semaphore at 5 is adopted at {value}");
        let line = Timeline::new("theirs", value, |_| Ok([port].into_iter().collect()))?;
        check_eq!(device.semaphore_of(&line)?, raw);
        let line = world.left.own(line);
        queue.submit(&[line.at(5)], |_| Ok(()), &[line.signal_at(6)])?;
        line.at(6).wait(patience())?;
        line.signal(7)?;
        let seen = counter(device, raw)?;
        check!(seen == 7, "the application finds its semaphore at {seen}");
        queue.idle(patience())?;
        drop(line);
        if !given {
            let info = vk::SemaphoreSignalInfo::default().semaphore(raw).value(8);
            // SAFETY: the application owns it again, at 7, with nothing outstanding.
            unsafe { device.raw().signal_semaphore(&info) }.map_err(Error::work)?;
            let seen = counter(device, raw)?;
            check!(seen == 8, "after it was lent it is at {seen}");
            // SAFETY: no submission uses it any more.
            unsafe { device.raw().destroy_semaphore(raw, None) };
        }

        let raw = application_makes(device, vk::SemaphoreType::BINARY)?;
        // SAFETY: just created. Destroyed below, or given.
        let binary = unsafe { device.adopt_binary(raw, given, "theirs") };
        check_eq!(binary.raw(), raw);
        check_error!(binary.export(), Unsupported);
        for _ in 0..2 {
            let signals = binary.clone();
            let work = move |recorder: &mut Recorder<'_>| {
                carry(recorder, None, Some(&signals), vk::Fence::null())
            };
            queue.submit(&[], work, &[])?;
            // SAFETY: the signal has just been submitted, and no other wait consumes it.
            let fence = unsafe { binary.pending("theirs") }?;
            fence.wait(patience())?;
        }
        queue.idle(patience())?;
        drop(binary);
        if !given {
            // SAFETY: consumed as often as it was signalled, and no submission uses it any more.
            unsafe { device.raw().destroy_semaphore(raw, None) };
        }
    }
    queue.submit(&[], |_| Ok(()), &[])?.end().wait(patience())?;
    Ok(())
}

/// Adopts a device with the queue that `guard` locks.
pub(super) fn adopt(
    device: &Device,
    guard: &QueueGuard,
    owner: Arc<dyn Any + Send + Sync>,
) -> syncline::Result<Device> {
    let info = AdoptInfo {
        entry: device.entry().clone(),
        instance: device.instance().clone(),
        physical: device.physical(),
        device: device.raw().clone(),
        queues: vec![(guard.family(), guard.index(), guard.raw())],
        owner: Some(owner),
        enabled: device.enabled(),
    };
    // SAFETY: the owner keeps the device. Both devices share the lock of the queue.
    unsafe { Device::adopt(info) }
}

/// The owner of an adopted device is dropped with the last object made of it, and not before.
pub(super) fn owners(device: &Device) -> Verdict {
    let lender = device.queue(QueueKind::Compute, "owner")?;
    let guard = lender.lock()?;
    let owner = Arc::new(PanicsInDrop::new(device.clone()));
    let alive = Arc::downgrade(&owner);
    let adopted = adopt(device, &guard, owner)?;
    let queue = adopted.queue_of_family(guard.family(), "adopted")?;
    drop(guard);
    let (line, fence) = (adopted.timeline("line")?, adopted.fence("fence"));
    let kept = |after| kept(&alive, after);
    drop(adopted);
    kept("the device's own handle")?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    queue.record(&fence)?;
    fence.wait(patience())?;
    line.at(1).wait(patience())?;
    queue.idle(patience())?;
    drop(queue);
    kept("a queue")?;
    line.signal(2)?;
    drop(fence);
    kept("a fence")?;
    drop(line);
    let_go(&alive)?;
    lender
        .submit(&[], |_| Ok(()), &[])?
        .end()
        .wait(patience())?;
    Ok(())
}

/// Threads lock a queue and submit raw work to it while others submit through the library.
fn guards(world: &World<Equipped>) -> Verdict {
    const EACH: u64 = 50;
    let device = vulkan_device(world)?;
    let one = device.queue(QueueKind::Compute, "one")?;
    let other = device.queue_on(one.family(), one.index(), "other")?;
    let lines = [device.timeline("one")?, device.timeline("other")?];
    let start = Barrier::new(4);
    let raw = || -> Verdict {
        start.wait();
        for _ in 0..EACH {
            let guard = one.lock()?;
            // SAFETY: the queue is locked, and the empty submission uses no objects.
            unsafe {
                let (raw, nothing) = (device.raw(), [vk::SubmitInfo::default()]);
                raw.queue_submit(guard.raw(), &nothing, vk::Fence::null())
            }
            .map_err(Error::work)?;
        }
        Ok(())
    };
    let through = |queue: &syncline::vulkan::Queue, own: usize| -> Verdict {
        start.wait();
        for value in 1..=EACH {
            // Each waits for the other's last value. A queue that found the lock taken must be
            // woken.
            let waits = [lines[1 - own].at(value - 1)];
            queue.submit(&waits, |_| Ok(()), &[lines[own].signal_at(value)])?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads = [
            scope.spawn(raw),
            scope.spawn(raw),
            scope.spawn(|| through(&one, 0)),
            scope.spawn(|| through(&other, 1)),
        ];
        threads.into_iter().try_for_each(|thread| join(thread)?)
    })?;
    for line in &lines {
        line.at(EACH).wait(patience())?;
    }
    let guard = one.lock()?;
    check!(guard.held() == 0, "{} are held at the end", guard.held());
    // SAFETY: the queue is locked.
    unsafe { device.raw().queue_wait_idle(guard.raw()) }.map_err(Error::work)?;
    drop(guard);
    one.idle(patience())?;
    other.idle(patience())?;
    Ok(())
}

/// Compares the device's description with Vulkan's answers.
pub(super) fn as_driver(device: &Device) -> Verdict {
    let (mut id, mut timelines) = (
        vk::PhysicalDeviceIDProperties::default(),
        vk::PhysicalDeviceTimelineSemaphoreProperties::default(),
    );
    let mut all = vk::PhysicalDeviceProperties2::default()
        .push_next(&mut id)
        .push_next(&mut timelines);
    // SAFETY: a live instance of Vulkan 1.2 or later, and its physical device.
    unsafe {
        let instance = device.instance();
        instance.get_physical_device_properties2(device.physical(), &mut all);
    }
    let kind = all.properties.device_type;
    let info = device.info();
    check_eq!(info.software, (kind == vk::PhysicalDeviceType::CPU));
    check_eq!(info.uuid, Some(Uuid(id.device_uuid)));
    check_eq!(info.driver_uuid, Some(Uuid(id.driver_uuid)));
    let luid = (id.device_luid_valid == vk::TRUE).then_some(id.device_luid);
    check_eq!(info.luid, luid);
    let can = &info.capabilities;
    // SAFETY: as above.
    let offered = unsafe {
        let instance = device.instance();
        instance.enumerate_device_extension_properties(device.physical())
    };
    let offered = offered.map_err(Error::work)?;
    let joins = |offered: &vk::ExtensionProperties| {
        offered.extension_name_as_c_str() == Ok(c"VK_NV_external_compute_queue")
    };
    check_eq!(can.cuda_in_graphics, offered.iter().any(joins));
    check_eq!(
        can.max_value_difference,
        timelines.max_timeline_semaphore_value_difference
    );
    check_eq!(can.calibrated_clock, device.enabled().calibrated_timestamps);
    check!(!can.stream_memory_ops && !can.stream_memory_flush);
    Ok(())
}
