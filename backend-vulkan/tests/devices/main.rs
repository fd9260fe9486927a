//! The backend on every Vulkan device of the machine.

mod allocations;
mod binary;
mod clock;
mod common;
mod exits;
mod external;
mod images;
mod memory;
mod raw;
mod submissions;

fn main() -> std::process::ExitCode {
    if let Some(code) = exits::child() {
        return code;
    }
    let tests = [
        submissions::tests(),
        external::tests(),
        memory::tests(),
        binary::tests(),
        allocations::tests(),
        images::tests(),
        raw::tests(),
        clock::tests(),
        exits::tests(),
    ];
    common::run(tests.concat())
}
