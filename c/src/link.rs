//! Links: two devices, and how they synchronize.

use std::ffi::{CStr, c_char};

use syncline::Mechanism;
use syncline::{Link, connect, share};

use crate::handle::{Handle, sl_device, sl_link, sl_timeline};
use crate::result::{call, out, sl_result, text_out, told};

/// How the devices of a link synchronize.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum sl_mechanism {
    /// By objects of one device.
    SL_MECHANISM_SAME_DEVICE = 0,
    /// By a semaphore that Vulkan exports. No host thread is between the devices.
    SL_MECHANISM_EXTERNAL_TIMELINE = 1,
    /// By a binary semaphore that Vulkan exports. No host thread is between the devices.
    SL_MECHANISM_EXTERNAL_BINARY = 2,
    /// By a counter in shared memory that the host and CUDA streams write and wait for.
    SL_MECHANISM_SHARED_MEMORY = 3,
    /// On the host: submissions of one device are held until the other device has signalled.
    SL_MECHANISM_ENGINE = 4,
    /// By a timeline for each device. The host signals each value on the other ones.
    SL_MECHANISM_BRIDGE = 5,
}

use sl_mechanism::*;

const fn number(mechanism: Mechanism) -> sl_mechanism {
    match mechanism {
        Mechanism::SameDevice => SL_MECHANISM_SAME_DEVICE,
        Mechanism::ExternalTimeline => SL_MECHANISM_EXTERNAL_TIMELINE,
        Mechanism::ExternalBinary => SL_MECHANISM_EXTERNAL_BINARY,
        Mechanism::SharedMemory => SL_MECHANISM_SHARED_MEMORY,
        Mechanism::Bridge => SL_MECHANISM_BRIDGE,
        _ => SL_MECHANISM_ENGINE,
    }
}

/// The name of an sl_mechanism in words, such as "through the engine on the host".
///
/// "unknown" for another number. The text lives as long as the program.
#[unsafe(no_mangle)]
pub extern "C" fn sl_mechanism_name(mechanism: u32) -> *const c_char {
    const NAMES: [(sl_mechanism, &CStr); 6] = [
        (SL_MECHANISM_SAME_DEVICE, c"the device's own timelines"),
        (
            SL_MECHANISM_EXTERNAL_TIMELINE,
            c"external timeline semaphore (exported by Vulkan)",
        ),
        (
            SL_MECHANISM_EXTERNAL_BINARY,
            c"external binary semaphore (exported by Vulkan)",
        ),
        (SL_MECHANISM_SHARED_MEMORY, c"a counter in shared memory"),
        (SL_MECHANISM_ENGINE, c"through the engine on the host"),
        (SL_MECHANISM_BRIDGE, c"a bridge through the host"),
    ];
    let named = NAMES
        .iter()
        .find(|(known, _)| *known as u32 == mechanism)
        .map(|(_, name)| *name);
    named.unwrap_or(c"unknown").as_ptr()
}

/// Links two devices of one GPU natively: signals pass between them without a host thread.
///
/// Both directions are linked. SL_ERROR_UNSUPPORTED if the devices cannot share a timeline; the
/// text says why. May block for milliseconds in driver calls, and does not wait for a device. Free
/// the link with sl_link_free.
#[unsafe(no_mangle)]
pub extern "C" fn sl_link_share(
    left: sl_device,
    right: sl_device,
    link: *mut sl_link,
) -> sl_result {
    call(|| {
        let link = out(link, "link")?;
        let (left, right) = (left.get()?, right.get()?);
        link.set(sl_link::new(share(&*left, &*right)?));
        Ok(())
    })
}

/// Links any two devices: natively if they can be, and else through the host.
///
/// sl_link_mechanism and sl_link_why tell which, and why. Pass the Vulkan device first if you make
/// submissions of your own to it: then every timeline of the link is a VkSemaphore. May block as
/// sl_link_share. Free the link with sl_link_free.
#[unsafe(no_mangle)]
pub extern "C" fn sl_link_connect(
    left: sl_device,
    right: sl_device,
    link: *mut sl_link,
) -> sl_result {
    call(|| {
        let link = out(link, "link")?;
        let (left, right) = (left.get()?, right.get()?);
        link.set(sl_link::new(connect(&*left, &*right)));
        Ok(())
    })
}

/// How the devices of a link synchronize, as an sl_mechanism.
#[unsafe(no_mangle)]
pub extern "C" fn sl_link_mechanism(link: sl_link, mechanism: *mut u32) -> sl_result {
    call(|| {
        let mechanism = out(mechanism, "mechanism")?;
        mechanism.set(number(Link::mechanism(&*link.get()?)) as u32);
        Ok(())
    })
}

/// Why a link has its mechanism, as a text.
///
/// Writes at most `size` bytes with the zero byte at the end, and cuts a longer text off. `length`,
/// which may be null, gets the length of the whole text without the zero byte.
///
/// # Safety
///
/// `buffer` has `size` bytes. It may be null if `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_link_why(
    link: sl_link,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> sl_result {
    call(|| {
        let link = link.get()?;
        // SAFETY: by the contract of this function.
        unsafe { text_out(link.why(), (buffer, size), length) }
    })
}

/// Makes a timeline for queues of both devices of a link. It begins at `initial`.
///
/// `label` is a name for error texts, or null. Free the timeline with sl_timeline_free.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_link_timeline(
    link: sl_link,
    label: *const c_char,
    initial: u64,
    timeline: *mut sl_timeline,
) -> sl_result {
    call(|| {
        let timeline = out(timeline, "timeline")?;
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        let made = link.get()?.timeline_from(label, initial)?;
        timeline.set(sl_timeline::new(made.into()));
        Ok(())
    })
}

/// Frees a link. Its timelines and buffers live on.
#[unsafe(no_mangle)]
pub extern "C" fn sl_link_free(link: sl_link) -> sl_result {
    call(|| link.free())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    /// A new mechanism must get a number, and both interfaces one name for it.
    #[test]
    fn every_mechanism_has_its_number_and_name() {
        for (index, mechanism) in Mechanism::ALL.into_iter().enumerate() {
            let found = number(mechanism) as u32;
            assert_eq!(found, index as u32);
            // SAFETY: it is a text that ends with a zero byte.
            let name = unsafe { CStr::from_ptr(sl_mechanism_name(found)) };
            assert_eq!(name.to_str().unwrap(), mechanism.name());
        }
    }
}
