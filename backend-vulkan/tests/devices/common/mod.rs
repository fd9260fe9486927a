//! Helpers of the tests of this crate. Without a usable Vulkan device each test is ignored, with
//! the reason.
#![allow(clippy::expect_used, reason = "a test may panic")]
#![allow(unsafe_code, reason = "records commands of its own")]

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Trial};
use syncline_core::backend::Queue as _;
use syncline_core::backend::kit::{Mutex, MutexGuard};
use syncline_vulkan::ash::vk;
use syncline_vulkan::{Buffer, Candidate, Device, Instance, InstanceOptions, Queue, Recorder};

/// The time limit of every wait, long enough for a software driver on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Held by each test, so that only one test runs at a time.
///
/// NVIDIA's driver crashes or hangs at random when many threads of a process create and destroy
/// instances and devices at once.
static TURN: Mutex<()> = Mutex::new(());

/// Waits until no other test runs. Taking it twice on one thread is a deadlock.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock()
}

/// Creates an instance, with validation if the layer is installed.
///
/// `SYNCLINE_NO_VALIDATION` disables validation. Returns `None` and prints the reason if there is
/// no instance.
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

/// Lists test functions with their names, for [`run`].
macro_rules! trials {
    ($($test:ident),+ $(,)?) => { vec![$((stringify!($test), $test as fn())),+] };
}
pub(crate) use trials;

thread_local! {
    static SKIPPED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static DEVICES: Cell<usize> = const { Cell::new(0) };
}

/// Notes why the test does nothing on this device.
///
/// A test that does nothing on any device is reported as ignored.
pub(crate) fn skip(reason: &str) {
    SKIPPED.with_borrow_mut(|skipped| skipped.push(reason.to_owned()));
}

/// Runs the tests, or reports each as ignored, with the reason, if there is no usable device.
pub(crate) fn run(tests: Vec<(&'static str, fn())>) -> std::process::ExitCode {
    let reason = no_device_reason();
    let trials = tests.into_iter().map(|(name, test)| {
        let reason = reason.clone();
        Trial::ignorable_test(name, move || match reason {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => {
                SKIPPED.take();
                DEVICES.set(0);
                test();
                // A test that ran on at least one device counts as run.
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

/// The reason why there is no usable device, if there is none.
fn no_device_reason() -> Option<String> {
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

/// Runs `test` on every usable device, and fails if the validation layer reports an error.
pub(crate) fn on_each_device(test: impl Fn(&Device)) {
    on_each_candidate(|candidate| test(&candidate.open().expect("opening the device")));
}

/// Same as [`on_each_device`], with two devices of each GPU.
pub(crate) fn on_two_of_each_device(test: impl Fn(&Device, &Device)) {
    on_each_candidate(|candidate| {
        let open = || candidate.open().expect("opening a device");
        test(&open(), &open());
    });
}

/// Same as [`on_each_device`], with the candidates.
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

/// Waits until `owner` has no other references. The watching thread may keep the device for a
/// while.
pub(crate) fn wait_until_alone<T>(owner: &std::sync::Arc<T>) {
    let start = std::time::Instant::now();
    while std::sync::Arc::strong_count(owner) > 1 {
        assert!(start.elapsed() < TIMEOUT, "the owner is still held");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A buffer of `count` words that the host can read.
pub(crate) fn words(device: &Device, count: u64) -> Buffer {
    device
        .host_buffer(count * 4, Default::default())
        .expect("a host buffer")
}

/// The value of all words, which must be the same.
pub(crate) fn all_words(buffer: &Buffer) -> u32 {
    let words = buffer.as_words().expect("mapped");
    let first = words[0].load(Ordering::Relaxed);
    let odd = words
        .iter()
        .position(|w| w.load(Ordering::Relaxed) != first);
    assert_eq!(odd, None, "the buffer is torn: {first} at 0");
    first
}

/// A position in a queue where the device waits for the host (`vkCmdWaitEvents`).
///
/// The drop opens it, so that no failing test leaves a device waiting. Drop it only when the
/// queue's work has finished or is about to finish.
pub(crate) struct Stall {
    device: Device,
    event: vk::Event,
}

impl Stall {
    /// Submits the wait to `queue`.
    pub(crate) fn on(device: &Device, queue: &Queue) -> Self {
        // SAFETY: the structure is valid. The event is destroyed on drop.
        let event = unsafe {
            device
                .raw()
                .create_event(&vk::EventCreateInfo::default(), None)
        };
        let event = event.expect("an event");
        let work = move |r: &mut Recorder| {
            let commands = r.command_buffer()?;
            let all = vk::PipelineStageFlags::ALL_COMMANDS;
            // SAFETY: the command buffer is begun, and the event lives until the queue is idle.
            unsafe {
                let host = vk::PipelineStageFlags::HOST;
                r.device()
                    .cmd_wait_events(commands, &[event], host, all, &[], &[], &[]);
            }
            Ok(())
        };
        let device = device.clone();
        queue.submit(&[], work, &[]).expect("stalling the queue");
        Self { device, event }
    }

    pub(crate) fn release(&self) {
        // SAFETY: a live event.
        unsafe { self.device.raw().set_event(self.event) }.expect("releasing the queue");
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        // SAFETY: a live event, used only by this thread. Once the device is idle, no work waits
        // for it.
        unsafe {
            let _ = self.device.raw().set_event(self.event);
            let _ = self.device.raw().device_wait_idle();
            self.device.raw().destroy_event(self.event, None);
        }
    }
}
