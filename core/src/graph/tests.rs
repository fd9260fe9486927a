//! The graph against a full search.

use super::*;
use crate::backend::Device as _;

struct Nobody;
impl Holder for Nobody {
    fn reconsider(self: Arc<Self>, _: u64) {}
}

fn node(waits: &[(&Arc<Shared>, u64)], claims: &[(&Arc<Shared>, u64, u64)]) -> Node {
    let keep = |&(of, value): &(&Arc<Shared>, u64)| KeptPoint {
        of: Some(of.clone()),
        value,
    };
    let own =
        |&(of, above, upto): &(&Arc<Shared>, u64, u64)| (of.clone(), Interval { above, upto });
    Node {
        origin: Arc::new(Origin {
            queue: Object::new("queue", "q"),
            holder: Weak::<Nobody>::new(),
            own: crate::host::Device::new()
                .timeline("own")
                .unwrap()
                .shared()
                .clone(),
        }),
        number: 1,
        by_host: false,
        lists: Some(Arc::new(Lists {
            waits: waits.iter().map(keep).collect(),
            claims: claims.iter().map(own).collect(),
            native: claims.len(),
        })),
    }
}

/// Small numbers that look random, the same in every run.
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

/// True if the node depends on itself, found by walking everything.
fn circular(graph: &Graph, node: &Node) -> bool {
    let wanted = Graph::dependents(node);
    let mut seen = BTreeSet::new();
    let mut next: Vec<NodeId> = graph.dependencies(node).map(|(id, ..)| id).collect();
    while let Some(id) = next.pop() {
        if wanted.contains(&id) {
            return true;
        }
        if let (true, Some(stored)) = (seen.insert(id), graph.stored(id)) {
            next.extend(graph.dependencies(&stored.node).map(|(id, ..)| id));
        }
    }
    false
}

#[test]
fn random_graphs_are_judged_as_a_full_search_judges_them() {
    let device = crate::host::Device::new();
    let timelines: Vec<_> = (0..24)
        .map(|n| device.timeline(&format!("{n}")).unwrap())
        .collect();
    let lines: Vec<&Arc<Shared>> = timelines.iter().map(crate::Timeline::shared).collect();
    let (mut refused, mut accepted) = (0, 0);
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut graph = Graph::new();
        let mut present = Vec::new();
        for _ in 0..120 {
            if dice.throw(6) == 0 && !present.is_empty() {
                let at = dice.throw(present.len() as u64) as usize;
                graph.leave(present.swap_remove(at));
                continue;
            }
            // Claims are single values, so that they never overlap: (value - 1, value].
            let pick = |dice: &mut Dice| (lines[dice.throw(24) as usize], 1 + dice.throw(3));
            let (line, value) = pick(&mut dice);
            if line.line.claimant(value).is_some() {
                continue;
            }
            let waits: Vec<_> = (0..dice.throw(3)).map(|_| pick(&mut dice)).collect();
            if waits
                .iter()
                .any(|&(of, wait)| Arc::ptr_eq(of, line) && wait >= value)
            {
                continue;
            }
            let new = node(&waits, &[(line, value - 1, value)]);
            let expected = circular(&graph, &new);
            match graph.enter(new) {
                Ok(id) => {
                    assert!(!expected, "a circle was accepted");
                    accepted += 1;
                    present.push(id);
                }
                Err(error) => {
                    assert!(expected, "no circle, but refused: {}", error.circle);
                    assert!(error.circle.steps().len() >= 2);
                    refused += 1;
                }
            }
            for &id in &present {
                let stored = graph.stored(id).unwrap();
                for (other, ..) in graph.dependencies(&stored.node) {
                    assert!(graph.rank(other) < stored.rank, "ranks out of order");
                }
            }
        }
        for id in present {
            graph.leave(id);
        }
        assert!(lines.iter().all(|of| of.line.waiting(0).is_empty()));
    }
    assert!(
        refused > 200 && accepted > 5000,
        "{refused} refused, {accepted} accepted"
    );
}
