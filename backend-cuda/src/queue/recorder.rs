//! The recorder, which lends a submission's work the queue's stream.
#![allow(unsafe_code, reason = "launches work, which the driver cannot check")]

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::{InvariantLifetime, Keep};
use syncline_core::{Error, Result, error::Object};

use crate::device::context::Bound;
use crate::device::event::Mark;
use crate::device::open::Device;
use crate::device::stream::{Capture, Stream};
use crate::driver::table::{Code, require_function};
use crate::memory::buffer::Buffer;
use crate::memory::host_copy::HostCopy;
use crate::memory::image::Image;
use crate::memory::module::Function;
use crate::queue::queue_stream::QueueStream;
use crate::timing::stamp::Stamp;

/// Records the work of one submission into the queue's stream.
///
/// While the work runs, the device's context is current on the thread. So other libraries can
/// launch into [`Recorder::stream`] too.
pub struct Recorder<'a> {
    queue: &'a QueueStream,
    keep: &'a mut Keep,
    left: &'a mut Left,
    of_submission: InvariantLifetime<'a>,
}

/// The commands that count for work that got the raw stream and declared nothing.
const UNDECLARED: u64 = 4;

/// What was added to the stream.
#[derive(Default)]
enum Put {
    #[default]
    Nothing,
    /// An event, and nothing after it.
    Event(Mark),
    Something,
}

/// What is known about the stream after the work.
#[derive(Default)]
pub(crate) struct Left {
    /// The number of commands that the work has declared.
    declared: u64,
    /// True if the work got the raw stream.
    raw: Cell<bool>,
    /// True if the recorder has launched a kernel, which waits for all earlier work.
    launched: bool,
    put: Put,
}

impl Left {
    /// True if the work got the raw stream.
    #[inline]
    pub(crate) const fn has_raw_stream(&self) -> bool {
        self.raw.get()
    }

    /// The number of commands to count that the work has added itself. `None` if it has added none.
    ///
    /// The recorder counts its own commands.
    #[inline]
    pub(crate) fn raw_commands(&self) -> Option<u64> {
        match self.declared {
            0 => self.raw.get().then_some(UNDECLARED),
            declared => Some(declared),
        }
    }

    /// Notes that something was added to the stream, or may have been.
    #[inline]
    pub(crate) fn note_something(&mut self) {
        self.put = Put::Something;
    }

    /// True if nothing was added to the stream.
    #[inline]
    pub(crate) const fn is_nothing(&self) -> bool {
        matches!(self.put, Put::Nothing)
    }

    /// The event that was added last, if nothing comes after it.
    #[inline]
    pub(crate) fn into_event(self) -> Option<Mark> {
        match self.put {
            Put::Event(mark) => Some(mark),
            _ => None,
        }
    }

    /// True if the last command of the stream is a kernel that waits for all earlier work.
    ///
    /// [`Stamp::launch`] requires this for an early start. A kernel that the application launched
    /// itself may start before earlier work has ended.
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

    /// A recorder of the same submission by value, valid as long as this one is borrowed.
    #[inline]
    pub fn reborrow(&mut self) -> Recorder<'_> {
        Recorder::new(self.queue, self.keep, self.left)
    }

    /// Writes the time of `stamp` at this position, as an event or with a kernel.
    ///
    /// # Errors
    /// The stream is being captured, or a driver error.
    #[inline]
    pub(crate) fn write(&mut self, stamp: &Arc<Stamp>) -> Result<()> {
        let queue = self.queue;
        // If the work has left a capture open, nothing must be added to its graph.
        queue.stream().refuse_capture("write a time")?;
        if let Some(mark) = stamp.event(queue.device().inner().timed_events())? {
            let _bound = queue.bind_legacy()?;
            queue.stream().record(&mark)?;
            self.left.put = Put::Event(mark);
        } else {
            // Before the call, which may fail with the kernel already in the stream.
            self.keep.push(stamp.clone());
            let early = self.left.lets_a_time_begin_early();
            let (stream, _bound) = self.bound_stream()?;
            stamp.launch(stream, early)?;
        }
        self.count(1);
        Ok(())
    }

    /// The raw stream.
    ///
    /// Work that is added to it runs after the submission's waits and before its signals. If the
    /// work captures the stream into a graph, it ends the capture before it returns. If it adds
    /// more than four commands, it declares their number with [`Recorder::commands`]. For a copy
    /// between two host buffers use [`Recorder::copy`], because the driver's own blocks the thread.
    #[must_use]
    pub fn stream(&self) -> sys::CUstream {
        self.left.raw.set(true);
        self.queue.stream().lend();
        self.queue.stream().raw()
    }

    /// Declares how many commands the work adds to the [raw stream](Recorder::stream).
    ///
    /// Launches, copies, fills, memory operations and each node of a launched graph are commands.
    /// The methods of this type count their own commands.
    ///
    /// CUDA blocks a submitting thread while about a thousand commands are in one of its hardware
    /// connections, which all streams of a process share. Therefore the engine holds further
    /// submissions on the host while 416 commands of the device's queues are in flight. One
    /// submission has at most 500 commands. Split a larger one, or never submit it behind work that
    /// waits for the submitting thread.
    pub const fn commands(&mut self, commands: u64) {
        self.left.declared = self.left.declared.saturating_add(commands);
    }

    /// The stream, and a guard that must live while a command is added to it.
    ///
    /// See [`QueueStream::bind_legacy`].
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn bound_stream(&mut self) -> Result<(&'a Stream, Option<Bound<'a>>)> {
        self.left.note_something();
        let queue = self.queue;
        Ok((queue.stream(), queue.bind_legacy()?))
    }

    pub(crate) fn queue_object(&self) -> &Object {
        self.queue.object()
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.queue.device()
    }

    /// Keeps `object` alive until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.keep.push(object);
    }

    /// Sets every word of `buffer` to `value`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or a driver error.
    pub fn memset_d32(&mut self, buffer: &Buffer, value: u32) -> Result<()> {
        buffer.require_device(self.device().id(), self.queue.object())?;
        self.keep.push(buffer.keep());
        let (stream, _bound) = self.bound_stream()?;
        let driver = stream.context().driver();
        // SAFETY: the buffer has this many words, belongs to this device, and is kept until the
        // submission has finished. The stream belongs to this device's context, and the queue keeps
        // it (see `QueueStream::bind_legacy`).
        let done = unsafe {
            driver.memset_d32_async(buffer.pointer(), value, buffer.words(), stream.raw())
        };
        self.done(done)
    }

    /// Copies the whole of `from` to the start of `to`.
    ///
    /// Between two buffers of host memory, a host function makes the copy (`cuLaunchHostFunc`). On
    /// an H200, every copy function of the driver blocks the thread until such a copy has ended. A
    /// host function begins 8 µs after its turn there. The host functions of a context run one
    /// after another, so none may wait for such a copy. If the work is captured into a graph, both
    /// buffers live as long as the graph may run.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `to` is too small, or if both are ranges of one memory and the
    /// copy would overlap. [`Error::WrongDevice`], or a driver error.
    pub fn copy(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        for buffer in [from, to] {
            buffer.require_device(self.device().id(), self.queue.object())?;
        }
        if from.size() > to.size() {
            return Err(Error::unsupported(
                to.object(),
                format!("take the {} bytes of {}", from.size(), from.object()),
                format!("it holds {}", to.size()),
            ));
        }
        if from.overlaps(to, from.size()) {
            let reason = "the regions would overlap";
            return Err(Error::unsupported(
                from.object(),
                "be copied onto itself",
                reason,
            ));
        }
        // SAFETY: the sizes are checked above. The submission keeps both buffers. The contract of
        // `launch_graph` says that both live when a graph makes the copy.
        if let Some(copy) = unsafe { HostCopy::new(from, to) } {
            return self.copy_on_host(copy, from, to);
        }
        self.keep.push(from.keep());
        self.keep.push(to.keep());
        let (stream, _bound) = self.bound_stream()?;
        let driver = stream.context().driver();
        // SAFETY: both buffers have this many bytes, as checked above, belong to this device, and
        // are kept until the submission has finished. Two imports may have the same memory, which
        // the driver API does not forbid (cudaMemcpy does). The stream belongs to this device's
        // context, and the queue keeps it.
        let done = unsafe {
            driver.memcpy_dtod_async(to.pointer(), from.pointer(), from.words() * 4, stream.raw())
        };
        self.done(done)
    }

    fn copy_on_host(&mut self, copy: HostCopy, from: &Buffer, to: &Buffer) -> Result<()> {
        let data = copy.data();
        let (stream, _bound) = self.bound_stream()?;
        let buffers = (from.clone(), to.clone());
        if let Capture::Active { graph, .. } = stream.capture()? {
            self.keep.push(Arc::new(buffers));
            let context = stream.context();
            // SAFETY: the driver has just returned the graph of the capture. The submission has the
            // stream's lock. `release` has the required type, and calls no driver.
            unsafe { context.keep_in_graph(graph, Box::new(copy), HostCopy::release) }?;
        } else {
            // The copy is dropped before the buffers.
            self.keep.push(Arc::new((copy, buffers)));
        }
        let driver = stream.context().driver();
        // SAFETY: the function may be called at any time with this number. The stream is as above.
        let done = unsafe { driver.launch_host_func(stream.raw(), HostCopy::run, data) };
        self.done(done)
    }

    /// Copies `from` to a level of `to` with all its layers, without gaps between rows.
    ///
    /// The buffer has at least the size of the level
    /// ([`level_size`](syncline_core::image::ImageInfo::level_size)). Compressed formats are copied
    /// in blocks of 4 by 4 texels.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `from` is too small, or if the image does not have the level. Also
    /// if both are in one [`Allocation`](crate::Allocation) and have bytes in common, as far as the
    /// levels of the image have [bytes](syncline_core::image::ImageInfo::size): CUDA does not tell
    /// what the image takes beyond them. [`Error::WrongDevice`], or a driver error.
    pub fn copy_buffer_to_image(&mut self, from: &Buffer, to: &Image, level: u32) -> Result<()> {
        self.copy_level(to, level, from, false)
    }

    /// Copies a level of `from` with all its layers to `to`, without gaps between rows.
    ///
    /// Otherwise the same as [`Recorder::copy_buffer_to_image`].
    ///
    /// # Errors
    /// Same errors as [`Recorder::copy_buffer_to_image`].
    pub fn copy_image_to_buffer(&mut self, from: &Image, level: u32, to: &Buffer) -> Result<()> {
        self.copy_level(from, level, to, true)
    }

    fn copy_level(
        &mut self,
        image: &Image,
        level: u32,
        buffer: &Buffer,
        is_source: bool,
    ) -> Result<()> {
        let (device, queue) = (self.device().id(), self.queue.object());
        image.require_device(device, queue)?;
        buffer.require_device(device, queue)?;
        let copy = image.copy(level, buffer, is_source)?;
        self.keep.push(image.keep());
        self.keep.push(buffer.keep());
        let (stream, _bound) = self.bound_stream()?;
        let driver = stream.context().driver();
        // SAFETY: the array has this level, and the buffer its size, as checked above. Both belong
        // to this device, and are kept until the submission has finished. The driver copies the
        // description during the call. The stream is as above.
        let done = unsafe { driver.memcpy_3d_async(&raw const copy, stream.raw()) };
        self.done(require_function(done, "cuMemcpy3DAsync_v2"))
    }

    /// Launches `function` over `grid` blocks of `block` threads.
    ///
    /// `params` points to the parameters in order. They are read during the call.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or a driver error.
    ///
    /// # Safety
    /// `params` has the number and types of parameters that the function declares. What the
    /// function does on the device is sound until the submission has finished: buffers that it uses
    /// are [kept](Recorder::keep).
    pub unsafe fn launch(
        &mut self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        params: &mut [*mut c_void],
    ) -> Result<()> {
        function.require_device(self.device().id(), self.queue.object())?;
        self.keep.push(function.keep());
        let (stream, _bound) = self.bound_stream()?;
        let driver = stream.context().driver();
        // SAFETY: the caller guarantees the parameters and that the function's effects are sound.
        // The function belongs to this device, and its module is kept until the submission has
        // finished. The driver copies the parameters during the call. The stream is as above.
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

    /// Counts one command if the driver took it.
    fn done(&mut self, result: Result<(), Code>) -> Result<()> {
        result.map_err(|code| self.queue.stream().error(code))?;
        self.count(1);
        Ok(())
    }

    /// Counts commands that were added to the stream.
    #[inline]
    pub(crate) fn count(&mut self, commands: u64) {
        self.keep.take_in_flight(commands);
    }
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda Recorder ({})", self.queue.object())
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
    use crate::device::context::{Context, Owner};
    use crate::driver::table::{Driver, Optional, Symbols};

    std::thread_local! {
        static CURRENT: Cell<sys::CUcontext> = const { Cell::new(null_mut()) };
        /// The calls on a stream, each with the context that was current.
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

    /// D6. Safe calls can make another context, with another legacy default stream, current.
    #[test]
    fn the_legacy_default_stream_stays_that_of_the_device() {
        // No other test uses this context, because all users of a stream share its lock.
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
        let context = unsafe { Context::adopted(&driver, own, &object, Owner::default()) };
        let device = Device::new(context, object, info).unwrap();
        let queue = unsafe { device.adopt_raw_stream(null_mut(), None, "legacy") }.unwrap();
        let buffer = device.buffer(4).unwrap();
        CALLS.take();
        CURRENT.set(null_mut());
        let work = move |recorder: &mut Recorder<'_>| {
            CURRENT.set(without_provenance_mut(OTHER));
            recorder.memset_d32(&buffer, 1)?;
            // The recorder does not change the context that the work has made current.
            assert_eq!(CURRENT.get().addr(), OTHER);
            Ok(())
        };
        queue.submit(&[], work, &[]).unwrap();
        assert_eq!(CALLS.take(), [("memset", OWN), ("record", OWN)]);
        assert!(CURRENT.get().is_null());
    }
}
