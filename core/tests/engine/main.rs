//! The engine through its public interface: the host backend, and drivers that a test controls.
//!
//! Tests that count or limit what belongs to the whole process are in `tests/process`.

mod authors;
mod blockers;
mod bridges;
mod faults;
mod homes;
mod in_flight;
mod leading;
mod lost_device;
mod model;
mod natively;
mod not_now;
mod panicking;
mod regressions;
mod script;
mod trace;
mod unused;
mod watching;
mod words;

/// Waits until `done` is true, for 20 seconds at most.
fn until(what: &str, done: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed().as_secs() < 20, "{what}");
        std::thread::yield_now();
    }
}
