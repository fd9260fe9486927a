//! The demo by two processes: one simulates, the other draws and compares every frame.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use syncline::process::{Endpoint, Listener};
use syncline::{Device, Error, Inventory};

use super::kill::Victim;
use super::{Args, Verdict, name, picture, progress, reference};
use crate::failure::Failure;
use crate::output::{complain, say};
use syncline_conformance::inventory::device_lines;
use syncline_conformance::report;
use syncline_demo::across::{Consuming, Producing, Role};
use syncline_demo::scene::View;

/// Time limit for the other process to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit for the listening process to start after the connecting one.
const ABOUT_TO_START: Duration = Duration::from_secs(5);

/// Exit code of a process that has lost the other one, or a device.
pub(super) const LEFT_ALONE: u8 = 3;

/// What such a process prints about the frames, before a number.
pub(super) const LAST_WHOLE: &str = "the last frame that was whole is";

/// The beginning of the line of the first right frame.
pub(super) const RIGHT: &str = "right ";

/// The beginning of the line of the first wrong frame.
pub(super) const WRONG: &str = "wrong ";

#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Options {
    /// Make the frames by two processes: this one draws and compares, and starts one that
    /// simulates
    #[arg(long)]
    processes: bool,
    /// Draw and compare, and wait at this socket for the process that simulates. Start that one
    /// with --connect
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["processes", "connect"])]
    listen: Option<PathBuf>,
    /// Simulate, for the process that listens at this socket
    #[arg(long, value_name = "SOCKET", conflicts_with = "processes")]
    connect: Option<PathBuf>,
    /// Have two processes make frames, kill one of them as kill -9 does, and tell how the other
    /// ends
    #[arg(long, value_name = "ROLE", conflicts_with_all = ["processes", "listen", "connect"])]
    kill: Option<Victim>,
    /// Simulate, for the process at the other end of the socket that is the standard input
    #[arg(long, hide = true, conflicts_with_all = ["processes", "listen", "connect"])]
    inherited: bool,
}

impl Options {
    /// Whether this process is one of two that make the frames.
    pub(super) const fn any(&self) -> bool {
        self.processes
            || self.listen.is_some()
            || self.connect.is_some()
            || self.kill.is_some()
            || self.inherited
    }
}

pub(super) fn run(args: &Args, inventory: &Inventory) -> Result<ExitCode, Failure> {
    let options = &args.across;
    if let Some(victim) = options.kill {
        return super::kill::run(args, victim, inventory);
    }
    if options.inherited {
        let own = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned();
        let own = own.map_err(|error| Failure::Words(format!("no standard input: {error}")))?;
        let endpoint = Endpoint::open(own, "producer", PATIENCE).map_err(Error::from)?;
        return produce(args, inventory, &trusted(endpoint));
    }
    if let Some(path) = &options.connect {
        return produce(args, inventory, &trusted(connect(path)?));
    }
    if let Some(path) = &options.listen {
        let listener = Listener::bind(path)?;
        let endpoint = listener.accept("consumer", PATIENCE)?;
        return consume(args, inventory, &trusted(endpoint));
    }
    let (ours, theirs) = Endpoint::pair()?;
    let mut child = start(args, Stdio::from(theirs))?;
    let ended = Endpoint::open(ours, "consumer", PATIENCE)
        .map_err(|rejected| Failure::from(Error::from(rejected)))
        .and_then(|endpoint| consume(args, inventory, &trusted(endpoint)));
    if ended.is_err() {
        // Otherwise the child learns of the end, and ends too.
        let _ = child.kill();
    }
    let _ = child.wait();
    ended
}

/// Trusts the endpoint's peer with opaque handles. The peer is another process of the demo.
#[allow(unsafe_code, reason = "trusts the other process")]
fn trusted(endpoint: Endpoint) -> Endpoint {
    // SAFETY: the other process is the demo, too, which exports with this library. This program has
    // started it, or the user has, at a path that the user has named.
    unsafe { endpoint.trust_handles() };
    endpoint
}

/// Connects to the listening process, which may not have started yet.
fn connect(path: &Path) -> Result<Endpoint, Error> {
    let until = Instant::now() + ABOUT_TO_START;
    let may_come = path.parent().is_none_or(|folder| folder.exists());
    loop {
        match Endpoint::connect(path, "producer", PATIENCE) {
            Err(Error::Native { .. }) if may_come && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            connected => return connected,
        }
    }
}

/// Starts the process that simulates, with the same options.
fn start(args: &Args, socket: Stdio) -> Result<Child, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::Words(error.to_string()))?;
    let mut command = Command::new(own);
    command
        .args(["demo", "--inherited"])
        .args(["--frames", &args.frames().to_string()])
        .args(["--size", &args.size().to_string()])
        .stdin(socket)
        .stdout(Stdio::null());
    super::pass_devices(args, &mut command);
    if args.no_sync {
        command.arg("--no-sync");
    }
    let started = command.spawn();
    started.map_err(|error| Failure::Words(format!("the producer cannot be started: {error}")))
}

/// Chooses the device of a role.
fn device(inventory: &Inventory, role: Role, args: &Args) -> Result<(Device, String), Failure> {
    let [producer, consumer] = super::select(inventory, args)?;
    let found = match role {
        Role::Producer => producer,
        Role::Consumer => consumer,
    };
    Ok((found.open()?, name(found)))
}

/// How far the frames were when the other process or a device was lost.
#[derive(Debug, Default)]
pub(super) struct Until {
    /// The number, counted from 1, of the last whole frame. 0 if there was none.
    pub(super) whole: u64,
    /// How many compared frames were wrong.
    pub(super) wrong: u32,
}

impl Until {
    pub(super) fn in_words(&self, frames: u32) -> String {
        let last = match self.whole {
            0 => "no frame was right".into(),
            frame => format!("{LAST_WHOLE} {frame} of {frames}"),
        };
        match self.wrong {
            0 => last,
            wrong => format!("{last}, and {wrong} were wrong"),
        }
    }
}

/// Reports the loss of the other process, if that is the error. Returns other errors.
fn left_alone(error: Failure, role: &str, until: &Until, frames: u32) -> Result<ExitCode, Failure> {
    let Some(loss) = loss(&error) else {
        return Err(error);
    };
    let until = until.in_words(frames);
    complain(format_args!("error: the {role} is gone: {loss}; {until}"));
    Ok(ExitCode::from(LEFT_ALONE))
}

/// Returns what an error says about the other process, if that is lost.
fn loss(error: &Failure) -> Option<String> {
    let Failure::Syncline(error) = error else {
        return None;
    };
    let mut found = Some(error);
    while let Some(error) = found {
        if let Error::PeerLost { process, how, .. } = error {
            return Some(format!("process {process}: {how}"));
        }
        found = match error {
            Error::Failed { cause, .. } => Some(cause),
            _ => None,
        };
    }
    None
}

fn produce(args: &Args, inventory: &Inventory, endpoint: &Endpoint) -> Result<ExitCode, Failure> {
    let (device, name) = device(inventory, Role::Producer, args)?;
    say!("producer   {name}, process {}", std::process::id());
    say!("consumer   {}", endpoint.peer());
    let made = Producing::new(&device, View::of_field(args.size()).field(), endpoint);
    let producing = match made {
        Ok(producing) => producing,
        Err(error) => {
            return left_alone(error.into(), "consumer", &Until::default(), args.frames());
        }
    };
    say!("ordered by {}", producing.mechanism());
    say!("shares     {}", producing.shares());
    match producing.run(args.frames(), !args.no_sync, endpoint) {
        Ok(()) => {
            say!("made       {} frames", args.frames());
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let until = Until {
                whole: producing.consumed(),
                wrong: 0,
            };
            left_alone(error.into(), "consumer", &until, args.frames())
        }
    }
}

fn consume(args: &Args, inventory: &Inventory, endpoint: &Endpoint) -> Result<ExitCode, Failure> {
    let (device, name) = device(inventory, Role::Consumer, args)?;
    let view = View::of_field(args.size());
    let lines = !args.json;
    if lines {
        say!("producer   {}", endpoint.peer());
        say!("consumer   {name}, process {}", std::process::id());
    }
    let made = Consuming::new(&device, view, endpoint);
    let consuming = match made {
        Ok(consuming) => consuming,
        Err(error) => {
            return left_alone(error.into(), "producer", &Until::default(), args.frames());
        }
    };
    if lines {
        say!("ordered by {}", consuming.mechanism());
        say!("shares     {}", consuming.shares());
    }
    let expected = reference(view, args.frames());
    let bar = progress(args.frames());
    let mut verdict = Verdict::default();
    let mut whole = 0;
    let ran = consuming.run(args.frames(), !args.no_sync, endpoint, |frame, rgba| {
        let number = frame + 1;
        if expected.recv().is_ok_and(|right| right == rgba) {
            verdict.verified += 1;
            whole = u64::from(number);
            if verdict.verified == 1 && lines {
                say!("{RIGHT}     frame {number}, the first");
            }
        } else {
            verdict.wrong += 1;
            if verdict.wrong == 1 && lines {
                say!("{WRONG}     frame {number}, the first");
            }
        }
        bar.inc(1);
        match &args.png {
            Some(folder) => picture::write(folder, frame, view.picture(), rgba),
            None => Ok(()),
        }
    });
    bar.finish_and_clear();
    if let Err(error) = ran {
        let until = Until {
            whole,
            wrong: verdict.wrong,
        };
        return left_alone(error, "producer", &until, args.frames());
    }
    if lines {
        say!(
            "verified   {} of {} frames, {} wrong",
            verdict.verified,
            args.frames(),
            verdict.wrong
        );
        if args.no_sync && verdict.wrong == 0 {
            say!("nothing went wrong without the waits: this pair cannot show a missing one");
        }
    } else {
        let report = json!({
            "frames": args.frames(),
            "verified": verdict.verified,
            "wrong": verdict.wrong,
            "processes": 2,
            "consumer": name,
            "mechanism": consuming.mechanism().name(),
            "shares": consuming.shares(),
            "size": args.size(),
            "synchronized": !args.no_sync,
            "commit": syncline_conformance::COMMIT,
            "date": report::now(),
            "command": report::command(),
            "devices": device_lines(inventory),
        });
        say!("{}", serde_json::to_string_pretty(&report)?);
    }
    Ok(match verdict.wrong {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}
