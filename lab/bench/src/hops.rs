//! The cost of one dependency between every two queues of the machine.
//!
//! A hop is a submission without work that waits for a value and signals the next. A chain of hops
//! goes back and forth between two queues. It is submitted as a whole and timed from the first
//! submission to the end. So the time of a hop is the mean of both directions. On one queue all
//! hops of the chain are on that queue. The host's own thread does not submit: it signals, and
//! waits for the answer.

use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Queue, QueueKind, Timeline, connect, info::BackendKind};
use syncline_conformance::inventory::name_of;

use crate::machine::Machine;
use crate::side::{Outcome, Stop};
use crate::stats::median;

/// Time-out of all waits.
const LONG: Duration = Duration::from_secs(20);

/// Hops of one chain.
const HOPS: u64 = 32;

/// A place with its open device.
struct Ready {
    name: String,
    device: Device,
    /// `None` for the thread.
    queue: Option<Queue>,
}

/// The places of the devices whose names contain `wanted`, which is in lower case.
fn places(machine: &Machine, wanted: Option<&str>) -> Outcome<Vec<Ready>> {
    let mut places = Vec::new();
    for found in machine.inventory().devices() {
        let name = name_of(machine.inventory(), found);
        let is_wanted = wanted.is_none_or(|wanted| {
            let index: Option<usize> = wanted.parse().ok();
            index.map_or_else(
                || name.to_lowercase().contains(&wanted.to_lowercase()),
                |index| index == found.index(),
            )
        });
        if found.rejected().is_some() || !is_wanted {
            continue;
        }
        let device = machine.device(found.index())?;
        let mut add = |what: String, queue: Option<Queue>| {
            places.push(Ready {
                name: format!("{name}, {what}"),
                device: device.clone(),
                queue,
            });
        };
        #[cfg(feature = "vulkan")]
        if let Device::Vulkan(vulkan) = &device {
            for family in &found.info().capabilities.queues {
                // Two queues of a family show the cost between any two.
                for index in 0..family.count.unwrap_or(1).min(2) {
                    let queue = vulkan.queue_on(family.index, index, "hops")?;
                    let what = format!("{} {}.{index}", family.kind, family.index);
                    add(what, Some(queue.into()));
                }
            }
            continue;
        }
        if found.info().backend == BackendKind::Host {
            add("this thread".into(), None);
        }
        for number in 1..=2 {
            let queue = device.queue(QueueKind::Compute, "hops")?;
            add(format!("queue {number}"), Some(queue));
        }
    }
    Ok(places)
}

/// Measures every two places, each pair for about `budget`.
///
/// Returns a table of microseconds per hop, and false if a pair has failed.
///
/// # Errors
/// A driver error before the first measurement; no device with the name `wanted`.
pub fn table(machine: &Machine, wanted: Option<&str>, budget: Duration) -> Outcome<(String, bool)> {
    let places = places(machine, wanted)?;
    if places.is_empty() {
        let asked = wanted.unwrap_or_default();
        return Err(Stop::Failed(format!("no device is called \"{asked}\"")));
    }
    let width = places.iter().map(|place| place.name.len()).max();
    let width = width.unwrap_or_default();
    let mut text = String::from("Microseconds per hop, the mean of both directions:\n\n");
    text += &format!("{:>4} {:width$}", "", "");
    for number in 1..=places.len() {
        text += &format!(" {number:>8}");
    }
    let mut failures = String::new();
    for (row, right) in places.iter().enumerate() {
        text += &format!("\n{:>4} {:width$}", row + 1, right.name);
        for left in &places[..=row] {
            let cell = match hop(left, right, budget) {
                Ok(None) => "-".into(),
                Ok(Some(time)) => micros(time),
                Err(stop) => {
                    failures += &format!("\nFAILED: {} to {}: {stop}", left.name, right.name);
                    "failed".into()
                }
            };
            text += &format!(" {cell:>8}");
        }
    }
    let all_ran = failures.is_empty();
    Ok((text + &failures, all_ran))
}

/// The median nanoseconds of a hop. `None` if neither place is a queue.
fn hop(left: &Ready, right: &Ready, budget: Duration) -> Outcome<Option<f64>> {
    if left.queue.is_none() && right.queue.is_none() {
        return Ok(None);
    }
    let timeline = connect(&left.device, &right.device).timeline("hops")?;
    chains(left, right, &timeline, budget).map(Some)
}

/// Runs chains between two places until the time is over. Returns nanoseconds of one hop.
fn chains(left: &Ready, right: &Ready, timeline: &Timeline, budget: Duration) -> Outcome<f64> {
    /// Smallest number of samples, for any duration.
    const LEAST: usize = 5;
    let mut value = 0;
    let mut samples = Vec::new();
    let start = Instant::now();
    // The first chain warms up.
    while samples.len() < LEAST + 1 || start.elapsed() < budget {
        let begun = Instant::now();
        match (&left.queue, &right.queue) {
            (Some(left), Some(right)) => between_queues([left, right], timeline, &mut value)?,
            (Some(queue), None) | (None, Some(queue)) => {
                with_thread(queue, timeline, &mut value)?;
            }
            (None, None) => return Err(Stop::Skipped("one thread needs no order".into())),
        }
        samples.push(begun.elapsed().as_nanos() as f64 / HOPS as f64);
    }
    median(&samples[1..]).ok_or_else(|| Stop::Failed("nothing was measured".into()))
}

fn between_queues(queues: [&Queue; 2], timeline: &Timeline, value: &mut u64) -> Outcome<()> {
    for hop in 0..HOPS as usize {
        let (wait, signal) = (timeline.at(*value), timeline.signal_at(*value + 1));
        queues[hop % 2].submit(&[wait], |_| Ok(()), &[signal])?;
        *value += 1;
    }
    Ok(timeline.at(*value).wait(LONG)?)
}

fn with_thread(queue: &Queue, timeline: &Timeline, value: &mut u64) -> Outcome<()> {
    for _ in 0..HOPS / 2 {
        let (there, back) = (*value + 1, *value + 2);
        queue.submit(
            &[timeline.at(there)],
            |_| Ok(()),
            &[timeline.signal_at(back)],
        )?;
        timeline.signal(there)?;
        timeline.at(back).wait(LONG)?;
        *value = back;
    }
    Ok(())
}

/// Microseconds with a suitable number of digits.
fn micros(nanoseconds: f64) -> String {
    match nanoseconds / 1e3 {
        short if short < 9.95 => format!("{short:.2}"),
        middle if middle < 99.5 => format!("{middle:.1}"),
        long => format!("{long:.0}"),
    }
}
