//! T4, T6, F3: how soon waits end, and what their threads do until then.
//!
//! Machines are busy, so one measurement means little. So a few short ones of several count.

use std::thread;
use std::time::{Duration, Instant};

use syncline::{Claim, Error, WaitMode};

use super::{Behind, Wait};
use crate::blocked::{State, Unstick, blocked, join, seen};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::executor::block_on;
use crate::user::{Point, Queue, Timeline, all, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "wait.wakes_soon_whoever_else_waits": [T4 T6] => wakes_soon;
    "wait.zero_does_not_block": [T4 F3] => zero;
    "wait.spins_or_sleeps_as_told": [F3 T4] => as_told;
}

/// How late a waiter may wake, after its value is reached or its time is over.
///
/// That holds on an idle machine. A lost nudge costs up to 100 ms: the rest of a round of the
/// watching thread.
const SOON: Duration = Duration::from_millis(50);

/// The same for a call that has nothing to wait for.
const AT_ONCE: Duration = Duration::from_millis(5);

/// The largest number of measurements.
const TRIES: usize = 12;

/// The number of measurements that must be short where a lost nudge can look short by chance.
///
/// Without a nudge a waiter wakes when a round of the watching thread ends, which may be soon.
const SHORT: usize = 3;

/// A value above all that are signalled here.
const FAR: u64 = 1 << 20;

/// Measures how fast a waiter wakes, for each signaller and wait mode.
struct Latency<'w, S: Subject> {
    world: &'w World<S>,
    line: &'w Timeline<S>,
    left: Queue<S>,
    right: Queue<S>,
    value: u64,
}

const SIGNALS: [&str; 4] = ["the host", "the left side", "the right side", "a gate"];

type Waits<S> = (&'static str, fn(Point<'_, S>) -> Verdict);

fn waits<S: Subject>() -> [Waits<S>; 4] {
    [
        ("a parked wait", |point| {
            Ok(point.wait_with(WaitMode::Block, patience())?)
        }),
        ("a wait for any", |point| {
            Ok(wait_any(&[point, point], patience()).map(drop)?)
        }),
        ("a future", |point| Ok(block_on(all(&[point]))??)),
        ("a wait for all", |point| {
            Ok(wait_all(&[point, point], patience())?)
        }),
    ]
}

impl<S: Subject> Latency<'_, S> {
    /// Measures from just before the signal until the thread that sleeps in `wait` has returned.
    fn once(&mut self, how: usize, wait: fn(Point<'_, S>) -> Verdict) -> Result<Duration, Stop> {
        self.value += 1;
        let (line, value) = (self.line, self.value);
        let gate = self.world.timeline("gate")?;
        if how == 3 {
            self.right
                .submit_empty(&[gate.at(1)], &[line.signal_at(value)])?;
        }
        thread::scope(|scope| {
            let waiter = blocked(scope, move || {
                wait(line.at(value))?;
                Ok::<_, Stop>(Instant::now())
            })?;
            check!(!waiter.is_finished(), "a wait for {value} ended before it");
            let start = Instant::now();
            match how {
                0 => line.signal(value)?,
                1 => drop(self.left.signal(line, value)?),
                2 => drop(self.right.signal(line, value)?),
                _ => gate.signal(1)?,
            }
            Ok(join(waiter)??.saturating_duration_since(start))
        })
    }

    /// Checks every kind of signal with one kind of wait each, beginning with the kind `first`.
    fn check(&mut self, first: usize, others: &str) -> Verdict {
        for (how, signaller) in SIGNALS.into_iter().enumerate() {
            let (waiting, wait) = waits()[(how + first) % SIGNALS.len()];
            // If nudges are lost, this one ends with a round of the watching thread. So the next
            // ones have all of a round before them.
            self.once(how, wait)?;
            let took = shortest(SHORT, SOON, || self.once(how, wait))?;
            check!(
                took < SOON,
                "others {others}, waiting {waiting}, signaller {signaller}"
            );
        }
        Ok(())
    }
}

/// Measures until `count` times are below `enough`, at most [`TRIES`] times.
///
/// Returns the longest of the `count` shortest times.
fn shortest(
    count: usize,
    enough: Duration,
    mut once: impl FnMut() -> Result<Duration, Stop>,
) -> Result<Duration, Stop> {
    let mut times = Vec::with_capacity(TRIES);
    while times.len() < TRIES && times.iter().filter(|time| **time < enough).count() < count {
        times.push(once()?);
    }
    times.sort_unstable();
    Ok(times[count - 1])
}

fn wakes_soon<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let mut latency = Latency {
        world,
        line: &line,
        left: world.left_queue("left")?,
        right: world.right_queue("right")?,
        value: 0,
    };
    latency.check(0, "no other wait")?;
    let never = [
        world.timeline("other")?,
        world.left.timeline("of the left")?,
        world.right.timeline("of the right")?,
    ];
    // The application has claimed these values, and the driver may have its submission at any time.
    // So the library watches the drivers for their waiters. The claim of the line itself leaves
    // room for the signals here.
    let mut claims: Vec<Claim> = Vec::new();
    for of in never.iter().chain([&line]) {
        match of.claim_after(FAR, FAR - 1) {
            Ok(claim) => claims.push(claim),
            Err(Error::Unsupported { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    thread::scope(|scope| {
        let stuck = [&never[0], &never[1], &never[2], &line];
        let _unstick = Unstick(&stuck);
        let mut threads = Vec::new();
        for of in stuck {
            threads.push(blocked(scope, || of.at(FAR).wait(Duration::MAX))?);
        }
        let any: Vec<_> = stuck.iter().map(|of| of.at(FAR)).collect();
        threads.push(blocked(scope, move || {
            wait_any(&any, Duration::MAX).map(drop)
        })?);
        latency.check(1, "others wait for ever")?;
        latency.left.idle(patience())?;
        latency.right.idle(patience())?;
        check!(
            !threads.iter().any(|thread| thread.is_finished()),
            "a wait for a value that was never signalled ended"
        );
        Ok(())
    })
}

/// Waits with a time-out and queries take no longer than their time.
///
/// That holds while a timeline holds the work, and while the device is blocked.
fn zero<S: Subject>(world: &World<S>) -> Verdict {
    let behind = Behind::new(world)?;
    all_end_soon(&behind)?;
    behind.gate.signal(1)?;
    behind.queue.idle(patience())?;
    drop(behind);

    let stall = match world.right.stall() {
        Ok(stall) => stall,
        Err(Stop::Skipped(_)) => return Ok(()),
        Err(failed) => return Err(failed),
    };
    let behind = Behind::new(world)?;
    let queue = world.right_queue("standing still")?;
    queue.block(&stall)?;
    let line = world.right.timeline("still")?;
    queue.signal(&line, 1)?;
    let fence = world.right.fence("still");
    queue.record(&fence)?;
    let still = Behind {
        gate: behind.gate.clone(),
        line,
        queue,
        fence,
        claim: None,
    };
    all_end_soon(&still)?;
    stall.release()?;
    still.queue.idle(patience())?;
    behind.gate.signal(1)?;
    behind.queue.idle(patience())?;
    Ok(())
}

fn all_end_soon<S: Subject>(behind: &Behind<S>) -> Verdict {
    let is_open = |open: bool| {
        check!(open, "reached, but its gate is closed");
        Ok(())
    };
    // The driver of a blocked device already has these. They succeed at once.
    let pending = behind.line.at(1).is_pending()?;
    let mut parking = behind.parking();
    parking
        .retain(|(name, _)| !pending || !["Point::wait_pending", "Queue::settle"].contains(name));
    let mut waits: Vec<Wait<'_>> = parking;
    waits.push(behind.spinning());
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        let most = timeout + if timeout.is_zero() { AT_ONCE } else { SOON };
        for (name, wait) in &waits {
            let took = shortest(1, most, || {
                let start = Instant::now();
                let ended = wait(timeout);
                let took = start.elapsed();
                check_error!(ended, Error::TimedOut { reached: 0, .. });
                Ok(took)
            })?;
            check!(took < most, "{name} for {timeout:?} took {took:?}, at best");
        }
    }
    let questions: [(&str, &dyn Fn() -> Verdict); 5] = [
        ("Timeline::value", &|| is_open(behind.line.value()? == 0)),
        ("Point::is_reached", &|| {
            is_open(!behind.line.at(1).is_reached()?)
        }),
        ("Point::is_pending", &|| {
            is_open(behind.line.at(1).is_pending()? == pending)
        }),
        ("Fence::is_complete", &|| {
            is_open(!behind.fence.is_complete()?)
        }),
        ("Queue::held", &|| {
            is_open((behind.queue.held().count == 0) == pending)
        }),
    ];
    for (name, ask) in questions {
        let took = shortest(1, AT_ONCE, || {
            let start = Instant::now();
            ask()?;
            Ok(start.elapsed())
        })?;
        check!(took < AT_ONCE, "{name} took {took:?}, at best");
    }
    Ok(())
}

/// Checks from outside that a spinning wait does not sleep, and that a blocking wait does.
fn as_told<S: Subject>(world: &World<S>) -> Verdict {
    let behind = Behind::new(world)?;
    thread::scope(|scope| {
        let _unstick = Unstick(&[&behind.gate]);
        let (line, fence) = (&behind.line, &behind.fence);
        let (mut threads, mut parked) = (Vec::new(), Vec::new());
        for mode in [
            WaitMode::Block,
            WaitMode::Adaptive,
            WaitMode::SpinFor(Duration::from_millis(1)),
        ] {
            for wait in [
                seen(scope, move || line.at(1).wait_with(mode, Duration::MAX)),
                seen(scope, move || fence.wait_with(mode, Duration::MAX)),
            ] {
                threads.push(wait.0);
                parked.push(wait.1);
            }
        }
        stay_asleep(&parked)?;
        let (spin, told) = (WaitMode::Spin, WaitMode::SpinFor(Duration::MAX));
        for (name, (thread, state)) in [
            (
                "point",
                seen(scope, move || line.at(1).wait_with(spin, Duration::MAX)),
            ),
            (
                "fence",
                seen(scope, move || fence.wait_with(told, Duration::MAX)),
            ),
        ] {
            stays_awake(&state, name)?;
            threads.push(thread);
        }
        check!(
            !threads.iter().any(|thread| thread.is_finished()),
            "a wait has ended behind a closed gate"
        );
        behind.gate.signal(1)?;
        for thread in threads {
            join(thread)??;
        }
        behind.queue.idle(patience())?;
        Ok(())
    })
}

/// The number of samples in a row in which a thread must have the expected state.
///
/// On a machine with other work that takes a while. A thread that waits for a processor neither
/// sleeps nor runs.
const LOOKS: u32 = 20;

/// A spinning thread runs. It is not seen asleep in two samples in a row.
///
/// A single sleep may be for a lock, or for memory that the system has to find first.
fn stays_awake(state: &State, name: &str) -> Verdict {
    const RUNS: Duration = Duration::from_millis(2);
    let start = Instant::now();
    let (mut looks, mut asleep, mut since) = (0, 0, None);
    loop {
        if let Some(look) = state.look()? {
            asleep += u32::from(look.asleep);
            if asleep > 1 {
                (looks, asleep, since) = (0, 0, None);
            } else {
                looks += 1;
                let ran = look.ran.saturating_sub(*since.get_or_insert(look.ran));
                if looks >= LOOKS && ran >= RUNS {
                    return Ok(());
                }
            }
        }
        check!(start.elapsed() < patience(), "name {name}");
        thread::sleep(Duration::from_micros(100));
    }
}

/// Blocking waits sleep, and do nothing between the samples, which are far apart.
///
/// A spinning thread also sleeps for some milliseconds, if others want the same lock and the same
/// processor.
fn stay_asleep(threads: &[State]) -> Verdict {
    let start = Instant::now();
    let mut before: Vec<Option<Duration>> = vec![None; threads.len()];
    let mut looks = 0;
    while looks < LOOKS {
        looks += 1;
        for (state, before) in threads.iter().zip(&mut before) {
            let look = state.look()?;
            let ran = look.map(|look| look.ran);
            if *before != ran || !look.is_some_and(|look| look.asleep) {
                looks = 0;
            }
            *before = ran;
        }
        check!(start.elapsed() < patience());
        thread::sleep(Duration::from_millis(4));
    }
    Ok(())
}
