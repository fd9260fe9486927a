//! The demo in a window, with a key that switches the synchronization off and on.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use syncline::{Device, Link, Stopwatch, backend};

use super::window::{Input, Window};
use super::{Args, Verdict};
use crate::failure::Failure;
use crate::output::say;
use syncline_demo::compute::reference::Reference;
use syncline_demo::scene::{View, reference::draw};
use syncline_demo::{Order, Pipeline};

/// Time from one compared frame to the next. The reference takes longer than a frame of a GPU.
const COMPARED: Duration = Duration::from_millis(100);

/// How often the title changes.
const PERIOD: Duration = Duration::from_millis(500);

/// A frame to compare: its number, the number of switches before it, and its pixels.
type Given = (u32, usize, Vec<u32>);

/// A thread that compares frames with the reference.
///
/// It simulates all frames, and draws only those that it is given.
struct Comparer {
    frames: SyncSender<Given>,
    /// The number of switches before the frame, and whether it is right.
    verdicts: Receiver<(usize, bool)>,
    thread: JoinHandle<()>,
}

impl Comparer {
    fn new(view: View) -> Self {
        // A slow reference holds the demo up. Otherwise it would fall behind without an end.
        let (frames, given) = sync_channel::<Given>(1);
        let (send, verdicts) = channel();
        let thread = thread::spawn(move || {
            let mut reference = Reference::new(view.field().width, view.field().height);
            let mut made = 0;
            for (frame, switches, rgba) in given {
                for _ in made..frame {
                    reference.advance_frame();
                }
                made = frame + 1;
                let is_right = draw(&view, reference.advance_frame()) == rgba;
                if send.send((switches, is_right)).is_err() {
                    return;
                }
            }
        });
        Self {
            frames,
            verdicts,
            thread,
        }
    }

    fn compare(&self, given: Given) -> Result<(), Failure> {
        self.frames.send(given).map_err(|_| panicked())
    }

    /// Ends the thread, and returns the verdicts that nothing has received yet.
    fn finish(self) -> Result<Vec<(usize, bool)>, Failure> {
        drop(self.frames);
        self.thread.join().map_err(|_| panicked())?;
        Ok(self.verdicts.iter().collect())
    }
}

fn panicked() -> Failure {
    Failure::Words("the thread that compares frames has panicked".into())
}

/// The compared frames between two switches.
struct Stretch {
    order: Order,
    compared: u32,
    wrong: u32,
}

impl Stretch {
    const fn new(order: Order) -> Self {
        let (compared, wrong) = (0, 0);
        Self {
            order,
            compared,
            wrong,
        }
    }
}

fn count(stretches: &mut [Stretch], verdicts: impl IntoIterator<Item = (usize, bool)>) {
    for (switches, is_right) in verdicts {
        stretches[switches].compared += 1;
        stretches[switches].wrong += u32::from(!is_right);
    }
}

fn title(fps: f64, took: [Option<i64>; 2], stretch: &Stretch) -> String {
    let [simulating, drawing] = took.map(|took| match took {
        #[allow(clippy::cast_precision_loss, reason = "far less than a day")]
        Some(nanoseconds) => format!("{:.2} ms", nanoseconds as f64 / 1e6),
        None => "unknown".into(),
    });
    let order = match stretch.order {
        Order::None => "not synchronized",
        Order::Timelines | Order::HostSynchronized => "synchronized",
    };
    format!(
        "syncline: {fps:.0} frames per second, simulating {simulating}, drawing {drawing}, {order}, {} of {} compared frames wrong",
        stretch.wrong, stretch.compared
    )
}

/// Shows frames until the user closes the window.
///
/// Counts the compared frames that were synchronized apart from the others.
pub(super) fn frames<P: backend::Device>(
    args: &Args,
    window: &Window,
    pipeline: Pipeline<P>,
    link: &Link<P, Device>,
    view: View,
) -> Result<Verdict, Failure> {
    // A device may have no clock.
    let watches = Stopwatch::new(link.left(), "simulate")
        .and_then(|first| Ok(Arc::new([first, Stopwatch::new(link.right(), "draw")?])));
    let watches = watches.ok();
    let pipeline = match &watches {
        Some(watches) => pipeline.watched(watches.clone()),
        None => pipeline,
    };
    let mut wanted = match args.no_sync {
        true => Order::None,
        false => Order::Timelines,
    };
    if !args.json {
        say!("window     S switches the waits off and on, and closing it ends the demo");
    }
    let comparer = Comparer::new(view);
    let mut stretches = vec![Stretch::new(wanted)];
    let (mut made, mut is_closed, mut compared) = (0, false, None);
    let (mut since, mut frames, mut took) = (Instant::now(), 0, [None; 2]);
    pipeline.run_switching(args.frames(), wanted, |frame, order, rgba| {
        if is_closed {
            return Ok(None);
        }
        if stretches
            .last()
            .is_none_or(|stretch| stretch.order != order)
        {
            stretches.push(Stretch::new(order));
        }
        if compared.is_none_or(|at: Instant| at.elapsed() >= COMPARED) {
            compared = Some(Instant::now());
            comparer.compare((frame, stretches.len() - 1, rgba.to_vec()))?;
        }
        window.put(rgba)?;
        made += 1;
        frames += 1;
        count(&mut stretches, comparer.verdicts.try_iter());
        let period = since.elapsed();
        if let Some(stretch) = stretches.last().filter(|_| period >= PERIOD) {
            if let Some(watches) = &watches {
                for (took, watch) in took.iter_mut().zip(watches.iter()) {
                    // Not while the devices work on the measured frame.
                    *took = watch.elapsed().map(|of| of.nanoseconds).ok().or(*took);
                }
            }
            let fps = f64::from(frames) / period.as_secs_f64();
            window.set_title(&title(fps, took, stretch))?;
            (since, frames) = (Instant::now(), 0);
        }
        while let Some(input) = window.input()? {
            match (input, wanted) {
                (Input::Close, _) => is_closed = true,
                (Input::Switch, Order::None) => wanted = Order::Timelines,
                (Input::Switch, _) => wanted = Order::None,
            }
        }
        Ok::<_, Failure>((!is_closed).then_some(wanted))
    })?;
    count(&mut stretches, comparer.finish()?);
    let sum = |is_synchronized: bool| {
        let of = |stretch: &&Stretch| (stretch.order != Order::None) == is_synchronized;
        let of = stretches.iter().filter(of);
        of.fold((0, 0), |(compared, wrong), stretch| {
            (compared + stretch.compared, wrong + stretch.wrong)
        })
    };
    let ((judged, wrong), (others, others_wrong)) = (sum(true), sum(false));
    if !args.json && others > 0 {
        say!("unordered  {others_wrong} of {others} compared frames wrong without the waits");
    }
    Ok(Verdict {
        made,
        verified: judged - wrong,
        wrong,
        unordered: Some([others, others_wrong]),
        picture: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "the panic that is tested")]

    use super::*;

    #[test]
    fn a_panic_of_the_comparing_thread_is_a_failure() {
        let (frames, given) = sync_channel(1);
        let (_, verdicts) = channel();
        let comparer = Comparer {
            frames,
            verdicts,
            thread: thread::spawn(move || {
                drop(given);
                panic!("on purpose");
            }),
        };
        // The first frame may be sent before the thread drops the receiver.
        while comparer.compare((0, 0, Vec::new())).is_ok() {}
        assert!(comparer.finish().is_err());
    }
}
