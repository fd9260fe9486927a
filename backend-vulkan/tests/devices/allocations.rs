//! Memory that the application has allocated, and buffers at offsets in it.
#![allow(unsafe_code, reason = "allocates by hand")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::sync::Arc;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::handle::{HandleKind, MemoryContent, MemoryFd};
use syncline_core::{Error, QueueKind};
use syncline_vulkan::ash::vk;
use syncline_vulkan::{Allocation, AllocationInfo, Buffer, Device, Recorder};

use crate::common::{self, TIMEOUT, on_two_of_each_device};

pub(crate) const SIZE: u64 = 1 << 20;

/// Frees the memory when it is dropped.
pub(crate) struct Owner(Device, vk::DeviceMemory);

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: allocated by `adopted`, and kept by everything that uses it.
        unsafe { self.0.raw().free_memory(self.1, None) };
    }
}

/// Exportable memory of the first type that a shared buffer may have, adopted; and its owner.
pub(crate) fn adopted(device: &Device) -> (Allocation, Arc<Owner>) {
    let (sample, _) = device.export_buffer(4096).unwrap();
    let mut export = vk::ExportMemoryAllocateInfo::default()
        .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
    let memory_type = sample.allocation().memory_type();
    let info = vk::MemoryAllocateInfo::default()
        .allocation_size(SIZE)
        .memory_type_index(memory_type)
        .push_next(&mut export);
    // SAFETY: a valid description.
    let memory = unsafe { device.raw().allocate_memory(&info, None) }.unwrap();
    let owner = Arc::new(Owner(device.clone(), memory));
    let info = AllocationInfo {
        size: SIZE,
        memory_type,
        dedicated: false,
        exportable: true,
    };
    // SAFETY: allocated above with these properties, and freed by the owner.
    let allocation = unsafe { device.adopt_allocation(memory, &info, Some(owner.clone())) };
    (allocation.unwrap(), owner)
}

pub(crate) fn shares_memory(device: &Device) -> bool {
    let can = &device.info().capabilities;
    let kind = &HandleKind::MemoryOpaqueFd;
    can.exports.contains(kind) && can.imports.contains(kind)
}

/// Fills a buffer by its device, and reads another one by its own device.
fn passes(from: &Device, written: &Buffer, to: &Device, read: &Buffer, word: u32) -> u32 {
    let queue = from.queue(QueueKind::Compute, "writes").unwrap();
    let target = written.clone();
    let work = move |r: &mut Recorder| r.fill_buffer(&target, word);
    queue.submit(&[], work, &[]).unwrap();
    queue.idle(TIMEOUT).unwrap();
    let seen = common::words(to, read.size() / 4);
    let queue = to.queue(QueueKind::Compute, "reads").unwrap();
    let (source, target) = (read.clone(), seen.clone());
    let work = move |r: &mut Recorder| r.copy_buffer(&source, &target);
    queue.submit(&[], work, &[]).unwrap();
    queue.idle(TIMEOUT).unwrap();
    common::all_words(&seen)
}

fn buffers_lie_at_their_offsets_on_both_devices() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let (allocation, owner) = adopted(ours);
        let imported = theirs.import_allocation_of(&allocation).unwrap();
        assert_eq!((imported.size(), imported.is_shared()), (SIZE, true));
        let places = [(0, 4096), (64 << 10, 4096), (SIZE - (64 << 10), 64 << 10)];
        let at = |of: &Allocation| {
            let buffers = places.map(|(offset, size)| of.buffer(offset, size, Default::default()));
            buffers.map(Result::unwrap)
        };
        let (written, read) = (at(&allocation), at(&imported));
        for (word, (one, other)) in (1..).zip(written.iter().zip(&read)) {
            assert_eq!(passes(ours, one, theirs, other, word), word);
        }
        // Each has its own bytes: the last writes have not changed the first buffer.
        assert_eq!(passes(ours, &written[2], theirs, &read[0], 9), 1);
        // A range of a buffer, back.
        let (one, other) = (
            read[1].view(64, 128).unwrap(),
            written[1].view(64, 128).unwrap(),
        );
        assert_eq!(other.offset_in_allocation(), (64 << 10) + 64);
        assert_eq!(passes(theirs, &one, ours, &other, 7), 7);
        let before = written[1].view(0, 64).unwrap();
        assert_eq!(passes(theirs, &one, ours, &before, 7), 2);
        drop((allocation, written, other, before));
        assert!(
            Arc::strong_count(&owner) > 1,
            "the imported buffers need the memory"
        );
        drop((read, one, imported));
        common::wait_until_alone(&owner);
    });
}

/// Each byte is acquired once, and both buffers are used and kept.
fn two_buffers_with_the_same_bytes_are_used_at_once() {
    const HALF: u64 = 32 << 10;
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let (allocation, _owner) = adopted(ours);
        let imported = theirs.import_allocation_of(&allocation).unwrap();
        let at = |of: &Allocation, offset, size| of.buffer(offset, size, Default::default());
        let both = |of: &Allocation| {
            let places = [(0, 2 * HALF), (HALF, HALF)];
            places.map(|(offset, size)| at(of, offset, size).unwrap())
        };
        let ([whole, behind], read) = (both(&allocation), both(&imported));
        let queue = ours.queue(QueueKind::Compute, "writes").unwrap();
        let fills = (whole.clone(), behind.clone());
        let work = move |r: &mut Recorder| {
            r.fill_buffer(&fills.0, 1)?;
            r.fill_buffer(&fills.1, 2)
        };
        queue.submit(&[], work, &[]).unwrap();
        queue.idle(TIMEOUT).unwrap();
        let reads = theirs.queue(QueueKind::Compute, "reads").unwrap();
        let seen = [2 * HALF, HALF].map(|size| common::words(theirs, size / 4));
        let pairs: Vec<_> = read.iter().cloned().zip(seen.clone()).rev().collect();
        let work = move |r: &mut Recorder| {
            let mut pairs = pairs.iter();
            pairs.try_for_each(|(from, to)| r.copy_buffer(from, to))
        };
        reads.submit(&[], work, &[]).unwrap();
        reads.idle(TIMEOUT).unwrap();
        let part = |offset| common::all_words(&seen[0].view(offset, HALF).unwrap());
        assert_eq!(
            [part(0), part(HALF), common::all_words(&seen[1])],
            [1, 2, 2]
        );
        // All bytes of the second buffer are acquired with the first. Both are kept.
        let owner = Arc::new(());
        let mode = match behind.is_concurrent() {
            true => vk::SharingMode::CONCURRENT,
            false => vk::SharingMode::EXCLUSIVE,
        };
        // SAFETY: a buffer of this memory, at this offset, which outlives its use here.
        let adopted =
            unsafe { allocation.adopt_buffer(behind.raw(), HALF, HALF, mode, Some(owner.clone())) };
        let (first, second) = (whole, adopted.unwrap());
        let work = move |r: &mut Recorder| {
            r.acquire(&first)?;
            r.acquire(&second)
        };
        queue.submit(&[], work, &[]).unwrap();
        assert_eq!(Arc::strong_count(&owner), 2, "the submission keeps it");
        queue.idle(TIMEOUT).unwrap();
        common::wait_until_alone(&owner);
    });
}

fn what_does_not_fit_an_allocation_is_refused() {
    on_two_of_each_device(|ours, theirs| {
        if !shares_memory(ours) {
            return common::skip("it shares no memory");
        }
        let (allocation, _owner) = adopted(ours);
        let (none, mode) = (vk::BufferUsageFlags::empty(), vk::SharingMode::EXCLUSIVE);
        for (offset, size) in [
            (0, 0),
            (0, SIZE + 1),
            (SIZE, 4),
            (1, 4096),
            (u64::MAX - 4095, 4096),
            (0, u64::MAX),
        ] {
            let error = allocation.buffer(offset, size, none).unwrap_err();
            println!("{size} at {offset}: {error}");
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            // SAFETY: refused, as it has no bytes or too many.
            let adopted =
                unsafe { allocation.adopt_buffer(vk::Buffer::null(), offset, size, mode, None) };
            if offset != 1 {
                assert!(
                    matches!(adopted, Err(Error::Unsupported { .. })),
                    "{adopted:?}"
                );
            }
        }
        let types = AllocationInfo {
            size: SIZE,
            memory_type: 32,
            dedicated: false,
            exportable: false,
        };
        let empty = AllocationInfo {
            size: 0,
            memory_type: 0,
            ..types
        };
        for info in [types, empty] {
            // SAFETY: refused because of its properties.
            let error = unsafe { ours.adopt_allocation(vk::DeviceMemory::null(), &info, None) };
            assert!(matches!(error, Err(Error::Unsupported { .. })), "{error:?}");
        }
        // Memory for one buffer alone holds no other one, and goes with its buffer only.
        let (dedicated, handle) = ours.export_buffer(4096).unwrap();
        let errors = [
            dedicated.allocation().buffer(0, 4, none).map(drop),
            dedicated.allocation().export().map(drop),
            theirs
                .import_allocation_of(dedicated.allocation())
                .map(drop),
        ];
        for error in errors {
            assert!(matches!(error, Err(Error::Unsupported { .. })), "{error:?}");
        }
        let rejected = theirs.import_allocation(handle).unwrap_err();
        assert!(
            matches!(rejected.error, Error::Import { .. }),
            "{}",
            rejected.error
        );
        // A memory type that there is not, and one that is not known.
        for memory_type in [Some(32), Some(u8::MAX), None] {
            let handle = allocation.export().unwrap();
            let (mut info, origin) = (handle.info(), handle.origin().clone());
            assert_eq!((info.size, info.dedicated), (SIZE, false));
            (info.content, info.memory_type) = (MemoryContent::Buffer(64), memory_type);
            let fd = handle.into_fd();
            // SAFETY: refused, because the device has no such type.
            let handle = unsafe { MemoryFd::from_fd(fd, origin, info) };
            let rejected = theirs.import_allocation(handle).unwrap_err();
            assert!(
                matches!(rejected.error, Error::Import { .. }),
                "{}",
                rejected.error
            );
            let rejected = theirs.import_buffer(rejected.handle).unwrap_err();
            assert!(
                matches!(rejected.error, Error::Import { .. }),
                "{}",
                rejected.error
            );
            assert!(
                rejected.handle.into_fd().try_clone().is_ok(),
                "it was closed"
            );
        }
        // Memory that is not for export.
        let own = ours.host_buffer(64, none).unwrap();
        let error = own.allocation().export().unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    });
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![
        buffers_lie_at_their_offsets_on_both_devices,
        two_buffers_with_the_same_bytes_are_used_at_once,
        what_does_not_fit_an_allocation_is_refused,
    ]
}
