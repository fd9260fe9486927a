//! P1, P2, X8, Q9: points, words and memory that two processes exchange.

use syncline::Mechanism;
use syncline::negotiate::Needs;

use crate::case::{Stop, Verdict, check_error, equipped_cases};
use crate::peer::{Scene, Side, fails};
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
            let sender = [Side::Signaller, Side::Waiter][value % 2];
            let receiver = sender.other();
            scene.by(sender, &format!("send frames {value}"))?;
            scene.by(Side::Signaller, &format!("signal frames {value}"))?;
            scene.expect(receiver, "receive", value.to_string())?;
        }
        Ok(())
    })
}

fn foreign(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        let apart = world.left.subject().device();
        let line = syncline::backend::Device::timeline(apart, "apart")?;
        let endpoint = scene.peer().endpoint().clone();
        check_error!(endpoint.send_point(line.at(1), patience()), Unsupported);
        // The connection works as before.
        scene.make(Needs::empty(), "frames", 0)?;
        scene.pass("frames", 1)?;
        // A point of a timeline that one process has dropped.
        scene.by(Side::Waiter, "drop frames")?;
        scene.by(Side::Signaller, "send frames 1")?;
        fails(scene.by(Side::Waiter, "receive"), "a point of a timeline")
    })
}

/// After a wait the words are there. Without a wait they are not.
fn words(world: &World<Equipped>) -> Verdict {
    Scene::both_ways(world, |scene| {
        scene.together("words 16", "take 16")?;
        scene.make(Needs::empty(), "frames", 0)?;
        for value in 1..=50 {
            scene.expect(Side::Waiter, "read 3", (value - 1).to_string())?;
            scene.by(Side::Signaller, &format!("write 3 {value}"))?;
            scene.pass("frames", value)?;
            scene.expect(Side::Waiter, "read 3", value.to_string())?;
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
        scene.expect(Side::Waiter, "read 3", "7")?;
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
            scene.expect(Side::Waiter, &format!("check frames {value}"), "right")?;
        }
        // The control: nothing is written until the latch opens, and this read has no wait before
        // it.
        scene.by(Side::Signaller, "fill_closed frames 6")?;
        scene.expect(Side::Waiter, "peek frames 6", "wrong")?;
        scene.by(Side::Signaller, "open")?;
        scene.by(Side::Waiter, "check frames 6")?;
        scene.only_the_home_shares(make)
    })
}
