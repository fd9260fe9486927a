//! Q5, H2: thousands of rejections.

use super::every::{Work, set_up};
use crate::case::{Verdict, cases, check, check_error};
use crate::cases::{cause, unless_linked};
use crate::dice::Dice;
use crate::footprint::grows_nothing;
use crate::{Subject, World, patience};

cases! {
    "rejected.ten_thousand_leave_nothing": [Q5 H2] => ten_thousand(dice);
}

/// Rejections of every kind, before recording, after it, and of held submissions.
fn ten_thousand<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let each = unless_linked(world, "rejections in each round", 5000, 1000)?;
    let stage = set_up(world)?;
    grows_nothing(|| {
        let wrong = stage.wrong();
        let uncalled: Vec<_> = wrong.iter().filter(|w| w.work == Work::Fine).collect();
        let mut held = Vec::new();
        let mut round = || -> Verdict {
            for _ in 0..each {
                // A rejection whose work was called costs the driver a submission.
                let wrong = if dice.one_in(8) {
                    &wrong[dice.index(wrong.len())]
                } else {
                    uncalled[dice.index(uncalled.len())]
                };
                let (work, own) = (wrong.work, stage.queue.clone());
                let refused = stage.queue.submit(
                    &wrong.waits,
                    move |_| match work {
                        Work::Fine => Ok(()),
                        Work::Fails => Err(cause("by itself")),
                        Work::Reenters => own.submit_empty(&[], &[]).map(drop),
                    },
                    &wrong.signals,
                );
                check!(
                    refused.is_err(),
                    "a submission that {} is accepted",
                    wrong.what
                );
            }
            let gate = world.timeline("gate")?;
            for _ in 0..50 {
                let line = world.timeline("held")?;
                stage.queue.submit(
                    &[gate.at(1)],
                    |_| Err(cause("at its release")),
                    &[line.signal_at(1)],
                )?;
                held.push(line);
            }
            gate.signal(1)?;
            Ok(())
        };
        round()?;
        for line in &held {
            check_error!(line.at(1).wait(patience()), Failed);
        }
        stage.queue.idle(patience())?;
        Ok(())
    })?;
    stage.gate.signal(1)?;
    stage.queue.submit_empty(&[stage.claimed.at(10)], &[])?;
    stage.queue.idle(patience())?;
    stage.holder.idle(patience())?;
    Ok(())
}
