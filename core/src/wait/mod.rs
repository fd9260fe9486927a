//! Host threads waiting for points of any mix of backends.

pub mod future;
mod lead;
pub(crate) mod notify;
mod point;
mod signal;

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::run::{Wake, are_wakes_deferred};
use crate::base::stage::Stage;
use crate::base::sync::{CAN_SPIN, Instant};
use crate::port::parker::Parker;
use crate::port::watch::on_watcher_thread;
use crate::timeline::point::Point;
use crate::timeline::recent_waits::RecentWaits;
use crate::timeline::state::{Registered, Shared};

use lead::Lead;

/// How a thread waits. What CUDA fixes when an event is made is chosen here per wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitMode {
    /// Polls until the end: lowest latency, burns a core.
    Spin,
    /// Parks at once: least CPU time.
    Block,
    /// Polls for so long, as [`WaitMode::Adaptive`] does for a time of its own choice; then parks.
    SpinFor(Duration),
    /// Polls for [some microseconds](WaitMode::SPIN); then parks. Parks at once to wait for a timeline for which waits have lasted much longer of late.
    #[default]
    Adaptive,
}

impl WaitMode {
    /// How long [`WaitMode::Adaptive`] polls: about what waking a parked thread costs.
    pub const SPIN: Duration = Duration::from_micros(30);
}

const SPIN: Duration = WaitMode::SPIN;

/// How often a thread that polls looks for each time that it looks at the clock, which costs more than a look that asks no
/// driver.
const LOOKS: u32 = 12;

/// So many of these looks at one timeline ask a driver, at the most. A list is looked through once.
const ASKS: u32 = 4;

/// How often a waiting thread looks for itself where no watcher can wake it: it is one, or there is none.
const OWN_LOOK: Duration = Duration::from_micros(200);

/// How many of a list of points must be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    Any,
    All,
}

/// Blocks until all `points` are reached. Points of any backends and devices may be mixed; none is reached at once.
///
/// # Errors
/// The failure of the lowest failed point as soon as there is one, even if others are outstanding;
/// [`Error::TimedOut`] naming the first point not reached, with what each such point waits for;
/// [`Error::Cancelled`]; [`Error::ValueOutOfRange`].
pub fn wait_all(points: &[Point<'_>], timeout: Duration) -> Result<()> {
    wait_points(
        points,
        Quantity::All,
        Stage::Reached,
        WaitMode::Adaptive,
        timeout,
    )
    .map(|_| ())
}

/// Blocks until any of `points` is reached and tells which: the lowest index if there are several.
/// A reached point wins over a failed one.
///
/// # Errors
/// [`Error::NothingToWaitFor`] for an empty list; the failure of the lowest failed point if none is
/// reached; [`Error::TimedOut`] naming the first point, with what each point waits for;
/// [`Error::ValueOutOfRange`] for a value that no device can tell from others.
pub fn wait_any(points: &[Point<'_>], timeout: Duration) -> Result<usize> {
    wait_points(
        points,
        Quantity::Any,
        Stage::Reached,
        WaitMode::Adaptive,
        timeout,
    )
}

/// Waits for a point to be reached, which a first look has not found if one was `looked`.
#[inline(never)]
pub(crate) fn wait_longer(
    point: Point<'_>,
    looked: bool,
    mode: WaitMode,
    timeout: Duration,
) -> Result<()> {
    let (quantity, stage) = (Quantity::All, Stage::Reached);
    wait_from(&[point], quantity, stage, mode, timeout, looked).map(|_| ())
}

fn wait_points(
    points: &[Point<'_>],
    quantity: Quantity,
    stage: Stage,
    mode: WaitMode,
    timeout: Duration,
) -> Result<usize> {
    wait_from(points, quantity, stage, mode, timeout, false)
}

/// Waits for what a first look has not found, if one was `looked`.
fn wait_from(
    points: &[Point<'_>],
    quantity: Quantity,
    stage: Stage,
    mode: WaitMode,
    timeout: Duration,
    mut looked: bool,
) -> Result<usize> {
    if points.is_empty() {
        return match quantity {
            Quantity::All => Ok(0),
            Quantity::Any => Err(Error::NothingToWaitFor),
        };
    }
    // Mostly it is one, and mostly nothing has come yet: that shows without a proper look.
    let single = match points {
        [
            Point {
                of: Some(of),
                value,
            },
        ] if stage == Stage::Reached => Some((*of, *value)),
        _ => None,
    };
    let is_worth_a_look = || single.is_none_or(|(of, value)| of.is_worth_a_look(value));
    let look = || {
        let looked = std::mem::take(&mut looked);
        let Some((of, value)) = single else {
            refresh_all(points, stage)?;
            return decide(points, quantity, stage);
        };
        of.check_wait(value)?;
        if (!looked && of.looks_reached(value)) || of.reached() >= value {
            return Ok(Some(0));
        }
        // Without trouble there is nothing else to be decided.
        if of.is_troubled() {
            return decide(points, quantity, stage);
        }
        Ok(None)
    };
    let register = |parker: &Arc<dyn Wake>, registered: &mut Registered<_>| {
        if let Some((of, value)) = single
            && !on_watcher_thread()
            && !are_wakes_deferred()
        {
            let leads = registered.add_to_lead(of, value, parker.clone());
            let lead = leads.and_then(|ticket| Lead::new(of, ticket));
            return (of.is_unwatched(), lead);
        }
        let mut alone = on_watcher_thread();
        for point in points {
            if let Some(of) = point.of {
                registered.add(of, point.value, stage, parker.clone());
                alone |= of.is_unwatched();
            }
        }
        (alone, None)
    };
    let how = How {
        timeout,
        mode,
        quantity,
        recent: single.map(|(of, _)| &of.recent_waits),
    };
    let tend = || {
        for of in points.iter().filter_map(|point| point.of) {
            of.tend_unwatched();
        }
    };
    let answer = wait_until(how, is_worth_a_look, look, tend, register)?;
    if let Some(index) = answer {
        return Ok(index);
    }
    timed_out(points, quantity, stage, timeout)
}

/// Waits for a point to be pending, or until `is_over` says that it need not be waited for any more. `register` keeps
/// the waker of this thread, to be called when that may have changed; the caller takes it back.
pub(crate) fn wait_pending_or(
    point: Point<'_>,
    timeout: Duration,
    is_over: impl Fn() -> bool,
    register: impl FnOnce(&Arc<dyn Wake>),
) -> Result<()> {
    let (points, quantity, stage) = (&[point], Quantity::All, Stage::Pending);
    let Some(of) = point.of else { return Ok(()) };
    let how = How {
        timeout,
        mode: WaitMode::Adaptive,
        // One of two things, and only the first takes the registration out.
        quantity: Quantity::Any,
        recent: None,
    };
    let look = || {
        refresh_all(points, stage)?;
        let decided = decide(points, quantity, stage)?;
        Ok(decided.or_else(|| is_over().then_some(0)))
    };
    let registered = |parker: &Arc<dyn Wake>, registered: &mut Registered<_>| {
        registered.add(of, point.value, stage, parker.clone());
        register(parker);
        (on_watcher_thread() || of.is_unwatched(), None)
    };
    let tend = || of.tend_unwatched();
    match wait_until(how, || true, look, tend, registered)? {
        Some(_) => Ok(()),
        None => timed_out(points, quantity, stage, timeout).map(drop),
    }
}

/// Waits for one point to be pending or reached.
pub(crate) fn wait_stage(
    of: &Arc<Shared>,
    value: u64,
    stage: Stage,
    timeout: Duration,
) -> Result<()> {
    let point = Point {
        of: Some(of),
        value,
    };
    let mode = WaitMode::Adaptive;
    wait_points(&[point], Quantity::All, stage, mode, timeout).map(|_| ())
}

/// The end of a wait whose time is over: [`Error::TimedOut`], unless the points have come, or have failed, since
/// they were last looked at. So no error says that a value was not reached and tells one past it.
fn timed_out(
    points: &[Point<'_>],
    quantity: Quantity,
    stage: Stage,
    waited: Duration,
) -> Result<usize> {
    let all = || {
        points
            .iter()
            .filter_map(|point| Some((point.of?, point.value)))
    };
    for (of, _) in all() {
        of.refresh_below();
    }
    let open = |&(of, value): &(&Arc<Shared>, u64)| !of.has_plainly_come(stage, value);
    let blockers = crate::held::blockers::blockers(all().filter(open));
    // To describe the points may have released some.
    if let Some(index) = decide(points, quantity, stage)? {
        return Ok(index);
    }
    for (of, value) in all() {
        let (reached, pending) = (of.reached(), of.pending());
        let come = match stage {
            Stage::Reached => reached,
            Stage::Pending => pending,
        };
        if come < value {
            return Err(Error::TimedOut {
                object: of.object.clone(),
                stage,
                value,
                reached,
                pending,
                waited,
                blockers,
            });
        }
    }
    // They have come since then.
    Ok(0)
}

/// Brings what the engine knows of the points up to date, as far as `stage` needs it.
///
/// # Errors
/// A value that no device can compare (T7).
pub(crate) fn refresh_all(points: &[Point<'_>], stage: Stage) -> Result<()> {
    for point in points {
        if let Some(of) = point.of {
            of.check_wait(point.value)?;
            of.refresh_for(stage, point.value);
        }
    }
    Ok(())
}

/// What the points say now: the index that ends the wait, an error that does, or neither.
pub(crate) fn decide(
    points: &[Point<'_>],
    quantity: Quantity,
    stage: Stage,
) -> Result<Option<usize>> {
    let mut failed = None;
    let mut open = false;
    for (index, point) in points.iter().enumerate() {
        let Some(of) = point.of else {
            match quantity {
                Quantity::Any => return Ok(Some(index)),
                Quantity::All => continue,
            }
        };
        match of.standing(point.value).into_result(of, point.value) {
            Ok(standing) if !stage.is_met(&standing) => open = true,
            Ok(_) if quantity == Quantity::Any => return Ok(Some(index)),
            Ok(_) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok((!open).then_some(0)),
    }
}

/// What is asked of a wait.
struct How<'w> {
    timeout: Duration,
    mode: WaitMode,
    quantity: Quantity,
    /// Of the timeline, if it is for one alone.
    recent: Option<&'w RecentWaits>,
}

/// Spins, then parks, until `look` has an answer or the time is over (`None`). While it spins it looks only where
/// that is worth it. `tend` does what nobody else may do for it meanwhile. `register` tells whether this thread cannot rely on being woken, and whether it has to watch itself.
fn wait_until<'p, T>(
    how: How<'_>,
    is_worth_a_look: impl Fn() -> bool,
    mut look: impl FnMut() -> Result<Option<T>>,
    tend: impl Fn(),
    register: impl FnOnce(&Arc<dyn Wake>, &mut Registered<&'p Arc<Shared>>) -> (bool, Option<Lead<'p>>),
) -> Result<Option<T>> {
    if let Some(answer) = look()? {
        return Ok(Some(answer));
    }
    let How {
        timeout,
        mode,
        quantity,
        recent,
    } = how;
    let start = Instant::now();
    // No deadline at all where the sum overflows: further away than any clock goes.
    let deadline = start.checked_add(timeout);
    let over = |now: Instant| deadline.is_some_and(|deadline| now >= deadline);
    let mut now = start;
    let spin = match mode {
        WaitMode::Spin => Duration::MAX,
        WaitMode::Block => Duration::ZERO,
        WaitMode::SpinFor(time) => time,
        WaitMode::Adaptive if recent.is_some_and(RecentWaits::are_long) => Duration::ZERO,
        WaitMode::Adaptive => SPIN,
    };
    if !spin.is_zero() && CAN_SPIN {
        loop {
            let spun = now.duration_since(start);
            if over(now) {
                return Ok(None);
            }
            if spun > spin {
                break;
            }
            if spun > SPIN {
                tend();
            }
            let mut asks = if recent.is_some() { ASKS } else { 1 };
            for _ in 0..LOOKS {
                // First, as to begin, to read the clock and to pause all take as long as another thread to answer.
                if is_worth_a_look() {
                    if let Some(answer) = look()? {
                        return Ok(Some(answer));
                    }
                    asks -= 1;
                    if asks == 0 {
                        break;
                    }
                }
                std::hint::spin_loop();
            }
            now = Instant::now();
        }
    }
    if over(now) {
        return Ok(None);
    }

    let parker = Parker::current();
    let mut registered = Registered::default();
    parker.begin();
    let waker: Arc<dyn Wake> = parker.clone();
    let (mut alone, mut lead) = register(&waker, &mut registered);
    loop {
        if let Some(answer) = look()? {
            if let Some(recent) = recent {
                // The clock has just been read, and reading it once more would be a part of being woken.
                recent.learn(now.duration_since(start));
            }
            if let Quantity::All = quantity {
                // Whoever brought the last of them takes the registrations out, too.
                registered.forget();
            }
            return Ok(Some(answer));
        }
        if over(now) {
            if let Some(recent) = recent {
                recent.at_least(now.duration_since(start));
            }
            return Ok(None);
        }
        if let Some(leads) = lead.take() {
            if leads.goes_on() {
                leads.wait(&parker, deadline);
                lead = Some(leads);
            } else {
                alone = leads.hand_over();
            }
            now = Instant::now();
            continue;
        }
        let mut left = deadline.map(|deadline| deadline - now);
        if alone {
            tend();
            left = Some(left.map_or(OWN_LOOK, |left| left.min(OWN_LOOK)));
        }
        parker.park(left);
        now = Instant::now();
    }
}
