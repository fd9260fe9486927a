//! X8, D4, E5: ranges of shared memory, and memory that the application has allocated.

use syncline::{Buffer, Error, SharedBuffer};

use super::bridge::{copy, fill};
use crate::case::{Stop, Verdict, check, check_error};
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

/// A buffer of both sides, which is one allocation.
fn one_buffer(world: &World<Equipped>) -> Result<SharedBuffer, Stop> {
    let link = super::linked(world.left.library(), world.right.library());
    match link.buffer_or_relay(BYTES)? {
        shared if shared.is_relayed() => Stop::skip("the two have no memory in common"),
        shared => Ok(shared),
    }
}

/// What each word of a buffer should be, if `base` is where no range is.
pub(super) fn expected(base: u32, first: u32) -> Vec<u32> {
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

/// One side writes ranges, the other side reads the whole, and the other way round.
///
/// `whole` and `parts` are views of the same memory.
pub(super) fn exchange(
    world: &World<Equipped>,
    whole: &Both,
    parts: &[Both],
    expected: impl Fn(u32, u32) -> Vec<u32>,
) -> Verdict {
    let link = super::linked(world.left.library(), world.right.library());
    let line = world.left.own(link.timeline("line")?);
    let words = whole[0].size() as usize / 4;
    let sides = [
        (world.left_queue("left")?, &world.left),
        (world.right_queue("right")?, &world.right),
    ];
    let side_of = |of: &Both, side: usize| of[side].clone();
    for round in 0..4_u64 {
        let (writer, reader) = (round as usize % 2, (round as usize + 1) % 2);
        let (base, first) = (100 * round as u32 + 7, 100 * round as u32 + 11);
        let memory = side_of(whole, writer);
        let ranges: Vec<_> = parts.iter().map(|part| side_of(part, writer)).collect();
        let fills = move |recorder: &mut syncline::Recorder<'_>| {
            fill(recorder, &memory, base)?;
            for (value, range) in (first..).zip(&ranges) {
                fill(recorder, range, value)?;
            }
            Ok(())
        };
        let (queue, _) = &sides[writer];
        queue.submit(&[], fills, &[line.signal_at(2 * round + 1)])?;
        let (queue, device) = &sides[reader];
        let target = device.buffer(words)?;
        let targets = parts
            .iter()
            .map(|part| device.buffer(part[0].size() as usize / 4));
        let targets: Vec<Buffer> = targets.collect::<syncline::Result<_>>()?;
        let pairs = parts
            .iter()
            .map(|part| side_of(part, reader))
            .zip(targets.clone());
        let pairs: Vec<_> = pairs.collect();
        let (from, to) = (side_of(whole, reader), target.clone());
        let copies = move |recorder: &mut syncline::Recorder<'_>| {
            // A part that is acquired before the whole is not acquired again.
            if first % 200 > 100 {
                copy(recorder, &from, &to)?;
            }
            for (from, to) in &pairs {
                copy(recorder, from, to)?;
            }
            copy(recorder, &from, &to)
        };
        let signals = [line.signal_at(2 * round + 2)];
        queue.submit(&[line.at(2 * round + 1)], copies, &signals)?;
        line.at(2 * round + 2).wait(patience())?;
        let (found, expected) = (Equipped::read(&target), expected(base, first));
        let wrong = found
            .iter()
            .zip(&expected)
            .position(|(one, two)| one != two);
        check!(
            wrong.is_none(),
            "round {round}: word {wrong:?} is {:?}",
            wrong.map(|index| (found[index], expected[index]))
        );
        for (value, range) in (first..).zip(&targets) {
            let found = Equipped::read(range);
            check!(
                found.iter().all(|&word| word == value),
                "round {round}: a range reads {:?} instead of {value}",
                found.first()
            );
        }
    }
    Ok(())
}

fn same_bytes(world: &World<Equipped>) -> Verdict {
    let whole = one_buffer(world)?;
    let mut parts = Vec::new();
    for (offset, bytes) in RANGES {
        // A range of a range, where that is not the whole.
        let outer = whole.view(offset - offset % 8, bytes + offset % 8)?;
        parts.push(both(&outer.view(offset % 8, bytes)?));
    }
    exchange(world, &both(&whole), &parts, expected)
}

fn checked(world: &World<Equipped>) -> Verdict {
    let whole = one_buffer(world)?;
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
        let is_told =
            |asked: &str| asked.contains(&offset.to_string()) && asked.contains(&bytes.to_string());
        check_error!(
            whole.view(offset, bytes),
            Error::Unsupported { asked, .. } if is_told(&asked)
        );
        for memory in [whole.left(), whole.right()] {
            check_error!(
                memory.view(offset, bytes),
                Error::Unsupported { asked, .. } if is_told(&asked)
            );
        }
    }
    let whole_again = whole.view(0, BYTES)?;
    check!(whole_again.size() == BYTES, "it is another size");
    Ok(())
}

/// A copy within one allocation is made if the regions are apart, and refused if not.
fn overlapping(world: &World<Equipped>) -> Verdict {
    let whole = one_buffer(world)?;
    let link = super::linked(world.left.library(), world.right.library());
    let line = world.left.own(link.timeline("line")?);
    const WORDS: usize = 32;
    let sides = [
        (world.left_queue("left")?, whole.left(), &world.left),
        (world.right_queue("right")?, whole.right(), &world.right),
    ];
    let mut value = 0;
    for (queue, memory, device) in &sides {
        let copies = |from: (u64, u64), to: (u64, u64)| -> Result<_, Stop> {
            let (from, to) = (memory.view(from.0, from.1)?, memory.view(to.0, to.1)?);
            Ok(move |recorder: &mut syncline::Recorder<'_>| recorder.copy(&from, &to))
        };
        for (from, to) in [((0, 64), (0, 64)), ((0, 64), (60, 64)), ((60, 64), (0, 64))] {
            check_error!(
                queue.submit(&[], copies(from, to)?, &[]),
                Error::Unsupported { reason, .. } if reason.contains("overlap")
            );
        }
        value += 1;
        let (from, all) = (memory.view(0, 64)?, (*memory).clone());
        let apart = copies((0, 64), (64, 64))?;
        let work = move |recorder: &mut syncline::Recorder<'_>| {
            fill(recorder, &all, 3)?;
            fill(recorder, &from, value as u32)?;
            apart(recorder)
        };
        queue.submit(&[line.at(value - 1)], work, &[line.signal_at(value)])?;
        let target = device.buffer(WORDS)?;
        let (from, to) = (memory.view(64, 4 * WORDS as u64)?, target.clone());
        let work = move |recorder: &mut syncline::Recorder<'_>| copy(recorder, &from, &to);
        queue
            .submit(&[line.at(value)], work, &[])?
            .end()
            .wait(patience())?;
        let words = Equipped::read(&target);
        let expected = [[value as u32; 16], [3; 16]].concat();
        check!(words == expected, "the copy beside reads {words:?}");
    }
    Ok(())
}

const MANY: u64 = 10_000;

/// Ranges of both sides come and go. Some are used by submissions, which keep them.
fn many(world: &World<Equipped>) -> Verdict {
    const USED: u64 = 500;
    let whole = one_buffer(world)?;
    let queues = [world.left_queue("left")?, world.right_queue("right")?];
    grows_nothing(|| {
        for nth in 0..MANY {
            let offset = 4 * (nth % (BYTES / 8));
            let range = whole.view(offset, BYTES / 2)?;
            let part = range.view(4, 64)?;
            drop(range);
            check!(part.size() == 64, "a range has {} bytes", part.size());
            if nth % USED == 0 {
                for (queue, memory) in queues.iter().zip([part.left(), part.right()]) {
                    let memory = memory.clone();
                    let work = move |recorder: &mut syncline::Recorder<'_>| {
                        fill(recorder, &memory, nth as u32)
                    };
                    queue.submit(&[], work, &[])?;
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
    use crate::arena::{Arena, wait_until_dropped};
    use syncline::backend::Device as _;
    use syncline::vulkan;

    /// The Vulkan device of the pair, if it exports memory.
    fn exporter(world: &World<Equipped>) -> Result<&vulkan::Device, Stop> {
        let device = match (world.left.library(), world.right.library()) {
            (syncline::Device::Vulkan(device), _) | (_, syncline::Device::Vulkan(device)) => device,
            _ => return Stop::skip("only Vulkan's memory is adopted"),
        };
        let kind = &syncline::handle::HandleKind::MemoryOpaqueFd;
        if !device.info().capabilities.exports.contains(kind) {
            return Stop::skip("the device exports no memory");
        }
        Ok(device)
    }

    /// The other side's buffers for those of the application.
    fn imported(
        world: &World<Equipped>,
        buffers: &[vulkan::Buffer],
    ) -> Result<Vec<SharedBuffer>, Stop> {
        let link = super::super::linked(world.left.library(), world.right.library());
        match link.share_buffers(buffers) {
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
        let device = exporter(world)?;
        let adopted = Arc::new(Arena::new(device)?).adopt()?;
        let shared = imported(world, &adopted[..1])?.remove(0);
        let at = adopted[0].offset_in_allocation() + HALF;
        let behind = adopted[0].allocation();
        let behind = behind.buffer(at, HALF, vulkan::ash::vk::BufferUsageFlags::empty())?;
        let both = [Buffer::Vulkan(adopted[0].clone()), Buffer::Vulkan(behind)];
        let is_left =
            matches!(world.left.library(), syncline::Device::Vulkan(of) if of.id() == device.id());
        let (queues, other) = match is_left {
            true => (
                [world.left_queue("own")?, world.right_queue("other")?],
                shared.right(),
            ),
            false => (
                [world.right_queue("own")?, world.left_queue("other")?],
                shared.left(),
            ),
        };
        let link = super::super::linked(world.left.library(), world.right.library());
        let line = world.left.own(link.timeline("line")?);
        for round in 0..4_u64 {
            let first = 10 * round as u32;
            let (own, fills) = (both.clone(), (first + 1, first + 2));
            let work = move |recorder: &mut syncline::Recorder<'_>| {
                fill(recorder, &own[0], fills.0)?;
                fill(recorder, &own[1], fills.1)
            };
            queues[0].submit(
                &[line.at(3 * round)],
                work,
                &[line.signal_at(3 * round + 1)],
            )?;
            // The other side overwrites a word of each half.
            let words = [4, HALF + 4].map(|offset| other.view(offset, 4));
            let words = words.into_iter().collect::<syncline::Result<Vec<_>>>()?;
            let work = move |recorder: &mut syncline::Recorder<'_>| {
                words
                    .iter()
                    .try_for_each(|word| fill(recorder, word, first + 3))
            };
            queues[1].submit(
                &[line.at(3 * round + 1)],
                work,
                &[line.signal_at(3 * round + 2)],
            )?;
            let side = if is_left { &world.left } else { &world.right };
            let seen = [
                side.buffer(BYTES as usize / 4)?,
                side.buffer(HALF as usize / 4)?,
            ];
            let (own, to) = (both.clone(), seen.clone());
            let work = move |recorder: &mut syncline::Recorder<'_>| {
                // The smaller one first, in every other round.
                let order = if round.is_multiple_of(2) {
                    [0, 1]
                } else {
                    [1, 0]
                };
                order
                    .iter()
                    .try_for_each(|&one| copy(recorder, &own[one], &to[one]))
            };
            queues[0].submit(
                &[line.at(3 * round + 2)],
                work,
                &[line.signal_at(3 * round + 3)],
            )?;
            line.at(3 * round + 3).wait(patience())?;
            let (whole, behind) = (Equipped::read(&seen[0]), Equipped::read(&seen[1]));
            let half = HALF as usize / 4;
            let found = [&whole[..3], &whole[half..half + 3], &behind[..3]];
            let [own, other] = [first + 1, first + 2].map(|own| [own, first + 3, own]);
            check!(
                found == [own, other, other] && behind == whole[half..],
                "round {round}: the buffers begin with {found:?}"
            );
        }
        Ok(())
    }

    /// Both sides use two buffers of the application's, at their offsets. Its memory is kept.
    pub(super) fn shared(world: &World<Equipped>) -> Verdict {
        let device = exporter(world)?;
        let arena = Arc::new(Arena::new(device)?);
        let is_dropped = Arc::downgrade(&arena);
        let adopted = arena.adopt()?;
        let shared = imported(world, &adopted)?;
        drop(adopted);
        for (one, other) in [(0, 1), (1, 0)] {
            let mut parts = Vec::new();
            for (offset, bytes) in RANGES {
                parts.push(both(&shared[one].view(offset, bytes)?));
            }
            // The other buffer keeps what it has.
            fill_both(world, &shared[other], 5)?;
            exchange(world, &both(&shared[one]), &parts, expected)?;
            check_all(world, &shared[other], 5)?;
        }
        // A view of the importer alone keeps the memory, too.
        let importer = match world.left.library() {
            syncline::Device::Vulkan(of) if of.id() == device.id() => shared[1].right().clone(),
            _ => shared[1].left().clone(),
        };
        drop(shared);
        check!(
            is_dropped.strong_count() > 0,
            "the memory of a view is gone"
        );
        drop(importer);
        wait_until_dropped(&is_dropped)
    }

    fn fill_both(world: &World<Equipped>, buffer: &SharedBuffer, value: u32) -> Verdict {
        let queue = world.left_queue("fills")?;
        let memory = buffer.left().clone();
        queue.submit(&[], move |recorder| fill(recorder, &memory, value), &[])?;
        queue.idle(patience())?;
        Ok(())
    }

    fn check_all(world: &World<Equipped>, buffer: &SharedBuffer, value: u32) -> Verdict {
        let queue = world.right_queue("reads")?;
        let target = world.right.buffer(buffer.size() as usize / 4)?;
        let (from, to) = (buffer.right().clone(), target.clone());
        queue.submit(&[], move |recorder| copy(recorder, &from, &to), &[])?;
        queue.idle(patience())?;
        let words = Equipped::read(&target);
        let wrong = words.iter().position(|&word| word != value);
        check!(
            wrong.is_none(),
            "word {wrong:?} of the other buffer has changed"
        );
        Ok(())
    }
}
