//! The demo with a trace of its queues: as JSON for Perfetto, and as a picture.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use syncline::Link;
use syncline::clock::Estimate;
use syncline::trace::{Recording, Trace, Track};
use syncline_bench::frames::{Order, Pipeline, Size};
use syncline_trace::{check, perfetto, svg};

use crate::failure::Failure;

/// For what was submitted to end.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(clap::Args, Debug)]
pub(crate) struct Files {
    /// Trace the queues for one more run, and write that as JSON for ui.perfetto.dev
    #[arg(long, value_name = "FILE.json", conflicts_with = "no_sync")]
    trace: Option<PathBuf>,
    /// Trace the queues for one more run, and draw its middle
    #[arg(long, value_name = "FILE.svg", conflicts_with = "no_sync")]
    timeline: Option<PathBuf>,
}

/// What a trace says in short.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// Frames per second of the run that was traced.
    pub(crate) fps: f64,
    submissions: usize,
    /// Those that have the device's times.
    timed: usize,
    /// For which there was no room.
    lost: u64,
    arrows: usize,
    /// Whose submission began before its signal was made, by the times as they are.
    arrows_backwards: usize,
    /// How long more than one queue ran at the same time, in nanoseconds, ...
    together_ns: i64,
    /// ... of how long from the first submission's beginning to the last one's end.
    whole_ns: i64,
    /// The largest stated error of a time on the host's clock.
    error_ns: u64,
}

impl Files {
    /// Finds out now rather than at the end if nothing can be written there. True if a run is to be traced.
    pub(crate) fn prepare(&self) -> Result<bool, Failure> {
        let files = [&self.trace, &self.timeline].into_iter().flatten();
        let mut any = false;
        for path in files {
            File::create(path).map_err(Failure::write(path))?;
            any = true;
        }
        Ok(any)
    }

    /// One run of the pipeline, traced.
    pub(crate) fn record(&self, link: &Link, size: Size, frames: u32) -> Result<Summary, Failure> {
        let trace = Arc::new(Trace::new());
        let pipeline = Pipeline::new(link, size)?.traced(trace.clone())?;
        let fps = pipeline.timed(frames, Order::Timelines)?;
        let trace = Arc::into_inner(trace)
            .ok_or_else(|| Failure::Words("the trace is still in use".into()))?;
        let recording = trace.finish(PATIENCE);
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
            let picture = svg::Picture::new(&recording, svg::Options::default());
            write(path, &picture.to_string())?;
        }
        Ok(Summary::of(&recording, fps))
    }

    /// Where everything went, in words.
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
    fn of(recording: &Recording, fps: f64) -> Self {
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
            fps,
            submissions: all().count(),
            timed: all().filter(|one| one.ended.is_some()).count(),
            lost: recording.tracks.iter().map(|track| track.lost).sum(),
            arrows_backwards: backwards.count(),
            arrows: arrows.len(),
            together_ns: together(&recording.tracks),
            whole_ns: last.unwrap_or_default() - first.unwrap_or_default(),
            error_ns: times().map(|time| time.error).max().unwrap_or_default(),
        }
    }
}

/// How long more than one queue had something running.
fn together(tracks: &[Track]) -> i64 {
    // Submissions of one queue do not overlap: each begins a run, and ends it.
    let mut changes: Vec<(i64, i64)> = Vec::new();
    for one in tracks.iter().flat_map(|track| &track.submissions) {
        if let (Some(began), Some(ended)) = (one.began, one.ended) {
            changes.push((began.nanoseconds, 1));
            changes.push((ended.nanoseconds, -1));
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
