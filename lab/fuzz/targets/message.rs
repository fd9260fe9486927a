//! Any bytes as a message. They are an error, or a message that encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| syncline::process::fuzzing::message(bytes));
