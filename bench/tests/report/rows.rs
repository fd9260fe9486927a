//! The list of rows and their limits.

#![cfg(all(feature = "cuda", feature = "vulkan"))]

use syncline_bench::rows;
use syncline_bench::{Limit, limit};

const IDS: [&str; 46] = [
    "cuda.hop.submit",
    "cuda.chain",
    "cuda.query.reached",
    "cuda.query.pending",
    "cuda.submit.wait",
    "cuda.wbs.roundtrip",
    "cuda.external.signal",
    "cuda.external.wait",
    "cuda.graph.slots",
    "cuda.word",
    "cuda.timestamp",
    "vulkan.submit",
    "vulkan.query",
    "vulkan.submit.wait",
    "vulkan.host.signal",
    "foreign.frames",
    "interop.pingpong.transfer",
    "interop.pingpong.compute",
    "interop.frames",
    "interop.frames.buffers",
    "interop.trace",
    "any.dispatch",
    "host.pingpong",
    "host.lock",
    "host.submit",
    "wait.any.10",
    "wait.any.1000",
    "wait.any.10000",
    "wait.cores",
    "counter.pingpong",
    "counter.cuda",
    "bridge.carry",
    "process.pingpong",
    "process.point",
    "scale.outstanding",
    "alloc",
    "batch",
    "contend",
    "launches",
    "submit.kernel",
    "adopt.cuda",
    "adopt.vulkan",
    "frame.cpu",
    "held.wide",
    "held.deep",
    "held.waits",
];

/// The rows that look like an application.
const APPLICATIONS: [&str; 6] = [
    "contend",
    "launches",
    "submit.kernel",
    "adopt.cuda",
    "adopt.vulkan",
    "frame.cpu",
];

#[test]
fn every_row_exists_once() {
    let mut expected = IDS.to_vec();
    let mut there: Vec<_> = rows::all().iter().map(|row| row.id).collect();
    expected.sort_unstable();
    there.sort_unstable();
    assert_eq!(there, expected);
}

#[test]
fn rows_that_look_like_an_application_have_a_limit_to_a_recording() {
    let mut limited: Vec<_> = rows::all()
        .iter()
        .filter(|row| limit::to_recorded(row.limits) == Some(1.2))
        .map(|row| row.id)
        .collect();
    let mut expected = APPLICATIONS.to_vec();
    limited.sort_unstable();
    expected.sort_unstable();
    assert_eq!(limited, expected);
}

#[test]
fn every_row_has_descriptions_and_variants_with_different_names() {
    for row in rows::all() {
        assert!(!row.ours.is_empty() && !row.raw.is_empty(), "{}", row.id);
        assert!(!row.floor.to_string().is_empty(), "{}", row.id);
        assert!(!row.on.is_empty(), "{}", row.id);
        let mut names: Vec<_> = row.variants.iter().map(|variant| variant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), row.variants.len(), "{}", row.id);
    }
}

/// The limits of `docs/benchmark.md`, except for those of the test above.
const LIMITS: [(&str, &[Limit]); 25] = [
    ("cuda.hop.submit", &[Limit::OverFloor(400.0)]),
    ("cuda.chain", &[Limit::OverFloor(200.0)]),
    ("cuda.submit.wait", &[Limit::OverFloor(200.0)]),
    ("cuda.timestamp", &[Limit::OverFloor(200.0)]),
    ("cuda.external.signal", &[Limit::OverFloor(350.0)]),
    ("cuda.external.wait", &[Limit::OverFloor(350.0)]),
    ("cuda.graph.slots", &[Limit::OverRaw(1000.0)]),
    ("cuda.word", &[Limit::OverFloor(200.0)]),
    ("foreign.frames", &[Limit::Figure("ratio_to_claim", 1.1)]),
    ("vulkan.submit", &[Limit::OverFloor(350.0)]),
    ("batch", &[Limit::RatioToFloor(1.2)]),
    ("cuda.query.reached", &[Limit::Within(5.0)]),
    ("vulkan.query, known to be reached", &[Limit::Within(5.0)]),
    ("cuda.query.pending", &[Limit::OverRaw(60.0)]),
    (
        "vulkan.query, with a signal outstanding",
        &[Limit::OverRaw(60.0)],
    ),
    ("interop.frames", &[Limit::RatioToRaw(1.02)]),
    ("interop.frames.buffers", &[Limit::RatioToRaw(1.02)]),
    ("alloc", &[Limit::Figure("allocations_each", 0.0)]),
    ("scale.outstanding", SCALE),
    ("held.deep", HELD),
    ("held.waits", &[Limit::Within(1000.0)]),
    ("wait.any.10", WAIT_ANY),
    ("wait.any.1000", WAIT_ANY),
    ("wait.any.10000", WAIT_ANY),
    ("wait.cores", &[Limit::Figure("ratio_to_block", 1.5)]),
];
const SCALE: &[Limit] = &[
    Limit::Figure("own_bytes_each", 256.0),
    Limit::Figure("signal_to_that_with_100", 1.3),
    Limit::Figure("query_to_that_with_100", 1.3),
];
const HELD: &[Limit] = &[
    Limit::Figure("own_bytes_each", 256.0),
    Limit::Figure("hold_to_that_of_an_eighth", 1.5),
    Limit::Figure("release_to_that_of_an_eighth", 1.3),
];
const WAIT_ANY: &[Limit] = &[
    Limit::Figure("ratio_to_point_of_10", 1.5),
    Limit::Figure("wake_to_that_of_10", 1.5),
];

#[test]
fn the_limits_are_those_of_the_page() {
    let mut found = Vec::new();
    for row in rows::all() {
        if row.variants.iter().all(|variant| variant.limits.is_none()) {
            found.push((row.id.to_owned(), row.limits));
        }
        for variant in row.variants {
            let own = variant
                .limits
                .map(|own| (format!("{}, {}", row.id, variant.name), own));
            found.extend(own);
        }
    }
    found.retain(|(_, limits)| !limits.is_empty() && limit::to_recorded(limits).is_none());
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let mut expected = LIMITS
        .map(|(name, limits)| (name.to_owned(), limits))
        .to_vec();
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(found, expected);
}
