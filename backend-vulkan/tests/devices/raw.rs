//! Adopted objects of an application: its device, submissions, binary semaphores and fences.
#![allow(unsafe_code, reason = "takes the role of the application")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{TIMEOUT, all_words, on_each_device, words};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind, Timeline};
use syncline_vulkan::ash::{self, vk};
use syncline_vulkan::{AdoptInfo, Device, Enabled, Handles, Offer};

fn submissions_to_a_locked_queue_are_held() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Compute, "deferred").unwrap();
        let (target, done) = (words(device, 64), device.timeline("done").unwrap());
        let guard = queue.lock().unwrap();
        // Submitted by the thread that has the guard.
        let filled = target.clone();
        let submitted = queue
            .submit(
                &[],
                move |r| r.fill_buffer(&filled, 5),
                &[done.signal_at(1)],
            )
            .unwrap();
        assert!(submitted.is_held());
        // Submitted by another thread.
        let (second, filled) = (queue.clone(), target.clone());
        std::thread::spawn(move || {
            second
                .submit(&[], move |r| r.fill_buffer(&filled, 6), &[])
                .map(|_| ())
        })
        .join()
        .unwrap()
        .unwrap();
        assert_eq!(guard.held(), 2);
        assert!(
            done.at(1)
                .wait(Duration::from_millis(20))
                .unwrap_err()
                .is_timeout()
        );
        assert!(matches!(
            device.semaphore(done.at(1)),
            Err(Error::NotPending { .. })
        ));
        drop(guard);
        assert_eq!(queue.held().count, 0);
        done.at(1).wait(TIMEOUT).unwrap();
        queue.idle(TIMEOUT).unwrap();
        assert_eq!(all_words(&target), 6);
    });
}

fn guards_and_submissions_exclude_each_other() {
    on_each_device(|device| {
        let (family, index) = {
            let queue = device.queue(QueueKind::Compute, "probe").unwrap();
            (queue.family(), queue.index())
        };
        std::thread::scope(|scope| {
            for n in 0..3 {
                scope.spawn(move || {
                    let queue = device
                        .queue_on(family, index, &format!("racer {n}"))
                        .unwrap();
                    let done = device.timeline("done").unwrap();
                    for v in 1..=300 {
                        queue.submit(&[], |_| Ok(()), &[done.signal_at(v)]).unwrap();
                    }
                    done.at(300).wait(TIMEOUT).unwrap();
                });
            }
            scope.spawn(|| {
                for _ in 0..300 {
                    let guard = device.lock_queue(family, index).unwrap();
                    let batch = vk::SubmitInfo::default();
                    // SAFETY: the guard is held, and the batch is empty.
                    unsafe {
                        device
                            .raw()
                            .queue_submit(guard.raw(), &[batch], vk::Fence::null())
                    }
                    .unwrap();
                }
            });
        });
        assert!(matches!(
            device.lock_queue(family, 999),
            Err(Error::Unsupported { .. })
        ));
    });
}

/// An application that has created its instance, device and queue itself.
struct Application {
    entry: ash::Entry,
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    queue: vk::Queue,
}

impl Application {
    fn new() -> Option<Self> {
        // SAFETY: plain Vulkan set-up. Every structure is valid.
        unsafe {
            let entry = ash::Entry::load()
                .map_err(|e| println!("skipped: {e}"))
                .ok()?;
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
            let info = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry
                .create_instance(&info, None)
                .map_err(|e| println!("skipped: {e}"))
                .ok()?;
            let physical = *instance.enumerate_physical_devices().ok()?.first()?;
            let queues = [vk::DeviceQueueCreateInfo::default()
                .queue_family_index(0)
                .queue_priorities(&[1.0])];
            let mut timelines =
                vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
            let info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .push_next(&mut timelines);
            let device = instance.create_device(physical, &info, None).unwrap();
            let queue = device.get_device_queue(0, 0);
            Some(Self {
                entry,
                instance,
                physical,
                device,
                queue,
            })
        }
    }

    fn adopted(self: &Arc<Self>) -> Device {
        let info = AdoptInfo {
            entry: self.entry.clone(),
            instance: self.instance.clone(),
            physical: self.physical,
            device: self.device.clone(),
            queues: vec![(0, 0, self.queue)],
            owner: Some(self.clone()),
            enabled: Enabled::default(),
        };
        // SAFETY: the application has created these handles, and submits only under the guard.
        unsafe { Device::adopt(info) }.unwrap()
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        // SAFETY: this is the last owner, so nothing uses them any more.
        unsafe {
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}

fn an_application_keeps_its_device_and_submits_itself() {
    let _turn = crate::common::turn();
    let Some(application) = Application::new().map(Arc::new) else {
        return crate::common::skip("the application of the test cannot be made");
    };
    let device = application.adopted();
    let queue = device.queue(QueueKind::Compute, "adopted").unwrap();
    let frames = device.timeline("frames").unwrap();
    let target = words(&device, 64);

    // The consumer is submitted first, and waits for a signal that the application submits itself.
    let filled = target.clone();
    let submitted = queue
        .submit(
            &[frames.at(1)],
            move |r| r.fill_buffer(&filled, 8),
            &[frames.signal_at(2)],
        )
        .unwrap();
    assert!(submitted.is_held());
    assert!(matches!(
        device.semaphore(frames.at(1)),
        Err(Error::NotPending { .. })
    ));

    let mut claim = frames.claim(1).unwrap();
    assert!(matches!(
        frames.signal(1),
        Err(Error::SignalOverlapsClaim { .. })
    ));
    claim.wait_ready(TIMEOUT).unwrap();
    let semaphore = [device.semaphore_of(&frames).unwrap()];
    {
        let guard = queue.lock().unwrap();
        assert_eq!(guard.held(), 1);
        let values = [claim.value()];
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let batch = vk::SubmitInfo::default()
            .signal_semaphores(&semaphore)
            .push_next(&mut timeline);
        // SAFETY: the guard is held, and the value is claimed and ready.
        unsafe {
            device
                .raw()
                .queue_submit(guard.raw(), &[batch], vk::Fence::null())
        }
        .unwrap();
        claim.submitted().unwrap();
    }
    frames.at(2).wait(TIMEOUT).unwrap();
    assert_eq!(all_words(&target), 8);
    assert_eq!(device.semaphore(frames.at(2)).unwrap(), semaphore[0]);

    // Times also work without `hostQueryReset`.
    let (begin, end) = (device.timed_fence("begin"), device.timed_fence("end"));
    queue.record(&begin).unwrap();
    queue.record(&end).unwrap();
    end.wait(TIMEOUT).unwrap();
    assert!(end.elapsed_since(&begin).unwrap() >= 0);

    // The application's handles outlive the adopted device, and the application destroys them.
    drop((begin, end, claim, target, frames, queue, device));
    crate::common::wait_until_alone(&application);
}

/// Raw handles as from C, without queues. Only the application submits to its queue.
fn raw_handles_without_queues_are_adopted() {
    let _turn = crate::common::turn();
    let Some(application) = Application::new().map(Arc::new) else {
        return crate::common::skip("the application of the test cannot be made");
    };
    // SAFETY: the application's own handles, created for Vulkan 1.2.
    let offer = unsafe {
        Offer::of(
            &application.entry,
            &application.instance,
            application.physical,
        )
    }
    .unwrap();
    for loader in [
        None,
        Some(application.entry.static_fn().get_instance_proc_addr),
    ] {
        let handles = Handles {
            get_instance_proc_addr: loader,
            instance: application.instance.handle(),
            physical: application.physical,
            device: application.device.handle(),
        };
        // SAFETY: live handles that belong together. The owner keeps them.
        let device = unsafe {
            let mut info = AdoptInfo::from_handles(handles).unwrap();
            info.owner = Some(application.clone());
            Device::adopt(info).unwrap()
        };
        assert_eq!(device.info().uuid, offer.info.uuid);
        let refused = device.queue(QueueKind::Compute, "none").unwrap_err();
        assert!(refused.to_string().contains("without queues"), "{refused}");

        let frames = device.timeline("frames").unwrap();
        let mut claim = frames.claim(1).unwrap();
        let semaphores = [device.semaphore_of(&frames).unwrap()];
        let values = [claim.value()];
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let batch = vk::SubmitInfo::default()
            .signal_semaphores(&semaphores)
            .push_next(&mut timeline);
        // SAFETY: only this thread uses the queue, and the value is claimed.
        unsafe {
            application
                .device
                .queue_submit(application.queue, &[batch], vk::Fence::null())
        }
        .unwrap();
        claim.submitted().unwrap();
        frames.at(1).wait(TIMEOUT).unwrap();
        drop((claim, frames, device));
        crate::common::wait_until_alone(&application);
    }
}

fn null_handles_are_refused() {
    let handles = Handles {
        get_instance_proc_addr: None,
        instance: vk::Instance::null(),
        physical: vk::PhysicalDevice::null(),
        device: vk::Device::null(),
    };
    // SAFETY: null is refused before it is used.
    let refused = unsafe { AdoptInfo::from_handles(handles) };
    assert!(
        matches!(&refused, Err(Error::Unavailable { reason, .. }) if reason.contains("VkInstance")),
        "{refused:?}"
    );
}

fn an_adopted_semaphore_starts_at_the_value_it_has() {
    on_each_device(|device| {
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(41);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: `info` is valid. The semaphore is adopted at once, and the timeline owns it.
        let (attachment, value) = unsafe {
            let raw = device.raw().create_semaphore(&info, None).unwrap();
            device.adopt_semaphore(raw, true).unwrap()
        };
        assert_eq!(value, 41);
        let timeline =
            Timeline::new("adopted", value, |_| Ok([attachment].into_iter().collect())).unwrap();
        let queue = device.queue(QueueKind::Compute, "q").unwrap();
        queue
            .submit(&[timeline.at(41)], |_| Ok(()), &[timeline.signal_at(42)])
            .unwrap();
        timeline.at(42).wait(TIMEOUT).unwrap();
        assert!(matches!(
            device.semaphore(syncline_core::Point::EMPTY),
            Err(Error::Unsupported { .. })
        ));
    });
}

fn raw_binary_semaphores_and_fences_are_submitted() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Graphics, "presenting").unwrap();
        let (done, target) = (device.timeline("done").unwrap(), words(device, 64));
        // SAFETY: created here, used correctly below, and destroyed at the end.
        let (binary, fence) = unsafe {
            (
                device
                    .raw()
                    .create_semaphore(&Default::default(), None)
                    .unwrap(),
                device
                    .raw()
                    .create_fence(&Default::default(), None)
                    .unwrap(),
            )
        };
        queue
            .submit(
                &[],
                move |recorder| {
                    // SAFETY: the semaphore is unsignalled.
                    unsafe { recorder.signal_binary(binary) };
                    Ok(())
                },
                &[],
            )
            .unwrap();
        let filled = target.clone();
        queue
            .submit(
                &[],
                move |recorder| {
                    recorder.fill_buffer(&filled, 3)?;
                    // SAFETY: the signal was submitted just before. A graphics queue supports the
                    // stages.
                    unsafe {
                        recorder.wait_binary(binary, vk::PipelineStageFlags::TRANSFER);
                        recorder.wait_stage(vk::PipelineStageFlags::TRANSFER);
                        recorder.fence(fence);
                    }
                    Ok(())
                },
                &[done.signal_at(1)],
            )
            .unwrap();
        // SAFETY: submitted with the fence.
        unsafe { device.raw().wait_for_fences(&[fence], true, u64::MAX) }.unwrap();
        done.at(1).wait(TIMEOUT).unwrap();
        queue.idle(TIMEOUT).unwrap();
        assert_eq!(all_words(&target), 3);
        // SAFETY: its work has finished.
        unsafe {
            device.raw().destroy_fence(fence, None);
            device.raw().destroy_semaphore(binary, None);
        }
    });
}

fn executed_command_buffers_run_between_recorded_ones() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Compute, "mixed").unwrap();
        let (a, b) = (words(device, 64), words(device, 64));
        // SAFETY: plain recording of one command buffer. The pool lives until the queue is idle.
        let (pool, own) = unsafe {
            let raw = device.raw();
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(queue.family());
            let pool = raw.create_command_pool(&info, None).unwrap();
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(pool)
                .command_buffer_count(1);
            let own = raw.allocate_command_buffers(&info).unwrap()[0];
            raw.begin_command_buffer(own, &Default::default()).unwrap();
            let region = vk::BufferCopy::default().size(a.size());
            raw.cmd_copy_buffer(own, a.raw(), b.raw(), &[region]);
            let memory = vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE)
                .dst_access_mask(vk::AccessFlags::MEMORY_WRITE | vk::AccessFlags::HOST_READ);
            raw.cmd_pipeline_barrier(
                own,
                vk::PipelineStageFlags::ALL_COMMANDS,
                vk::PipelineStageFlags::ALL_COMMANDS | vk::PipelineStageFlags::HOST,
                vk::DependencyFlags::empty(),
                &[memory],
                &[],
                &[],
            );
            raw.end_command_buffer(own).unwrap();
            (pool, own)
        };
        let filled = a.clone();
        queue
            .submit(
                &[],
                move |recorder| {
                    recorder.fill_buffer(&filled, 1)?;
                    // SAFETY: the command buffer is executable, and the test keeps it.
                    unsafe { recorder.execute(&[own]) }?;
                    recorder.fill_buffer(&filled, 2)
                },
                &[],
            )
            .unwrap();
        queue.idle(TIMEOUT).unwrap();
        assert_eq!((all_words(&a), all_words(&b)), (2, 1));
        // SAFETY: its work has finished.
        unsafe { device.raw().destroy_command_pool(pool, None) };
    });
}

fn errors_of_the_validation_layer_are_collected() {
    let _turn = crate::common::turn();
    let Some(instance) = crate::common::instance() else {
        return crate::common::skip("no instance");
    };
    let device = match instance.open_first() {
        Ok(device) => device,
        Err(error) => return crate::common::skip(&error.to_string()),
    };
    if !format!("{instance:?}").contains("validation: true") {
        return crate::common::skip("no validation layer");
    }
    let empty = vk::BufferCreateInfo::default().usage(vk::BufferUsageFlags::TRANSFER_SRC);
    // SAFETY: invalid on purpose: a buffer of size 0, which drivers and the layer survive.
    if let Ok(buffer) = unsafe { device.raw().create_buffer(&empty, None) } {
        // SAFETY: just created.
        unsafe { device.raw().destroy_buffer(buffer, None) };
    }
    let errors = instance.validation_errors();
    assert!(
        errors
            .iter()
            .any(|error| error.contains("VkBufferCreateInfo-size")),
        "{errors:?}"
    );
}

/// Lets a queue signal 2 and then 1, by calls of the application's own.
fn signal_backward(device: &Device, raw: vk::Semaphore) {
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let guard = queue.lock().unwrap();
    for value in [2, 1] {
        let (semaphores, values) = ([raw], [value]);
        let mut timeline =
            vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let submit = vk::SubmitInfo::default()
            .signal_semaphores(&semaphores)
            .push_next(&mut timeline);
        // SAFETY: the guard keeps other submissions out. The second value is invalid on purpose:
        // lavapipe loses the device, and other drivers ignore it. The results say nothing here. The
        // layer takes the first signal for made once the queue is idle.
        unsafe {
            let _ = device
                .raw()
                .queue_submit(guard.raw(), &[submit], vk::Fence::null());
            let _ = device.raw().queue_wait_idle(guard.raw());
        }
    }
}

/// The layer's report is a known false positive for exported timelines only.
fn a_backward_signal_of_a_private_semaphore_is_reported() {
    let _turn = crate::common::turn();
    let Some(instance) = crate::common::instance() else {
        return crate::common::skip("no instance");
    };
    if !format!("{instance:?}").contains("validation: true") {
        return crate::common::skip("no validation layer");
    }
    let devices = instance.devices().unwrap();
    for candidate in devices.iter().filter(|one| one.rejected.is_none()) {
        let device = candidate.open().unwrap();
        let private = device.timeline("private").unwrap();
        let raw = device.semaphore_of(&private).unwrap();
        let before = instance.validation_errors().len();
        signal_backward(&device, raw);
        let errors = instance.validation_errors().split_off(before);
        let is_reported = |error: &String| error.contains("pSignalSemaphores-03242");
        assert!(errors.iter().any(is_reported), "{errors:?}");
    }
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![
        a_backward_signal_of_a_private_semaphore_is_reported,
        submissions_to_a_locked_queue_are_held,
        guards_and_submissions_exclude_each_other,
        an_application_keeps_its_device_and_submits_itself,
        raw_handles_without_queues_are_adopted,
        null_handles_are_refused,
        an_adopted_semaphore_starts_at_the_value_it_has,
        raw_binary_semaphores_and_fences_are_submitted,
        executed_command_buffers_run_between_recorded_ones,
        errors_of_the_validation_layer_are_collected,
    ]
}
