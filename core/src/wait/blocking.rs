//! Waits that block the calling thread: it spins, then parks.

use std::sync::Arc;
use std::time::Duration;

use super::lead::Lead;
use crate::base::error::{Error, Result};
use crate::base::exiting::{exit_error, is_exiting};
use crate::base::run::{Wake, are_wakes_deferred};
use crate::base::stage::Stage;
use crate::base::sync::{CAN_SPIN, Instant};
use crate::port::parker::Parker;
use crate::port::watch::on_watcher_thread;
use crate::timeline::point::Point;
use crate::timeline::recent_spins::RecentSpins;
use crate::timeline::state::{Registered, Shared};

/// How a host thread waits. Chosen for each wait, where CUDA fixes it when an event is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitMode {
    /// Polls until the wait ends. Lowest latency, but occupies a processor core.
    ///
    /// After [`WaitMode::SPIN`] it lets other threads of that core run between polls.
    Spin,
    /// Parks after one poll. Takes the least processor time.
    ///
    /// The only waiter of a device watches the device instead, if its backend allows that. On CUDA
    /// this polls with pauses of up to 1 ms.
    Block,
    /// Polls for this duration, as [`WaitMode::Spin`] does, then parks.
    SpinFor(Duration),
    /// Polls for [`WaitMode::SPIN`], then parks.
    ///
    /// After waits for the timeline that polled in vain, up to 64 waits park at once. So it costs
    /// little more than [`WaitMode::Block`] where waits are long, or where the waiting thread keeps
    /// the signaller off its processor. A wait for several timelines polls each time.
    #[default]
    Adaptive,
}

impl WaitMode {
    /// How long [`WaitMode::Adaptive`] polls. About the time that it takes to wake a parked thread.
    pub const SPIN: Duration = Duration::from_micros(30);
}

const SPIN: Duration = WaitMode::SPIN;

/// How many checks a polling thread makes for each reading of the clock.
///
/// A reading of the clock costs more than a check without a call of a driver.
const CHECKS_PER_CLOCK_READ: u32 = 12;

/// How many of these checks of one timeline may call a driver. A list of points is checked once.
const POLLS_PER_CLOCK_READ: u32 = 4;

/// How often a parked watching thread checks by itself, because no other thread would wake it.
const SELF_CHECK_INTERVAL: Duration = Duration::from_micros(200);

/// How many points of a list a wait needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    Any,
    All,
}

/// Blocks until all `points` are reached. They may be of any backends and devices.
///
/// Returns at once for an empty list.
///
/// # Errors
/// The failure of the failed point with the lowest index, as soon as a point has failed.
/// [`Error::TimedOut`] with the first point that is not reached, and with what each such point
/// waits for. [`Error::Cancelled`]. [`Error::ValueOutOfRange`] for a value that no device can
/// compare (T7).
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

/// Blocks until any of `points` is reached. Returns its index, or the lowest one of several.
///
/// A reached point takes precedence over failed ones. Points may be of any backends and devices.
///
/// # Errors
/// [`Error::NothingToWaitFor`] for an empty list. The failure of the failed point with the lowest
/// index, if no point is reached. [`Error::TimedOut`] with the first point, and with what each
/// point waits for. [`Error::ValueOutOfRange`] for a value that no device can compare (T7).
pub fn wait_any(points: &[Point<'_>], timeout: Duration) -> Result<usize> {
    wait_points(
        points,
        Quantity::Any,
        Stage::Reached,
        WaitMode::Adaptive,
        timeout,
    )
}

/// Waits until a point is reached. `polled` says that the caller has just polled it in vain.
#[inline(never)]
pub(super) fn wait_reached(
    point: Point<'_>,
    polled: bool,
    mode: WaitMode,
    timeout: Duration,
) -> Result<()> {
    let (quantity, stage) = (Quantity::All, Stage::Reached);
    wait_polled(&[point], quantity, stage, mode, timeout, polled).map(|_| ())
}

fn wait_points(
    points: &[Point<'_>],
    quantity: Quantity,
    stage: Stage,
    mode: WaitMode,
    timeout: Duration,
) -> Result<usize> {
    wait_polled(points, quantity, stage, mode, timeout, false)
}

/// Waits for points. `polled` says that the caller has just polled them in vain.
fn wait_polled(
    points: &[Point<'_>],
    quantity: Quantity,
    stage: Stage,
    mode: WaitMode,
    timeout: Duration,
    polled: bool,
) -> Result<usize> {
    let answer = block(points, quantity, stage, mode, timeout, polled);
    #[cfg(feature = "tracing")]
    crate::base::events::waited(&points, answer.as_ref().err());
    answer
}

/// Same as [`wait_polled`], without an event.
fn block(
    points: &[Point<'_>],
    quantity: Quantity,
    stage: Stage,
    mode: WaitMode,
    timeout: Duration,
    mut polled: bool,
) -> Result<usize> {
    if points.is_empty() {
        return match quantity {
            Quantity::All => Ok(0),
            Quantity::Any => Err(Error::NothingToWaitFor),
        };
    }
    require_maker(points, quantity, stage)?;
    // The usual case is one point that is not reached yet, which a cheaper check can find.
    let single = match points {
        [
            Point {
                of: Some(of),
                value,
            },
        ] if stage == Stage::Reached => Some((*of, *value)),
        _ => None,
    };
    let needs_check = || single.is_none_or(|(of, value)| of.is_worth_a_look(value));
    let check = || {
        let polled = std::mem::take(&mut polled);
        let Some((of, value)) = single else {
            refresh_all(points, stage)?;
            return decide(points, quantity, stage);
        };
        of.check_wait(value)?;
        if (!polled && of.looks_reached(value)) || of.reached() >= value {
            return Ok(Some(0));
        }
        // Only a failed or closed timeline needs more checks.
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
            return lead;
        }
        for point in points {
            if let Some(of) = point.of {
                registered.add(of, point.value, stage, parker.clone());
            }
        }
        None
    };
    let options = WaitOptions {
        timeout,
        mode,
        quantity,
        is_single: single.is_some(),
        spins: one_timeline(points).map(|of| of.recent_spins()),
    };
    let answer = wait_until(options, needs_check, check, register)?;
    if let Some(index) = answer {
        return Ok(index);
    }
    timed_out(points, quantity, stage, timeout)
}

/// The timeline of all points, if it is one. A wait for several timelines polls each time.
fn one_timeline<'p>(points: &[Point<'p>]) -> Option<&'p Arc<Shared>> {
    let mut all = points.iter().filter_map(|point| point.of);
    let first = all.next()?;
    all.all(|of| Arc::ptr_eq(of, first)).then_some(first)
}

/// Waits until a point is pending or `is_over` returns true.
///
/// `register` receives the waker of this thread. The caller must call it when the result of
/// `is_over` may have changed, and must remove it afterwards.
pub(crate) fn wait_pending_or(
    point: Point<'_>,
    timeout: Duration,
    is_over: impl Fn() -> bool,
    register: impl FnOnce(&Arc<dyn Wake>),
) -> Result<()> {
    let (points, quantity, stage) = (&[point], Quantity::All, Stage::Pending);
    let Some(of) = point.of else { return Ok(()) };
    require_maker(points, quantity, stage)?;
    let options = WaitOptions {
        timeout,
        mode: WaitMode::Adaptive,
        // `is_over` may end the wait, and then the registration for the point is still there.
        quantity: Quantity::Any,
        is_single: false,
        spins: Some(of.recent_spins()),
    };
    let check = || {
        refresh_all(points, stage)?;
        let decided = decide(points, quantity, stage)?;
        Ok(decided.or_else(|| is_over().then_some(0)))
    };
    let registered = |parker: &Arc<dyn Wake>, registered: &mut Registered<_>| {
        registered.add(of, point.value, stage, parker.clone());
        register(parker);
        None
    };
    match wait_until(options, || true, check, registered)? {
        Some(_) => Ok(()),
        None => timed_out(points, quantity, stage, timeout).map(drop),
    }
}

/// Waits until one point is pending or reached.
pub(super) fn wait_stage(
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

/// The result of a wait whose time is over: usually [`Error::TimedOut`].
///
/// If the points have come or failed since the last check, the result says so. So no error says
/// that a value was not reached and gives a reached value past it.
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
    // Collecting the blockers may have released submissions.
    if let Some(index) = decide(points, quantity, stage)? {
        return Ok(index);
    }
    for (of, value) in all() {
        let (reached, pending) = (of.reached(), of.pending());
        let at = match stage {
            Stage::Reached => reached,
            Stage::Pending => pending,
        };
        if at < value && is_exiting() {
            return Err(exit_error(of.object(), "be waited for"));
        }
        if at < value {
            return Err(Error::timed_out(
                of.object(),
                stage,
                value,
                reached,
                pending,
                waited,
                blockers,
            ));
        }
    }
    // The points have come meanwhile.
    Ok(0)
}

/// Refuses a wait that needs a timeline of the parent process.
///
/// # Errors
/// [`Error::MadeBeforeFork`] in a forked child. A point that is known to have come needs nothing.
pub(super) fn require_maker(points: &[Point<'_>], quantity: Quantity, stage: Stage) -> Result<()> {
    let mut refused = Ok(());
    for point in points {
        match point.of {
            Some(of) if !of.has_plainly_come(stage, point.value) => {
                refused = refused.and_then(|()| of.require_maker());
            }
            _ if quantity == Quantity::Any => return Ok(()),
            _ => {}
        }
    }
    refused
}

/// Polls the timelines of the points, as far as `stage` needs it.
///
/// # Errors
/// [`Error::ValueOutOfRange`] for a value that no device can compare (T7).
pub(super) fn refresh_all(points: &[Point<'_>], stage: Stage) -> Result<()> {
    for point in points {
        if let Some(of) = point.of {
            of.check_wait(point.value)?;
            of.refresh_for(stage, point.value);
        }
    }
    Ok(())
}

/// The present result of a wait: the index that ends it, the error that ends it, or `None`.
pub(super) fn decide(
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

/// The options of a wait.
struct WaitOptions<'w> {
    timeout: Duration,
    mode: WaitMode,
    quantity: Quantity,
    /// True if the wait is for one point to be reached. Its checks are cheaper.
    is_single: bool,
    /// Whether recent waits for the timeline have gained by polling, if the wait is for one.
    spins: Option<&'w RecentSpins>,
}

/// Spins, then parks, until `check` returns a result. `None` if the time is over.
///
/// While this thread spins, it calls `check` only if `needs_check` is true. `register` returns a
/// [`Lead`] if this thread must watch the home itself.
fn wait_until<'p, T>(
    options: WaitOptions<'_>,
    needs_check: impl Fn() -> bool,
    mut check: impl FnMut() -> Result<Option<T>>,
    register: impl FnOnce(&Arc<dyn Wake>, &mut Registered<&'p Arc<Shared>>) -> Option<Lead<'p>>,
) -> Result<Option<T>> {
    if let Some(answer) = check()? {
        return Ok(Some(answer));
    }
    let WaitOptions {
        timeout,
        mode,
        quantity,
        is_single,
        spins,
    } = options;
    let spins = spins.filter(|_| mode == WaitMode::Adaptive);
    let start = Instant::now();
    // No deadline if the sum overflows.
    let deadline = start.checked_add(timeout);
    let is_over = |now: Instant| deadline.is_some_and(|deadline| now >= deadline);
    let mut now = start;
    let spin = match mode {
        WaitMode::Spin => Duration::MAX,
        WaitMode::Block => Duration::ZERO,
        WaitMode::SpinFor(time) => time,
        WaitMode::Adaptive if spins.is_some_and(RecentSpins::should_park) => Duration::ZERO,
        WaitMode::Adaptive => SPIN,
    };
    if !spin.is_zero() && CAN_SPIN {
        loop {
            let spun = now.duration_since(start);
            if is_over(now) || is_exiting() {
                return Ok(None);
            }
            if spun > spin {
                spins.inspect(|spins| spins.failed());
                break;
            }
            if spun > SPIN {
                // The signaller may wait for this processor.
                std::thread::yield_now();
            }
            let mut polls_left = if is_single { POLLS_PER_CLOCK_READ } else { 1 };
            for _ in 0..CHECKS_PER_CLOCK_READ {
                // First in the loop, because starting the wait, reading the clock and a pause each
                // take about as long as another thread takes to signal.
                if needs_check() {
                    if let Some(answer) = check()? {
                        spins.inspect(|spins| spins.helped());
                        return Ok(Some(answer));
                    }
                    polls_left -= 1;
                    if polls_left == 0 {
                        break;
                    }
                }
                std::hint::spin_loop();
            }
            now = Instant::now();
        }
    }
    if is_over(now) {
        return Ok(None);
    }

    let parker = Parker::current();
    let mut registered = Registered::default();
    parker.begin();
    let waker: Arc<dyn Wake> = parker.clone();
    let mut lead = register(&waker, &mut registered);
    let must_poll = on_watcher_thread();
    loop {
        if let Some(answer) = check()? {
            if let Quantity::All = quantity {
                // The signalling threads remove the registrations.
                registered.forget();
            }
            return Ok(Some(answer));
        }
        if is_exiting() {
            return Ok(None);
        }
        if is_over(now) {
            return Ok(None);
        }
        if let Some(leading) = lead.take() {
            if leading.is_needed() {
                leading.wait(&parker, deadline);
                lead = Some(leading);
            } else {
                leading.hand_over();
            }
            now = Instant::now();
            continue;
        }
        let mut left = deadline.map(|deadline| deadline - now);
        if must_poll {
            left = Some(left.map_or(SELF_CHECK_INTERVAL, |left| left.min(SELF_CHECK_INTERVAL)));
        }
        parker.park(left);
        now = Instant::now();
    }
}

#[cfg(all(test, not(syncline_loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// True if a wait polls. Its value comes while it polls, or only after it has registered.
    fn polls(spins: &RecentSpins, mode: WaitMode, comes_early: bool) -> bool {
        let polled = Cell::new(false);
        let mut checks = 0;
        let needs_check = || {
            polled.set(true);
            comes_early
        };
        let check = || {
            checks += 1;
            Ok((checks > 1).then_some(()))
        };
        let options = WaitOptions {
            timeout: Duration::MAX,
            mode,
            quantity: Quantity::All,
            is_single: true,
            spins: Some(spins),
        };
        let answer = wait_until(options, needs_check, check, |_, _| None);
        assert!(matches!(answer, Ok(Some(()))));
        polled.get()
    }

    #[test]
    fn waits_after_one_that_polled_in_vain_park_at_once() {
        let spins = RecentSpins::default();
        let expected = [true, false, true, false, false, true, false, false];
        let found = expected.map(|_| polls(&spins, WaitMode::Adaptive, false));
        assert_eq!(found, expected);
        // Neither mode looks at other waits, or changes what they do.
        assert!(polls(&spins, WaitMode::SpinFor(SPIN), false));
        assert!(!polls(&spins, WaitMode::Block, false));
        let expected = [false, false, true];
        let found = expected.map(|_| polls(&spins, WaitMode::Adaptive, true));
        assert_eq!(found, expected);
        // The last one helped.
        let found = [true; 4].map(|_| polls(&spins, WaitMode::Adaptive, true));
        assert_eq!(found, [true; 4]);
    }
}
