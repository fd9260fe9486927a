//! P1, P2, X8, Q9: points, words and memory that two processes exchange.

use syncline::Error;
use syncline::negotiate::{Mechanism, Needs};

use crate::case::{Stop, Verdict, check, check_error, equipped_cases};
use crate::peer::{Scene, Side};
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

equipped_cases! {
    "process.points_in_their_order": [P1 P2] => points;
    "process.a_point_of_nothing_shared": [P1 E5] => foreign;
    "process.words_of_memory": [X8 Q9] => words;
    "process.what_was_given_up_is_not_taken": [P1 X4] => given_up;
    "process.memory_of_one_gpu": [X8 Q9] => memory;
    "process.memory_of_the_application": [X8 P1] => own_memory;
}

fn points(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.make(Needs::empty(), "frames", 0)?;
        for value in 1..=20 {
            // The point is sent before its signal. Every other sender is the signaller.
            let sender = if value % 2 == 0 {
                Side::Signaller
            } else {
                Side::Waiter
            };
            let receiver = match sender {
                Side::Signaller => Side::Waiter,
                Side::Waiter => Side::Signaller,
            };
            scene.by(sender, &format!("send frames {value}"))?;
            scene.by(Side::Signaller, &format!("signal frames {value}"))?;
            let received = scene.by(receiver, "receive")?;
            check!(received == value.to_string(), "{received} came of {value}");
        }
        Ok(())
    })
}

fn foreign(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        let apart = world.left.subject().device();
        let line = syncline::backend::Device::timeline(apart, "apart")?;
        let endpoint = scene.peer().endpoint().clone();
        check_error!(
            endpoint.send_point(line.at(1), patience()),
            Error::Unsupported { .. }
        );
        // The connection works as before.
        scene.make(Needs::empty(), "frames", 0)?;
        scene.by(Side::Signaller, "signal frames 1")?;
        scene.by(Side::Waiter, "wait frames 1")?;
        // A point of a timeline that one process has dropped.
        scene.by(Side::Waiter, "drop frames")?;
        scene.by(Side::Signaller, "send frames 1")?;
        match scene.by(Side::Waiter, "receive") {
            Err(Stop::Failed(reason)) if reason.contains("a point of a timeline") => Ok(()),
            other => Stop::fail(format!("it is taken for one of another: {other:?}")),
        }
    })
}

/// After a wait the words are there. Without a wait they are not.
fn words(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.together("words 16", "take 16")?;
        scene.make(Needs::empty(), "frames", 0)?;
        for value in 1..=50 {
            let early = scene.by(Side::Waiter, "read 3")?;
            check!(
                early == (value - 1).to_string(),
                "{early} was there before {value} was written"
            );
            scene.by(Side::Signaller, &format!("write 3 {value}"))?;
            scene.by(Side::Signaller, &format!("signal frames {value}"))?;
            scene.by(Side::Waiter, &format!("wait frames {value}"))?;
            let read = scene.by(Side::Waiter, "read 3")?;
            check!(read == value.to_string(), "{read} was read after {value}");
        }
        Ok(())
    })
}

/// One process offers more memory than an inbox holds, and drops it.
///
/// After that the other process receives the remaining memory.
fn given_up(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        for _ in 0..20 {
            scene.by(Side::Signaller, "toss 16")?;
        }
        scene.together("words 16", "take 16")?;
        scene.by(Side::Signaller, "write 3 7")?;
        let read = scene.by(Side::Waiter, "read 3")?;
        check!(read == "7", "{read} was read after 7 was written");
        Ok(())
    })
}

/// Memory of one GPU: after a wait the data is there, and without a wait the old data.
///
/// With a counter in shared memory, CUDA has made the memory.
fn memory(world: &World<Equipped>) -> Verdict {
    let goes = [Mechanism::ExternalTimeline, Mechanism::SharedMemory];
    exchange(world, "memory 4096", &goes)
}

/// A range in a buffer that the home's application has allocated, behind another buffer.
fn own_memory(world: &World<Equipped>) -> Verdict {
    exchange(world, "own_memory 4096", &[Mechanism::ExternalTimeline])
}

fn exchange(world: &World<Equipped>, make: &str, goes: &[Mechanism]) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.make(Needs::MEMORY, "frames", 0)?;
        if !goes.contains(&scene.here().mechanism()?) {
            return Stop::skip("no memory of a device goes with the timeline");
        }
        scene.together(make, make)?;
        for value in 1..=5 {
            scene.by(Side::Signaller, &format!("fill frames {value}"))?;
            let read = scene.by(Side::Waiter, &format!("check frames {value}"))?;
            check!(read == "right", "what was written before {value} is {read}");
        }
        // The control: nothing is written until the latch opens, and this read has no wait before
        // it.
        scene.by(Side::Signaller, "fill_closed frames 6")?;
        let unwaited = scene.by(Side::Waiter, "peek frames 6")?;
        check!(
            unwaited == "wrong",
            "the wait is not what orders the two: {unwaited} without it"
        );
        scene.by(Side::Signaller, "open")?;
        scene.by(Side::Waiter, "check frames 6")?;
        scene.only_the_home_shares(make)
    })
}
