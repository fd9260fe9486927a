//! Loses the CUDA device of the producer in the middle of the frames, and reports how it ends.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use syncline::backend::{Device as _, Queue as _};
use syncline::{Error, Inventory, QueueKind, Recorder, info::BackendKind};

use super::processes::{LEFT_ALONE, Until};
use super::{Args, reference};
use crate::failure::Failure;
use crate::output::{complain, say};
use syncline_conformance::inventory::device_lines;
use syncline_conformance::report;
use syncline_conformance::workload::Equipped;
use syncline_demo::scene::View;
use syncline_demo::{Order, Pipeline};

/// Time limit for the device to report the fault.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a faulting kernel after half of the frames.
///
/// Ends with [`LEFT_ALONE`] if the device is lost and the rest of the demo ends with that cause.
pub(super) fn run(args: &Args, inventory: &Inventory) -> Result<ExitCode, Failure> {
    let [producer, consumer] = super::select(inventory, args)?;
    let name = super::name(producer);
    if producer.info().backend != BackendKind::Cuda {
        return Err(Failure::Words(format!(
            "--fault runs a faulting kernel, which needs a CUDA device, and the producer is {name}"
        )));
    }
    let link = super::open(producer, consumer)?;
    let device = link.left();
    let equipped = Equipped::new(device.clone())?;
    let queue = device.queue(QueueKind::Compute, "fault")?;
    let view = View::of_field(args.size());
    let expected = reference(view, args.frames());
    let mut until = Until::default();
    let (mut begun, mut fault_told) = (None, None);
    let ran = Pipeline::scene(&link, view)?.run(args.frames(), Order::Timelines, |frame, rgba| {
        if expected.recv().is_ok_and(|right| right == rgba) {
            until.whole = u64::from(frame) + 1;
        } else {
            until.wrong += 1;
        }
        if frame == args.frames() / 2 {
            let equipped = equipped.clone();
            let fault = move |recorder: &mut Recorder<'_>| equipped.fault(recorder);
            queue.submit(&[], fault, &[])?;
            begun = Some(Instant::now());
            // Frames that the queues have already are in flight meanwhile.
            fault_told = queue.idle(PATIENCE).err();
        }
        Ok::<_, Failure>(())
    });
    let took = begun.map_or(0.0, |begun: Instant| begun.elapsed().as_secs_f64());
    let is_lost = |error: &Error| matches!(error.root(), Error::DeviceLost { .. });
    let lost = match ran {
        Err(Failure::Syncline(error)) if is_lost(&error) => error,
        Err(other) => return Err(other),
        // The queues had all frames before the device was lost.
        Ok(()) => fault_told.filter(is_lost).ok_or_else(|| {
            Failure::Words(format!(
                "all {} frames were made, although the producer has run a faulting kernel",
                args.frames()
            ))
        })?,
    };
    let words = until.in_words(args.frames());
    if args.json {
        let report = json!({
            "lost": "producer",
            "device": name,
            "mechanism": link.mechanism().name(),
            "cause": lost.root().to_string(),
            "last_whole_frame": until.whole,
            "wrong": until.wrong,
            "seconds_until_it_ended": (took * 1e4).round() / 1e4,
            "exit_code": LEFT_ALONE,
            "commit": syncline_conformance::COMMIT,
            "date": report::now(),
            "command": report::command(),
            "devices": device_lines(inventory),
        });
        say!("{}", serde_json::to_string_pretty(&report)?);
    }
    complain(format_args!(
        "error: the producer is lost: {}; {words}",
        lost.root()
    ));
    Ok(ExitCode::from(if until.wrong == 0 {
        LEFT_ALONE
    } else {
        1
    }))
}
