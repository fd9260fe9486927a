//! Probing devices, and exporting and importing timelines and memory.
#![allow(unsafe_code, reason = "makes invalid handles")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::common::{self, TIMEOUT, on_each_device, on_two_of_each_device};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{
    Error, QueueKind, Timeline,
    handle::{HandleKind, MemoryContent, MemoryFd, MemoryInfo, Origin, TimelineFd},
    info::Uuid,
};
use syncline_vulkan::ash::vk;
use syncline_vulkan::{AdoptInfo, Buffer, Device, Recorder};

fn device_info_is_complete() {
    on_each_device(|device| {
        let info = device.info();
        println!("{info:#?}");
        assert!(info.uuid.is_some() && info.driver_uuid.is_some());
        assert!(!info.name.is_empty() && !info.driver.is_empty());
        let can = &info.capabilities;
        assert!(can.native_timelines && !can.queues.is_empty());
        assert!(can.max_value_difference >= i32::MAX as u64);
        // Each missing capability has a reason.
        let explained = |what| {
            can.limits
                .iter()
                .any(|(limit, why)| *limit == what && !why.is_empty())
        };
        let shares = can.exports.contains(&HandleKind::TimelineOpaqueFd);
        assert!(shares || explained("sharing timelines"));
        device.check().unwrap();
    });
}

fn a_device_without_exports_refuses_to_export() {
    on_each_device(|device| {
        if device
            .info()
            .capabilities
            .exports
            .contains(&HandleKind::TimelineOpaqueFd)
        {
            return crate::common::skip("it exports timelines");
        }
        for refused in [
            device.export_timeline(0).map(|_| ()),
            device.exportable_port(0).map(|_| ()),
        ] {
            let error = refused.unwrap_err();
            println!("{error}");
            assert!(matches!(error, Error::Unsupported { .. }));
        }
    });
}

fn junk(origin: Origin) -> TimelineFd {
    let fd = OwnedFd::from(File::open("/dev/null").unwrap());
    // SAFETY: not a timeline on purpose. No driver takes it.
    unsafe { TimelineFd::from_fd(fd, origin) }
}

fn handles_of_other_devices_and_drivers_are_returned() {
    on_each_device(|device| {
        let ours = Origin::of(device.info());
        let elsewhere = Origin {
            uuid: Some(Uuid([7; 16])),
            ..ours.clone()
        };
        let other_driver = Origin {
            driver_uuid: Some(Uuid([7; 16])),
            ..ours.clone()
        };
        let nowhere = Origin { uuid: None, ..ours };
        for origin in [elsewhere, other_driver, nowhere] {
            let handle = junk(origin);
            let number = handle.as_fd().as_raw_fd();
            // SAFETY: refused without a driver call.
            let rejected = unsafe { device.import_timeline(handle) }.unwrap_err();
            println!("{rejected}");
            assert!(matches!(rejected.error, Error::CannotShare { .. }));
            // The handle is returned, still open.
            assert_eq!(rejected.handle.as_fd().as_raw_fd(), number);
            rejected.handle.into_fd().try_clone().unwrap();
        }
    });
}

fn a_handle_of_a_wrong_file_is_returned() {
    on_each_device(|device| {
        let handle = junk(Origin::of(device.info()));
        // SAFETY: it contains no timeline semaphore, so there are no signals.
        let rejected = unsafe { device.import_timeline(handle) }.unwrap_err();
        println!("{rejected}");
        let can = device
            .info()
            .capabilities
            .imports
            .contains(&HandleKind::TimelineOpaqueFd);
        match rejected.error {
            Error::Import { .. } if can => {}
            Error::Unsupported { .. } if !can => {}
            other => panic!("{other}"),
        }
        rejected.handle.into_fd().try_clone().unwrap();
    });
}

fn timeline(label: &str, attachment: syncline_core::backend::Attachment) -> Timeline {
    let value = attachment.value().unwrap().unwrap();
    Timeline::new(label, value, |_| Ok([attachment].into_iter().collect())).unwrap()
}

fn an_exported_timeline_shares_its_counter() {
    on_each_device(|device: &Device| {
        if !device
            .info()
            .capabilities
            .exports
            .contains(&HandleKind::TimelineOpaqueFd)
        {
            return crate::common::skip("it exports no timelines");
        }
        let (attachment, exporter) = device.exportable_port(5).unwrap();
        let ours = timeline("ours", attachment);
        // SAFETY: nothing signals through the import.
        let import = || unsafe { device.import_timeline(exporter.export().unwrap()) }.unwrap();
        let (first, second) = (import(), import());
        for port in [&first, &second] {
            assert_eq!(port.value().unwrap(), Some(5));
        }
        let queue = device.queue(QueueKind::Compute, "q").unwrap();
        queue.submit(&[], |_| Ok(()), &[ours.signal_at(6)]).unwrap();
        ours.at(6).wait(TIMEOUT).unwrap();
        for port in [first, second] {
            assert_eq!(port.value().unwrap(), Some(6));
        }
    });
}

/// What a handle says of memory for a buffer of `length` bytes alone.
fn alone(size: u64, length: u64) -> MemoryInfo {
    let mut info = MemoryInfo::new(size, MemoryContent::Buffer(length));
    (info.dedicated, info.memory_type) = (true, Some(0));
    info
}

fn an_exported_handle_has_the_size_of_the_allocation() {
    on_each_device(|device| {
        let can = device
            .info()
            .capabilities
            .exports
            .contains(&HandleKind::MemoryOpaqueFd);
        match device.export_buffer(1000) {
            Ok((buffer, handle)) => {
                let info = handle.info();
                assert!(can && info.dedicated && info.size >= 1000);
                assert_eq!(buffer.size(), 1000);
                assert!(buffer.as_words().is_none());
            }
            Err(error) => assert!(
                !can && matches!(error, Error::Unsupported { .. }),
                "{error}"
            ),
        }
        let plain = device.device_buffer(64, Default::default()).unwrap();
        assert!(plain.as_words().is_none());
    });
}

/// Usages that need a feature are refused without a driver call. Those of Vulkan 1.0 are not.
fn a_usage_that_needs_a_feature_is_refused() {
    on_each_device(|device| {
        use vk::BufferUsageFlags as Usage;
        let plain = Usage::from_raw(0x1ff);
        device.host_buffer(64, plain).unwrap();
        device.device_buffer(64, plain).unwrap();
        for usage in [
            Usage::SHADER_DEVICE_ADDRESS,
            Usage::ACCELERATION_STRUCTURE_STORAGE_KHR,
            Usage::CONDITIONAL_RENDERING_EXT | Usage::STORAGE_BUFFER,
            Usage::from_raw(1 << 31),
        ] {
            let refused = [
                device.host_buffer(64, usage).map(drop),
                device.device_buffer(64, usage).map(drop),
            ];
            for refused in refused {
                let Err(Error::Unsupported { asked, reason, .. }) = refused else {
                    panic!("{usage:?}: {refused:?}");
                };
                assert!(asked.starts_with("be used as "), "{asked}");
                assert!(reason.contains("feature"), "{reason}");
            }
        }
    });
}

/// Includes sizes that overflow when a driver rounds them up.
fn a_buffer_larger_than_every_heap_is_refused() {
    on_each_device(|device| {
        let none = vk::BufferUsageFlags::empty();
        for size in [
            u64::MAX,
            u64::MAX - 3,
            u64::MAX - 4095,
            i64::MAX as u64,
            1 << 56,
        ] {
            for refused in [
                device.host_buffer(size, none),
                device.device_buffer(size, none),
            ] {
                let Err(Error::Unsupported { asked, .. }) = refused else {
                    panic!("{size}: {refused:?}");
                };
                assert!(asked.contains(&size.to_string()), "{asked}");
            }
        }
        device.host_buffer(64, none).unwrap();
    });
}

/// The application may change the fields of a candidate.
fn a_changed_candidate_opens_with_the_answers_of_the_driver() {
    common::on_each_candidate(|candidate| {
        let mut changed = candidate.clone();
        changed.rejected = Some(Error::NothingToWaitFor);
        changed.info.capabilities.imports = vec![HandleKind::TimelineOpaqueFd];
        changed.info.uuid = None;
        let device = changed.open().unwrap();
        assert_eq!(device.info().uuid, candidate.info.uuid);
        let imports = &device.info().capabilities.imports;
        assert_eq!(imports, &candidate.info.capabilities.imports);
    });
}

fn shares_memory(device: &Device) -> bool {
    let can = &device.info().capabilities;
    let kind = &HandleKind::MemoryOpaqueFd;
    can.exports.contains(kind) && can.imports.contains(kind)
}

/// One `VkDevice` writes, and another one of the same GPU reads, in both directions.
fn exported_and_imported_buffers_share_memory() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        const WORDS: u64 = 1000;
        for bytes in [4, WORDS * 4, (64 << 10) + 4] {
            let (exported, handle) = ours.export_buffer(bytes).unwrap();
            let imported = theirs.import_buffer(handle).unwrap();
            assert_eq!(imported.size(), bytes);
            assert!(imported.is_shared() && exported.is_shared());
            let sides = [
                (ours, &exported, theirs, &imported),
                (theirs, &imported, ours, &exported),
            ];
            for (word, (from, written, to, read)) in (7..).zip(sides) {
                let queue = from.queue(QueueKind::Compute, "writes").unwrap();
                let target = written.clone();
                let work = move |r: &mut Recorder| r.fill_buffer(&target, word);
                queue.submit(&[], work, &[]).unwrap();
                queue.idle(TIMEOUT).unwrap();
                let seen = common::words(to, bytes / 4);
                let queue = to.queue(QueueKind::Compute, "reads").unwrap();
                let (source, target) = (read.clone(), seen.clone());
                let work = move |r: &mut Recorder| r.copy_buffer(&source, &target);
                queue.submit(&[], work, &[]).unwrap();
                queue.idle(TIMEOUT).unwrap();
                assert_eq!(common::all_words(&seen), word);
            }
        }
    });
}

/// Vulkan allows no copy between overlapping regions. Drivers do not tell which memory a handle
/// holds.
fn a_copy_between_buffers_that_may_share_memory_is_refused() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let export = |device: &Device| device.export_buffer(64).unwrap();
        let (exported, handle) = export(ours);
        let imported = ours.import_buffer(handle).unwrap();
        let other = ours.import_buffer(export(theirs).1).unwrap();
        let queue = ours.queue(QueueKind::Compute, "copies").unwrap();
        let copy = |from: &Buffer, to: &Buffer| {
            let (from, to) = (from.clone(), to.clone());
            queue.submit(&[], move |r: &mut Recorder| r.copy_buffer(&from, &to), &[])
        };
        for (from, to) in [
            (&exported, &imported),
            (&imported, &exported),
            (&imported, &other),
            (&exported, &exported),
        ] {
            let error = copy(from, to).unwrap_err();
            println!("{error}");
            let Error::Unsupported { .. } = error.root() else {
                panic!("{error}");
            };
        }
        // These are known to have different memory.
        let (new, _) = export(ours);
        let own = ours.device_buffer(64, Default::default()).unwrap();
        for (from, to) in [(&exported, &new), (&imported, &own), (&own, &other)] {
            copy(from, to).unwrap();
        }
        queue.idle(TIMEOUT).unwrap();
    });
}

/// Both devices create an identical buffer, because its queue families are the physical device's.
fn shared_buffers_do_not_depend_on_the_queues_of_the_device() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let families = &ours.info().capabilities.queues;
        if families.len() == 1 {
            println!("one queue family: all is exclusive");
        }
        // SAFETY: the owner keeps the device. Nothing is submitted to its queues meanwhile.
        let without_queues = unsafe {
            Device::adopt(AdoptInfo {
                entry: theirs.entry().clone(),
                instance: theirs.instance().clone(),
                physical: theirs.physical(),
                device: theirs.raw().clone(),
                queues: Vec::new(),
                owner: Some(Arc::new(theirs.clone())),
                enabled: theirs.enabled(),
            })
        }
        .unwrap();
        let (exported, handle) = ours.export_buffer(4096).unwrap();
        let imported = without_queues.import_buffer(handle).unwrap();
        let (exported_there, handle) = without_queues.export_buffer(4096).unwrap();
        let imported_here = ours.import_buffer(handle).unwrap();
        for buffer in [exported, imported, exported_there, imported_here] {
            assert_eq!(buffer.is_concurrent(), families.len() > 1);
        }
    });
}

/// The device still works afterwards.
fn a_memory_handle_that_does_not_fit_is_returned() {
    on_two_of_each_device(|ours, theirs| {
        let refused = |what: &str, handle: MemoryFd| {
            let rejected = theirs.import_buffer(handle).unwrap_err();
            let fd = rejected.handle.into_fd();
            assert!(fd.try_clone().is_ok(), "{what}: it was closed");
            println!("{what}: {}", rejected.error);
            (rejected.error, fd)
        };
        let foreign = Origin {
            uuid: Some(Uuid([0xAB; 16])),
            ..Origin::of(ours.info())
        };
        let pipe = || OwnedFd::from(std::io::pipe().unwrap().0);
        // SAFETY: refused because of its origin, without a driver call.
        let handle = unsafe { MemoryFd::from_fd(pipe(), foreign, alone(4096, 4096)) };
        let (error, _) = refused("of another GPU", handle);
        assert!(matches!(error, Error::CannotShare { .. }), "{error}");
        if !shares_memory(ours) {
            let own = Origin::of(ours.info());
            // SAFETY: refused, because the device imports no memory.
            let handle = unsafe { MemoryFd::from_fd(pipe(), own, alone(4096, 4096)) };
            let (error, _) = refused("where none is taken", handle);
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            return;
        }
        let origin = || Origin::of(ours.info());
        // SAFETY: refused because of the kind of its file.
        let handle = unsafe { MemoryFd::from_fd(pipe(), origin(), alone(4096, 4096)) };
        let (error, _) = refused("a pipe", handle);
        assert!(matches!(error, Error::Import { .. }), "{error}");
        let (_kept, handle) = ours.export_buffer(4096).unwrap();
        let info = handle.info();
        let size = info.size;
        let mut fd = handle.into_fd();
        for length in [0, size + 1, u64::MAX] {
            // SAFETY: refused, because the buffer does not fit into the memory.
            let handle = unsafe { MemoryFd::from_fd(fd, origin(), alone(size, length)) };
            let (error, back) = refused("a buffer that does not fit", handle);
            let fine = matches!(error, Error::Import { .. } | Error::Unsupported { .. });
            assert!(fine, "{error}");
            fd = back;
        }
        // The buffer fits into the memory, which is dedicated to another buffer.
        let (_large, handle) = ours.export_buffer(1 << 20).unwrap();
        let (large, large_fd) = (handle.info().size, handle.into_fd());
        // SAFETY: refused, because dedicated memory has exactly the size of its buffer.
        let handle = unsafe { MemoryFd::from_fd(large_fd, origin(), alone(large, 4096)) };
        let (error, _) = refused("memory of a larger buffer", handle);
        assert!(matches!(error, Error::Import { .. }), "{error}");
        let mut whole = info;
        whole.content = MemoryContent::Whole;
        // SAFETY: refused, because dedicated memory is for one buffer or image.
        let handle = unsafe { MemoryFd::from_fd(fd, origin(), whole) };
        let (error, fd) = refused("dedicated memory of anything", handle);
        assert!(matches!(error, Error::Import { .. }), "{error}");
        // SAFETY: the same properties as at the export.
        let handle = unsafe { MemoryFd::from_fd(fd, origin(), info) };
        assert_eq!(theirs.import_buffer(handle).unwrap().size(), 4096);
    });
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![
        device_info_is_complete,
        a_device_without_exports_refuses_to_export,
        handles_of_other_devices_and_drivers_are_returned,
        a_handle_of_a_wrong_file_is_returned,
        an_exported_timeline_shares_its_counter,
        an_exported_handle_has_the_size_of_the_allocation,
        a_usage_that_needs_a_feature_is_refused,
        a_buffer_larger_than_every_heap_is_refused,
        shared_buffers_do_not_depend_on_the_queues_of_the_device,
        a_changed_candidate_opens_with_the_answers_of_the_driver,
        exported_and_imported_buffers_share_memory,
        a_copy_between_buffers_that_may_share_memory_is_refused,
        a_memory_handle_that_does_not_fit_is_returned,
    ]
}
