//! H2: what is over costs nothing: no question to a port, no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use syncline::backend::Port;
use syncline::{DeviceId, Error, Result};

use crate::case::{Verdict, cases, check, check_error};
use crate::footprint::grows_nothing;
use crate::user::{Timeline, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "cost.reached_points_ask_no_port": [H2 T7] => asks_nobody;
    "cost.questions_do_not_grow_with_what_is_done": [H2] => same_questions;
    "cost.memory_follows_what_is_outstanding": [H2 T4] => memory;
}

/// A port that counts what it is asked.
struct Counted {
    port: Box<dyn Port>,
    polls: Arc<AtomicU64>,
}

impl Port for Counted {
    fn sees_submitted(&self, value: u64) -> Result<()> {
        self.port.sees_submitted(value)
    }

    fn poll(&self) -> Result<Option<u64>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        self.port.poll()
    }

    fn signal(&self, value: u64) -> Result<()> {
        self.port.signal(value)
    }

    fn visible(&self, reached: u64) -> Result<u64> {
        self.port.visible(reached)
    }
}

/// A timeline over a port of the left side that counts, and its count. It has no port on any queue's
/// device, as no backend knows the wrapper: queues wait for it on the host, and the host signals for them.
/// If `elsewhere`, it might be signalled from outside at any time.
fn counted<S: Subject>(world: &World<S>, elsewhere: bool) -> Result<(Timeline<S>, Arc<AtomicU64>)> {
    let polls = Arc::new(AtomicU64::new(0));
    let library = syncline::Timeline::new("counted", 0, |initial| {
        let mut home = world.left.port(initial)?;
        let polls = polls.clone();
        home.device = DeviceId::new();
        home.port = Box::new(Counted {
            port: home.port,
            polls,
        });
        home.watch = None;
        home.signalled_elsewhere = elsewhere;
        Ok([home].into_iter().collect())
    })?;
    Ok((world.left.own(library), polls))
}

/// Points that are known to be reached are queried, waited for by host and queues, and stand in lists: no
/// port is asked, whatever else of the timeline is outstanding. An unreached point is the control.
fn asks_nobody<S: Subject>(world: &World<S>) -> Verdict {
    for elsewhere in [false, true] {
        let (line, polls) = counted(world, elsewhere)?;
        let gate = world.timeline("gate")?;
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        for value in 1..=5 {
            line.signal(value)?;
        }
        left.submit(&[], |_| Ok(()), &[line.signal_at(10)])?;
        line.at(10).wait(patience())?;
        right.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(20)])?;

        let before = polls.load(Ordering::SeqCst);
        for round in 0..100 {
            let point = line.at(1 + round % 10);
            check!(point.is_reached()?, "{point:?} is not reached");
            check!(point.is_pending()?, "{point:?} is not pending");
            point.wait(Duration::ZERO)?;
            point.wait_pending(Duration::ZERO)?;
            wait_all(&[point, line.at(10), line.at(0)], patience())?;
            wait_any(&[line.at(10), point], patience())?;
            let _ = (line.frozen_value(), point.keep());
        }
        left.submit(&[line.at(10), line.at(3)], |_| Ok(()), &[])?;
        left.idle(patience())?;
        let asked = polls.load(Ordering::SeqCst) - before;
        check!(
            asked == 0,
            "for points known to be reached a port was asked {asked} times"
        );

        // What is not known to be reached, and might be signalled by others, has to be looked at.
        check!(!line.at(11).is_reached()?, "nobody has signalled 11");
        let asked = polls.load(Ordering::SeqCst) - before;
        check!(
            (asked > 0) == elsewhere,
            "for an unreached point the port was asked {asked} times"
        );
        gate.signal(1)?;
        line.at(20).wait(patience())?;
        right.idle(patience())?;
    }
    Ok(())
}

/// The same calls ask the port as often after thousands of values as after ten.
fn same_questions<S: Subject>(world: &World<S>) -> Verdict {
    let (line, polls) = counted(world, true)?;
    let queue = world.left_queue("left")?;
    let mut asked = Vec::new();
    let mut at = 0;
    for upto in [10, 20_000] {
        while at < upto {
            at += 1;
            line.signal(at)?;
        }
        let mut counts = Vec::new();
        let mut count = |what: &mut dyn FnMut() -> Verdict| -> Verdict {
            let before = polls.load(Ordering::SeqCst);
            what()?;
            counts.push(polls.load(Ordering::SeqCst) - before);
            Ok(())
        };
        count(&mut || {
            check!(
                line.value()? == at,
                "it is at {} instead of {at}",
                line.value()?
            );
            Ok(())
        })?;
        count(&mut || {
            check!(!line.at(at + 1).is_reached()?, "{} is reached", at + 1);
            Ok(())
        })?;
        count(&mut || {
            check_error!(line.at(at + 1).wait(Duration::ZERO), Error::TimedOut { .. });
            Ok(())
        })?;
        count(&mut || {
            let points = [line.at(at + 1), line.at(at + 2)];
            check_error!(wait_any(&points, Duration::ZERO), Error::TimedOut { .. });
            Ok(())
        })?;
        count(&mut || {
            queue.submit(&[line.at(at)], |_| Ok(()), &[])?;
            Ok(line.signal(at + 1)?)
        })?;
        at += 1;
        asked.push(counts);
    }
    check!(
        asked[0] == asked[1],
        "asked {:?} times after ten values, {:?} times after thousands",
        asked[0],
        asked[1]
    );
    queue.idle(patience())?;
    Ok(())
}

/// Many thousand values with a handful outstanding, timed-out waits, points and fences of what is over:
/// memory is that of what is outstanding.
fn memory<S: Subject>(world: &World<S>) -> Verdict {
    const WINDOW: u64 = 8;
    let (by_host, by_queue) = if world.is_pair() {
        (5000, 300)
    } else {
        (20_000, 1000)
    };
    let (hosts, line) = (world.timeline("hosts")?, world.timeline("line")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let fence = world.right.fence("fence");
    let (mut at, mut last) = (0_u64, 0_u64);
    grows_nothing(|| {
        for _ in 0..by_host {
            at += 1;
            hosts.signal(at)?;
            if at % 10 == 0 {
                check_error!(
                    hosts.at(at + 1).wait(Duration::ZERO),
                    Error::TimedOut { .. }
                );
                let _ = hosts.at(at).keep();
            }
            if at % 100 == 0 {
                let short = Duration::from_micros(50);
                check_error!(hosts.at(at + 1).wait(short), Error::TimedOut { .. });
            }
        }
        for _ in 0..by_queue {
            last += 1;
            let queue = if last % 2 == 0 { &left } else { &right };
            queue.submit(
                &[line.at(last.saturating_sub(WINDOW))],
                |_| Ok(()),
                &[line.signal_at(last)],
            )?;
            right.record(&fence)?;
            line.at(last.saturating_sub(WINDOW)).wait(patience())?;
        }
        fence.wait(patience())?;
        line.at(last).wait(patience())?;
        left.idle(patience())?;
        right.idle(patience())?;
        Ok(())
    })
}
