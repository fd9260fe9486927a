//! The demo's pipeline.

use std::cell::Cell;

use syncline::{Device, Link, WaitMode, share};

use super::{Call, Floor, Row};
use crate::bar::Bar;
use crate::frames::{Order, Pipeline, Size, expected};
use crate::lab::{FLOOR, Lab, OURS, Outcome, RAW, Side, Stop, timed};
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
    ours: "the demo's pipeline: frames simulated on CUDA (on Vulkan, where that is alone), shaded on Vulkan, 24 in a row; per frame. Where the host waits, for the sixth frame before or the last one, it looks all the time",
    raw: "the same kernels, recorded and ordered with calls of the drivers, and the same waits; host_synchronized: ours, but the host waits after every stage, likewise",
    floor: Floor::Side(
        "raw, and cuEventRecord behind each signal of CUDA's (Q9), and a second semaphore for each vkQueueSubmit to signal, the queue's position",
    ),
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
    let (raw, floor) = (
        ByHand::new(&link, size, false)?,
        ByHand::new(&link, size, true)?,
    );
    let [ours_made, raw_made, floor_made] = [const { Cell::new(0_u32) }; 3];
    let by_syncline = |frames, order| -> Outcome<()> {
        ours.advance(ours_made.get(), frames, order, WaitMode::Spin)?;
        ours_made.set(ours_made.get() + frames);
        Ok(())
    };
    let by_hand = |pipeline: &ByHand, made: &Cell<u32>, frames| -> Outcome<()> {
        pipeline.advance(made.get(), frames)?;
        made.set(made.get() + frames);
        Ok(())
    };
    let by_raw = |frames| by_hand(&raw, &raw_made, frames);
    let by_floor = |frames| by_hand(&floor, &floor_made, frames);
    let raced = (|| {
        by_syncline(COMPARED, Order::Timelines)?;
        by_raw(COMPARED)?;
        by_floor(COMPARED)?;
        let right = expected(size, COMPARED);
        for (whose, frame) in [
            ("our", ours.frame(COMPARED - 1)),
            ("the raw", raw.frame(COMPARED - 1)),
            ("the floor's", floor.frame(COMPARED - 1)),
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
            Side::raw(|n| timed(|| (0..n).try_for_each(|_| by_raw(FRAMES)))).each(each),
            Side::floor(|n| timed(|| (0..n).try_for_each(|_| by_floor(FRAMES)))).each(each),
            Side::new(HOST_SYNCHRONIZED, |n| {
                timed(|| (0..n).try_for_each(|_| by_syncline(FRAMES, Order::HostSynchronized)))
            })
            .each(each),
        ])?;
        for side in [OURS, RAW, FLOOR, HOST_SYNCHRONIZED] {
            if let Some(time) = lab.median(side) {
                lab.figure(&format!("{side}_frames_per_second"), 1e9 / time);
            }
        }
        // What was measured is right, too: all are brought to one number, and compared.
        let made = [&ours_made, &raw_made, &floor_made].map(Cell::get);
        let most = made.into_iter().max().unwrap_or_default();
        by_syncline(most - made[0], Order::Timelines)?;
        by_raw(most - made[1])?;
        by_floor(most - made[2])?;
        let last = most - 1;
        let frame = ours.frame(last);
        if frame != raw.frame(last) || frame != floor.frame(last) {
            return Err(Stop::Failed(format!(
                "frame {last} differs between the sides"
            )));
        }
        lab.note(format!("{side} by {side} pixels; {}", link.mechanism()));
        Ok(())
    })();
    // Also after a failure: drivers crash if memory goes while they work.
    ours.finish()?;
    raced
}
