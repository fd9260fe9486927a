//! Bugs that the environment can plant into a software driver.

/// Declares the enum `Bug` with a name for each bug, which the environment uses.
#[macro_export]
macro_rules! bugs {
    ($($(#[doc = $what:literal])+ $bug:ident = $name:literal;)+) => {
        /// A defect of the driver.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Bug {
            $($(#[doc = $what])+ $bug,)+
        }

        impl Bug {
            /// Returns the name that the environment uses.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)+
                }
            }

            /// Returns the bug of this name, or an error with all names.
            pub(crate) fn from_name(name: &str) -> Result<Self, String> {
                match name {
                    $($name => Ok(Self::$bug),)+
                    _ => Err(format!("there is no such bug, but {}", [$($name),+].join(", "))),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    bugs! {
        /// The first.
        ForgetsWait = "forgets-wait";
        /// The second.
        SignalsTwice = "signals-twice";
    }

    #[test]
    fn a_bug_is_known_by_its_name_alone() {
        for bug in [Bug::ForgetsWait, Bug::SignalsTwice] {
            assert_eq!(Bug::from_name(bug.name()), Ok(bug));
        }
        assert_eq!(
            Bug::from_name("none"),
            Err("there is no such bug, but forgets-wait, signals-twice".into())
        );
    }
}
