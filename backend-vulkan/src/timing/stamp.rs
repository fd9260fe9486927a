//! Stamps: times that queues write into timestamp queries.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use ash::vk;
use syncline_core::backend;
use syncline_core::backend::kit::TimestampCounter;
use syncline_core::{Error, QueueKind, Result, error::Object};

use crate::device::inner::Inner;
use crate::device::physical::Family;

/// The value of [`Stamp::recorded_at`] while no command buffer writes the query.
const NOT_RECORDED: i64 = i64::MIN;

/// A timestamp query, written once everything before it on the queue has finished.
pub struct Stamp {
    device: Arc<Inner>,
    /// The name of the queue that it was made for.
    queue: Object,
    pool: vk::QueryPool,
    slot: u32,
    /// The number of valid bits that the queue's family writes, from 36 to 64.
    bits: u32,
    /// The time on the host's clock when the write was recorded.
    ///
    /// 0 if the counter does not wrap and the device has no clock. [`NOT_RECORDED`] before the
    /// first write. A query that was never written must not be read.
    recorded_at: AtomicI64,
    /// The time on the host's clock when the result was read, until the clock was told of it. Else
    /// [`NOT_RECORDED`].
    seen_at: AtomicI64,
    /// The result, valid once `has_result` is true.
    ///
    /// The query is read only once, because some drivers (Mesa's llvmpipe 22) wait for all work of
    /// the device at each read.
    result: AtomicU64,
    has_result: AtomicBool,
}

impl Stamp {
    /// A stamp for the queue `queue` of `family`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if queues of the family write no timestamps, or a driver error.
    pub(crate) fn new(device: &Arc<Inner>, queue: &Object, family: Family) -> Result<Self> {
        let refuse = |reason| Error::unsupported(queue, "write a timestamp", reason);
        if family.timestamp_bits == 0 {
            return Err(refuse("its queue family has no valid timestamp bits"));
        }
        if !device.enabled().host_query_reset && family.kind == QueueKind::Transfer {
            return Err(refuse(
                "the device was made without hostQueryReset, and transfer-only queues cannot reset queries",
            ));
        }
        let query = device.query_pools().take(device.raw());
        let (pool, slot) =
            query.map_err(|code| device.failed(device.object(), "vkCreateQueryPool", code))?;
        Ok(Self {
            device: device.clone(),
            queue: queue.clone(),
            pool,
            slot,
            bits: family.timestamp_bits,
            recorded_at: AtomicI64::new(NOT_RECORDED),
            seen_at: AtomicI64::new(NOT_RECORDED),
            result: AtomicU64::new(0),
            has_result: AtomicBool::new(false),
        })
    }

    /// Records `vkCmdWriteTimestamp` into `commands`.
    ///
    /// The command buffer is begun, outside any render pass, and of the family that the stamp was
    /// made for. The submission keeps the stamp, so that the query is not reused before it is
    /// written.
    pub(crate) fn write(&self, commands: vk::CommandBuffer) {
        let device = self.device.raw();
        // SAFETY: only this stamp uses the query, and the device does not use it now. The caller
        // guarantees the command buffer. Its family writes timestamps and, if necessary, resets
        // queries, which `new` has checked.
        unsafe {
            if self.device.enabled().host_query_reset {
                device.reset_query_pool(self.pool, self.slot, 1);
            } else {
                device.cmd_reset_query_pool(commands, self.pool, self.slot, 1);
            }
            let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
            device.cmd_write_timestamp(commands, stage, self.pool, self.slot);
        }
        // Times of the stamp are converted with the device's clock, which has the fewest valid bits
        // of all families. So the bits of that clock count here.
        let clock = self.device.clock();
        let wraps = self.device.info().capabilities.timestamp_bits < 64;
        let now = if wraps || clock.get().is_some() {
            clock.host_clock().now()
        } else {
            0
        };
        self.recorded_at.store(now, Ordering::Release);
    }

    /// Prepares the stamp for its next record. The caller has the only reference.
    pub(crate) fn renew(&self) -> bool {
        self.recorded_at.store(NOT_RECORDED, Ordering::Relaxed);
        self.seen_at.store(NOT_RECORDED, Ordering::Relaxed);
        self.has_result.store(false, Ordering::Relaxed);
        true
    }

    /// Reads the written ticks with `vkGetQueryPoolResults`, without waiting.
    ///
    /// Bits that are not valid may have any value.
    pub(crate) fn ticks(&self) -> Result<u64> {
        if self.has_result.load(Ordering::Acquire) {
            return Ok(self.result.load(Ordering::Relaxed));
        }
        let not_ready = || Error::not_ready(&self.queue);
        if self.recorded_at.load(Ordering::Acquire) == NOT_RECORDED {
            return Err(not_ready());
        }
        let mut ticks = [0_u64];
        // SAFETY: the query exists as long as the stamp, and one 64-bit result fits. The query has
        // been reset: by the host when the write was recorded, or by the device. In the second case
        // only complete stamps are read (see `time_if_written`).
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
                let clock = self.device.clock();
                if clock.get().is_some() {
                    self.seen_at
                        .store(clock.host_clock().now(), Ordering::Relaxed);
                }
                // Another thread that reads the query now gets the same result.
                self.result.store(ticks[0], Ordering::Relaxed);
                self.has_result.store(true, Ordering::Release);
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
            Error::unsupported(
                &self.queue,
                "measure from a stamp of another backend",
                reason,
            )
        })?;
        if !Arc::ptr_eq(&self.device, &start.device) {
            return Err(Error::wrong_device(
                &start.queue,
                start.device.object(),
                self.device.object(),
            ));
        }
        let period = self.device.info().capabilities.timestamp_period_ns;
        let counter =
            TimestampCounter::new(self.bits.min(start.bits), period).ok_or_else(|| {
                let reason = format!("its driver says that {period} ns pass for each tick");
                Error::unsupported(&self.queue, "tell times", reason)
            })?;
        Ok(counter.elapsed(start.ticks()?, self.ticks()?))
    }

    fn time(&self) -> Result<Option<i64>> {
        let ticks = self.ticks()?;
        let recorded_at = self.recorded_at.load(Ordering::Acquire);
        let time = self.device.time_written(ticks, recorded_at)?;
        let seen_at = self.seen_at.load(Ordering::Relaxed);
        if seen_at != NOT_RECORDED
            && recorded_at != 0
            && let Some(clock) = self.device.clock().get()
        {
            self.seen_at.store(NOT_RECORDED, Ordering::Relaxed);
            clock.seen(time, recorded_at, seen_at);
        }
        Ok(Some(time))
    }

    fn time_if_written(&self) -> Option<i64> {
        // A query that the device resets may still have its previous result.
        let device = &self.device;
        let can_be_read = device.enabled().host_query_reset && !device.query_read_blocks();
        can_be_read.then(|| self.time().ok().flatten())?
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may have held the lock.
        if self.device.is_forked() {
            return;
        }
        self.device.query_pools().give_back(self.pool, self.slot);
    }
}
