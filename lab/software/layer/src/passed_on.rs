//! Destroying functions that go to the driver unchanged, but not from a forked process.
#![allow(
    unsafe_code,
    reason = "is called by applications, and calls the driver"
)]

use ash::vk;

use crate::device::Device;

/// Defines functions that find their device, which checks the process, and call the driver.
macro_rules! passed_on {
    ($($name:ident($handle:ty);)*) => {
        $(
            pub(crate) unsafe extern "system" fn $name(
                raw: vk::Device,
                handle: $handle,
                allocator: *const vk::AllocationCallbacks<'_>,
            ) {
                // SAFETY: valid usage: a live device, and an object of it that is used no more.
                unsafe {
                    if let Some(device) = Device::of(raw) {
                        (device.driver.$name)(raw, handle, allocator);
                    }
                }
            }
        )*
    };
}

passed_on! {
    destroy_query_pool(vk::QueryPool);
}
