//! Failures and refusals, each with its error type.
#![allow(unsafe_code, reason = "launches a kernel that faults")]

use std::ffi::c_void;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind};
use syncline_cuda::{Driver, Recorder};

use crate::common::{LIMIT, trials};
use crate::setup::{KERNELS, gpu, launch};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        failing_work_signals_nothing_and_the_queue_goes_on,
        native_errors_name_the_stream,
        refusals_are_typed,
        a_fault_is_typed,
    ]
}

pub(crate) fn an_absent_driver_is_a_typed_reason() {
    if let Err(error) = Driver::load() {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("cuda is not available: "), "{text}");
    }
}

fn failing_work_signals_nothing_and_the_queue_goes_on() {
    let gpu = gpu();
    let (queue, timeline) = (
        gpu.queue("failing"),
        gpu.device.timeline("failing").unwrap(),
    );
    let buffer = gpu.device.host_buffer(4).unwrap();
    let (filled, delay) = (buffer.clone(), gpu.delay.clone());
    let work = move |r: &mut Recorder| {
        launch(r, &delay, 10_000_000)?;
        r.memset_d32(&filled, 9)?;
        Err(Error::work(std::io::Error::other("on purpose")))
    };
    let refused = queue
        .submit(&[], work, &[timeline.signal_at(1)])
        .map(|_| ());
    assert!(matches!(refused, Err(Error::Work(_))), "{refused:?}");
    assert_eq!(timeline.value().unwrap(), 0);
    queue
        .submit(&[], |_| Ok(()), &[timeline.signal_at(1)])
        .unwrap();
    timeline.at(1).wait(LIMIT).unwrap();
    // The commands that the driver had taken are executed in order.
    assert_eq!(buffer.read_words().unwrap(), [9]);
}

fn native_errors_name_the_stream() {
    let gpu = gpu();
    let queue = gpu.queue("named");
    let delay = gpu.delay.clone();
    let mut time = 1_u64;
    let nothing = move |r: &mut Recorder| {
        let mut params = [(&raw mut time).cast::<c_void>()];
        // SAFETY: as for `launch`. The driver refuses a grid without blocks.
        unsafe { r.launch(&delay, [0; 3], [1; 3], &mut params) }
    };
    let refused = queue.submit(&[], nothing, &[]).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::Native { .. }), "{refused:?}");
    assert!(
        refused.to_string().contains("stream \"named\""),
        "{refused}"
    );
    queue.idle(LIMIT).unwrap();
}

fn refusals_are_typed() {
    let gpu = gpu();
    assert!(matches!(
        gpu.device.queue(QueueKind::Graphics, "pictures"),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        gpu.device.buffer(0),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        gpu.device.buffer(6),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        gpu.device.module("not PTX"),
        Err(Error::Native { .. })
    ));
    // The fourth line has an instruction that does not exist.
    let text = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry f() { nothing; }\n";
    let refused = gpu.device.module(text).map(drop).unwrap_err().to_string();
    assert!(refused.contains("line 4"), "{refused}");
    assert!(matches!(
        gpu.device.module("\0"),
        Err(Error::Unsupported { .. })
    ));
    gpu.device.check().unwrap();
}

/// The fault below breaks the context of its whole process, so a child process runs it.
fn a_fault_is_typed() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", FAULT])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && printed.contains("1 passed"),
        "{printed}"
    );
}

pub(crate) const FAULT: &str = "a_fault_in_this_process";

pub(crate) fn a_fault_in_this_process() {
    let gpu = gpu();
    let (queue, timeline) = (gpu.queue("faulty"), gpu.device.timeline("faulty").unwrap());
    let fault = gpu
        .device
        .module(KERNELS)
        .unwrap()
        .function("fault")
        .unwrap();
    // SAFETY: the kernel takes no parameters. Its fault is what the test is about.
    let work = move |r: &mut Recorder| unsafe { r.launch(&fault, [1; 3], [1; 3], &mut []) };
    queue.submit(&[], work, &[timeline.signal_at(1)]).unwrap();
    let error = timeline.at(1).wait(LIMIT).expect_err("the kernel faults");
    let Error::Failed { cause, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(**cause, Error::DeviceLost { .. }), "{error:?}");
    assert!(matches!(gpu.device.check(), Err(Error::DeviceLost { .. })));
    // The position fails too. Nothing hangs or crashes at the end.
    assert!(queue.idle(LIMIT).is_err());
    assert!(queue.submit(&[], |_| Ok(()), &[]).is_err());
}
