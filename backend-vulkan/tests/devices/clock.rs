//! The device's clock compared with the host's.
//!
//! It is read by the driver or by submitted timestamps, on every Vulkan device of the machine.
#![allow(
    unsafe_code,
    reason = "records queries of its own, and takes the role of the application"
)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::ffi::{CStr, c_char};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::common::{Stall, TIMEOUT, on_each_device};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::clock::{Clock, Estimate, HostClock, Map, Sample};
use syncline_core::trace::{Outcome, Trace};
use syncline_core::{Error, QueueKind};
use syncline_vulkan::ash::{self, ext, khr, vk};
use syncline_vulkan::{AdoptInfo, Device, Enabled, Queue, Recorder};

/// The deliberate error of a clock map, in nanoseconds.
const WRONG: i64 = 1_000_000;

/// Readings of the host's clock before and after a device time.
#[derive(Debug, Clone, Copy)]
struct Bracket {
    before: i64,
    device: i64,
    after: i64,
}

impl Bracket {
    fn holds(self, host: Estimate) -> bool {
        let error = host.error.cast_signed();
        self.before <= host.nanoseconds + error && host.nanoseconds - error <= self.after
    }
}

/// Runs `test` on each device, and on the same device as created and lent by an application.
///
/// The application creates the device once without calibrated timestamps, and once with them if the
/// driver offers them.
fn on_each_device_and_adopted(test: impl Fn(&Device)) {
    on_each_device(|device| {
        test(device);
        for calibrated in [false, true] {
            if !calibrated || device.enabled().calibrated_timestamps {
                println!("adopted, calibrated: {calibrated}");
                let (_application, adopted) = adopt(device, calibrated);
                assert_eq!(adopted.info().capabilities.calibrated_clock, calibrated);
                test(&adopted);
            }
        }
    });
}

fn samples_lie_between_readings_of_the_host() {
    on_each_device_and_adopted(|device| {
        let clock = device.clock().unwrap();
        let mut deviations = Vec::new();
        for _ in 0..50 {
            let before = clock.host_clock().now();
            let read = sample(&clock);
            let after = clock.host_clock().now();
            assert!(within(before, read, after), "{before} {read:?} {after}");
            // A host's clock that is wrong by this much would be noticed.
            for wrong in [-WRONG, WRONG] {
                let mut off = read;
                off.host += wrong;
                let wide = after - before + 2 * off.deviation.cast_signed();
                assert!(wide >= WRONG || !within(before, off, after));
            }
            deviations.push(read.deviation);
        }
        deviations.sort_unstable();
        assert!(deviations[0] > 0, "no clock is read in no time");
        println!(
            "deviation: {} to {} ns, mostly {}, beside {}",
            deviations[0],
            deviations[49],
            deviations[25],
            clock.host_clock().name()
        );
    });
}

fn sample(clock: &Clock) -> Sample {
    clock.sample().unwrap().sample
}

fn within(before: i64, sample: Sample, after: i64) -> bool {
    let deviation = sample.deviation.cast_signed();
    before - deviation <= sample.host && sample.host <= after + deviation
}

fn device_times_rise_like_host_times() {
    on_each_device_and_adopted(|device| {
        let clock = device.clock().unwrap();
        let first = sample(&clock);
        let mut last = first;
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(2));
            let read = sample(&clock);
            assert!(last.device < read.device, "{last:?} {read:?}");
            last = read;
        }
        let (device, host) = (last.device - first.device, last.host - first.host);
        let slack = (first.deviation + last.deviation) as f64 + 500e-6 * host as f64;
        let apart = (device - host).unsigned_abs() as f64;
        assert!(apart <= slack, "{device} ns beside {host} ns");
    });
}

fn a_timestamp_converts_to_a_time_between_readings_of_the_host() {
    on_each_device_and_adopted(|device| {
        let clock = device.clock().unwrap();
        for family in &device.info().capabilities.queues {
            let made = device.queue_of_family(family.index, "stamped");
            let resets = device.enabled().host_query_reset || family.kind != QueueKind::Transfer;
            let Some(queue) = made.ok().filter(|_| family.timestamp_bits > 0 && resets) else {
                continue;
            };
            let query = Query::new(device);
            let brackets: Vec<_> = (0..60)
                .map(|_| write_timestamp(device, &clock, &queue, &query))
                .collect();
            for bracket in &brackets {
                let host = clock.to_host(bracket.device).unwrap();
                assert!(bracket.holds(host), "{bracket:?} {host:?}");
                // The conversion in the other direction.
                let (before, after) = (
                    clock.to_device(bracket.before).unwrap(),
                    clock.to_device(bracket.after).unwrap(),
                );
                let (early, late) = (before.error.cast_signed(), after.error.cast_signed());
                assert!(
                    before.nanoseconds - early <= bracket.device
                        && bracket.device <= after.nanoseconds + late,
                    "{before:?} {bracket:?} {after:?}"
                );
            }
            // A map that is wrong by a millisecond does not fit, and the correct one does.
            let read = sample(&clock);
            let widths = brackets.iter().map(|b| b.after - b.before);
            let narrowest = widths.min().unwrap();
            // More on a busy machine, where the brackets are wider.
            let wrong = WRONG.max(2 * (narrowest + read.deviation.cast_signed()));
            for wrong in [-wrong, 0, wrong] {
                let mut map = Map::default();
                map.add(Sample {
                    host: read.host + wrong,
                    ..read
                });
                let fits = |bracket: &Bracket| bracket.holds(map.to_host(bracket.device).unwrap());
                let all = brackets.iter().all(fits);
                assert_eq!(all, wrong == 0, "off by {wrong} ns, with {read:?}");
            }
            println!("family {}: brackets from {narrowest} ns", family.index);
        }
    });
}

/// Writes a timestamp on the queue like an application, between two readings of the host's clock.
fn write_timestamp(device: &Device, clock: &Clock, queue: &Queue, query: &Query) -> Bracket {
    let (pool, by_host) = (query.pool, device.enabled().host_query_reset);
    let work = move |recorder: &mut Recorder| {
        let commands = recorder.command_buffer()?;
        let device = recorder.device();
        // SAFETY: the pool lives until the queue is idle, and only this submission uses the query.
        unsafe {
            if by_host {
                device.reset_query_pool(pool, 0, 1);
            } else {
                device.cmd_reset_query_pool(commands, pool, 0, 1);
            }
            let stage = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
            device.cmd_write_timestamp(commands, stage, pool, 0);
        }
        Ok(())
    };
    let before = clock.host_clock().now();
    queue.submit(&[], work, &[]).unwrap();
    queue.idle(TIMEOUT).unwrap();
    let after = clock.host_clock().now();
    let mut ticks = [0_u64];
    let flags = vk::QueryResultFlags::TYPE_64;
    // SAFETY: the query has been written, and one 64-bit result fits.
    unsafe {
        device
            .raw()
            .get_query_pool_results(pool, 0, &mut ticks, flags)
    }
    .unwrap();
    Bracket {
        before,
        device: device.time_of(ticks[0]).unwrap(),
        after,
    }
}

struct Query {
    device: Device,
    pool: vk::QueryPool,
}

impl Query {
    fn new(device: &Device) -> Self {
        let info = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(1);
        // SAFETY: `info` is valid. The pool is destroyed on drop.
        let pool = unsafe { device.raw().create_query_pool(&info, None) }.unwrap();
        Self {
            device: device.clone(),
            pool,
        }
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        // SAFETY: all work that used it has finished.
        unsafe { self.device.raw().destroy_query_pool(self.pool, None) };
    }
}

/// Without calibrated timestamps a sample submits work, and fails with an error after a time limit.
///
/// A calibrated clock needs no queue.
fn a_blocked_queue_does_not_block_a_sample() {
    on_each_device(|device| {
        for calibrated in [false, true] {
            if calibrated && !device.enabled().calibrated_timestamps {
                continue;
            }
            let (_application, adopted) = adopt(device, calibrated);
            let clock = adopted.clock().unwrap();
            sample(&clock);
            let queue = adopted.queue(QueueKind::Transfer, "gated").unwrap();
            let stall = Stall::on(&adopted, &queue);
            // Returns while the queue is still blocked.
            let sampled = clock.sample();
            stall.release();
            match sampled {
                Err(Error::ClockSilent { .. }) => assert!(!calibrated),
                Ok(_) => assert!(calibrated, "{sampled:?}"),
                Err(error) => panic!("{error}"),
            }
            queue.idle(TIMEOUT).unwrap();
            sample(&clock);
        }
    });
}

fn a_device_has_one_clock_which_keeps_the_device() {
    on_each_device(|device| {
        for calibrated in [false, device.enabled().calibrated_timestamps] {
            let (application, adopted) = adopt(device, calibrated);
            let clock = adopted.clock().unwrap();
            assert!(clock.is_same(&adopted.clone().clock().unwrap()));
            assert!(!clock.is_same(&device.clock().unwrap()));
            drop(adopted);
            let earlier = sample(&clock);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for _ in 0..20 {
                            clock.to_host(sample(&clock).device).unwrap();
                        }
                    });
                }
            });
            assert!(earlier.device < sample(&clock).device);
            drop(clock);
            crate::common::wait_until_alone(&application);
        }
    });
}

/// The loader's own `vkGetInstanceProcAddr`.
static LOADER: OnceLock<vk::PFN_vkGetInstanceProcAddr> = OnceLock::new();

/// A loader without the functions of calibrated timestamps.
unsafe extern "system" fn old_loader(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: Vulkan's names end with a zero byte.
    let asked = unsafe { CStr::from_ptr(name) };
    if asked
        .to_bytes()
        .starts_with(b"vkGetPhysicalDeviceCalibrateable")
    {
        return None;
    }
    // SAFETY: called with the caller's arguments.
    LOADER
        .get()
        .and_then(|real| unsafe { real(instance, name) })
}

fn a_loader_without_the_calibration_query_is_accepted() {
    on_each_device(|device| {
        let real = device.entry().static_fn().get_instance_proc_addr;
        let _ = LOADER.set(real);
        let calibrated = device.enabled().calibrated_timestamps;
        let (_application, mut info) = create_device(device, calibrated);
        let old = ash::StaticFn {
            get_instance_proc_addr: old_loader,
        };
        // SAFETY: it returns the loader's functions.
        info.entry = unsafe { ash::Entry::from_static_fn(old) };
        // SAFETY: the application has created these handles, and submits nothing itself.
        let adopted = unsafe { Device::adopt(info) }.unwrap();
        assert!(!adopted.info().capabilities.calibrated_clock);
        sample(&adopted.clock().unwrap());
    });
}

/// A device that an application has created on the same physical device, with one queue.
struct Application {
    device: ash::Device,
    /// Keeps the instance.
    _instance: Device,
}

impl Drop for Application {
    fn drop(&mut self) {
        // SAFETY: this is the last owner, so nothing uses the device any more.
        unsafe { self.device.destroy_device(None) };
    }
}

fn adopt(device: &Device, calibrated: bool) -> (Arc<Application>, Device) {
    let (application, info) = create_device(device, calibrated);
    // SAFETY: the application has created these handles, and submits nothing itself.
    (application, unsafe { Device::adopt(info) }.unwrap())
}

fn create_device(device: &Device, calibrated: bool) -> (Arc<Application>, AdoptInfo) {
    let (instance, physical) = (device.instance(), device.physical());
    let queues = [vk::DeviceQueueCreateInfo::default()
        .queue_family_index(0)
        .queue_priorities(&[1.0])];
    let mut timelines =
        vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
    // SAFETY: plain Vulkan set-up. Every structure is valid, and the extension is offered.
    let (raw, queue) = unsafe {
        let offered = instance.enumerate_device_extension_properties(physical);
        let offers_khr = offered
            .unwrap()
            .iter()
            .any(|one| one.extension_name_as_c_str() == Ok(khr::calibrated_timestamps::NAME));
        let name = if offers_khr {
            khr::calibrated_timestamps::NAME
        } else {
            ext::calibrated_timestamps::NAME
        };
        let names = [name.as_ptr()];
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names[..usize::from(calibrated)])
            .push_next(&mut timelines);
        let raw = instance.create_device(physical, &info, None).unwrap();
        let queue = raw.get_device_queue(0, 0);
        (raw, queue)
    };
    let application = Arc::new(Application {
        device: raw.clone(),
        _instance: device.clone(),
    });
    let info = AdoptInfo {
        entry: device.entry().clone(),
        instance: instance.clone(),
        physical,
        device: raw,
        queues: vec![(0, 0, queue)],
        owner: Some(application.clone()),
        enabled: Enabled {
            calibrated_timestamps: calibrated,
            ..Enabled::default()
        },
    };
    (application, info)
}

/// Commands that wait until the host lets them continue.
struct Halt {
    device: Device,
    begun: vk::Event,
    opened: vk::Event,
}

impl Halt {
    fn new(device: &Device) -> Self {
        // SAFETY: `event` is valid. The events are destroyed on drop.
        let [begun, opened] = [(); 2].map(|()| unsafe {
            let event = vk::EventCreateInfo::default();
            device.raw().create_event(&event, None).unwrap()
        });
        Self {
            device: device.clone(),
            begun,
            opened,
        }
    }

    /// Records the wait into a command buffer that is begun. The queue is idle before this is
    /// dropped.
    fn record(&self, commands: vk::CommandBuffer) {
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        let host = vk::PipelineStageFlags::HOST;
        let (raw, events) = (self.device.raw(), [self.opened]);
        // SAFETY: the events live until the queue is idle.
        unsafe {
            raw.cmd_set_event(commands, self.begun, all);
            raw.cmd_wait_events(commands, &events, host, all, &[], &[], &[]);
        }
    }

    /// Waits until the device has reached the wait.
    fn wait(&self) {
        let started = Instant::now();
        // SAFETY: a live event.
        while !unsafe { self.device.raw().get_event_status(self.begun) }.unwrap() {
            assert!(started.elapsed() < TIMEOUT, "the device has not come to it");
            std::thread::yield_now();
        }
    }

    fn open(&self) {
        // SAFETY: a live event.
        unsafe { self.device.raw().set_event(self.opened) }.unwrap();
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Commands may still use the events.
            return self.open();
        }
        for event in [self.begun, self.opened] {
            // SAFETY: the queue is idle.
            unsafe { self.device.raw().destroy_event(event, None) };
        }
    }
}

/// A trace contains the start time of a submission that hangs on the device.
///
/// If the driver cannot read the time without waiting for the work, the trace has none and does not
/// wait.
fn a_trace_tells_what_has_begun_and_not_ended() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Compute, "hangs").unwrap();
        let trace = Trace::new();
        trace.follow(&queue).unwrap();
        let halt = Arc::new(Halt::new(device));
        let halting = halt.clone();
        let work = move |r: &mut Recorder| {
            halting.record(r.command_buffer()?);
            Ok(())
        };
        let before = HostClock::Monotonic.now();
        queue.submit(&[], work, &[]).unwrap();
        queue.submit(&[], |_| Ok(()), &[]).unwrap();
        halt.wait();
        let recording = trace.finish(Duration::ZERO);
        halt.open();
        queue.idle(TIMEOUT).unwrap();
        let [hung, behind] = &recording.tracks[0].submissions[..] else {
            panic!("{recording:?}");
        };
        for one in [hung, behind] {
            assert_eq!((&one.outcome, one.ended), (&Outcome::Pending, None));
        }
        assert_eq!(behind.began, None);
        if device.info().driver.starts_with("llvmpipe") {
            assert_eq!(hung.began, None);
            return;
        }
        let began = hung.began.unwrap();
        let error = began.error.cast_signed();
        let times = before - error..=recording.ended + error;
        assert!(
            times.contains(&began.nanoseconds),
            "{began:?} not in {times:?}"
        );
    });
}

/// The times of a trace include executed command buffers of the application.
///
/// The recorder adds no other commands to such a submission.
fn executed_command_buffers_lie_between_the_times_of_a_trace() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Compute, "own").unwrap();
        let halt = Halt::new(device);
        let raw = device.raw();
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(queue.family());
        // SAFETY: `info` is valid. The pool is destroyed below, once the queue is idle.
        let pool = unsafe { raw.create_command_pool(&info, None) }.unwrap();
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(1);
        // SAFETY: plain recording of one command buffer.
        let own = unsafe {
            let own = raw.allocate_command_buffers(&info).unwrap()[0];
            raw.begin_command_buffer(own, &Default::default()).unwrap();
            halt.record(own);
            raw.end_command_buffer(own).unwrap();
            own
        };
        // Sampled before the halt, because a sample may need a queue that makes progress.
        let error = sample(&device.clock().unwrap()).deviation.cast_signed();
        let apart = 1_000_000 + 8 * error;
        let trace = Trace::new();
        trace.follow(&queue).unwrap();
        // SAFETY: the command buffer is executable, and the test keeps it.
        let work = move |recorder: &mut Recorder| unsafe { recorder.execute(&[own]) };
        queue.submit(&[], work, &[]).unwrap();
        halt.wait();
        let begun = HostClock::Monotonic.now();
        // Halts for longer than the error of both times.
        while HostClock::Monotonic.now() < begun + apart {
            std::thread::yield_now();
        }
        let opened = HostClock::Monotonic.now();
        halt.open();
        queue.idle(TIMEOUT).unwrap();
        let recording = trace.finish(TIMEOUT);
        let one = &recording.tracks[0].submissions[0];
        let (began, ended) = (one.began.unwrap(), one.ended.unwrap());
        let wrong = began.error.cast_signed() + ended.error.cast_signed();
        assert!(wrong < apart, "{one:?} tell nothing of {apart} ns");
        assert!(
            began.nanoseconds - began.error.cast_signed() <= begun,
            "it began before {begun}: {one:?}"
        );
        assert!(
            ended.nanoseconds + ended.error.cast_signed() >= opened,
            "it ended after {opened}: {one:?}"
        );
        // SAFETY: its work has finished.
        unsafe { raw.destroy_command_pool(pool, None) };
    });
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![
        a_trace_tells_what_has_begun_and_not_ended,
        executed_command_buffers_lie_between_the_times_of_a_trace,
        samples_lie_between_readings_of_the_host,
        device_times_rise_like_host_times,
        a_timestamp_converts_to_a_time_between_readings_of_the_host,
        a_blocked_queue_does_not_block_a_sample,
        a_device_has_one_clock_which_keeps_the_device,
        a_loader_without_the_calibration_query_is_accepted,
    ]
}
