//! Timestamp queries of a device.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::collections::HashMap;

use ash::vk;
use syncline_core::backend::kit::Mutex;

/// Queries in one `VkQueryPool`.
const POOL_SIZE: u32 = 64;

/// The timestamp queries of a device. A query is reused after its stamp is dropped.
#[derive(Default)]
pub(crate) struct QueryPools(Mutex<Pools>);

#[derive(Default)]
struct Pools {
    pools: Vec<vk::QueryPool>,
    free: Vec<(vk::QueryPool, u32)>,
}

impl QueryPools {
    /// Returns a free query: its pool and its index. Makes another pool if no query is free.
    ///
    /// # Errors
    /// The result of `vkCreateQueryPool`.
    pub(crate) fn take(&self, device: &ash::Device) -> Result<(vk::QueryPool, u32), vk::Result> {
        let free = self.0.lock().free.pop();
        if let Some(free) = free {
            return Ok(free);
        }
        // The driver is called without the lock. Threads that find no free query at the same time
        // make one pool each.
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(POOL_SIZE);
        // SAFETY: `info` is valid: timestamps need no feature, and there is at least one query.
        let pool = unsafe { device.create_query_pool(&info, None) }?;
        let mut pools = self.0.lock();
        pools.pools.push(pool);
        pools
            .free
            .extend((1..POOL_SIZE).rev().map(|query| (pool, query)));
        Ok((pool, 0))
    }

    /// Makes a query free again.
    pub(crate) fn give_back(&self, pool: vk::QueryPool, query: u32) {
        self.0.lock().free.push((pool, query));
    }

    /// Destroys the pools without a query in use. Returns the number of the others.
    pub(crate) fn trim(&self, device: &ash::Device) -> usize {
        let (unused, left) = {
            let mut guard = self.0.lock();
            let Pools { pools, free } = &mut *guard;
            let mut counts = HashMap::new();
            for (pool, _) in free.iter() {
                *counts.entry(*pool).or_insert(0) += 1;
            }
            let is_unused = |pool: &vk::QueryPool| counts.get(pool) == Some(&POOL_SIZE);
            free.retain(|(pool, _)| !is_unused(pool));
            free.shrink_to_fit();
            let unused: Vec<_> = pools.extract_if(.., |pool| is_unused(pool)).collect();
            (unused, pools.len())
        };
        for pool in unused {
            // SAFETY: made on this device, and just removed from the list. No stamp has a query of
            // it, and a submission in flight keeps its stamps.
            unsafe { device.destroy_query_pool(pool, None) };
        }
        left
    }

    /// Destroys all pools. Called when the device is dropped.
    pub(crate) fn destroy(&self, device: &ash::Device) {
        let pools = std::mem::take(&mut *self.0.lock());
        for pool in pools.pools {
            // SAFETY: each pool was made on this device and is destroyed once. No stamp and no
            // submission in flight uses one: each keeps the device, whose last reference is gone.
            unsafe { device.destroy_query_pool(pool, None) };
        }
    }
}
