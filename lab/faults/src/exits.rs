//! Ends of processes whose queues work or whose threads drop objects, and ends of threads (D1).
//!
//! Each run is a child process. A signal, a time-out or another exit code than 0 is a defect.
#![allow(unsafe_code, reason = "registers a function that runs at exit")]

use std::any::Any;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::prelude::*;
use syncline::process::Endpoint;
use syncline::trace::Trace;
use syncline::vulkan::ash::vk::BufferUsageFlags;
use syncline::{Buffer, Device, Queue, Stopwatch, Timeline, cuda, host};

use crate::drivers::Drivers;
use crate::scenarios::{Stop, cuda::captured};

/// A child takes no longer than this.
const LIMIT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of submissions of each chain.
const CHAIN: u64 = 2000;
/// How often a thread opens and drops a device.
const OPENED: usize = 8;
/// The number of sets of objects that a process drops while it ends.
const SETS: usize = 60;
/// The number of threads that drop them, besides the one that ends the process.
const DROPPERS: usize = 2;

/// What a child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The process ends in the middle of chains of CUDA and Vulkan.
    Process,
    /// Threads drop objects of all kinds while the process ends, and a function at exit, too.
    Drops,
    /// Threads open, use and drop devices, and end, while another thread works.
    Threads,
}

impl Ending {
    const fn argument(self) -> &'static str {
        match self {
            Self::Process => "--end-process",
            Self::Drops => "--end-drops",
            Self::Threads => "--end-threads",
        }
    }
}

/// Two chains through both devices, which are not finished when this returns.
///
/// `seed` chooses how far they come.
fn chains(seed: u64) -> Result<(), Error> {
    let (cuda, vulkan) = Inventory::probe(&ProbeOptions::default()).pair()?;
    let (cuda, vulkan) = (Device::from(cuda), Device::from(vulkan));
    let queues = |label: &str| -> Result<[Queue; 2], Error> {
        Ok([
            cuda.queue(QueueKind::Compute, label)?,
            vulkan.queue(QueueKind::Transfer, label)?,
        ])
    };
    let relayed = [cuda.timeline("cuda")?, vulkan.timeline("vulkan")?];
    let graph = match &cuda {
        Device::Cuda(cuda) => Some(graph_and_word(cuda, &relayed[0])?),
        _ => None,
    };
    let (first, second) = (queues("relayed")?, queues("shared")?);
    let link = share(&cuda, &vulkan)?;
    let shared = link.timeline("shared")?;
    // Released by the thread that watches Vulkan, all at once.
    let start = [relayed[1].at(1 + seed % 16)];
    second[0].submit(&start, |_| Ok(()), &[shared.signal_at(1)])?;
    for n in 2..=CHAIN {
        let queue = &second[(n % 2) as usize];
        queue.submit(&[shared.at(n - 1)], |_| Ok(()), &[shared.signal_at(n)])?;
    }
    // No device has a port of the other's timeline. So the watching threads release each one.
    for n in 1..=CHAIN {
        let [on_cuda, on_vulkan] = &relayed;
        first[0].submit(&[on_vulkan.at(n - 1)], |_| Ok(()), &[on_cuda.signal_at(n)])?;
        first[1].submit(&[on_cuda.at(n)], |_| Ok(()), &[on_vulkan.signal_at(n)])?;
    }
    thread::sleep(Duration::from_micros(seed * 7919 % 10_000));
    // The process ends with live handles.
    std::mem::forget((cuda, vulkan, relayed, first, second, link, shared, graph));
    Ok(())
}

type Objects = Vec<Box<dyn Any + Send>>;

/// What is dropped while the process ends.
static LEFT: Mutex<Objects> = Mutex::new(Vec::new());

fn left() -> MutexGuard<'static, Objects> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops all that is left. The lock is not held across a drop.
extern "C" fn drop_what_is_left() {
    loop {
        let next = left().pop();
        match next {
            Some(object) => drop(object),
            None => return,
        }
    }
}

/// A graph whose slots wait for `line` and write a word. One launch of it is held for 2.
fn graph_and_word(cuda: &cuda::Device, line: &Timeline) -> Result<impl Send + use<>, Error> {
    let memory = cuda.host_buffer(64)?;
    let word = cuda::Word::Bits64(memory.pointer());
    // SAFETY: the owner keeps the memory. Only the graph writes it.
    let word = unsafe { cuda.adopt_word(word, 0, Some(Arc::new(memory)), "word") }?;
    let queue = cuda.queue(QueueKind::Compute, "captured")?;
    let slots = cuda.graph_slots("graph");
    let captured = captured((&queue, &queue), slots, &[line], &[&word]);
    let (graph, slots) = captured.map_err(|stop| match stop {
        Stop::Error(error) => error,
        other => Error::work(format!("{other:?}")),
    })?;
    for value in 1..=2 {
        let values: Vec<_> = slots.iter().map(|slot| slot.at(value)).collect();
        queue.launch(&graph, &values)?;
    }
    Ok((graph, word, queue))
}

/// One object of each kind that `device` has. All are used, and most of the work has ended.
fn objects_of(device: &Device, objects: &mut Objects) -> Result<(), Error> {
    let (queue, line) = (
        device.queue(QueueKind::Compute, "queue")?,
        device.timeline("line")?,
    );
    let (used, fence) = (Buffer::host_visible(device, 64)?, device.fence("fence"));
    let (filled, own) = (used.clone(), Arc::new(()));
    let work = move |recorder: &mut syncline::Recorder<'_>| {
        recorder.keep(own);
        recorder.fill(&filled, 7)
    };
    queue.submit(&[], work, &[line.signal_at(1)])?;
    queue.record(&fence)?;
    // The host never makes this signal, so that the submission stays held.
    let gate = host::Device::new().timeline("gate")?;
    let held = device.queue(QueueKind::Compute, "held")?;
    held.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    match device {
        Device::Cuda(cuda) => {
            objects.push(Box::new(cuda.buffer(64)?));
            objects.push(Box::new(graph_and_word(cuda, &line)?));
        }
        Device::Vulkan(vulkan) => {
            let usage = BufferUsageFlags::STORAGE_BUFFER;
            objects.push(Box::new(vulkan.device_buffer(64, usage)?));
            // Not a part of a block.
            objects.push(Box::new(vulkan.device_buffer(4 << 20, usage)?));
            objects.push(Box::new(device.binary_semaphore("binary")?));
        }
        _ => {}
    }
    objects.push(Box::new(gate));
    objects.push(Box::new((line.claim(3)?, line)));
    objects.push(Box::new(fence));
    objects.push(Box::new(used));
    objects.push(Box::new(queue));
    objects.push(Box::new(held));
    Ok(())
}

/// Objects with threads of their own: a clock, a trace and an endpoint.
fn objects_with_threads(device: &Device, objects: &mut Objects) -> Result<(), Error> {
    let queue = device.queue(QueueKind::Compute, "timed")?;
    let watch = Stopwatch::new(device, "watch")?;
    watch.start(&queue)?;
    watch.stop(&queue)?;
    let trace = Trace::new();
    trace.follow(&queue)?;
    objects.push(Box::new((trace, watch, queue)));
    let (near, far) = Endpoint::pair()?;
    let peer = thread::spawn(move || Endpoint::open(far, "far", PATIENCE));
    objects.push(Box::new(Endpoint::open(near, "near", PATIENCE)?));
    objects.push(Box::new(peer.join()));
    Ok(())
}

/// Drops objects of all kinds on several threads, while the process ends.
///
/// `seed` chooses how far the threads come before the end begins.
fn drops(seed: u64) -> Result<(), Error> {
    // Registered before all drivers, so that it runs after their destructors.
    // SAFETY: the function does not unwind.
    unsafe { libc::atexit(drop_what_is_left) };
    let (cuda, vulkan) = Inventory::probe(&ProbeOptions::default()).pair()?;
    let link = share(&cuda, &vulkan)?;
    let info = ImageInfo::d2(Format::Rgba8Uint, 8, 4, ImageUsage::SAMPLED);
    let image = || {
        let (image, handle) = vulkan.export_image(&info)?;
        let imported = cuda.import_image(handle, &info)?;
        Ok::<_, Error>((imported.surface(0)?, image, imported))
    };
    let devices = [Device::from(cuda.clone()), Device::from(vulkan.clone())];
    for device in &devices {
        objects_with_threads(device, &mut left())?;
    }
    for _ in 0..SETS {
        let mut objects = Objects::new();
        for device in &devices {
            objects_of(device, &mut objects)?;
        }
        objects.push(Box::new(link.timeline("shared")?));
        objects.push(Box::new(link.buffer(64)?));
        objects.push(Box::new(image()?));
        left().extend(objects);
    }
    let (begun, begins) = channel();
    for _ in 0..DROPPERS {
        let begun = begun.clone();
        thread::spawn(move || {
            let _ = begun.send(());
            drop_what_is_left();
        });
    }
    for _ in 0..DROPPERS {
        let _ = begins.recv();
    }
    thread::sleep(Duration::from_micros(seed * 7919 % 5_000));
    Ok(())
}

/// Opens a device by a probe of its own, and submits to it.
fn open_and_use(nth: usize) -> Result<(), Error> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let mut usable = Vec::new();
    for found in inventory.devices() {
        usable.extend(found.rejected().is_none().then_some(found));
    }
    let Some(found) = usable.get(nth % usable.len().max(1)) else {
        return Ok(());
    };
    let device = found.open()?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let line = device.timeline("line")?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    line.at(1).wait(PATIENCE)
}

/// Threads that open, use and drop devices, while another one works.
fn threads() -> Result<(), Error> {
    let (cuda, vulkan) = Inventory::probe(&ProbeOptions::default()).pair()?;
    let ended = Arc::new(AtomicBool::new(false));
    let until = ended.clone();
    let works = thread::spawn(move || -> Result<(), Error> {
        let line = share(&cuda, &vulkan)?.timeline("line")?;
        let left = cuda.queue(QueueKind::Compute, "left")?;
        let right = vulkan.queue(QueueKind::Transfer, "right")?;
        for n in (0..).step_by(2) {
            left.submit(&[line.at(n)], |_| Ok(()), &[line.signal_at(n + 1)])?;
            right.submit(&[line.at(n + 1)], |_| Ok(()), &[line.signal_at(n + 2)])?;
            line.at(n + 2).wait(PATIENCE)?;
            if until.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    });
    let mut answer = Ok(());
    for nth in 0..OPENED {
        eprintln!("opening device {} of {OPENED}", nth + 1);
        let opened = thread::spawn(move || open_and_use(nth)).join();
        answer = answer.and(opened.unwrap_or_else(|_| Err(Error::work("a thread panicked"))));
    }
    ended.store(true, Ordering::Relaxed);
    let worked = works.join();
    answer.and(worked.unwrap_or_else(|_| Err(Error::work("a thread panicked"))))
}

/// Runs as a child.
pub(crate) fn run_child(ending: Ending, seed: u64) -> Result<bool, String> {
    let ended = match ending {
        Ending::Process => chains(seed),
        Ending::Drops => drops(seed),
        Ending::Threads => threads(),
    };
    ended.map(|()| true).map_err(|error| error.to_string())
}

/// Waits for a child. Returns what is wrong, if anything is, with all that the child has said.
fn fault_of(mut child: Child) -> Option<String> {
    let until = Instant::now() + LIMIT;
    let mut too_long = "";
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > until {
            let _ = child.kill();
            too_long = "it took too long and was killed, ";
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    match child.wait_with_output() {
        Ok(output) if output.status.success() && too_long.is_empty() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let status = output.status;
            Some(format!("{too_long}{status}: {}", said.trim_end()))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Runs `count` children, `jobs` at a time. `drivers` are those in software, or the machine's own.
pub(crate) fn run(
    ending: Ending,
    count: usize,
    jobs: usize,
    drivers: Option<&Drivers>,
) -> Result<bool, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let next = Mutex::new(0..count);
    let faults = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(seed) = seed else { break };
                    let mut command = Command::new(&own);
                    command.args([ending.argument(), &seed.to_string()]);
                    command.stdout(Stdio::null()).stderr(Stdio::piped());
                    if let Some(drivers) = drivers {
                        drivers.apply(&mut command);
                        // A thread that calls a driver in this time ends the process.
                        command.env("SYNCLINE_SOFTWARE_EXIT_PAUSE", "20");
                        // Here also the thread that ends the process must not.
                        if ending == Ending::Drops {
                            command.env("SYNCLINE_SOFTWARE_EXIT_STRICT", "1");
                        }
                    }
                    let begun = Instant::now();
                    let fault = match command.spawn() {
                        Ok(child) => fault_of(child),
                        Err(error) => Some(error.to_string()),
                    };
                    let seconds = begun.elapsed().as_secs_f64();
                    let ended = fault.as_deref().unwrap_or("well");
                    println!("run {seed}, {seconds:.1} s: {ended}");
                    faults.fetch_add(usize::from(fault.is_some()), Ordering::Relaxed);
                }
            });
        }
    });
    let faults = faults.into_inner();
    println!("{count} runs, {faults} faults");
    Ok(faults == 0)
}
