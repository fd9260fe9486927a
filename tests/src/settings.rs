//! Settings of a run. Child processes get them in environment variables.

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Set to load the Vulkan validation layer. Its complaints fail the case.
const VALIDATION: &str = "SYNCLINE_VALIDATION";

/// Time limit of a case for what must happen, in milliseconds.
const PATIENCE: &str = "SYNCLINE_PATIENCE_MS";

/// Time after which a case counts as hung, in milliseconds.
const CASE_LIMIT: &str = "SYNCLINE_CASE_LIMIT_MS";

/// Settings of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Time limit of a case for what must happen.
    ///
    /// A wait that lasts that long fails: its value was not reached, or too late for T4 and T6.
    pub patience: Duration,
    /// Time after which a case counts as hung and its process is killed.
    pub case_limit: Duration,
    /// Whether to load the Vulkan validation layer. Its complaints fail the case.
    pub validation: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(10),
            case_limit: Duration::from_secs(120),
            validation: false,
        }
    }
}

impl Settings {
    /// Returns the same settings with the Vulkan validation layer.
    #[must_use]
    pub fn with_validation(self) -> Self {
        Self {
            validation: true,
            ..self.patient()
        }
    }

    /// Returns the same settings with a `patience` of at least a minute.
    ///
    /// The validation layer can stall a call for 10 s because of its own state of a semaphore
    /// (`UNASSIGNED-VkSemaphore-state-timeout`), also several times in one case. A chain of about
    /// 10 000 steps takes as long on software drivers while other processes use the processors.
    #[must_use]
    pub fn patient(self) -> Self {
        Self {
            patience: self.patience.max(Duration::from_secs(60)),
            case_limit: self.case_limit.max(Duration::from_secs(300)),
            ..self
        }
    }

    /// Reads the settings of this process from its environment, with defaults for the rest.
    #[must_use]
    pub fn from_env() -> Self {
        Self::default().or_told()
    }

    /// Reads the settings of this process from its environment, with `self` for the rest.
    #[must_use]
    pub fn or_told(self) -> Self {
        let time = |name: &str, otherwise: Duration| {
            let told = std::env::var(name).ok().and_then(|text| text.parse().ok());
            told.map_or(otherwise, Duration::from_millis)
        };
        Self {
            patience: time(PATIENCE, self.patience),
            case_limit: time(CASE_LIMIT, self.case_limit),
            validation: self.validation || std::env::var_os(VALIDATION).is_some(),
        }
    }

    /// Sets the environment of a process that is about to start.
    pub fn tell(&self, command: &mut Command) {
        command
            .env(PATIENCE, self.patience.as_millis().to_string())
            .env(CASE_LIMIT, self.case_limit.as_millis().to_string());
        if self.validation {
            command.env(VALIDATION, "1");
        } else {
            command.env_remove(VALIDATION);
        }
    }
}

/// Returns a time limit for everything that works, however busy the machine is.
///
/// The cases of T4 and T6 check how soon waits end.
#[must_use]
pub fn patience() -> Duration {
    static PATIENCE: OnceLock<Duration> = OnceLock::new();
    *PATIENCE.get_or_init(|| Settings::from_env().patience)
}
