//! The pipeline of the demo.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use syncline::trace::Trace;
use syncline::{Device, Link, WaitMode, share};

use super::{Call, Floor, Row};
use crate::frames::{Order, Pipeline, Size, expected_shades};
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::frames::ByHand;
use crate::raw::vulkan::is_software;
use crate::side::{FLOOR, OURS, Outcome, RAW, Side, Stop, timed};

/// The side that waits on the host.
const HOST_SYNCHRONIZED: &str = "host_synchronized";

/// Smallest number of frames of a batch, so that the pipeline is mostly full.
const FRAMES: u32 = 24;

/// Frames of a batch of `interop.trace` on a GPU.
///
/// A trace costs a few percent. Short batches differ by that much, because a first frame that
/// reaches the GPU alone causes one more switch of contexts.
const FOLLOWED_FRAMES: u32 = 10 * FRAMES;

/// Frames of each side that are compared with the reference before the race.
///
/// Each slot is used twice.
const COMPARED: u32 = 8;

pub(super) const ROWS: &[Row] = &[FRAMES_ROW, TRACED_ROW];

const TRACED_ROW: Row = Row {
    id: "interop.trace",
    ours: "the demo's pipeline as in interop.frames, with a trace that follows its queues and names each submission, 240 frames in a row (software: 24); per frame",
    raw: "the same pipeline without a trace",
    floor: Floor::Raw,
    limits: &[],
    on: &[On::Shared(None), On::Vulkan],
    variants: &[],
    run: traced,
};

const FRAMES_ROW: Row = Row {
    id: "interop.frames",
    ours: "the demo's pipeline: frames simulated on CUDA (on Vulkan, where that is alone), shaded on Vulkan, 24 in a row; per frame. The host spins where it waits, for the sixth frame before or the last one",
    raw: "the same kernels, recorded and ordered with calls of the drivers, and the same waits; host_synchronized: ours, but the host waits after every stage",
    floor: Floor::Side(
        "raw, and cuEventRecord behind each signal of CUDA (Q9), and a second semaphore for each vkQueueSubmit to signal, the queue's position",
    ),
    limits: &[Limit::Speed(0.98)],
    on: &[On::Shared(None), On::Vulkan],
    variants: &[],
    run: frames,
};

fn link(call: &Call<'_>) -> Outcome<(Link, bool)> {
    let vulkan = call.machine.vulkan(call.subject)?;
    let software = is_software(&vulkan);
    let left = call.machine.device(call.subject.indices[0])?;
    Ok((share(&left, &Device::Vulkan(vulkan))?, software))
}

/// Small on a software device, so that synchronization takes most of the time and not pixels.
const fn size(software: bool) -> Size {
    let side = if software { 64 } else { 512 };
    Size {
        width: side,
        height: side,
    }
}

fn traced(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (link, software) = link(call)?;
    let size = size(software);
    // Room for any number of rounds.
    let trace = Arc::new(Trace::with_capacity(usize::MAX));
    let followed = Pipeline::shading(&link, size)?.traced(trace.clone())?;
    let alone = Pipeline::shading(&link, size)?;
    let made = [const { Cell::new(0_u32) }; 2];
    let by = |pipeline: &Pipeline, made: &Cell<u32>, frames| -> Outcome<()> {
        pipeline.advance(made.get(), frames, Order::Timelines, WaitMode::Spin)?;
        made.set(made.get() + frames);
        Ok(())
    };
    let frames = if software { FRAMES } else { FOLLOWED_FRAMES };
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

fn frames(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (link, software) = link(call)?;
    let size = size(software);
    let ours = Pipeline::shading(&link, size)?;
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
        let right = expected_shades(size, COMPARED);
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
        // The measured frames are compared as well, at the same frame number of all sides.
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
        lab.note(format!(
            "{} by {} pixels; {}",
            size.width,
            size.height,
            link.mechanism()
        ));
        Ok(())
    })();
    // Also after a failure, because drivers crash if memory is freed while they work.
    ours.finish()?;
    raced
}
