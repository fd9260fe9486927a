//! The demo with a trace of its queues: as JSON for Perfetto, and as an SVG picture.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use syncline::backend::Device;
use syncline::clock::Estimate;
use syncline::trace::{Recording, Submission, Track};
use syncline_demo::Order;
use syncline_trace::{check, perfetto, svg};

use super::runs::{Runs, rounded};
use crate::failure::Failure;

/// Number of runs with a trace, and as many without.
///
/// One run is short. Another program that takes the processor costs more than a trace does.
const RUNS: usize = 5;

/// No further run begins after this time.
const ENOUGH: Duration = Duration::from_secs(2);

/// Number of submissions in the picture: so few that each has room for its label.
const DRAWN: usize = 24;

#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Files {
    /// Trace the queues in a few more runs, and write the last as JSON for ui.perfetto.dev
    #[arg(long, value_name = "FILE.json", conflicts_with = "no_sync")]
    trace: Option<PathBuf>,
    /// Trace the queues in a few more runs, and draw the middle of the last
    #[arg(long, value_name = "FILE.svg", conflicts_with = "no_sync")]
    timeline: Option<PathBuf>,
}

/// A summary of a trace.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// Median of the frames per second with a trace.
    pub(crate) fps: f64,
    /// Median of the frames per second of the runs between them, without a trace.
    pub(crate) fps_without: f64,
    submissions: usize,
    /// Number of submissions with times of the device.
    timed: usize,
    /// Number of submissions that did not fit into the trace.
    lost: u64,
    arrows: usize,
    /// Number of arrows whose submission began before its signal, by the uncorrected times.
    arrows_backwards: usize,
    /// How long submissions of more than one queue were with the driver at the same time.
    in_flight_together_ns: i64,
    /// How long more than one queue ran at the same time.
    ///
    /// If a GPU runs two contexts in turns, one queue runs at a time.
    together_ns: i64,
    /// Time from the begin of the first submission to the end of the last one.
    whole_ns: i64,
    /// The largest stated error of a time on the host's clock.
    error_ns: u64,
}

impl Files {
    /// Returns whether a run is to be traced. Fails early if a file cannot be written.
    pub(crate) fn prepare(&self) -> Result<bool, Failure> {
        let files = [&self.trace, &self.timeline].into_iter().flatten();
        let mut any = false;
        for path in files {
            File::create(path).map_err(Failure::write(path))?;
            any = true;
        }
        Ok(any)
    }

    /// Runs the pipeline with and without a trace in turns, and writes the last trace.
    pub(super) fn record<P: Device>(&self, runs: &Runs<'_, P>) -> Result<Summary, Failure> {
        let begun = Instant::now();
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let recording = loop {
            let (fps, recording) = runs.traced()?;
            with.push(fps);
            without.push(runs.fps(Order::Timelines)?);
            if with.len() == RUNS || begun.elapsed() > ENOUGH {
                break recording;
            }
        };
        if let Some(path) = &self.trace {
            let json = perfetto::Trace::new(&recording).to_string();
            check::trace(&json).map_err(|problems| {
                let first = problems.first().map(ToString::to_string);
                Failure::Words(format!(
                    "the trace is not one that Perfetto takes in whole: {}",
                    first.unwrap_or_default()
                ))
            })?;
            write(path, &json)?;
        }
        if let Some(path) = &self.timeline {
            let options = svg::Options {
                submissions: DRAWN,
                ..svg::Options::default()
            };
            write(path, &svg::Picture::new(&recording, options).to_string())?;
        }
        Ok(Summary::of(&recording, middle(with), middle(without)))
    }

    /// Lists the names of the written files.
    pub(crate) fn names(&self) -> String {
        let files = [&self.trace, &self.timeline].into_iter().flatten();
        let names: Vec<_> = files.map(|path| path.display().to_string()).collect();
        names.join(", ")
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = File::create(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        file.write_all(text.as_bytes())?;
        file.flush()
    });
    written.map_err(Failure::write(path))
}

impl Summary {
    fn of(recording: &Recording, fps: f64, fps_without: f64) -> Self {
        let all = || recording.tracks.iter().flat_map(|track| &track.submissions);
        let times = || all().flat_map(|one| [one.began, one.ended]).flatten();
        let arrows = recording.arrows();
        let backwards = arrows.iter().filter(|arrow| {
            let to = recording.submission(arrow.to).and_then(|to| to.began);
            let from = recording.signalled(arrow.from);
            matches!((from, to), (Some(from), Some(to)) if to.nanoseconds < from.nanoseconds)
        });
        let nanoseconds = |time: Estimate| time.nanoseconds;
        let (first, last) = (
            times().map(nanoseconds).min(),
            times().map(nanoseconds).max(),
        );
        Self {
            fps: rounded(fps),
            fps_without: rounded(fps_without),
            submissions: all().count(),
            timed: all().filter(|one| one.ended.is_some()).count(),
            lost: recording.tracks.iter().map(|track| track.lost).sum(),
            arrows_backwards: backwards.count(),
            arrows: arrows.len(),
            in_flight_together_ns: together(&recording.tracks, |one| one.released),
            together_ns: together(&recording.tracks, |one| one.began.map(nanoseconds)),
            whole_ns: last.unwrap_or_default() - first.unwrap_or_default(),
            error_ns: times().map(|time| time.error).max().unwrap_or_default(),
        }
    }
}

/// Returns the median. Of two middle values it returns the larger one.
fn middle(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or_default()
}

/// How long more than one queue had a submission between `from` and its end.
fn together(tracks: &[Track], from: impl Fn(&Submission) -> Option<i64>) -> i64 {
    let mut changes: Vec<(i64, i64)> = Vec::new();
    for track in tracks {
        // Submissions of one queue end in order. Where they overlap they count once.
        let mut before = i64::MIN;
        for one in &track.submissions {
            if let (Some(from), Some(ended)) = (from(one), one.ended) {
                changes.push((from.max(before).min(ended.nanoseconds), 1));
                changes.push((ended.nanoseconds, -1));
                before = ended.nanoseconds;
            }
        }
    }
    changes.sort_unstable();
    let (mut running, mut since, mut together) = (0, 0, 0);
    for (at, change) in changes {
        if running > 1 {
            together += at - since;
        }
        running += change;
        since = at;
    }
    together
}
