//! A forked child that uses Vulkan after its parent has done so.

use crate::harness::*;
use crate::kit::need;
use crate::vulkan::{Listed, Vulkan};

pub(crate) fn list(all: &mut Probes) {
    all.each_bare("fork", CASES, |(parent, child_opens)| {
        fork(parent, child_opens);
    });
}

/// What the parent does before the fork.
#[derive(Clone, Copy, PartialEq)]
enum Parent {
    Lists,
    Opens,
    Works,
}

/// A child opens a device, or only lists them.
const CASES: Table<(Parent, bool)> = &[
    ("listed_then_child_lists", (Parent::Lists, false)),
    ("listed_then_child_opens", (Parent::Lists, true)),
    ("opened_then_child_lists", (Parent::Opens, false)),
    ("opened_then_child_opens", (Parent::Opens, true)),
    ("worked_then_child_lists", (Parent::Works, false)),
    ("worked_then_child_opens", (Parent::Works, true)),
];

/// Prints how the child fares, and how the parent does afterwards.
fn fork(parent: Parent, child_opens: bool) {
    let mut listed = Some(Listed::gpu().unwrap_or_else(|reason| stop(reason)));
    let mut device = None;
    if parent != Parent::Lists {
        device = listed.take().map(|listed| need(listed.open()));
    }
    if let (Parent::Works, Some(device)) = (parent, &device) {
        need(work(device, 1));
    }
    // SAFETY: this process has one thread of its own, and the child ends below.
    match unsafe { libc::fork() } {
        0 => {
            limit();
            let fares = Listed::gpu().and_then(|listed| match child_opens {
                true => work(&listed.open()?, 10),
                false => Ok(()),
            });
            line("child", shown(fares));
            leave()
        }
        id => {
            // SAFETY: the id of the child.
            unsafe { libc::waitpid(id, &mut 0, 0) };
        }
    }
    let device = device.or_else(|| listed.map(|listed| need(listed.open())));
    let device = need(device.ok_or_else(|| "no device".into()));
    line("parent", shown(work(&device, 1000)));
    let again = Listed::gpu().and_then(Listed::open);
    let worked = again.and_then(|again| work(&again, 10));
    line("parent_again", shown(worked));
}

/// Makes semaphores, and lets the queue signal them.
fn work(device: &Vulkan, times: usize) -> Result<(), String> {
    for _ in 0..times {
        let semaphore = device.semaphore(false)?;
        device.signal_binary(semaphore)?;
        device.destroy(semaphore);
    }
    Ok(())
}

fn shown(result: Result<(), String>) -> String {
    result.err().unwrap_or_else(|| "0".into())
}
