//! Bugs that the environment can plant, to show that tests catch them. A layer without that has
//! none of them.

use std::sync::LazyLock;

/// The environment variable that plants one.
const VARIABLE: &str = "SYNCLINE_SOFTWARE_LAYER_BUG";

macro_rules! bugs {
    ($($(#[doc = $what:literal])+ $bug:ident = $name:literal;)+) => {
        /// One thing that the layer does wrongly.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($(#[doc = $what])+ $bug,)+
        }

        impl Bug {
            /// All of them.
            const ALL: &[Self] = &[$(Self::$bug),+];

            /// How the environment calls it.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)+
                }
            }
        }
    };
}

bugs! {
    /// A queue does not wait for a shared semaphore.
    ForgetsWait = "forgets-wait";
    /// A queue signals a shared semaphore when the signal is submitted, before the work.
    SignalsBeforeTheWork = "signals-before-the-work";
    /// A queue signals a shared timeline to one more than was asked.
    SignalsTooHigh = "signals-too-high";
    /// The value that a queue has signalled last is told in its process, and does not get to the
    /// others. At the exit it is lost.
    LosesLastValue = "loses-last-value";
    /// A signal of the host does nothing to a shared semaphore.
    ForgetsHostSignal = "forgets-host-signal";
    /// A shared semaphore that is exported is a new one.
    ExportsAnother = "exports-another";
}

impl Bug {
    /// The bug of this name, or what is wrong with the name.
    fn from_name(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|bug| bug.name() == name);
        known.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|bug| bug.name()).collect();
            let names = names.join(", ");
            format!("{VARIABLE}={name}: there is no such bug, but {names}")
        })
    }

    /// True if the environment has planted this one.
    pub(crate) fn is_planted(self) -> bool {
        planted() == Ok(Some(self))
    }
}

/// What the environment has planted, read once, or what is wrong with it.
pub(crate) fn planted() -> Result<Option<Bug>, &'static str> {
    static PLANTED: LazyLock<Result<Option<Bug>, String>> = LazyLock::new(|| {
        let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
        name.map(|name| Bug::from_name(&name)).transpose()
    });
    PLANTED.as_ref().map(|bug| *bug).map_err(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_known_by_its_name_alone() {
        for bug in Bug::ALL {
            assert_eq!(Bug::from_name(bug.name()), Ok(*bug));
        }
        let refused = Bug::from_name("none");
        assert!(
            refused.is_err_and(|reason| { Bug::ALL.iter().all(|bug| reason.contains(bug.name())) })
        );
    }
}
