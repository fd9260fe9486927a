//! Which device owns shared memory, by the acquires and releases of its command buffers.
//!
//! One view per `VkDevice`: a range is owned here or not. Each submission is checked against it in
//! the order of submission, which is that of execution: the software drivers have one queue.
//! Images are followed as a whole ([`crate::image_ownership`]).
//! See *External Resource Sharing* and *Queue Family Ownership Transfer* in the specification.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

use ash::vk;

use crate::bug::Bug;
use crate::image_ownership::{Image, ImageAction};
use crate::table::lock;

/// The owner of a range of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// No command that the layer follows tells.
    Unknown,
    /// Another API or another `VkDevice`. A batch of this device has released it, or none.
    Others { released: Option<u64> },
    /// This device. A batch has acquired it, or a use has taken it.
    Here {
        acquired: Option<u64>,
        is_written: bool,
    },
}

/// What a command does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A transfer from `VK_QUEUE_FAMILY_EXTERNAL` or `VK_QUEUE_FAMILY_FOREIGN_EXT`.
    Acquire,
    /// A transfer to one of them.
    Release,
    Read,
    Write,
}

/// A misuse of a range or an image, which fails the submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Misuse {
    Range {
        action: Action,
        memory: vk::DeviceMemory,
        range: Range<u64>,
        wrong: Wrong,
    },
    Image {
        action: ImageAction,
        image: vk::Image,
        wrong: Wrong,
    },
}

/// What is wrong with an action, as a part of a sentence about the range or the image.
pub(crate) type Wrong = &'static str;

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range {
                action,
                memory,
                range: Range { start, end },
                wrong,
            } => write!(
                f,
                "it {} bytes {start}..{end} of VkDeviceMemory {memory:?}, {wrong}",
                action.does()
            ),
            Self::Image {
                action,
                image,
                wrong,
            } => {
                let (does, from) = match action {
                    ImageAction::Barrier { transfer, from, .. } => {
                        let does = transfer.map_or("changes the layout of", Action::does);
                        (does, Some(from))
                    }
                    ImageAction::Part | ImageAction::Use => ("copies or clears", None),
                };
                write!(f, "it {does} VkImage {image:?}")?;
                if let Some(from) = from {
                    write!(f, " from layout {from:?}")?;
                }
                write!(f, ", {wrong}")
            }
        }
    }
}

impl Action {
    const fn does(self) -> &'static str {
        match self {
            Self::Acquire => "acquires",
            Self::Release => "releases",
            Self::Read => "copies from",
            Self::Write => "writes",
        }
    }
}

impl Owner {
    /// Returns the owner after an action of a batch, or what the misuse is.
    ///
    /// A write may take a range that others own: its contents are undefined before, and defined
    /// after. A command that the layer does not follow may have done so, too.
    fn after(self, action: Action, batch: u64) -> Result<Self, Wrong> {
        let (acquired, is_written) = match self {
            Self::Here {
                acquired,
                is_written,
            } => (acquired, is_written),
            _ => (None, false),
        };
        let wrong = match (action, self) {
            (Action::Acquire, _) if is_written => "which this device has written and not released",
            (Action::Acquire, _) if acquired == Some(batch) => {
                "which the same batch has acquired before"
            }
            (Action::Release, Self::Others { released }) if released == Some(batch) => {
                "which the same batch has released before"
            }
            (Action::Read, Self::Others { .. }) => {
                "which this device has released or imported, and not acquired"
            }
            (Action::Acquire, _) => {
                let acquired = Some(batch);
                return Ok(Self::Here {
                    acquired,
                    is_written: false,
                });
            }
            (Action::Release, _) => {
                let released = Some(batch);
                return Ok(Self::Others { released });
            }
            (Action::Read | Action::Write, _) => {
                let is_written = is_written || action == Action::Write;
                return Ok(Self::Here {
                    acquired,
                    is_written,
                });
            }
        };
        Err(wrong)
    }
}

/// Shared memory: the owner of each range, with the end of the range.
#[derive(Debug, Clone)]
struct Memory {
    ranges: Vec<(u64, Owner)>,
    is_imported: bool,
    /// The host may have taken ownership through a mapping.
    is_mapped: bool,
}

impl Memory {
    fn change(
        &mut self,
        range: &Range<u64>,
        change: impl Fn(Owner) -> Result<Owner, Wrong>,
    ) -> Result<(), Wrong> {
        let mut ranges: Vec<(u64, Owner)> = Vec::with_capacity(self.ranges.len() + 2);
        let mut push = |end: u64, owner: Owner| match ranges.last_mut() {
            Some((last, _)) if end <= *last => {}
            Some((last, same)) if *same == owner => *last = end,
            _ if end > 0 => ranges.push((end, owner)),
            _ => {}
        };
        let mut start = 0;
        for &(end, owner) in &self.ranges {
            let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
            push(from, owner);
            if from < to {
                push(to, change(owner)?);
            }
            push(end, owner);
            start = end;
        }
        self.ranges = ranges;
        Ok(())
    }

    /// Forgets that others own ranges, or all owners. Returns what it was before a change.
    fn forget(&mut self, all: bool) -> Option<Self> {
        let is_forgotten = |owner: Owner| match owner {
            Owner::Unknown => false,
            Owner::Others { .. } => true,
            Owner::Here { .. } => all,
        };
        if !self.ranges.iter().any(|&(_, owner)| is_forgotten(owner)) {
            return None;
        }
        let before = self.clone();
        for (_, owner) in &mut self.ranges {
            if is_forgotten(*owner) {
                *owner = Owner::Unknown;
            }
        }
        Some(before)
    }
}

/// What a command buffer does, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Range(vk::DeviceMemory, Range<u64>, Action),
    Image(vk::Image, ImageAction),
    /// A command that may write any memory, such as those of a pipeline.
    AnyWrite,
    /// A transfer of an image that is not followed. It may have memory in common with a buffer.
    AnyTransfer,
}

#[derive(Debug, Clone)]
struct Commands {
    pool: vk::CommandPool,
    steps: Vec<Step>,
}

/// A buffer that can lie in shared memory.
#[derive(Debug, Clone, Copy)]
struct Buffer {
    size: u64,
    memory: vk::DeviceMemory,
    offset: u64,
}

#[derive(Debug, Default)]
struct State {
    memory: HashMap<vk::DeviceMemory, Memory>,
    buffers: HashMap<vk::Buffer, Buffer>,
    images: HashMap<vk::Image, Image>,
    commands: HashMap<vk::CommandBuffer, Commands>,
    /// The number of the last batch.
    batch: u64,
}

/// The shared memory of a device, and its owners.
#[derive(Debug, Default)]
pub(crate) struct Ownership(Mutex<State>);

/// The memory and the images that a submission has changed, as they were before.
#[derive(Debug, Default)]
pub(crate) struct Before {
    memory: Vec<(vk::DeviceMemory, Memory)>,
    images: Vec<(vk::Image, Image)>,
}

impl Before {
    /// Keeps what memory was before its first change.
    fn keep(&mut self, raw: vk::DeviceMemory, was: impl FnOnce() -> Memory) {
        if self.memory.iter().all(|(known, _)| *known != raw) {
            self.memory.push((raw, was()));
        }
    }

    /// Keeps what an image was before its first change.
    fn keep_image(&mut self, raw: vk::Image, was: Image) {
        if self.images.iter().all(|(known, _)| *known != raw) {
            self.images.push((raw, was));
        }
    }
}

impl State {
    fn run(&mut self, step: &Step, before: &mut Before) -> Result<(), Misuse> {
        match step {
            Step::AnyWrite | Step::AnyTransfer => {
                for (&raw, memory) in &mut self.memory {
                    if let Some(was) = memory.forget(*step == Step::AnyTransfer) {
                        before.keep(raw, || was);
                    }
                }
                if *step == Step::AnyWrite {
                    for (&raw, image) in &mut self.images {
                        before.keep_image(raw, *image);
                        image.forget();
                    }
                }
            }
            Step::Image(raw, action) => {
                // Without it the command buffer is invalid.
                let Some(image) = self.images.get_mut(raw) else {
                    return Ok(());
                };
                before.keep_image(*raw, *image);
                *image = image.after(*action).map_err(|wrong| Misuse::Image {
                    action: *action,
                    image: *raw,
                    wrong,
                })?;
                // A buffer may have memory in common with it.
                let is_use = *action == ImageAction::Use;
                if let Some(memory) = self.memory.get_mut(&image.memory).filter(|_| !is_use)
                    && let Some(was) = memory.forget(true)
                {
                    before.keep(image.memory, || was);
                }
            }
            Step::Range(raw, range, action) => {
                // Without it the command buffer is invalid.
                let Some(memory) = self.memory.get_mut(raw) else {
                    return Ok(());
                };
                before.keep(*raw, || memory.clone());
                if memory.is_mapped {
                    memory.forget(false);
                }
                let changed = memory.change(range, |owner| owner.after(*action, self.batch));
                changed.map_err(|wrong| Misuse::Range {
                    action: *action,
                    memory: *raw,
                    range: range.clone(),
                    wrong,
                })?;
            }
        }
        Ok(())
    }

    fn restore(&mut self, before: Before) {
        for (raw, memory) in before.memory {
            self.memory.entry(raw).and_modify(|now| *now = memory);
        }
        for (raw, image) in before.images {
            self.images.entry(raw).and_modify(|now| *now = image);
        }
    }
}

impl Ownership {
    pub(crate) fn add_memory(&self, raw: vk::DeviceMemory, size: u64, is_imported: bool) {
        let owner = match is_imported {
            true => Owner::Others { released: None },
            false => Owner::Unknown,
        };
        let memory = Memory {
            ranges: vec![(size, owner)],
            is_imported,
            is_mapped: false,
        };
        lock(&self.0).memory.insert(raw, memory);
    }

    pub(crate) fn map_memory(&self, raw: vk::DeviceMemory) {
        if let Some(memory) = lock(&self.0).memory.get_mut(&raw) {
            memory.is_mapped = true;
        }
    }

    pub(crate) fn remove_memory(&self, raw: vk::DeviceMemory) {
        lock(&self.0).memory.remove(&raw);
    }

    pub(crate) fn add_buffer(&self, raw: vk::Buffer, size: u64) {
        let buffer = Buffer {
            size,
            memory: vk::DeviceMemory::null(),
            offset: 0,
        };
        lock(&self.0).buffers.insert(raw, buffer);
    }

    pub(crate) fn bind(&self, raw: vk::Buffer, memory: vk::DeviceMemory, offset: u64) {
        if let Some(buffer) = lock(&self.0).buffers.get_mut(&raw) {
            (buffer.memory, buffer.offset) = (memory, offset);
        }
    }

    pub(crate) fn remove_buffer(&self, raw: vk::Buffer) {
        lock(&self.0).buffers.remove(&raw);
    }

    pub(crate) fn add_image(&self, raw: vk::Image, levels: u32, layers: u32) {
        let image = Image::new(levels, layers);
        lock(&self.0).images.insert(raw, image);
    }

    /// Binds an image to shared memory.
    pub(crate) fn bind_image(&self, raw: vk::Image, memory: vk::DeviceMemory) {
        let state = &mut *lock(&self.0);
        let shared = state.memory.get(&memory);
        if let (Some(image), Some(shared)) = (state.images.get_mut(&raw), shared) {
            image.bind(memory, shared.is_imported);
        }
    }

    pub(crate) fn remove_image(&self, raw: vk::Image) {
        lock(&self.0).images.remove(&raw);
    }

    pub(crate) fn add_commands(&self, pool: vk::CommandPool, all: &[vk::CommandBuffer]) {
        let mut state = lock(&self.0);
        for &raw in all {
            let steps = Vec::new();
            state.commands.insert(raw, Commands { pool, steps });
        }
    }

    pub(crate) fn remove_commands(&self, all: &[vk::CommandBuffer]) {
        let mut state = lock(&self.0);
        for raw in all {
            state.commands.remove(raw);
        }
    }

    pub(crate) fn remove_pool(&self, pool: vk::CommandPool) {
        let mut state = lock(&self.0);
        state.commands.retain(|_, commands| commands.pool != pool);
    }

    /// Begins a command buffer. A reset one is not submitted before that.
    pub(crate) fn begin(&self, raw: vk::CommandBuffer) {
        if let Some(commands) = lock(&self.0).commands.get_mut(&raw) {
            commands.steps.clear();
        }
    }

    /// Notes what a command does with a range of a buffer, if that is in shared memory.
    pub(crate) fn note(
        &self,
        raw: vk::CommandBuffer,
        buffer: vk::Buffer,
        offset: u64,
        size: u64,
        action: Action,
    ) {
        let state = &mut *lock(&self.0);
        let Some(buffer) = state.buffers.get(&buffer) else {
            return;
        };
        if action == Action::Release && Bug::OwnershipNotReleased.is_planted() {
            return;
        }
        let size = size.min(buffer.size.saturating_sub(offset));
        let start = buffer.offset + offset;
        let step = Step::Range(buffer.memory, start..start + size, action);
        if let Some(commands) = state.commands.get_mut(&raw) {
            commands.steps.push(step);
        }
    }

    /// Notes what a barrier does with an image.
    pub(crate) fn note_barrier(
        &self,
        raw: vk::CommandBuffer,
        image: vk::Image,
        transfer: Option<Action>,
        layouts: (vk::ImageLayout, vk::ImageLayout),
        range: &vk::ImageSubresourceRange,
    ) {
        let followed = lock(&self.0).images.get(&image).copied();
        let step = match followed {
            Some(followed) => ImageAction::of_barrier(&followed, transfer, layouts, range)
                .map(|action| Step::Image(image, action)),
            None => transfer.map(|_| Step::AnyTransfer),
        };
        if let Some(step) = step {
            self.push(raw, step);
        }
    }

    /// Notes a copy or a clear of an image.
    pub(crate) fn note_use(&self, raw: vk::CommandBuffer, image: vk::Image) {
        self.push(raw, Step::Image(image, ImageAction::Use));
    }

    /// Notes a command that may write any memory.
    pub(crate) fn note_any_write(&self, raw: vk::CommandBuffer) {
        self.push(raw, Step::AnyWrite);
    }

    fn push(&self, raw: vk::CommandBuffer, step: Step) {
        let is_any = matches!(step, Step::AnyWrite | Step::AnyTransfer);
        if let Some(commands) = lock(&self.0).commands.get_mut(&raw)
            && (!is_any || commands.steps.last() != Some(&step))
        {
            commands.steps.push(step);
        }
    }

    /// Notes that a command buffer executes secondary ones.
    pub(crate) fn execute(&self, raw: vk::CommandBuffer, secondary: &[vk::CommandBuffer]) {
        let state = &mut *lock(&self.0);
        let steps = secondary.iter().filter_map(|one| state.commands.get(one));
        let steps: Vec<_> = steps.flat_map(|one| one.steps.clone()).collect();
        if let Some(commands) = state.commands.get_mut(&raw) {
            commands.steps.extend(steps);
        }
    }

    /// Follows the command buffers of each batch. A misuse changes nothing.
    pub(crate) fn submit<'b>(
        &self,
        batches: impl Iterator<Item: IntoIterator<Item = vk::CommandBuffer> + 'b>,
    ) -> Result<Before, Misuse> {
        let state = &mut *lock(&self.0);
        let mut before = Before::default();
        for batch in batches {
            state.batch += 1;
            for raw in batch {
                let Some(commands) = state.commands.get_mut(&raw) else {
                    continue;
                };
                let steps = std::mem::take(&mut commands.steps);
                let mut all = steps.iter();
                let done = all.try_for_each(|step| state.run(step, &mut before));
                if let Some(commands) = state.commands.get_mut(&raw) {
                    commands.steps = steps;
                }
                if let Err(misuse) = done {
                    state.restore(before);
                    return Err(misuse);
                }
            }
        }
        Ok(before)
    }

    /// Undoes a submission that the driver has refused.
    pub(crate) fn undo(&self, before: Before) {
        lock(&self.0).restore(before);
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::Handle as _;

    use super::*;
    use Action::{Acquire, Read, Release, Write};

    /// The beginnings and ends of two ranges that overlap, and of the whole.
    const LEFT: (u64, u64) = (0, 64);
    const RIGHT: (u64, u64) = (32, 100);
    const ALL: (u64, u64) = (0, vk::WHOLE_SIZE);

    /// What one command of a command buffer does. `None` is a command that is not followed.
    type Command = Option<((u64, u64), Action)>;

    /// Memory of 100 bytes behind 8 others, with one buffer and one command buffer.
    struct Device(Ownership);

    impl Device {
        fn new(is_imported: bool) -> Self {
            let ownership = Ownership::default();
            ownership.add_memory(vk::DeviceMemory::from_raw(1), 108, is_imported);
            ownership.add_buffer(vk::Buffer::from_raw(2), 100);
            ownership.bind(vk::Buffer::from_raw(2), vk::DeviceMemory::from_raw(1), 8);
            ownership.add_commands(vk::CommandPool::from_raw(3), &[Self::commands()]);
            Self(ownership)
        }

        fn commands() -> vk::CommandBuffer {
            vk::CommandBuffer::from_raw(4)
        }

        fn record(&self, all: &[Command]) {
            self.0.begin(Self::commands());
            for one in all {
                let Some(((start, end), action)) = *one else {
                    self.0.note_any_write(Self::commands());
                    continue;
                };
                let size = if end == vk::WHOLE_SIZE {
                    end
                } else {
                    end - start
                };
                let buffer = vk::Buffer::from_raw(2);
                self.0.note(Self::commands(), buffer, start, size, action);
            }
        }

        fn submit(&self, all: &[Command]) -> Result<Before, String> {
            self.record(all);
            let submitted = self.0.submit([[Self::commands()]].into_iter());
            submitted.map_err(|misuse| misuse.to_string())
        }
    }

    const fn does(action: Action, range: (u64, u64)) -> Command {
        Some((range, action))
    }

    #[test]
    fn correct_submissions_pass() {
        let programs: [(bool, &[&[Command]]); 8] = [
            // A frame of an exporter, again and again, and then in one batch.
            (
                false,
                &[
                    &[
                        does(Acquire, ALL),
                        does(Write, LEFT),
                        does(Read, RIGHT),
                        does(Release, ALL),
                    ],
                    &[does(Acquire, ALL), does(Write, ALL), does(Release, ALL)],
                    &[
                        does(Acquire, LEFT),
                        does(Write, LEFT),
                        does(Release, LEFT),
                        does(Acquire, ALL),
                        does(Read, ALL),
                        does(Release, ALL),
                    ],
                ],
            ),
            // The maker takes its new memory without an acquire, and releases it later.
            (
                false,
                &[&[does(Read, LEFT), does(Write, ALL)], &[does(Release, ALL)]],
            ),
            // A reader that keeps nothing releases nothing, because others overwrite all.
            (
                true,
                &[
                    &[does(Acquire, ALL), does(Read, ALL)],
                    &[does(Acquire, ALL)],
                ],
            ),
            // A write of all that is there needs no acquire.
            (
                true,
                &[&[does(Write, ALL), does(Read, ALL), does(Release, ALL)]],
            ),
            // Ranges are on their own.
            (
                true,
                &[
                    &[
                        does(Acquire, (0, 32)),
                        does(Write, (0, 32)),
                        does(Acquire, (32, 100)),
                    ],
                    &[
                        does(Release, (32, 100)),
                        does(Read, (0, 32)),
                        does(Release, (0, 32)),
                    ],
                ],
            ),
            // A shader may have written the memory.
            (true, &[&[None, does(Read, ALL), does(Release, ALL)]]),
            (true, &[&[does(Release, ALL)], &[None], &[does(Read, ALL)]]),
            // Nothing that the layer follows came between, but the host may.
            (true, &[&[does(Release, ALL)], &[does(Release, ALL)]]),
        ];
        for (is_imported, submissions) in programs {
            let device = Device::new(is_imported);
            for submission in submissions {
                let submitted = device.submit(submission);
                assert!(submitted.is_ok(), "{submission:?}: {submitted:?}");
            }
        }
    }

    #[test]
    fn misuse_fails_and_changes_nothing() {
        let programs: [(bool, &[Command], &[Command], &str); 6] = [
            (
                false,
                &[does(Acquire, ALL), does(Write, LEFT)],
                &[does(Acquire, RIGHT)],
                "it acquires bytes 40..108 of 1, which this device has written and not released",
            ),
            (
                true,
                &[does(Write, (96, 100))],
                &[does(Acquire, ALL)],
                "it acquires bytes 8..108 of 1, which this device has written and not released",
            ),
            (
                true,
                &[],
                &[does(Acquire, LEFT), does(Acquire, RIGHT)],
                "it acquires bytes 40..108 of 1, which the same batch has acquired before",
            ),
            (
                true,
                &[does(Acquire, ALL)],
                &[does(Release, LEFT), does(Release, RIGHT)],
                "it releases bytes 40..108 of 1, which the same batch has released before",
            ),
            (
                false,
                &[does(Release, LEFT)],
                &[does(Write, (0, 40)), does(Read, RIGHT)],
                "it copies from bytes 40..108 of 1, which this device has released or imported, \
                 and not acquired",
            ),
            (
                true,
                &[],
                &[does(Read, (0, 4)), None],
                "it copies from bytes 8..12 of 1, which this device has released or imported, \
                 and not acquired",
            ),
        ];
        for (is_imported, first, second, expected) in programs {
            let device = Device::new(is_imported);
            assert!(device.submit(first).is_ok(), "{first:?}");
            for _ in 0..2 {
                let told = device.submit(second).expect_err("a misuse passes");
                assert_eq!(told.replace("VkDeviceMemory 0x1", "1"), expected);
            }
        }
    }

    #[test]
    fn a_submission_that_the_driver_refuses_is_undone() {
        let device = Device::new(true);
        let before = device.submit(&[does(Acquire, LEFT), does(Write, LEFT)]);
        device.0.undo(before.unwrap_or_default());
        assert!(device.submit(&[does(Read, LEFT)]).is_err());
        assert!(device.submit(&[does(Acquire, ALL)]).is_ok());
    }

    #[test]
    fn secondary_command_buffers_and_mapped_memory_are_followed() {
        let device = Device::new(true);
        let primary = vk::CommandBuffer::from_raw(5);
        let pool = vk::CommandPool::from_raw(3);
        device.0.add_commands(pool, &[primary]);
        device.record(&[does(Read, ALL)]);
        device.0.execute(primary, &[Device::commands()]);
        let submit = || device.0.submit([[primary]].into_iter());
        assert!(submit().is_err());
        device.0.map_memory(vk::DeviceMemory::from_raw(1));
        assert!(submit().is_ok());
        device.0.begin(primary);
        device.0.push(primary, Step::AnyTransfer);
        assert!(submit().is_ok());
        let acquired = device.submit(&[does(Write, ALL)]).is_ok() && submit().is_ok();
        assert!(acquired && device.submit(&[does(Acquire, ALL)]).is_ok());
        device.0.remove_pool(pool);
        device.0.remove_buffer(vk::Buffer::from_raw(2));
        device.0.remove_memory(vk::DeviceMemory::from_raw(1));
        let state = lock(&device.0.0);
        assert!(state.commands.is_empty() && state.buffers.is_empty() && state.memory.is_empty());
    }
}
