//! What a refusal leaves behind, and which submissions are not refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use syncline::Error;

use super::{circle, link};
use crate::blocked::join;
use crate::case::{Stop, Verdict, cases, check, check_eq};
use crate::footprint::grows_nothing;
use crate::{Subject, World, patience};

cases! {
    "cycle.a_legal_signal_keeps_it_open": [Q4 T2] => stays_open;
    "cycle.refusal_leaves_nothing": [Q4 Q5] => leaves_nothing;
    "cycle.two_threads_close_it_at_once": [Q4 Q5] => at_once;
}

fn stays_open<S: Subject>(world: &World<S>) -> Verdict {
    let (x, y) = (world.timeline("x")?, world.timeline("y")?);
    let (a, b) = (world.left_queue("a")?, world.right_queue("b")?);
    // `b` signals `x` to 2 only. Any queue may signal it to 1.
    link(&a, &[x.at(1)], &[y.signal_at(1)])?;
    link(&b, &[x.at(1), y.at(1)], &[x.signal_at(2)])?;
    check!(
        a.held().count == 1 && b.held().count == 1,
        "{:?} and {:?}",
        a.held(),
        b.held()
    );
    x.signal(1)?;
    x.at(2).wait(patience())?;
    // Three members. One of them leaves a gap, which the host closes.
    let z = world.timeline("z")?;
    let c = world.left_queue("c")?;
    link(&a, &[z.at(1)], &[y.signal_at(2)])?;
    link(&b, &[y.at(2)], &[x.signal_at(5)])?;
    link(&c, &[x.at(5), z.at(1)], &[z.signal_at(2)])?;
    circle(&c, 1, link(&c, &[x.at(5)], &[z.signal_at(1)]))?;
    check!(
        x.value()? == 2 && z.value()? == 0,
        "something ran too early"
    );
    z.signal(1)?;
    z.at(2).wait(patience())?;
    // A value that the application has claimed for its own submission can still come.
    let claim = match x.claim(6) {
        Err(Error::Unsupported { .. }) => return Ok(()),
        claim => claim?,
    };
    link(&a, &[x.at(6)], &[y.signal_at(3)])?;
    link(&b, &[y.at(3)], &[x.signal_at(7)])?;
    check!(b.held().count == 1, "{:?}", b.held());
    drop(claim);
    x.signal(6)?;
    x.at(7).wait(patience())?;
    Ok(())
}

/// Counts its drops. It is large, so that a few of them that stay are detected.
struct Kept(Arc<AtomicU64>, [u8; 512]);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_add(u64::from(self.1[0]), Ordering::SeqCst);
    }
}

fn leaves_nothing<S: Subject>(world: &World<S>) -> Verdict {
    let times = if world.is_pair() { 1000 } else { 5000 };
    let (x, y) = (world.timeline("x")?, world.timeline("y")?);
    let (a, b) = (world.left_queue("a")?, world.right_queue("b")?);
    let (ran, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut value = 1;
    grows_nothing(|| {
        link(&a, &[x.at(value)], &[y.signal_at(value)])?;
        let before = dropped.load(Ordering::SeqCst);
        for _ in 0..times {
            let (ran, kept) = (ran.clone(), Kept(dropped.clone(), [1; 512]));
            let closing = b.submit(
                &[y.at(value)],
                move |_| {
                    let _kept = kept;
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                },
                &[x.signal_at(value)],
            );
            match closing {
                Err(Error::Circular { .. }) => {}
                other => return Stop::fail(format!("a circle was not refused: {other:?}")),
            }
        }
        let dropped = dropped.load(Ordering::SeqCst) - before;
        check_eq!(dropped, times);
        check!(b.held().count == 0, "{:?}", b.held());
        // The same values can be signalled by another submission.
        link(&b, &[], &[x.signal_at(value)])?;
        y.at(value).wait(patience())?;
        a.idle(patience())?;
        b.idle(patience())?;
        value += 1;
        Ok(())
    })?;
    let ran = ran.load(Ordering::SeqCst);
    check!(ran == 0, "work that was refused ran {ran} times");
    Ok(())
}

fn at_once<S: Subject>(world: &World<S>) -> Verdict {
    let rounds = if world.is_pair() { 100 } else { 500 };
    let (x, y) = (world.timeline("x")?, world.timeline("y")?);
    let (a, b) = (world.left_queue("a")?, world.right_queue("b")?);
    let start = Barrier::new(2);
    for value in 1..=rounds {
        let (first, second) = thread::scope(|scope| {
            let other = scope.spawn(|| {
                start.wait();
                link(&b, &[y.at(value)], &[x.signal_at(value)])
            });
            start.wait();
            let first = link(&a, &[x.at(value)], &[y.signal_at(value)]);
            Ok::<_, Stop>((first, join(other)?))
        })?;
        // The first one is held. The host can signal what it waits for.
        let (free, claimed) = match (first, second) {
            (Ok(()), Err(Error::Circular { .. })) => (&x, &y),
            (Err(Error::Circular { .. }), Ok(())) => (&y, &x),
            both => return Stop::fail(format!("two halves of a circle: {both:?}")),
        };
        free.signal(value)?;
        claimed.at(value).wait(patience())?;
    }
    Ok(())
}
