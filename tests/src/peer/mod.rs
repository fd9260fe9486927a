//! A second process, for cases of rules that hold between two.
//!
//! It runs this program once more, with the subject's other device, if there is one. A case sends
//! it commands, one per line, and obeys the same commands itself. So a case is written once for
//! both directions.
//!
//! | file | contents |
//! |---|---|
//! | `half` | the commands of both processes |
//! | `binaries` | commands for a binary semaphore |
//! | `events` | commands for CUDA's own events |
//! | `images` | commands for an image |
//! | `times` | commands for times of signals |
//! | `grants` | the rights that a plan grants |
//! | `broken` | the loss of a device |
//! | `ended` | the end of a process right after its signals |
//! | `bug` | bugs that the environment plants |
//! | `scene` | both processes together |

mod binaries;
mod broken;
mod bug;
mod ended;
#[cfg(feature = "cuda")]
mod events;
mod grants;
mod half;
#[cfg(feature = "vulkan")]
mod images;
mod scene;
mod times;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use syncline::process::{Endpoint, Listener};

pub use half::Half;
pub use scene::{Scene, Side, fails};

use crate::case::Stop;
use crate::runner::child_subject;
use crate::workload::Equipped;
use crate::{Settings, Verdict, patience};

/// Set in a second process.
const PEER: &str = "SYNCLINE_CONFORMANCE_PEER";

/// How long a second process may take to start. It opens devices, which other processes delay.
const START: Duration = Duration::from_secs(60);

/// The beginning of a line with an answer.
const MARK: &str = "\u{1}syncline-peer ";

/// Whether this is a second process.
#[must_use]
pub fn is_peer() -> bool {
    std::env::var_os(PEER).is_some()
}

/// Runs the second process: it obeys commands until the first one is gone.
pub fn serve(device: syncline::Result<Equipped>) -> ExitCode {
    match bug::planted() {
        Ok(None) => {}
        // Outcomes with a planted bug must be recognizable.
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

/// The first process's handle of the second process. The drop kills it.
pub struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    endpoint: Endpoint,
}

impl Peer {
    /// Starts the process and connects to it.
    ///
    /// # Errors
    /// A skip if no [`Runner`](crate::Runner) started this process. Also the reason why the
    /// processes cannot connect.
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
        // The time, because other processes have the same number where process ids are their own.
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let (own, now) = (std::process::id(), since.as_nanos());
        let path = std::env::temp_dir().join(format!("syncline-peer-{own}-{number}-{now}"));
        let connected = Listener::bind(&path).and_then(|listener| {
            let _ = writeln!(orders, "connect {}", path.display());
            listener.accept("first", START)
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

    /// Returns the endpoint to the process.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The process has ended.
    pub fn tell(&mut self, order: &str) -> Verdict {
        let told = writeln!(self.orders, "{order}");
        told.map_err(|error| Stop::Failed(format!("{order:?} does not reach it: {error}")))
    }

    /// Receives the answer.
    ///
    /// # Errors
    /// The command failed, or there is no answer.
    pub fn hear(&mut self) -> Result<String, Stop> {
        // The process has a time limit of its own, which ends earlier.
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

    /// Kills the process, as `kill -9` does, and waits for its end.
    ///
    /// # Errors
    /// The system refuses that.
    pub fn kill(&mut self) -> Verdict {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        match killed {
            Ok(_) => Ok(()),
            Err(error) => Stop::fail(format!("it cannot be killed: {error}")),
        }
    }

    /// Stops the process, or continues it.
    ///
    /// # Errors
    /// The system refuses that.
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

/// A process that no case has left in a bad state. Creating a device takes a second.
static SPARE: Mutex<Option<Peer>> = Mutex::new(None);

/// Runs `act` with a second process. If that passes, later cases use the process again.
///
/// # Errors
/// Same errors as [`Peer::start`]. Also the verdict of `act`.
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

/// Trusts the peer of an endpoint between the two processes of a case with opaque handles.
#[allow(unsafe_code, reason = "trusts the other process")]
fn trusted(endpoint: Endpoint) -> Endpoint {
    // SAFETY: the other process is this program again, which exports with this library.
    unsafe { endpoint.trust_handles() };
    endpoint
}
