//! The pipeline of the demo.

use std::cell::Cell;

use syncline::backend::Device as _;
use syncline::{Device, Link, share};

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::frames::{ByHand, Slots};
use crate::row::{Call, Question, Row, Variant};
use crate::side::{OURS, Outcome, RAW, Side, Stop};
use syncline_demo::scene::View;
use syncline_demo::{Order, Pipeline, expected};

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

pub(super) const ROWS: &[Row] = &[FRAMES_ROW, BUFFERS_ROW];

const FRAMES_ROW: Row = Row {
    id: "interop.frames",
    question: Question::Frame,
    ours: "the demo's pipeline (software: with an eighth of the cells in a row, and at least 16): CUDA simulates and copies into shared images, Vulkan draws them and copies the picture to the host, 240 frames in a row (software: 24); per frame. The host waits for the sixth frame before, and for the last one",
    raw: "the same kernels and drawing commands. Shared and ordered with calls of the drivers: memory of Link::image, barriers for VK_QUEUE_FAMILY_EXTERNAL, external timeline semaphores, vkWaitSemaphores",
    limits: &[Limit::RatioToRaw(1.02)],
    on: &[On::Shared],
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
    let by_syncline = |frames| -> Outcome<()> {
        ours.advance(
            made[0].replace(made[0].get() + frames),
            frames,
            Order::Timelines,
        )?;
        Ok(())
    };
    let by_hand = |frames| raw.advance(made[1].replace(made[1].get() + frames), frames);
    let frames = batch(software);
    let raced = (|| {
        by_syncline(COMPARED)?;
        by_hand(COMPARED)?;
        let (last, right) = (COMPARED - 1, expected(&view, COMPARED));
        for (whose, frame) in [("our", ours.frame(last)), ("the raw", raw.frame(last))] {
            if frame != right {
                return Err(Stop::Failed(format!("{whose} frame {COMPARED} is wrong")));
            }
        }
        let each = u64::from(frames);
        lab.race(vec![
            Side::timed(OURS, || by_syncline(frames)).each(each),
            Side::timed(RAW, || by_hand(frames)).each(each),
        ])?;
        // The measured frames are compared as well, at the same frame number of both sides.
        let [ours_made, raw_made] = [&made[0], &made[1]].map(Cell::get);
        let most = ours_made.max(raw_made);
        by_syncline(most - ours_made)?;
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
