//! E2, E4: failures in a random graph of submissions, compared with a model.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline::Error;

use crate::case::{Stop, Verdict, cases, check, check_eq};
use crate::cases::cause;
use crate::dice::{Dice, seeds};
use crate::user::Timeline;
use crate::{Subject, World, patience};

cases! {
    "failure.random_dag_fails_like_the_model": [E2 E4 Q6 E1] => random_dag;
}

/// A submission, which signals its own timeline.
struct Node {
    /// The nodes whose timelines it waits for, all before it.
    waits: Vec<usize>,
    /// Its queue. The lowest bit is the side.
    queue: usize,
    /// The node whose buffer it copies: one of `waits` on the same side. Otherwise it fills its
    /// own.
    copies: Option<usize>,
    /// Whether its work fails.
    work_fails: bool,
}

/// The expected result of a node.
struct Fate {
    runs: bool,
    /// Possible causes of its timeline's failure. Empty if the value is reached.
    causes: BTreeSet<String>,
    word: u32,
}

const NODES: usize = 100;
const QUEUES: usize = 4;

fn random_dag<S: Subject>(world: &World<S>) -> Verdict {
    seeds(if world.is_pair() { 1 } else { 3 }, |dice| {
        one_dag(world, dice)
    })
}

fn grow(dice: &mut Dice) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for index in 0..NODES {
        let mut waits = BTreeSet::new();
        if index > 0 {
            for _ in 0..dice.below(4) {
                // Mostly near nodes, so that the graph is deep.
                let far = if dice.one_in(3) { index } else { index.min(8) };
                let back = 1 + dice.index(far);
                waits.insert(index - back);
            }
        }
        let queue = dice.index(QUEUES);
        let same_side = |&&from: &&usize| nodes[from].queue % 2 == queue % 2;
        let copies = waits.iter().find(same_side).copied();
        nodes.push(Node {
            waits: waits.into_iter().collect(),
            queue,
            copies,
            work_fails: dice.one_in(12),
        });
    }
    nodes
}

/// Returns the fates of all nodes if the timelines of `failed` fail in this order before any work.
fn foresee(nodes: &[Node], failed: &[usize]) -> Vec<Fate> {
    let mut fates: Vec<Fate> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let inherited = node
            .waits
            .iter()
            .flat_map(|&wait| fates[wait].causes.clone());
        let mut causes: BTreeSet<String> = inherited.collect();
        let runs = causes.is_empty();
        let word = match node.copies {
            _ if !runs || node.work_fails => 0,
            Some(from) => fates[from].word,
            None => index as u32 + 1,
        };
        if failed.contains(&index) {
            causes.insert(by_host(index));
        }
        if runs && node.work_fails {
            causes.insert(by_work(index));
        }
        fates.push(Fate { runs, causes, word });
    }
    fates
}

fn by_host(index: usize) -> String {
    format!("timeline {index}")
}

fn by_work(index: usize) -> String {
    format!("node {index}")
}

/// Returns the first node of `failed` that `index` depends on.
fn first_cause(nodes: &[Node], failed: &[usize], index: usize) -> Option<usize> {
    let reaches = |&origin: &usize| {
        let mut hit = vec![false; index + 1];
        for at in origin..=index {
            hit[at] = at == origin || nodes[at].waits.iter().any(|&wait| hit[wait]);
        }
        hit[index]
    };
    let candidates = failed.iter().copied().filter(|&origin| origin <= index);
    candidates.into_iter().find(reaches)
}

fn one_dag<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let nodes = grow(dice);
    let gate = world.timeline("gate")?;
    let (queues, lines) = (world.queues(QUEUES)?, world.numbered(NODES, "node")?);
    let buffers: Vec<_> = nodes
        .iter()
        .map(|node| world.side(node.queue).buffer(4))
        .collect::<syncline::Result<_>>()?;
    let runs: Vec<_> = (0..NODES).map(|_| Arc::new(AtomicU32::new(0))).collect();
    for (index, node) in nodes.iter().enumerate() {
        let mut waits: Vec<_> = node.waits.iter().map(|&wait| lines[wait].at(1)).collect();
        waits.push(gate.at(1));
        let (to, runs) = (buffers[index].clone(), runs[index].clone());
        let from = node.copies.map(|from| buffers[from].clone());
        let fails = node.work_fails;
        queues[node.queue].submit(
            &waits,
            move |recorder| {
                runs.fetch_add(1, Ordering::SeqCst);
                if fails {
                    return Err(cause(&format!("node {index}")));
                }
                match &from {
                    Some(from) => S::copy(recorder, from, &to),
                    None => S::fill(recorder, &to, index as u32 + 1),
                }
            },
            &[lines[index].signal_at(1)],
        )?;
    }

    // Some timelines fail while everything is held. Their dependents fail at once, with the first
    // cause.
    let mut failed: Vec<usize> = (0..6).map(|_| dice.index(NODES)).collect();
    failed.dedup();
    for (nth, &index) in failed.iter().enumerate() {
        lines[index].fail(cause(&format!("timeline {index}")));
        for (node, line) in lines.iter().enumerate() {
            let expected = first_cause(&nodes, &failed[..=nth], node);
            check_line(line, node, expected.map(by_host).iter())?;
        }
    }
    let ran_early = runs
        .iter()
        .filter(|runs| runs.load(Ordering::SeqCst) > 0)
        .count();
    check!(ran_early == 0, "{ran_early} works ran behind a closed gate");

    gate.signal(1)?;
    for queue in &queues {
        queue.idle(patience())?;
    }
    for (index, fate) in foresee(&nodes, &failed).iter().enumerate() {
        let ran = runs[index].load(Ordering::SeqCst);
        check_eq!(ran, u32::from(fate.runs), "index {index}");
        if fate.causes.is_empty() {
            lines[index].at(1).wait(patience())?;
        }
        // A node that failed while it was held keeps its cause, whatever fails before it later.
        match first_cause(&nodes, &failed, index) {
            Some(first) => check_line(&lines[index], index, [by_host(first)].iter())?,
            None => check_line(&lines[index], index, fate.causes.iter())?,
        }
        let words = S::read(&buffers[index]);
        check!(
            words.iter().all(|&word| word == fate.word),
            "node {index} left {words:?} instead of {}",
            fate.word
        );
    }
    Ok(())
}

/// Checks that a node's timeline failed with one of `causes`, or did not fail if there are none.
fn check_line<'c, S: Subject>(
    line: &Timeline<S>,
    node: usize,
    mut causes: impl ExactSizeIterator<Item = &'c String>,
) -> Verdict {
    let patience = if causes.len() == 0 {
        Duration::ZERO
    } else {
        patience()
    };
    match line.at(1).wait(patience) {
        Err(Error::Failed { cause: found, .. }) => {
            let found = match &*found {
                Error::Work(found) => found.to_string(),
                other => return Stop::fail(format!("node {node}: {other}")),
            };
            check!(
                causes.any(|cause| *cause == found),
                "the timeline of node {node} failed of {found:?}"
            );
            Ok(())
        }
        Ok(()) | Err(Error::TimedOut { .. }) => {
            check_eq!(causes.len(), 0, "node {node}");
            Ok(())
        }
        Err(other) => Stop::fail(format!("node {node}: {other}")),
    }
}
