//! Remarks on measured hops, a line for each fact.

use super::{Hop, Place, micros};

/// Smallest ratio that is worth a remark.
const STRIKING: f64 = 3.0;

/// A line for each striking fact of these figures.
#[must_use]
pub fn advise(places: &[Place], hops: &[Hop]) -> Vec<String> {
    let all = Measured { places, hops };
    let mut lines = Vec::new();
    let devices = unique(places.iter().map(|place| place.device.as_str()));
    for device in &devices {
        all.within(device, &mut lines);
    }
    for (number, one) in devices.iter().enumerate() {
        for other in &devices[number + 1..] {
            all.across(one, other, &mut lines);
        }
    }
    lines
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known = Vec::new();
    for name in names {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

struct Measured<'m> {
    places: &'m [Place],
    hops: &'m [Hop],
}

/// A measured hop and its two places.
#[derive(Clone, Copy)]
struct Edge<'m> {
    from: &'m Place,
    to: &'m Place,
    same: bool,
    ns: f64,
    mechanism: &'m str,
}

impl<'m> Measured<'m> {
    /// The hops between queues that were measured.
    fn edges(&self) -> impl Iterator<Item = Edge<'m>> {
        let (places, hops) = (self.places, self.hops);
        hops.iter().filter_map(move |hop| {
            let edge = Edge {
                from: places.get(hop.from)?,
                to: places.get(hop.to)?,
                same: hop.from == hop.to,
                ns: hop.hop_ns?,
                mechanism: &hop.mechanism,
            };
            (!edge.from.thread && !edge.to.thread).then_some(edge)
        })
    }

    fn within(&self, device: &str, lines: &mut Vec<String>) {
        let own = |edge: &Edge<'_>| edge.from.device == device && edge.to.device == device;
        let edges: Vec<_> = self.edges().filter(own).collect();
        let families = unique_families(&edges);
        // The most expensive hop that a remark has advised against so far.
        let mut told: f64 = 0.0;
        for family in families {
            let of = |edge: &&Edge<'_>| edge.from.family == family && edge.to.family == family;
            let one = cheapest(edges.iter().filter(of).filter(|edge| edge.same));
            let two = cheapest(edges.iter().filter(of).filter(|edge| !edge.same));
            let Some((one, two)) = one.zip(two) else {
                continue;
            };
            let times = two.ns / one.ns;
            let what = noun(one.from);
            if times >= STRIKING {
                told = told.max(two.ns);
                lines.push(format!(
                    "{device}: a hop between two {what}s costs {times:.0} times one on the same {what} ({} and {} µs): put what depends on each other on one {what}",
                    micros(two.ns),
                    micros(one.ns)
                ));
            } else if two.ns < 1000.0 {
                lines.push(format!(
                    "{device}: a hop between two {what}s costs {} µs: use as many {what}s as the work has strands",
                    micros(two.ns)
                ));
            }
        }
        let one = cheapest(edges.iter().filter(|edge| edge.same));
        let crossing = |edge: &&Edge<'_>| edge.from.family != edge.to.family;
        let cross = cheapest(edges.iter().filter(crossing));
        if let Some((one, cross)) = one.zip(cross) {
            let times = cross.ns / one.ns;
            if times >= STRIKING && cross.ns >= STRIKING * told {
                lines.push(format!(
                    "{device}: a hop from one queue family to another costs {} µs at least, {times:.0} times one on the same queue: cross seldom, and with much work at a time",
                    micros(cross.ns)
                ));
            } else if told >= STRIKING * cross.ns {
                lines.push(format!(
                    "{device}: a hop from {} to {} costs {} µs: cheaper than between two queues of one family",
                    noun(cross.from),
                    noun(cross.to),
                    micros(cross.ns)
                ));
            }
        }
    }

    fn across(&self, one: &str, other: &str, lines: &mut Vec<String>) {
        let between = |edge: &Edge<'_>| {
            let (from, to) = (edge.from.device.as_str(), edge.to.device.as_str());
            (from, to) == (one, other) || (from, to) == (other, one)
        };
        let edges: Vec<_> = self.edges().filter(between).collect();
        // Of several queues of the same kinds the two cheapest: the others differ by chance.
        let kinds = unique_pairs(&edges);
        let (Some(best), Some(worst)) = (cheapest(kinds.iter()), dearest(kinds.iter())) else {
            return;
        };
        let times = worst.ns / best.ns;
        if times >= STRIKING {
            lines.push(format!(
                "{one} and {other}: a hop costs {} µs with {} and {} µs with {}, {times:.0} times as much: take the former where its commands suffice, and keep frames in flight where they do not",
                micros(best.ns),
                pair(&best),
                micros(worst.ns),
                pair(&worst)
            ));
        }
        let own = |device: &str| {
            let here = |edge: &Edge<'_>| edge.from.device == device && edge.to.device == device;
            let edges: Vec<_> = self.edges().filter(here).collect();
            cheapest(edges.iter().filter(|edge| edge.same)).map(|edge| edge.ns)
        };
        let floor = own(one).into_iter().chain(own(other)).fold(0.0, f64::max);
        if best.mechanism.contains("engine") && floor > 0.0 && best.ns >= STRIKING * floor {
            lines.push(format!(
                "{one} and {other}: signals go through the host, {} µs a hop, {:.0} times a hop on one of them: hand over whole frames, not steps",
                micros(best.ns),
                best.ns / floor
            ));
        }
    }
}

fn unique_families(edges: &[Edge<'_>]) -> Vec<Option<u32>> {
    let mut known = Vec::new();
    for edge in edges {
        if !known.contains(&edge.from.family) {
            known.push(edge.from.family);
        }
    }
    known
}

/// The cheapest edge of each pair of kinds.
fn unique_pairs<'m>(edges: &[Edge<'m>]) -> Vec<Edge<'m>> {
    let mut known: Vec<Edge<'m>> = Vec::new();
    for edge in edges {
        match known.iter_mut().find(|known| pair(known) == pair(edge)) {
            Some(known) if known.ns <= edge.ns => {}
            Some(known) => *known = *edge,
            None => known.push(*edge),
        }
    }
    known
}

fn cheapest<'e, 'm: 'e>(edges: impl Iterator<Item = &'e Edge<'m>>) -> Option<Edge<'m>> {
    edges
        .min_by(|one, other| one.ns.total_cmp(&other.ns))
        .copied()
}

fn dearest<'e, 'm: 'e>(edges: impl Iterator<Item = &'e Edge<'m>>) -> Option<Edge<'m>> {
    edges
        .max_by(|one, other| one.ns.total_cmp(&other.ns))
        .copied()
}

/// The kind of a place, in words.
fn noun(place: &Place) -> String {
    match (place.backend.as_str(), &place.kind) {
        ("cuda", _) => "stream".into(),
        (_, Some(kind)) => format!("{kind} queue"),
        (backend, None) => format!("{backend} queue"),
    }
}

/// Both ends of a hop, in words.
fn pair(edge: &Edge<'_>) -> String {
    format!("{} and {}", noun(edge.from), noun(edge.to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(device: &str, backend: &str, family: Option<(u32, &str)>) -> Place {
        Place {
            name: device.into(),
            device: device.into(),
            backend: backend.into(),
            kind: family.map(|(_, kind)| kind.into()),
            family: family.map(|(index, _)| index),
            thread: false,
        }
    }

    fn hop(from: usize, to: usize, microseconds: f64, mechanism: &str) -> Hop {
        Hop {
            from,
            to,
            hop_ns: Some(microseconds * 1e3),
            spread_ns: None,
            mechanism: mechanism.into(),
            failed: None,
        }
    }

    const OWN: &str = "the device's own timelines";
    const SHARED: &str = "external timeline semaphore";
    const ENGINE: &str = "through the engine on the host";

    /// The figures of an H200.
    #[test]
    fn a_gpu_gets_a_line_for_each_fact() {
        let places = [
            place("cuda H", "cuda", None),
            place("cuda H", "cuda", None),
            place("vulkan H", "vulkan", Some((0, "compute"))),
            place("vulkan H", "vulkan", Some((0, "compute"))),
            place("vulkan H", "vulkan", Some((1, "transfer"))),
        ];
        let hops = [
            hop(0, 0, 0.25, OWN),
            hop(0, 1, 0.3, OWN),
            hop(1, 1, 0.25, OWN),
            hop(2, 2, 8.0, OWN),
            hop(2, 3, 172.0, OWN),
            hop(3, 3, 8.0, OWN),
            hop(2, 4, 9.0, OWN),
            hop(4, 4, 5.0, OWN),
            hop(0, 2, 155.0, SHARED),
            hop(0, 4, 3.9, SHARED),
        ];
        let lines = advise(&places, &hops);
        let has = |parts: &[&str]| {
            lines
                .iter()
                .filter(|line| parts.iter().all(|part| line.contains(part)))
                .count()
        };
        assert_eq!(
            has(&["cuda H", "two streams costs 0.30 µs", "as many"]),
            1,
            "{lines:#?}"
        );
        assert_eq!(
            has(&["two compute queues", "22 times", "172", "8.00"]),
            1,
            "{lines:#?}"
        );
        assert_eq!(
            has(&["cuda H and vulkan H", "3.90", "transfer", "155", "40 times"]),
            1,
            "{lines:#?}"
        );
        assert_eq!(
            has(&["compute queue to transfer queue", "9.00"]),
            1,
            "{lines:#?}"
        );
        assert_eq!(lines.len(), 4, "{lines:#?}");
    }

    #[test]
    fn signals_through_the_host_get_a_remark() {
        let places = [
            place("vulkan A", "vulkan", Some((0, "graphics"))),
            place("vulkan B", "vulkan", Some((0, "graphics"))),
        ];
        let hops = [
            hop(0, 0, 5.0, OWN),
            hop(1, 1, 8.0, OWN),
            hop(0, 1, 60.0, ENGINE),
        ];
        let lines = advise(&places, &hops);
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].contains("through the host, 60.0 µs"), "{lines:#?}");
    }

    #[test]
    fn a_difference_between_queues_of_one_kind_gets_no_remark() {
        let places = [
            place("cuda A", "cuda", None),
            place("cuda A", "cuda", None),
            place("vulkan B", "vulkan", Some((0, "graphics"))),
        ];
        // A disturbance affected one of them.
        let hops = [hop(0, 2, 9.0, SHARED), hop(1, 2, 90.0, SHARED)];
        assert!(advise(&places, &hops).is_empty());
    }

    #[test]
    fn nothing_striking_is_no_line() {
        let places = [
            place("vulkan A", "vulkan", Some((0, "graphics"))),
            place("vulkan A", "vulkan", Some((0, "graphics"))),
        ];
        let hops = [
            hop(0, 0, 5.0, OWN),
            hop(0, 1, 6.0, OWN),
            hop(1, 1, 5.0, OWN),
        ];
        assert!(advise(&places, &hops).is_empty());
        // A hop without a time gets no remark.
        let failed = Hop {
            hop_ns: None,
            ..hop(0, 1, 0.0, OWN)
        };
        assert!(advise(&places, &[hop(0, 0, 5.0, OWN), failed]).is_empty());
    }
}
