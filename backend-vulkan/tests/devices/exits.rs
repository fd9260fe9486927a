//! Processes that exit, and the drivers that stay loaded until then. The tests run child processes.
#![allow(
    unsafe_code,
    reason = "adopts a device, and registers what runs at exit"
)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::process::{Command, ExitCode, Output};
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
    match std::env::var(CHILD).ok()?.as_str() {
        "unloading" => keeps_drivers(),
        "environment" => chooses_another_driver(),
        _ => exits_while_an_owner_is_dropped(),
    }
    Some(ExitCode::SUCCESS)
}

/// The libraries in this process's memory.
fn libraries() -> BTreeSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    paths
        .filter(|path| path.contains(".so"))
        .map(str::to_owned)
        .collect()
}

/// Drops all handles of devices and instances, and says which libraries were unloaded.
fn keeps_drivers() {
    let before = libraries();
    let opened = Instance::load()
        .and_then(|instance| instance.open_first())
        .unwrap();
    let loaded = libraries();
    assert!(loaded.len() > before.len(), "no driver was loaded");
    drop(opened);
    // As the handle's drop returns, the device's thread may still have to end.
    for _ in 0..3 {
        drop(Instance::load().unwrap().open_first().unwrap());
    }
    let unloaded: Vec<_> = loaded.difference(&libraries()).cloned().collect();
    println!("unloaded: {unloaded:?}");
}

/// Sets the variable that chooses drivers, one by one, and says which devices there are.
fn chooses_another_driver() {
    let names = || -> BTreeSet<String> {
        let found = Instance::load().and_then(|instance| instance.devices());
        let found = found.unwrap_or_default().into_iter();
        found.map(|found| found.info.name).collect()
    };
    let drivers = std::env::var("VK_DRIVER_FILES").unwrap_or_default();
    let all = names();
    let mut each = BTreeSet::new();
    for driver in drivers.split(':') {
        // SAFETY: no other thread of this process reads the environment.
        unsafe { std::env::set_var("VK_DRIVER_FILES", driver) };
        // SAFETY: as above. It is an older name of the same variable.
        unsafe { std::env::set_var("VK_ICD_FILENAMES", driver) };
        let some = names();
        assert!(
            drivers.split(':').count() < 2 || some.len() < all.len(),
            "{some:?}"
        );
        each.extend(some);
    }
    assert!(drivers.is_empty() || each == all, "{each:?} and {all:?}");
    println!("{} devices", all.len());
}

/// A thread drops the last handle of an adopted device, whose owner takes a while to go.
fn exits_while_an_owner_is_dropped() {
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
}

fn run_child(what: &str) -> Output {
    let child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, what)
        .output()
        .unwrap();
    assert!(child.status.success(), "{}: {child:?}", child.status);
    child
}

/// A thread that has used a driver calls it once more when the thread ends.
fn drivers_stay_loaded_when_the_last_handle_is_dropped() {
    let _turn = turn();
    let said = run_child("unloading").stdout;
    assert_eq!(String::from_utf8_lossy(&said), "unloaded: []\n");
}

fn the_environment_at_each_load_chooses_the_drivers() {
    let _turn = turn();
    run_child("environment");
}

fn an_exit_waits_for_the_owner_of_an_adopted_device() {
    let _turn = turn();
    let child = run_child("owner");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(said.contains(" is gone"), "{said}");
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![
        an_exit_waits_for_the_owner_of_an_adopted_device,
        drivers_stay_loaded_when_the_last_handle_is_dropped,
        the_environment_at_each_load_chooses_the_drivers,
    ]
}
