//! P4: one of two processes ends as soon as its signals are reported as reached.

use syncline::negotiate::Needs;

use crate::World;
use crate::case::{Stop, Verdict, equipped_cases};
use crate::peer::{Scene, Side};
use crate::workload::Equipped;

equipped_cases! {
    "process.what_was_reported_survives_a_kill": [P4 E3 Q7] => killed;
    "process.what_was_reported_survives_an_exit": [P4 E3 Q7] => exited;
    "process.what_was_reported_survives_main": [P4 E3 Q7] => returned;
}

/// The number of timelines. With several, a report before the last one is published shows.
const LINES: usize = 6;

fn killed(world: &World<Equipped>) -> Verdict {
    ends(world, "kill", &["idle", "wait", "reached"])
}

fn exited(world: &World<Equipped>) -> Verdict {
    ends(world, "exit", &["idle"])
}

fn returned(world: &World<Equipped>) -> Verdict {
    ends(world, "return", &["idle"])
}

/// Whatever each of these kinds of report states as reached is reached in the survivor.
fn ends(world: &World<Equipped>, way: &str, reports: &[&str]) -> Verdict {
    for report in reports {
        Scene::each_peer(world, Side::Waiter, |scene, besides| {
            let lines: Vec<_> = (0..LINES).map(|line| format!("line{line}")).collect();
            for line in &lines {
                // The process that signals queries the timeline too.
                scene.make(besides | Needs::HOST_ACCESS, line, 0)?;
            }
            scene.peer().tell(&format!("end {report} {way}"))?;
            for line in &lines {
                let heard = scene.by(Side::Waiter, &format!("wait {line} 3"));
                if let Err(Stop::Failed(reason)) = heard {
                    let mechanism = scene.here().mechanism()?;
                    return Stop::fail(format!("{mechanism}, after {report}, of {line}: {reason}"));
                }
                heard?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
