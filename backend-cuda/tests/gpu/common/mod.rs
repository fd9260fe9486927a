//! What the tests of this crate share. Without a CUDA device each test is reported as ignored, with
//! the reason. With `SYNCLINE_REQUIRE_CUDA` set it fails.
#![allow(clippy::panic, reason = "a test may panic")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libtest_mimic::{Completion, Trial};
use syncline_core::backend::Device as _;
use syncline_core::{BackendKind, Error, Result};
use syncline_cuda::{Device, Driver};

/// No wait of a test lasts longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Freeing memory waits for all work of the context, another test's closed gates included: one at a
/// time.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn open() -> Result<Device> {
    let found = Driver::load()?.devices()?;
    match found.iter().find(|one| one.rejected.is_none()) {
        Some(one) => one.open(),
        None => Err(Error::Unavailable {
            backend: BackendKind::Cuda,
            reason: "no usable device".into(),
        }),
    }
}

/// Why there is no GPU to test on, if so.
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

/// A trial of each function. Without a CUDA device it is ignored, with the reason.
pub(crate) fn trials_on_cuda(tests: Vec<(&'static str, fn())>) -> Vec<Trial> {
    trials_unless(tests, &why_not())
}

/// As [`trials_on_cuda`], and ignored on a driver in software: what these measure are a GPU's
/// properties.
pub(crate) fn trials_on_a_gpu(tests: Vec<(&'static str, fn())>) -> Vec<Trial> {
    let is_software = || open().is_ok_and(|device| device.info().software);
    let software = || is_software().then(|| "the CUDA driver is software".into());
    trials_unless(tests, &why_not().or_else(software))
}

/// A trial of each function, ignored for the reason, if there is one.
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
