//! A second process, for cases of rules that hold between two.
//!
//! It is this program once more, with the subject's other device; for a subject of one device, with
//! that. What a case has it do it tells it in lines of words, and does itself by the same words: so
//! a case is written once for both directions.
//!
//! | file | what is in it |
//! |---|---|
//! | `half` | what either process does |
//! | `binaries` | and does with a binary semaphore |
//! | `events` | and does with CUDA's own events |
//! | `times` | and with timelines that tell when they were signalled |
//! | `grants` | and has of what a plan grants |
//! | `broken` | and does to its device |
//! | `ended` | and does last, before it ends |
//! | `bug` | and does wrongly, if the environment says so |
//! | `scene` | the two of them |

mod binaries;
mod broken;
mod bug;
mod ended;
#[cfg(feature = "cuda")]
mod events;
mod grants;
mod half;
mod scene;
mod times;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};

use syncline::process::{Endpoint, Listener};

pub use half::Half;
pub use scene::{Scene, Side};

use crate::case::Stop;
use crate::runner::child_subject;
use crate::workload::Equipped;
use crate::{Settings, Verdict, patience};

/// Set for such a process.
const PEER: &str = "SYNCLINE_CONFORMANCE_PEER";

/// What the line of an answer begins with.
const MARK: &str = "\u{1}syncline-peer ";

/// True in such a process.
#[must_use]
pub fn is_peer() -> bool {
    std::env::var_os(PEER).is_some()
}

/// Runs the second process: it obeys commands until the first one is gone.
pub fn serve(device: syncline::Result<Equipped>) -> ExitCode {
    match bug::planted() {
        Ok(None) => {}
        // No outcome may pass for one without.
        Ok(Some(bug)) => eprintln!("the second process has a planted bug: {bug:?}"),
        Err(reason) => {
            eprintln!("error: {reason}");
            return ExitCode::from(2);
        }
    }
    let mut half = match device.map(Half::new) {
        Ok(half) => half,
        Err(error) => {
            eprintln!("error: the second process has no device: {error}");
            return ExitCode::from(2);
        }
    };
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let answer = half.run(&line);
        if half.has_ended {
            break;
        }
        let answer = match answer {
            Ok(said) => format!("+{said}"),
            Err(Stop::Failed(reason)) => format!("-{reason}"),
            Err(Stop::Skipped(reason)) => format!("~{reason}"),
        };
        let line = format!("\n{MARK}{}\n", answer.replace('\n', " "));
        let mut out = std::io::stdout().lock();
        if out
            .write_all(line.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// The second process, as the first has it. Killed with this.
pub struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    endpoint: Endpoint,
}

impl Peer {
    /// Starts it, and connects.
    ///
    /// # Errors
    /// A skip where this is no process of a [`Runner`](crate::Runner)'s; what keeps the two from
    /// each other.
    pub fn start() -> Result<Self, Stop> {
        let Some(subject) = child_subject() else {
            return Stop::skip("two processes take a program that is started for one subject");
        };
        let broken = |error: std::io::Error| {
            Stop::Failed(format!("the second process cannot be started: {error}"))
        };
        let mut command = Command::new(std::env::current_exe().map_err(broken)?);
        Settings::from_env().tell(&mut command);
        let mut child = command
            .env(crate::runner::SUBJECT, subject)
            .env(PEER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(broken)?;
        let (orders, printed) = (child.stdin.take(), child.stdout.take());
        let (Some(mut orders), Some(printed)) = (orders, printed) else {
            let _ = child.kill();
            let _ = child.wait();
            return Stop::fail("the second process has no pipes");
        };
        let (lines, answers) = channel();
        std::thread::spawn(move || {
            // Drivers print, too.
            for line in BufReader::new(printed).split(b'\n').map_while(Result::ok) {
                let Some(answer) = line.strip_prefix(MARK.as_bytes()) else {
                    continue;
                };
                let answer = String::from_utf8_lossy(answer).into_owned();
                if lines.send(answer).is_err() {
                    return;
                }
            }
        });
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let own = std::process::id();
        let path = std::env::temp_dir().join(format!("syncline-peer-{own}-{number}"));
        let connected = Listener::bind(&path).and_then(|listener| {
            let _ = writeln!(orders, "connect {}", path.display());
            listener.accept("first", patience())
        });
        let endpoint = match connected {
            Ok(endpoint) => trusted(endpoint),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.into());
            }
        };
        let mut peer = Self {
            child,
            orders,
            answers,
            endpoint,
        };
        peer.hear()?;
        Ok(peer)
    }

    /// The way to it.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Has it do something.
    ///
    /// # Errors
    /// It is gone.
    pub fn tell(&mut self, order: &str) -> Verdict {
        let told = writeln!(self.orders, "{order}");
        told.map_err(|error| Stop::Failed(format!("{order:?} does not reach it: {error}")))
    }

    /// What it answers.
    ///
    /// # Errors
    /// What it could not do; that it says nothing.
    pub fn hear(&mut self) -> Result<String, Stop> {
        // It has patience of its own, which comes to an end first.
        let Ok(answer) = self.answers.recv_timeout(2 * patience()) else {
            return Stop::fail("the second process says nothing");
        };
        match answer.split_at_checked(1) {
            Some(("+", said)) => Ok(said.into()),
            Some(("~", reason)) => Stop::skip(format!("in the second process: {reason}")),
            Some((_, reason)) => Stop::fail(format!("in the second process: {reason}")),
            None => Stop::fail("the second process answers with nothing"),
        }
    }

    /// Kills it, as `kill -9` does; it is gone when this returns.
    ///
    /// # Errors
    /// It cannot be.
    pub fn kill(&mut self) -> Verdict {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        match killed {
            Ok(_) => Ok(()),
            Err(error) => Stop::fail(format!("it cannot be killed: {error}")),
        }
    }

    /// Stops it where it is, or lets it go on.
    ///
    /// # Errors
    /// It cannot be.
    pub fn stop(&self, stop: bool) -> Verdict {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = if stop { Signal::STOP } else { Signal::CONT };
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.map_err(|errno| Stop::Failed(format!("it takes no signal: {errno}")))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One that no case has spoilt: it costs a second to make a device.
static SPARE: Mutex<Option<Peer>> = Mutex::new(None);

/// Runs `act` with a second process, which goes on for other cases if that passes.
///
/// # Errors
/// As [`Peer::start`]; what `act` ends in.
pub fn with_peer(act: impl FnOnce(&mut Peer) -> Verdict) -> Verdict {
    let spare = || SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = spare().take();
    let mut peer = match kept {
        Some(peer) => peer,
        None => Peer::start()?,
    };
    peer.tell("clean")?;
    peer.hear()?;
    act(&mut peer)?;
    *spare() = Some(peer);
    Ok(())
}

/// An endpoint between the two processes of a case, which takes opaque handles.
#[allow(unsafe_code, reason = "says that the other process is trusted")]
fn trusted(endpoint: Endpoint) -> Endpoint {
    // SAFETY: the other process is this program again, which exports by this library.
    unsafe { endpoint.trust_handles() };
    endpoint
}
