//! T9, D4: objects that are dropped while others still need their signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use syncline::Error;

use crate::blocked::{blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::unless_pair;
use crate::user::{Device, Fence, KeptPoint, Queue, Timeline};
use crate::{Subject, World, patience};

cases! {
    "timeline.last_handle_while_the_device_stands_still": [T9 Q6] => stands_still;
    "timeline.dropped_in_many_orders": [T9 D4 Q6] => many_orders;
}

/// The last handle is dropped while the device is blocked before a signal that the driver has.
///
/// The signal comes, for the host and for queues. Values above it are cancelled. Objects that the
/// work keeps stay alive.
fn stands_still<S: Subject>(world: &World<S>) -> Verdict {
    let stall = world.left.stall()?;
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (source, target) = (world.left.buffer(1)?, world.right.buffer(1)?);
    let kept = Arc::new(());
    let (latch, to, object) = (stall.latch(), source.clone(), kept.clone());
    left.submit(
        &[],
        move |recorder| {
            S::keep(recorder, object);
            latch.block(recorder)?;
            S::fill(recorder, &to, 1)
        },
        &[line.signal_at(1)],
    )?;
    left.settle(patience())?;
    let pending = line.at(1).is_pending()?;
    right.fill(&[line.at(1)], &target, 2, &[])?;
    let points = [1, 2].map(|value| line.at(value).keep());
    thread::scope(|scope| {
        let reached = blocked(scope, || points[0].point().wait(patience()))?;
        let above = blocked(scope, || points[1].point().wait(patience()))?;
        drop(line);
        check_error!(
            join(above)?,
            Error::Cancelled {
                value: 2,
                reached: 0,
                ..
            }
        );
        let point = points[0].point();
        check_error!(
            point.wait(Duration::from_millis(2)),
            Error::TimedOut {
                value: 1,
                reached: 0,
                ..
            }
        );
        check!(
            !reached.is_finished() && !point.is_reached()? && point.is_pending()? == pending,
            "the device stands still, and {point:?} is something else without its handle"
        );
        check_eq!(Arc::strong_count(&kept), 2);
        stall.release()?;
        join(reached)??;
        Ok(())
    })?;
    left.idle(patience())?;
    right.idle(patience())?;
    let words = (S::read(&source)[0], S::read(&target)[0]);
    check!(words == (1, 2), "the works left {words:?}");
    check_eq!(Arc::strong_count(&kept), 1);
    Ok(())
}

/// The objects that are dropped in many orders: a pipeline of two queues, which may still be held.
struct Pipeline<S: Subject> {
    gate: Option<Timeline<S>>,
    line: Option<Timeline<S>>,
    signaller: Option<Queue<S>>,
    waiter: Option<Queue<S>>,
    fence: Option<Fence<S>>,
    point: Option<KeptPoint<S>>,
    device: Option<Device<S>>,
}

const OBJECTS: usize = 7;

impl<S: Subject> Pipeline<S> {
    fn drop_object(&mut self, index: usize) {
        match index {
            0 => drop(self.gate.take()),
            1 => drop(self.line.take()),
            2 => drop(self.signaller.take()),
            3 => drop(self.waiter.take()),
            4 => drop(self.fence.take()),
            5 => drop(self.point.take()),
            _ => drop(self.device.take()),
        }
    }

    fn open(&self) -> syncline::Result<bool> {
        match &self.gate {
            Some(gate) => gate.signal(1).map(|()| true),
            None => Ok(false),
        }
    }
}

/// Counts its drops.
struct Kept(Arc<AtomicU32>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns the permutation of `0..OBJECTS` with that number.
fn order(mut number: usize) -> [usize; OBJECTS] {
    let mut left: Vec<usize> = (0..OBJECTS).collect();
    std::array::from_fn(|_| {
        let at = number % left.len();
        number /= left.len();
        left.remove(at)
    })
}

/// Drops objects in very different orders. Each is about equally often the first and the last.
fn many_orders<S: Subject>(world: &World<S>) -> Verdict {
    const ORDERS: usize = 5040;
    const STRIDE: usize = 1009;
    let times = unless_pair(world, "orders", 126, 63);
    for n in 0..times {
        let order = order(n * STRIDE % ORDERS);
        // Before anything is dropped, in the middle, or never.
        let opened_at = [0, OBJECTS / 2, usize::MAX][n % 3];
        one_order(world, order, opened_at).or_else(|stop| match stop {
            Stop::Failed(reason) => {
                Stop::fail(format!("{order:?}, opened at {opened_at}: {reason}"))
            }
            skipped => Err(skipped),
        })?;
    }
    Ok(())
}

fn one_order<S: Subject>(world: &World<S>, order: [usize; OBJECTS], opened_at: usize) -> Verdict {
    let drops = Arc::new(AtomicU32::new(0));
    let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
    let (signaller, waiter) = (world.left_queue("signaller")?, world.right_queue("waiter")?);
    let (source, target) = (world.left.buffer(1)?, world.right.buffer(1)?);
    let (kept, to) = (Kept(drops.clone()), source.clone());
    signaller.submit(
        &[gate.at(1)],
        move |recorder| {
            let _kept = kept;
            S::fill(recorder, &to, 1)
        },
        &[line.signal_at(1)],
    )?;
    let (kept, to) = (Kept(drops.clone()), target.clone());
    let end = waiter.submit(
        &[line.at(1)],
        move |recorder| {
            let _kept = kept;
            S::fill(recorder, &to, 2)
        },
        &[line.signal_at(2)],
    )?;
    let end = end.end().keep();
    let fence = world.right.fence("fence");
    waiter.record(&fence)?;
    // These read all states later. A point keeps nothing but memory.
    let seen = [line.at(1).keep(), line.at(2).keep()];
    let fenced = fence.point()?;
    let mut all = Pipeline {
        gate: Some(gate),
        point: Some(line.at(2).keep()),
        line: Some(line),
        signaller: Some(signaller),
        waiter: Some(waiter),
        fence: Some(fence),
        device: Some(world.left.clone()),
    };
    let mut opened = false;
    for (step, object) in order.into_iter().enumerate() {
        if step == opened_at {
            opened = all.open()?;
        }
        all.drop_object(object);
    }
    for (point, value) in seen.iter().zip([1, 2]) {
        let ended = point.point().wait(patience());
        if opened {
            ended?;
        } else {
            check_error!(
                ended,
                Error::Failed { cause, value: asked, .. }
                    if asked == value && matches!(*cause, Error::Cancelled { value: 1, .. })
            );
        }
    }
    end.point().wait(patience())?;
    fenced.point().wait(patience())?;
    let words = (S::read(&source)[0], S::read(&target)[0]);
    let expected = if opened { (1, 2) } else { (0, 0) };
    check!(words == expected, "the works left {words:?}");
    let drops = drops.load(Ordering::SeqCst);
    check!(drops == 2, "what two works owned was dropped {drops} times");
    Ok(())
}
