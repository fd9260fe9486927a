//! Prints how a CUDA driver behaves, a line for each question.
#![allow(unsafe_code, reason = "calls a driver and the system as C programs do")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

mod compare;
mod cuda;
mod families;
mod harness;
mod kit;
mod vulkan;

use std::process::ExitCode;

const USAGE: &str = "\
Prints how a CUDA driver behaves, a line for each question.

Usage: probes [--driver PATH] [--jobs N] [--list] [FILTER...]
       probes compare OLD NEW [KNOWN]

A filter is a part of a question's name. `compare` prints the lines in which two records differ,
without those whose answer begins with `~`, and ends with 1 if there are any. Families that NEW does
not have are left out. KNOWN lists differences with their reasons, in lines of `NAME | REASON`, where `*`
stands for any text. They are left out, and each has to be one.";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut driver = "libcuda.so.1".to_owned();
    let mut filters = Vec::new();
    let (mut list, mut jobs) = (false, 1);
    let (mut asked, mut is_peer) = (None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "compare" => return compare(&arguments.collect::<Vec<_>>()),
            "--list" => list = true,
            "--driver" => driver = arguments.next().unwrap_or_default(),
            "--jobs" => {
                jobs = arguments
                    .next()
                    .and_then(|jobs| jobs.parse().ok())
                    .unwrap_or(1);
            }
            // How this command starts itself.
            "--answer" => asked = arguments.next(),
            "--peer" => is_peer = true,
            _ if argument.starts_with('-') => {
                println!("{USAGE}");
                return ExitCode::from(if argument == "--help" { 0 } else { 2 });
            }
            _ => filters.push(argument),
        }
    }
    let probes = families::all();
    if list {
        for probe in probes.iter().filter(|probe| chosen(&probe.name, &filters)) {
            println!("{}", probe.name);
        }
        return ExitCode::SUCCESS;
    }
    if let Err(error) = cuda::load(&driver) {
        eprintln!("{driver} cannot be loaded: {error}");
        return ExitCode::from(2);
    }
    harness::keep_driver(&driver);
    if is_peer {
        harness::die_with_parent();
        families::ipc::exporter();
        harness::leave();
    }
    if let Some(asked) = asked {
        return match probes.iter().find(|probe| probe.name == asked) {
            Some(probe) => harness::ask_here(probe),
            None => ExitCode::from(2),
        };
    }
    let chosen: Vec<_> = probes
        .into_iter()
        .filter(|probe| chosen(&probe.name, &filters))
        .collect();
    harness::run(&chosen, &driver, jobs);
    ExitCode::SUCCESS
}

fn chosen(name: &str, filters: &[String]) -> bool {
    filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
}

fn compare(files: &[String]) -> ExitCode {
    let (old, new, known) = match files {
        [old, new] => (old, new, None),
        [old, new, known] => (old, new, Some(known)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let read = |file: &String| {
        std::fs::read_to_string(file).map_err(|error| eprintln!("{file} cannot be read: {error}"))
    };
    let known = known.map_or_else(|| Ok(String::new()), read);
    let (Ok(old), Ok(new), Ok(known)) = (read(old), read(new), known) else {
        return ExitCode::from(2);
    };
    let known = match compare::Known::read(&known) {
        Ok(known) => known,
        Err(line) => {
            eprintln!("\"{line}\" is not of the form NAME | REASON");
            return ExitCode::from(2);
        }
    };
    let families = compare::families(&new);
    let differences = compare::differences(&old, &new, &families);
    let differences = known.check(&differences, &families);
    for difference in &differences {
        println!("{difference}");
    }
    ExitCode::from(u8::from(!differences.is_empty()))
}
