//! The pipeline of the demo.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use syncline::backend::Device as _;
use syncline::trace::Trace;
use syncline::{Device, Link, share};

use super::{Call, Floor, Row, Variant};
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::frames::{ByHand, Slots};
use crate::side::{OURS, Outcome, RAW, Side, Stop, timed};
use syncline_demo::scene::View;
use syncline_demo::{Order, Pipeline, expected};

/// The side that waits on the host.
const HOST_SYNCHRONIZED: &str = "host_synchronized";

/// Cells of a row of the smallest picture, so that what synchronization costs is visible.
///
/// An H200 draws one of 64 by 64 cells in 0.1 to 0.2 ms, about as long as the switches between the
/// contexts of CUDA and Vulkan take. One of 512 by 512 cells takes 1.7 ms.
const SMALLEST: u64 = 64;

const SIZES: &[Variant] = &[
    Variant::new("64 by 64 cells", SMALLEST),
    Variant::new("128 by 128 cells", 128),
    Variant::new("256 by 256 cells", 256),
    Variant::new("512 by 512 cells", 512),
];

/// The picture of a field with this many cells in a row, or fewer on software drivers.
fn view(cells: u64, software: bool) -> View {
    let few = (cells / 8).max(View::SIDES[0].into());
    View::of_field((if software { few } else { cells }) as u32)
}

/// Frames of each side that are compared with the reference before the race.
///
/// Each slot is used twice.
const COMPARED: u32 = 8;

pub(super) const ROWS: &[Row] = &[FRAMES_ROW, BUFFERS_ROW, TRACED_ROW];

const TRACED_ROW: Row = Row {
    id: "interop.trace",
    ours: "the demo's pipeline as in interop.frames with 64 by 64 cells, with a trace that follows its queues and names each submission; per frame. On Vulkan alone it shares buffers",
    raw: "the same pipeline without a trace",
    floor: Floor::Raw,
    limits: &[],
    on: &[On::Shared(None), On::Vulkan],
    variants: &[],
    run: traced,
};

const FRAMES_ROW: Row = Row {
    id: "interop.frames",
    ours: "the demo's pipeline (software: with an eighth of the cells in a row, and at least 16): CUDA simulates and copies into shared images, Vulkan draws them and copies the picture to the host, 240 frames in a row (software: 24); per frame. The host waits for the sixth frame before, and for the last one",
    raw: "the same kernels and drawing commands. Shared and ordered with calls of the drivers: memory of vkGetMemoryFdKHR as a CUmipmappedArray, barriers for VK_QUEUE_FAMILY_EXTERNAL, external timeline semaphores, vkWaitSemaphores; host_synchronized: ours, but the host waits after every stage",
    floor: Floor::Unmeasured("the limit is to raw"),
    limits: &[Limit::RatioToRaw(1.02)],
    on: &[On::Shared(None)],
    variants: SIZES,
    run: |call, lab| frames(call, lab, Slots::Images),
};

const BUFFERS_ROW: Row = Row {
    id: "interop.frames.buffers",
    ours: "as interop.frames, with shared buffers: Vulkan copies each into an image and draws that; per frame",
    raw: "as interop.frames, with memory of Link::buffer and buffer barriers for VK_QUEUE_FAMILY_EXTERNAL",
    run: |call, lab| frames(call, lab, Slots::Buffers),
    ..FRAMES_ROW
};

fn link(call: &Call<'_>) -> Outcome<(Link, bool)> {
    let vulkan = call.machine.vulkan(call.subject)?;
    let software = vulkan.info().software;
    let left = call.machine.device(call.subject.indices[0])?;
    Ok((share(&left, &Device::Vulkan(vulkan))?, software))
}

/// Frames of a batch, so that the pipeline is mostly full.
///
/// Short batches differ by a few percent on a GPU, because a first frame that reaches it alone
/// causes one more switch of contexts.
const fn batch(software: bool) -> u32 {
    if software { 24 } else { 240 }
}

fn traced(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (link, software) = link(call)?;
    let view = view(SMALLEST, software);
    // Room for any number of rounds.
    let trace = Arc::new(Trace::with_capacity(usize::MAX));
    let followed = Pipeline::scene(&link, view)?.traced(trace.clone())?;
    let alone = Pipeline::scene(&link, view)?;
    let made = [const { Cell::new(0_u32) }; 2];
    let by = |pipeline: &Pipeline, made: &Cell<u32>, frames| -> Outcome<()> {
        pipeline.advance(made.get(), frames, Order::Timelines)?;
        made.set(made.get() + frames);
        Ok(())
    };
    let frames = batch(software);
    let batches = |pipeline, made, n| timed(|| (0..n).try_for_each(|_| by(pipeline, made, frames)));
    let each = u64::from(frames);
    let raced = lab.race(vec![
        Side::ours(|n| batches(&followed, &made[0], n)).each(each),
        Side::raw(|n| batches(&alone, &made[1], n)).each(each),
    ]);
    // Also after a failure, because drivers crash if memory is freed while they work.
    followed.finish()?;
    alone.finish()?;
    raced?;
    drop(followed);
    let recording = Arc::into_inner(trace).map(|trace| trace.finish(Duration::ZERO));
    let recording = recording.ok_or_else(|| Stop::Failed("the trace is in use".into()))?;
    let (mut recorded, mut timed) = (0, 0);
    for track in &recording.tracks {
        recorded += track.submissions.len() as u64 + track.lost;
        let with_times = track.submissions.iter().filter(|one| one.ended.is_some());
        timed += with_times.count();
        if track.lost > 0 {
            return Err(Stop::Failed(format!("{} were not recorded", track.lost)));
        }
        if let Some(why) = &track.untimed {
            lab.note(format!("{} without times: {why}", track.queue));
        }
    }
    let says = recording.tracks.iter().any(|track| track.untimed.is_some());
    if timed == 0 && !says {
        return Err(Stop::Failed("nothing was timed, for no reason".into()));
    }
    if recorded < 2 * u64::from(made[0].get()) {
        return Err(Stop::Failed(format!(
            "{recorded} submissions were recorded of {} frames",
            made[0].get()
        )));
    }
    lab.note(format!(
        "{recorded} submissions recorded, {timed} of them with times"
    ));
    Ok(())
}

fn frames(call: &Call<'_>, lab: &mut Lab, slots: Slots) -> Outcome<()> {
    let (link, software) = link(call)?;
    let view = view(call.n, software);
    let (ours, shared) = match slots {
        Slots::Images => (Pipeline::scene(&link, view)?, "images"),
        Slots::Buffers => (Pipeline::with_buffers(&link, view)?, "buffers"),
    };
    if ours.shares() != shared {
        return Err(Stop::Skipped(format!("this pair shares no {shared}")));
    }
    let raw = ByHand::new(&link, view, slots)?;
    let made = [const { Cell::new(0_u32) }; 2];
    let by_syncline = |frames, order| -> Outcome<()> {
        ours.advance(made[0].replace(made[0].get() + frames), frames, order)?;
        Ok(())
    };
    let by_hand = |frames| raw.advance(made[1].replace(made[1].get() + frames), frames);
    let frames = batch(software);
    let raced = (|| {
        by_syncline(COMPARED, Order::Timelines)?;
        by_hand(COMPARED)?;
        let (last, right) = (COMPARED - 1, expected(&view, COMPARED));
        for (whose, frame) in [("our", ours.frame(last)), ("the raw", raw.frame(last))] {
            if frame != right {
                return Err(Stop::Failed(format!("{whose} frame {COMPARED} is wrong")));
            }
        }
        let each = u64::from(frames);
        let batches = |order, n| timed(|| (0..n).try_for_each(|_| by_syncline(frames, order)));
        lab.race(vec![
            Side::ours(|n| batches(Order::Timelines, n)).each(each),
            Side::raw(|n| timed(|| (0..n).try_for_each(|_| by_hand(frames)))).each(each),
            Side::new(HOST_SYNCHRONIZED, |n| batches(Order::HostSynchronized, n)).each(each),
        ])?;
        for side in [OURS, RAW, HOST_SYNCHRONIZED] {
            if let Some(time) = lab.median(side) {
                lab.figure(&format!("{side}_frames_per_second"), 1e9 / time);
            }
        }
        // The measured frames are compared as well, at the same frame number of both sides.
        let [ours_made, raw_made] = [&made[0], &made[1]].map(Cell::get);
        let most = ours_made.max(raw_made);
        by_syncline(most - ours_made, Order::Timelines)?;
        by_hand(most - raw_made)?;
        if ours.frame(most - 1) != raw.frame(most - 1) {
            return Err(Stop::Failed(format!(
                "frame {most} differs between the sides"
            )));
        }
        let (side, how) = (view.side, link.mechanism());
        lab.note(format!("{side} by {side} cells; {how}"));
        Ok(())
    })();
    // Also after a failure, because drivers crash if memory is freed while they work.
    ours.finish()?;
    raced
}
