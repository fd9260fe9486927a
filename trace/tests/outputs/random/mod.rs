//! Random recordings, also such as no device makes.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use syncline_core::clock::Estimate;
use syncline_core::info::{BackendKind, Uuid};
use syncline_core::trace::{Edge, HostSignal, Outcome, Recording, Submission, Track};

/// Times that are mostly close together, so that slices touch and overlap. Some are extreme.
fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => 0..400_i64,
        6 => 0..2_000_000_i64,
        1 => Just(i64::MIN),
        1 => Just(i64::MAX),
        1 => any::<i64>(),
    ]
}

fn estimate() -> impl Strategy<Value = Estimate> {
    let error = prop_oneof![4 => 0..50_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    (time(), error).prop_map(|(nanoseconds, error)| Estimate { nanoseconds, error })
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{1,8} [0-9]{1,3}",
        1 => Just(String::new()),
        1 => Just("<>&\"'\\\u{0}\u{1b}\u{7f}\n\u{ffff}\u{1f600}]]>".to_owned()),
        1 => ".{0,40}",
    ]
}

fn edge() -> impl Strategy<Value = Edge> {
    let timeline = prop_oneof![12 => 0..4_usize, 1 => any::<usize>()];
    let value = prop_oneof![12 => 0..12_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    (timeline, value).prop_map(|(timeline, value)| Edge { timeline, value })
}

fn submission() -> impl Strategy<Value = Submission> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Finished),
        1 => Just(Outcome::Pending),
        1 => name().prop_map(Outcome::Failed),
    ];
    (
        (0..12_u64, option::of(name()), time(), any::<bool>()),
        (
            option::weighted(0.8, time()),
            option::weighted(0.8, estimate()),
            option::weighted(0.8, estimate()),
        ),
        outcome,
        (vec(edge(), 0..4), vec(edge(), 0..4)),
    )
        .prop_map(
            |((number, label, made, held), (released, began, ended), outcome, (waits, signals))| {
                Submission {
                    number,
                    label,
                    made,
                    held,
                    released,
                    began,
                    ended,
                    outcome,
                    waits,
                    signals,
                }
            },
        )
}

fn track() -> impl Strategy<Value = Track> {
    let backend = prop_oneof![
        Just(BackendKind::Host),
        Just(BackendKind::Cuda),
        Just(BackendKind::Vulkan),
        Just(BackendKind::Other("<&>")),
    ];
    let gpu = option::of(any::<bool>().prop_map(|one| Uuid([u8::from(one); 16])));
    (
        (name(), name(), backend, gpu, 0..6_usize),
        vec(submission(), 0..14),
        prop_oneof![4 => Just(0), 1 => any::<u64>()],
        option::weighted(0.2, name()),
    )
        .prop_map(
            |((queue, device, backend, gpu, position), submissions, lost, untimed)| Track {
                queue,
                device,
                backend,
                gpu,
                position,
                submissions,
                lost,
                untimed,
            },
        )
}

/// Any recording.
pub(crate) fn recording() -> impl Strategy<Value = Recording> {
    let thread = prop_oneof![Just("main".to_owned()), name()];
    let signal =
        (time(), thread, edge()).prop_map(|(at, thread, signal)| HostSignal { at, thread, signal });
    (
        time(),
        time(),
        vec(track(), 0..5),
        vec(signal, 0..10),
        (vec(name(), 0..6), vec(any::<u64>(), 0..6)),
        prop_oneof![4 => Just(0), 1 => any::<u64>()],
    )
        .prop_map(
            |(begun, ended, tracks, host_signals, (timelines, reached_before), host_lost)| {
                Recording {
                    begun,
                    ended,
                    tracks,
                    host_signals,
                    host_lost,
                    timelines,
                    reached_before,
                }
            },
        )
}
