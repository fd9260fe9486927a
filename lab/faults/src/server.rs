//! The server process: runs what its parent asks for, one run for each line of its input.

use std::io::{BufRead as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io, process, thread};

use crate::{one_run, scenarios};

/// A run takes no longer than this, unless the variable has another number of seconds.
const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const LIMIT_VARIABLE: &str = "SYNCLINE_FAULTS_LIMIT";
/// The exit code of a server whose run took too long.
pub(crate) const HANG: i32 = 86;

/// The number of the current run, or 0 between runs.
static RUN: AtomicU64 = AtomicU64::new(0);
static OUTPUT: Mutex<()> = Mutex::new(());

/// Answers lines `SCENARIO ORDER` until the input ends. `-` is no order.
pub(crate) fn serve() -> Result<(), String> {
    one_run::record_panics();
    let watchdog = thread::Builder::new().name("faults-watchdog".into());
    watchdog.spawn(watch).map_err(|error| error.to_string())?;
    let input = io::stdin().lock();
    for (number, line) in (1..).zip(input.lines()) {
        let line = line.map_err(|error| error.to_string())?;
        let (name, order) = line.split_once(' ').unwrap_or((&line, "-"));
        let scenario = scenarios::find(name).ok_or_else(|| format!("no scenario {name}"))?;
        RUN.store(number, Ordering::Relaxed);
        let outcome = one_run::run(scenario, (order != "-").then_some(order))?;
        RUN.store(0, Ordering::Relaxed);
        let text = serde_json::to_string(&outcome).map_err(|error| error.to_string())?;
        let _output = OUTPUT.lock();
        writeln!(io::stdout(), "{text}").map_err(|error| error.to_string())?;
    }
    // Objects and threads that a failed run has left do not hold up the end.
    process::exit(0);
}

/// Prints the stacks of all threads to standard error, if there is a debugger.
fn print_stacks() {
    let own = process::id().to_string();
    let stacks = process::Command::new("gdb")
        .args(["-q", "-batch", "-ex", "thread apply all bt 20", "-p", &own])
        .stdin(process::Stdio::null())
        .output();
    if let Ok(stacks) = stacks {
        let _ = io::stderr().write_all(&stacks.stdout);
    }
}

/// Ends the process when a run takes too long, and prints its threads.
fn watch() {
    let given = std::env::var(LIMIT_VARIABLE).ok();
    let given = given.and_then(|seconds| seconds.parse().ok());
    let limit = given.map_or(LIMIT, Duration::from_secs);
    let mut last = 0;
    let mut since = std::time::Instant::now();
    loop {
        thread::sleep(Duration::from_millis(100));
        let run = RUN.load(Ordering::Relaxed);
        if run != last {
            last = run;
            since = std::time::Instant::now();
        }
        if run != 0 && since.elapsed() > limit {
            let mut threads = Vec::new();
            for task in fs::read_dir("/proc/self/task")
                .into_iter()
                .flatten()
                .flatten()
            {
                let of =
                    |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
                threads.push(format!("{} ({})", of("comm").trim(), of("wchan").trim()));
            }
            print_stacks();
            let _output = OUTPUT.lock();
            let text = format!(
                "in {}; threads: {}",
                one_run::last_step(),
                threads.join(", ")
            );
            let _ = writeln!(io::stdout(), "HANG {text}");
            process::exit(HANG);
        }
    }
}
