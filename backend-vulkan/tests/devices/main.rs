//! The backend on every Vulkan device of the machine.

mod binary;
mod clock;
mod common;
mod external;
mod raw;
mod submissions;

fn main() -> std::process::ExitCode {
    let tests = [
        submissions::tests(),
        external::tests(),
        binary::tests(),
        raw::tests(),
        clock::tests(),
    ];
    common::run(tests.concat())
}
