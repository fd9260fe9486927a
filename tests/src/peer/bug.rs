//! Bugs that the environment can plant in the second process, to show that cases catch them.
//!
//! Only this process's use of the library is wrong. The library itself has no bug to switch on.

use super::is_peer;

/// The environment variable that plants a bug.
const VARIABLE: &str = "SYNCLINE_CONFORMANCE_PEER_BUG";

/// A bug of the second process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    /// It claims to have carried a plan out, and has not.
    CarriesNothingOut,
    /// It sends the point before the one that it should send.
    SendsAnotherPoint,
    /// It keeps a descriptor with each plan that it carries out.
    KeepsDescriptors,
    /// It reports its signals, and ends, before the work before them has run.
    ReportsTooEarly,
    /// It does not say that it has failed a timeline.
    FailsInSilence,
    /// It describes an image as larger than the other process does.
    DescribesAnotherImage,
    /// It makes an image as wide as it describes it to be high.
    MakesAnotherImage,
}

use Bug::{
    CarriesNothingOut, DescribesAnotherImage, FailsInSilence, KeepsDescriptors, MakesAnotherImage,
    ReportsTooEarly, SendsAnotherPoint,
};

impl Bug {
    /// All bugs, with their names in the environment.
    const ALL: [(&str, Self); 7] = [
        ("carries-nothing-out", CarriesNothingOut),
        ("sends-another-point", SendsAnotherPoint),
        ("keeps-descriptors", KeepsDescriptors),
        ("reports-too-early", ReportsTooEarly),
        ("fails-in-silence", FailsInSilence),
        ("describes-another-image", DescribesAnotherImage),
        ("makes-another-image", MakesAnotherImage),
    ];

    fn from_name(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, bug)| *bug).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("{VARIABLE}={name}: there is no such bug, but {names}")
        })
    }

    /// Whether this is a second process in which the environment has planted this bug.
    pub(super) fn is_planted(self) -> bool {
        is_peer() && planted() == Ok(Some(self))
    }
}

/// Returns the bug in the environment, or an error for an unknown name.
pub(super) fn planted() -> Result<Option<Bug>, String> {
    let name = std::env::var(VARIABLE).ok();
    let name = name.filter(|name| !name.is_empty());
    name.map(|name| Bug::from_name(&name)).transpose()
}
