//! Checks that the fields of a struct are private to its file, so that other files use methods.
//!
//! The compiler checks private fields, but lets child modules use those of their parent. So a file
//! with child modules may have no struct. Open fields are only for the records of [`OPEN`].

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::repository;

const CRATES: &[&str] = &["core", "backend-cuda", "backend-vulkan", "interop"];

/// The structs whose fields other files of the crate use, by the reason.
const OPEN: &[(&str, &[&str])] = &[
    (
        "values that belong together, without an invariant",
        &[
            "backend-cuda/src/queue/graph_launch.rs Executable",
            "backend-cuda/src/queue/graph_launch.rs Points",
            "backend-cuda/src/queue/graph_launch.rs SlotNode",
            "backend-cuda/src/queue/queue_stream.rs End",
            "core/src/held/node.rs Edges",
            "core/src/queue/held_list.rs HeldSubmission",
            "core/src/queue/submission.rs OnHost",
            "core/src/queue/submission.rs Submission",
            "core/src/timeline/held_index.rs NodeId",
            "core/src/timeline/interval.rs Interval",
            "core/src/timeline/point.rs KeptPoint",
            "core/src/timeline/state/signals.rs NewClaim",
            "core/src/timeline/times/local.rs NextSignal",
            "interop/src/negotiate/fit.rs Fit",
        ],
    ),
    (
        "arguments of public methods, which only the engine makes",
        &[
            "core/src/driver/enqueue.rs Batch",
            "core/src/driver/enqueue.rs Waker",
            "core/src/timeline/point.rs NativePoint",
            "core/src/timeline/point.rs Point",
            "core/src/timeline/point.rs Signal",
        ],
    ),
    (
        "parts with methods of their own, for the steps in the other files of the folder",
        &["core/src/queue/submission_queue.rs SubmissionQueue"],
    ),
    (
        "what one lock protects, each part with methods of its own",
        &[
            "core/src/queue/state.rs State",
            "core/src/timeline/state/locked.rs State",
        ],
    ),
    (
        "data of a driver, of a message or of shared memory, as it is there",
        &[
            "backend-cuda/src/driver/memory_ops.rs Valued",
            "backend-cuda/src/driver/pointer.rs PointerInfo",
            "backend-cuda/src/driver/table.rs Code",
            "backend-cuda/src/driver/table.rs EventHandle",
            "backend-cuda/src/driver/table.rs LaunchConfig",
            "backend-cuda/src/driver/table.rs MemOp",
            "backend-cuda/src/driver/table.rs Raw",
            "backend-vulkan/src/device/physical.rs Family",
            "core/src/memory/counter/page.rs Cause",
            "core/src/memory/counter/page.rs Loss",
            "core/src/memory/counter/page.rs PageLayout",
            "interop/src/negotiate/party.rs Party",
            "interop/src/negotiate/party.rs Queues",
            "interop/src/process/control.rs Received",
            "interop/src/process/control.rs Sender",
            "interop/src/process/extent.rs Extent",
            "interop/src/process/handover.rs OutgoingObject",
            "interop/src/process/message.rs Handle",
            "interop/src/process/message.rs Offer",
            "interop/src/process/parties.rs Agreed",
            "interop/src/process/wire.rs Malformed",
            "interop/src/process/wire.rs TooMuch",
        ],
    ),
    (
        "used by tests only",
        &[
            "backend-cuda/src/driver/emulated.rs Pointed",
            "backend-cuda/src/driver/emulated.rs SharedEvents",
            "backend-cuda/src/queue/steps/tracer.rs Counts",
            "core/src/clock/truth.rs Truth",
        ],
    ),
];

/// A struct or union in the text of a file.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    name: String,
    has_open_fields: bool,
}

/// The structs in `text`, as rustfmt writes them. Unit tests at the end of a file do not count.
fn structs(text: &str) -> Vec<Found> {
    let (text, _) = text.split_once("\nmod tests {").unwrap_or((text, ""));
    let mut all: Vec<Found> = Vec::new();
    let mut is_public = false;
    let mut is_inside = false;
    for line in text.lines() {
        let start = line.strip_prefix("pub ");
        let rest = start.unwrap_or_else(|| without_visibility(line));
        let named = ["struct ", "union "]
            .iter()
            .find_map(|keyword| rest.strip_prefix(keyword));
        if let Some(named) = named {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length = named.find(|c| !is_word(c)).unwrap_or(named.len());
            let (name, fields) = named.split_at(length);
            is_public = start.is_some();
            is_inside = !line.ends_with(';');
            all.push(Found {
                name: name.into(),
                has_open_fields: fields.contains("pub(") || !is_public && fields.contains("pub "),
            });
        } else if line.starts_with('}') {
            is_inside = false;
        } else if let Some(last) = all.last_mut().filter(|_| is_inside) {
            let field = line.trim_start();
            last.has_open_fields |=
                field.starts_with("pub(") || !is_public && field.starts_with("pub ");
        }
    }
    all
}

/// `line` without `pub(crate)` and the like in front of it.
fn without_visibility(line: &str) -> &str {
    let after = line
        .strip_prefix("pub(")
        .and_then(|rest| rest.split_once(") "));
    after.map_or(line, |(_, rest)| rest)
}

/// True if the file declares modules in other files, apart from its tests.
fn has_child_modules(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let module = without_visibility(line).strip_prefix("mod ");
        module.is_some_and(|name| name.ends_with(';') && name != "tests;")
    })
}

/// Calls `visit` with the path from the repository and the text of each source file in `folder`.
fn each_file(folder: &Path, visit: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            each_file(&path, visit);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).expect("a file");
            let name = path.strip_prefix(repository()).expect("a path below it");
            visit(&name.to_string_lossy().replace('\\', "/"), &text);
        }
    }
}

#[test]
fn fields_are_private_to_their_file() {
    let mut open = BTreeSet::new();
    let mut parents = Vec::new();
    for folder in CRATES {
        each_file(&repository().join(folder).join("src"), &mut |path, text| {
            let all = structs(text);
            if has_child_modules(text) {
                parents.extend(all.iter().map(|found| format!("{path} {}", found.name)));
            }
            let with_open_fields = all.iter().filter(|found| found.has_open_fields);
            open.extend(with_open_fields.map(|found| format!("{path} {}", found.name)));
        });
    }
    let none: [String; 0] = [];
    assert_eq!(parents, none, "structs in files with child modules");
    let listed = OPEN.iter().flat_map(|(_, structs)| *structs);
    let listed: BTreeSet<String> = listed.map(|&name| name.to_owned()).collect();
    let new: Vec<_> = open.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&open).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "new: {new:?}; gone: {gone:?}"
    );
}

#[test]
fn open_fields_are_found() {
    let text = "\
pub struct Public {
    pub value: u64,
}

pub(crate) struct Inner<T> {
    value: T,
    pub(super) other: u64,
}

struct Local {
    pub value: u64,
}

struct Closed {
    value: u64,
}

pub struct Tuple(u8, pub(crate) u64);

struct Unit;

impl Unit {
    pub(super) fn call(&self) {}
}

#[cfg(test)]
mod tests {
    struct OfTests {
        pub(super) value: u64,
    }
}
";
    let found = structs(text);
    let found: Vec<_> = found
        .iter()
        .map(|found| (found.name.as_str(), found.has_open_fields))
        .collect();
    let expected = [
        ("Public", false),
        ("Inner", true),
        ("Local", true),
        ("Closed", false),
        ("Tuple", true),
        ("Unit", false),
    ];
    assert_eq!(found, expected);
    for (text, has) in [
        ("mod a;\n", true),
        ("pub(crate) mod a;\n", true),
        ("mod tests;\n", false),
        ("mod a {\n}\n", false),
    ] {
        assert_eq!(has_child_modules(text), has, "{text}");
    }
}
