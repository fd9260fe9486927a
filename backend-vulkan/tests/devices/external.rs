//! Probing, and handles that leave and enter.
#![allow(unsafe_code, reason = "makes handles that are not what they say")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::common::{self, SOON, on_each_device, on_two_of_each_device};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, HandleKind, MemoryFd, Origin, QueueKind, Timeline, TimelineFd, Uuid};
use syncline_vulkan::ash::vk;
use syncline_vulkan::{AdoptInfo, Device, Recorder};

fn a_device_tells_what_it_is() {
    on_each_device(|device| {
        let info = device.info();
        println!("{info:#?}");
        assert!(info.uuid.is_some() && info.driver_uuid.is_some());
        assert!(!info.name.is_empty() && !info.driver.is_empty());
        let can = &info.capabilities;
        assert!(can.native_timelines && !can.queues.is_empty());
        assert!(can.max_value_difference >= i32::MAX as u64);
        // Whatever is missing is explained.
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

fn a_device_without_exports_says_so() {
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
    // SAFETY: it is none, which is the point; no driver takes it.
    unsafe { TimelineFd::from_fd(fd, origin) }
}

fn handles_of_others_are_refused_before_the_driver_is_asked() {
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
            // SAFETY: refused before anything looks at it.
            let rejected = unsafe { device.import_timeline(handle) }.unwrap_err();
            println!("{rejected}");
            assert!(matches!(rejected.error, Error::CannotShare { .. }));
            // Still open, and the caller's.
            assert_eq!(rejected.handle.as_fd().as_raw_fd(), number);
            rejected.handle.into_fd().try_clone().unwrap();
        }
    });
}

fn a_handle_that_is_none_comes_back() {
    on_each_device(|device| {
        let handle = junk(Origin::of(device.info()));
        // SAFETY: it holds no counter.
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

fn an_exported_timeline_is_one_counter() {
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
        // SAFETY: nothing signals by it.
        let import = || unsafe { device.import_timeline(exporter.export().unwrap()) }.unwrap();
        let (first, second) = (import(), import());
        for port in [&first, &second] {
            assert_eq!(port.value().unwrap(), Some(5));
        }
        let queue = device.queue(QueueKind::Compute, "q").unwrap();
        queue.submit(&[], |_| Ok(()), &[ours.signal_at(6)]).unwrap();
        ours.at(6).wait(SOON).unwrap();
        for port in [first, second] {
            assert_eq!(port.value().unwrap(), Some(6));
        }
    });
}

fn an_exported_buffer_tells_its_whole_size() {
    on_each_device(|device| {
        let can = device
            .info()
            .capabilities
            .exports
            .contains(&HandleKind::MemoryOpaqueFd);
        match device.export_buffer(1000, Default::default()) {
            Ok((buffer, handle)) => {
                assert!(can && handle.dedicated() && handle.size() >= 1000);
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

/// A usage that needs a feature is refused before the driver is asked, and those of Vulkan 1.0 are
/// not.
fn a_usage_that_needs_a_feature_is_refused() {
    on_each_device(|device| {
        use vk::BufferUsageFlags as Usage;
        let plain = Usage::from_raw(0x1ff);
        device.host_buffer(64, plain).unwrap();
        device.device_buffer(64, plain).unwrap();
        let exports = &device.info().capabilities.exports;
        let exports = exports.contains(&HandleKind::MemoryOpaqueFd);
        for usage in [
            Usage::SHADER_DEVICE_ADDRESS,
            Usage::ACCELERATION_STRUCTURE_STORAGE_KHR,
            Usage::CONDITIONAL_RENDERING_EXT | Usage::STORAGE_BUFFER,
            Usage::from_raw(1 << 31),
        ] {
            let mut refused = vec![
                device.host_buffer(64, usage).map(drop),
                device.device_buffer(64, usage).map(drop),
            ];
            if exports {
                refused.push(device.export_buffer(64, usage).map(drop));
            }
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

/// Sizes that a driver would have to round up beyond the largest number, or that no heap has.
fn a_buffer_that_no_heap_has_is_refused() {
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

/// Whatever an application writes into a candidate, a device is opened by what the driver said.
fn a_candidate_that_was_changed_opens_as_it_was() {
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

/// What one `VkDevice` writes to exported memory, another one of the GPU reads, and the other way
/// round.
fn exported_memory_is_one_memory() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        const WORDS: u64 = 1000;
        for bytes in [4, WORDS * 4, (64 << 10) + 4] {
            let (exported, handle) = ours.export_buffer(bytes, Default::default()).unwrap();
            let imported = theirs.import_buffer(handle).unwrap();
            assert_eq!(imported.size(), bytes);
            assert!(imported.is_exported() && exported.is_exported());
            let sides = [
                (ours, &exported, theirs, &imported),
                (theirs, &imported, ours, &exported),
            ];
            for (word, (from, written, to, read)) in (7..).zip(sides) {
                let queue = from.queue(QueueKind::Compute, "writes").unwrap();
                let target = written.clone();
                let work = move |r: &mut Recorder| r.fill_buffer(&target, word);
                queue.submit(&[], work, &[]).unwrap();
                queue.idle(SOON).unwrap();
                let seen = common::words(to, bytes / 4);
                let queue = to.queue(QueueKind::Compute, "reads").unwrap();
                let (source, target) = (read.clone(), seen.clone());
                let work = move |r: &mut Recorder| r.copy_buffer(&source, &target);
                queue.submit(&[], work, &[]).unwrap();
                queue.idle(SOON).unwrap();
                assert_eq!(common::all_words(&seen), word);
            }
        }
    });
}

/// A device that was made with fewer queues makes the same buffer of shared memory: the families
/// are the GPU's.
fn shared_buffers_are_alike_whatever_queues_there_are() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let families = &ours.info().capabilities.queues;
        if families.len() == 1 {
            println!("one queue family: all is exclusive");
        }
        // SAFETY: handles of a device that the owner keeps; nothing is submitted to its queues
        // meanwhile.
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
        let (exported, handle) = ours.export_buffer(4096, Default::default()).unwrap();
        let imported = without_queues.import_buffer(handle).unwrap();
        let (exported_there, handle) = without_queues
            .export_buffer(4096, Default::default())
            .unwrap();
        let imported_here = ours.import_buffer(handle).unwrap();
        for buffer in [exported, imported, exported_there, imported_here] {
            assert_eq!(buffer.is_concurrent(), families.len() > 1);
        }
    });
}

/// A handle that does not fit comes back, and the device works on.
fn memory_that_does_not_fit_comes_back() {
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
        // SAFETY: refused by its origin, before any driver is asked.
        let handle = unsafe { MemoryFd::from_fd(pipe(), foreign, 4096, 4096, true) };
        let (error, _) = refused("of another GPU", handle);
        assert!(matches!(error, Error::CannotShare { .. }), "{error}");
        if !shares_memory(ours) {
            let own = Origin::of(ours.info());
            // SAFETY: refused, as the device takes no memory.
            let handle = unsafe { MemoryFd::from_fd(pipe(), own, 4096, 4096, true) };
            let (error, _) = refused("where none is taken", handle);
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            return;
        }
        let origin = || Origin::of(ours.info());
        // SAFETY: refused by the kind of its file.
        let handle = unsafe { MemoryFd::from_fd(pipe(), origin(), 4096, 4096, true) };
        let (error, _) = refused("a pipe", handle);
        assert!(matches!(error, Error::Import { .. }), "{error}");
        let (_kept, handle) = ours.export_buffer(4096, Default::default()).unwrap();
        let (size, mut fd) = (handle.size(), handle.into_fd());
        for length in [0, size + 1, u64::MAX] {
            // SAFETY: refused, as the buffer does not fit into the memory.
            let handle = unsafe { MemoryFd::from_fd(fd, origin(), size, length, true) };
            let (error, back) = refused("a buffer that does not fit", handle);
            let fine = matches!(error, Error::Import { .. } | Error::Unsupported { .. });
            assert!(fine, "{error}");
            fd = back;
        }
        // Both fit into the memory, but it was made for another buffer.
        let (_large, handle) = ours.export_buffer(1 << 20, Default::default()).unwrap();
        let (large, large_fd) = (handle.size(), handle.into_fd());
        // SAFETY: refused, as dedicated memory is as large as its buffer.
        let handle = unsafe { MemoryFd::from_fd(large_fd, origin(), large, 4096, true) };
        let (error, _) = refused("memory of a larger buffer", handle);
        assert!(matches!(error, Error::Import { .. }), "{error}");
        // SAFETY: as it was exported.
        let handle = unsafe { MemoryFd::from_fd(fd, origin(), size, 4096, true) };
        assert_eq!(theirs.import_buffer(handle).unwrap().size(), 4096);
    });
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![
        a_device_tells_what_it_is,
        a_device_without_exports_says_so,
        handles_of_others_are_refused_before_the_driver_is_asked,
        a_handle_that_is_none_comes_back,
        an_exported_timeline_is_one_counter,
        an_exported_buffer_tells_its_whole_size,
        a_usage_that_needs_a_feature_is_refused,
        a_buffer_that_no_heap_has_is_refused,
        shared_buffers_are_alike_whatever_queues_there_are,
        a_candidate_that_was_changed_opens_as_it_was,
        exported_memory_is_one_memory,
        memory_that_does_not_fit_comes_back,
    ]
}
