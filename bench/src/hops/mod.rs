//! The cost of one dependency between every two queues of the machine.
//!
//! A hop is a submission without work that waits for a value and signals the next. A chain of hops
//! goes back and forth between two queues. It is submitted as a whole and timed from the first
//! submission to the end. So the time of a hop is the mean of both directions. On one queue all
//! hops of the chain are on that queue. The host's own thread does not submit: it signals, and
//! waits for the answer.

mod advice;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use syncline::backend::Queue as _;
use syncline::{Device, Queue, QueueKind, Timeline, connect};
use syncline_conformance::COMMIT;
use syncline_conformance::inventory::{device_lines, name_of};
use syncline_conformance::report::{DeviceLine, command, now};

pub use advice::advise;

use crate::machine::Machine;
use crate::side::{Outcome, Stop};
use crate::stats::Summary;

/// Time-out of all waits.
const LONG: Duration = Duration::from_secs(20);

/// Hops of one chain.
const HOPS: u64 = 32;

/// A queue, or the measuring thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The name in words.
    pub name: String,
    /// Its device, as the suite names it.
    pub device: String,
    /// Its API: host, cuda, vulkan.
    pub backend: String,
    /// The kind of Vulkan queue: graphics, compute, transfer.
    pub kind: Option<String>,
    /// The Vulkan queue family.
    pub family: Option<u32>,
    /// True for the thread that measures, which submits nothing.
    pub thread: bool,
}

/// The measurement between two places.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hop {
    /// The index of one place in the list.
    pub from: usize,
    /// The index of the other place; the same for a chain on one queue.
    pub to: usize,
    /// The median of one hop in nanoseconds, over both directions if there are two.
    pub hop_ns: Option<f64>,
    /// The 10th and the 90th percentile.
    pub spread_ns: Option<[f64; 2]>,
    /// What carries the signals.
    pub mechanism: String,
    /// Why there is no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// All measured hops.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Matrix {
    /// The commit of the program.
    pub commit: String,
    /// The time of the run, in UTC (RFC 3339).
    pub date: String,
    /// The command line.
    pub command: String,
    /// The devices of the machine.
    pub devices: Vec<DeviceLine>,
    /// The places.
    pub places: Vec<Place>,
    /// Each pair of places once, and each place with itself.
    pub hops: Vec<Hop>,
    /// Remarks on the result.
    pub advice: Vec<String>,
}

/// A place with its open device.
struct Ready {
    place: Place,
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
        let backend = found.info().backend.name();
        let mut add = |what: &str, queue: Option<Queue>, family: Option<(u32, QueueKind)>| {
            places.push(Ready {
                place: Place {
                    name: format!("{name}, {what}"),
                    device: name.clone(),
                    backend: backend.into(),
                    kind: family.map(|(_, kind)| kind.name().into()),
                    family: family.map(|(index, _)| index),
                    thread: queue.is_none(),
                },
                device: device.clone(),
                queue,
            });
        };
        match &device {
            Device::Host(host) => {
                use syncline::backend::Device as _;
                add("this thread", None, None);
                for number in 1..=2 {
                    let queue = host.queue(QueueKind::Compute, "hops")?;
                    add(&format!("queue {number}"), Some(queue.into()), None);
                }
            }
            #[cfg(feature = "cuda")]
            Device::Cuda(cuda) => {
                use syncline::backend::Device as _;
                for number in 1..=2 {
                    let queue = cuda.queue(QueueKind::Compute, "hops")?;
                    add(&format!("stream {number}"), Some(queue.into()), None);
                }
            }
            #[cfg(feature = "vulkan")]
            Device::Vulkan(vulkan) => {
                for family in &found.info().capabilities.queues {
                    // Two queues of a family show the cost between any two.
                    for index in 0..family.count.unwrap_or(1).min(2) {
                        let queue = vulkan.queue_on(family.index, index, "hops")?;
                        let what = format!("{} {}.{index}", family.kind, family.index);
                        let of = Some((family.index, family.kind));
                        add(&what, Some(queue.into()), of);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(places)
}

/// Measures every two places, each pair for about `budget`. Calls `tell` after each.
///
/// # Errors
/// A driver error before the first measurement; no device with the name `wanted`.
pub fn measure(
    machine: &Machine,
    wanted: Option<&str>,
    budget: Duration,
    mut tell: impl FnMut(&Hop, &[Place]),
) -> Outcome<Matrix> {
    let ready = places(machine, wanted)?;
    if ready.is_empty() {
        let asked = wanted.unwrap_or_default();
        return Err(Stop::Failed(format!("no device is called \"{asked}\"")));
    }
    let places: Vec<Place> = ready.iter().map(|one| one.place.clone()).collect();
    let mut hops = Vec::new();
    for from in 0..ready.len() {
        for to in from..ready.len() {
            let (left, right) = (&ready[from], &ready[to]);
            if left.queue.is_none() && right.queue.is_none() {
                continue;
            }
            let link = connect(&left.device, &right.device);
            let measured = link
                .timeline("hops")
                .map_err(Stop::from)
                .and_then(|timeline| chains(left, right, &timeline, budget));
            let (summary, failed) = match measured {
                Ok(summary) => (Some(summary), None),
                Err(stop) => (None, Some(stop.to_string())),
            };
            let hop = Hop {
                from,
                to,
                hop_ns: summary.map(|summary| summary.median.round()),
                spread_ns: summary.map(|summary| [summary.p10.round(), summary.p90.round()]),
                mechanism: link.mechanism().name().to_owned(),
                failed,
            };
            tell(&hop, &places);
            hops.push(hop);
        }
    }
    Ok(Matrix {
        commit: COMMIT.into(),
        date: now(),
        command: command(),
        devices: device_lines(machine.inventory()),
        advice: advise(&places, &hops),
        places,
        hops,
    })
}

/// Runs chains between two places until the time is over. Returns nanoseconds of one hop.
fn chains(left: &Ready, right: &Ready, timeline: &Timeline, budget: Duration) -> Outcome<Summary> {
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
    Summary::of(&samples[1..]).ok_or_else(|| Stop::Failed("nothing was measured".into()))
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
pub(crate) fn micros(nanoseconds: f64) -> String {
    match nanoseconds / 1e3 {
        short if short < 9.95 => format!("{short:.2}"),
        middle if middle < 99.5 => format!("{middle:.1}"),
        long => format!("{long:.0}"),
    }
}

impl Matrix {
    /// The time between two places, in either order.
    #[must_use]
    pub fn between(&self, one: usize, other: usize) -> Option<&Hop> {
        let mut hops = self.hops.iter();
        hops.find(|hop| (hop.from, hop.to) == (one, other) || (hop.from, hop.to) == (other, one))
    }

    /// The times as a table: microseconds per hop.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from("Microseconds per hop, the mean of both directions:\n\n");
        let width = self.places.iter().map(|place| place.name.len()).max();
        let width = width.unwrap_or_default();
        text += &format!("{:>4} {:width$}", "", "");
        for number in 1..=self.places.len() {
            text += &format!(" {number:>8}");
        }
        text.push('\n');
        for (row, place) in self.places.iter().enumerate() {
            text += &format!("{:>4} {:width$}", row + 1, place.name);
            for column in 0..=row {
                let cell = match self.between(row, column) {
                    None => "-".into(),
                    Some(hop) => hop.hop_ns.map_or_else(|| "failed".into(), micros),
                };
                text += &format!(" {cell:>8}");
            }
            text.push('\n');
        }
        text
    }

    /// The result as JSON.
    ///
    /// # Errors
    /// Those of the serializer. A result of [`measure`] causes none.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// True if every pair was measured.
    #[must_use]
    pub fn all_ran(&self) -> bool {
        self.hops.iter().all(|hop| hop.failed.is_none())
    }
}
