//! The conformance suite on OpenCL, and on pairs of it with the devices of Syncline.
//!
//! Without arguments it runs the quick cases on each device alone. The pairs, and all cases:
//! `cargo test -p syncline-opencl --test opencl -- --include-ignored`.

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use syncline::backend::{Candidate as _, Device as _};
use syncline::{Error, Inventory, ProbeOptions, Result};
use syncline_conformance::inventory::name_of;
use syncline_conformance::report::{Ending, Tally};
use syncline_conformance::runner::{Suite, child};
use syncline_conformance::workload::Equipped;
use syncline_conformance::{Paired, Runner, Settings, Subject, World};
use syncline_opencl::{Adapter, Arg, Buffer, Device, HostEvent, Kernel, Recorder};

/// The example of the README.
mod frames {
    include!("readme/frames.rs");

    pub(super) fn run() -> Result<()> {
        main()
    }
}

/// A device with the kernel that keeps it busy.
#[derive(Clone)]
struct OpenCl {
    device: Device,
    spin: Arc<Kernel>,
    /// Rounds of the kernel in a millisecond.
    speed: u32,
    /// What the kernel would write to.
    out: Buffer,
}

const SPIN: &str = "kernel void spin(global uint *out, uint thousands) {
    uint x = thousands;
    for (uint i = 0; i < thousands; i++)
        for (uint j = 0; j < 1000; j++) x = (x ^ (x >> 7)) * 1664525u + 1013904223u;
    if (x == 1u) *out = x;
}";

impl OpenCl {
    fn new(device: Device) -> Result<Self> {
        // SAFETY: it writes one word of its buffer.
        #[allow(unsafe_code, reason = "vouches for a kernel")]
        let spin = unsafe { device.kernel(SPIN, c"spin")? };
        let out = device.buffer(1)?;
        let mut it = Self {
            device,
            spin,
            speed: 1,
            out,
        };
        // The fastest of several runs: others may use the processor meanwhile.
        let runs = (0..4)
            .map(|_| it.measure(10_000))
            .collect::<Result<Vec<_>>>()?;
        let fastest = runs.into_iter().min().unwrap_or_default();
        it.speed = (10_000.0 / (fastest.as_secs_f64() * 1e3)).ceil() as u32;
        Ok(it)
    }

    fn measure(&self, thousands: u32) -> Result<Duration> {
        use syncline::backend::Queue as _;
        let queue = self.device.queue(syncline::QueueKind::Compute, "speed")?;
        let (spin, out) = (self.spin.clone(), self.out.clone());
        let begun = Instant::now();
        let work = move |recorder: &mut Recorder<'_>| {
            recorder.launch(&spin, 1, &[Arg::Buffer(&out), Arg::Word(thousands)])
        };
        queue.submit(&[], work, &[])?;
        queue.idle(Duration::from_secs(30))?;
        Ok(begun.elapsed())
    }
}

impl Subject for OpenCl {
    type Device = Device;
    type Buffer = Buffer;
    type Latch = HostEvent;

    fn device(&self) -> &Device {
        &self.device
    }

    fn buffer(&self, words: usize) -> Result<Buffer> {
        self.device.buffer(words)
    }

    fn read(buffer: &Buffer) -> Vec<u32> {
        buffer.read().unwrap_or_default()
    }

    fn fill(recorder: &mut Recorder<'_>, buffer: &Buffer, value: u32) -> Result<()> {
        recorder.fill(buffer, value)
    }

    fn copy(recorder: &mut Recorder<'_>, from: &Buffer, to: &Buffer) -> Result<()> {
        recorder.copy(from, to)
    }

    fn busy(&self, recorder: &mut Recorder<'_>, time: Duration) -> Result<()> {
        let thousands = (time.as_secs_f64() * 1e3 * f64::from(self.speed)).ceil() as u32;
        recorder.launch(
            &self.spin,
            1,
            &[Arg::Buffer(&self.out), Arg::Word(thousands)],
        )
    }

    fn keep(recorder: &mut Recorder<'_>, object: Arc<dyn Any + Send + Sync>) {
        recorder.keep(object);
    }

    fn latch(&self) -> Result<HostEvent> {
        self.device.host_event()
    }

    fn block(recorder: &mut Recorder<'_>, latch: &HostEvent) -> Result<()> {
        recorder.wait(latch)
    }

    fn open(latch: &HostEvent) -> Result<()> {
        latch.complete()
    }
}

/// Every device of OpenCL alone, with another of its kind, and with each device of Syncline.
struct OpenClSuite {
    adapters: Vec<Adapter>,
    /// Why there is no device.
    missing: Option<Error>,
    others: Inventory,
}

/// The devices of a subject, by their numbers.
#[derive(Clone, Copy)]
enum Sides {
    One(usize),
    Two(usize),
    /// With this device of Syncline, on the right if `true`.
    With(usize, usize, bool),
}

impl OpenClSuite {
    fn probe() -> Self {
        let found = Adapter::all();
        Self {
            missing: found.as_ref().err().cloned(),
            adapters: found.unwrap_or_default(),
            others: Inventory::probe(&ProbeOptions::default()),
        }
    }

    fn sides(&self) -> Vec<(String, Sides)> {
        let mut all = Vec::new();
        for (index, adapter) in self.adapters.iter().enumerate() {
            if adapter.rejected().is_some() {
                continue;
            }
            let ours = format!("opencl {}", adapter.info().marked_name());
            all.push((ours.clone(), Sides::One(index)));
            all.push((format!("{ours} -> {ours}"), Sides::Two(index)));
            for found in self.others.devices() {
                if found.rejected().is_some() {
                    continue;
                }
                let other = name_of(&self.others, found);
                let number = found.index();
                all.push((
                    format!("{ours} -> {other}"),
                    Sides::With(index, number, true),
                ));
                all.push((
                    format!("{other} -> {ours}"),
                    Sides::With(index, number, false),
                ));
            }
        }
        all
    }

    fn device(&self, index: usize) -> Result<Paired<OpenCl, Equipped>> {
        Ok(Paired::left(OpenCl::new(self.adapters[index].open()?)?))
    }
}

impl Suite for OpenClSuite {
    type Subject = Paired<OpenCl, Equipped>;

    fn subjects(&self) -> Vec<String> {
        self.sides().into_iter().map(|(name, _)| name).collect()
    }

    fn open(&self, subject: &str) -> Result<World<Self::Subject>> {
        let sides = self.sides();
        let found = sides.iter().find(|(name, _)| name == subject);
        let (_, sides) = found.ok_or_else(|| Error::no_such_device(subject, ""))?;
        match *sides {
            Sides::One(index) => Ok(World::one(self.device(index)?)),
            Sides::Two(index) => Ok(World::two(self.device(index)?, self.device(index)?)),
            Sides::With(index, other, right) => {
                let ours = self.device(index)?;
                let other = self.others.devices()[other].open()?;
                let other = Paired::right(Equipped::new(other)?);
                Ok(if right {
                    World::two(ours, other)
                } else {
                    World::two(other, ours)
                })
            }
        }
    }
}

/// Slow cases that show little of a backend that the others do not.
fn is_slow(case: &str) -> bool {
    case.starts_with("stress.") || case == "clocks.holds_while_it_drifts"
}

/// Runs the cases on one subject, and prints what was skipped.
fn run(suite: &OpenClSuite, subject: &str, whole: bool) -> Result<(), String> {
    let mut runner = Runner::new(subject, &Settings::from_env());
    let cases = suite.cases();
    let chosen = cases.iter().filter(|case| whole || !is_slow(case.id));
    let mut records: Vec<_> = chosen.map(|case| runner.run(case)).collect();
    records.push(runner.finish());
    let mut tally = Tally::default();
    let mut failed = Vec::new();
    for record in records {
        tally.count(record.outcome);
        let reason = record.reason.unwrap_or_default();
        match record.outcome {
            Ending::Failed => {
                println!("  FAILED {subject}: {}: {reason}", record.id);
                failed.push(record.id);
            }
            Ending::Skipped => println!("{subject}: skipped: {}: {reason}", record.id),
            _ => {}
        }
    }
    println!("{subject}: {tally}");
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join(", "))
    }
}

fn main() -> ExitCode {
    if let Some(done) = child(|_| OpenClSuite::probe()) {
        return done;
    }
    let arguments = Arguments::from_args();
    let suite = Arc::new(OpenClSuite::probe());
    if let Some(reason) = &suite.missing {
        println!("skipped: {reason}");
        if std::env::var_os("SYNCLINE_REQUIRE_OPENCL").is_some() {
            return ExitCode::FAILURE;
        }
    }
    let whole = arguments.include_ignored || arguments.ignored;
    let trial = |(name, sides): (String, Sides)| {
        let (suite, subject) = (suite.clone(), name.clone());
        let run = move || Ok(run(&suite, &subject, whole)?);
        Trial::test(name, run).with_ignored_flag(!matches!(sides, Sides::One(_)))
    };
    let mut trials: Vec<_> = suite.sides().into_iter().map(trial).collect();
    if suite.missing.is_none() && suite.others.select("vulkan").is_ok() {
        trials.push(Trial::test("the example", || Ok(frames::run()?)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
