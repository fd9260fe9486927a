//! The demo's pipeline.

use std::cell::Cell;

use syncline::{Device, Link, share};

use super::{Call, Row};
use crate::bar::Bar;
use crate::frames::{Order, Pipeline, Size, expected};
use crate::lab::{Lab, OURS, Outcome, RAW, Side, Stop, timed};
use crate::machine::On;
use crate::raw::frames::ByHand;
use crate::raw::vulkan::is_software;

/// The side that waits on the host.
const HOST_SYNCHRONIZED: &str = "host_synchronized";

/// Frames of one batch at least, from the first submission to the last frame: enough that the pipeline is mostly full.
const FRAMES: u32 = 24;

/// So many frames of each side are compared with the reference before anything is measured: every slot is used twice.
const COMPARED: u32 = 8;

pub(super) const ROWS: &[Row] = &[Row {
    id: "interop.frames",
    ours: "the demo's pipeline: frames simulated on CUDA (on Vulkan, where that is alone), shaded on Vulkan, 24 in a row; per frame",
    raw: "the same kernels, recorded and ordered with calls of the drivers; host_synchronized: ours, but the host waits after every stage",
    bar: Bar::Speed(0.98),
    on: &[On::Shared(None), On::Vulkan],
    variants: &[],
    run: frames,
}];

fn link(call: &Call<'_>) -> Outcome<(Link, bool)> {
    let vulkan = call.machine.vulkan(call.subject)?;
    let software = is_software(&vulkan);
    let left = call.machine.device(call.subject.indices[0])?;
    Ok((share(&left, &Device::Vulkan(vulkan))?, software))
}

fn frames(call: &Call<'_>, lab: &mut dyn Lab) -> Outcome<()> {
    let (link, software) = link(call)?;
    // A processor that plays a GPU is to be kept waiting by the synchronization, not by the pixels.
    let side = if software { 64 } else { 512 };
    let size = Size {
        width: side,
        height: side,
    };
    let ours = Pipeline::new(&link, size)?;
    let raw = ByHand::new(&link, size)?;
    let (ours_made, raw_made) = (Cell::new(0_u32), Cell::new(0_u32));
    let by_syncline = |frames, order| -> Outcome<()> {
        ours.advance(ours_made.get(), frames, order)?;
        ours_made.set(ours_made.get() + frames);
        Ok(())
    };
    let by_hand = |frames| -> Outcome<()> {
        raw.advance(raw_made.get(), frames)?;
        raw_made.set(raw_made.get() + frames);
        Ok(())
    };
    let raced = (|| {
        by_syncline(COMPARED, Order::Timelines)?;
        by_hand(COMPARED)?;
        let right = expected(size, COMPARED);
        for (whose, frame) in [
            ("our", ours.frame(COMPARED - 1)),
            ("the raw", raw.frame(COMPARED - 1)),
        ] {
            if frame != right {
                return Err(Stop::Failed(format!("{whose} frame {COMPARED} is wrong")));
            }
        }
        let each = u64::from(FRAMES);
        lab.race(vec![
            Side::ours(|n| {
                timed(|| (0..n).try_for_each(|_| by_syncline(FRAMES, Order::Timelines)))
            })
            .each(each),
            Side::raw(|n| timed(|| (0..n).try_for_each(|_| by_hand(FRAMES)))).each(each),
            Side::new(HOST_SYNCHRONIZED, |n| {
                timed(|| (0..n).try_for_each(|_| by_syncline(FRAMES, Order::HostSynchronized)))
            })
            .each(each),
        ])?;
        for side in [OURS, RAW, HOST_SYNCHRONIZED] {
            if let Some(time) = lab.median(side) {
                lab.figure(&format!("{side}_frames_per_second"), 1e9 / time);
            }
        }
        // What was measured is right, too: both are brought to one number, and compared.
        let (have, other) = (ours_made.get(), raw_made.get());
        by_syncline(other.saturating_sub(have), Order::Timelines)?;
        by_hand(have.saturating_sub(other))?;
        let last = ours_made.get() - 1;
        if ours.frame(last) != raw.frame(last) {
            return Err(Stop::Failed(format!(
                "frame {last} differs between the two"
            )));
        }
        lab.note(format!("{side} by {side} pixels; {}", link.mechanism()));
        Ok(())
    })();
    // Also after a failure: drivers crash if memory goes while they work.
    ours.finish()?;
    raced
}
