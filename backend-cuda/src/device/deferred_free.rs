//! What is freed later: resources that the engine let go last, in a call that must not wait for a device.
//!
//! `cuMemFree`, `cuMemFreeHost` and `cuMemHostUnregister` wait until every stream of the context is through, and for as long no other thread gets
//! anything done in that context, not even `cuEventRecord` (driver 580.159, CUDA 13.0). A stream may stand at a gate that
//! is opened next by whoever makes the call, or by a thread that first records an event. So none of them is called where the
//! engine lets go of what finished submissions kept: that is inside a `submit`, a `signal`, or any query. What another `Device` of the same
//! context has put by is its own.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use cudarc::driver::sys;
use syncline_core::backend::{Counter, Mutex, is_letting_go};

use crate::device::context::Context;
use crate::device::raw_stream::RawStream;
use crate::driver::table::{Code, Driver, Raw};

/// A resource whose end may wait for all work of its context. It owns what it names.
#[derive(Debug)]
pub(crate) enum Resource {
    Device(sys::CUdeviceptr),
    Pinned(Raw<c_void>),
    /// Imported, and where it is mapped.
    External(sys::CUdeviceptr, Raw<sys::CUextMemory_st>),
    Module(Raw<sys::CUmod_st>),
    /// A page of the host's, which is unmapped after that, if nobody else has it.
    Registered(Arc<Counter>),
    /// An imported semaphore, and the stream in which signals of it may be outstanding.
    Signalled(Raw<sys::CUextSemaphore_st>, Arc<RawStream>),
}

impl Resource {
    /// Frees it, which is so large, now or when somebody asks for that.
    pub(crate) fn free_or_defer(self, bytes: u64, context: &Context) {
        if is_letting_go() {
            context.deferred_frees().add(self, bytes);
            return;
        }
        let Ok(_bound) = context.bind_outside_capture() else {
            return;
        };
        let driver = context.driver();
        self.free(driver);
        context.deferred_frees().free_all(driver);
    }

    /// Frees it. Its context is current.
    fn free(self, driver: &Driver) {
        // Errors mean that the context or the driver has gone first.
        // SAFETY: a resource is made of what its owner gives away for good, and this consumes it:
        // it is freed once, by the function that belongs to the one that made it, in its context,
        // which is current. Submissions keep the owner until they have finished. `cuMemFree`,
        // `cuMemFreeHost` and `cuMemHostUnregister` wait for other work by themselves.
        let _: Result<(), Code> = unsafe {
            match self {
                Self::Device(pointer) => driver.mem_free(pointer),
                Self::Pinned(host) => driver.mem_free_host(host.0),
                Self::External(pointer, memory) => driver
                    .mem_free(pointer)
                    .and(driver.destroy_external_memory(memory.0)),
                Self::Module(module) => driver.module_unload(module.0),
                Self::Registered(counter) => driver.mem_host_unregister(counter.address()),
                // If the stream does not say that it is through, the semaphore stays: a leak, at
                // worst.
                Self::Signalled(semaphore, stream) => driver
                    .stream_synchronize(stream.raw())
                    .and_then(|()| driver.destroy_external_semaphore(semaphore.0)),
            }
        };
    }
}

/// Those of one context.
#[derive(Debug, Default)]
pub(crate) struct DeferredFrees {
    list: Mutex<List>,
    /// Whether there are any, to be read without the lock.
    any: AtomicBool,
    /// Taken by who frees: another one then has to wait for what he frees.
    freeing: std::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct List {
    resources: Vec<Resource>,
    bytes: u64,
}

impl DeferredFrees {
    /// So many, and so many bytes, stay without anybody being made to wait for their end.
    const MAX_RESOURCES: usize = 64;
    const MAX_BYTES: u64 = 64 << 20;

    /// Keeps a resource until it may be waited for.
    pub(crate) fn add(&self, resource: Resource, bytes: u64) {
        let mut list = self.list.lock();
        list.resources.push(resource);
        list.bytes = list.bytes.saturating_add(bytes);
        self.any.store(true, Ordering::Relaxed);
    }

    /// True if there are some.
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Frees all of them. The context is current; may wait for all of its work. False if there were none, nor anybody who freed some.
    pub(crate) fn free_all(&self, driver: &Driver) -> bool {
        if let Ok(_freeing) = self.freeing.try_lock() {
            return self.free(driver);
        }
        let _freeing = self.freeing.lock().unwrap_or_else(PoisonError::into_inner);
        self.free(driver);
        true
    }

    fn free(&self, driver: &Driver) -> bool {
        if !self.is_any() {
            return false;
        }
        let all = {
            let mut list = self.list.lock();
            self.any.store(false, Ordering::Relaxed);
            std::mem::take(&mut *list)
        };
        for resource in all.resources {
            resource.free(driver);
        }
        true
    }

    /// For who is about to make more. The context is current; may wait for all of its work, if many are there.
    pub(crate) fn free_if_many(&self, driver: &Driver) {
        let is_many = self.is_any() && {
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
    use crate::memory::buffer::DeviceBuffer;
    use crate::queue::submission::Queue;
    use syncline_core::QueueKind;
    use syncline_core::backend::{Device as _, Queue as _};

    fn queue(device: &Device) -> Queue {
        device.queue(QueueKind::Compute, "q").unwrap()
    }

    /// A submission that has finished, and has the last clone of a buffer.
    fn left_with(queue: &Queue, buffer: DeviceBuffer) {
        let keep = move |recorder: &mut crate::Recorder<'_>| {
            recorder.keep(buffer.keep());
            Ok(())
        };
        let end = queue.submit(&[], keep, &[]).unwrap().end();
        finish(queue, put(queue));
        assert!(end.is_reached().unwrap());
    }

    #[test]
    fn what_a_submission_had_last_is_not_freed_in_the_next() {
        let device = emulated::device();
        let (queue, gate) = (queue(&device), device.timeline("gate").unwrap());
        let (first, second) = (device.buffer(4).unwrap(), device.buffer(4).unwrap());
        let expected = [first.pointer(), second.pointer()];
        left_with(&queue, first);
        // One that goes at once lets go of it, and so does one that is held.
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert!(device.context().deferred_frees().is_any() && freed().is_empty());
        left_with(&queue, second);
        queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert_eq!(freed(), []);
        let third = device.buffer(4).unwrap();
        let last = third.pointer();
        assert_eq!(freed(), []);
        drop(third);
        assert_eq!(freed(), [last, expected[0], expected[1]]);
        assert!(!device.context().deferred_frees().is_any());
        gate.signal(1).unwrap();
    }

    #[test]
    fn many_are_freed_when_one_more_is_made() {
        let device = emulated::device();
        let queue = queue(&device);
        for _ in 0..=DeferredFrees::MAX_RESOURCES {
            left_with(&queue, device.buffer(4).unwrap());
            queue.submit(&[], |_| Ok(()), &[]).unwrap();
            assert_eq!(freed(), []);
        }
        let one = device.buffer(4).unwrap();
        assert_eq!(freed().len(), DeferredFrees::MAX_RESOURCES + 1);
        drop(one);
        assert_eq!(freed().len(), 1);
    }

    #[test]
    fn much_memory_is_freed_when_more_is_made() {
        let device = emulated::device();
        let queue = queue(&device);
        left_with(&queue, device.buffer(DeferredFrees::MAX_BYTES).unwrap());
        left_with(&queue, device.buffer(4).unwrap());
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert_eq!(freed(), []);
        drop(device.buffer(4).unwrap());
        assert_eq!(freed().len(), 3);
    }

    #[test]
    fn what_is_due_is_freed_if_there_is_no_more_or_who_may_wait_asks() {
        let device = emulated::device();
        let queue = queue(&device);
        left_with(&queue, device.buffer(4).unwrap());
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        emulated::refuse_memory(1);
        let one = device.buffer(4).unwrap();
        assert_eq!(freed().len(), 1);
        emulated::refuse_memory(1);
        assert!(matches!(
            device.buffer(4),
            Err(syncline_core::Error::Native { code: 2, .. })
        ));
        left_with(&queue, one);
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        assert_eq!(freed(), []);
        device.free_what_is_due().unwrap();
        assert_eq!(freed().len(), 1);
    }

    /// Work that makes memory itself runs in whichever call releases it, and a queue goes where somebody drops it.
    #[test]
    fn neither_released_work_nor_the_end_of_a_queue_frees_anything() {
        let device = emulated::device();
        let held = queue(&device);
        let (gate, making) = (device.timeline("gate").unwrap(), device.clone());
        let work = move |_: &mut crate::Recorder<'_>| making.buffer(4).map(drop);
        held.submit(&[gate.at(1)], work, &[]).unwrap();
        {
            let queue = queue(&device);
            for _ in 0..DeferredFrees::MAX_RESOURCES {
                left_with(&queue, device.buffer(4).unwrap());
                queue.submit(&[], |_| Ok(()), &[]).unwrap();
            }
            left_with(&queue, device.buffer(4).unwrap());
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
    fn what_is_left_goes_with_the_context() {
        let device = emulated::device();
        {
            let queue = queue(&device);
            left_with(&queue, device.buffer(4).unwrap());
            queue.submit(&[], |_| Ok(()), &[]).unwrap();
            finish(&queue, put(&queue));
        }
        assert_eq!(freed(), []);
        drop(device);
        assert_eq!(freed().len(), 1);
    }
}
