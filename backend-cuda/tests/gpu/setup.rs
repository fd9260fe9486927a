//! A GPU with kernels that delay a stream or stall it until the host releases it.
#![allow(unsafe_code, reason = "launches kernels")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_core::backend::kit::MutexGuard;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{QueueKind, Result};
use syncline_cuda::{Buffer, Device, Function, Queue, Recorder};

use crate::common::{LIMIT, alone, open};

pub(crate) const KERNELS: &str = include_str!("../kernels.ptx");

pub(crate) const WORDS: u64 = 1 << 16;

/// Opens the first usable device and loads all kernels.
pub(crate) fn gpu() -> Gpu {
    let alone = alone();
    let device = open().expect("a device");
    Gpu::new(device, alone).expect("setting the device up")
}

pub(crate) struct Gpu {
    pub(crate) device: Device,
    pub(crate) delay: Function,
    pub(crate) gate: Function,
    pub(crate) _alone: MutexGuard<'static, ()>,
}

impl Gpu {
    pub(crate) fn new(device: Device, alone: MutexGuard<'static, ()>) -> Result<Self> {
        let module = device.module(KERNELS)?;
        let gpu = Self {
            delay: module.function("delay")?,
            gate: module.function("gate")?,
            device,
            _alone: alone,
        };
        // The driver loads some code on first use, and may wait for other streams then.
        let queue = gpu.queue("warm-up");
        let (from, to) = (gpu.device.host_buffer(4)?, gpu.device.buffer(4)?);
        let (delay, gate) = (gpu.delay.clone(), gpu.gate.clone());
        queue.submit(
            &[],
            move |r| {
                r.memset_d32(&from, 1)?;
                r.copy(&from, &to)?;
                launch(r, &delay, 1)?;
                launch(r, &gate, from.pointer())
            },
            &[],
        )?;
        queue.idle(LIMIT)?;
        Ok(gpu)
    }

    pub(crate) fn queue(&self, label: &str) -> Queue {
        self.device
            .queue(QueueKind::Compute, label)
            .expect("a queue")
    }

    /// Stalls the queue's stream until the returned stall is released or dropped.
    pub(crate) fn stalled(&self, queue: &Queue) -> Stall {
        let word = self.device.host_buffer(4).expect("a pinned word");
        let (gate, pointer, kept) = (self.gate.clone(), word.pointer(), word.clone());
        let work = move |r: &mut Recorder| {
            r.keep(Arc::new(kept));
            launch(r, &gate, pointer)
        };
        queue.submit(&[], work, &[]).expect("stalling the queue");
        Stall(word)
    }
}

/// Blocks a stream until it is released.
///
/// The drop releases it, so that no failing test leaves a kernel running.
pub(crate) struct Stall(pub(crate) Buffer);

impl Stall {
    pub(crate) fn release(self) {}
}

impl Drop for Stall {
    fn drop(&mut self) {
        if let Some([word]) = self.0.as_words() {
            word.store(1, Ordering::Release);
        }
    }
}

/// Launches one thread of a kernel that takes one u64.
pub(crate) fn launch(
    recorder: &mut Recorder,
    function: &Function,
    mut parameter: u64,
) -> Result<()> {
    let mut params = [(&raw mut parameter).cast::<c_void>()];
    // SAFETY: the kernels take one u64. The callers keep words that it points to.
    unsafe { recorder.launch(function, [1; 3], [1; 3], &mut params) }
}

/// Runs a producer and a consumer on streams of their own. A kernel delays the producer.
pub(crate) fn hand_over(gpu: &Gpu, wait: bool, consumer_first: bool) -> Vec<u32> {
    let (producer, consumer) = (gpu.queue("producer"), gpu.queue("consumer"));
    let data = gpu.device.buffer(WORDS * 4).unwrap();
    let copy = gpu.device.buffer(WORDS * 4).unwrap();
    data.write_words(&vec![1; WORDS as usize]).unwrap();
    copy.write_words(&vec![0; WORDS as usize]).unwrap();
    let timeline = gpu.device.timeline("hand over").unwrap();
    let produce = || {
        let (data, delay) = (data.clone(), gpu.delay.clone());
        let work = move |r: &mut Recorder| {
            launch(r, &delay, 50_000_000)?;
            r.memset_d32(&data, 2)
        };
        producer
            .submit(&[], work, &[timeline.signal_at(1)])
            .unwrap();
    };
    let consume = || {
        let (data, copy) = (data.clone(), copy.clone());
        let waits = [timeline.at(1)];
        let waits = if wait { &waits[..] } else { &[] };
        let work = move |r: &mut Recorder| r.copy(&data, &copy);
        let sent = consumer
            .submit(waits, work, &[timeline.signal_at(2)])
            .unwrap();
        assert_eq!(sent.is_held(), wait && consumer_first);
    };
    if consumer_first {
        consume();
        produce();
    } else {
        produce();
        consume();
    }
    timeline.at(2).wait(LIMIT).unwrap();
    producer.idle(LIMIT).unwrap();
    consumer.idle(LIMIT).unwrap();
    copy.read_words().unwrap()
}
