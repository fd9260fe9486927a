//! Settings from the environment.

use std::fmt::Display;
use std::io::{Write as _, stderr};
use std::sync::LazyLock;
use std::time::Duration;

use syncline_software_payload::Twin;

use crate::bug::Bug;
use crate::code::Code;
use crate::{api, device};

/// The settings of the environment, which is read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The devices, in the order of their ordinals.
    pub(crate) devices: Vec<Twin>,
    /// The number of hardware connections of a context.
    pub(crate) connections: usize,
    /// The seed of random delays of streams.
    pub(crate) seed: Option<u64>,
    /// The additional time of each command.
    pub(crate) slow: Duration,
    /// True if imports of the wrong kind and wrong descriptions of images are refused.
    pub(crate) strict: bool,
    /// What is printed beside result codes.
    pub(crate) verbosity: Verbosity,
    /// The version of the driver API.
    pub(crate) version: i32,
    /// The attributes that are 0 on each device.
    pub(crate) lacks: Vec<u32>,
    /// One function that fails.
    pub(crate) fail: Option<Fail>,
    /// The planted bug.
    pub(crate) bug: Option<Bug>,
}

/// Which reasons of result codes are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// None.
    Nothing,
    /// Why a module or an array is refused.
    Modules,
    /// Also where a kernel faults.
    Faults,
}

/// A function that fails at one of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fail {
    pub(crate) function: String,
    /// 1 for the first call.
    pub(crate) call: u64,
    pub(crate) code: Code,
    pub(crate) effect: Effect,
}

/// The effect of a call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No effect.
    None,
    /// No effect, and later calls fail too.
    NoneFromThere,
    /// The effect of a call that succeeds.
    Full,
}

/// Prints the reason of a result code, if the settings have this verbosity.
pub(crate) fn explain(least: Verbosity, reason: impl Display) {
    if settings().is_ok_and(|settings| settings.verbosity >= least) {
        print(reason);
    }
}

/// Prints a line to standard error. If that is closed, the line is lost.
pub(crate) fn print(line: impl Display) {
    let _ = writeln!(stderr(), "software CUDA driver: {line}");
}

/// Returns the settings, or the error in the environment.
pub(crate) fn settings() -> Result<&'static Settings, &'static str> {
    static SETTINGS: LazyLock<Result<Settings, String>> =
        LazyLock::new(|| Settings::read(|name| std::env::var(name).ok()));
    SETTINGS.as_ref().map_err(String::as_str)
}

impl Settings {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let of = |name: &str| {
            let name = format!("SYNCLINE_SOFTWARE_CUDA_{name}");
            let value = variable(&name).filter(|value| !value.is_empty());
            value.map(|value| (name, value))
        };
        let number = |given: Option<(String, String)>| match given {
            None => Ok(None),
            Some((name, value)) => match value.parse::<u64>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(format!("{name}={value}: not a whole number")),
            },
        };
        let switch = |given: Option<(String, String)>| match given {
            None => Ok(None),
            Some((_, value)) if value == "0" => Ok(Some(false)),
            Some((_, value)) if value == "1" => Ok(Some(true)),
            Some((name, value)) => Err(format!("{name}={value}: neither 0 nor 1")),
        };
        Ok(Self {
            devices: of("DEVICES").map_or(Ok(Twin::ALL.to_vec()), |(name, value)| {
                devices(&value).map_err(|reason| format!("{name}={value}: {reason}"))
            })?,
            connections: connections(variable("CUDA_DEVICE_MAX_CONNECTIONS").as_deref()),
            seed: number(of("SEED"))?,
            slow: Duration::from_micros(number(of("SLOW"))?.unwrap_or(0)),
            strict: switch(of("STRICT"))?.unwrap_or(false),
            verbosity: match switch(of("VERBOSE"))? {
                Some(false) => Verbosity::Nothing,
                None => Verbosity::Modules,
                Some(true) => Verbosity::Faults,
            },
            version: match of("VERSION") {
                None => device::VERSION,
                Some((name, value)) => {
                    let version = value.parse().ok().filter(|version| *version > 0);
                    version.ok_or_else(|| format!("{name}={value}: no version of CUDA"))?
                }
            },
            lacks: match of("LACKS") {
                None => Vec::new(),
                Some((name, value)) => {
                    let number = |text: &str| {
                        let number = text.parse().ok();
                        number.filter(|number| device::attribute(*number).is_ok())
                    };
                    let numbers: Option<_> = value.split(',').map(number).collect();
                    numbers.ok_or_else(|| format!("{name}={value}: not numbers of attributes"))?
                }
            },
            fail: of("FAIL")
                .map(|(name, value)| {
                    fail(&value).map_err(|reason| format!("{name}={value}: {reason}"))
                })
                .transpose()?,
            bug: of("BUG")
                .map(|(name, value)| {
                    Bug::from_name(&value).map_err(|reason| format!("{name}={value}: {reason}"))
                })
                .transpose()?,
        })
    }
}

/// Reads names that are separated by commas. A device may be named once.
fn devices(names: &str) -> Result<Vec<Twin>, String> {
    let mut devices = Vec::new();
    for name in names.split(',').map(str::trim) {
        let known = Twin::ALL.into_iter().find(|twin| twin.name() == name);
        match known {
            None => {
                let names = Twin::ALL.map(Twin::name).join(" and ");
                return Err(format!("there is no device {name:?}, but {names}"));
            }
            Some(twin) if devices.contains(&twin) => return Err(format!("{name:?} twice")),
            Some(twin) => devices.push(twin),
        }
    }
    Ok(devices)
}

/// Reads a number as NVIDIA documents it: 1 to 32, and 8 if the variable has no such number.
fn connections(value: Option<&str>) -> usize {
    const DEFAULT: usize = 8;
    let given = value.and_then(|value| value.parse().ok());
    given
        .filter(|count| (1..=32).contains(count))
        .unwrap_or(DEFAULT)
}

/// Reads `FUNCTION:CALL:CODE` or `FUNCTION:CALL:CODE:MODE`.
fn fail(value: &str) -> Result<Fail, String> {
    let parts: Vec<_> = value.split(':').collect();
    let (function, call, code, mode) = match parts[..] {
        [function, call, code] => (function, call, code, None),
        [function, call, code, mode] => (function, call, code, Some(mode)),
        _ => return Err("not FUNCTION:CALL:CODE or FUNCTION:CALL:CODE:MODE".into()),
    };
    if !api::has(function) {
        return Err(format!("the driver has no function {function:?}"));
    }
    let call = call.parse().ok().filter(|call| *call > 0);
    let code = code.parse().ok().map(Code::from_number);
    let code = code.filter(|code| *code != Code::SUCCESS && code.name().is_some());
    Ok(Fail {
        function: function.into(),
        call: call.ok_or("a call is a number, 1 for the first")?,
        code: code.ok_or("a code is the number of an error that the driver can return")?,
        effect: match mode {
            None => Effect::None,
            Some("always") => Effect::NoneFromThere,
            Some("after") => Effect::Full,
            Some(_) => return Err("a mode is always or after".into()),
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use rstest::rstest;

    use super::*;

    fn read(name: &str, value: &str) -> Result<Settings, String> {
        Settings::read(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn nothing_set_gives_both_devices() {
        let settings = Settings::read(|_| None).unwrap();
        assert_eq!(settings.devices, Twin::ALL);
        assert_eq!((settings.connections, settings.strict), (8, false));
    }

    #[rstest]
    #[case::unknown_device("SYNCLINE_SOFTWARE_CUDA_DEVICES", "lavapipe,none")]
    #[case::device_twice("SYNCLINE_SOFTWARE_CUDA_DEVICES", "lavapipe,lavapipe")]
    #[case::seed_that_is_no_number("SYNCLINE_SOFTWARE_CUDA_SEED", "many")]
    #[case::negative_delay("SYNCLINE_SOFTWARE_CUDA_SLOW", "-1")]
    #[case::strict_that_is_no_number("SYNCLINE_SOFTWARE_CUDA_STRICT", "yes")]
    #[case::verbose_beyond_1("SYNCLINE_SOFTWARE_CUDA_VERBOSE", "2")]
    #[case::version_that_is_no_number("SYNCLINE_SOFTWARE_CUDA_VERSION", "11.3")]
    #[case::attribute_that_is_no_number("SYNCLINE_SOFTWARE_CUDA_LACKS", "114,timelines")]
    #[case::attribute_that_does_not_exist("SYNCLINE_SOFTWARE_CUDA_LACKS", "9999")]
    #[case::fail_without_numbers("SYNCLINE_SOFTWARE_CUDA_FAIL", "cuEventRecord")]
    #[case::fail_of_an_unknown_function("SYNCLINE_SOFTWARE_CUDA_FAIL", "cuEventForget:1:2")]
    #[case::fail_of_call_0("SYNCLINE_SOFTWARE_CUDA_FAIL", "cuEventRecord:0:2")]
    #[case::fail_with_success("SYNCLINE_SOFTWARE_CUDA_FAIL", "cuEventRecord:1:0")]
    #[case::fail_with_an_unknown_code("SYNCLINE_SOFTWARE_CUDA_FAIL", "cuEventRecord:1:12345")]
    #[case::fail_in_an_unknown_way("SYNCLINE_SOFTWARE_CUDA_FAIL", "cuEventRecord:1:2:never")]
    #[case::unknown_bug("SYNCLINE_SOFTWARE_CUDA_BUG", "none")]
    fn senseless_values_are_refused(#[case] name: &str, #[case] value: &str) {
        let refused = read(name, value).unwrap_err();
        assert!(
            refused.contains(name) && refused.contains(value),
            "{refused}"
        );
    }

    #[rstest]
    #[case::once_without_effect("cuEventRecord:3:2", Effect::None)]
    #[case::from_then_on("cuEventRecord:3:2:always", Effect::NoneFromThere)]
    #[case::after_its_effect("cuEventRecord:3:2:after", Effect::Full)]
    fn a_function_can_fail_in_three_ways(#[case] text: &str, #[case] effect: Effect) {
        let fail = read("SYNCLINE_SOFTWARE_CUDA_FAIL", text).unwrap().fail;
        let expected = Fail {
            function: "cuEventRecord".into(),
            call: 3,
            code: Code::OUT_OF_MEMORY,
            effect,
        };
        assert_eq!(fail, Some(expected));
    }

    #[test]
    fn a_driver_can_be_older_and_lack_features() {
        let settings = Settings::read(|name| match name {
            "SYNCLINE_SOFTWARE_CUDA_VERSION" => Some("11030".into()),
            "SYNCLINE_SOFTWARE_CUDA_LACKS" => Some("114,122".into()),
            _ => None,
        });
        let settings = settings.unwrap();
        assert_eq!((settings.version, settings.lacks), (11_030, vec![114, 122]));
    }

    #[test]
    fn one_device_can_be_chosen() {
        let settings = read("SYNCLINE_SOFTWARE_CUDA_DEVICES", "swiftshader").unwrap();
        assert_eq!(settings.devices, [Twin::SwiftShader]);
        let settings = read("CUDA_DEVICE_MAX_CONNECTIONS", "2").unwrap();
        assert_eq!(settings.connections, 2);
    }
}
