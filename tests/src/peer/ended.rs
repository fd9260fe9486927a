//! A process that ends as soon as its signals are reported as reached.

use std::process::exit;

use syncline::backend::Queue as _;

use super::bug::Bug;
use super::half::Half;
use crate::case::Stop;
use crate::patience;
use crate::subject::Subject as _;
use crate::workload::Equipped;

/// The value that each timeline is signalled to.
pub(super) const LAST: u64 = 3;

impl Half {
    /// Obeys a command: see [`Half::run`].
    pub(super) fn run_to_its_end(
        &mut self,
        what: &str,
        report: &str,
        way: &str,
    ) -> Option<Result<String, Stop>> {
        (what == "end").then(|| self.end(report, way))
    }

    /// Signals every timeline on the queue, waits for the report, and ends without another call.
    fn end(&mut self, report: &str, way: &str) -> Result<String, Stop> {
        let queue = self.queue()?;
        let early = Bug::ReportsTooEarly.is_planted();
        if early {
            let latch = self.latch()?;
            let work = move |r: &mut syncline::Recorder<'_>| Equipped::block(r, &latch);
            queue.submit(&[], work, &[])?;
        }
        let labels: Vec<_> = self.lines.iter().map(|(label, _)| label.clone()).collect();
        for label in &labels {
            let line = self.signals(label)?;
            queue.submit(&[], |_| Ok(()), &[line.signal_at(LAST)])?;
        }
        let lines = labels.iter().map(|label| self.waits(label));
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        match report {
            _ if early => {}
            "idle" => queue.idle(patience())?,
            "wait" => {
                for line in &lines {
                    line.at(LAST).wait(patience())?;
                }
            }
            "reached" => {
                for line in &lines {
                    while !line.at(LAST).is_reached()? {
                        std::thread::yield_now();
                    }
                }
            }
            other => return Stop::fail(format!("there is no report {other:?}")),
        }
        match way {
            "kill" => {
                use rustix::process::{Signal, getpid, kill_process};
                let killed = kill_process(getpid(), Signal::KILL);
                Stop::fail(format!("it is not killed: {killed:?}"))
            }
            "exit" => exit(0),
            "return" => {
                self.has_ended = true;
                Ok(String::new())
            }
            other => Stop::fail(format!("there is no way {other:?} to end")),
        }
    }
}
