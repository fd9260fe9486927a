//! Shared semaphores of one device.
#![allow(unsafe_code, reason = "calls Vulkan")]

use std::os::fd::AsFd;

use ash::vk;
use syncline_software_payload as software;

use crate::Case;
use crate::gpu::{Driver, FOR_EVER, Gpu};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("host_signals_waits_and_values", host),
    ("a_lower_signal_changes_nothing", lower),
    ("one_batch_waits_and_signals", itself),
    ("waits_for_any_and_all_of_both_kinds", any_and_all),
    ("a_fence_shows_after_the_signal", fence),
    ("submit2_with_both_kinds", submit2),
    ("binary_batches_without_values", without_values),
    ("many_threads_wait", many_threads),
    ("destroyed_while_a_value_is_watched", destroyed),
    ("nothing_is_left", nothing_is_left),
    ("a_call_of_a_forked_process_ends_it", forked),
];

const ALL: vk::SemaphoreWaitFlags = vk::SemaphoreWaitFlags::empty();
const ANY: vk::SemaphoreWaitFlags = vk::SemaphoreWaitFlags::ANY;

fn host(driver: &Driver) {
    let gpu = driver.open();
    let frames = gpu.shared_timeline(3);
    assert_eq!(gpu.value(frames), 3);
    for timeout in [0, 1_000_000] {
        let waited = gpu.try_wait(&[(frames, 4)], ALL, timeout);
        assert_eq!(waited, Err(vk::Result::TIMEOUT));
    }
    assert_eq!(gpu.try_wait(&[(frames, 3)], ALL, 0), Ok(()));
    gpu.signal(frames, 9);
    assert_eq!(gpu.value(frames), 9);
    gpu.wait(frames, 9);
}

fn lower(driver: &Driver) {
    let gpu = driver.open();
    let frames = gpu.shared_timeline(0);
    gpu.signal(frames, 9);
    gpu.signal(frames, 5);
    assert_eq!(gpu.value(frames), 9);
    gpu.submit(&[(frames, 9)], &[], &[(frames, 10)]);
    gpu.wait(frames, 10);
}

fn itself(driver: &Driver) {
    let gpu = driver.open();
    let frames = gpu.shared_timeline(0);
    for round in 0..50 {
        let value = round * 3;
        gpu.submit(&[(frames, value + 1)], &[], &[(frames, value + 2)]);
        gpu.submit(&[(frames, value + 2)], &[], &[(frames, value + 3)]);
        gpu.signal(frames, value + 1);
        gpu.wait(frames, value + 3);
    }
}

fn any_and_all(driver: &Driver) {
    let gpu = driver.open();
    let (own, one, other) = (
        gpu.timeline(0),
        gpu.shared_timeline(0),
        gpu.shared_timeline(0),
    );
    let waits = |value| [(own, value), (one, value), (other, value)];
    for flags in [ALL, ANY] {
        let waited = gpu.try_wait(&waits(1), flags, 0);
        assert_eq!(waited, Err(vk::Result::TIMEOUT));
    }
    for (value, signalled) in (1..).zip([own, one, other]) {
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| gpu.try_wait(&waits(value), ANY, FOR_EVER));
            gpu.submit(&[], &[], &[(signalled, value)]);
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
        let waited = gpu.try_wait(&waits(value), ALL, 0);
        assert_eq!(waited, Err(vk::Result::TIMEOUT));
        for semaphore in [own, one, other] {
            if gpu.value(semaphore) < value {
                gpu.signal(semaphore, value);
            }
        }
        assert_eq!(gpu.try_wait(&waits(value), ALL, FOR_EVER), Ok(()));
    }
}

/// A thread that knows that the fence is signalled finds the value, here and in the page.
fn fence(driver: &Driver) {
    let gpu = driver.open();
    let (frames, own) = (gpu.shared_timeline(0), gpu.timeline(0));
    let page = software::Semaphore::open(gpu.export(frames).as_fd()).unwrap();
    let fence = gpu.fence();
    for value in 1..=200 {
        gpu.try_submit(&[], &[], &[(frames, value)], fence).unwrap();
        // SAFETY: a live fence, which no queue uses after the wait.
        unsafe {
            if value % 2 == 0 {
                gpu.device
                    .wait_for_fences(&[fence], true, FOR_EVER)
                    .unwrap();
            } else {
                while !gpu.device.get_fence_status(fence).unwrap() {
                    std::thread::yield_now();
                }
            }
            gpu.device.reset_fences(&[fence]).unwrap();
        }
        assert_eq!(page.value(), value);
        assert_eq!(gpu.value(frames), value);
    }
    for value in 1001..=1200 {
        gpu.submit(&[], &[], &[(own, value), (frames, value)]);
        match value % 3 {
            0 => gpu.idle(),
            1 => gpu.wait(own, value),
            _ => {
                while gpu.value(own) < value {
                    std::thread::yield_now();
                }
            }
        }
        assert_eq!(page.value(), value);
    }
}

fn submit2(driver: &Driver) {
    let gpu = driver.open();
    let (own, frames) = (gpu.timeline(0), gpu.shared_timeline(0));
    let (drawn, own_drawn) = (gpu.shared_binary(), gpu.binary());
    let point = |semaphore, value| {
        vk::SemaphoreSubmitInfo::default()
            .semaphore(semaphore)
            .value(value)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
    };
    for round in 0..20 {
        let value = round * 2;
        let first_waits = [point(frames, value + 1)];
        let first_signals = [point(drawn, 0), point(own, value + 1), point(own_drawn, 0)];
        let last_waits = [point(own_drawn, 0), point(drawn, 0), point(own, value + 1)];
        let last_signals = [point(own, value + 2), point(frames, value + 2)];
        let batches = [
            vk::SubmitInfo2::default()
                .wait_semaphore_infos(&first_waits)
                .signal_semaphore_infos(&first_signals),
            vk::SubmitInfo2::default()
                .wait_semaphore_infos(&last_waits)
                .signal_semaphore_infos(&last_signals),
        ];
        // Vulkan forbids a wait for a binary semaphore whose signal waits for what is yet to come.
        gpu.signal(frames, value + 1);
        // SAFETY: valid structures with live objects.
        unsafe {
            gpu.device
                .queue_submit2(gpu.queue, &batches, vk::Fence::null())
        }
        .unwrap();
        gpu.wait(frames, value + 2);
        gpu.wait(own, value + 2);
    }
}

/// Batches without `VkTimelineSemaphoreSubmitInfo`, in one call with a batch that has it.
fn without_values(driver: &Driver) {
    let gpu = driver.open();
    let (drawn, shown) = ([gpu.shared_binary()], [gpu.binary()]);
    let frames = [gpu.shared_timeline(0)];
    let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
    let fence = gpu.fence();
    for round in 1..=20 {
        let values = [round];
        let mut told = vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let batches = [
            vk::SubmitInfo::default().signal_semaphores(&drawn),
            vk::SubmitInfo::default()
                .wait_semaphores(&drawn)
                .wait_dst_stage_mask(&stages)
                .signal_semaphores(&shown),
            vk::SubmitInfo::default()
                .wait_semaphores(&shown)
                .wait_dst_stage_mask(&stages)
                .signal_semaphores(&frames)
                .push_next(&mut told),
        ];
        // SAFETY: valid structures with live objects; the fence is unsignalled.
        unsafe {
            gpu.device.queue_submit(gpu.queue, &batches, fence).unwrap();
            gpu.device
                .wait_for_fences(&[fence], true, FOR_EVER)
                .unwrap();
            gpu.device.reset_fences(&[fence]).unwrap();
        }
        assert_eq!(gpu.value(frames[0]), round);
    }
}

fn many_threads(driver: &Driver) {
    let gpu = driver.open();
    let all: Vec<_> = (0..4).map(|_| gpu.shared_timeline(0)).collect();
    std::thread::scope(|threads| {
        for &semaphore in &all {
            let gpu = &gpu;
            threads.spawn(move || {
                for value in 1..=100 {
                    gpu.wait(semaphore, value * 2 - 1);
                    assert!(gpu.value(semaphore) >= value * 2 - 1);
                    gpu.signal(semaphore, value * 2);
                }
            });
        }
        // One thread has the queue.
        for value in 1..=100 {
            let signals: Vec<_> = all.iter().map(|&one| (one, value * 2 - 1)).collect();
            let waits: Vec<_> = all.iter().map(|&one| (one, value * 2 - 2)).collect();
            gpu.submit(&waits, &[], &signals);
        }
    });
}

/// A queue has waited for each of these semaphores, so a thread follows its page.
fn destroyed(driver: &Driver) {
    let gpu = driver.open();
    let own = gpu.timeline(0);
    for value in 1..=20 {
        let frames = gpu.shared_timeline(0);
        gpu.submit(&[(frames, 1)], &[], &[(own, value)]);
        gpu.signal(frames, 1);
        gpu.idle();
        assert_eq!(gpu.value(own), value);
        gpu.destroy(frames);
    }
}

/// Each function that destroys ends a forked process. The parent goes on.
fn forked(driver: &Driver) {
    let gpu = driver.open();
    let frames = gpu.shared_timeline(0);
    let calls: [&dyn Fn(); 4] = [
        &|| gpu.destroy(frames),
        // SAFETY: the process ends in the call.
        &|| unsafe { gpu.device.destroy_buffer(vk::Buffer::null(), None) },
        // SAFETY: as above.
        &|| unsafe { gpu.device.free_memory(vk::DeviceMemory::null(), None) },
        // SAFETY: as above.
        &|| unsafe { gpu.device.destroy_device(None) },
    ];
    for call in calls {
        // SAFETY: the child makes one call, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            call();
            // SAFETY: the child ends here.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: the child's id, and memory for its status.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(ended, child);
        assert_eq!(libc::WTERMSIG(status), libc::SIGABRT, "{status:#x}");
    }
    gpu.signal(frames, 1);
    gpu.wait(frames, 1);
}

/// The process has the same threads of the layer and the same descriptors as before.
fn nothing_is_left(driver: &Driver) {
    let use_it = |gpu: &Gpu| {
        let frames = gpu.shared_timeline(0);
        let other = gpu.imported_timeline(gpu.export(frames));
        gpu.submit(&[(other, 1)], &[], &[(other, 2)]);
        gpu.signal(frames, 1);
        gpu.wait(frames, 2);
        gpu.idle();
    };
    // Drivers open some descriptors with the first device.
    use_it(&driver.open());
    no_threads();
    let before = descriptors();
    for _ in 0..3 {
        use_it(&driver.open());
    }
    no_threads();
    assert_eq!(before, descriptors());
}

/// Returns once the layer has no thread.
///
/// The system still lists a thread for a moment after it was joined.
fn no_threads() {
    let start = std::time::Instant::now();
    while threads() > 0 {
        assert!(start.elapsed().as_secs() < 60, "{} threads", threads());
        std::thread::yield_now();
    }
}

/// Returns the number of the layer's threads in this process.
fn threads() -> usize {
    let all = std::fs::read_dir("/proc/self/task").unwrap();
    all.filter(|task| {
        let name = task.as_ref().unwrap().path().join("comm");
        std::fs::read_to_string(name).is_ok_and(|name| name.starts_with("syncline-"))
    })
    .count()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
