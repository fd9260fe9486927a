//! Vulkan: submissions, queries, waits, and signals from the host.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::{Device, Queue};
use syncline::{QueueKind, WaitMode};
use syncline_conformance::Subject as _;
use syncline_conformance::workload::Equipped;

use super::{Call, Floor, Row, Variant};
use crate::cpu;
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::least::vulkan as least;
use crate::raw::vulkan::Hand;
use crate::side::{Outcome, Side, Stop, bursts, timed};
use crate::stats::median;

/// Time-out of all waits of these rows.
const LONG: Duration = Duration::from_secs(20);

/// Largest number of outstanding submissions of a side.
const BURST: u64 = 64;

/// The approximate duration of a long wait.
const LONG_WAIT: Duration = Duration::from_millis(3);

const OUTSTANDING: u64 = 0;
const REACHED: u64 = 1;

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "vulkan.submit",
        ours: "a submission with one timeline signal, 64 at a time, without their end",
        raw: "vkQueueSubmit with one timeline signal on the same VkQueue, 64 at a time",
        floor: Floor::Side(
            "vkQueueSubmit with two timeline signals, the second of which is the queue's position, by the least timelines that several threads may use: a lock for each queue, a claim, and a published value",
        ),
        limits: &[Limit::OverFloor(350.0)],
        on: &[On::VulkanQueues],
        variants: &[],
        run: submit,
    },
    Row {
        id: "vulkan.query",
        ours: "the value of a timeline, or whether a point is reached",
        raw: "vkGetSemaphoreCounterValue",
        floor: Floor::Raw,
        limits: &[],
        on: &[On::Vulkan],
        variants: &[
            Variant::with_limits(
                "with a signal outstanding",
                OUTSTANDING,
                &[Limit::OverRaw(60.0)],
            ),
            Variant::with_limits("known to be reached", REACHED, &[Limit::Within(5.0)]),
        ],
        run: query,
    },
    Row {
        id: "vulkan.submit.wait",
        ours: "submit a signal, and the host waits for it with the default wait, which spins for 30 µs and then parks",
        raw: "vkQueueSubmit and vkWaitSemaphores, which parks at once; polling: vkQueueSubmit and vkGetSemaphoreCounterValue until the value is reached",
        floor: Floor::Side(
            "vkQueueSubmit with a second timeline signal, the queue's position, and vkGetSemaphoreCounterValue until the first is reached",
        ),
        limits: &[],
        on: &[On::VulkanQueues],
        variants: &[],
        run: submit_wait,
    },
    Row {
        id: "vulkan.host.signal",
        ours: "signal a timeline from the host",
        raw: "vkSignalSemaphore",
        floor: Floor::Raw,
        limits: &[],
        on: &[On::Vulkan],
        variants: &[],
        run: host_signal,
    },
];

/// A queue of the subject's family, and a hand on the same `VkQueue`.
fn queue(call: &Call<'_>, label: &str) -> Outcome<(Device, Queue, Hand)> {
    let device = call.machine.vulkan(call.subject)?;
    let queue = match call.subject.family {
        Some(family) => device.queue_of_family(family.index, label)?,
        None => device.queue(QueueKind::Compute, label)?,
    };
    let hand = Hand::new(&device, queue.family(), queue.index());
    Ok((device, queue, hand))
}

fn submit(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (device, queue, hand) = queue(call, "submitted to")?;
    let timeline = device.timeline("submitted")?;
    let own_semaphore = device.semaphore_of(&timeline)?;
    let semaphore = hand.semaphore(false)?;
    let (least_semaphore, position) = (hand.semaphore(false)?, hand.semaphore(false)?);
    let least_timeline = least::Timeline::new(least_semaphore.raw);
    let least_queue = least::Queue::new(&hand, position.raw, &Arc::default());
    let (ours, raw, floor) = (Cell::new(0), Cell::new(0), Cell::new(0));
    lab.race(vec![
        Side::ours(|n| {
            bursts(
                n,
                BURST,
                |count| {
                    for value in ours.get() + 1..=ours.get() + count {
                        queue.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
                    }
                    ours.set(ours.get() + count);
                    Ok(())
                },
                || {
                    hand.wait(own_semaphore, ours.get())?;
                    Ok(timeline.at(ours.get()).wait(LONG)?)
                },
            )
        })
        .step(BURST),
        Side::raw(|n| {
            let queue = hand.lock()?;
            bursts(
                n,
                BURST,
                |count| {
                    for value in raw.get() + 1..=raw.get() + count {
                        hand.submit(&queue, (&[], &[]), (&[semaphore.raw], &[value]))?;
                    }
                    raw.set(raw.get() + count);
                    Ok(())
                },
                || {
                    hand.expect(semaphore, raw.get());
                    hand.wait(semaphore.raw, raw.get())
                },
            )
        })
        .step(BURST),
        Side::floor(|n| {
            let queue = hand.lock()?;
            bursts(
                n,
                BURST,
                |count| {
                    for value in floor.get() + 1..=floor.get() + count {
                        least_queue.submit(&queue, &[], &[(&least_timeline, value)])?;
                    }
                    floor.set(floor.get() + count);
                    Ok(())
                },
                || {
                    hand.expect(least_semaphore, floor.get());
                    hand.expect(position, least_queue.position());
                    hand.wait(least_semaphore.raw, floor.get())
                },
            )
        })
        .step(BURST),
    ])
}

fn query(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (device, _queue, hand) = queue(call, "idle")?;
    let timeline = device.timeline("queried")?;
    let semaphore = hand.semaphore(false)?;
    let raw = Side::raw(|n| {
        timed(|| {
            for _ in 0..n {
                black_box(hand.value(black_box(semaphore.raw))?);
            }
            Ok(())
        })
    });
    if call.n == REACHED {
        timeline.signal(1)?;
        let point = timeline.at(1);
        let ours = Side::ours(|n| {
            timed(|| {
                for _ in 0..n {
                    if !black_box(black_box(point).is_reached()?) {
                        return Err(Stop::Failed("a reached point is not reached".into()));
                    }
                }
                Ok(())
            })
        });
        return lab.race(vec![ours, raw]);
    }
    // Outstanding during the race: a submission of the application, for which the host signals
    // later.
    let mut claim = timeline.claim(1)?;
    claim.submitted()?;
    let raced = lab.race(vec![
        Side::ours(|n| {
            timed(|| {
                for _ in 0..n {
                    black_box(black_box(&timeline).value()?);
                }
                Ok(())
            })
        }),
        raw,
    ]);
    hand.signal(device.semaphore_of(&timeline)?, 1)?;
    timeline.at(1).wait(LONG)?;
    raced
}

fn submit_wait(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (device, queue, hand) = queue(call, "waited for")?;
    let timeline = device.timeline("waited for")?;
    let semaphores = [hand.semaphore(false)?, hand.semaphore(false)?];
    let (ours, raw) = (Cell::new(0), [Cell::new(0), Cell::new(0)]);
    let (least_semaphore, position) = (hand.semaphore(false)?, hand.semaphore(false)?);
    let mut floor = 0;
    // The two sides by hand differ only in how they wait.
    let by_hand = |n, which: usize, wait: &dyn Fn(u64) -> Outcome<()>| {
        let (semaphore, value) = (semaphores[which], &raw[which]);
        let queue = hand.lock()?;
        timed(|| {
            for _ in 0..n {
                value.set(value.get() + 1);
                hand.submit(&queue, (&[], &[]), (&[semaphore.raw], &[value.get()]))?;
                wait(value.get())?;
            }
            hand.expect(semaphore, value.get());
            Ok(())
        })
    };
    // The two sides of ours, too.
    let by_us = |n, mode| {
        timed(|| {
            for _ in 0..n {
                let value = ours.get() + 1;
                ours.set(value);
                queue.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
                timeline.at(value).wait_with(mode, LONG)?;
            }
            Ok(())
        })
    };
    lab.race(vec![
        Side::ours(|n| by_us(n, WaitMode::Adaptive)),
        Side::new("blocking", |n| by_us(n, WaitMode::Block)),
        Side::raw(|n| by_hand(n, 0, &|value| hand.wait(semaphores[0].raw, value))),
        Side::new("polling", |n| {
            by_hand(n, 1, &|value| hand.poll(semaphores[1].raw, value))
        }),
        Side::floor(|n| {
            let queue = hand.lock()?;
            timed(|| {
                for _ in 0..n {
                    floor += 1;
                    let signals = [least_semaphore.raw, position.raw];
                    hand.submit(&queue, (&[], &[]), (&signals, &[floor, floor]))?;
                    hand.poll(least_semaphore.raw, floor)?;
                }
                hand.expect(least_semaphore, floor);
                hand.expect(position, floor);
                Ok(())
            })
        }),
    ])?;
    long_wait(call, lab, &device, &queue, &hand)
}

/// Measures the processor time of a long wait, of all threads of the process.
fn long_wait(
    call: &Call<'_>,
    lab: &mut Lab,
    device: &Device,
    queue: &Queue,
    hand: &Hand,
) -> Outcome<()> {
    let software = device.info().software;
    let equipped = if software {
        None
    } else {
        Some(call.machine.equipped(call.subject.indices[0])?)
    };
    let timeline = device.timeline("long waited for")?;
    let semaphore = device.semaphore_of(&timeline)?;
    let never = hand.semaphore(false)?;
    // Three ways to wait, in turns: ours, by hand, and by hand in a way that can be ended early.
    let mut costs = [const { Vec::new() }; 3];
    let mut took = Vec::new();
    let ways = costs.len() as u64;
    // The first wait of each way only warms up.
    for round in 0..ways * (1 + u64::from(lab.rounds())) {
        let value = round + 1;
        // The order alternates.
        let turn = round % ways;
        let way = if (round / ways).is_multiple_of(2) {
            turn
        } else {
            ways - 1 - turn
        };
        let wait = || -> Outcome<()> {
            match way {
                0 => Ok(timeline.at(value).wait(LONG)?),
                1 => hand.wait(semaphore, value),
                _ => hand.wait_or(semaphore, value, never.raw),
            }
        };
        let start = std::time::Instant::now();
        let cost = match &equipped {
            Some(equipped) => {
                occupy(equipped, queue, &timeline, value)?;
                let before = cpu::of_process();
                wait()?;
                cpu::of_process() - before
            }
            None => after_a_while(hand, &timeline, semaphore, value, wait)?,
        };
        took.push(start.elapsed().as_nanos() as f64);
        // Tells the engine of a wait by hand.
        timeline.at(value).wait(LONG)?;
        if round >= ways {
            costs[way as usize].push(cost.as_nanos() as f64);
        }
    }
    let of = |samples: &[f64]| median(samples).unwrap_or(f64::NAN);
    // Of each round, so that a disturbance of one round affects all three ways.
    let to = |one: &[f64], other: &[f64]| {
        let pairs = one.iter().zip(other);
        of(&pairs.map(|(one, other)| one / other).collect::<Vec<_>>())
    };
    let [ours, raw, floor] = &costs;
    lab.figure("long_wait_ns", of(&took));
    lab.figure("long_wait_cpu_ours_ns", of(ours));
    lab.figure("long_wait_cpu_raw_ns", of(raw));
    lab.figure("long_wait_cpu_floor_ns", of(floor));
    lab.figure("long_wait_cpu_ratio", to(ours, raw));
    lab.figure("long_wait_cpu_floor_ratio", to(floor, raw));
    lab.note("long wait: the floor is vkWaitSemaphores for any of two semaphores, of which the second would end it early".into());
    lab.note(if software {
        "long wait: for a later signal of the host, because work of this device would take processor time; processor time of all threads"
            .into()
    } else {
        "long wait: for a few milliseconds of device work; processor time of all threads".into()
    });
    Ok(())
}

/// Submits about [`LONG_WAIT`] of device work that signals `value`.
fn occupy(
    equipped: &Equipped,
    queue: &Queue,
    timeline: &syncline::Timeline,
    value: u64,
) -> Outcome<()> {
    let equipped = equipped.clone();
    queue.submit(
        &[],
        move |recorder| {
            equipped.busy(
                &mut syncline::Recorder::Vulkan(recorder.reborrow()),
                LONG_WAIT,
            )
        },
        &[timeline.signal_at(value)],
    )?;
    Ok(())
}

/// Returns the processor time of a wait while another thread sleeps and then signals.
///
/// Without the processor time of that thread.
fn after_a_while(
    hand: &Hand,
    timeline: &syncline::Timeline,
    semaphore: ash::vk::Semaphore,
    value: u64,
    wait: impl FnOnce() -> Outcome<()>,
) -> Outcome<Duration> {
    let mut claim = timeline.claim(value)?;
    claim.submitted()?;
    let signaller = hand.signaller(semaphore);
    thread::scope(|scope| {
        let sleeper = scope.spawn(move || {
            thread::sleep(LONG_WAIT);
            let signalled = signaller.signal(value);
            signalled.map(|()| cpu::of_thread())
        });
        let before = cpu::of_process();
        wait()?;
        let spent = sleeper
            .join()
            .map_err(|_| Stop::Failed("the signalling thread panicked".into()))??;
        Ok((cpu::of_process() - before).saturating_sub(spent))
    })
}

fn host_signal(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let (device, _queue, hand) = queue(call, "idle")?;
    let timeline = device.timeline("signalled")?;
    let semaphore = hand.semaphore(false)?;
    let (mut ours, mut raw) = (0, 0);
    lab.race(vec![
        Side::ours(|n| {
            timed(|| {
                for _ in 0..n {
                    ours += 1;
                    timeline.signal(ours)?;
                }
                Ok(())
            })
        }),
        Side::raw(|n| {
            timed(|| {
                for _ in 0..n {
                    raw += 1;
                    hand.signal(semaphore.raw, raw)?;
                }
                Ok(())
            })
        }),
    ])
}
