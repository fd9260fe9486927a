//! Failures that are known on some drivers: bugs of the driver, each with the reason.
//!
//! Such a failure does not fail a run. If such a case passes, the entry is out of date, and the run
//! fails.

use syncline::info::Info;

/// A case that is expected to fail on a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The case.
    pub case: String,
    /// Why it fails.
    pub why: String,
}

/// One entry of the table.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The beginning of [`Info::driver`].
    pub driver: &'static str,
    /// The first version that fails. Versions are compared number by number, as far as given.
    pub from: &'static [u32],
    /// The last version that fails. Empty if no newer one works.
    pub to: &'static [u32],
    /// The case.
    pub case: &'static str,
    /// Why it fails.
    pub why: &'static str,
}

/// The table. An entry counts for every subject that involves the driver, alone or on one side.
pub const TABLE: &[Entry] = &[];

impl Entry {
    /// Whether the entry is about `driver`, which is a name and a version.
    #[must_use]
    pub fn is_about(&self, driver: &str) -> bool {
        let Some(rest) = driver.strip_prefix(self.driver) else {
            return false;
        };
        let version = version(rest);
        // A bound covers all versions that begin with it.
        let cut = |bound: &[u32]| {
            version
                .iter()
                .copied()
                .take(bound.len())
                .collect::<Vec<_>>()
        };
        cut(self.from) >= self.from.to_vec()
            && (self.to.is_empty() || cut(self.to) <= self.to.to_vec())
    }
}

/// Returns the first dotted number of `text`.
fn version(text: &str) -> Vec<u32> {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let number = digits.split(|c: char| c != '.' && !c.is_ascii_digit());
    let number = number.into_iter().next().unwrap_or_default();
    number
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

/// Lists what is expected to fail on a subject of these devices.
#[must_use]
pub fn expected(table: &[Entry], devices: &[&Info]) -> Vec<Expected> {
    let concerned = |entry: &&Entry| devices.iter().any(|info| entry.is_about(&info.driver));
    let entries = table.iter().filter(concerned);
    entries
        .map(|entry| Expected {
            case: entry.case.into(),
            why: format!(
                "{} {:?} to {:?}: {}",
                entry.driver, entry.from, entry.to, entry.why
            ),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const OLD: Entry = Entry {
        driver: "Mesa",
        from: &[22, 3],
        to: &[23],
        case: "some.case",
        why: "a bug",
    };

    #[rstest]
    #[case::first("Mesa 22.3", true)]
    #[case::with_further_words("Mesa 22.3.6 (LLVM 15.0.6)", true)]
    #[case::two_digits("Mesa 22.10.1", true)]
    #[case::last("Mesa 23.9.9", true)]
    #[case::before("Mesa 22.2.9", false)]
    #[case::after("Mesa 24.0", false)]
    #[case::none("Mesa", false)]
    #[case::another_driver("NVIDIA 22.3", false)]
    fn versions_are_numbers_and_not_text(#[case] driver: &str, #[case] about: bool) {
        assert_eq!(OLD.is_about(driver), about);
    }

    #[test]
    fn an_entry_without_an_end_is_about_all_later_versions() {
        let open = Entry { to: &[], ..OLD };
        assert!(open.is_about("Mesa 99"));
    }
}
