//! X10: words of the application's memory, which kernels, streams and the host write.

#![allow(
    unsafe_code,
    reason = "an application's memory and its kernels are raw"
)]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudarc::driver::sys;
use syncline::ErrorKind;
use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{Buffer, Device, Function, Queue, Recorder, Word};
use syncline::{Error, Point, QueueKind, Timeline};

use super::adopted::corrupted;
use super::cuda::{Current, cuda_device, ok, own_context};
use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases};
use crate::cases::{DELAY, until};
use crate::forked::in_child;
use crate::user::{Latch, Stall};
use crate::workload::Equipped;
use crate::{World, patience};

equipped_cases! {
    "word.a_kernel_writes_it": [X10 Q2 Q9] => kernel_writes;
    "word.32_bits_wrap": [X10 T7] => wraps;
    "word.written_in_turn": [X10 T3 Q9] => in_turn;
    "word.300_waiting_queues": [X10 Q2] => crowd;
    "word.the_host_writes_it": [X10 T4] => host_writes;
    "word.others_are_refused": [X10 D4 E5] => refused;
    "word.that_falls_fails": [X10 T1 E1] => falls;
    "word.a_broken_promise_writes_nothing": [X10 T2 E1] => broken;
    "word.others_get_the_signal_of_skipped_work": [X10 E2] => skipped;
    "word.keeps_its_owner": [X10 D4] => keeps;
    "word.a_forked_child_drops_its_copy": [X10 P3 D1] => forked;
}

/// Where the word of a case is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Pinned,
    /// The host cannot read it there.
    Device,
    Registered,
}

/// How wide it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bits {
    Few,
    Many,
}

const ALL: [(Place, Bits); 4] = [
    (Place::Pinned, Bits::Many),
    (Place::Pinned, Bits::Few),
    (Place::Device, Bits::Many),
    (Place::Device, Bits::Few),
];

/// Memory of the application that was registered.
struct Registered {
    words: Box<[AtomicU64; 512]>,
    context: usize,
}

impl Registered {
    fn new(device: &Device) -> Result<Self, Stop> {
        let _current = Current::make(device.raw_context())?;
        let words = Box::new([const { AtomicU64::new(0) }; 512]);
        let at = (&raw const *words).cast_mut().cast::<c_void>();
        // SAFETY: it is unregistered before it is freed.
        let code = unsafe { sys::cuMemHostRegister_v2(at, size_of_val(&*words), 3) };
        ok("cuMemHostRegister", code)?;
        Ok(Self {
            words,
            context: device.raw_context().expose_provenance(),
        })
    }

    fn address(&self) -> u64 {
        (&raw const *self.words).expose_provenance() as u64
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let context = std::ptr::with_exposed_provenance_mut(self.context);
        if let Ok(_current) = Current::make(context) {
            let at = (&raw const *self.words).cast_mut().cast::<c_void>();
            // SAFETY: registered once. No work uses it any more.
            let _ = unsafe { sys::cuMemHostUnregister(at) };
        }
    }
}

/// A word, its timeline, and what writes it.
struct Subject<'w> {
    device: &'w Device,
    line: Timeline,
    /// Set when the owner of the word is dropped.
    dropped: Arc<AtomicBool>,
    address: u64,
    memory: Memory,
    put: Function,
}

/// The memory of the word, and of data beside it.
#[derive(Clone)]
enum Memory {
    Made(Buffer),
    Registered(Arc<Registered>),
}

impl Memory {
    fn make(device: &Device, place: Place) -> Result<Self, Stop> {
        Ok(match place {
            Place::Pinned => Self::Made(device.host_buffer(4096)?),
            Place::Device => Self::Made(device.buffer(4096)?),
            Place::Registered => Self::Registered(Arc::new(Registered::new(device)?)),
        })
    }

    fn address(&self) -> u64 {
        match self {
            Self::Made(buffer) => buffer.pointer(),
            Self::Registered(words) => words.address(),
        }
    }

    /// What the memory shows at the word.
    fn read(&self) -> Result<u64, Stop> {
        Ok(match self {
            Self::Made(buffer) => {
                let words = buffer.view(0, 8)?.read_words()?;
                u64::from(words[0]) | u64::from(words[1]) << 32
            }
            Self::Registered(words) => words.words[0].load(Ordering::Acquire),
        })
    }

    /// Writes it as a thread of the application does.
    fn write(&self, value: u64) -> Verdict {
        match self {
            Self::Made(buffer) => {
                let words = [value as u32, (value >> 32) as u32];
                buffer.view(0, 8)?.write_words(&words)?;
            }
            Self::Registered(words) => words.words[0].store(value, Ordering::Release),
        }
        Ok(())
    }
}

impl<'w> Subject<'w> {
    fn new(
        world: &'w World<Equipped>,
        (place, bits): (Place, Bits),
        reached: u64,
    ) -> Result<Self, Stop> {
        let device = cuda_device(world)?;
        if !device.info().capabilities.stream_memory_ops {
            return Stop::skip("the device's streams do not wait for memory");
        }
        let module = device.module(include_str!("put.ptx"))?;
        let memory = Memory::make(device, place)?;
        memory.write(match bits {
            Bits::Few => u64::from(reached as u32),
            Bits::Many => reached,
        })?;
        let address = memory.address();
        let (word, put) = match bits {
            Bits::Few => (Word::Bits32(address), module.function("put_32")?),
            Bits::Many => (Word::Bits64(address), module.function("put")?),
        };
        let dropped = Arc::<AtomicBool>::default();
        let owner = Arc::new(Kept {
            _memory: memory.clone(),
            dropped: dropped.clone(),
        });
        // SAFETY: the owner keeps the memory. Only promised values are written.
        let line = unsafe { device.adopt_word(word, reached, Some(owner), "word") }?;
        Ok(Self {
            device,
            line,
            dropped,
            address,
            memory,
            put,
        })
    }

    fn queue(&self, label: &str) -> Result<Queue, Stop> {
        Ok(self.device.queue(QueueKind::Compute, label)?)
    }

    /// Promises that others write `value`, which `write` lets begin.
    fn promise(&self, value: u64, write: impl FnOnce() -> Verdict) -> Verdict {
        write()?;
        self.line.signalled_by_others(value)?;
        Ok(())
    }

    /// Launches a kernel that writes `data` beside the word, and then the word.
    fn write_by_kernel(
        &self,
        queue: &Queue,
        waits: &[Point<'_>],
        latch: Option<Latch<Equipped>>,
        (data, value): (u32, u64),
    ) -> Verdict {
        let (put, address) = (self.put.clone(), self.address);
        let kept = self.memory.clone();
        let work = move |recorder: &mut Recorder<'_>| {
            if let Some(latch) = latch {
                latch.block(&mut syncline::Recorder::Cuda(recorder.reborrow()))?;
            }
            if let Memory::Made(buffer) = &kept {
                recorder.keep(Arc::new(buffer.clone()));
            }
            let (mut place, mut word, mut data, mut signal) = (address + 64, address, data, value);
            let mut parameters = [
                (&raw mut place).cast(),
                (&raw mut data).cast(),
                (&raw mut word).cast(),
                (&raw mut signal).cast(),
            ];
            // SAFETY: the kernel takes these. The memory is kept.
            unsafe { recorder.launch(&put, [1; 3], [1; 3], &mut parameters) }
        };
        queue.submit(waits, work, &[])?;
        Ok(())
    }

    /// Promises a value that a kernel writes once `still` is released.
    fn write_later(&self, queue: &Queue, still: &Stall<Equipped>, write: (u32, u64)) -> Verdict {
        let latch = Some(still.latch());
        self.promise(write.1, || self.write_by_kernel(queue, &[], latch, write))
    }

    /// Promises a value that a kernel writes.
    fn write_now(&self, queue: &Queue, waits: &[Point<'_>], write: (u32, u64)) -> Verdict {
        self.promise(write.1, || self.write_by_kernel(queue, waits, None, write))
    }

    /// Checks what the memory shows at the word.
    fn shows(&self, value: u64) -> Verdict {
        check_eq!(self.memory.read()?, value);
        Ok(())
    }

    /// Copies the data beside the word behind `waits`.
    fn copy(&self, queue: &Queue, waits: &[Point<'_>], to: &Buffer) -> Verdict {
        let Memory::Made(buffer) = &self.memory else {
            return Stop::fail("only buffers are copied");
        };
        let (from, to) = (buffer.view(64, 4)?, to.clone());
        queue.submit(waits, move |recorder| recorder.copy(&from, &to), &[])?;
        Ok(())
    }
}

/// The owner of a word.
struct Kept {
    _memory: Memory,
    dropped: Arc<AtomicBool>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
    }
}

fn data(copy: &Buffer) -> Result<u32, Stop> {
    Ok(copy.read_words()?[0])
}

/// A stream waits for a value that a kernel writes. The wait is held until the value is promised.
///
/// A queue without the wait copies what was there before.
fn kernel_writes(world: &World<Equipped>) -> Verdict {
    for which in ALL {
        let subject = Subject::new(world, which, 5)?;
        let (writer, reader, other) = (
            subject.queue("writer")?,
            subject.queue("reader")?,
            subject.queue("other")?,
        );
        // Made before the stall: their drops wait for all work of the context.
        let (copy, early) = (
            subject.device.host_buffer(4)?,
            subject.device.host_buffer(4)?,
        );
        let still = world.left.stall()?;
        subject.copy(&reader, &[subject.line.at(6)], &copy)?;
        check_eq!(reader.held().count, 1, "{which:?}");
        subject.write_later(&writer, &still, (7, 6))?;
        check_eq!(reader.held().count, 0, "{which:?}");
        check!(
            !subject.line.at(6).is_reached()? && subject.line.value()? == 5,
            "{which:?}"
        );
        subject.copy(&other, &[], &early)?;
        other.idle(patience())?;
        check!(data(&early)? != 7, "{which:?}: the kernel did not stall");
        check_error!(reader.idle(DELAY), TimedOut);
        still.release()?;
        subject.line.at(6).wait(patience())?;
        check_eq!(subject.line.value()?, 6, "{which:?}");
        reader.idle(patience())?;
        check_eq!(data(&copy)?, 7, "{which:?}");
        writer.idle(patience())?;
    }
    Ok(())
}

/// A word of 32 bits goes on behind its largest value, and so do waits, writes and the host.
fn wraps(world: &World<Equipped>) -> Verdict {
    const BEFORE: u64 = 0x3_ffff_fffe;
    for place in [Place::Pinned, Place::Device, Place::Registered] {
        let subject = Subject::new(world, (place, Bits::Few), BEFORE)?;
        let (writer, reader) = (subject.queue("writer")?, subject.queue("reader")?);
        let still = world.left.stall()?;
        // From the last value but one past zero, in one step.
        subject.write_later(&writer, &still, (7, BEFORE + 3))?;
        for value in [BEFORE + 1, BEFORE + 2, BEFORE + 3] {
            reader.submit(&[subject.line.at(value)], |_| Ok(()), &[])?;
        }
        check_error!(reader.idle(DELAY), TimedOut);
        still.release()?;
        subject.line.at(BEFORE + 3).wait(patience())?;
        let idle = reader.idle(patience());
        if idle.is_err() {
            // Lets a stream go that does not compare cyclically, so that its memory can be freed.
            subject.memory.write(u64::from(u32::MAX))?;
        }
        idle?;
        let value = subject.line.value()?;
        check!(value == BEFORE + 3, "{place:?}: the value is {value:#x}");
        reader.submit(&[], |_| Ok(()), &[subject.line.signal_at(BEFORE + 4)])?;
        subject.line.at(BEFORE + 4).wait(patience())?;
        subject.shows(2)?;
        // A stream compares the signed difference.
        let far = BEFORE + 4 + (1 << 31);
        check_error!(
            reader.submit(&[subject.line.at(far)], |_| Ok(()), &[]),
            ValueOutOfRange
        );
        check_error!(subject.line.claim(far), ValueOutOfRange);
        drop(subject.line.claim(far - 1)?);
        writer.idle(patience())?;
    }
    Ok(())
}

/// Kernels and queues write the word in turn, without a wait of the host.
fn in_turn(world: &World<Equipped>) -> Verdict {
    const ROUNDS: u64 = 50;
    for which in ALL {
        let subject = Subject::new(world, which, 0)?;
        let (theirs, ours) = (subject.queue("theirs")?, subject.queue("ours")?);
        let mut copies = Vec::new();
        for round in 0..ROUNDS {
            let (before, written) = (2 * round, 2 * round + 1);
            // Few promised values in device memory may be outstanding.
            subject
                .line
                .at(before.saturating_sub(40))
                .wait(patience())?;
            // Held if the streams have taken many commands. The promise comes after it.
            subject.line.at(before).wait_pending(patience())?;
            let waits = [subject.line.at(before)];
            subject.write_now(&theirs, &waits, (7 + round as u32, written))?;
            let wait = [subject.line.at(written)];
            let copy = subject.device.host_buffer(4)?;
            subject.copy(&ours, &wait, &copy)?;
            copies.push(copy);
            ours.submit(&[], |_| Ok(()), &[subject.line.signal_at(written + 1)])?;
        }
        subject.line.at(2 * ROUNDS).wait(patience())?;
        for (written, copy) in (7..).zip(&copies) {
            check_eq!(data(copy)?, written, "{which:?}");
        }
        subject.shows(2 * ROUNDS)?;
        theirs.idle(patience())?;
    }
    Ok(())
}

/// Many queues wait before the kernel is submitted, and none keeps it from running.
fn crowd(world: &World<Equipped>) -> Verdict {
    const QUEUES: usize = 300;
    let subject = Subject::new(world, (Place::Device, Bits::Many), 0)?;
    let queues = (0..QUEUES).map(|nth| subject.queue(&format!("waiting {nth}")));
    let queues = queues.collect::<Result<Vec<_>, _>>()?;
    for queue in &queues {
        queue.submit(&[subject.line.at(1)], |_| Ok(()), &[])?;
        check_eq!(queue.held().count, 1);
    }
    // The last queue has the kernel. Its stream may share a connection with any other.
    let writer = subject.queue("writer")?;
    subject.write_now(&writer, &[], (7, 1))?;
    for queue in &queues {
        queue.idle(patience())?;
    }
    writer.idle(patience())?;
    check!(subject.line.value()? == 1, "another value came");
    Ok(())
}

/// The host writes a promised value, signals others, and waits for those of streams.
fn host_writes(world: &World<Equipped>) -> Verdict {
    for which in [
        (Place::Pinned, Bits::Many),
        (Place::Pinned, Bits::Few),
        (Place::Registered, Bits::Many),
        (Place::Registered, Bits::Few),
    ] {
        let subject = Subject::new(world, which, 0)?;
        let queue = subject.queue("queue")?;
        let end = queue.submit(&[subject.line.at(1)], |_| Ok(()), &[])?.end();
        subject.promise(1, || Ok(()))?;
        check!(!subject.line.at(1).is_reached()?, "{which:?}");
        check_eq!(queue.held().count, 0, "{which:?}");
        check_error!(queue.idle(DELAY), TimedOut);
        let waited = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| subject.line.at(1).wait(patience()));
            std::thread::sleep(DELAY / 10);
            (subject.memory.write(1), waiting.join())
        });
        check!(
            matches!(waited, (Ok(()), Ok(Ok(())))),
            "{which:?} {waited:?}"
        );
        end.wait(patience())?;
        subject.line.signal(2)?;
        subject.shows(2)?;
        let signals = [subject.line.signal_at(3)];
        queue.submit(&[subject.line.at(2)], |_| Ok(()), &signals)?;
        subject.line.at(3).wait(patience())?;
        subject.shows(3)?;
    }
    // The host cannot write device memory. It says so before anything changes.
    let subject = Subject::new(world, (Place::Device, Bits::Many), 0)?;
    check_error!(subject.line.signal(1), Unsupported);
    let worker = syncline::host::Device::new();
    let worker = worker.queue(QueueKind::Compute, "worker")?;
    check_error!(
        worker.submit(&[], |_| Ok(()), &[subject.line.signal_at(1)]),
        Unsupported
    );
    let queue = subject.queue("queue")?;
    queue.submit(&[], |_| Ok(()), &[subject.line.signal_at(1)])?;
    subject.line.at(1).wait(patience())?;
    Ok(())
}

/// What cannot be a word is refused, with what was asked and the reason.
fn refused(world: &World<Equipped>) -> Verdict {
    let device = cuda_device(world)?;
    if !device.info().capabilities.stream_memory_ops {
        return Stop::skip("the device's streams do not wait for memory");
    }
    let pinned = device.host_buffer(64)?;
    let at = pinned.pointer();
    let freed = device.buffer(64)?.pointer();
    device.free_what_is_due()?;
    let unknown = Box::new([0_u64; 8]);
    let own = own_context(device)?;
    let elsewhere = Device::adopt(&own)?;
    let theirs = elsewhere.buffer(64)?;
    let adopt = |word, reached| {
        // SAFETY: it is refused, or used only while the memory is there.
        unsafe { device.adopt_word(word, reached, None, "word") }
    };
    let not_registered = "was not registered";
    for (word, reason) in [
        (Word::Bits64(at + 4), "no multiple of 8"),
        (Word::Bits32(at + 2), "no multiple of 4"),
        (Word::Bits64(0), not_registered),
        (Word::Bits64(freed), not_registered),
        (Word::Bits32(freed), not_registered),
        (
            Word::Bits64((&raw const *unknown).addr() as u64),
            not_registered,
        ),
    ] {
        let refused = adopt(word, 0).map_err(|error| error.to_string());
        let is_told = |text: &String| text.contains(reason) && text.contains("-bit word at 0x");
        check!(refused.as_ref().is_err_and(is_told), "{word:?} {refused:?}");
    }
    check_error!(adopt(Word::Bits64(theirs.pointer()), 0), WrongDevice);
    let exports = &device.info().capabilities.exports;
    if exports.contains(&syncline::handle::HandleKind::MemoryOpaqueFd) {
        let (shared, _handle) = device.export_buffer(64)?;
        check_error!(
            adopt(Word::Bits64(shared.pointer() + 8), 0),
            Error::Unsupported { reason, .. } if reason.contains("another API")
        );
    }
    pinned.write_words(&[5; 16])?;
    check_error!(
        adopt(Word::Bits32(at), 6),
        Error::Corrupted { found: 5, .. }
    );
    check_error!(
        adopt(Word::Bits32(at), u64::MAX),
        Error::Corrupted { .. } | Error::ValueOutOfRange { .. }
    );
    // A word that is further counts as reached.
    let line = adopt(Word::Bits32(at), 3)?;
    check_eq!(line.value()?, 5);
    drop((theirs, elsewhere));
    Ok(())
}

/// A word that falls is no timeline any more. Waits end with what was found.
fn falls(world: &World<Equipped>) -> Verdict {
    for bits in [Bits::Few, Bits::Many] {
        let subject = Subject::new(world, (Place::Pinned, bits), 0)?;
        subject.promise(9, || Ok(()))?;
        subject.memory.write(7)?;
        subject.line.at(7).wait(patience())?;
        subject.memory.write(4)?;
        corrupted(subject.line.at(9).wait(patience()), 4)?;
        check_eq!(subject.line.frozen_value(), 7);
    }
    Ok(())
}

/// A child promises a value in vain, and drops its copy while a stream waits. Its parent goes on.
///
/// A second child does the same while a submission keeps the word, too.
fn forked(world: &World<Equipped>) -> Verdict {
    for which in ALL {
        let mut subject = Some(Subject::new(world, which, 0)?);
        let (writer, reader) = (
            made(&subject)?.queue("writer")?,
            made(&subject)?.queue("reader")?,
        );
        let still = world.left.stall()?;
        made(&subject)?.write_later(&writer, &still, (7, 1))?;
        dropped_by_child(&mut subject)?;
        reader.submit(&[made(&subject)?.line.at(1)], |_| Ok(()), &[])?;
        dropped_by_child(&mut subject)?;
        still.release()?;
        let subject = made(&subject)?;
        subject.line.at(1).wait(patience())?;
        reader.idle(patience())?;
        subject.write_now(&writer, &[], (8, 2))?;
        subject.line.at(2).wait(patience())?;
        writer.idle(patience())?;
    }
    Ok(())
}

fn made<'s, 'w>(subject: &'s Option<Subject<'w>>) -> Result<&'s Subject<'w>, Stop> {
    let none = || Stop::Failed("no word".into());
    subject.as_ref().ok_or_else(none)
}

/// A driver in software ends the child if a call of it reaches the driver.
fn dropped_by_child(subject: &mut Option<Subject<'_>>) -> Verdict {
    in_child(|| {
        let Some(subject) = subject.take() else {
            return Err("no word".into());
        };
        match subject.line.signalled_by_others(2) {
            Err(error) if error.kind() == ErrorKind::MadeBeforeFork => Ok(()),
            other => Err(format!("a promise by the child: {other:?}")),
        }
    })
}

/// Others write 8, while 7 is a held signal of a queue. The word stays as it is.
fn broken(world: &World<Equipped>) -> Verdict {
    for bits in [Bits::Few, Bits::Many] {
        let subject = Subject::new(world, (Place::Pinned, bits), 6)?;
        let (queue, gate) = (subject.queue("queue")?, world.timeline("gate")?);
        let gate = gate.library();
        queue.submit(&[gate.at(1)], |_| Ok(()), &[subject.line.signal_at(7)])?;
        subject.memory.write(8)?;
        gate.signal(1)?;
        corrupted(subject.line.at(7).wait(patience()), 8)?;
        queue.idle(patience())?;
        subject.shows(8)?;
    }
    Ok(())
}

/// A submission is skipped, while others wait for its signal. The host writes the word.
fn skipped(world: &World<Equipped>) -> Verdict {
    for bits in [Bits::Few, Bits::Many] {
        let subject = Subject::new(world, (Place::Pinned, bits), 6)?;
        let (queue, gate) = (subject.queue("queue")?, world.timeline("gate")?);
        let gate = gate.library();
        queue.submit(&[gate.at(1)], |_| Ok(()), &[subject.line.signal_at(7)])?;
        gate.fail(Error::NothingToWaitFor);
        check_error!(subject.line.at(7).wait(patience()), Failed);
        until(|| Ok(subject.memory.read()? == 7))?;
        queue.idle(patience())?;
    }
    Ok(())
}

/// The owner is dropped once nothing uses the word, and not while a stream still waits for it.
fn keeps(world: &World<Equipped>) -> Verdict {
    for which in ALL {
        let subject = Subject::new(world, which, 0)?;
        let (device, dropped) = (subject.device, subject.dropped.clone());
        let is_kept = || !dropped.load(Ordering::Acquire);
        let (writer, reader) = (subject.queue("writer")?, subject.queue("reader")?);
        let still = world.left.stall()?;
        subject.write_later(&writer, &still, (7, 1))?;
        reader.submit(&[subject.line.at(1)], |_| Ok(()), &[])?;
        let Subject { line, .. } = subject;
        drop(line);
        check!(is_kept(), "{which:?}");
        still.release()?;
        writer.idle(patience())?;
        reader.idle(patience())?;
        drop(reader);
        until(|| {
            device.free_what_is_due()?;
            Ok(!is_kept())
        })?;
    }
    Ok(())
}
