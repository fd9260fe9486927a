//! An adopted device while a process exits. The test runs a child process for that.
#![allow(
    unsafe_code,
    reason = "adopts a device, and registers what runs at exit"
)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use syncline_core::backend::Device as _;
use syncline_vulkan::{AdoptInfo, Device, Instance};

use crate::common::turn;

const CHILD: &str = "SYNCLINE_TEST_VULKAN_EXITS";

static EXITS: AtomicBool = AtomicBool::new(false);

extern "C" fn exit_begins() {
    EXITS.store(true, Ordering::SeqCst);
}

/// The owner of an adopted device, which is still being dropped when the process exits.
struct Application {
    device: Device,
    begun: Sender<()>,
}

impl Drop for Application {
    fn drop(&mut self) {
        // SAFETY: the function does not unwind. Functions that are registered last run first.
        unsafe { libc::atexit(exit_begins) };
        self.begun.send(()).unwrap();
        while !EXITS.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // An exit that does not wait would end the process before the message below.
        thread::sleep(Duration::from_millis(50));
        println!("{} is gone", self.device.info().name);
    }
}

/// Runs the child process, if this is one.
pub(crate) fn child() -> Option<ExitCode> {
    std::env::var_os(CHILD)?;
    let instance = Instance::load().unwrap();
    let found = instance.devices().unwrap().into_iter();
    let device = found
        .filter(|found| found.rejected.is_none())
        .find_map(|found| found.open().ok())
        .unwrap();
    let (begun, begins) = channel();
    let info = AdoptInfo {
        entry: device.entry().clone(),
        instance: device.instance().clone(),
        physical: device.physical(),
        device: device.raw().clone(),
        queues: Vec::new(),
        enabled: device.enabled(),
        owner: Some(Arc::new(Application { device, begun })),
    };
    // SAFETY: the owner keeps the device, and there are no queues.
    let adopted = unsafe { Device::adopt(info) }.unwrap();
    thread::spawn(move || drop(adopted));
    begins.recv().unwrap();
    Some(ExitCode::SUCCESS)
}

fn an_exit_waits_for_the_owner_of_an_adopted_device() {
    let _turn = turn();
    let child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{}: {child:?}", child.status);
    assert!(said.contains(" is gone"), "{said}");
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![an_exit_waits_for_the_owner_of_an_adopted_device]
}
