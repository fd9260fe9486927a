//! `syncline demo`: frames over timelines that two APIs share.

mod fault;
mod kill;
mod picture;
mod processes;
mod record;
mod runs;
mod show;
mod window;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use clap::value_parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use syncline::{Device, Found, Inventory, Link, backend, connect, info::BackendKind};

use self::runs::{Runs, rounded};
use crate::Command;
use crate::failure::Failure;
use crate::output::say;
use syncline_conformance::inventory::{device_lines, left_out};
use syncline_conformance::report;
use syncline_demo::compute::{STEPS_PER_FRAME, reference::Reference};
use syncline_demo::scene::{View, reference::draw};
use syncline_demo::{Order, Pipeline};

/// Options that cannot be combined with `--fault`.
const FAULT_CONFLICTS: [&str; 6] = ["no_sync", "png", "processes", "listen", "connect", "kill"];

/// Options that cannot be combined with `--window`.
const WINDOW_CONFLICTS: [&str; 8] = [
    "png",
    "fault",
    "processes",
    "listen",
    "connect",
    "kill",
    "trace",
    "timeline",
];

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Args {
    /// Frames to make. By default 300, or 60 without a GPU. With --window there is no end by
    /// default
    #[arg(long, value_parser = value_parser!(u32).range(1..=1_000_000))]
    frames: Option<u32>,
    /// Cells of a row of the field of waves. By default 512, or 128 without a GPU. A picture is
    /// twice as many pixels wide, at most 2048
    #[arg(long, value_parser = value_parser!(u32).range(16..=4096))]
    size: Option<u32>,
    /// The device that simulates: host, cuda, vulkan, or a device by name or index
    #[arg(long, value_name = "DEVICE")]
    producer: Option<String>,
    /// The device that draws: host, vulkan, or a device by name or index
    #[arg(long, value_name = "DEVICE")]
    consumer: Option<String>,
    /// Show the frames in a window of X11 until it is closed. The key S switches the waits off and
    /// on. Ten frames a second are compared
    #[arg(long, conflicts_with_all = WINDOW_CONFLICTS)]
    window: bool,
    /// Write every frame to this folder
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// List the devices and stop
    #[arg(long)]
    list: bool,
    /// Drop the waits between producer and consumer, and delay the producer: frames must come out
    /// wrong
    #[arg(long)]
    no_sync: bool,
    /// Load the Vulkan validation layer and count what it complains about
    #[arg(long)]
    validation: bool,
    /// Lose the CUDA device that simulates after half of the frames, and tell how the demo ends
    #[arg(long, value_name = "ROLE", value_parser = ["producer"], conflicts_with_all = FAULT_CONFLICTS)]
    fault: Option<String>,
    #[command(flatten)]
    across: processes::Options,
    #[command(flatten)]
    files: record::Files,
    /// Write the last frame to a new file.
    #[arg(skip)]
    picture: bool,
    /// See [`is_slow`].
    #[arg(skip)]
    slow: bool,
}

impl Args {
    /// The arguments of the command without any: the last frame is written.
    pub(crate) fn with_picture() -> Self {
        Self {
            picture: true,
            ..Self::default()
        }
    }

    /// How many frames to make.
    fn frames(&self) -> u32 {
        let usual = match (self.window, self.slow) {
            // Days of frames. The number of each step fits into 32 bits.
            (true, _) => u32::MAX / STEPS_PER_FRAME,
            (false, true) => 60,
            (false, false) => 300,
        };
        self.frames.unwrap_or(usual)
    }

    fn size(&self) -> u32 {
        self.size.unwrap_or(if self.slow { 128 } else { 512 })
    }
}

/// True if no GPU can draw. Software needs minutes for what a GPU does in a second.
fn is_slow(inventory: &Inventory) -> bool {
    let draws = |found: &Found| {
        let info = found.info();
        info.backend == BackendKind::Vulkan && !info.software && found.rejected().is_none()
    };
    !inventory.devices().iter().any(draws)
}

/// A run in this process.
pub(crate) struct Run<'r> {
    args: &'r Args,
    inventory: &'r Inventory,
    view: View,
    window: Option<window::Window>,
    /// Whether a trace is to be written.
    traced: bool,
}

/// How many of the compared frames were right.
#[derive(Debug, Default)]
struct Verdict {
    made: u32,
    verified: u32,
    wrong: u32,
    /// Compared frames without waits, and how many of them were wrong. Only counted in a window.
    unordered: Option<[u32; 2]>,
    /// The file with the last frame, or why there is none.
    picture: Option<String>,
}

pub(crate) fn run(args: &Args, command: &Command) -> Result<ExitCode, Failure> {
    let machine = command.probe(args.validation)?;
    let inventory = machine.inventory();
    let args = &Args {
        slow: is_slow(inventory),
        ..args.clone()
    };
    let view = View::of_field(args.size());
    // First, because the devices take longer to open than the error does to read.
    let window = args.window.then(|| window::Window::open(view.picture()));
    let window = window.transpose()?;
    if args.list {
        list(inventory);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(folder) = &args.png {
        picture::prepare(folder)?;
    }
    if args.across.any() {
        for found in select(inventory, args)? {
            // Plans of several processes know the backends of this project only.
            if machine.backend_of(found).is_some() {
                found.open()?;
            }
        }
        return processes::run(args, inventory);
    }
    if args.fault.is_some() {
        return fault::run(args, inventory);
    }
    let run = Run {
        traced: args.files.prepare()?,
        args,
        inventory,
        view,
        window,
    };
    let [producer, consumer] = select(inventory, args)?;
    match machine.backend_of(producer) {
        Some(backend) => backend.demo(run, producer, consumer),
        None => {
            let link = open(producer, consumer)?;
            run.frames([producer, consumer], &link, Pipeline::scene)
        }
    }
}

impl Run<'_> {
    /// Makes the frames of two devices, which were `found` and are open.
    ///
    /// `make` makes the pipeline, once for each run.
    pub(crate) fn frames<P: backend::Device>(
        self,
        found: [&Found; 2],
        link: &Link<P, Device>,
        make: impl Fn(&Link<P, Device>, View) -> syncline::Result<Pipeline<P>>,
    ) -> Result<ExitCode, Failure> {
        let Self {
            args,
            inventory,
            view,
            window,
            traced,
        } = self;
        let [producer, consumer] = found.map(name);
        if !args.json {
            say!("producer   {producer}");
            say!("consumer   {consumer}");
            say!("because    {}", reasons(args, inventory, found));
            say!("ordered by {} ({})", link.mechanism(), link.why());
        }
        let pipeline = make(link, view)?;
        let shares = pipeline.shares();
        if !args.json {
            say!("shares     {shares}");
        }
        let verdict = match &window {
            Some(window) => show::frames(args, window, pipeline, link, view)?,
            None => verify(args, pipeline, view)?,
        };
        // Comparing takes longer than making a frame. So the speed is measured without it.
        let (mut fps, mut trace) = (None, None);
        if !args.no_sync && window.is_none() {
            let again = || make(link, view);
            let runs = Runs::new(&again, view, args.frames());
            let usual = runs.fps(Order::HostSynchronized)?;
            fps = Some((runs.fps(Order::Timelines)?, usual));
            if traced {
                trace = Some(args.files.record(&runs)?);
            }
        }
        let complaints = inventory.validation_errors();

        if args.json {
            let report = json!({
                "frames": verdict.made,
                "verified": verdict.verified,
                "wrong": verdict.wrong,
                "producer": producer,
                "consumer": consumer,
                "mechanism": link.mechanism().name(),
                "why": link.why(),
                "shares": shares,
                "size": args.size(),
                // The waits can change in a window.
                "synchronized": (!args.window).then_some(!args.no_sync),
                "unordered": verdict.unordered.map(|[compared, _]| compared),
                "unordered_wrong": verdict.unordered.map(|[_, wrong]| wrong),
                "fps": fps.map(|(fps, _)| rounded(fps)),
                "fps_host_synchronized": fps.map(|(_, usual)| rounded(usual)),
                "trace": trace,
                "validation_errors": args.validation.then_some(&complaints),
                "commit": syncline_conformance::COMMIT,
                "date": report::now(),
                "command": report::command(),
                "devices": device_lines(inventory),
            });
            say!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            say!(
                "verified   {} of {} frames, {} wrong, compared with a reference on the CPU",
                verdict.verified,
                verdict.made,
                verdict.wrong
            );
            if let Some(picture) = &verdict.picture {
                say!("picture    {picture}");
                say!(
                    "           of the last frame; `syncline demo --no-sync` leaves out the waits"
                );
            }
            if let Some((fps, usual)) = fps {
                say!("speed      {fps:.0} frames per second");
                say!("           {usual:.0} when the host waits for the queue after every stage");
            }
            if let Some(trace) = trace {
                say!(
                    "           {:.0} with a trace, in {}, and {:.0} without",
                    trace.fps,
                    args.files.names(),
                    trace.fps_without
                );
            }
            for complaint in &complaints {
                say!("validation {complaint}");
            }
            if args.no_sync && window.is_none() && verdict.wrong == 0 {
                say!("nothing went wrong without the waits: this pair cannot show a missing one");
            }
        }
        let fine = verdict.wrong == 0 && complaints.is_empty();
        Ok(if fine {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        })
    }
}

/// Makes every frame and compares it with the reference.
fn verify<P: backend::Device>(
    args: &Args,
    pipeline: Pipeline<P>,
    view: View,
) -> Result<Verdict, Failure> {
    let order = if args.no_sync {
        Order::None
    } else {
        Order::Timelines
    };
    let expected = reference(view, args.frames());
    let bar = progress(args.frames());
    let mut verdict = Verdict::default();
    pipeline.run(args.frames(), order, |frame, rgba| {
        // The reference thread makes as many frames.
        if expected.recv().is_ok_and(|right| right == rgba) {
            verdict.verified += 1;
        } else {
            verdict.wrong += 1;
        }
        verdict.made += 1;
        bar.inc(1);
        if args.picture && verdict.made == args.frames() {
            let written = picture::write_new(view.picture(), rgba);
            verdict.picture = Some(match written {
                Ok(path) => path.display().to_string(),
                Err(failure) => format!("none: {failure}"),
            });
        }
        match &args.png {
            Some(folder) => picture::write(folder, frame, view.picture(), rgba),
            None => Ok(()),
        }
    })?;
    bar.finish_and_clear();
    Ok(verdict)
}

/// Makes the expected frames on a thread of its own, a little before they are needed.
fn reference(view: View, frames: u32) -> Receiver<Vec<u32>> {
    let (send, receive) = sync_channel(8);
    thread::spawn(move || {
        let mut reference = Reference::new(view.field().width, view.field().height);
        for _ in 0..frames {
            let heights = reference.advance_frame();
            if send.send(draw(&view, heights)).is_err() {
                return;
            }
        }
    });
    receive
}

fn progress(frames: u32) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(frames.into());
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {pos}/{len} frames compared, {eta} left")
    {
        bar.set_style(style);
    }
    bar
}

fn list(inventory: &Inventory) {
    for found in inventory.devices() {
        let refused = found
            .rejected()
            .map(|error| format!(" (cannot be used: {error})"));
        say!(
            "{} {}{}",
            found.index(),
            name(found),
            refused.unwrap_or_default()
        );
    }
    inventory
        .unavailable()
        .iter()
        .for_each(|error| say!("{error}"));
}

fn name(found: &Found) -> String {
    format!("{} {}", found.info().backend, found.info().marked_name())
}

/// Chooses the devices of both roles.
///
/// By default CUDA is the producer and Vulkan on the same GPU the consumer, or the nearest pair to
/// that. `--software` promises both APIs, so a missing driver is an error then.
///
/// Two processes that are asked for the same devices choose the same pair.
fn select<'i>(inventory: &'i Inventory, args: &Args) -> Result<[&'i Found; 2], Failure> {
    let asked = |device: &Option<String>| {
        let device = device.as_deref();
        device.map(|asked| inventory.select(asked)).transpose()
    };
    let (producer, consumer) = (asked(&args.producer)?, asked(&args.consumer)?);
    // Prefers a device of the backend that is the same GPU as the other role's device.
    let of = |backend, other: Option<&Found>| {
        let same = |found: &&Found| match other {
            Some(other) => found.info().same_gpu(other.info()),
            None => inventory
                .of(BackendKind::Vulkan)
                .any(|vulkan| found.info().same_gpu(vulkan.info())),
        };
        let first = || inventory.of(backend).next();
        let instead = || {
            let mut hosts = inventory.of(BackendKind::Host);
            hosts.next().filter(|_| !crate::software::is_on())
        };
        let same = inventory.of(backend).find(same);
        same.or_else(first)
            .or_else(instead)
            .ok_or_else(|| missing(backend, inventory))
    };
    let producer = match producer {
        Some(producer) => producer,
        None => of(BackendKind::Cuda, consumer)?,
    };
    let consumer = match consumer {
        Some(consumer) => consumer,
        None => of(BackendKind::Vulkan, Some(producer))?,
    };
    Ok([producer, consumer])
}

fn missing(backend: BackendKind, inventory: &Inventory) -> Failure {
    let mut words = format!("there is no {backend} device");
    for reason in left_out(inventory) {
        words = format!("{words}; {reason}");
    }
    Failure::Words(words + "; `--producer host` or `--consumer host` lets the host take a part")
}

/// Adds arguments that make another process choose the same devices.
fn pass_devices(args: &Args, command: &mut process::Command) {
    let devices = [
        ("--producer", &args.producer),
        ("--consumer", &args.consumer),
    ];
    for (role, device) in devices {
        if let Some(device) = device {
            command.args([role, device]);
        }
    }
}

/// Why the devices were chosen.
fn reasons(args: &Args, inventory: &Inventory, [producer, consumer]: [&Found; 2]) -> String {
    let mut why: Vec<String> = Vec::new();
    if args.producer.is_some() || args.consumer.is_some() {
        why.push("asked for on the command line".into());
    }
    if producer.info().same_gpu(consumer.info()) {
        why.push("both are one GPU, by UUID".into());
    }
    why.extend(left_out(inventory));
    if why.is_empty() {
        why.push("the first device of each API".into());
    }
    why.join("; ")
}

/// Opens the devices of both roles.
fn open(producer: &Found, consumer: &Found) -> syncline::Result<Link> {
    let first = producer.open()?;
    // A device that has both roles is opened once, so that the engine sees one device.
    let second = if producer.index() == consumer.index() {
        first.clone()
    } else {
        consumer.open()?
    };
    Ok(connect(&first, &second))
}
