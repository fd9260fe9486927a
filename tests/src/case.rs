//! Cases and their verdicts.

use std::cell::{Cell, RefCell};
use std::fmt;

use crate::World;

/// One behaviour of the contract, which a subject can show.
pub struct Case<S> {
    /// Its name: `family.behaviour`.
    pub id: &'static str,
    /// The rules of `docs/contract.md` that break if it fails.
    pub rules: &'static [&'static str],
    /// Runs it.
    pub run: fn(&World<S>) -> Verdict,
}

impl<S> fmt::Debug for Case<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.id, self.rules)
    }
}

/// How a case ends: passed, or not.
pub type Verdict = Result<(), Stop>;

thread_local! { static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) } }

/// Adds a remark to a case that passes, about what it did on this subject.
///
/// Call it on the thread that runs the case. The same remark shows once.
pub(crate) fn note(text: String) {
    NOTES.with_borrow_mut(|notes| {
        if !notes.contains(&text) {
            notes.push(text);
        }
    });
}

/// Returns the remarks of the case that has just run on this thread, if there are any.
pub(crate) fn take_notes() -> Option<String> {
    let notes = NOTES.take();
    (!notes.is_empty()).then(|| notes.join("; "))
}

thread_local! { static ENDS_PROCESS: Cell<bool> = const { Cell::new(false) } }

/// Ends the process after the case, because it loses a device of the process.
///
/// Call it on the thread that runs the case. The process drops its devices, and the next case runs
/// in another process. The case fails if the process does not end by itself.
pub(crate) fn end_process() {
    ENDS_PROCESS.set(true);
}

/// Returns true if the case that has just run on this thread has called [`end_process`].
pub(crate) fn ends_process() -> bool {
    ENDS_PROCESS.get()
}

/// Why a case did not pass.
#[derive(Debug)]
pub enum Stop {
    /// The subject broke a rule, in words.
    Failed(String),
    /// The subject cannot do what the case needs, and says so.
    Skipped(String),
}

impl Stop {
    /// Skips the case, because the subject lacks a capability.
    ///
    /// # Errors
    /// Always this.
    pub fn skip<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::Skipped(reason.into()))
    }

    /// Fails the case, because the subject broke a rule.
    ///
    /// # Errors
    /// Always this.
    pub fn fail<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::Failed(reason.into()))
    }
}

impl From<syncline::Error> for Stop {
    /// An unexpected error is a failure.
    fn from(error: syncline::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Fails a case at the line of its check.
#[track_caller]
pub(crate) fn wrong<T>(what: impl fmt::Display, why: fmt::Arguments<'_>) -> Result<T, Stop> {
    let at = std::panic::Location::caller();
    let colon = if why.as_str() == Some("") { "" } else { ": " };
    Stop::fail(format!("{why}{colon}{what} ({}:{})", at.file(), at.line()))
}

/// Fails the case unless `$condition` holds. What follows it says why, or in which round.
macro_rules! check {
    ($condition:expr) => {
        $crate::case::check!($condition, "")
    };
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            let what = concat!("`", stringify!($condition), "` is false");
            return $crate::case::wrong(what, format_args!($($why)+));
        }
    };
}

/// Fails the case unless `$found` equals `$expected`. What follows says why, or in which round.
macro_rules! check_eq {
    ($found:expr, $expected:expr) => {
        $crate::case::check_eq!($found, $expected, "")
    };
    ($found:expr, $expected:expr, $($why:tt)+) => {
        match (&$found, &$expected) {
            (found, expected) => {
                if *found != *expected {
                    let name = stringify!($found);
                    let what = format!("{name} is {found:?} instead of {expected:?}");
                    return $crate::case::wrong(what, format_args!($($why)+));
                }
            }
        }
    };
}

/// Fails the case unless `$result` is an error of the given shape, or of the variant `$kind`.
macro_rules! check_error {
    ($result:expr, $kind:ident) => {
        $crate::case::check_error!(@ $result, ::syncline::Error::$kind { .. }, stringify!($kind))
    };
    ($result:expr, $shape:pat $(if $guard:expr)?) => {
        $crate::case::check_error!(@ $result, $shape $(if $guard)?, stringify!($shape))
    };
    (@ $result:expr, $shape:pat $(if $guard:expr)?, $name:expr) => {
        match $result {
            Err($shape) $(if $guard)? => {}
            Err(other) => {
                let what = concat!("an error that is not ", $name);
                return $crate::case::wrong(what, format_args!("{other}"));
            }
            Ok(_) => {
                let what = concat!("success instead of ", $name);
                return $crate::case::wrong(what, format_args!(""));
            }
        }
    };
}

/// Lists the cases of one file: `id: rules => function`.
///
/// A function that takes [dice](crate::dice), too, is written `function(dice)`.
macro_rules! cases {
    ($($id:literal: [$($rule:ident)+] => $run:ident $(($dice:ident))?;)+) => {
        /// The cases of this family.
        pub(crate) fn cases<S: $crate::Subject>() -> Vec<$crate::Case<S>> {
            vec![$($crate::Case {
                id: $id,
                rules: &[$(stringify!($rule)),+],
                run: $crate::case::run_of!($run $($dice)?),
            }),+]
        }
    };
}

/// The function of a case of [`cases`], for the subject `S`.
macro_rules! run_of {
    ($run:ident) => {
        $run::<S>
    };
    ($run:ident dice) => {
        |world| $crate::dice::seeds(1, |dice| $run::<S>(world, dice))
    };
}

/// As [`cases`], for a file whose cases need the devices of this project.
macro_rules! equipped_cases {
    ($($(#[$gate:meta])* $id:literal: [$($rule:ident)+] => $run:path;)+) => {
        /// The cases of this file.
        pub(crate) fn cases() -> Vec<$crate::Case<$crate::workload::Equipped>> {
            vec![$(
                $(#[$gate])*
                $crate::Case { id: $id, rules: &[$(stringify!($rule)),+], run: $run }
            ),+]
        }
    };
}

pub(crate) use {cases, check, check_eq, check_error, equipped_cases, run_of};
