//! Submissions: waits, work, signals, fences and times, on every Vulkan device of the machine.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
#![allow(unsafe_code, reason = "records a command buffer of its own")]

use crate::common::{Stall, TIMEOUT, all_words, on_each_device, words};
use std::time::Duration;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind, wait_all};
use syncline_vulkan::ash::vk;
use syncline_vulkan::{Device, Recorder};

fn a_chain_between_two_queues_carries_data() {
    on_each_device(|device| {
        let left = device.queue(QueueKind::Graphics, "left").unwrap();
        let right = device.queue(QueueKind::Compute, "right").unwrap();
        let (source, target) = (words(device, 4096), words(device, 4096));
        let steps = device.timeline("steps").unwrap();
        for n in 1..=50 {
            let (from, to, filled) = (source.clone(), target.clone(), source.clone());
            left.submit(
                &[steps.at(2 * n - 2)],
                move |recorder| recorder.fill_buffer(&filled, n as u32),
                &[steps.signal_at(2 * n - 1)],
            )
            .unwrap();
            right
                .submit(
                    &[steps.at(2 * n - 1)],
                    move |recorder| recorder.copy_buffer(&from, &to),
                    &[steps.signal_at(2 * n)],
                )
                .unwrap();
            if n % 10 == 0 {
                steps.at(2 * n).wait(TIMEOUT).unwrap();
                assert_eq!(all_words(&target), n as u32);
            }
        }
    });
}

fn a_consumer_submitted_first_is_held_and_sees_the_data() {
    on_each_device(|device| {
        let consumer = device.queue(QueueKind::Compute, "consumer").unwrap();
        let producer = device.queue(QueueKind::Compute, "producer").unwrap();
        let (source, target) = (words(device, 1024), words(device, 1024));
        let ready = device.timeline("ready").unwrap();
        let (from, to) = (source.clone(), target.clone());
        let submitted = consumer
            .submit(
                &[ready.at(1)],
                move |recorder| recorder.copy_buffer(&from, &to),
                &[ready.signal_at(2)],
            )
            .unwrap();
        assert!(submitted.is_held());
        assert_eq!(consumer.held().count, 1);
        assert!(
            ready
                .at(2)
                .wait(Duration::from_millis(20))
                .unwrap_err()
                .is_timeout()
        );
        assert_eq!(
            all_words(&target),
            0,
            "the consumer ran before the producer"
        );
        producer
            .submit(
                &[],
                move |recorder| recorder.fill_buffer(&source, 77),
                &[ready.signal_at(1)],
            )
            .unwrap();
        ready.at(2).wait(TIMEOUT).unwrap();
        assert_eq!(all_words(&target), 77);
    });
}

fn sixty_four_waiting_queues_do_not_block_the_one_that_signals() {
    on_each_device(|device| {
        let gate = device.timeline("gate").unwrap();
        let waiting: Vec<_> = (0..64)
            .map(|n| {
                let queue = device
                    .queue(QueueKind::Compute, &format!("waiting {n}"))
                    .unwrap();
                let (done, target) = (device.timeline("done").unwrap(), words(device, 16));
                let filled = target.clone();
                queue
                    .submit(
                        &[gate.at(1)],
                        move |recorder| recorder.fill_buffer(&filled, n),
                        &[done.signal_at(1)],
                    )
                    .unwrap();
                (queue, done, target)
            })
            .collect();
        assert!(waiting.iter().all(|(queue, ..)| queue.held().count == 1));
        let opener = device.queue(QueueKind::Compute, "opener").unwrap();
        opener
            .submit(&[], |_| Ok(()), &[gate.signal_at(1)])
            .unwrap();
        let done: Vec<_> = waiting.iter().map(|(_, done, _)| done.at(1)).collect();
        wait_all(&done, TIMEOUT).unwrap();
        for (n, (_, _, target)) in (0..).zip(&waiting) {
            assert_eq!(all_words(target), n);
        }
    });
}

fn signals_of_one_timeline_from_many_queues_complete_in_order() {
    on_each_device(|device| {
        let count = device.timeline("count").unwrap();
        let queues: Vec<_> = (0..4)
            .map(|n| {
                device
                    .queue(QueueKind::Compute, &format!("signaller {n}"))
                    .unwrap()
            })
            .collect();
        let targets: Vec<_> = (0..40).map(|_| words(device, 256)).collect();
        for (n, target) in (1..).zip(&targets) {
            let filled = target.clone();
            queues[n as usize % 4]
                .submit(
                    &[],
                    move |recorder| recorder.fill_buffer(&filled, n),
                    &[count.signal_at(u64::from(n))],
                )
                .unwrap();
        }
        count.at(40).wait(TIMEOUT).unwrap();
        for (n, target) in (1..).zip(&targets) {
            assert_eq!(
                all_words(target),
                n,
                "reached although earlier work was not done"
            );
        }
    });
}

fn work_of_one_queue_runs_in_order_without_waits() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Transfer, "stream").unwrap();
        let (a, b) = (words(device, 65_536), words(device, 65_536));
        for n in 1..=20 {
            let (filled, from, to) = (a.clone(), a.clone(), b.clone());
            queue
                .submit(&[], move |recorder| recorder.fill_buffer(&filled, n), &[])
                .unwrap();
            queue
                .submit(&[], move |recorder| recorder.copy_buffer(&from, &to), &[])
                .unwrap();
        }
        queue.idle(TIMEOUT).unwrap();
        assert_eq!(all_words(&b), 20);
    });
}

fn a_signal_that_is_not_above_the_value_is_refused() {
    on_each_device(|device| {
        let timeline = device.timeline_from("counter", 5).unwrap();
        timeline.signal(9).unwrap();
        for asked in [9, 5, 0] {
            assert!(matches!(
                timeline.signal(asked),
                Err(Error::SignalNotAboveReached { reached: 9, .. })
            ));
        }
        assert!(matches!(
            timeline.signal(u64::MAX),
            Err(Error::ValueOutOfRange { .. })
        ));
        assert_eq!(timeline.value().unwrap(), 9);
        timeline.signal(10).unwrap();
        assert_eq!(timeline.value().unwrap(), 10);
    });
}

fn refused_work_leaves_the_queue_usable() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Compute, "refusing").unwrap();
        let (target, done) = (words(device, 64), device.timeline("done").unwrap());
        let filled = target.clone();
        let refused = queue.submit(
            &[],
            move |recorder| {
                recorder.fill_buffer(&filled, 1)?;
                Err(Error::work(std::io::Error::other("no")))
            },
            &[done.signal_at(1)],
        );
        assert!(matches!(refused, Err(Error::Work(_))));
        let filled = target.clone();
        queue
            .submit(
                &[],
                move |recorder| recorder.fill_buffer(&filled, 2),
                &[done.signal_at(1)],
            )
            .unwrap();
        done.at(1).wait(TIMEOUT).unwrap();
        assert_eq!(all_words(&target), 2);
    });
}

fn fences_are_recorded_again_and_tell_times() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Compute, "timed").unwrap();
        let (begin, end) = (device.timed_fence("begin"), device.timed_fence("end"));
        assert!(begin.is_complete().unwrap(), "never recorded is complete");
        assert!(matches!(
            end.elapsed_since(&begin),
            Err(Error::NotRecorded { .. })
        ));
        // More rounds than a query pool has queries.
        for round in 0..80 {
            queue.record(&begin).unwrap();
            work(device, &queue);
            queue.record(&end).unwrap();
            if round % 16 == 0 {
                end.wait(TIMEOUT).unwrap();
                let elapsed = end.elapsed_since(&begin).unwrap();
                assert!(elapsed > 0, "{elapsed} ns");
                assert_eq!(begin.elapsed_since(&end).unwrap(), -elapsed);
                assert_eq!(begin.elapsed_since(&begin).unwrap(), 0);
            }
        }
        let plain = device.fence("plain");
        queue.record(&plain).unwrap();
        plain.wait(TIMEOUT).unwrap();
        assert!(matches!(
            plain.elapsed_since(&begin),
            Err(Error::TimingDisabled { .. })
        ));
    });
}

fn work(device: &Device, queue: &syncline_vulkan::Queue) {
    let target = words(device, 16_384);
    queue
        .submit(&[], move |recorder| recorder.fill_buffer(&target, 3), &[])
        .unwrap();
}

fn a_queue_dropped_with_work_in_flight_finishes_it() {
    on_each_device(|device| {
        let (gate, done) = (
            device.timeline("gate").unwrap(),
            device.timeline("done").unwrap(),
        );
        let target = words(device, 1 << 20);
        let queue = device.queue(QueueKind::Compute, "short-lived").unwrap();
        let held = device.queue(QueueKind::Compute, "held").unwrap();
        for n in 1..=8 {
            let filled = target.clone();
            queue
                .submit(&[], move |r| r.fill_buffer(&filled, n), &[])
                .unwrap();
        }
        let last = queue.position().keep();
        let filled = target.clone();
        held.submit(
            &[gate.at(1), last.point()],
            move |recorder| recorder.fill_buffer(&filled, 99),
            &[done.signal_at(1)],
        )
        .unwrap();
        drop((queue, held));
        gate.signal(1).unwrap();
        done.at(1).wait(TIMEOUT).unwrap();
        assert_eq!(all_words(&target), 99);
        // A timeline is dropped while its signal is pending.
        let queue = device.queue(QueueKind::Compute, "last").unwrap();
        for n in 1..=100 {
            let (gone, filled) = (device.timeline("gone").unwrap(), target.clone());
            queue
                .submit(
                    &[],
                    move |r| r.fill_buffer(&filled, n),
                    &[gone.signal_at(1)],
                )
                .unwrap();
        }
        queue.idle(TIMEOUT).unwrap();
        assert_eq!(all_words(&target), 100);
    });
}

fn a_closed_gate_on_the_device_never_blocks_the_submitter() {
    const SUBMISSIONS: u32 = 8000;
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Graphics, "gated").unwrap();
        // Shares the driver queue, and so its in-flight budget, if the family has only one.
        let family = device.queue_of_family(queue.family(), "neighbour").unwrap();
        let filled = words(device, 1);
        let stall = Stall::on(device, &queue);
        let (ended, end) = std::sync::mpsc::channel();
        let (held, by_itself) = std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 1..=SUBMISSIONS {
                    let filled = filled.clone();
                    let work =
                        move |r: &mut syncline_vulkan::Recorder| r.fill_buffer(&filled, value);
                    queue.submit(&[], work, &[]).unwrap();
                }
                let _ = ended.send(queue.held().count);
            });
            let held = end.recv_timeout(TIMEOUT);
            stall.release();
            (held.unwrap_or(0), held.is_ok())
        });
        assert!(by_itself, "the driver is full");
        assert!(held > 0, "nothing is held");
        queue.idle(TIMEOUT).unwrap();
        family.idle(TIMEOUT).unwrap();
        assert_eq!(all_words(&filled), SUBMISSIONS);
    });
}

/// The driver blocks the submitting thread behind earlier work if too much is in flight.
fn a_submission_of_more_units_than_the_driver_takes_is_refused() {
    on_each_device(|device| {
        let queue = device.queue(QueueKind::Compute, "queue").unwrap();
        let raw = device.raw();
        // SAFETY: plain recording of an empty command buffer. The pool lives until the queue is
        // idle.
        let (pool, empty) = unsafe {
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(queue.family());
            let pool = raw.create_command_pool(&info, None).unwrap();
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(pool)
                .command_buffer_count(1);
            let empty = raw.allocate_command_buffers(&info).unwrap()[0];
            let info = vk::CommandBufferBeginInfo::default()
                .flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
            raw.begin_command_buffer(empty, &info).unwrap();
            raw.end_command_buffer(empty).unwrap();
            (pool, empty)
        };
        let submit = |buffers: usize| {
            // SAFETY: an executable command buffer for simultaneous use, which the test keeps.
            let work = move |r: &mut Recorder| unsafe { r.execute(&vec![empty; buffers]) };
            queue.submit(&[], work, &[])
        };
        // Four units for the submission, and one for the signal of the queue's position.
        let largest = 16_000 - 5;
        submit(largest).unwrap();
        let refused = submit(largest + 1).unwrap_err();
        assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
        assert!(refused.to_string().contains("16001 units"), "{refused}");
        submit(1).unwrap();
        queue.idle(TIMEOUT).unwrap();
        // SAFETY: its work has finished.
        unsafe { raw.destroy_command_pool(pool, None) };
    });
}

fn a_buffer_of_another_device_is_refused() {
    on_each_device(|device| {
        let Some(instance) = crate::common::instance() else {
            return;
        };
        let other = instance.open_first().unwrap();
        let (queue, foreign) = (
            device.queue(QueueKind::Compute, "q").unwrap(),
            words(&other, 4),
        );
        let refused = queue.submit(&[], move |r| r.fill_buffer(&foreign, 1), &[]);
        assert!(matches!(refused, Err(Error::WrongDevice { .. })));
        assert!(device.host_buffer(0, Default::default()).is_err());
    });
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    crate::common::trials![
        a_chain_between_two_queues_carries_data,
        a_consumer_submitted_first_is_held_and_sees_the_data,
        sixty_four_waiting_queues_do_not_block_the_one_that_signals,
        signals_of_one_timeline_from_many_queues_complete_in_order,
        work_of_one_queue_runs_in_order_without_waits,
        a_signal_that_is_not_above_the_value_is_refused,
        refused_work_leaves_the_queue_usable,
        fences_are_recorded_again_and_tell_times,
        a_queue_dropped_with_work_in_flight_finishes_it,
        a_closed_gate_on_the_device_never_blocks_the_submitter,
        a_submission_of_more_units_than_the_driver_takes_is_refused,
        a_buffer_of_another_device_is_refused,
    ]
}
