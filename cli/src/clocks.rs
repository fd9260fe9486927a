//! `syncline clocks`.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use syncline::Error;
use syncline::backend::Device as _;
use syncline::clock::{Clock, Drift, Sampled};

use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{complain, say};

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only this device: an index, a backend's name, or a part of a device's name
    #[arg(long)]
    device: Option<String>,
    /// How long to watch them, in seconds
    #[arg(long = "for", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    seconds: u32,
    /// Milliseconds from one look to the next
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    every: u32,
    /// Print JSON, at the end
    #[arg(long)]
    json: bool,
}

/// A clock that this command reads.
struct Watched {
    index: usize,
    name: String,
    clock: Clock,
    /// The samples: all of them for JSON, else the latest.
    looks: Vec<Sampled>,
    /// Number of samples.
    read: u64,
    /// Number of samples that the device did not return in time.
    silent: u64,
    /// Whether a line has said that the driver's calibrated readings are refused.
    is_refusal_said: bool,
}

/// A device whose clock cannot be read, and why.
struct Without {
    name: String,
    reason: String,
}

/// Reads each clock repeatedly. Exit code 1 if a sample contradicts the clock's conversion.
///
/// A device that is busy may not return a sample in time. That is shown, and the clock is read
/// again.
pub(crate) fn run(args: &Args, machine: &Machine<'_>) -> Result<ExitCode, Failure> {
    let (mut clocks, without) = clocks(machine, args.device.as_deref())?;
    // No name is cut.
    let names = clocks.iter().map(|watched| watched.name.chars().count());
    let width = names.max().unwrap_or(0).max("device".len());
    if !args.json {
        for Without { name, reason } in &without {
            say!("{name}: {reason}");
        }
        say!(
            "{:>8} {:>3} {:<width$} {:>24} {:>22} {:>12} {:>12}",
            "s",
            "#",
            "device",
            "host - device, ns",
            "drift, ppm",
            "read to, ns",
            "known to, ns"
        );
    }
    let started = Instant::now();
    let mut failed = false;
    for round in 0.. {
        for watched in &mut clocks {
            let before = watched.read;
            failed |= !watched.look(args.json)?;
            if !args.json
                && !watched.is_refusal_said
                && let Some(reason) = watched.refusal()
            {
                watched.is_refusal_said = true;
                say!("{}: {reason}", watched.name);
            }
            if !args.json && watched.read > before {
                say!("{}", watched.line(started.elapsed(), width));
            }
        }
        let next = Duration::from_millis(u64::from(args.every)) * (round + 1);
        if clocks.is_empty() || next > Duration::from_secs(u64::from(args.seconds)) {
            break;
        }
        sleep(next.saturating_sub(started.elapsed()));
    }
    if args.json {
        say!(
            "{}",
            serde_json::to_string_pretty(&to_json(&clocks, &without))?
        );
    }
    Ok(ExitCode::from(u8::from(failed)))
}

/// Returns the clocks that can be read, and the reason for each that cannot.
fn clocks(
    machine: &Machine<'_>,
    asked: Option<&str>,
) -> Result<(Vec<Watched>, Vec<Without>), Failure> {
    let inventory = machine.inventory();
    let (mut clocks, mut without) = (Vec::new(), Vec::new());
    let only = asked.map(|asked| inventory.select(asked)).transpose()?;
    for found in inventory.devices() {
        if only.is_some_and(|only| only.index() != found.index()) {
            continue;
        }
        let name = format!("{} {}", found.info().backend, found.info().marked_name());
        let clock = match machine.backend_of(found) {
            Some(backend) => backend.clock(found),
            None => found.open().and_then(|device| device.clock()),
        };
        match clock {
            Ok(clock) => clocks.push(Watched {
                index: found.index(),
                name,
                clock,
                looks: Vec::new(),
                read: 0,
                silent: 0,
                is_refusal_said: false,
            }),
            Err(error) => without.push(Without {
                name,
                reason: error.to_string(),
            }),
        }
    }
    Ok((clocks, without))
}

impl Watched {
    /// Takes a sample. Returns false if it contradicts the clock's conversion.
    fn look(&mut self, keep: bool) -> Result<bool, Failure> {
        let look = match self.clock.sample() {
            Ok(look) => look,
            Err(error @ Error::ClockSilent { .. }) => {
                self.silent += 1;
                complain(format_args!("{}: {error}", self.name));
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        self.read += 1;
        if !keep {
            self.looks.clear();
        }
        self.looks.push(look);
        if !look.holds() {
            complain(format_args!("{}: outside its bound: {look:?}", self.name));
        }
        Ok(look.holds())
    }

    /// Why the driver's calibrated readings are not used, and what is.
    fn refusal(&self) -> Option<String> {
        let reason = self.clock.refused_calibration()?;
        Some(format!(
            "{reason}; its clock is read by submitted timestamps instead"
        ))
    }

    fn drift(&self) -> Option<Drift> {
        // One sample says nothing about the drift.
        self.clock.drift().filter(|_| self.read > 1)
    }

    /// A line of the table, whose names have `width` columns.
    fn line(&self, passed: Duration, width: usize) -> String {
        let Some(Sampled {
            sample, expected, ..
        }) = self.looks.last()
        else {
            return String::new();
        };
        let drift = self.drift().map_or_else(
            || "-".into(),
            |drift| format!("{:.3} ± {:.3}", drift.ppm, drift.error_ppm),
        );
        let known = expected.map_or_else(|| "-".into(), |expected| expected.error.to_string());
        format!(
            "{:>8.2} {:>3} {:<width$} {:>24} {:>22} {:>12} {:>12}",
            passed.as_secs_f64(),
            self.index,
            self.name,
            sample.host.saturating_sub(sample.device),
            drift,
            sample.deviation,
            known
        )
    }
}

fn to_json(clocks: &[Watched], without: &[Without]) -> Value {
    let clocks = clocks.iter().map(|watched| {
        let drift = watched.drift();
        json!({
            "index": watched.index,
            "device": watched.name,
            "host_clock": watched.clock.host_clock().name(),
            "drift_ppm": drift.map(|drift| drift.ppm),
            "drift_error_ppm": drift.map(|drift| drift.error_ppm),
            "silent": watched.silent,
            "calibration_refused": watched.clock.refused_calibration(),
            "samples": watched.looks.iter().map(|look| json!({
                "device_ns": look.sample.device,
                "host_ns": look.sample.host,
                "deviation_ns": look.sample.deviation,
                "expected_host_ns": look.expected.map(|expected| expected.nanoseconds),
                "expected_error_ns": look.expected.map(|expected| expected.error),
                "holds": look.holds(),
            })).collect::<Vec<_>>(),
        })
    });
    let without = without
        .iter()
        .map(|Without { name, reason }| json!({ "device": name, "reason": reason }));
    json!({
        "commit": syncline_conformance::COMMIT,
        "date": syncline_conformance::report::now(),
        "command": syncline_conformance::report::command(),
        "clocks": clocks.collect::<Vec<_>>(),
        "without": without.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::atomic::{AtomicI64, Ordering};

    use rstest::rstest;
    use syncline::clock::{HostClock, Sample};
    use syncline::error::Object;
    use syncline_core::backend::Sampler;

    use super::*;

    /// Every second sample is silent. The fifth is a second too early.
    struct Fickle(AtomicI64);

    impl Sampler for Fickle {
        fn sample(&self) -> syncline::Result<Sample> {
            let asked = self.0.fetch_add(1, Ordering::Relaxed);
            let now = HostClock::Monotonic.now();
            match asked {
                4 => Ok(Sample::between(now, now + 1_000_000_000, now)),
                0 | 2 => Ok(Sample::between(now, now, now)),
                _ => Err(Error::clock_silent(
                    Object::new("clock", "fickle"),
                    Duration::ZERO,
                    "it is a test",
                )),
            }
        }
    }

    #[rstest]
    #[case::with_all_samples_kept(true, 3)]
    #[case::with_the_latest_sample_kept(false, 1)]
    fn a_silent_clock_is_read_again_and_a_wrong_one_is_found(
        #[case] keep: bool,
        #[case] looks: usize,
    ) {
        let mut watched = Watched {
            index: 0,
            name: "fickle".into(),
            clock: Clock::new(Object::new("clock", "fickle"), Fickle(0.into())),
            looks: Vec::new(),
            read: 0,
            silent: 0,
            is_refusal_said: false,
        };
        let held: Vec<_> = (0..5).map(|_| watched.look(keep).unwrap()).collect();
        assert_eq!(held, [true, true, true, true, false]);
        assert_eq!((watched.read, watched.silent), (3, 2));
        assert_eq!(watched.looks.len(), looks);
        let long = "a name that is longer than any column of a table was before";
        watched.name = long.into();
        assert!(watched.line(Duration::ZERO, 6).contains(long));
        let told = to_json(&[watched], &[]);
        assert_eq!(told["clocks"][0]["silent"], 2);
    }
}
