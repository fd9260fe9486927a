//! Deferred frees: resources that were dropped in a call that must not block on the device.
//!
//! `cuMemFree`, `cuMemFreeHost` and `cuMemHostUnregister` block until every stream of the context
//! is idle. During that time no other thread can make progress in that context, not even with
//! `cuEventRecord` (driver 580.159, CUDA 13.0). A stream may wait for a signal that the calling
//! thread would make next, or that needs an event record of another thread. Therefore the engine
//! never calls these functions while it drops what finished submissions kept, which happens inside
//! `submit`, `signal` and queries. Each [`Device`](crate::Device) has its own list, even if two
//! devices share a context.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use syncline_core::backend::kit::{Counter, Mutex, must_defer_free};

use crate::device::context::Owner;
use crate::device::raw_stream::RawStream;
use crate::driver::table::{Code, Driver, Raw, require_function};
use crate::driver::virtual_memory::Mapped;

/// How long the end of a device waits for promised values of words.
const LAST_VALUES: Duration = Duration::from_millis(50);

/// A resource whose free may block until all work of its context has finished. Owns the resource.
#[derive(Debug)]
pub(crate) enum Resource {
    Device(sys::CUdeviceptr),
    Pinned(Raw<c_void>),
    /// Imported memory. All that was mapped in it is freed before.
    ExternalMemory(Raw<sys::CUextMemory_st>),
    /// An image in imported memory. Its surfaces and textures are freed before.
    MipmappedArray(Raw<sys::CUmipmappedArray_st>),
    Surface(sys::CUsurfObject),
    Texture(sys::CUtexObject),
    /// Memory that was exported.
    Mapped(Mapped),
    Module(Raw<sys::CUmod_st>),
    /// A registered page of host memory. It is unmapped afterwards with its last reference.
    Registered(Arc<Counter>),
    /// An imported semaphore, and the stream that may have outstanding signals of it.
    Signalled(Raw<sys::CUextSemaphore_st>, Arc<RawStream>),
    /// A stream that still waits for a word of the application, and what keeps the word.
    Observed(Arc<RawStream>, Arc<Owner>),
}

impl Resource {
    /// True if a stream still waits for a word of the application, which others are to write.
    fn waits_for_others(&self, driver: &Driver) -> bool {
        let Self::Observed(stream, _) = self else {
            return false;
        };
        // SAFETY: the stream is alive, and any thread may query it. A lost context runs no work.
        match unsafe { driver.stream_query(stream.raw()) } {
            Ok(()) => false,
            Err(code) => !code.is_lost(),
        }
    }

    /// Frees the resource. Its context is current.
    ///
    /// Returns what may now be dropped, which runs code of the application.
    pub(super) fn free(self, driver: &Driver) -> Option<Arc<Owner>> {
        let owner = match &self {
            Self::Observed(_, owner) => Some(owner.clone()),
            _ => None,
        };
        // An error means that the context or the driver is already gone.
        // SAFETY: a resource is created from a handle that its owner gives up, and this call
        // consumes it. So it is freed once, in its context, which is current, by the function that
        // matches its creation. `cuMemFree`, `cuMemFreeHost` and `cuMemHostUnregister` wait for
        // work themselves. `cuMemUnmap` waits for nothing, and no document says whether the ends of
        // arrays, surfaces and textures wait. No work in flight uses any of these: the recorder
        // keeps the buffer or image for each command before the driver gets the command, also if
        // the submission is refused then. The queue drops what it keeps after the event behind the
        // submission is complete, whether the free is deferred or not. A queue that has failed
        // drops it after the driver reports that the stream is idle, and never if it does not. A
        // lost context runs no work. Copies of the host have ended when they return. Other work of
        // the application keeps what it uses by the contract of `unsafe` launches.
        let _: Result<(), Code> = unsafe {
            match self {
                Self::Device(pointer) => driver.mem_free(pointer),
                Self::Pinned(host) => driver.mem_free_host(host.0),
                Self::ExternalMemory(memory) => driver.destroy_external_memory(memory.0),
                Self::MipmappedArray(array) => require_function(
                    driver.mipmapped_array_destroy(array.0),
                    "cuMipmappedArrayDestroy",
                ),
                Self::Surface(surface) => {
                    require_function(driver.surf_object_destroy(surface), "cuSurfObjectDestroy")
                }
                Self::Texture(texture) => {
                    require_function(driver.tex_object_destroy(texture), "cuTexObjectDestroy")
                }
                Self::Mapped(mapped) => driver.unmap(mapped),
                Self::Module(module) => driver.module_unload(module.0),
                Self::Registered(counter) => driver.mem_host_unregister(counter.address()),
                // If the driver does not confirm that the stream is idle, the semaphore is leaked.
                Self::Signalled(semaphore, stream) => driver
                    .stream_synchronize(stream.raw())
                    .and_then(|()| driver.destroy_external_semaphore(semaphore.0)),
                Self::Observed(..) => Ok(()),
            }
        };
        owner
    }
}

/// The list of deferred frees of one device.
#[derive(Debug, Default)]
pub(crate) struct DeferredFrees {
    list: Mutex<List>,
    /// Held by the freeing thread. Another thread that needs memory waits for it.
    freeing: Mutex<()>,
}

#[derive(Debug, Default)]
struct List {
    resources: Vec<Resource>,
    bytes: u64,
}

impl DeferredFrees {
    /// The number of resources and bytes above which the next allocation frees them.
    const MAX_RESOURCES: usize = 64;
    const MAX_BYTES: u64 = 64 << 20;

    /// Adds a resource to the list.
    pub(crate) fn add(&self, resource: Resource, bytes: u64) {
        let mut list = self.list.lock();
        list.resources.push(resource);
        list.bytes = list.bytes.saturating_add(bytes);
    }

    /// True if the list is not empty.
    pub(crate) fn is_any(&self) -> bool {
        !self.list.lock().resources.is_empty()
    }

    /// The number of resources in the list.
    pub(crate) fn count(&self) -> usize {
        self.list.lock().resources.len()
    }

    /// Frees everything in the list. The context is current. May block until its work has finished.
    ///
    /// Returns false if the list was empty and no other thread was freeing.
    pub(crate) fn free_all(&self, driver: &Driver) -> bool {
        let (any, owners) = match self.freeing.try_lock() {
            Some(_freeing) => self.free(driver),
            None => {
                let _freeing = self.freeing.lock();
                (true, self.free(driver).1)
            }
        };
        // Without the lock, because their drops may free memory, too.
        drop(owners);
        any
    }

    fn free(&self, driver: &Driver) -> (bool, Vec<Arc<Owner>>) {
        let resources = std::mem::take(&mut *self.list.lock()).resources;
        let freed = resources.into_iter();
        // Others decide when a promised value comes, so no free waits for it.
        let (waiting, freed): (Vec<_>, Vec<_>) =
            freed.partition(|resource| resource.waits_for_others(driver));
        self.list.lock().resources.extend(waiting);
        let any = !freed.is_empty();
        let freed = freed.into_iter();
        let owners = freed.filter_map(|resource| resource.free(driver));
        (any, owners.collect())
    }

    /// Drops the owners of words for which no stream waits any more.
    ///
    /// For the end of a device. An owner may keep the context, whose end would free the rest. Gives
    /// the streams [`LAST_VALUES`], unless this call must not block.
    pub(crate) fn free_observed(&self, driver: &Driver) {
        let mut waiting = {
            let mut list = self.list.lock();
            let all = std::mem::take(&mut list.resources).into_iter();
            let (observed, others): (Vec<_>, _) =
                all.partition(|resource| matches!(resource, Resource::Observed(..)));
            list.resources = others;
            observed
        };
        let until = Instant::now() + LAST_VALUES;
        loop {
            let (left, freed): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .partition(|resource| resource.waits_for_others(driver));
            for resource in freed {
                drop(resource.free(driver));
            }
            waiting = left;
            if waiting.is_empty() || must_defer_free() || Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        self.list.lock().resources.extend(waiting);
    }

    /// Keeps the owners of words for which a stream still waits, until the process ends.
    ///
    /// For the end of a context.
    pub(crate) fn leak_observed(&self) {
        let left = std::mem::take(&mut *self.list.lock()).resources;
        for resource in left {
            if matches!(resource, Resource::Observed(..)) {
                std::mem::forget(resource);
            }
        }
    }

    /// Frees exported memory, which belongs to no context. For a context that cannot be current.
    pub(crate) fn free_exported(&self, driver: &Driver) {
        let mut list = self.list.lock();
        let all = std::mem::take(&mut list.resources).into_iter();
        let (exported, others): (Vec<_>, _) =
            all.partition(|resource| matches!(resource, Resource::Mapped(_)));
        list.resources = others;
        drop(list);
        for resource in exported {
            resource.free(driver);
        }
    }

    /// Frees everything if the list is long or large. The context is current.
    ///
    /// Called before an allocation. May block until all work of the context has finished.
    pub(crate) fn free_if_many(&self, driver: &Driver) {
        let is_many = {
            let list = self.list.lock();
            list.resources.len() > Self::MAX_RESOURCES || list.bytes > Self::MAX_BYTES
        };
        if is_many {
            self.free_all(driver);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::open::Device;
    use crate::driver::emulated::{self, finish, freed, put};
    use crate::memory::buffer::Buffer;
    use crate::queue::submission::Queue;
    use syncline_core::backend::{Device as _, Queue as _};
    use syncline_core::{Error, QueueKind};

    fn queue(device: &Device) -> Queue {
        device.queue(QueueKind::Compute, "q").unwrap()
    }

    /// Submits the last clone of a buffer and lets that submission finish.
    fn submit_last_clone(queue: &Queue, buffer: Buffer) {
        let keep = move |recorder: &mut crate::Recorder<'_>| {
            recorder.keep(buffer.keep());
            Ok(())
        };
        let end = queue.submit(&[], keep, &[]).unwrap().end();
        finish(queue, put(queue));
        assert!(end.is_reached().unwrap());
    }

    #[test]
    fn the_next_submission_does_not_free_the_last_clone() {
        let device = emulated::device();
        let (queue, gate) = (queue(&device), device.timeline("gate").unwrap());
        let (first, second) = (device.buffer(4).unwrap(), device.buffer(4).unwrap());
        let expected = [first.pointer(), second.pointer()];
        submit_last_clone(&queue, first);
        // Both a submission that goes to the driver at once and a held one drop the buffer.
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert!(device.context().deferred_frees().is_any() && freed().is_empty());
        submit_last_clone(&queue, second);
        queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert_eq!(freed(), []);
        let third = device.buffer(4).unwrap();
        let last = third.pointer();
        assert_eq!(freed(), []);
        drop(third);
        assert_eq!(freed(), [expected[0], expected[1], last]);
        assert!(!device.context().deferred_frees().is_any());
        gate.signal(1).unwrap();
    }

    /// A finished submission drops the buffer in a call that frees nothing.
    #[test]
    fn imported_memory_is_freed_after_its_deferred_buffer() {
        let device = emulated::device();
        let queue = queue(&device);
        let import = || {
            let allocation = emulated::import_allocation(&device, 64, false, None);
            let buffer = allocation.buffer(0, 16).unwrap();
            let order = [buffer.pointer(), allocation.raw().addr() as u64];
            (allocation, buffer, order)
        };
        let (allocation, buffer, order) = import();
        submit_last_clone(&queue, buffer);
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert_eq!(freed(), []);
        drop(allocation);
        assert_eq!(freed(), order);
        // Both are dropped there.
        let (allocation, buffer, order) = import();
        drop(allocation);
        submit_last_clone(&queue, buffer);
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        device.free_what_is_due().unwrap();
        assert_eq!(freed(), order);
    }

    /// X8. `cuMemUnmap` waits for nothing, so the queue keeps the buffer for each command.
    #[test]
    fn exported_memory_is_unmapped_after_the_last_submission_that_uses_it() {
        let device = emulated::device();
        let queue = queue(&device);
        let (buffer, _handle) = device.export_buffer(4).unwrap();
        let (view, address) = (buffer.view(0, 4).unwrap(), buffer.pointer());
        let fills = |then: syncline_core::Result<()>| {
            let to = view.clone();
            move |recorder: &mut crate::Recorder<'_>| {
                recorder.memset_d32(&to, 1)?;
                then
            }
        };
        let end = queue.submit(&[], fills(Ok(())), &[]).unwrap().end();
        // The driver has this fill, too, although the submission is refused.
        let refused = Error::unsupported(device.object(), "go on", "a test");
        queue.submit(&[], fills(Err(refused)), &[]).unwrap_err();
        drop((buffer, view));
        device.free_what_is_due().unwrap();
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        finish(&queue, 1);
        assert!(end.is_reached().unwrap());
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        device.free_what_is_due().unwrap();
        assert_eq!(freed(), []);
        finish(&queue, put(&queue));
        queue.idle(std::time::Duration::ZERO).unwrap();
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert_eq!(freed(), []);
        device.free_what_is_due().unwrap();
        assert_eq!(freed(), [address]);
    }

    #[test]
    fn an_allocation_frees_many_resources() {
        let device = emulated::device();
        let queue = queue(&device);
        for _ in 0..=DeferredFrees::MAX_RESOURCES {
            submit_last_clone(&queue, device.buffer(4).unwrap());
            queue.submit(&[], |_| Ok(()), &[]).unwrap();
            assert_eq!(freed(), []);
        }
        let one = device.buffer(4).unwrap();
        assert_eq!(freed().len(), DeferredFrees::MAX_RESOURCES + 1);
        drop(one);
        assert_eq!(freed().len(), 1);
    }

    #[test]
    fn an_allocation_frees_much_memory() {
        let device = emulated::device();
        let queue = queue(&device);
        submit_last_clone(&queue, device.buffer(DeferredFrees::MAX_BYTES).unwrap());
        submit_last_clone(&queue, device.buffer(4).unwrap());
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert_eq!(freed(), []);
        drop(device.buffer(4).unwrap());
        assert_eq!(freed().len(), 3);
    }

    #[test]
    fn deferred_frees_run_when_memory_is_short_or_on_request() {
        let device = emulated::device();
        let queue = queue(&device);
        submit_last_clone(&queue, device.buffer(4).unwrap());
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        emulated::refuse_memory(1);
        let one = device.buffer(4).unwrap();
        assert_eq!(freed().len(), 1);
        emulated::refuse_memory(1);
        assert!(matches!(
            device.buffer(4),
            Err(syncline_core::Error::Native { code: 2, .. })
        ));
        submit_last_clone(&queue, one);
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert_eq!(freed(), []);
        device.free_what_is_due().unwrap();
        assert_eq!(freed().len(), 1);
    }

    /// Released work that allocates runs in the call that releases it.
    ///
    /// A queue ends in the call that drops it.
    #[test]
    fn released_work_and_dropped_queues_free_nothing() {
        let device = emulated::device();
        let held = queue(&device);
        let (gate, making) = (device.timeline("gate").unwrap(), device.clone());
        let work = move |_: &mut crate::Recorder<'_>| making.buffer(4).map(drop);
        held.submit(&[gate.at(1)], work, &[]).unwrap();
        {
            let queue = queue(&device);
            for _ in 0..DeferredFrees::MAX_RESOURCES {
                submit_last_clone(&queue, device.buffer(4).unwrap());
                queue.submit(&[], |_| Ok(()), &[]).unwrap();
            }
            submit_last_clone(&queue, device.buffer(4).unwrap());
            finish(&queue, put(&queue));
        }
        assert_eq!(freed(), []);
        gate.signal(1).unwrap();
        assert_eq!(freed(), []);
        finish(&held, put(&held));
        drop(device.buffer(4).unwrap());
        assert_eq!(freed().len(), DeferredFrees::MAX_RESOURCES + 3);
    }

    #[test]
    fn the_context_frees_the_rest() {
        let device = emulated::device();
        {
            let queue = queue(&device);
            submit_last_clone(&queue, device.buffer(4).unwrap());
            queue.submit(&[], |_| Ok(()), &[]).unwrap();
            finish(&queue, put(&queue));
        }
        assert_eq!(freed(), []);
        drop(device);
        assert_eq!(freed().len(), 1);
    }
}
