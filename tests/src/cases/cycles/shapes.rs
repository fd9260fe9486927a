//! Circles of every shape. The call that closes a circle is refused.

use super::{circle, expected, link, told};
use crate::case::{Verdict, cases, check, check_eq};
use crate::dice::Dice;
use crate::user::{Queue, Timeline};
use crate::{Subject, World, patience};

cases! {
    "cycle.long_ring": [Q4 E5] => long_ring(dice);
    "cycle.through_the_order_of_a_queue": [Q4 Q1] => order_of_a_queue;
    "cycle.through_the_order_of_a_timeline": [Q4 T3] => order_of_a_timeline;
    "cycle.through_a_fence": [Q4 F2] => through_a_fence;
    "cycle.through_a_relayed_signal": [Q4 Q3] => through_a_relay;
}

/// A ring of queues. Each of its members closes it in turn.
fn long_ring<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let members = if world.is_pair() { 16 } else { 64 };
    let (lines, queues) = (world.numbered(members, "line")?, world.queues(members)?);
    let join = |n: usize, value: u64| {
        let next = &lines[(n + 1) % members];
        link(&queues[n], &[lines[n].at(value)], &[next.signal_at(value)])
    };
    for (closer, value) in (0..members).zip(1..) {
        let mut others: Vec<usize> = (0..members).filter(|&n| n != closer).collect();
        dice.shuffle(&mut others);
        for n in others {
            join(n, value)?;
        }
        let refused = circle(&queues[closer], 0, join(closer, value))?;
        // Backwards around the ring, from the closing submission's wait.
        let around = (0..members).map(|back| (closer + members - back) % members);
        for (step, n) in told(&refused).iter().zip(around) {
            let by = (n + members - 1) % members;
            let (line, queue) = (format!("line {n}"), format!("queue {by} "));
            check!(
                step.0 == line && step.1 == value && step.2.starts_with(&queue),
                "closed by {closer}, the ring is told as {refused}"
            );
        }
        check_eq!(refused.steps().len(), members);
        lines[(closer + 1) % members].signal(value)?;
        lines[closer].at(value).wait(patience())?;
        for queue in &queues {
            queue.idle(patience())?;
        }
    }
    Ok(())
}

fn order_of_a_queue<S: Subject>(world: &World<S>) -> Verdict {
    let (x, y) = (world.timeline("x")?, world.timeline("y")?);
    let (a, b) = (world.left_queue("a")?, world.right_queue("b")?);
    // The signal waits only for its turn in the queue.
    link(&a, &[x.at(1)], &[])?;
    link(&a, &[], &[y.signal_at(1)])?;
    let refused = circle(&b, 0, link(&b, &[y.at(1)], &[x.signal_at(1)]))?;
    let steps = told(&refused);
    check!(
        steps.len() == 3
            && steps[0] == ("y", 1, "a 2".into())
            && (steps[1].1, steps[1].2.as_str()) == (1, "a 1")
            && steps[2] == ("x", 1, "b 1".into()),
        "the circle is told as {refused}"
    );
    // The other way round: both halves are behind waits of their own queues.
    link(&b, &[y.at(1)], &[])?;
    circle(&b, 1, link(&b, &[], &[x.signal_at(1)]))?;
    x.signal(1)?;
    a.idle(patience())?;
    b.idle(patience())?;
    check!(y.value()? == 1, "the queue's own order is lost");
    Ok(())
}

fn order_of_a_timeline<S: Subject>(world: &World<S>) -> Verdict {
    let (x, y) = (world.timeline("x")?, world.timeline("y")?);
    let (a, b, c) = (
        world.left_queue("a")?,
        world.right_queue("b")?,
        world.left_queue("c")?,
    );
    // `x` reaches 2 after 1, whichever queue signals 1.
    link(&a, &[x.at(1)], &[x.signal_at(2)])?;
    link(&a, &[x.at(2)], &[y.signal_at(1)])?;
    circle(&b, 0, link(&b, &[y.at(1)], &[x.signal_at(1)]))?;
    x.signal(1)?;
    y.at(1).wait(patience())?;
    // `y` to 3 waits for `y` to 2, although its submission waits for nothing.
    link(&a, &[x.at(3)], &[y.signal_at(2)])?;
    link(&c, &[], &[y.signal_at(3)])?;
    let refused = circle(&b, 0, link(&b, &[y.at(3)], &[x.signal_at(3)]))?;
    let steps = [("y", 3, "c 1"), ("y", 2, "a 3"), ("x", 3, "b 1")];
    // The number of b's submission: the refused one has taken none.
    check_eq!(told(&refused), expected(&steps));
    x.signal(3)?;
    y.at(3).wait(patience())?;
    b.idle(patience())?;
    Ok(())
}

fn through_a_fence<S: Subject>(world: &World<S>) -> Verdict {
    let x = world.timeline("x")?;
    let (a, b) = (world.left_queue("a")?, world.right_queue("b")?);
    let fence = world.left.fence("behind x");
    link(&a, &[x.at(1)], &[])?;
    a.record(&fence)?;
    let recorded = fence.point()?;
    circle(&b, 0, link(&b, &[recorded.point()], &[x.signal_at(1)]))?;
    // A record from before the wait for `x` needs no wait.
    let early = world.left.fence("before x");
    let c = world.left_queue("c")?;
    c.record(&early)?;
    link(&c, &[x.at(1)], &[])?;
    link(&b, &[early.point()?.point()], &[x.signal_at(1)])?;
    fence.wait(patience())?;
    c.idle(patience())?;
    Ok(())
}

fn through_a_relay<S: Subject>(world: &World<S>) -> Verdict {
    use syncline::backend::Device as _;

    let host = syncline::host::Device::new();
    let far = |label: &str| -> syncline::Result<Timeline<S>> {
        Ok(world.left.own(host.timeline(label)?))
    };
    // The host makes the signals of a timeline without a port on the device of the work.
    let homes: [(Timeline<S>, Timeline<S>); 3] = [
        (world.left.timeline("x")?, world.right.timeline("y")?),
        (world.right.timeline("x")?, world.left.timeline("y")?),
        (far("x")?, far("y")?),
    ];
    let (a, b): (Queue<S>, Queue<S>) = (world.left_queue("a")?, world.right_queue("b")?);
    let c = world.left_queue("c")?;
    for (x, y) in homes {
        link(&a, &[x.at(1)], &[y.signal_at(1)])?;
        circle(&b, 0, link(&b, &[y.at(1)], &[x.signal_at(1)]))?;
        // It waits for a held signal of its timeline, by the driver or on the host.
        link(&c, &[], &[y.signal_at(2)])?;
        circle(&b, 0, link(&b, &[y.at(2)], &[x.signal_at(1)]))?;
        x.signal(1)?;
        y.at(2).wait(patience())?;
        for queue in [&a, &b, &c] {
            queue.idle(patience())?;
        }
    }
    Ok(())
}
