//! Runs the examples of README.md and of the pages in docs/ on the devices that this machine has.
//!
//! The host backend takes the part of CUDA if there is no CUDA. Each example is a file here, or one
//! of `interop/examples/`, which run in `cli/tests/command/examples.rs`. Its document contains the
//! same text.

#![allow(unsafe_code, reason = "submits as an application does")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod compared;
mod faq;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::scope;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::vulkan::ash::vk;
use syncline::{
    Device, Error, Inventory, ProbeOptions, Queue, QueueKind, Timeline, connect, host, vulkan,
    wait::Signaller,
};

/// Time limit for everything that ends by itself.
const LONG: Duration = Duration::from_secs(30);

/// Compiles an example as a module, and keeps its text.
macro_rules! example {
    ($name:ident, $file:literal $(, $more:item)?) => {
        #[allow(
            dead_code,
            clippy::all,
            clippy::pedantic,
            clippy::nursery,
            unreachable_pub,
            reason = "the text of a document"
        )]
        mod $name {
            include!($file);
            pub(super) const TEXT: &str = include_str!($file);
            $($more)?
        }
    };
}

example!(
    from_cuda_to_vulkan,
    "from_cuda_to_vulkan.rs",
    pub(super) fn run() -> syncline::Result<()> {
        main()
    }
);
example!(a_trace, "a_trace.rs");
example!(how_long_it_took, "how_long_it_took.rs");
example!(your_own_submissions, "your_own_submissions.rs");

/// The files with an extension in a folder and those below it, other than hidden and built ones.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            } else if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            }
        }
    }
    found
}

/// Returns the Rust code blocks of a document.
fn blocks(document: &str) -> Vec<&str> {
    let blocks = document.split("```rust").skip(1);
    let blocks = blocks.filter_map(|block| block.split_once("```"));
    blocks
        .map(|(block, _)| block.trim_start_matches(|c| c != '\n').trim())
        .collect()
}

/// Every example of a document is run, with the same text.
#[test]
fn what_the_documents_show_is_what_is_run() {
    let example = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let text = fs::read_to_string(path.join(name).with_extension("rs")).unwrap();
        text.trim().to_owned()
    };
    let opencl = include_str!("../../../../tests/examples/opencl/tests/readme/frames.rs");
    let pages: [(&str, Vec<String>); 10] = [
        (
            "tests/examples/opencl/README.md",
            vec![opencl.trim().into()],
        ),
        ("README.md", vec![example("cuda_to_vulkan")]),
        ("interop/README.md", vec![example("cuda_to_vulkan")]),
        (
            "docs/tutorial.md",
            ["hello", "in_flight", "failure", "trace"]
                .map(example)
                .into(),
        ),
        (
            "docs/sharing.md",
            vec![example("image"), from_cuda_to_vulkan::TEXT.trim().into()],
        ),
        ("docs/processes.md", vec![example("server")]),
        ("docs/tracing.md", vec![a_trace::TEXT.trim().into()]),
        ("docs/timing.md", vec![how_long_it_took::TEXT.trim().into()]),
        (
            "docs/adopt.md",
            vec![
                example("own_submission"),
                your_own_submissions::TEXT.trim().into(),
            ],
        ),
        ("docs/presenting.md", vec![example("window/main")]),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (page, shown) in &pages {
        let text = fs::read_to_string(root.join(page)).unwrap();
        assert_eq!(blocks(&text), *shown, "{page}");
    }
    let is_shown = |page: &PathBuf| pages.iter().any(|(shown, _)| root.join(shown) == *page);
    let others: Vec<_> = files(root, "md")
        .into_iter()
        .filter(|page| !is_shown(page))
        .collect();
    assert!(others.len() > 40, "{others:?}");
    for other in others {
        let text = fs::read_to_string(&other).unwrap();
        assert_eq!(blocks(&text), Vec::<&str>::new(), "{other:?}");
    }
}

/// The facade shows items of these crates. What they import for their own documentation alone is
/// missing when they are compiled as dependencies, and their links are plain text then.
#[test]
fn links_of_the_facade_need_no_build_of_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = ["core/src", "backend-cuda/src", "backend-vulkan/src"];
    let all = folders.map(|folder| files(&root.join(folder), "rs"));
    assert!(all.iter().all(|found| found.len() > 10), "{all:?}");
    for file in all.iter().flatten() {
        let text = fs::read_to_string(file).unwrap();
        assert!(!names_doc(&text), "{}", file.display());
    }
    assert!(names_doc("#[cfg(any(\n    doc,\n    test,\n))]"));
    assert!(names_doc("if cfg!(doc) {}"));
    assert!(!names_doc("#[cfg(feature = \"docs\")]\n#[doc(hidden)]"));
}

/// True if a `cfg` has the word `doc` in its condition.
fn names_doc(text: &str) -> bool {
    let after = ["cfg(", "cfg!("]
        .into_iter()
        .flat_map(|cfg| text.split(cfg).skip(1));
    let mut conditions = after.map(|rest| {
        let mut depth = 1;
        let end = rest.find(|letter| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            depth == 0
        });
        &rest[..end.unwrap_or(rest.len())]
    });
    let is_between = |letter: char| !letter.is_alphanumeric() && letter != '_';
    conditions.any(|condition| condition.split(is_between).any(|word| word == "doc"))
}

/// The architecture page has at most 8000 characters and names only files that exist.
///
/// The index of decisions lists each decision, and each has ten to thirty lines.
#[test]
fn the_architecture_page_is_short_and_its_paths_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = include_str!("../../../../ARCHITECTURE.md");
    let length = page.chars().count();
    assert!(length <= 8000, "{length} characters");
    let decisions = root.join("docs/decisions");
    let index = fs::read_to_string(decisions.join("README.md")).unwrap();
    let mut texts = vec![page.to_owned()];
    for entry in fs::read_dir(&decisions).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let listed = name == "README.md" || index.contains(&format!("]({name})"));
        assert!(listed, "{name} is not in the index");
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        let is_short = name == "README.md" || (10..=30).contains(&lines);
        assert!(is_short, "{name} has {lines} lines");
        texts.push(text);
    }
    let crates = [
        "core/", "backend-", "interop/", "tests/", "lab/", "demo/", "cli/",
    ];
    let quoted = texts
        .iter()
        .flat_map(|text| text.split('`').skip(1).step_by(2));
    let paths: Vec<_> = quoted
        .filter(|path| crates.iter().any(|begin| path.starts_with(begin)))
        .filter(|path| path.ends_with(".rs") || path.ends_with('/'))
        .collect();
    assert!(paths.len() > 30, "{paths:?}");
    for path in paths {
        assert!(root.join(path).exists(), "{path} does not exist");
    }
}

#[test]
fn from_cuda_to_vulkan_runs() {
    let _alone = crate::alone();
    from_cuda_to_vulkan::run().unwrap();
}

/// What an application brings: a Vulkan device, a queue of it, and commands.
struct Application {
    device: vulkan::Device,
    queue: vulkan::Queue,
    pool: vk::CommandPool,
    commands: vk::CommandBuffer,
}

impl Application {
    /// Returns `None` if there is no Vulkan device.
    fn new() -> Option<Self> {
        let inventory = Inventory::probe(&ProbeOptions::default());
        let Ok(Device::Vulkan(device)) = inventory.select("vulkan").and_then(|found| found.open())
        else {
            eprintln!("not run: there is no Vulkan device");
            return None;
        };
        let queue = device.queue(QueueKind::Graphics, "own").unwrap();
        // SAFETY: the arguments are valid and of this device. `drop` destroys the pool.
        let (pool, commands) = unsafe {
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(queue.family());
            let pool = device.raw().create_command_pool(&info, None).unwrap();
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(pool)
                .command_buffer_count(1);
            let commands = device.raw().allocate_command_buffers(&info).unwrap()[0];
            let begin = vk::CommandBufferBeginInfo::default()
                .flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
            device.raw().begin_command_buffer(commands, &begin).unwrap();
            device.raw().end_command_buffer(commands).unwrap();
            (pool, commands)
        };
        Some(Self {
            device,
            queue,
            pool,
            commands,
        })
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A wrong submission may never finish.
            return;
        }
        // SAFETY: the device is idle, and only this value uses the pool.
        unsafe {
            let _guard = self.queue.lock();
            let _ = self.device.raw().device_wait_idle();
            self.device.raw().destroy_command_pool(self.pool, None);
        }
    }
}

/// Returns a CUDA device and a queue that reads. Falls back to the host backend.
fn reader() -> (Device, Queue) {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let cuda = inventory.select("cuda").and_then(|found| found.open());
    let is_required = std::env::var_os("SYNCLINE_REQUIRE_CUDA").is_some();
    assert!(cuda.is_ok() || !is_required, "{cuda:?}");
    let device = cuda.unwrap_or_else(|_| host::Device::new().into());
    let queue = device.queue(QueueKind::Compute, "reads").unwrap();
    (device, queue)
}

/// Runs `example`, which claims `value` of `line`, and signals `gate` once the claim exists.
///
/// `gate` releases the queue that signals the value before `value`.
fn behind_another_queue(
    line: &Timeline,
    value: u64,
    gate: &Timeline,
    example: impl FnOnce() -> syncline::Result<()> + Send,
) {
    scope(|scope| {
        let ends = scope.spawn(example);
        let claimed = || {
            let told = line.at(value).blockers();
            told.steps()
                .first()
                .is_some_and(|step| step.by != Signaller::None)
        };
        let begin = Instant::now();
        while !claimed() && !ends.is_finished() {
            assert!(begin.elapsed() < LONG, "the example claims no value");
            std::thread::yield_now();
        }
        // The example has claimed, so it waits for the value before its own.
        let other = line.at(value - 1).is_pending();
        assert!(matches!(other, Ok(false)), "{other:?}");
        gate.signal(1).unwrap();
        ends.join().unwrap().unwrap();
    });
    assert_eq!(line.value().unwrap(), value);
}

#[test]
fn your_own_submissions_run() {
    let _alone = crate::alone();
    let Some(own) = Application::new() else {
        return;
    };
    let [waited, line, gate] =
        ["waited", "line", "gate"].map(|label| own.device.timeline(label).unwrap());
    let run = |n| {
        let Application {
            device,
            queue,
            commands,
            ..
        } = &own;
        your_own_submissions::submit(device, queue, *commands, waited.at(n), &line, n)
    };
    let other = own.device.queue(QueueKind::Compute, "other").unwrap();
    for n in 1..4 {
        other
            .submit(&[], |_| Ok(()), &[waited.signal_at(n)])
            .unwrap();
    }
    run(1).unwrap();
    other
        .submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(2)])
        .unwrap();
    behind_another_queue(&line, 3, &gate, || {
        run(3)?;
        line.at(3).wait(LONG)
    });
    // A failed wait ends the call. The value can be claimed again.
    waited.fail(Error::work("broken"));
    assert!(matches!(run(4), Err(Error::Failed { .. })));
    line.signal(4).unwrap();
    other.idle(LONG).unwrap();
}

#[test]
fn how_long_it_took_runs() {
    let _alone = crate::alone();
    let inventory = Inventory::probe(&ProbeOptions::default());
    let (device, cuda) = reader();
    let vulkan = inventory.select("vulkan").and_then(|found| found.open());
    let vulkan = vulkan.unwrap_or_else(|_| host::Device::new().into());
    let frames = connect(&device, &vulkan).timeline("frames").unwrap();
    let queue = vulkan.queue(QueueKind::Graphics, "shades").unwrap();
    how_long_it_took::frame_time(&cuda, &queue, &frames, 1).unwrap();
    cuda.idle(LONG).unwrap();
    queue.idle(LONG).unwrap();
}

/// The run of each submission is in both files.
#[test]
fn a_trace_is_written() {
    let _alone = crate::alone();
    let device = Device::from(host::Device::new());
    let queues = ["first", "second"].map(|label| device.queue(QueueKind::Compute, label).unwrap());
    let line = device.timeline("line").unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace");
    fs::create_dir_all(&folder).unwrap();
    let work = || {
        queues[1].submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
        queues[0].submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
        line.at(2).wait(LONG)
    };
    a_trace::record(&queues, work, &folder).unwrap();
    let json = fs::read_to_string(folder.join("trace.json")).unwrap();
    let contents = syncline_trace::check::trace(&json).unwrap();
    assert_eq!(contents.slices, 2, "{json}");
    let picture = fs::read_to_string(folder.join("trace.svg")).unwrap();
    assert!(picture.contains("first") && picture.contains("second"));
}
