//! The list of rows.

#![cfg(all(feature = "cuda", feature = "vulkan"))]

use syncline_bench::rows;

const IDS: [&str; 33] = [
    "adopt.vulkan",
    "alloc",
    "batch",
    "contend",
    "cuda.chain",
    "cuda.external.signal",
    "cuda.external.wait",
    "cuda.graph.slots",
    "cuda.hop.submit",
    "cuda.query.pending",
    "cuda.query.reached",
    "cuda.submit.wait",
    "cuda.timestamp",
    "cuda.wbs.roundtrip",
    "cuda.word",
    "foreign.frames",
    "frame.cpu",
    "held.deep",
    "held.waits",
    "held.wide",
    "host.submit",
    "interop.frames",
    "interop.frames.buffers",
    "process.point",
    "scale.outstanding",
    "vulkan.host.signal",
    "vulkan.query",
    "vulkan.submit",
    "vulkan.submit.wait",
    "wait.any.10",
    "wait.any.1000",
    "wait.any.10000",
    "wait.cores",
];

#[test]
fn every_row_exists_once_with_descriptions_and_different_variants() {
    let mut there: Vec<_> = rows::all().iter().map(|row| row.id).collect();
    there.sort_unstable();
    assert_eq!(there, IDS);
    for row in rows::all() {
        assert!(
            !row.ours.is_empty() && !row.raw.is_empty() && !row.on.is_empty(),
            "{}",
            row.id
        );
        let mut names: Vec<_> = row.variants.iter().map(|variant| variant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), row.variants.len(), "{}", row.id);
    }
}
