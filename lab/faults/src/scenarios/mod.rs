//! Scenarios: what an application does with devices, in one function each.
//!
//! They open all that they use, and drop it before they return. They check what the devices have
//! computed. Every wait has a time limit, so a lost signal shows as a time-out.

pub(crate) mod cuda;
mod events;
mod host;
mod images;
mod planted;
pub(crate) mod process;
mod vulkan;

use std::fmt::Display;
use std::time::Duration;

use syncline::{Error, handle::Rejected};

/// The time limit of waits. On a busy machine, a second process takes seconds to start.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The reason why a scenario ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    Error(Error),
    Wrong(String),
    /// The other process ended with this error.
    Peer(String),
    /// A call of the scenario itself failed, which no library makes.
    Own(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl<H> From<Rejected<H>> for Stop {
    fn from(rejected: Rejected<H>) -> Self {
        Self::Error(rejected.error)
    }
}

pub(crate) type Verdict<T = ()> = Result<T, Stop>;

/// A scenario, which a name finds.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Verdict,
}

/// All scenarios.
pub(crate) fn all() -> impl Iterator<Item = &'static Scenario> {
    cuda::SCENARIOS
        .iter()
        .chain(vulkan::SCENARIOS)
        .chain(images::SCENARIOS)
        .chain(host::SCENARIOS)
        .chain(process::SCENARIOS)
}

/// The scenario with this name, which may have a planted defect.
pub(crate) fn find(name: &str) -> Option<&'static Scenario> {
    let mut every = all().chain(planted::SCENARIOS);
    every.find(|scenario| scenario.name == name)
}

/// The scenarios with `part` in their names.
///
/// Those with planted defects only if the name begins so.
pub(crate) fn named(part: &str) -> Vec<&'static Scenario> {
    let planted = planted::SCENARIOS
        .iter()
        .filter(|_| part.starts_with("self."));
    let every = all().chain(planted);
    every
        .filter(|scenario| scenario.name.contains(part))
        .collect()
}

/// Stops the scenario if an answer is wrong.
fn expect(is_right: bool, what: impl Display) -> Verdict {
    if is_right {
        Ok(())
    } else {
        Err(Stop::Wrong(what.to_string()))
    }
}
