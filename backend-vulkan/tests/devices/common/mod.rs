//! What the tests of this crate share. A machine without a Vulkan driver skips them, saying why.
#![allow(clippy::expect_used, reason = "a test may panic")]
#![allow(unsafe_code, reason = "records commands of its own")]

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Trial};
use syncline_core::backend::Queue as _;
use syncline_vulkan::ash::vk;
use syncline_vulkan::{Buffer, Candidate, Device, Instance, InstanceOptions, Queue, Recorder};

/// Long enough for a software driver on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// One test at a time: NVIDIA's driver crashes or hangs, at random, where many threads of a process
/// make and destroy instances and devices at once.
static TURN: Mutex<()> = Mutex::new(());

/// Waits for this test's turn. Not to be taken twice.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An instance, with validation where the layer is installed (and not asked away with
/// `SYNCLINE_NO_VALIDATION`), or `None` with the reason printed.
pub(crate) fn instance() -> Option<Instance> {
    let options = InstanceOptions {
        validation: std::env::var_os("SYNCLINE_NO_VALIDATION").is_none(),
        application_name: "syncline tests".into(),
    };
    let instance = Instance::load_with(&options).or_else(|error| {
        println!("without validation: {error}");
        Instance::load()
    });
    instance.map_err(|error| println!("skipped: {error}")).ok()
}

/// Names functions for [`run`].
macro_rules! trials {
    ($($test:ident),+ $(,)?) => { vec![$((stringify!($test), $test as fn())),+] };
}
pub(crate) use trials;

thread_local! {
    static SKIPPED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static DEVICES: Cell<usize> = const { Cell::new(0) };
}

/// Notes why the test does nothing on this device; one that does nothing anywhere is ignored.
pub(crate) fn skip(reason: &str) {
    SKIPPED.with_borrow_mut(|skipped| skipped.push(reason.to_owned()));
}

/// Runs the tests of one file, or reports each as ignored, with the reason, where there is no
/// device.
pub(crate) fn run(tests: Vec<(&'static str, fn())>) -> std::process::ExitCode {
    let reason = why_not();
    let trials = tests.into_iter().map(|(name, test)| {
        let reason = reason.clone();
        Trial::ignorable_test(name, move || match reason {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => {
                SKIPPED.take();
                DEVICES.set(0);
                test();
                // On one device run, on another skipped: run.
                let skipped = SKIPPED.take();
                if skipped.is_empty() || skipped.len() < DEVICES.get() {
                    Ok(Completion::Completed)
                } else {
                    Ok(Completion::ignored_with(skipped.join("; ")))
                }
            }
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Why there is nothing to test on, if so.
fn why_not() -> Option<String> {
    let candidates = match Instance::load().and_then(|instance| instance.devices()) {
        Ok(candidates) => candidates,
        Err(error) => return Some(error.to_string()),
    };
    if candidates
        .iter()
        .any(|candidate| candidate.rejected.is_none())
    {
        return None;
    }
    let reasons: Vec<String> = candidates
        .iter()
        .filter_map(|one| Some(one.rejected.as_ref()?.to_string()))
        .collect();
    Some(format!("no usable device: {}", reasons.join("; ")))
}

/// Runs `test` on every usable device, and fails on anything that the validation layer reports.
pub(crate) fn on_each_device(test: impl Fn(&Device)) {
    on_each_candidate(|candidate| test(&candidate.open().expect("opening the device")));
}

/// The same with two devices of one GPU.
pub(crate) fn on_two_of_each_device(test: impl Fn(&Device, &Device)) {
    on_each_candidate(|candidate| {
        let open = || candidate.open().expect("opening a device");
        test(&open(), &open());
    });
}

/// The same with what devices are opened from.
pub(crate) fn on_each_candidate(test: impl Fn(&Candidate)) {
    let _turn = turn();
    let Some(instance) = instance() else { return };
    let candidates = instance.devices().expect("listing devices");
    if candidates.is_empty() {
        println!("skipped: no driver offers a device");
    }
    for candidate in candidates {
        if let Some(reason) = &candidate.rejected {
            println!("skipped: {reason}");
            continue;
        }
        println!("on {}", candidate.info.name);
        DEVICES.set(DEVICES.get() + 1);
        test(&candidate);
        let errors = instance.validation_errors();
        assert!(errors.is_empty(), "validation: {errors:#?}");
    }
}

/// Waits until the device itself, which its watching thread may still hold, has let go of `owner`.
pub(crate) fn wait_until_alone<T>(owner: &std::sync::Arc<T>) {
    let start = std::time::Instant::now();
    while std::sync::Arc::strong_count(owner) > 1 {
        assert!(start.elapsed() < SOON, "the owner is still held");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A buffer that the host reads.
pub(crate) fn words(device: &Device, count: u64) -> Buffer {
    device
        .host_buffer(count * 4, Default::default())
        .expect("a host buffer")
}

/// All words, which must be the same.
pub(crate) fn all_words(buffer: &Buffer) -> u32 {
    let words = buffer.as_words().expect("mapped");
    let first = words[0].load(Ordering::Relaxed);
    let odd = words
        .iter()
        .position(|w| w.load(Ordering::Relaxed) != first);
    assert_eq!(odd, None, "the buffer is torn: {first} at 0");
    first
}

/// A place on a queue where the device waits for the host. Opens on drop, so that no failing test
/// leaves a device waiting; not to be dropped before the queue's work is known to be finished or
/// about to be.
pub(crate) struct Gate {
    device: Device,
    event: vk::Event,
}

impl Gate {
    /// Closes it on `queue`.
    pub(crate) fn on(device: &Device, queue: &Queue) -> Self {
        // SAFETY: a valid description; destroyed on drop.
        let event = unsafe {
            device
                .raw()
                .create_event(&vk::EventCreateInfo::default(), None)
        };
        let event = event.expect("an event");
        let work = move |r: &mut Recorder| {
            let commands = r.command_buffer()?;
            let all = vk::PipelineStageFlags::ALL_COMMANDS;
            // SAFETY: the command buffer is begun, and the event lives until the queue is through.
            unsafe {
                let host = vk::PipelineStageFlags::HOST;
                r.device()
                    .cmd_wait_events(commands, &[event], host, all, &[], &[], &[]);
            }
            Ok(())
        };
        let device = device.clone();
        queue.submit(&[], work, &[]).expect("closing the gate");
        Self { device, event }
    }

    pub(crate) fn open(&self) {
        // SAFETY: a live event.
        unsafe { self.device.raw().set_event(self.event) }.expect("opening the gate");
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: a live event, which no work waits for any more once the device is idle: this
        // thread alone uses it.
        unsafe {
            let _ = self.device.raw().set_event(self.event);
            let _ = self.device.raw().device_wait_idle();
            self.device.raw().destroy_event(self.event, None);
        }
    }
}
