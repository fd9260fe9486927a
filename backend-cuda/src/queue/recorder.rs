//! What work records into: a stream, on loan.
#![allow(unsafe_code, reason = "launches work, which the driver cannot check")]

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::{InvariantLifetime, Keep};
use syncline_core::{Error, Object, Result};

use crate::device::context::Bound;
use crate::device::event::Mark;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::driver::table::Code;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::module::Function;
use crate::queue::queue_stream::QueueStream;
use crate::timing::stamp::Stamp;

/// Records the work of one submission into its stream.
///
/// While work runs, the device's context is current on the thread, so that other libraries can launch
/// into [`Recorder::stream`] too.
pub struct Recorder<'a> {
    queue: &'a QueueStream,
    keep: &'a mut Keep,
    left: &'a mut Left,
    of_submission: InvariantLifetime<'a>,
}

/// What the work has put into the stream, as far as that matters to what comes behind it.
#[derive(Default)]
pub(crate) enum Put {
    #[default]
    Nothing,
    /// An event, and nothing behind it.
    Event(Mark),
    Something,
}

/// What work has left behind.
#[derive(Default)]
pub(crate) struct Left {
    /// How many commands it says that it has put into the stream by itself.
    pub(crate) said: u64,
    /// True if it was given the raw stream.
    pub(crate) raw: Cell<bool>,
    /// It has launched a kernel, which waits for all that stands before it.
    launched: bool,
    pub(crate) put: Put,
}

impl Left {
    /// True if what stands last in the stream is a kernel that waits for all before it, as
    /// [`Stamp::launch`] asks. One that the application has put there itself may have been let in
    /// before what stands before that has ended.
    #[inline]
    pub(crate) const fn lets_a_time_begin_early(&self) -> bool {
        self.launched && !self.raw.get()
    }
}

impl<'a> Recorder<'a> {
    #[inline]
    pub(crate) const fn new(
        queue: &'a QueueStream,
        keep: &'a mut Keep,
        left: &'a mut Left,
    ) -> Self {
        Self {
            queue,
            keep,
            left,
            of_submission: PhantomData,
        }
    }

    /// A recorder of the same submission by value, for as long as this one is borrowed.
    #[inline]
    pub fn reborrow(&mut self) -> Recorder<'_> {
        Recorder::new(self.queue, self.keep, self.left)
    }

    /// Writes the time of `stamp` here: as an event, or by a kernel.
    ///
    /// # Errors
    /// The stream is being captured; a driver error.
    #[inline]
    pub(crate) fn write(&mut self, stamp: &Arc<Stamp>) -> Result<()> {
        let queue = self.queue;
        // A capture that the work has left open gets no node of ours.
        queue.stream.refuse_capture("write a time")?;
        if let Some(mark) = stamp.event(queue.device.timed_events())? {
            let _bound = queue.bind_legacy()?;
            queue.stream.record(&mark)?;
            self.left.put = Put::Event(mark);
        } else {
            // Before the call, which may fail with the kernel in the stream.
            self.keep.push(stamp.clone());
            let early = self.left.lets_a_time_begin_early();
            let (stream, _bound) = self.bound_stream()?;
            stamp.launch(stream, early)?;
        }
        self.count(1);
        Ok(())
    }

    /// The stream. The work that is put there runs after the submission's waits and before its signals. If it
    /// is captured into a graph there, that ends before the work returns.
    ///
    /// If more than four commands are put there, [say so](Recorder::commands).
    #[must_use]
    pub fn stream(&self) -> sys::CUstream {
        self.left.raw.set(true);
        self.queue.stream.lend();
        self.queue.stream.raw()
    }

    /// Says that the work puts so many commands into the [stream](Recorder::stream) by itself: launches, copies,
    /// fills, memory operations, each node of a launched graph. What goes through the methods of this type is counted by them.
    ///
    /// CUDA blocks whoever submits while about a thousand commands stand on one of its hardware connections, which
    /// all streams of a process share. So further submissions are held on the host while 480 commands of the
    /// device's queues are in flight. For that, one submission has 500 commands at most; a larger one is
    /// split, or never sent behind work that waits for this thread.
    pub const fn commands(&mut self, commands: u64) {
        self.left.said = self.left.said.saturating_add(commands);
    }

    /// The stream, to put something into it while the guard lives. See [`Line::bind_legacy`].
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn bound_stream(&mut self) -> Result<(&'a Stream, Option<Bound<'a>>)> {
        self.left.put = Put::Something;
        let queue = self.queue;
        Ok((&queue.stream, queue.bind_legacy()?))
    }

    pub(crate) fn queue_object(&self) -> &Object {
        &self.queue.object
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.queue.device
    }

    /// Keeps `object` alive until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.keep.push(object);
    }

    /// Sets every word of `buffer` to `value`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; a driver error.
    pub fn memset_d32(&mut self, buffer: &DeviceBuffer, value: u32) -> Result<()> {
        buffer.require_device(self.device().id(), &self.queue.object)?;
        self.keep.push(buffer.keep());
        let (stream, _bound) = self.bound_stream()?;
        let driver = stream.context().driver();
        // SAFETY: the buffer holds that many words, is of this device, and is kept until the
        // submission has finished. The stream is of this device's context, and the queue keeps it:
        // see `Line::bind_legacy`.
        let done = unsafe {
            driver.memset_d32_async(buffer.pointer(), value, buffer.words(), stream.raw())
        };
        self.done(done)
    }

    /// Copies the whole of `from` to the start of `to`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it does not fit; [`Error::WrongDevice`]; a driver error.
    pub fn copy(&mut self, from: &DeviceBuffer, to: &DeviceBuffer) -> Result<()> {
        for buffer in [from, to] {
            buffer.require_device(self.device().id(), &self.queue.object)?;
        }
        if from.bytes() > to.bytes() {
            return Err(Error::Unsupported {
                object: to.object().clone(),
                asked: format!("take the {} bytes of {}", from.bytes(), from.object()),
                reason: format!("it holds {}", to.bytes()),
            });
        }
        self.keep.push(from.keep());
        self.keep.push(to.keep());
        let (stream, _bound) = self.bound_stream()?;
        let driver = stream.context().driver();
        // SAFETY: both buffers hold that many bytes, as checked above, are of this device, and are
        // kept until the submission has finished. The stream is of this device's context, and the
        // queue keeps it.
        let done = unsafe {
            driver.memcpy_dtod_async(to.pointer(), from.pointer(), from.words() * 4, stream.raw())
        };
        self.done(done)
    }

    /// Launches `function` over `grid` blocks of `block` threads. `params` point to its parameters, in
    /// order, which are read during the call.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; a driver error.
    ///
    /// # Safety
    /// `params` are as many and of such types as the function declares, and what the function does with
    /// them on the device is sound until the submission has finished: buffers it uses are
    /// [kept](Recorder::keep).
    pub unsafe fn launch(
        &mut self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        params: &mut [*mut c_void],
    ) -> Result<()> {
        function.require_device(self.device().id(), &self.queue.object)?;
        self.keep.push(function.keep());
        let (stream, _bound) = self.bound_stream()?;
        let driver = stream.context().driver();
        // SAFETY: the caller promises what the parameters are and that what the function does with
        // them is sound. The function is of this device, and its module is kept until the
        // submission has finished. The driver copies the parameters during the call. The stream is
        // as above.
        let done = unsafe {
            driver.launch_kernel(
                function.raw(),
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                0,
                stream.raw(),
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        self.left.launched |= done.is_ok();
        self.done(done)
    }

    /// One command more, if the driver took it.
    fn done(&mut self, result: Result<(), Code>) -> Result<()> {
        result.map_err(|code| self.queue.stream.error(code))?;
        self.count(1);
        Ok(())
    }

    /// So many commands more are in the stream.
    #[inline]
    pub(crate) fn count(&mut self, commands: u64) {
        self.keep.take_in_flight(commands);
    }
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda Recorder ({})", self.queue.object)
    }
}

#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "stands in for the driver's functions"
)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::c_uint;
    use std::ptr::without_provenance_mut;

    use syncline_core::backend::Queue as _;

    use super::*;
    use crate::device::context::Context;
    use crate::driver::table::{Driver, Optional, Symbols};

    std::thread_local! {
        static CURRENT: Cell<sys::CUcontext> = const { Cell::new(null_mut()) };
        /// What was put into a stream, and which context was current then.
        static CALLS: RefCell<Vec<(&'static str, usize)>> = const { RefCell::new(Vec::new()) };
    }

    fn note(call: &'static str) -> u32 {
        CALLS.with_borrow_mut(|calls| calls.push((call, CURRENT.get().addr())));
        0
    }

    unsafe extern "system" fn get_current(to: *mut sys::CUcontext) -> u32 {
        unsafe { to.write(CURRENT.get()) };
        0
    }

    unsafe extern "system" fn set_current(context: sys::CUcontext) -> u32 {
        CURRENT.set(context);
        0
    }

    unsafe extern "system" fn memset(
        _: sys::CUdeviceptr,
        _: c_uint,
        _: usize,
        _: sys::CUstream,
    ) -> u32 {
        note("memset")
    }

    unsafe extern "system" fn event_record(_: sys::CUevent, _: sys::CUstream) -> u32 {
        note("record")
    }

    /// D6. The legacy default stream is that of the current context, and safe calls make another
    /// context current.
    #[test]
    fn the_legacy_default_stream_stays_the_device_s() {
        // Of no other test: a stream has one turn, whatever device uses it.
        const OWN: usize = 8;
        const OTHER: usize = 16;
        let symbols = Symbols {
            ctx_get_current: get_current,
            ctx_set_current: set_current,
            ctx_push_current: set_current,
            memset_d32_async: memset,
            event_record,
            ..Symbols::idle()
        };
        let driver = Driver::of(symbols, Optional::none());
        let object = Object::new("device", "recorded");
        let info = driver.info(0).unwrap();
        let own = without_provenance_mut(OWN);
        let context = unsafe { Context::adopted(&driver, own, &object, None) };
        let device = Device::new(context, object, info).unwrap();
        let queue = unsafe { device.adopt_raw_stream(null_mut(), None, "legacy") }.unwrap();
        let buffer = device.buffer(4).unwrap();
        CALLS.take();
        CURRENT.set(null_mut());
        let work = move |recorder: &mut Recorder<'_>| {
            CURRENT.set(without_provenance_mut(OTHER));
            recorder.memset_d32(&buffer, 1)?;
            // The recorder leaves what the work has made current.
            assert_eq!(CURRENT.get().addr(), OTHER);
            Ok(())
        };
        queue.submit(&[], work, &[]).unwrap();
        assert_eq!(CALLS.take(), [("memset", OWN), ("record", OWN)]);
        assert!(CURRENT.get().is_null());
    }
}
