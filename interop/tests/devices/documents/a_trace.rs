use std::error::Error;
use std::fs::write;
use std::path::Path;
use std::time::Duration;

use syncline::Queue;
use syncline::trace::Trace;
use syncline_trace::{perfetto, svg};

/// Records while `work` runs, and writes `trace.json` and `trace.svg`.
pub fn record(
    queues: &[Queue],
    work: impl FnOnce() -> syncline::Result<()>,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let trace = Trace::new();
    for queue in queues {
        trace.follow(queue)?;
    }
    work()?;
    let recording = trace.finish(Duration::from_secs(10));
    let picture = svg::Picture::new(&recording, svg::Options::default());
    write(folder.join("trace.svg"), picture.to_string())?;
    let json = perfetto::Trace::new(&recording).to_string();
    write(folder.join("trace.json"), json)?;
    Ok(())
}
