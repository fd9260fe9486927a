//! The graph compared with a full search.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use rstest::rstest;

use super::graph::{Graph, id};
use super::node::Node;
use super::*;
use crate::api::Device as _;
use crate::base::error::Object;
use crate::base::steps;
use crate::timeline::held_index::NodeId;
use crate::timeline::state::{Interval, Shared};

struct NoHolder;
impl Holder for NoHolder {
    fn reconsider(self: Arc<Self>, _: u64) {}
}

fn edges(waits: &[(&Arc<Shared>, u64)], claims: &[(&Arc<Shared>, u64, u64)]) -> Arc<Edges> {
    let own =
        |&(of, above, upto): &(&Arc<Shared>, u64, u64)| (of.clone(), Interval { above, upto });
    Arc::new(Edges {
        waits: waits
            .iter()
            .map(|&(of, value)| (of.clone(), value))
            .collect(),
        claims: claims.iter().map(own).collect(),
    })
}

fn origin(device: &crate::host::Device) -> Arc<QueueOrigin> {
    let own = device.timeline("own").unwrap();
    let id = own.shared().devices().next().unwrap();
    let queue = Object::new("queue", "q");
    QueueOrigin::new(queue, id, Weak::<NoHolder>::new(), own.shared().clone())
}

/// A queue and its index in `graph`. [`QueueEntry::take`] makes one in the process's graph.
fn queue(graph: &mut Graph, device: &crate::host::Device) -> (u32, Arc<QueueOrigin>) {
    let origin = origin(device);
    (graph.add_queue(origin.clone()), origin)
}

/// Small pseudo-random numbers, the same in every run.
struct Dice(u64);
impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// True if the node depends on itself, by a full search.
fn circular(graph: &Graph, node: Node<'_>) -> bool {
    let wanted = graph.dependents(node);
    let mut seen = BTreeSet::new();
    let mut next: Vec<NodeId> = graph.dependencies(node).map(|(id, ..)| id).collect();
    while let Some(id) = next.pop() {
        if wanted.contains(&id) {
            return true;
        }
        if let (true, Some(node)) = (seen.insert(id), graph.node(id)) {
            next.extend(graph.dependencies(node).map(|(id, ..)| id));
        }
    }
    false
}

#[test]
fn random_graphs_agree_with_a_full_search() {
    let device = crate::host::Device::new();
    let timelines: Vec<_> = (0..24)
        .map(|n| device.timeline(&format!("{n}")).unwrap())
        .collect();
    let lines: Vec<&Arc<Shared>> = timelines.iter().map(crate::Timeline::shared).collect();
    let (mut refused, mut accepted) = (0, 0);
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut graph = Graph::new();
        // From many queues with one submission each to few queues with many.
        let many = 1 + dice.throw(30);
        let mut queues: Vec<_> = (0..many)
            .map(|_| (queue(&mut graph, &device), 1_u64, 1_u64))
            .collect();
        for _ in 0..120 {
            let picked = dice.throw(many) as usize;
            let ((index, origin), first, next) = &mut queues[picked];
            if dice.throw(6) == 0 && first < next {
                graph.leave(*index, *first);
                *first += 1;
                continue;
            }
            // Claims are single values, (value - 1, value], and never overlap.
            let pick = |dice: &mut Dice| (lines[dice.throw(24) as usize], 1 + dice.throw(3));
            let (line, value) = pick(&mut dice);
            if graph.claimant(line, value).is_some() {
                continue;
            }
            let waits: Vec<_> = (0..dice.throw(3)).map(|_| pick(&mut dice)).collect();
            if waits
                .iter()
                .any(|&(of, wait)| Arc::ptr_eq(of, line) && wait >= value)
            {
                continue;
            }
            let new = edges(&waits, &[(line, value - 1, value)]);
            let node = Node::submission(origin, *next, Some(&new));
            let expected = circular(&graph, node);
            match graph.enter(*index, origin, *next, &new) {
                Ok(()) => {
                    assert!(!expected, "a circle was accepted");
                    accepted += 1;
                    *next += 1;
                }
                Err(circle) => {
                    assert!(expected, "no circle, but refused: {circle}");
                    assert!(circle.steps().len() >= 2, "{circle}");
                    refused += 1;
                }
            }
            for ((index, _), first, next) in &queues {
                for number in *first..*next {
                    let node = graph.node(id(*index, number)).unwrap();
                    for (other, ..) in graph.dependencies(node) {
                        let ranks = (graph.rank(other), graph.rank(id(*index, number)));
                        assert!(ranks.0 < ranks.1, "ranks out of order");
                    }
                }
            }
        }
        for ((index, _), first, next) in queues {
            for number in first..next {
                graph.leave(index, number);
            }
            drop(graph.remove_queue(index));
        }
        assert!(lines.iter().all(|of| of.held_index().waiting(0).is_empty()));
    }
    assert!(
        refused > 200 && accepted > 5000,
        "{refused} refused, {accepted} accepted"
    );
}

/// The steps to enter and to remove `many` submissions, each of which waits for the one before it.
fn steps_of(many: u64, crosswise: bool) -> (usize, usize) {
    let device = crate::host::Device::new();
    let (gate, chain) = (
        device.timeline("gate").unwrap(),
        device.timeline("chain").unwrap(),
    );
    let mut graph = Graph::new();
    let queues = [(); 2].map(|()| queue(&mut graph, &device));
    let position = |n: u64| match crosswise {
        true => (&queues[(n % 2) as usize], n / 2 + 1),
        false => (&queues[0], n + 1),
    };
    steps::take();
    for n in 0..many {
        let wait = match crosswise {
            true if n > 0 => (chain.shared(), n),
            _ => (gate.shared(), 1),
        };
        let edges = edges(&[wait], &[(chain.shared(), n, n + 1)]);
        let ((index, origin), number) = position(n);
        assert!(graph.enter(*index, origin, number, &edges).is_ok());
    }
    let held = steps::take();
    for n in 0..many {
        let ((index, _), number) = position(n);
        graph.leave(*index, number);
    }
    (held, steps::take())
}

/// Compares the steps for 1 000 submissions with those for 100 000.
fn check_linear(few: (usize, usize), many: (usize, usize)) {
    // A hundred times as many, with an allowance for the logarithm of that.
    let most = |steps: usize| 200 * steps;
    assert!(
        many.0 < most(few.0) && many.1 < most(few.1),
        "{few:?} for 1 000, {many:?} for 100 000"
    );
}

#[rstest]
#[case::one_queue(false)]
#[case::two_queues_crosswise(true)]
fn entering_and_leaving_are_linear(#[case] crosswise: bool) {
    let few = steps_of(1_000, crosswise);
    let many = steps_of(100_000, crosswise);
    assert!(few.0 > 1_000 && few.1 >= 1_000, "{few:?}");
    check_linear(few, many);
}

/// The steps to enter and to remove `many` submissions of 100 queues.
///
/// Each waits for a value of its own of one timeline. They enter in the order of these values or
/// queue by queue, and leave in the other order.
fn steps_across_queues(many: u64, enter_by_queue: bool) -> (usize, usize) {
    const QUEUES: u64 = 100;
    let device = crate::host::Device::new();
    let gate = device.timeline("gate").unwrap();
    let mut graph = Graph::new();
    let queues = [(); QUEUES as usize].map(|()| queue(&mut graph, &device));
    let by_value: Vec<_> = (0..many).map(|n| (n % QUEUES, n / QUEUES + 1)).collect();
    let mut by_queue = by_value.clone();
    by_queue.sort_unstable();
    let (entering, leaving) = match enter_by_queue {
        true => (by_queue, by_value),
        false => (by_value, by_queue),
    };
    steps::take();
    for (queue, number) in entering {
        let (index, origin) = &queues[queue as usize];
        let value = (number - 1) * QUEUES + queue + 1;
        let edges = edges(&[(gate.shared(), value)], &[]);
        assert!(graph.enter(*index, origin, number, &edges).is_ok());
    }
    let entered = steps::take();
    for (queue, number) in leaving {
        graph.leave(queues[queue as usize].0, number);
    }
    assert!(gate.shared().held_index().waiting(0).is_empty());
    (entered, steps::take())
}

#[rstest]
#[case::enter_by_queue_and_leave_by_value(true)]
#[case::enter_by_value_and_leave_by_queue(false)]
fn the_order_across_queues_does_not_matter(#[case] enter_by_queue: bool) {
    let few = steps_across_queues(1_000, enter_by_queue);
    let many = steps_across_queues(100_000, enter_by_queue);
    assert!(few.0 >= 1_000 && few.1 >= 1_000, "{few:?}");
    check_linear(few, many);
}
