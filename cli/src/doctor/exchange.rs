//! The last check: CUDA and Vulkan share.

use super::checks::Outcome;
use super::facts::Facts;

#[cfg(all(feature = "cuda", feature = "vulkan"))]
pub(super) fn exchange(facts: &Facts) -> Outcome {
    match shared::exchange(&facts.inventory) {
        Ok(how) => Outcome::ok(how),
        Err(reason) => Outcome::found(
            reason,
            "Look which rule fails: `syncline conformance --device cuda`; update the driver if it is not the latest of its \
             series.",
        ),
    }
}

/// Not reached, because the check `build` comes first.
#[cfg(not(all(feature = "cuda", feature = "vulkan")))]
pub(super) fn exchange(_: &Facts) -> Outcome {
    Outcome::ok("not needed")
}

#[cfg(all(feature = "cuda", feature = "vulkan"))]
mod shared {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use syncline::prelude::*;

    const PATIENCE: Duration = Duration::from_secs(10);
    const BYTES: u64 = 1 << 16;
    const WORD: u32 = 0x5eed_f00d;

    /// CUDA fills shared memory, and Vulkan copies it behind a shared timeline.
    pub(super) fn exchange(inventory: &Inventory) -> Result<String, String> {
        let text = |error: Error| error.to_string();
        let (mechanism, words) = copied(inventory).map_err(text)?;
        let wrong = words.iter().filter(|word| **word != WORD).count();
        if wrong > 0 {
            return Err(format!(
                "{wrong} of {} words that Vulkan has read are not those that CUDA wrote",
                words.len()
            ));
        }
        Ok(format!(
            "Vulkan has read {BYTES} bytes of CUDA, ordered by {mechanism}"
        ))
    }

    /// Returns the words that Vulkan has read.
    fn copied(inventory: &Inventory) -> syncline::Result<(syncline::Mechanism, Vec<u32>)> {
        let (cuda, vulkan) = inventory.pair()?;
        let link = share(&cuda, &vulkan)?;
        let buffer = link.buffer(BYTES)?;
        let copy = vulkan.host_buffer(BYTES, Default::default())?;
        let line = link.timeline("doctor")?;
        let writer = cuda.queue(QueueKind::Compute, "doctor writes")?;
        let reader = vulkan.queue(QueueKind::Compute, "doctor reads")?;
        let (from, to, filled) = (buffer.right().clone(), copy.clone(), buffer.left().clone());
        reader.submit(
            &[line.at(1)],
            move |commands| commands.copy_buffer(&from, &to),
            &[line.signal_at(2)],
        )?;
        writer.submit(
            &[],
            move |stream| stream.memset_d32(&filled, WORD),
            &[line.signal_at(1)],
        )?;
        // And back: CUDA writes other words when Vulkan has read these.
        let filled = buffer.left().clone();
        writer.submit(
            &[line.at(2)],
            move |stream| stream.memset_d32(&filled, !WORD),
            &[line.signal_at(3)],
        )?;
        line.at(3).wait(PATIENCE)?;
        writer.idle(PATIENCE)?;
        reader.idle(PATIENCE)?;
        let words = copy.as_words().unwrap_or_default();
        let words = words.iter().map(|word| word.load(Ordering::Relaxed));
        Ok((link.mechanism(), words.collect()))
    }
}
