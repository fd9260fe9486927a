//! A live endpoint whose peer does what the input says.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| syncline::process::fuzzing::endpoint(script));
