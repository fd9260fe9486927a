//! Calls the built library as a C program does.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test calls the driver and may panic"
)]

mod arrays;
mod captures;
mod cuda;
mod external;
mod kernels;
mod memory;
mod processes;
mod virtual_memory;

use cuda::*;

#[test]
fn devices_are_the_twins_of_vulkan_drivers() {
    ok(cuInit(0));
    assert_eq!(cuInit(1), 1);
    assert_eq!(made(cuDriverGetVersion), 13_000);
    assert_eq!(synclineSoftwareDriver(), 1);
    assert_eq!(made(cuDeviceGetCount), 2);
    for (ordinal, twin) in syncline_software_payload::Twin::ALL.iter().enumerate() {
        let device = made(|to| cuDeviceGet(to, ordinal as i32));
        let mut name = [1_u8; 64];
        ok(cuDeviceGetName(name.as_mut_ptr(), 64, device));
        let name = std::ffi::CStr::from_bytes_until_nul(&name).unwrap();
        let expected = format!("Software CUDA ({})", twin.name());
        assert_eq!(name.to_str(), Ok(expected.as_str()));
        let uuid = made(|to| cuDeviceGetUuid_v2(to, device));
        assert_eq!(Some(uuid), twin.uuid());
        assert_eq!(made(|to| cuDeviceGetAttribute(to, 114, device)), 1);
    }
    let mut short = [1_u8; 5];
    ok(cuDeviceGetName(short.as_mut_ptr(), 5, 0));
    assert_eq!(&short, b"Soft\0");
    assert_eq!(cuDeviceGet(&mut 0, 2), 101);
    assert_eq!(cuDeviceGet(&mut 0, -1), 101);
    assert_eq!(cuDeviceGetCount(std::ptr::null_mut()), 1);
}

#[test]
fn contexts_come_and_go() {
    ok(cuInit(0));
    assert_eq!(cuCtxSynchronize(), 201);
    let primary = made(|to| cuDevicePrimaryCtxRetain(to, 1));
    assert_eq!(made(|to| cuDevicePrimaryCtxRetain(to, 1)), primary);
    let own = Context::new();
    assert_eq!(made(cuCtxGetCurrent), own.0);
    ok(cuCtxSetCurrent(primary));
    let event = event();
    ok(cuDevicePrimaryCtxRelease_v2(1));
    ok(cuEventQuery(event));
    ok(cuDevicePrimaryCtxRelease_v2(1));
    assert_eq!(cuDevicePrimaryCtxRelease_v2(1), 201);
    // All its objects are destroyed.
    assert_eq!(cuEventQuery(event), 709);
    assert_eq!(cuCtxSynchronize(), 709);
    // Any handle can be current.
    ok(cuCtxSetCurrent(primary));
    assert_eq!(cuCtxSynchronize(), 709);
    ok(cuCtxSetCurrent(0));
    assert_eq!(made(cuCtxGetCurrent), 0);
    ok(cuCtxDestroy_v2(own.0));
    assert_eq!(cuCtxDestroy_v2(own.0), 709);
}

#[test]
fn a_context_is_destroyed_once() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    ok(cuInit(0));
    for _ in 0..2000 {
        let context = made(|to| cuCtxCreate_v2(to, 0, 0));
        ok(cuCtxSetCurrent(0));
        let ready = AtomicUsize::new(0);
        let destroy = || {
            // A barrier would wake the threads one after the other.
            ready.fetch_add(1, Ordering::SeqCst);
            while ready.load(Ordering::SeqCst) < 2 {
                std::hint::spin_loop();
            }
            cuCtxDestroy_v2(context)
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(destroy);
            let mut codes = [destroy(), other.join().unwrap()];
            codes.sort_unstable();
            assert_eq!(codes, [0, 709]);
        });
    }
}
