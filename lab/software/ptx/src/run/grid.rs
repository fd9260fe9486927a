//! A grid: which warps run, and in which order.

use std::collections::VecDeque;

use crate::op::{Source, Special};
use crate::types::extend;
use crate::{Entry, Fault, Launch, Machine};

use super::warp::{Event, LANES, Pace, Warp};

/// Warps that have begun and not ended. At least the warps of a block, 32.
const RESIDENT: usize = 256;

/// Instructions until another warp continues.
const SLICE: u32 = 1024;

/// A warp of a grid: its block, and its number in it.
#[derive(Debug, Clone, Copy)]
struct Place {
    block: [u32; 3],
    warp: u32,
}

/// Goes through the warps of a grid.
#[derive(Debug)]
struct Places {
    next: Option<Place>,
    grid: [u32; 3],
    /// The warps of a block.
    warps: u32,
}

impl Iterator for Places {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        let place = self.next?;
        let mut next = place;
        next.warp += 1;
        self.next = Some(next).filter(|next| next.warp < self.warps);
        if self.next.is_none() {
            next.warp = 0;
            for (index, limit) in next.block.iter_mut().zip(self.grid) {
                *index += 1;
                if *index < limit {
                    self.next = Some(next);
                    break;
                }
                *index = 0;
            }
        }
        Some(place)
    }
}

/// Runs a grid in warps of `W` threads, 1 or 32. With 1 the blocks have one thread.
pub(super) fn run<const W: usize>(
    entry: &Entry,
    launch: &Launch,
    machine: &dyn Machine,
) -> Result<(), Fault> {
    let threads: u32 = launch.block.iter().product();
    let lanes = u32::try_from(W).unwrap_or(1);
    let warps = threads.div_ceil(lanes);
    let first = Place {
        block: [0; 3],
        warp: 0,
    };
    let mut places = Places {
        next: Some(first),
        grid: launch.grid,
        warps,
    };
    let mut waiting: VecDeque<Warp<W>> = VecDeque::new();
    let mut spare = None;
    let mut dependents = Dependents::default();
    let mut pace = Pace::new();
    let mut prefer_new = true;
    loop {
        let may_begin = waiting.len() < RESIDENT && (prefer_new || waiting.is_empty());
        prefer_new = !prefer_new;
        let mut warp = if may_begin && let Some(place) = places.next() {
            let mut warp = spare.take().unwrap_or_else(|| Warp::new(entry));
            prepare(&mut warp, entry, launch, place, threads);
            dependents.missing += 1;
            warp
        } else if let Some(warp) = waiting.pop_front() {
            warp
        } else if places.next.is_some() {
            continue;
        } else {
            return Ok(());
        };
        let mut budget = SLICE;
        loop {
            let event = warp.run(&entry.code, machine, &mut budget, &mut pace)?;
            match event {
                Event::LaunchDependents => dependents.launched = true,
                Event::Ended | Event::Slice => {}
            }
            let counts = match event {
                Event::LaunchDependents => true,
                Event::Ended => !warp.has_launched,
                Event::Slice => false,
            };
            if counts {
                dependents.missing -= 1;
                if dependents.missing == 0 && dependents.launched && places.next.is_none() {
                    machine.launch_dependents();
                }
            }
            match event {
                Event::LaunchDependents => {}
                Event::Ended => {
                    spare = Some(warp);
                    break;
                }
                Event::Slice => {
                    waiting.push_back(warp);
                    break;
                }
            }
        }
    }
}

/// When the kernels behind this one may begin.
#[derive(Debug, Default)]
struct Dependents {
    /// Whether a warp has executed `griddepcontrol.launch_dependents`.
    launched: bool,
    /// Warps that have begun, and neither executed it nor ended.
    missing: usize,
}

/// Gives a warp its place in the grid and the values with which its threads begin.
fn prepare<const W: usize>(
    warp: &mut Warp<W>,
    entry: &Entry,
    launch: &Launch,
    place: Place,
    threads: u32,
) {
    let lanes = u32::try_from(W).unwrap_or(1);
    let first = place.warp * lanes;
    warp.begin(threads.saturating_sub(first).min(lanes) as usize);
    let [width, height, _] = launch.block;
    for (slot, source) in (0..).zip(&entry.slots) {
        let row = warp.rows.row_mut(slot);
        match *source {
            Source::Register => row.fill(0),
            Source::Constant(value) => row.fill(value),
            Source::Param {
                offset,
                bytes,
                signed,
                width,
            } => {
                row.fill(param(&launch.params, offset.into(), bytes, signed, width));
            }
            Source::Special(special) => {
                for (lane, value) in (0..).zip(row) {
                    let thread = first + lane;
                    *value = u64::from(match special {
                        Special::Tid(0) => thread % width,
                        Special::Tid(1) => thread / width % height,
                        Special::Tid(_) => thread / width / height,
                        Special::Ntid(dimension) => launch.block[usize::from(dimension)],
                        Special::Ctaid(dimension) => place.block[usize::from(dimension)],
                        Special::Nctaid(dimension) => launch.grid[usize::from(dimension)],
                        Special::LaneId => lane,
                        Special::WarpId => place.warp,
                        Special::WarpCount => threads.div_ceil(LANES as u32),
                    });
                }
            }
        }
    }
}

/// A parameter as a register of `width` bytes has it.
fn param(params: &[u8], offset: usize, bytes: u8, signed: bool, width: u8) -> u64 {
    let mut value = [0; 8];
    let found = params.get(offset..).unwrap_or_default();
    for (to, from) in value.iter_mut().zip(found).take(bytes.into()) {
        *to = *from;
    }
    extend(
        extend(u64::from_le_bytes(value), bytes, signed),
        width,
        false,
    )
}
