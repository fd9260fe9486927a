//! Probing, and handles that leave and enter.
#![allow(unsafe_code, reason = "makes handles that are not what they say")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod common;

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use common::{SOON, on_each_device};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, HandleKind, Origin, QueueKind, Timeline, TimelineFd, Uuid};
use syncline_vulkan::Device;

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
            return common::skip("it exports timelines");
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
            let rejected = device.import_timeline(handle).unwrap_err();
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
        let rejected = device
            .import_timeline(junk(Origin::of(device.info())))
            .unwrap_err();
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
            return common::skip("it exports no timelines");
        }
        let (attachment, exporter) = device.exportable_port(5).unwrap();
        let ours = timeline("ours", attachment);
        let first = device.import_timeline(exporter.export().unwrap()).unwrap();
        let second = device.import_timeline(exporter.export().unwrap()).unwrap();
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

fn main() -> std::process::ExitCode {
    common::run(common::trials![
        a_device_tells_what_it_is,
        a_device_without_exports_says_so,
        handles_of_others_are_refused_before_the_driver_is_asked,
        a_handle_that_is_none_comes_back,
        an_exported_timeline_is_one_counter,
        an_exported_buffer_tells_its_whole_size,
    ])
}
