//! Timestamp queries.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use ash::vk;
use syncline_core::backend;
use syncline_core::clock::Counter;
use syncline_core::{Error, Object, QueueKind, Result};

use crate::device::open::Inner;
use crate::device::physical::Family;
use crate::driver::error::{unsupported, wrong_device};

/// Its writing was not recorded yet.
const NEVER: i64 = i64::MIN;

/// A time written at the bottom of the pipe: once everything before it on the queue has finished.
pub struct Stamp {
    device: Arc<Inner>,
    /// The queue it was made for.
    queue: Object,
    pool: vk::QueryPool,
    slot: u32,
    /// Valid bits of what the queue's family writes, from 36 to 64.
    bits: u32,
    /// What the clock's clock of the host showed when its writing was recorded, if the counter may come round; otherwise any
    /// number but [`NEVER`]: an untouched query must not be read.
    recorded: AtomicI64,
    /// What was read, once `was_read`. Once is enough, and some drivers (Mesa's llvmpipe 22) wait for the whole device at
    /// each reading.
    read: AtomicU64,
    was_read: AtomicBool,
}

impl Stamp {
    /// A stamp for a queue of `family`, whose name is `queue`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if queues of the family write no timestamps; a driver error.
    pub(crate) fn new(device: &Arc<Inner>, queue: &Object, family: Family) -> Result<Self> {
        let refuse = |reason| unsupported(queue, "write a timestamp", reason);
        if family.timestamp_bits == 0 {
            return Err(refuse("its queue family has no valid timestamp bits"));
        }
        if !device.enabled.host_query_reset && family.kind == QueueKind::Transfer {
            return Err(refuse(
                "the device was made without hostQueryReset, and transfer-only queues cannot reset queries",
            ));
        }
        let (pool, slot) = device.query_pools.take(device)?;
        Ok(Self {
            device: device.clone(),
            queue: queue.clone(),
            pool,
            slot,
            bits: family.timestamp_bits,
            recorded: AtomicI64::new(NEVER),
            read: AtomicU64::new(0),
            was_read: AtomicBool::new(false),
        })
    }

    /// `vkCmdWriteTimestamp` into a command buffer that is begun, outside any render pass, and of the family that the stamp was made for. Who
    /// submits it keeps the stamp, so that the query is not used again before it is written.
    pub(crate) fn write(&self, commands: vk::CommandBuffer) {
        let device = self.device.raw();
        // SAFETY: the query is the stamp's alone and not in use by the device; the command buffer is as the caller says,
        // whose family writes timestamps and, if it must, resets queries: else there were no stamp.
        unsafe {
            if self.device.enabled.host_query_reset {
                device.reset_query_pool(self.pool, self.slot, 1);
            } else {
                device.cmd_reset_query_pool(commands, self.pool, self.slot, 1);
            }
            let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
            device.cmd_write_timestamp(commands, stage, self.pool, self.slot);
        }
        // As its time will be told: the device's clock has the fewest bits of all its families.
        let now = if self.device.info.capabilities.timestamp_bits < 64 {
            self.device.clock.host_clock().now()
        } else {
            0
        };
        self.recorded.store(now, Ordering::Release);
    }

    /// For the next record. Nobody else has the stamp.
    pub(crate) fn renew(&self) -> bool {
        self.recorded.store(NEVER, Ordering::Relaxed);
        self.was_read.store(false, Ordering::Relaxed);
        true
    }

    /// What was written, its valid bits and whatever is in the others: `vkGetQueryPoolResults`, without waiting.
    pub(crate) fn ticks(&self) -> Result<u64> {
        if self.was_read.load(Ordering::Acquire) {
            return Ok(self.read.load(Ordering::Relaxed));
        }
        let not_ready = || Error::NotReady {
            fence: self.queue.clone(),
        };
        if self.recorded.load(Ordering::Acquire) == NEVER {
            return Err(not_ready());
        }
        let mut ticks = [0_u64];
        // SAFETY: the query exists as long as the stamp, and one 64-bit result fits. It has been reset: by the host where its
        // writing was recorded, or by the device, and then only complete stamps are read (see `time_if_written`).
        let read = unsafe {
            self.device.raw().get_query_pool_results(
                self.pool,
                self.slot,
                &mut ticks,
                vk::QueryResultFlags::TYPE_64,
            )
        };
        match read {
            Ok(()) => {
                // Whoever else reads it now reads the same.
                self.read.store(ticks[0], Ordering::Relaxed);
                self.was_read.store(true, Ordering::Release);
                Ok(ticks[0])
            }
            Err(vk::Result::NOT_READY) => Err(not_ready()),
            Err(code) => Err(self
                .device
                .failed(&self.queue, "vkGetQueryPoolResults", code)),
        }
    }
}

impl backend::Stamp for Stamp {
    fn nanoseconds_since(&self, start: &dyn backend::Stamp) -> Result<i64> {
        let start: &dyn std::any::Any = start;
        let start = start.downcast_ref::<Self>().ok_or_else(|| {
            let reason = "Vulkan stamps count on the device's clock";
            unsupported(
                &self.queue,
                "measure from a stamp of another backend",
                reason,
            )
        })?;
        if !Arc::ptr_eq(&self.device, &start.device) {
            return Err(wrong_device(
                &start.queue,
                &start.device.object,
                &self.device.object,
            ));
        }
        let period = self.device.info.capabilities.timestamp_period_ns;
        let counter = Counter::new(self.bits.min(start.bits), period).ok_or_else(|| {
            let reason = format!("its driver says that {period} ns pass for each tick");
            unsupported(&self.queue, "tell times", reason)
        })?;
        Ok(counter.elapsed(start.ticks()?, self.ticks()?))
    }

    fn time(&self) -> Result<Option<i64>> {
        let ticks = self.ticks()?;
        let recorded = self.recorded.load(Ordering::Acquire);
        self.device.time_written(ticks, recorded).map(Some)
    }

    fn time_if_written(&self) -> Option<i64> {
        // One that the device resets may still show what was written before.
        let can_be_asked = self.device.enabled.host_query_reset && !self.device.query_read_blocks;
        can_be_asked.then(|| self.time().ok().flatten())?
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        self.device.query_pools.give_back(self.pool, self.slot);
    }
}
