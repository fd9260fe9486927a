//! T4, T5, Q3: lists of points in every state, and of every device.

use std::thread;
use std::time::Duration;

use syncline::Error;

use crate::blocked::{Unstick, blocked, join};
use crate::case::{Stop, Verdict, cases, check, check_eq, check_error};
use crate::cases::cause;
use crate::dice::Dice;
use crate::user::{Point, Timeline, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "wait.every_mix_of_states": [T4 T5 T10] => every_mix;
    "wait.mixed_devices_in_one_list": [T5 Q3 T6] => mixed_devices(dice);
}

/// The state of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not claimed.
    Unclaimed,
    /// Claimed by a submission that waits for a host signal.
    Held,
    /// Given to a driver whose device is blocked.
    Pending,
    Reached,
    Failed,
}

use State::{Failed, Held, Pending, Reached, Unclaimed};

const STATES: [State; 5] = [Unclaimed, Held, Pending, Reached, Failed];

/// The expected end of a wait for a list, with the index of the point that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Ok(usize),
    Failed(usize),
    TimedOut(usize),
}

fn expected(any: bool, list: [State; 3]) -> End {
    let first = |wanted: fn(State) -> bool| list.iter().position(|&state| wanted(state));
    let reached = first(|state| state == Reached);
    let failed = first(|state| state == Failed);
    let open = first(|state| state != Reached);
    match (any, reached, failed, open) {
        (true, Some(at), ..) => End::Ok(at),
        (_, _, Some(at), _) => End::Failed(at),
        (_, _, _, Some(at)) => End::TimedOut(at),
        _ => End::Ok(0),
    }
}

/// Three lines for every state, one for each place in a list.
struct Lines<S>([[Timeline<S>; 5]; 3]);

impl<S: Subject> Lines<S> {
    fn line(&self, place: usize, state: State) -> &Timeline<S> {
        &self.0[place][state as usize]
    }

    fn points(&self, list: [State; 3]) -> [Point<'_, S>; 3] {
        std::array::from_fn(|place| self.line(place, list[place]).at(1))
    }

    /// Returns how a wait for `list` has ended.
    fn end(&self, list: [State; 3], ended: syncline::Result<usize>) -> Result<End, Stop> {
        let place = |label: &str| (0..3).find(|&n| self.line(n, list[n]).object().label() == label);
        let end = match &ended {
            Ok(index) => Some(End::Ok(*index)),
            Err(Error::Failed { cause, .. }) => {
                let label = cause.to_string();
                place(label.trim_start_matches("work failed: ")).map(End::Failed)
            }
            Err(Error::TimedOut { object, .. }) => place(object.label()).map(End::TimedOut),
            Err(_) => None,
        };
        end.map_or_else(|| Stop::fail(format!("{list:?} ended as {ended:?}")), Ok)
    }

    /// Waits for every list, with the time-outs that must end.
    ///
    /// `now` returns the present state of a line from its first one.
    fn check_all(&self, now: impl Fn(State) -> State) -> Verdict {
        let short = [Duration::ZERO, Duration::from_micros(200)];
        for number in 0..STATES.len().pow(3) {
            let list = [number / 25, number / 5 % 5, number % 5].map(|state| STATES[state]);
            let points = self.points(list);
            for any in [true, false] {
                let expected = expected(any, list.map(&now));
                let long = (!matches!(expected, End::TimedOut(_))).then_some(Duration::MAX);
                for timeout in short.into_iter().chain(long) {
                    let ended = if any {
                        wait_any(&points, timeout)
                    } else {
                        wait_all(&points, timeout).map(|()| 0)
                    };
                    let found = self.end(list, ended)?;
                    check_eq!(
                        found,
                        expected,
                        "list {list:?}, any {any}, timeout {timeout:?}"
                    );
                }
            }
        }
        Ok(())
    }
}

fn every_mix<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let line = |place: usize, state: State| world.timeline(&format!("{state:?} {place}"));
    let mut rows = Vec::new();
    for place in 0..3 {
        let mut row = Vec::new();
        for state in STATES {
            row.push(line(place, state)?);
        }
        rows.extend(<[_; 5]>::try_from(row).ok());
    }
    let Ok(rows) = rows.try_into() else {
        return Stop::fail("the case is wrong");
    };
    let lines = Lines::<S>(rows);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let signals = |state| [0, 1, 2].map(|place| lines.line(place, state).signal_at(1));
    left.submit_empty(&[], &signals(Reached))?
        .end()
        .wait(patience())?;
    right.submit_empty(&[gate.at(1)], &signals(Held))?;
    for place in 0..3 {
        lines.line(place, Reached).at(1).wait(patience())?;
        let line = lines.line(place, Failed);
        line.fail(cause(line.object().label()));
    }
    // From here on the left device has nothing to do until the stall is released.
    let stall = world.left.stall()?;
    let block = stall.latch();
    left.submit(
        &[],
        move |recorder| block.block(recorder),
        &signals(Pending),
    )?;
    lines.check_all(|state| state)?;
    let native = gate.devices().any(|device| device == world.left.id());
    for state in STATES {
        let ended = lines
            .line(0, state)
            .at(1)
            .wait_pending(Duration::from_micros(200));
        match state {
            Reached => ended?,
            Pending if native => ended?,
            Failed => check_error!(ended, Failed),
            _ => check_error!(ended, TimedOut),
        }
    }
    thread::scope(|scope| {
        let _unstick = Unstick(&[&gate]);
        let list = lines.points([Pending, Reached, Pending]);
        let all = blocked(scope, move || wait_all(&list, patience()))?;
        let list = lines.points([Unclaimed, Held, Pending]);
        let any = blocked(scope, move || wait_any(&list, patience()))?;
        check!(
            !all.is_finished() && !any.is_finished(),
            "a wait ended while the device stood still"
        );
        stall.release()?;
        join(all)??;
        let named = join(any)??;
        check!(named == 2, "{named} is named, but only 2 was signalled");
        lines.check_all(|state| if state == Pending { Reached } else { state })?;
        gate.signal(1)?;
        for place in 0..3 {
            lines.line(place, Held).at(1).wait(patience())?;
        }
        Ok(())
    })
}

fn mixed_devices<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    use syncline::backend::Device as _;

    let host = syncline::host::Device::new();
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for round in 0..8 {
        let gates = [world.timeline("left gate")?, world.timeline("right gate")?];
        let lines = [
            world.left.timeline("of the left")?,
            world.right.timeline("of the right")?,
            world.left.own(host.timeline("of the host")?),
        ];
        let fences = [world.left.fence("left"), world.right.fence("right")];
        for (at, side) in [&world.left, &world.right].into_iter().enumerate() {
            let queue = side.queue(syncline::QueueKind::Compute, "gated")?;
            queue.submit_empty(&[gates[at].at(1)], &[])?;
            queue.record(&fences[at])?;
        }
        let kept = [fences[0].point()?, fences[1].point()?];
        let points: Vec<_> = lines
            .iter()
            .map(|line| line.at(1))
            .chain(kept.iter().map(|point| point.point()))
            .collect();
        let signal = |which: usize| match which {
            0..=2 => {
                let line = &lines[which];
                // By a queue of each side, and by the host.
                match round % 3 {
                    0 => line.signal(1),
                    1 => left.signal(line, 1).map(drop),
                    _ => right.signal(line, 1).map(drop),
                }
            }
            fence => gates[fence - 3].signal(1),
        };
        let mut order: Vec<usize> = (0..points.len()).collect();
        dice.shuffle(&mut order);
        thread::scope(|scope| {
            let _unstick = Unstick(&[&gates[0], &gates[1]]);
            let any = blocked(scope, || wait_any(&points, patience()))?;
            let all = blocked(scope, || wait_all(&points, patience()))?;
            for (step, &which) in order.iter().enumerate() {
                check!(!all.is_finished(), "order {order:?}, step {step}");
                signal(which)?;
                points[which].wait(patience())?;
                if step == 0 {
                    while !any.is_finished() {
                        thread::yield_now();
                    }
                }
            }
            let named = join(any)??;
            check_eq!(named, order[0]);
            join(all)?.map_err(Stop::from)
        })?;
        check!(wait_any(&points, Duration::ZERO)? == 0, "all are reached");
    }
    Ok(())
}
