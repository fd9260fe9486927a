//! Links between two devices: native timelines on one GPU, otherwise through the engine.

use std::fmt;

use syncline_core::backend;
#[cfg(feature = "vulkan")]
use syncline_core::image::ImageInfo;
use syncline_core::{Error, Result, Timeline, error::WrappedError};

use crate::any::Device;
use crate::memory_device::MemoryDevice;
use crate::negotiate::{Mechanism, Needs, Party, Plan, Requirements, negotiate};
use crate::shared_buffer::SharedBuffer;
#[cfg(feature = "vulkan")]
use crate::shared_image::SharedImage;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// Two devices, and how they synchronize.
///
/// The devices may be of any backend, also of one outside this library.
#[derive(Clone)]
pub struct Link<A = Device, B = Device> {
    left: A,
    right: B,
    /// `None` if the two devices synchronize through the engine.
    native: Option<Plan>,
    why: String,
}

/// Links two devices natively: a signal passes from one device to the other without the host.
///
/// Memory is shared too if one device can export it and the other can import it. Otherwise
/// [`Link::buffer`] returns an error, and [`Link::buffer_or_relay`] makes two buffers.
///
/// # Errors
/// [`Error::CannotShare`] if the devices cannot share a timeline. Its `conflict` is a
/// [`Conflict`](crate::negotiate::Conflict). UUIDs and capabilities decide this before any driver
/// call.
pub fn share<A, B>(left: &A, right: &B) -> Result<Link<A, B>>
where
    A: backend::Device,
    B: backend::Device,
{
    match negotiate(sides(left, right, Needs::NATIVE)) {
        Ok(plan) => Ok(Link::native(left, right, plan)),
        Err(conflict) => Err(Error::cannot_share(
            describe(left),
            describe(right),
            "timelines",
            reason(conflict.refused()),
            Some(WrappedError::new(conflict)),
        )),
    }
}

/// Links two devices natively if that is preferred, otherwise through the engine.
///
/// [`Link::why`] returns the reason.
pub fn connect<A, B>(left: &A, right: &B) -> Link<A, B>
where
    A: backend::Device,
    B: backend::Device,
{
    let why = match negotiate(sides(left, right, Needs::empty())) {
        Ok(plan) if plan.mechanism().is_native() => return Link::native(left, right, plan),
        Ok(plan) => reason(plan.better()),
        // Not reached: the engine can serve any two devices of one process.
        Err(conflict) => reason(conflict.refused()),
    };
    Link {
        left: left.clone(),
        right: right.clone(),
        native: None,
        why,
    }
}

/// Requirements of two devices that both signal and wait, and that both need `extra`.
fn sides<A, B>(left: &A, right: &B, extra: Needs) -> Requirements
where
    A: backend::Device,
    B: backend::Device,
{
    let parties = [Party::of(left), Party::of(right)];
    let needs = Needs::SIGNAL | Needs::WAIT | extra;
    Requirements::from(parties.map(|party| party.needing(needs)))
}

/// Why two devices have no native timeline: the reasons against [`Mechanism::ExternalTimeline`].
fn reason(refused: &[(Mechanism, Vec<String>)]) -> String {
    let mut refused = refused.iter();
    let external = refused.find(|(mechanism, _)| *mechanism == Mechanism::ExternalTimeline);
    external.map_or_else(String::new, |(_, obstacles)| obstacles.join("; "))
}

impl<A: backend::Device, B: backend::Device> Link<A, B> {
    fn native(left: &A, right: &B, plan: Plan) -> Self {
        Self {
            left: left.clone(),
            right: right.clone(),
            why: plan.why().to_owned(),
            native: Some(plan),
        }
    }

    /// The mechanism by which the two sides synchronize.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        let native = self.native.as_ref();
        native.map_or(Mechanism::Engine, Plan::mechanism)
    }

    /// The reason for this mechanism, as text.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The first device that was given to [`share`] or [`connect`].
    #[must_use]
    pub const fn left(&self) -> &A {
        &self.left
    }

    /// The second device.
    #[must_use]
    pub const fn right(&self) -> &B {
        &self.right
    }

    /// Makes a timeline at 0 for queues of both sides.
    ///
    /// # Errors
    /// A driver error.
    pub fn timeline(&self, label: &str) -> Result<Timeline> {
        self.timeline_from(label, 0)
    }

    /// Makes a timeline at `initial` for queues of both sides. Both sides signal one counter (X2).
    ///
    /// # Errors
    /// [`Error::ValueOutOfRange`] for `u64::MAX`; a driver error.
    pub fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        match &self.native {
            Some(plan) => plan.timeline(label, initial, &[&self.left, &self.right]),
            None => self.left.timeline_from(label, initial),
        }
    }
}

impl<A: MemoryDevice, B: MemoryDevice> Link<A, B> {
    /// Makes memory that both sides use: one allocation. For devices of this library.
    ///
    /// One device exports it and the other imports it, or one side is the host.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if the devices have no memory in common.
    /// [`Link::buffer_or_relay`] makes two buffers then. Same errors as there.
    pub fn buffer(&self, size: u64) -> Result<SharedBuffer<A, B>> {
        let buffer = self.buffer_or_relay(size)?;
        if !buffer.is_relayed() {
            return Ok(buffer);
        }
        Err(self.no_memory())
    }

    /// Makes an image that both sides use (X9). For devices of this library.
    ///
    /// Vulkan makes it, in a dedicated allocation, and the other device imports it. Its contents
    /// are undefined. So the first submission that acquires it on a Vulkan device
    /// [discards](vulkan::Contents::Discard) them.
    ///
    /// # Errors
    /// [`Error::CannotShare`] unless one of the devices is Vulkan's and the other one imports its
    /// memory. [`Error::Unsupported`] for properties that the two APIs do not share exactly, and
    /// for those that the driver does not have. It names the field of `VkImageCreateInfo`. A driver
    /// error.
    #[cfg(feature = "vulkan")]
    pub fn image(&self, info: &ImageInfo) -> Result<SharedImage<A, B>> {
        let shared = SharedImage::new(&self.left, &self.right, self.mechanism(), info)?;
        shared.ok_or_else(|| self.no_image())
    }

    /// Shares an image in memory that the application has allocated.
    ///
    /// The memory is exportable and was [adopted](vulkan::Device::adopt_allocation) by one of the
    /// two devices, and so was the [image](vulkan::Allocation::adopt_image). The other device
    /// imports the allocation, once for each call, with an image at the same offset. The views of
    /// both sides keep the memory and its owner.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if the other device cannot import the memory. [`Error::WrongDevice`]
    /// for an image of a third device. [`Error::Unsupported`] for memory that is not exportable. A
    /// driver error.
    #[cfg(feature = "vulkan")]
    pub fn share_image(&self, image: &vulkan::Image) -> Result<SharedImage<A, B>> {
        let mechanism = self.mechanism();
        let shared = SharedImage::of_exported(&self.left, &self.right, mechanism, image)?;
        shared.ok_or_else(|| self.no_image())
    }

    fn no_memory(&self) -> Error {
        let reason = "neither exports memory that the other one imports";
        self.cannot_share("memory", reason)
    }

    #[cfg(feature = "vulkan")]
    fn no_image(&self) -> Error {
        let reason = "only Vulkan makes images, and the other device must import its memory";
        self.cannot_share("an image", reason)
    }

    fn cannot_share(&self, what: &'static str, reason: &str) -> Error {
        Error::cannot_share(
            describe(&self.left),
            describe(&self.right),
            what,
            reason,
            None,
        )
    }

    /// Shares buffers in memory that the application has allocated.
    ///
    /// The memory is exportable and was [adopted](vulkan::Device::adopt_allocation) by one of the
    /// two devices. The other device imports each allocation once, and gets a view of each buffer
    /// at its offset. The views of both sides keep the memory and its owner. Buffers of one
    /// allocation are next to each other in the list; otherwise it is imported again.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if the other device cannot import the memory. [`Error::WrongDevice`]
    /// for a buffer of a third device. [`Error::Unsupported`] for memory that is not exportable or
    /// is dedicated, and for a buffer whose size or offset is no multiple of 4. Another `VkDevice`
    /// makes buffers with all usages of Vulkan 1.0: [`Error::Unsupported`] also if such a buffer
    /// cannot have the memory type, or needs more bytes than there are behind its offset. A driver
    /// error.
    #[cfg(feature = "vulkan")]
    pub fn share_buffers(&self, buffers: &[vulkan::Buffer]) -> Result<Vec<SharedBuffer<A, B>>> {
        let mechanism = self.mechanism();
        let shared = SharedBuffer::of_exported(&self.left, &self.right, mechanism, buffers)?;
        shared.ok_or_else(|| self.no_memory())
    }

    /// Makes memory that both sides use: one allocation, or one on each device.
    ///
    /// If the devices have no memory in common, [`SharedBuffer::is_relayed`] returns true. Then the
    /// application [copies](SharedBuffer::relay) between the two buffers.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `size` is a positive multiple of 4 that the host can address;
    /// a driver error.
    pub fn buffer_or_relay(&self, size: u64) -> Result<SharedBuffer<A, B>> {
        SharedBuffer::new(&self.left, &self.right, self.mechanism(), size)
    }
}

impl<A: backend::Device, B: backend::Device> fmt::Debug for Link<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (left, right) = (describe(&self.left), describe(&self.right));
        write!(f, "Link({left}, {right}, {})", self.mechanism())
    }
}

/// Describes a device with its number, because two open devices may have the same name and UUID.
fn describe<D: backend::Device>(device: &D) -> String {
    let (info, number) = (device.info(), device.id().get());
    let uuid = info
        .uuid
        .map_or_else(|| "no UUID".into(), |uuid| uuid.to_string());
    format!("{} {} #{number} ({uuid})", info.backend, info.marked_name())
}

#[cfg(test)]
mod tests {
    use syncline_core::backend::Device as _;
    use syncline_core::host;

    use super::*;

    #[test]
    fn descriptions_of_devices_with_the_same_name_differ() {
        let devices = [host::Device::new(), host::Device::new()];
        let texts = [&devices[0], &devices[1]].map(describe);
        assert_ne!(texts[0], texts[1]);
        for (device, text) in devices.iter().zip(texts) {
            let number = format!("#{} ", device.id().get());
            assert!(text.contains(&number), "{text}");
        }
    }
}
