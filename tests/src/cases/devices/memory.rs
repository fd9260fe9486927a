//! X8: the sizes of memory.

use syncline::backend::Device as _;
use syncline::handle::SharedWords;
use syncline::{Buffer, Device, Error, Result};

use crate::World;
use crate::case::{Verdict, check, equipped_cases};
use crate::workload::Equipped;

equipped_cases! {
    "memory.sizes_are_whole_words": [X8] => sizes;
}

/// Every function that makes memory refuses the same sizes, with the same text.
fn sizes(world: &World<Equipped>) -> Verdict {
    let device = world.left.library();
    let link = syncline::connect(device, device);
    let own = device.object().to_string();
    for bytes in [0, 1, 3, 6, 4097] {
        let mut made = vec![
            ("memory", SharedWords::new(bytes).map(drop)),
            (&*own, Buffer::host_visible(device, bytes).map(drop)),
            (&*own, link.buffer_or_relay(bytes).map(drop)),
        ];
        made.extend(
            by_backend(device, bytes)
                .into_iter()
                .map(|made| (&*own, made)),
        );
        for (nth, (object, made)) in made.into_iter().enumerate() {
            let Err(error @ Error::Unsupported { .. }) = made else {
                check!(false, "function {nth} and {bytes} bytes: {made:?}");
                return Ok(());
            };
            let text = error.to_string();
            let expected = format!(
                "cannot make memory of {bytes} bytes: its size is whole 32-bit words, at least one"
            );
            check!(
                text.starts_with(object) && text.ends_with(&expected),
                "{nth} {text}"
            );
        }
    }
    for bytes in [4, 4100] {
        let made = Buffer::host_visible(device, bytes)?;
        check!(made.size() == bytes, "{bytes} bytes became {made:?}");
    }
    Ok(())
}

/// Makes memory by each function of the backend itself.
fn by_backend(device: &Device, bytes: u64) -> Vec<Result<()>> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => {
            let mut made = vec![
                device.buffer(bytes).map(drop),
                device.host_buffer(bytes).map(drop),
            ];
            let exports = &syncline::backend::Device::info(device).capabilities.exports;
            if exports.contains(&syncline::handle::HandleKind::MemoryOpaqueFd) {
                made.push(device.export_buffer(bytes).map(drop));
            }
            made
        }
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => {
            let none = Default::default();
            let mut made = vec![
                device.device_buffer(bytes, none).map(drop),
                device.host_buffer(bytes, none).map(drop),
            ];
            let exports = &device.info().capabilities.exports;
            if exports.contains(&syncline::handle::HandleKind::MemoryOpaqueFd) {
                made.push(device.export_buffer(bytes).map(drop));
            }
            made
        }
        _ => {
            let _ = bytes;
            Vec::new()
        }
    }
}
