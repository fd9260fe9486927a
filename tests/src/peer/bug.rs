//! Bugs that the environment can plant in the second process, to show that cases catch them.
//!
//! What breaks is what this process does with the library, as no library code has a bug to switch
//! on.

use super::is_peer;

/// The environment variable that plants one.
const VARIABLE: &str = "SYNCLINE_CONFORMANCE_PEER_BUG";

/// One thing that the second process does wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    /// It says that it has carried a plan out, and has not.
    CarriesNothingOut,
    /// It sends the point before the one that it was to send.
    SendsAnotherPoint,
    /// It keeps a descriptor with each plan that it carries out.
    KeepsDescriptors,
    /// It reports its signals, and ends, before the work in front of them has run.
    ReportsTooEarly,
}

use Bug::{CarriesNothingOut, KeepsDescriptors, ReportsTooEarly, SendsAnotherPoint};

impl Bug {
    /// All of them, as the environment calls them.
    const ALL: [(&str, Self); 4] = [
        ("carries-nothing-out", CarriesNothingOut),
        ("sends-another-point", SendsAnotherPoint),
        ("keeps-descriptors", KeepsDescriptors),
        ("reports-too-early", ReportsTooEarly),
    ];

    fn from_name(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, bug)| *bug).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("{VARIABLE}={name}: there is no such bug, but {names}")
        })
    }

    /// True in a second process in which the environment has planted this one.
    pub(super) fn is_planted(self) -> bool {
        is_peer() && planted() == Ok(Some(self))
    }
}

/// What the environment has planted, or what is wrong with it.
pub(super) fn planted() -> Result<Option<Bug>, String> {
    let name = std::env::var(VARIABLE).ok();
    let name = name.filter(|name| !name.is_empty());
    name.map(|name| Bug::from_name(&name)).transpose()
}
