//! What a run of the suite may be told, and how its child processes hear of it: by the environment.

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Set to load the Vulkan validation layer; what it complains about fails the case.
const VALIDATION: &str = "SYNCLINE_VALIDATION";

/// How long a case waits for what must come, in milliseconds.
const PATIENCE: &str = "SYNCLINE_PATIENCE_MS";

/// How long a case may take before it counts as hung, in milliseconds.
const CASE_LIMIT: &str = "SYNCLINE_CASE_LIMIT_MS";

/// What a run of the suite may be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a case waits for what must come. A wait that needs all of it fails, as nothing
    /// came, or comes too late for the cases of T4 and T6.
    pub patience: Duration,
    /// How long a case may take before it counts as hung and its process is killed.
    pub case_limit: Duration,
    /// Load the Vulkan validation layer; what it complains about fails the case.
    pub validation: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(10),
            case_limit: Duration::from_secs(60),
            validation: false,
        }
    }
}

impl Settings {
    /// The same under the Vulkan validation layer.
    #[must_use]
    pub fn with_validation(self) -> Self {
        Self {
            validation: true,
            ..self.patient()
        }
    }

    /// The same with at least a minute for what must come.
    ///
    /// The validation layer can stall a call for 10 s over its own state of a semaphore
    /// (`UNASSIGNED-VkSemaphore-state-timeout`), also several times in one case. A chain of some 10
    /// 000 steps takes as long on drivers in software, where other processes keep the processors
    /// busy.
    #[must_use]
    pub fn patient(self) -> Self {
        Self {
            patience: self.patience.max(Duration::from_secs(60)),
            case_limit: self.case_limit.max(Duration::from_secs(300)),
            ..self
        }
    }

    /// What this process was told: the defaults where the environment says nothing.
    #[must_use]
    pub fn from_env() -> Self {
        Self::default().or_told()
    }

    /// What this process was told, and `self` where the environment says nothing.
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

    /// Tells a process that is about to be started.
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

/// Longer than anything that works takes, on a machine however busy. How soon a wait ends is for
/// the cases of T4 and T6 to say.
#[must_use]
pub fn patience() -> Duration {
    static PATIENCE: OnceLock<Duration> = OnceLock::new();
    *PATIENCE.get_or_init(|| Settings::from_env().patience)
}
