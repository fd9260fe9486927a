//! H2: finished work costs nothing: no query of a port, and no memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::spies::{Plain, Spy};
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::footprint::grows_nothing;
use crate::user::{Timeline, wait_all, wait_any};
use crate::{Settings, Subject, World, patience};

cases! {
    "cost.reached_points_ask_no_port": [H2 T7] => asks_no_port;
    "cost.times_do_not_grow_with_what_is_done": [H2] => same_times;
    "cost.ports_go_with_their_timelines": [H2 T9] => ports_go;
    "cost.memory_follows_what_is_outstanding": [H2 T4] => memory;
}

/// Points that are known to be reached need no query of a port.
///
/// They are queried, awaited by the host and by queues, and used in lists, while other values of
/// the timeline are outstanding. The negative control is a point that is not reached.
fn asks_no_port<S: Subject>(world: &World<S>) -> Verdict {
    for elsewhere in [false, true] {
        let spy = Arc::new(Spy::default());
        let line = spy.timeline(world, elsewhere)?;
        let gate = world.timeline("gate")?;
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        for value in 1..=5 {
            line.signal(value)?;
        }
        left.signal(&line, 10)?;
        line.at(10).wait(patience())?;
        right.submit_empty(&[gate.at(1)], &[line.signal_at(20)])?;

        let before = spy.polls();
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
        left.submit_empty(&[line.at(10), line.at(3)], &[])?;
        left.idle(patience())?;
        let asked = spy.polls() - before;
        check_eq!(asked, 0);

        // A value that another process might signal needs a query of the port.
        check!(!line.at(11).is_reached()?, "11 was never signalled");
        let asked = spy.polls() - before;
        check_eq!((asked > 0), elsewhere);
        gate.signal(1)?;
        line.at(20).wait(patience())?;
        right.idle(patience())?;
    }
    Ok(())
}

/// The same calls take as long after 200 000 values as after ten.
///
/// The limit is so high that no machine misses it by chance. Visiting a thousandth of all values
/// would exceed it.
fn same_times<S: Subject>(world: &World<S>) -> Verdict {
    // Largest ratio of the best times, and a time that counts as none.
    const FACTOR: u32 = 20;
    const NO_TIME: Duration = Duration::from_micros(2);
    // The engine alone, and with the drivers.
    let plain = syncline::Timeline::new("plain", 0, |initial| {
        Ok([Plain::port(initial, u64::MAX)].into_iter().collect())
    })?;
    let engine = if world.is_pair() { 20_000 } else { 200_000 };
    let mut lines = vec![(world.left.own(plain), engine)];
    // Below a validation layer (1.4.309) a signal takes longer the more there were: 1 µs after ten,
    // 259 µs after 10 000.
    if !Settings::from_env().validation {
        lines.push((world.timeline("line")?, engine / 20));
    }
    for (line, most) in lines {
        let mut at = 0;
        let mut up_to = |value: u64| -> Result<_, Stop> {
            while at < value {
                at += 1;
                line.signal(at)?;
            }
            best_times(&line, &mut at)
        };
        let (few, many) = (up_to(10)?, up_to(most)?);
        for ((what, few), (_, many)) in few.into_iter().zip(many) {
            check!(many < few.max(NO_TIME) * FACTOR, "what {what}, most {most}");
        }
    }
    Ok(())
}

/// Returns the best times of all queries of a timeline at `at`, and of its next signals.
fn best_times<S: Subject>(
    line: &Timeline<S>,
    at: &mut u64,
) -> Result<[(&'static str, Duration); 6], Stop> {
    const TIMES: usize = 50;
    let mut best = [
        ("a value", Duration::MAX),
        ("a query of an old point", Duration::MAX),
        ("a query of the latest point", Duration::MAX),
        ("a query of an open point", Duration::MAX),
        ("a wait that asks once", Duration::MAX),
        ("a signal", Duration::MAX),
    ];
    for _ in 0..TIMES {
        let now = *at;
        let mut nth = 0;
        let mut time = |what: &mut dyn FnMut() -> Verdict| {
            let start = Instant::now();
            what()?;
            let took = start.elapsed();
            best[nth].1 = best[nth].1.min(took);
            nth += 1;
            Verdict::Ok(())
        };
        let is = |right: bool| {
            check!(right, "a timeline at {now} tells something else");
            Ok(())
        };
        time(&mut || is(line.value()? == now))?;
        time(&mut || is(line.at(1).is_reached()?))?;
        time(&mut || is(line.at(now).is_reached()?))?;
        time(&mut || is(!line.at(now + 1).is_reached()?))?;
        time(&mut || {
            check_error!(line.at(now + 1).wait(Duration::ZERO), TimedOut);
            Ok(())
        })?;
        time(&mut || Ok(line.signal(now + 1)?))?;
        *at += 1;
    }
    Ok(best)
}

/// The ports of a timeline are dropped once, after its last handle, point and waiter.
///
/// That holds however the timeline ends. No object of the driver stays.
fn ports_go<S: Subject>(world: &World<S>) -> Verdict {
    const EACH: usize = 40;
    let spy = Arc::new(Spy::default());
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (gate, held) = (world.timeline("gate")?, world.left_queue("held")?);
    let mut points = Vec::new();
    for nth in 0..EACH {
        let line = spy.timeline(world, nth % 2 == 0)?;
        match nth % 5 {
            // Used, and dropped.
            0 => {
                line.signal(1)?;
                left.submit_empty(&[line.at(1)], &[line.signal_at(2)])?;
                line.at(2).wait(patience())?;
            }
            // Dropped with a held signal, and a queue that waits for it.
            1 => {
                held.submit_empty(&[gate.at(1)], &[line.signal_at(1)])?;
                right.submit_empty(&[line.at(1)], &[])?;
            }
            // Dropped with a wait for a value that is not claimed.
            2 => drop(right.submit_empty(&[line.at(7)], &[])?),
            3 => line.fail(super::cause("it has had enough")),
            _ => {
                check_error!(line.at(1).wait(Duration::from_micros(10)), TimedOut);
                points.push(line.at(1).keep());
            }
        }
    }
    gate.signal(1)?;
    for queue in [&left, &held, &right] {
        queue.idle(patience())?;
    }
    // Each point owns memory of its timeline.
    let left_over = |most: u64| {
        let deadline = Instant::now() + patience();
        while spy.alive() > most && Instant::now() < deadline {
            std::thread::yield_now();
        }
        spy.alive()
    };
    let kept = points.len() as u64;
    let alive = left_over(kept);
    check!(alive <= kept);
    drop(points);
    let alive = left_over(0);
    check_eq!(alive, 0);
    Ok(())
}

/// Memory does not depend on how much has finished, only on what is outstanding.
///
/// Makes many thousand values with a few of them outstanding, waits that time out, and points and
/// fences of finished work.
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
                check_error!(hosts.at(at + 1).wait(Duration::ZERO), TimedOut);
                let _ = hosts.at(at).keep();
            }
            if at % 100 == 0 {
                let short = Duration::from_micros(50);
                check_error!(hosts.at(at + 1).wait(short), TimedOut);
            }
        }
        for _ in 0..by_queue {
            last += 1;
            let queue = if last % 2 == 0 { &left } else { &right };
            queue.submit_empty(
                &[line.at(last.saturating_sub(WINDOW))],
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
