//! Memory that two devices share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(any(feature = "vulkan", doc))]
use syncline_core::Error;
use syncline_core::backend::Device as _;
use syncline_core::backend::kit::{require_size, size_refused};
use syncline_core::{Result, error::Object};

use crate::another_backend::another_backend;
use crate::any::Device;
use crate::buffer::Buffer;
use crate::memory_device::MemoryDevice;
use crate::negotiate::Mechanism;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
use crate::pass::Pass;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// Usage flags of shared buffers, in addition to transfers.
#[cfg(feature = "vulkan")]
pub(crate) const STORAGE: vulkan::ash::vk::BufferUsageFlags =
    vulkan::ash::vk::BufferUsageFlags::STORAGE_BUFFER;

impl Buffer {
    /// Allocates host-visible memory of `device` and fills it with zeroes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `size` is a positive multiple of 4 that the host can address.
    /// A driver error.
    pub fn host_visible(device: &Device, size: u64) -> Result<Self> {
        let memory = match device {
            Device::Host(_) => Self::Host(words(device, size)?.into()),
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Self::Cuda(device.host_buffer(size)?),
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => Self::Vulkan(device.host_buffer(size, STORAGE)?),
        };
        for word in memory.words().unwrap_or_default() {
            word.store(0, Ordering::Relaxed);
        }
        Ok(memory)
    }
}

/// A buffer that both sides of a [`Link`](crate::Link) use.
///
/// It is one shared allocation if that is possible.
///
/// The application must order all accesses with timelines of the link.
pub struct SharedBuffer<A: MemoryDevice = Device, B: MemoryDevice = Device> {
    left: A::Buffer,
    right: B::Buffer,
    views: Views,
}

/// Both views of the memory, whatever the types of the devices are.
#[derive(Clone)]
struct Views {
    size: u64,
    left: Buffer,
    right: Buffer,
    how: &'static str,
    relayed: bool,
}

impl<A: MemoryDevice, B: MemoryDevice> Clone for SharedBuffer<A, B> {
    fn clone(&self) -> Self {
        Self {
            left: self.left.clone(),
            right: self.right.clone(),
            views: self.views.clone(),
        }
    }
}

impl Views {
    /// Makes the buffer of two devices that synchronize by `mechanism`.
    fn new(left: &Device, right: &Device, mechanism: Mechanism, size: u64) -> Result<Self> {
        require_size(left.object(), size)?;
        let single = |memory: Buffer, how| {
            Ok(Self {
                size,
                left: memory.clone(),
                right: memory,
                how,
                relayed: false,
            })
        };
        #[cfg(any(feature = "cuda", feature = "vulkan"))]
        if let Some(shared) = Self::external(left, right, mechanism, size)? {
            return Ok(shared);
        }
        let _ = mechanism;
        let addressed = "memory of one device that the host addresses";
        if left.id() == right.id() {
            single(
                Buffer::host_visible(left, size)?,
                "memory of the device that the host addresses",
            )
        } else if matches!(left, Device::Host(_)) {
            single(Buffer::host_visible(right, size)?, addressed)
        } else if matches!(right, Device::Host(_)) {
            single(Buffer::host_visible(left, size)?, addressed)
        } else {
            Ok(Self {
                size,
                left: Buffer::host_visible(left, size)?,
                right: Buffer::host_visible(right, size)?,
                how: "one buffer on each device, copied by the host",
                relayed: true,
            })
        }
    }

    /// Device memory that one side exports and the other imports, or `None` if they cannot do so.
    ///
    /// If both can export, the left side does. Between CUDA and Vulkan, Vulkan does.
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    fn external(
        left: &Device,
        right: &Device,
        mechanism: Mechanism,
        size: u64,
    ) -> Result<Option<Self>> {
        let passes = [
            Pass::of(mechanism, left, right).map(|pass| (pass, true)),
            Pass::of(mechanism, right, left).map(|pass| (pass, false)),
        ];
        let passes = passes.into_iter().flatten();
        let Some((pass, from_left)) = passes.min_by_key(|(pass, _)| pass.is_made_by_cuda()) else {
            return Ok(None);
        };
        let (exported, imported) = pass.make(size)?;
        let (left, right) = match from_left {
            true => (exported, imported),
            false => (imported, exported),
        };
        Ok(Some(Self {
            size,
            left,
            right,
            how: pass.how(),
            relayed: false,
        }))
    }

    /// Both views of each of `buffers`, which one of the devices has exported.
    ///
    /// An allocation is imported once. `None` if the devices cannot share memory.
    #[cfg(feature = "vulkan")]
    fn of_exported(
        left: &Device,
        right: &Device,
        mechanism: Mechanism,
        buffers: &[vulkan::Buffer],
    ) -> Result<Option<Vec<Self>>> {
        let mut all = Vec::new();
        let of = |buffer: &vulkan::Buffer| {
            let allocation = buffer.allocation();
            (allocation.device().id(), allocation.raw())
        };
        let same = |one: &vulkan::Buffer, two: &vulkan::Buffer| of(one) == of(two);
        for group in buffers.chunk_by(same) {
            let Some(first) = group.first() else { continue };
            let allocation = first.allocation();
            let owner = Device::Vulkan(allocation.device());
            let (from_left, to) = match (owner.id() == left.id(), owner.id() == right.id()) {
                (true, _) => (true, right),
                (_, true) => (false, left),
                _ => {
                    return Err(Error::wrong_device(
                        first.object(),
                        owner.object(),
                        left.object(),
                    ));
                }
            };
            let Some(pass) = Pass::of(mechanism, &owner, to) else {
                return Ok(None);
            };
            let imported = pass.import(allocation, group)?;
            for (exported, imported) in group.iter().zip(imported) {
                let exported = Buffer::Vulkan(exported.clone());
                let (left, right) = match from_left {
                    true => (exported, imported),
                    false => (imported, exported),
                };
                all.push(Self {
                    size: left.size(),
                    left,
                    right,
                    how: pass.how(),
                    relayed: false,
                });
            }
        }
        Ok(Some(all))
    }
}

impl<A: MemoryDevice, B: MemoryDevice> SharedBuffer<A, B> {
    /// Makes the buffer of two devices that synchronize by `mechanism`.
    pub(crate) fn new(left: &A, right: &B, mechanism: Mechanism, size: u64) -> Result<Self> {
        let devices: (Device, Device) = (left.clone().into(), right.clone().into());
        let views = Views::new(&devices.0, &devices.1, mechanism, size)?;
        Self::of(views)
    }

    /// Shares buffers in memory that the application has allocated. `None` if that is impossible.
    #[cfg(feature = "vulkan")]
    pub(crate) fn of_exported(
        left: &A,
        right: &B,
        mechanism: Mechanism,
        buffers: &[vulkan::Buffer],
    ) -> Result<Option<Vec<Self>>> {
        let (left, right): (Device, Device) = (left.clone().into(), right.clone().into());
        let views = Views::of_exported(&left, &right, mechanism, buffers)?;
        let shared = views.map(|views| views.into_iter().map(Self::of).collect());
        shared.transpose()
    }

    fn of(views: Views) -> Result<Self> {
        let other_type = |_| another_backend(&Object::new("memory", ""), "its own type of memory");
        Ok(Self {
            left: A::Buffer::try_from(views.left.clone()).map_err(|_| other_type(()))?,
            right: B::Buffer::try_from(views.right.clone()).map_err(|_| other_type(()))?,
            views,
        })
    }

    /// A range of this buffer, on both sides. It keeps the whole allocation.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless both numbers are multiples of 4, `size` is positive, and the
    /// range ends within this buffer.
    pub fn view(&self, offset: u64, size: u64) -> Result<Self> {
        let Views {
            left,
            right,
            how,
            relayed,
            ..
        } = &self.views;
        Self::of(Views {
            size,
            left: left.view(offset, size)?,
            right: right.view(offset, size)?,
            how,
            relayed: *relayed,
        })
    }

    /// The size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.views.size
    }

    /// The left device's view.
    #[must_use]
    pub const fn left(&self) -> &A::Buffer {
        &self.left
    }

    /// The right device's view.
    #[must_use]
    pub const fn right(&self) -> &B::Buffer {
        &self.right
    }

    /// The kind of memory and how it is shared, as text.
    #[must_use]
    pub const fn how(&self) -> &'static str {
        self.views.how
    }

    /// True if each side has its own memory.
    ///
    /// Then the application must call [`SharedBuffer::relay`] after the left side has written and
    /// before the right side reads.
    #[must_use]
    pub const fn is_relayed(&self) -> bool {
        self.views.relayed
    }

    /// Copies all words from the left side to the right side, on the calling thread.
    ///
    /// Does nothing unless the buffer [is relayed](SharedBuffer::is_relayed).
    pub fn relay(&self) {
        let views = &self.views;
        if let (true, Some(from), Some(to)) =
            (views.relayed, views.left.words(), views.right.words())
        {
            copy_words(from, to);
        }
    }

    /// Copies all words from the right side to the left side. See [`SharedBuffer::relay`].
    pub fn relay_back(&self) {
        let views = &self.views;
        if let (true, Some(from), Some(to)) =
            (views.relayed, views.right.words(), views.left.words())
        {
            copy_words(from, to);
        }
    }
}

fn copy_words(from: &[AtomicU32], to: &[AtomicU32]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl<A: MemoryDevice, B: MemoryDevice> fmt::Debug for SharedBuffer<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuffer({} bytes, {})", self.size(), self.how())
    }
}

fn words(device: &Device, size: u64) -> Result<Arc<[AtomicU32]>> {
    require_size(device.object(), size)?;
    let count = usize::try_from(size / 4)
        .map_err(|_| size_refused(device.object(), size, "more than the host can address"))?;
    // Allocating the `Arc` aborts the process if memory is short. Reserve the same amount first,
    // because that returns an error. The `Arc` has reference counts in front of the words.
    Vec::<AtomicU32>::new()
        .try_reserve_exact(count.saturating_add(COUNTS))
        .map_err(|error| size_refused(device.object(), size, &error.to_string()))?;
    Ok((0..count).map(|_| AtomicU32::new(0)).collect())
}

/// Upper bound of the words that the reference counts of an `Arc` take.
const COUNTS: usize = 16;

#[cfg(all(test, feature = "vulkan"))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test's")]

    use syncline_core::handle::HandleKind;

    use super::*;

    /// Memory is shared if the driver can do so, even if the driver cannot share timelines.
    #[test]
    fn two_devices_of_one_gpu_share_memory() {
        use syncline_core::QueueKind;
        use syncline_core::backend::Queue as _;

        const BYTES: u64 = 4096;
        const LONG: std::time::Duration = std::time::Duration::from_secs(20);
        let Ok(instance) = vulkan::Instance::load() else {
            return println!("skipped: there is no Vulkan driver");
        };
        for candidate in instance.devices().unwrap() {
            let (Ok(ours), Ok(theirs)) = (candidate.open(), candidate.open()) else {
                continue;
            };
            let link = crate::connect(&ours, &theirs);
            let shared = link.buffer_or_relay(BYTES).unwrap();
            let can = &candidate.info.capabilities;
            let kind = &HandleKind::MemoryOpaqueFd;
            let shares = can.exports.contains(kind) && can.imports.contains(kind);
            assert_eq!(shared.is_relayed(), !shares, "{}", shared.how());
            let kind = &HandleKind::TimelineOpaqueFd;
            let shares = can.exports.contains(kind) && can.imports.contains(kind);
            match crate::share(&ours, &theirs) {
                Ok(_) => assert!(shares),
                // `share` must not refuse a link because memory cannot be shared.
                Err(Error::CannotShare { reason, .. }) => {
                    assert!(!shares && !reason.contains("memory"), "{reason}");
                }
                Err(other) => panic!("{other}"),
            }
            let (left, right) = (shared.left(), shared.right());
            let timeline = link.timeline("timeline").unwrap();
            let writes = ours.queue(QueueKind::Compute, "writes").unwrap();
            let target = left.clone();
            let work = move |r: &mut vulkan::Recorder| r.fill_buffer(&target, 7);
            let signals = [timeline.signal_at(1)];
            writes.submit(&[], work, &signals).unwrap();
            if shared.is_relayed() {
                timeline.at(1).wait(LONG).unwrap();
                shared.relay();
            }
            let seen = theirs.host_buffer(BYTES, STORAGE).unwrap();
            let reads = theirs.queue(QueueKind::Compute, "reads").unwrap();
            let (from, to) = (right.clone(), seen.clone());
            let work = move |r: &mut vulkan::Recorder| r.copy_buffer(&from, &to);
            reads.submit(&[timeline.at(1)], work, &[]).unwrap();
            reads.idle(LONG).unwrap();
            let words = seen.as_words().unwrap();
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 7));
            if let (true, Some(from), Some(to)) =
                (shared.is_relayed(), right.as_words(), left.as_words())
            {
                from.iter()
                    .for_each(|word| word.store(9, Ordering::Relaxed));
                shared.relay_back();
                assert!(to.iter().all(|word| word.load(Ordering::Relaxed) == 9));
            }
        }
    }
}
