//! Errors of a process that may open no more descriptors.
//!
//! The test runs in a process of its own, because it limits the descriptors of that process.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs::File;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncline::backend::Device as _;
use syncline::handle::{HandleKind, Rejected};
use syncline::vulkan::Device;

/// Set in the process that runs this test alone.
const APART: &str = "SYNCLINE_DESCRIPTORS_APART";
const TEST: &str = "descriptors::an_error_tells_that_few_descriptors_are_left";

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

#[test]
fn an_error_tells_that_few_descriptors_are_left() {
    if std::env::var_os(APART).is_none() {
        let _alone = super::alone();
        let ran = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .env(APART, "1")
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&ran.stdout);
        assert!(
            ran.status.success() && out.contains("test result: ok. 1 passed"),
            "{ran:?}"
        );
        return;
    }
    let exports = |device: &Device| {
        let kinds = &device.info().capabilities.exports;
        kinds.contains(&HandleKind::MemoryOpaqueFd)
    };
    let devices = (0..8).map_while(|index| Device::open(index).ok());
    let Some(device) = devices.into_iter().find(exports) else {
        println!("skipped: no Vulkan device exports memory");
        return;
    };
    let limit = Rlimit {
        current: Some(256),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let export = || device.export_buffer(4096, Default::default());
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
    let refused = device.export_buffer(0, Default::default()).unwrap_err();
    assert!(!refused.to_string().contains("descriptors"), "{refused}");
}
