//! What happens to an adopted device while the process exits: in another process, which exits.
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

/// What destroys the device of an engine, and is still at that when the process exits.
struct Engine {
    device: Device,
    begun: Sender<()>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: a function that does not unwind. What is registered last runs first.
        unsafe { libc::atexit(exit_begins) };
        self.begun.send(()).unwrap();
        while !EXITS.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // An exit that does not wait gets ahead of this.
        thread::sleep(Duration::from_millis(50));
        println!("{} is gone", self.device.info().name);
    }
}

/// The life of the other process, if this is it.
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
        owner: Some(Arc::new(Engine { device, begun })),
    };
    // SAFETY: handles of a device that the owner keeps, and no queues.
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
