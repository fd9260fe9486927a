//! The parent's side of a server process, which is started again after a hang or a crash.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::drivers::Drivers;
use crate::one_run::{self, Outcome};
use crate::server::HANG;

/// The answer of a server to one run.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Outcome(Box<Outcome>),
    /// The run took too long.
    Hang(String),
    Crash(String),
}

/// A server process.
pub(crate) struct Client<'d> {
    drivers: &'d Drivers,
    server: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl<'d> Client<'d> {
    pub(crate) const fn new(drivers: &'d Drivers) -> Self {
        Self {
            drivers,
            server: None,
        }
    }

    /// Runs a scenario in the server.
    ///
    /// # Errors
    /// The server cannot be started.
    pub(crate) fn run(&mut self, scenario: &str, order: Option<&str>) -> Result<Answer, String> {
        let failed = |error: std::io::Error| format!("the server process: {error}");
        if order.is_some_and(one_run::is_of_the_instance) {
            self.stop();
        }
        let (child, input, output) = match &mut self.server {
            Some(server) => server,
            server => server.insert(start(self.drivers).map_err(failed)?),
        };
        let sent = writeln!(input, "{scenario} {}", order.unwrap_or("-"));
        let mut line = String::new();
        let read = output.read_line(&mut line);
        let outcome = serde_json::from_str::<Outcome>(&line).ok();
        if let (Ok(()), Ok(_), Some(outcome)) = (sent, read, outcome) {
            // What is left would disturb the next run.
            let again = !matches!(outcome.again, None | Some(crate::one_run::Ended::Well));
            if !outcome.left.is_empty() || !outcome.panics.is_empty() || again {
                self.stop();
            }
            return Ok(Answer::Outcome(Box::new(outcome)));
        }
        let status = child.wait().map_err(failed)?;
        self.server = None;
        Ok(match status.code() {
            Some(HANG) => Answer::Hang(line.trim_end().to_owned()),
            _ => Answer::Crash(format!("{status}: {line}")),
        })
    }

    /// True if the server has not been started.
    pub(crate) const fn is_fresh(&self) -> bool {
        self.server.is_none()
    }

    fn stop(&mut self) {
        if let Some((mut child, ..)) = self.server.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(drivers: &Drivers) -> std::io::Result<(Child, ChildStdin, BufReader<ChildStdout>)> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    drivers.apply(&mut command);
    let mut child = command.spawn()?;
    match (child.stdin.take(), child.stdout.take()) {
        (Some(input), Some(output)) => Ok((child, input, BufReader::new(output))),
        _ => Err(std::io::Error::other("no pipes")),
    }
}
