//! The work of the suite, in OpenCL C.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::{QueueKind, Result};
use syncline_conformance::Subject;
use syncline_opencl::{Arg, Buffer, Device, HostEvent, Kernel, Recorder};

/// A device with the kernel that keeps it busy.
#[derive(Clone)]
pub(crate) struct OpenCl {
    device: Device,
    spin: Arc<Kernel>,
    /// Rounds of the kernel in a millisecond.
    speed: u32,
    /// What the kernel would write to.
    out: Buffer,
}

const SPIN: &str = "kernel void spin(global uint *out, uint thousands) {
    uint x = thousands;
    for (uint i = 0; i < thousands; i++)
        for (uint j = 0; j < 1000; j++) x = (x ^ (x >> 7)) * 1664525u + 1013904223u;
    if (x == 1u) *out = x;
}";

impl OpenCl {
    pub(crate) fn new(device: Device) -> Result<Self> {
        // SAFETY: it writes one word of its buffer.
        #[allow(unsafe_code, reason = "vouches for a kernel")]
        let spin = unsafe { device.kernel(SPIN, c"spin")? };
        let out = device.buffer(1)?;
        let mut it = Self {
            device,
            spin,
            speed: 1,
            out,
        };
        // The fastest of the runs of a while: others may use the processor meanwhile, and a GPU
        // takes a while to raise its clock.
        let begun = Instant::now();
        let mut fastest = it.measure(10_000)?;
        while begun.elapsed() < Duration::from_millis(300) {
            fastest = fastest.min(it.measure(10_000)?);
        }
        it.speed = (10_000.0 / (fastest.as_secs_f64() * 1e3)).ceil() as u32;
        Ok(it)
    }

    fn measure(&self, thousands: u32) -> Result<Duration> {
        let queue = self.device.queue(QueueKind::Compute, "speed")?;
        let (spin, out) = (self.spin.clone(), self.out.clone());
        let begun = Instant::now();
        let work = move |recorder: &mut Recorder<'_>| {
            recorder.launch(&spin, 1, &[Arg::Buffer(&out), Arg::Word(thousands)])
        };
        queue.submit(&[], work, &[])?;
        queue.idle(Duration::from_secs(30))?;
        Ok(begun.elapsed())
    }
}

impl Subject for OpenCl {
    type Device = Device;
    type Buffer = Buffer;
    type Latch = HostEvent;

    fn device(&self) -> &Device {
        &self.device
    }

    fn buffer(&self, words: usize) -> Result<Buffer> {
        self.device.buffer(words)
    }

    fn read(buffer: &Buffer) -> Vec<u32> {
        buffer.read().unwrap_or_default()
    }

    fn fill(recorder: &mut Recorder<'_>, buffer: &Buffer, value: u32) -> Result<()> {
        recorder.fill(buffer, value)
    }

    fn copy(recorder: &mut Recorder<'_>, from: &Buffer, to: &Buffer) -> Result<()> {
        recorder.copy(from, to)
    }

    fn busy(&self, recorder: &mut Recorder<'_>, time: Duration) -> Result<()> {
        let thousands = (time.as_secs_f64() * 1e3 * f64::from(self.speed)).ceil() as u32;
        recorder.launch(
            &self.spin,
            1,
            &[Arg::Buffer(&self.out), Arg::Word(thousands)],
        )
    }

    fn keep(recorder: &mut Recorder<'_>, object: Arc<dyn Any + Send + Sync>) {
        recorder.keep(object);
    }

    fn latch(&self) -> Result<HostEvent> {
        self.device.host_event()
    }

    fn block(recorder: &mut Recorder<'_>, latch: &HostEvent) -> Result<()> {
        recorder.wait(latch)
    }

    fn open(latch: &HostEvent) -> Result<()> {
        latch.complete()
    }
}
