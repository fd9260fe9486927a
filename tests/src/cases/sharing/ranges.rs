//! X8, D4, E5: ranges of shared memory, and memory that the application has allocated.

use syncline::{Buffer, Error, Recorder, SharedBuffer};

use super::super::filled;
use super::Pair;
use super::bridge::{copy, copying, fill, filling};
use crate::case::{Stop, Verdict, check_eq, check_error};
use crate::footprint::grows_nothing;
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

linked_cases! {
    "ranges_are_the_same_bytes": [X8 Q9] or [X8 Q9] => same_bytes;
    "ranges_are_checked": [X8 E5] or [X8 E5] => checked;
    "ranges_that_overlap_are_not_copied": [X8 E5] or [X8 E5] => overlapping;
    "ten_thousand_ranges_leave_nothing": [X8 D4] or [X8 D4] => many;
    "memory_of_the_application": [X8 D4] or [X8 D4] => application::shared;
    "ranges_of_two_buffers_overlap": [X8] or [X8] => application::overlapping;
}

/// As the buffers of an [`Arena`](crate::arena::Arena).
pub(super) const BYTES: u64 = 64 << 10;
/// Offsets and sizes: at the start, across a page, of one word, and at the end.
pub(super) const RANGES: [(u64, u64); 4] =
    [(0, 4096), (8188, 4100), (20_000, 4), (BYTES - 4096, 4096)];

/// What each word of a buffer should be, if `base` is where no range is.
fn expected(base: u32, first: u32) -> Vec<u32> {
    let mut words = vec![base; BYTES as usize / 4];
    for (value, (offset, bytes)) in (first..).zip(RANGES) {
        let start = offset as usize / 4;
        words[start..start + bytes as usize / 4].fill(value);
    }
    words
}

/// The views of one memory, of the left and of the right side.
pub(super) type Both = [Buffer; 2];

pub(super) fn both(of: &SharedBuffer) -> Both {
    [of.left().clone(), of.right().clone()]
}

/// The ranges of both views.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub(super) fn parts(of: &Both) -> syncline::Result<Vec<Both>> {
    let [left, right] = of;
    let part = |(offset, bytes)| Ok([left.view(offset, bytes)?, right.view(offset, bytes)?]);
    RANGES.into_iter().map(part).collect()
}

/// One side writes the ranges, the other side reads the whole, and the other way round.
///
/// `whole` and `parts` are views of the same memory.
pub(super) fn exchange(world: &World<Equipped>, whole: &Both, parts: &[Both]) -> Verdict {
    let pair = Pair::of(world)?;
    let line = pair.line("line")?;
    for round in 0..4 {
        let (writer, reader) = (round % 2, 1 - round % 2);
        let (base, first) = (100 * round as u32 + 7, 100 * round as u32 + 11);
        let at = 2 * round as u64;
        let memory = whole[writer].clone();
        let ranges: Vec<_> = parts.iter().map(|part| part[writer].clone()).collect();
        let fills = move |recorder: &mut Recorder<'_>| {
            fill(recorder, &memory, base)?;
            for (value, range) in (first..).zip(&ranges) {
                fill(recorder, range, value)?;
            }
            Ok(())
        };
        pair.queues[writer].submit(&[], fills, &[line.signal_at(at + 1)])?;
        let device = pair.devices()[reader];
        let (from, target) = (&whole[reader], device.buffer(BYTES as usize / 4)?);
        let mut pairs = Vec::new();
        for part in parts {
            let from = part[reader].clone();
            let to = device.buffer(from.size() as usize / 4)?;
            pairs.push((from, to));
        }
        let (from, to, copied) = (from.clone(), target.clone(), pairs.clone());
        let copies = move |recorder: &mut Recorder<'_>| {
            // A part that is acquired before the whole is not acquired again.
            if first % 200 > 100 {
                copy(recorder, &from, &to)?;
            }
            for (from, to) in &copied {
                copy(recorder, from, to)?;
            }
            copy(recorder, &from, &to)
        };
        let signals = [line.signal_at(at + 2)];
        pair.queues[reader].submit(&[line.at(at + 1)], copies, &signals)?;
        line.at(at + 2).wait(patience())?;
        let (found, expected) = (Equipped::read(&target), expected(base, first));
        let mut words = found.iter().zip(&expected);
        let wrong = words.position(|(one, two)| one != two);
        check_eq!(wrong, None, "round {round}");
        for (value, (_, range)) in (first..).zip(&pairs) {
            filled::<Equipped>(range, value, format_args!("a range in round {round}"))?;
        }
    }
    Ok(())
}

fn same_bytes(world: &World<Equipped>) -> Verdict {
    let whole = Pair::of(world)?.one_buffer(BYTES)?;
    let mut parts = Vec::new();
    for (offset, bytes) in RANGES {
        // A range of a range, where that is not the whole.
        let outer = whole.view(offset - offset % 8, bytes + offset % 8)?;
        parts.push(both(&outer.view(offset % 8, bytes)?));
    }
    exchange(world, &both(&whole), &parts)
}

fn checked(world: &World<Equipped>) -> Verdict {
    let whole = Pair::of(world)?.one_buffer(BYTES)?;
    let bad = [
        (0, 0),
        (0, 6),
        (2, 4),
        (BYTES, 4),
        (BYTES - 4, 8),
        (4, u64::MAX - 3),
        (u64::MAX - 3, 8),
    ];
    for (offset, bytes) in bad {
        let views = [whole.left(), whole.right()].map(|memory| memory.view(offset, bytes));
        let refused = views.map(|view| view.map(drop));
        for refused in refused
            .into_iter()
            .chain([whole.view(offset, bytes).map(drop)])
        {
            check_error!(
                refused,
                Error::Unsupported { asked, .. }
                    if asked.contains(&offset.to_string()) && asked.contains(&bytes.to_string())
            );
        }
    }
    check_eq!(whole.view(0, BYTES)?.size(), BYTES);
    Ok(())
}

/// A copy within one allocation is made if the regions are apart, and refused if not.
fn overlapping(world: &World<Equipped>) -> Verdict {
    let pair = Pair::of(world)?;
    let whole = pair.one_buffer(BYTES)?;
    let line = pair.line("line")?;
    let sides = pair.queues.iter().zip(both(&whole)).zip(pair.devices());
    for (value, ((queue, memory), device)) in (1..).zip(sides) {
        let copies = |from: u64, to: u64| -> syncline::Result<_> {
            Ok(copying_natively(
                memory.view(from, 64)?,
                memory.view(to, 64)?,
            ))
        };
        for (from, to) in [(0, 0), (0, 60), (60, 0)] {
            check_error!(
                queue.submit(&[], copies(from, to)?, &[]),
                Error::Unsupported { reason, .. } if reason.contains("overlap")
            );
        }
        let (from, all, apart) = (memory.view(0, 64)?, memory.clone(), copies(0, 64)?);
        let work = move |recorder: &mut Recorder<'_>| {
            fill(recorder, &all, 3)?;
            fill(recorder, &from, value as u32)?;
            apart(recorder)
        };
        queue.submit(&[line.at(value - 1)], work, &[line.signal_at(value)])?;
        let target = device.buffer(32)?;
        let read = copying(&memory.view(64, 128)?, &target);
        queue
            .submit(&[line.at(value)], read, &[])?
            .end()
            .wait(patience())?;
        check_eq!(
            Equipped::read(&target),
            [[value as u32; 16], [3; 16]].concat()
        );
    }
    Ok(())
}

/// As an application copies, which calls the recorder itself.
fn copying_natively(
    from: Buffer,
    to: Buffer,
) -> impl FnOnce(&mut Recorder<'_>) -> syncline::Result<()> + Send + 'static {
    move |recorder| recorder.copy(&from, &to)
}

/// Ranges of both sides come and go. Some are used by submissions, which keep them.
fn many(world: &World<Equipped>) -> Verdict {
    const MANY: u64 = 10_000;
    const USED: u64 = 500;
    let pair = Pair::of(world)?;
    let whole = pair.one_buffer(BYTES)?;
    grows_nothing(|| {
        for nth in 0..MANY {
            let range = whole.view(4 * (nth % (BYTES / 8)), BYTES / 2)?;
            let part = range.view(4, 64)?;
            drop(range);
            check_eq!(part.size(), 64);
            if nth % USED == 0 {
                for (queue, memory) in pair.queues.iter().zip(both(&part)) {
                    queue.submit(&[], filling(&memory, nth as u32), &[])?;
                    queue.idle(patience())?;
                }
            }
        }
        Ok(())
    })
}

#[cfg(not(feature = "vulkan"))]
mod application {
    use super::*;

    pub(super) fn shared(_: &World<Equipped>) -> Verdict {
        Stop::skip("only Vulkan's memory is adopted")
    }

    pub(super) fn overlapping(world: &World<Equipped>) -> Verdict {
        shared(world)
    }
}

#[cfg(feature = "vulkan")]
mod application {
    use std::sync::Arc;

    use super::*;
    use crate::arena::Arena;
    use crate::case::check;
    use crate::cases::let_go;
    use syncline::backend::Device as _;
    use syncline::vulkan;

    /// The side of the pair that is Vulkan's, and its device, if that exports memory.
    fn exporter(world: &World<Equipped>) -> Result<(usize, &vulkan::Device), Stop> {
        let (side, device) = match (world.left.library(), world.right.library()) {
            (syncline::Device::Vulkan(device), _) => (0, device),
            (_, syncline::Device::Vulkan(device)) => (1, device),
            _ => return Stop::skip("only Vulkan's memory is adopted"),
        };
        let kind = &syncline::handle::HandleKind::MemoryOpaqueFd;
        if !device.info().capabilities.exports.contains(kind) {
            return Stop::skip("the device exports no memory");
        }
        Ok((side, device))
    }

    /// The other side's buffers for those of the application.
    fn imported(
        world: &World<Equipped>,
        buffers: &[vulkan::Buffer],
    ) -> Result<Vec<SharedBuffer>, Stop> {
        match Pair::of(world)?.link.share_buffers(buffers) {
            Err(Error::CannotShare { what: "memory", .. }) => {
                Stop::skip("the other device imports no memory of this one")
            }
            other => Ok(other?),
        }
    }

    /// One submission uses two `VkBuffer`s that have bytes in common.
    ///
    /// It acquires those once, and releases them once. A driver need not notice it. The software
    /// layer does.
    pub(super) fn overlapping(world: &World<Equipped>) -> Verdict {
        const HALF: u64 = BYTES / 2;
        let (side, device) = exporter(world)?;
        let adopted = Arc::new(Arena::new(device)?).adopt()?;
        let shared = imported(world, &adopted[..1])?.remove(0);
        let at = adopted[0].offset_in_allocation() + HALF;
        let behind = adopted[0].allocation();
        let behind = behind.buffer(at, HALF, vulkan::ash::vk::BufferUsageFlags::empty())?;
        let two = [Buffer::Vulkan(adopted[0].clone()), Buffer::Vulkan(behind)];
        let pair = Pair::of(world)?;
        let (own, other) = (&pair.queues[side], &pair.queues[1 - side]);
        let theirs = &both(&shared)[1 - side];
        let line = pair.line("line")?;
        for round in 0..4_u64 {
            let (first, value) = (10 * round as u32, 3 * round);
            let signal = |step| [line.signal_at(value + step)];
            let memory = two.clone();
            let fills = move |recorder: &mut Recorder<'_>| {
                fill(recorder, &memory[0], first + 1)?;
                fill(recorder, &memory[1], first + 2)
            };
            own.submit(&[line.at(value)], fills, &signal(1))?;
            // The other side overwrites a word of each half.
            let words = [theirs.view(4, 4)?, theirs.view(HALF + 4, 4)?];
            let fills = move |recorder: &mut Recorder<'_>| {
                words
                    .iter()
                    .try_for_each(|word| fill(recorder, word, first + 3))
            };
            other.submit(&[line.at(value + 1)], fills, &signal(2))?;
            let seen = [BYTES, HALF].map(|bytes| pair.devices()[side].buffer(bytes as usize / 4));
            let [whole, half] = seen;
            let seen = [whole?, half?];
            let (memory, to) = (two.clone(), seen.clone());
            // The smaller one first, in every other round.
            let smaller = round as usize % 2;
            let copies = move |recorder: &mut Recorder<'_>| {
                let mut order = [smaller, 1 - smaller].into_iter();
                order.try_for_each(|one| copy(recorder, &memory[one], &to[one]))
            };
            own.submit(&[line.at(value + 2)], copies, &signal(3))?;
            line.at(value + 3).wait(patience())?;
            let (whole, behind) = (Equipped::read(&seen[0]), Equipped::read(&seen[1]));
            let half = HALF as usize / 4;
            let found = [&whole[..3], &whole[half..half + 3], &behind[..3]];
            let [own, other] = [first + 1, first + 2].map(|own| [own, first + 3, own]);
            check_eq!(found, [own, other, other], "round {round}");
            check!(behind == whole[half..]);
        }
        Ok(())
    }

    /// Both sides use two buffers of the application's, at their offsets. Its memory is kept.
    pub(super) fn shared(world: &World<Equipped>) -> Verdict {
        let (side, device) = exporter(world)?;
        let arena = Arc::new(Arena::new(device)?);
        let is_dropped = Arc::downgrade(&arena);
        let adopted = arena.adopt()?;
        let shared = imported(world, &adopted)?;
        drop(adopted);
        let [left, right] = Pair::of(world)?.queues;
        for (one, other) in [(0, 1), (1, 0)] {
            let used = both(&shared[one]);
            // The other buffer keeps what it has.
            left.submit(&[], filling(shared[other].left(), 5), &[])?;
            left.idle(patience())?;
            exchange(world, &used, &parts(&used)?)?;
            let target = world.right.buffer(BYTES as usize / 4)?;
            right.submit(&[], copying(shared[other].right(), &target), &[])?;
            right.idle(patience())?;
            filled::<Equipped>(&target, 5, "the other buffer")?;
        }
        // A view of the importer alone keeps the memory, too.
        let importer = both(&shared[1])[1 - side].clone();
        drop(shared);
        check!(is_dropped.strong_count() > 0);
        drop(importer);
        let_go(&is_dropped)
    }
}
