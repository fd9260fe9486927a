//! A row: one operation of applications, through Syncline and by hand.

use std::time::Duration;

use syncline::backend::Queue as _;
use syncline::{Queue, Recorder};
use syncline_conformance::Subject as _;
use syncline_conformance::workload::Equipped;

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::{Machine, On, Subject};
use crate::side::Outcome;

/// Time-out of all waits of rows.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Largest number of outstanding submissions of a side, in most rows.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub(crate) const BURST: u64 = 64;

/// What a reader wants to know. The first screen has a part for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// What does a submission cost?
    Submission,
    /// What does a wait or a query of the host cost?
    Wait,
    /// What does a frame cost?
    Frame,
    /// What happens with very many?
    Many,
}

/// One operation of applications, through Syncline and by hand.
#[derive(Debug, Clone)]
pub struct Row {
    /// The id, which does not change.
    pub id: &'static str,
    /// The question that it answers.
    pub question: Question,
    /// The work of ours.
    pub ours: &'static str,
    /// The same work by hand.
    pub raw: &'static str,
    /// The limits of all variants without their own. Without limits a row is only printed.
    pub limits: &'static [Limit],
    /// The kinds of subjects that it runs on.
    pub on: &'static [On],
    /// The variants, which run one after the other. A row without variants runs once.
    pub variants: &'static [Variant],
    /// Measures it.
    pub run: Run,
}

/// Sets up a row and measures it with the lab.
pub type Run = fn(&Call<'_>, &mut Lab) -> Outcome<()>;

/// One of several ways to run a row.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// The name in reports.
    pub name: &'static str,
    /// The parameter of the row.
    pub n: u64,
    /// The limits, if they differ from those of the row.
    pub limits: Option<&'static [Limit]>,
}

impl Variant {
    pub(crate) const fn new(name: &'static str, n: u64) -> Self {
        Self {
            name,
            n,
            limits: None,
        }
    }

    pub(crate) const fn with_limits(self, limits: &'static [Limit]) -> Self {
        Self {
            limits: Some(limits),
            ..self
        }
    }
}

/// The arguments of a row's function.
#[derive(Debug)]
pub struct Call<'m> {
    /// The machine.
    pub machine: &'m Machine,
    /// The devices.
    pub subject: &'m Subject,
    /// The parameter of the variant; 0 without variants.
    pub n: u64,
}

/// One row on one subject in one variant.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The row.
    pub row: Row,
    /// The devices.
    pub subject: Subject,
    /// The variant; `None` if the row has none.
    pub variant: Option<Variant>,
}

impl Entry {
    /// Devices, queue and variant, in words.
    #[must_use]
    pub fn name(&self) -> String {
        match self.variant {
            Some(variant) => format!("{}, {}", self.subject.name(), variant.name),
            None => self.subject.name(),
        }
    }

    /// The limits of the variant, or else of the row.
    #[must_use]
    pub fn limits(&self) -> &'static [Limit] {
        let own = self.variant.and_then(|variant| variant.limits);
        own.unwrap_or(self.row.limits)
    }

    /// Measures the row with `lab`.
    pub(crate) fn run(&self, machine: &Machine, lab: &mut Lab) -> Outcome<()> {
        let call = Call {
            machine,
            subject: &self.subject,
            n: self.variant.map_or(0, |variant| variant.n),
        };
        (self.row.run)(&call, lab)
    }
}

impl Row {
    /// The row on all its subjects of this machine, and the reasons for missing subjects.
    pub(crate) fn entries(&self, machine: &Machine) -> (Vec<Entry>, Vec<String>) {
        let (mut entries, mut reasons) = (Vec::new(), Vec::new());
        for on in self.on {
            let subjects = match machine.subjects(*on) {
                Ok(subjects) => subjects,
                Err(reason) => {
                    reasons.push(reason);
                    continue;
                }
            };
            for subject in subjects {
                let entry = |variant| Entry {
                    row: self.clone(),
                    subject: subject.clone(),
                    variant,
                };
                if self.variants.is_empty() {
                    entries.push(entry(None));
                }
                entries.extend(self.variants.iter().map(|variant| entry(Some(*variant))));
            }
        }
        (entries, reasons)
    }
}

/// Number of waits, and of signals, of each submission of `batch`.
#[cfg(feature = "vulkan")]
pub(crate) const EACH: usize = 8;

/// Blocks all later work of `queue` until the returned latch is opened.
pub(crate) fn close(
    equipped: &Equipped,
    queue: &Queue,
) -> Outcome<<Equipped as syncline_conformance::Subject>::Latch> {
    let latch = equipped.latch()?;
    let before = latch.clone();
    let block = move |recorder: &mut Recorder<'_>| Equipped::block(recorder, &before);
    queue.submit(&[], block, &[])?;
    Ok(latch)
}

/// Locks a mutex and ignores poisoning: no thread leaves the guarded value half changed.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
