//! Shared by the tests of this crate.
//!
//! Without a CUDA device each test is reported as ignored, with the reason. With
//! `SYNCLINE_REQUIRE_CUDA` set it fails.
#![allow(clippy::panic, reason = "a test may panic")]

use std::time::Duration;

use libtest_mimic::{Completion, Trial};
use syncline_core::backend::Device as _;
use syncline_core::backend::kit::{Mutex, MutexGuard};
use syncline_core::{Error, Result, info::BackendKind};
use syncline_cuda::{Device, Driver};

/// Time limit for every wait of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Runs one test at a time.
///
/// Freeing memory waits for all work of the context, including the stalls of another test.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

pub(crate) fn open() -> Result<Device> {
    let found = Driver::load()?.devices()?;
    match found.iter().find(|one| one.rejected.is_none()) {
        Some(one) => one.open(),
        None => Err(Error::unavailable(BackendKind::Cuda, "no usable device")),
    }
}

/// Returns why there is no GPU to test on.
fn why_not() -> Option<String> {
    let error = open().err()?;
    assert!(
        matches!(
            error,
            Error::Unavailable {
                backend: BackendKind::Cuda,
                ..
            }
        ),
        "an unavailable backend must say so: {error}"
    );
    assert!(
        std::env::var_os("SYNCLINE_REQUIRE_CUDA").is_none(),
        "CUDA is required here: {error}"
    );
    Some(error.to_string())
}

/// Names functions for [`trials_on_cuda`].
macro_rules! trials {
    ($($test:ident),+ $(,)?) => { vec![$((stringify!($test), $test as fn())),+] };
}
pub(crate) use trials;

/// Makes a trial of each function. Without a CUDA device it is ignored, with the reason.
pub(crate) fn trials_on_cuda(tests: Vec<(&'static str, fn())>) -> Vec<Trial> {
    trials_unless(tests, &why_not())
}

/// As [`trials_on_cuda`], but ignored on a software driver: these tests measure a GPU.
pub(crate) fn trials_on_a_gpu(tests: Vec<(&'static str, fn())>) -> Vec<Trial> {
    let is_software = || open().is_ok_and(|device| device.info().software);
    let software = || is_software().then(|| "the CUDA driver is software".into());
    trials_unless(tests, &why_not().or_else(software))
}

/// Makes a trial of each function. It is ignored if there is a `reason`.
fn trials_unless(tests: Vec<(&'static str, fn())>, reason: &Option<String>) -> Vec<Trial> {
    let trial = |(name, test): (&'static str, fn())| {
        let reason = reason.clone();
        Trial::ignorable_test(name, move || match reason {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => {
                test();
                Ok(Completion::Completed)
            }
        })
    };
    tests.into_iter().map(trial).collect()
}
