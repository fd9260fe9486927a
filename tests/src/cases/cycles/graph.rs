//! The graph of held submissions, as a query and every time-out report it.

use std::time::Duration;

use syncline::Error;
use syncline::backend::Device as _;

use super::{expected, link, told};
use crate::case::{Stop, Verdict, cases, check, check_eq};
use crate::user::{wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "cycle.graph_tells_who_waits_for_whom": [Q4 E5] => graph;
    "cycle.time_out_tells_the_chain": [Q4 E5] => time_out;
}

fn graph<S: Subject>(world: &World<S>) -> Verdict {
    let [gate, x, y] = world.timelines(["gate", "x", "y"])?;
    // No device of the world has a port of this timeline, so the host makes its signals.
    let far = world
        .left
        .own(syncline::host::Device::new().timeline("far")?);
    let (one, two, three) = (
        world.left_queue("one")?,
        world.right_queue("two")?,
        world.left_queue("three")?,
    );
    let fence = world.left.fence("fence");
    link(&one, &[gate.at(2)], &[x.signal_at(1)])?;
    one.record(&fence)?;
    link(&two, &[fence.point()?.point(), x.at(1)], &[y.signal_at(3)])?;
    link(&three, &[y.at(1)], &[far.signal_at(1)])?;
    // The backend names timelines of queues. The case identifies them by value and signaller.
    let own = one.position();
    let blockers = far.at(1).blockers();
    let mut found = told(&blockers);
    let position = own.blockers();
    let name = position.steps().first().map(|step| step.timeline.clone());
    let Some(name) = name else {
        return Stop::fail("a queue that holds something waits for nothing");
    };
    found.sort();
    let mut edges = expected(&[
        ("far", 1, "three 1"),
        ("y", 1, "two 1"),
        (name.label(), 2, "one 2"),
        ("x", 1, "one 1"),
        (name.label(), 1, "one 1"),
        ("gate", 2, "nothing"),
    ]);
    edges.sort();
    check!(found == edges, "the graph is told as {blockers}");
    // A wait comes before the waits of its signaller.
    let place = |line: &str| {
        let mut steps = blockers.steps().iter();
        steps.position(|step| step.timeline.label() == line)
    };
    check!(
        place("far") == Some(0) && place("y") == Some(1) && place("gate") == Some(5),
        "out of order: {blockers}"
    );
    let found = told(&position);
    let edges = [
        (name.label(), 2, "one 2"),
        (name.label(), 1, "one 1"),
        ("gate", 2, "nothing"),
    ];
    check_eq!(found, expected(&edges), "position {position}");
    check!(one.blockers() == position, "a queue's own are others");
    // A signal that the application has claimed.
    match gate.claim(1) {
        Ok(claim) => {
            let blockers = gate.at(1).blockers();
            let found = told(&blockers);
            let edges = expected(&[("gate", 1, "application")]);
            check!(found == edges, "a claim is told as {blockers}");
            drop(claim);
        }
        // No driver signals the gate.
        Err(Error::Unsupported { .. }) => {}
        Err(other) => return Err(other.into()),
    }
    gate.signal(2)?;
    far.at(1).wait(patience())?;
    for point in [gate.at(2), x.at(1), y.at(3), far.at(1), one.position()] {
        point.wait(patience())?;
        let left = point.blockers();
        check!(left.steps().is_empty(), "released, there is still {left}");
    }
    with_the_device(world)
}

/// The report while the device is blocked.
fn with_the_device<S: Subject>(world: &World<S>) -> Verdict {
    let stall = match world.left.stall() {
        Ok(stall) => stall,
        Err(Stop::Skipped(_)) => return Ok(()),
        Err(failed) => return Err(failed),
    };
    let near = world.left.timeline("near")?;
    let far = world
        .left
        .own(syncline::host::Device::new().timeline("far")?);
    let (queue, block) = (world.left_queue("busy")?, stall.latch());
    queue.submit(
        &[],
        move |recorder| block.block(recorder),
        &[near.signal_at(1), far.signal_at(1)],
    )?;
    queue.settle(patience())?;
    for (line, by) in [(&near, "driver for busy"), (&far, "host for busy 1")] {
        let blockers = line.at(1).blockers();
        let found = told(&blockers);
        let first = found.first().map(|step| step.2.as_str());
        check_eq!(first, Some(by), "blockers {blockers}");
    }
    stall.release()?;
    near.at(1).wait(patience())?;
    far.at(1).wait(patience())?;
    queue.idle(patience())?;
    Ok(())
}

fn time_out<S: Subject>(world: &World<S>) -> Verdict {
    // An odd number, so that the last queue is of the left side.
    const LINKS: usize = 5;
    const SHORT: Duration = Duration::from_micros(100);
    let mut lines = vec![world.timeline("gate")?];
    lines.extend(world.numbered(LINKS, "line")?);
    let queues = world.queues(LINKS)?;
    for n in 0..LINKS {
        link(&queues[n], &[lines[n].at(1)], &[lines[n + 1].signal_at(1)])?;
    }
    // From the value that the last link waits for, down to a value that is not claimed.
    let links = (0..LINKS - 1).rev();
    let chain: Vec<_> = links
        .map(|n| (format!("line {n}"), format!("queue {n} 1")))
        .chain([("gate".to_owned(), "nothing".to_owned())])
        .collect();
    // `before` is the number of steps before the last link.
    let tells = |before: usize, ended: syncline::Result<()>| {
        let error = match ended {
            Err(error @ Error::TimedOut { .. }) => error,
            other => return Stop::fail(format!("no time-out: {other:?}")),
        };
        let text = error.to_string();
        let Error::TimedOut { blockers, .. } = error else {
            return Stop::fail(text);
        };
        let found = told(&blockers).into_iter().skip(before);
        let found: Vec<_> = found.map(|(line, _, by)| (line.to_owned(), by)).collect();
        check!(found == chain, "the chain is told as {blockers}");
        for step in blockers.steps() {
            check!(text.contains(&step.to_string()));
        }
        Ok(())
    };
    let (point, last) = (lines[LINKS].at(1), &queues[LINKS - 1]);
    tells(1, point.wait(Duration::ZERO))?;
    tells(1, point.wait(SHORT))?;
    tells(1, point.wait_pending(SHORT))?;
    tells(1, wait_all(&[lines[0].at(0), point], SHORT))?;
    // The report covers every point of a list, not only the first.
    let other = world.timeline("other")?;
    let list = [other.at(1), point];
    for ended in [
        wait_all(&list, SHORT),
        wait_any(&list, SHORT).map(drop),
        wait_all(&[point, other.at(1)], SHORT),
    ] {
        let Err(Error::TimedOut { blockers, .. }) = ended else {
            return Stop::fail(format!("no time-out of a list: {ended:?}"));
        };
        let found = told(&blockers);
        for line in ["other", "gate"] {
            let missing = (line, 1, "nothing".to_owned());
            check!(found.contains(&missing), "a list is told as {blockers}");
        }
    }
    tells(1, last.idle(SHORT))?;
    tells(1, last.settle(SHORT))?;
    let fence = world.left.fence("fence");
    last.record(&fence)?;
    tells(2, fence.wait(SHORT))?;
    lines[0].signal(1)?;
    point.wait(patience())?;
    fence.wait(patience())?;
    Ok(())
}
