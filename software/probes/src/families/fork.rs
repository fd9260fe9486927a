//! A forked child that uses Vulkan after its parent has done so.

use super::external::without_vulkan;
use crate::harness::{Probe, leave, line};
use crate::kit::Answer;
use crate::vulkan::{Listed, Vulkan};

pub(crate) fn list() -> Vec<Probe> {
    let mut list = vec![];
    for (before, parent) in [
        ("listed", Parent::Lists),
        ("opened", Parent::Opens),
        ("worked", Parent::Works),
    ] {
        for (then, opens) in [("lists", false), ("opens", true)] {
            list.push(Probe::new(
                format!("fork.{before}_then_child_{then}"),
                move || fork(parent, opens),
            ));
        }
    }
    without_vulkan(list)
}

/// What the parent does before the fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    Lists,
    Opens,
    Works,
}

/// Prints how the child fares, and how the parent does afterwards.
fn fork(parent: Parent, child_opens: bool) -> Answer {
    let mut listed = Some(Listed::gpu()?);
    let mut device = None;
    if parent != Parent::Lists {
        device = listed.take().map(Listed::open).transpose()?;
    }
    if let (Parent::Works, Some(device)) = (parent, &device) {
        work(device, 1)?;
    }
    // SAFETY: this process has one thread of its own, and the child ends below.
    match unsafe { libc::fork() } {
        0 => {
            line("child", answer(child(child_opens)));
            leave()
        }
        id => {
            // SAFETY: the id of the child.
            unsafe { libc::waitpid(id, &mut 0, 0) };
        }
    }
    if let Some(listed) = listed {
        device = Some(listed.open()?);
    }
    let device = device.ok_or("no device")?;
    line("parent", answer(work(&device, 1000)));
    line(
        "parent_again",
        answer(Listed::gpu()?.open().and_then(|again| work(&again, 10))),
    );
    Ok(String::new())
}

fn child(opens: bool) -> Result<(), String> {
    let listed = Listed::gpu()?;
    if opens {
        work(&listed.open()?, 10)?;
    }
    Ok(())
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

fn answer(result: Result<(), String>) -> String {
    result.err().unwrap_or_else(|| "0".into())
}
