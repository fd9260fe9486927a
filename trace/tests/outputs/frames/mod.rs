//! A made-up recording of a frame pipeline over CUDA, Vulkan and the host.

#![allow(clippy::unwrap_used, reason = "made-up numbers are small")]

use syncline_core::clock::Estimate;
use syncline_core::info::BackendKind;
use syncline_core::info::Uuid;
use syncline_core::trace::{Edge, HostSignal, Outcome, Recording, Submission, Track};

const QUEUES: [(&str, &str, BackendKind); 5] = [
    ("graphics", "NVIDIA H200", BackendKind::Vulkan),
    ("transfer", "NVIDIA H200", BackendKind::Vulkan),
    ("filter", "NVIDIA H200", BackendKind::Cuda),
    ("copy", "NVIDIA H200", BackendKind::Cuda),
    ("encode", "16 threads", BackendKind::Host),
];

/// The timelines that the application signals.
const DRAWN: usize = 0;
const FILTERED: usize = 1;
const COPIED: usize = 2;
const SLOTS: usize = 3;
const UPLOADED: usize = 4;

/// Makes a recording of `count` frames, three of them in flight.
///
/// Vulkan uploads and draws them, CUDA filters and copies them, and the host encodes them.
pub(crate) fn frames(count: u64) -> Recording {
    let mut recording = Recording {
        begun: 7_000_000_000_123,
        timelines: ["drawn", "filtered", "copied", "slots", "uploaded"]
            .map(str::to_owned)
            .to_vec(),
        ..Recording::default()
    };
    for (queue, device, backend) in QUEUES {
        recording.tracks.push(Track {
            queue: queue.into(),
            device: device.into(),
            backend,
            gpu: (backend != BackendKind::Host).then_some(Uuid([0x5a; 16])),
            position: recording.timelines.len(),
            submissions: Vec::new(),
            lost: 0,
            untimed: None,
        });
        recording.timelines.push(format!("position of {queue}"));
    }
    // When each queue is free, and when the last frames were encoded.
    let mut free = [0_i64; QUEUES.len()];
    let mut encoded = Vec::new();
    let mut dice = 88_172_645_463_325_252_u64;
    let mut jitter = |most: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        i64::try_from(dice % most).unwrap()
    };
    let mut made = 40_000_i64;
    for frame in 1..=count {
        // The application keeps three frames in flight.
        let gate = frame
            .checked_sub(4)
            .map(|before| encoded[usize::try_from(before).unwrap()]);
        let slot = gate.unwrap_or(0).max(made) + 9_000 + jitter(4_000);
        if frame > 3 {
            recording.host_signals.push(HostSignal {
                at: recording.begun + slot,
                thread: "main".into(),
                signal: edge(SLOTS, frame),
            });
        }
        let mut at = made;
        let mut ready = if frame > 3 { slot } else { made };
        let steps: [(usize, i64, Vec<Edge>, Edge, &str); 5] = [
            (
                1,
                130_000 + jitter(40_000),
                vec![],
                edge(UPLOADED, frame),
                "upload",
            ),
            (
                0,
                820_000 + jitter(160_000),
                if frame > 3 {
                    vec![edge(UPLOADED, frame), edge(SLOTS, frame)]
                } else {
                    vec![edge(UPLOADED, frame)]
                },
                edge(DRAWN, frame),
                "draw",
            ),
            (
                2,
                900_000 + jitter(200_000),
                vec![edge(DRAWN, frame)],
                edge(FILTERED, frame),
                "filter",
            ),
            (
                3,
                240_000 + jitter(60_000),
                vec![edge(FILTERED, frame)],
                edge(COPIED, frame),
                "copy",
            ),
            (
                4,
                420_000 + jitter(220_000),
                vec![edge(COPIED, frame)],
                edge(9 + 4, frame),
                "encode",
            ),
        ];
        for (queue, takes, waits, signal, what) in steps {
            at += 6_000 + jitter(3_000);
            // Held are waits for the host's signals, and waits for another API that the driver
            // cannot make.
            let held = queue == 4 || queue == 0 && frame > 3;
            if queue == 1 {
                ready = ready.min(at);
            }
            let released = if held {
                ready.max(at) + 1_500
            } else {
                at + 900
            };
            if queue == 0 && frame > 3 {
                ready = ready.max(slot);
            }
            let begin = ready.max(free[queue]).max(released) + 4_000 + jitter(3_000);
            let end = begin + takes;
            free[queue] = end;
            ready = end;
            let error = if queue == 4 { 0 } else { 2_700 };
            let time = |nanoseconds| {
                let nanoseconds = recording.begun + nanoseconds;
                Some(Estimate { nanoseconds, error })
            };
            let (began, ended) = (time(begin), time(end));
            recording.tracks[queue].submissions.push(Submission {
                number: frame,
                label: Some(format!("{what} {frame}")),
                made: recording.begun + at,
                held,
                released: Some(recording.begun + released),
                began,
                ended,
                outcome: Outcome::Finished,
                waits,
                signals: if queue == 4 { vec![] } else { vec![signal] },
            });
            if queue == 1 {
                ready = end.max(if frame > 3 { slot } else { 0 });
            }
        }
        encoded.push(free[4]);
        recording.ended = recording.begun + free[4] + 30_000;
        made = (made + 1_050_000).max(slot - 1_900_000);
    }
    recording
}

pub(crate) fn edge(timeline: usize, value: u64) -> Edge {
    Edge { timeline, value }
}
