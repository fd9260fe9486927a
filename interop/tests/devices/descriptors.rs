//! Errors of a process that may open no more descriptors.
//!
//! Each test runs in a process of its own, because it limits the descriptors of that process.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::File;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncline::backend::Device as _;
use syncline::handle::{HandleKind, Rejected};
use syncline::vulkan::Device;

/// Set in the process that runs a test alone.
const APART: &str = "SYNCLINE_DESCRIPTORS_APART";

/// Opens files until the process can open only `left` more.
fn fill(left: usize) -> Vec<File> {
    let open = || File::open("/dev/null").ok();
    let mut files: Vec<_> = std::iter::from_fn(open).collect();
    files.truncate(files.len() - left);
    files
}

fn tells(error: &syncline::Error, left: usize) {
    let text = error.to_string();
    assert!(
        text.contains(" of 256 descriptors left") || text.contains("os error 24"),
        "with {left} left: {text}"
    );
}

/// True in the process that runs `test` alone, which the first call starts.
fn is_apart(test: &str) -> bool {
    if std::env::var_os(APART).is_some() {
        let limit = Rlimit {
            current: Some(256),
            ..getrlimit(Resource::Nofile)
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        return true;
    }
    let _alone = super::alone();
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([&format!("descriptors::{test}"), "--exact", "--nocapture"])
        .env(APART, "1")
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && out.contains("test result: ok. 1 passed"),
        "{ran:?}"
    );
    print!("{out}");
    false
}

fn find(kind: HandleKind) -> Option<(usize, Device)> {
    (0..8)
        .map_while(|index| Some((index, Device::open(index).ok()?)))
        .find(|(_, device)| device.info().capabilities.exports.contains(&kind))
}

/// With NVIDIA's driver (580.159) this may need another `VkDevice`.
#[test]
fn timelines_are_shared_again_after_descriptors_have_run_out() {
    if !is_apart("timelines_are_shared_again_after_descriptors_have_run_out") {
        return;
    }
    let Some((index, device)) = find(HandleKind::TimelineOpaqueFd) else {
        println!("skipped: no Vulkan device exports timelines");
        return;
    };
    let _kept = device.export_timeline(0).unwrap();
    for left in 0..4 {
        let files = fill(left);
        let made: Vec<_> = (0..8).map(|_| device.export_timeline(0)).collect();
        assert!(made.iter().any(Result::is_err), "with {left} left");
        drop(files);
    }
    let after = device.export_timeline(0);
    println!("after that: {:?}", after.as_ref().err());
    if let Err(error) = after {
        assert!(error.to_string().contains("open another"), "{error}");
    }
    let another = Device::open(index).unwrap();
    another.export_timeline(0).unwrap();
    device.export_timeline(0).unwrap();
}

#[test]
fn an_error_tells_that_few_descriptors_are_left() {
    if !is_apart("an_error_tells_that_few_descriptors_are_left") {
        return;
    }
    let Some((_, device)) = find(HandleKind::MemoryOpaqueFd) else {
        println!("skipped: no Vulkan device exports memory");
        return;
    };
    let export = || device.export_buffer(4096);
    let mut failed = [0; 2];
    for left in 0..4 {
        let (_buffer, handle) = export().unwrap();
        let files = fill(left);
        if let Err(error) = export() {
            tells(&error, left);
            failed[0] += 1;
        }
        if let Err(Rejected { error, .. }) = device.import_buffer(handle) {
            tells(&error, left);
            failed[1] += 1;
        }
        drop(files);
    }
    assert!(failed.into_iter().all(|count| count > 0), "{failed:?}");
    // Enough are left, and the error says nothing of them.
    let refused = device.export_buffer(0).unwrap_err();
    assert!(!refused.to_string().contains("descriptors"), "{refused}");
}
