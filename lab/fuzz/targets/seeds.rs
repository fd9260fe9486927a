//! Writes first inputs into the directory that is its argument.
//!
//! These are messages of each kind, and scripts of each action.

use std::path::Path;

// Links the library that the fuzzer's instrumentation calls.
use libfuzzer_sys as _;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: seeds DIRECTORY");
        std::process::exit(2);
    };
    let folder = Path::new(&folder);
    let (messages, scripts) = (folder.join("message"), folder.join("endpoint"));
    for (folder, seeds) in [
        (messages, syncline::process::fuzzing::messages()),
        (scripts, syncline::process::fuzzing::scripts()),
    ] {
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
