//! D1–D6, Q8, X8, X10: descriptions, lifetime and memory of devices, and objects of an application.

#[cfg(any(feature = "cuda", feature = "vulkan"))]
mod adopted;
#[cfg(feature = "cuda")]
mod cuda;
mod forks;
#[cfg(feature = "vulkan")]
mod frames;
mod life;
mod looks;
mod memory;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
mod own_calls;
#[cfg(feature = "vulkan")]
mod vulkan;
#[cfg(feature = "cuda")]
mod words;

#[cfg(feature = "cuda")]
pub(super) use cuda::Current;

use syncline::{Device, Inventory};

use crate::case::{Stop, Verdict};
use crate::workload::Equipped;
use crate::{Case, Settings, World, user};

/// The cases of this family; they need the devices of this project.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let mut cases = looks::cases();
    cases.extend(life::cases());
    cases.extend(forks::cases());
    cases.extend(memory::cases());
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    cases.extend(adopted::cases());
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    cases.extend(own_calls::cases());
    #[cfg(feature = "vulkan")]
    cases.extend(vulkan::cases());
    #[cfg(feature = "vulkan")]
    cases.extend(frames::cases());
    #[cfg(feature = "cuda")]
    cases.extend(cuda::cases());
    #[cfg(feature = "cuda")]
    cases.extend(words::cases());
    cases
}

/// Skips a pair of devices.
pub(super) fn one_device_only(world: &World<Equipped>) -> Verdict {
    match world.is_pair() {
        true => Stop::skip("it is about one device, and shown there"),
        false => Ok(()),
    }
}

/// Makes an inventory of its own.
pub(super) fn look() -> Inventory {
    Inventory::probe(&crate::inventory::options(&Settings::from_env()))
}

/// Opens the device of `side` once more, as another user of the library would.
pub(super) fn open_again(
    side: &user::Device<Equipped>,
    inventory: &Inventory,
) -> Result<Device, Stop> {
    let info = side.info();
    let same = |found: &&syncline::Found| {
        let other = found.info();
        (other.backend, &other.name, other.uuid) == (info.backend, &info.name, info.uuid)
    };
    match inventory.devices().iter().find(same) {
        Some(found) => Ok(found.open()?),
        None => Stop::fail(format!("a second look does not find {}", side.object())),
    }
}
