//! The command line, and the loop over all runs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::client::{Answer, Client};
use crate::drivers::Drivers;
use crate::exits::{self, Ending};
use crate::gates::Calls;
use crate::one_run::Ended;
use crate::plan::Run;
use crate::report::Report;
use crate::{codes, judge, plan, scenarios, server};

const USAGE: &str = "\
syncline-faults                     every run
syncline-faults --sample N          N of the runs
  --seed S                          which of them
  --scenario PART                   only scenarios with PART in their names
  --function PART                   only functions with PART in their names
  --out FILE                        write the table to FILE
  --swiftshader                     below the layer, and not lavapipe; VK_DRIVER_FILES must name it
  --limit SECONDS                   the time limit of a run, 60 unless given
  --jobs N                          N servers at a time, 6 unless given
  --verbose                         print every run
syncline-faults --exits N           N processes that end in the middle of chains; see the README
syncline-faults --drops N           N processes that end while their threads drop objects
syncline-faults --threads N         N processes with threads that open and drop devices, and end
  --gpu                             on the machine's own drivers
syncline-faults --one SCENARIO ORDER  one run; - for no order";

#[derive(Debug, Default)]
struct Options {
    sample: Option<usize>,
    seed: u64,
    scenario: String,
    function: String,
    out: Option<PathBuf>,
    verbose: bool,
    swiftshader: bool,
    jobs: usize,
    limit: Option<usize>,
}

/// Runs what the arguments ask for. False if a defect was found.
pub(crate) fn run() -> Result<bool, String> {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options {
        jobs: 6,
        ..Options::default()
    };
    let (mut ending, mut gpu) = (None, false);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| USAGE.to_owned());
        let number = |text: String| text.parse().map_err(|_| USAGE.to_owned());
        match argument.as_str() {
            "--server" => return server::serve().map(|()| true),
            "--peer" => return scenarios::process::run_peer(&value()?).map(|()| true),
            "--sample" => options.sample = Some(number(value()?)?),
            "--seed" => options.seed = number(value()?)? as u64,
            "--scenario" => options.scenario = value()?,
            "--function" => options.function = value()?,
            "--out" => options.out = Some(value()?.into()),
            "--jobs" => options.jobs = number(value()?)?.max(1),
            "--limit" => options.limit = Some(number(value()?)?),
            "--swiftshader" => options.swiftshader = true,
            "--verbose" => options.verbose = true,
            "--end-process" => return exits::run_child(Ending::Process, number(value()?)? as u64),
            "--end-drops" => return exits::run_child(Ending::Drops, number(value()?)? as u64),
            "--end-threads" => return exits::run_child(Ending::Threads, number(value()?)? as u64),
            "--exits" => ending = Some((Ending::Process, number(value()?)?)),
            "--drops" => ending = Some((Ending::Drops, number(value()?)?)),
            "--threads" => ending = Some((Ending::Threads, number(value()?)?)),
            "--gpu" => gpu = true,
            "--one" => return one(&value()?, &value()?),
            _ => return Err(USAGE.into()),
        }
    }
    let Some((ending, count)) = ending else {
        return every(&options);
    };
    let drivers = match gpu {
        true => None,
        false => Some(Drivers::prepare(None, options.swiftshader)?),
    };
    exits::run(ending, count, options.jobs, drivers.as_ref())
}

fn one(scenario: &str, order: &str) -> Result<bool, String> {
    let drivers = Drivers::prepare(None, false)?;
    let answer = Client::new(&drivers).run(scenario, (order != "-").then_some(order))?;
    println!("{answer:#?}");
    Ok(true)
}

fn every(options: &Options) -> Result<bool, String> {
    let drivers = Drivers::prepare(options.limit, options.swiftshader)?;
    let mut client = Client::new(&drivers);
    let mut runs = Vec::new();
    let mut missing = codes::cuda_functions();
    missing.extend(codes::VULKAN_FUNCTIONS);
    let mut left_out = false;
    for scenario in scenarios::named(&options.scenario) {
        // The first run in a process loads libraries, which open files.
        client.run(scenario.name, None)?;
        let Answer::Outcome(mut outcome) = client.run(scenario.name, None)? else {
            return Err(format!("{}: no answer without an order", scenario.name));
        };
        // The instance of the process is there already.
        if outcome.calls.contains_key("vkEnumeratePhysicalDevices") {
            let name = "vkCreateInstance";
            outcome.calls.insert(
                name.into(),
                Calls {
                    main: 1,
                    other: 0,
                    failed: 0,
                },
            );
        }
        if let Ended::Error { kind, text, .. } = &outcome.ended
            && kind == "Unavailable"
        {
            println!("{} is left out: {text}", scenario.name);
            left_out = true;
            continue;
        }
        if outcome.ended != Ended::Well || !outcome.left.is_empty() || !outcome.panics.is_empty() {
            return Err(format!("{}: {outcome:#?} without an order", scenario.name));
        }
        missing.retain(|name| !outcome.calls.contains_key(*name));
        let mut of_it = plan::runs(scenario.name, &outcome.calls);
        of_it.extend(plan::without_descriptors(scenario.name));
        println!(
            "{}: {} ms, {} runs",
            scenario.name,
            outcome.milliseconds,
            of_it.len()
        );
        runs.extend(
            of_it
                .into_iter()
                .filter(|run| run.function.contains(&options.function)),
        );
    }
    if runs.is_empty() && !left_out {
        return Err(format!(
            "no scenario calls a function whose name contains \"{}\", or codes.rs has no codes for it",
            options.function
        ));
    }
    if let Some(count) = options.sample {
        let known = plan::regressions(&runs);
        choose(&mut runs, count, options.seed);
        runs.extend(known);
    }
    let started = Instant::now();
    let report = run_all(&drivers, &runs, options)?;
    missing.retain(|name| !report.has_called(name));
    let whole = !left_out
        && options.sample.is_none()
        && options.scenario.is_empty()
        && options.function.is_empty();
    // SwiftShader's device has no function to read its clock.
    let missing = match whole && !options.swiftshader {
        true => missing,
        false => Vec::new(),
    };
    let text = report.text(&missing);
    print!("{text}");
    println!("{} s", started.elapsed().as_secs());
    if let Some(path) = &options.out {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(!report.has_defects() && missing.is_empty())
}

/// Makes all runs, in several servers at a time.
fn run_all(drivers: &Drivers, runs: &[Run], options: &Options) -> Result<Report, String> {
    let started = Instant::now();
    let (next, report) = (AtomicUsize::new(0), Mutex::new(Report::default()));
    let work = || -> Result<(), String> {
        let mut client = Client::new(drivers);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(number) else {
                return Ok(());
            };
            let answer = warm(&mut client, run)?;
            let called = called(&answer);
            let (class, why) = judge::judge(run, &answer);
            if options.verbose {
                println!("{} {}: {class}: {why}", run.scenario, run.order);
            }
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.add(run, class, why);
            report.note_called(called);
            if number % 500 == 499 {
                let (seconds, total) = (started.elapsed().as_secs(), runs.len());
                eprintln!("{} of {total} runs, {seconds} s", number + 1);
            }
        }
    };
    thread::scope(|scope| {
        let servers: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        servers.into_iter().try_for_each(|server| {
            let ended = server.join();
            ended.unwrap_or_else(|_| Err("a thread panicked".into()))
        })
    })?;
    Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs in a server that has run the scenario before, so that libraries are loaded.
fn warm(client: &mut Client<'_>, run: &Run) -> Result<Answer, String> {
    if client.is_fresh() {
        client.run(run.scenario, None)?;
    }
    client.run(run.scenario, Some(&run.order))
}

/// The functions that a run has called.
fn called(answer: &Answer) -> Vec<String> {
    match answer {
        Answer::Outcome(outcome) => outcome.calls.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

/// Keeps `count` runs, which the seed chooses.
fn choose(runs: &mut Vec<Run>, count: usize, seed: u64) {
    let mut state = seed ^ 0x9E37_79B9_7F4A_7C15;
    while runs.len() > count {
        // Xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let index = usize::try_from(state % runs.len() as u64).unwrap_or(0);
        runs.swap_remove(index);
    }
}
