//! What the environment hides of software devices, as if their driver did not have it.
//!
//! Without the environment variable the layer hides nothing.

use std::sync::LazyLock;

/// The environment variable: names of device extensions, or [`TIMELINES`], separated by commas.
const VARIABLE: &str = "SYNCLINE_SOFTWARE_LAYER_HIDE";

/// The name of the feature of timeline semaphores.
pub(crate) const TIMELINES: &str = "timelineSemaphore";

/// True if the environment hides the extension or feature with this name. Reads the variable once.
pub(crate) fn is_hidden(name: &str) -> bool {
    static NAMES: LazyLock<String> = LazyLock::new(|| std::env::var(VARIABLE).unwrap_or_default());
    lists(&NAMES, name)
}

fn lists(names: &str, name: &str) -> bool {
    names.split(',').any(|listed| listed.trim() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_are_hidden() {
        let names = "VK_KHR_external_memory_fd, timelineSemaphore";
        assert!(lists(names, TIMELINES) && lists(names, "VK_KHR_external_memory_fd"));
        assert!(!lists(names, "VK_KHR_external_memory") && !lists("", TIMELINES));
    }
}
