//! The rows are those that were asked for, each once.

#![cfg(all(feature = "cuda", feature = "vulkan"))]

use syncline_bench::rows;

const ASKED: [&str; 39] = [
    "cuda.hop.submit",
    "cuda.chain",
    "cuda.query.reached",
    "cuda.query.pending",
    "cuda.submit.wait",
    "cuda.wbs.roundtrip",
    "cuda.external.signal",
    "cuda.external.wait",
    "cuda.timestamp",
    "vulkan.submit",
    "vulkan.query",
    "vulkan.submit.wait",
    "vulkan.host.signal",
    "interop.pingpong.transfer",
    "interop.pingpong.compute",
    "interop.frames",
    "interop.trace",
    "any.dispatch",
    "host.pingpong",
    "host.submit",
    "wait.any.10",
    "wait.any.1000",
    "wait.any.10000",
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
];

#[test]
fn every_row_exists_once() {
    let mut asked = ASKED.to_vec();
    let mut there: Vec<_> = rows::all().iter().map(|row| row.id).collect();
    asked.sort_unstable();
    there.sort_unstable();
    assert_eq!(there, asked);
}

#[test]
fn rows_that_look_like_an_application_have_a_limit_to_an_earlier_recording() {
    let mut limited: Vec<_> = rows::all()
        .iter()
        .filter(|row| row.bar.limit_to_recorded() == Some(1.2))
        .map(|row| row.id)
        .collect();
    let mut asked = ASKED[31..].to_vec();
    limited.sort_unstable();
    asked.sort_unstable();
    assert_eq!(limited, asked);
}

#[test]
fn every_row_says_what_it_does_and_what_is_asked() {
    for row in rows::all() {
        assert!(!row.ours.is_empty() && !row.raw.is_empty(), "{}", row.id);
        assert!(!row.floor.to_string().is_empty(), "{}", row.id);
        assert!(!row.on.is_empty(), "{}", row.id);
        assert!(!row.bar.to_string().is_empty(), "{}", row.id);
        let mut names: Vec<_> = row.variants.iter().map(|variant| variant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), row.variants.len(), "{}", row.id);
    }
}
