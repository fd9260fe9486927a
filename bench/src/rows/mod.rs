//! The rows, by family.

#[cfg(feature = "vulkan")]
mod adopt;
mod alloc;
mod any;
#[cfg(feature = "vulkan")]
mod batch;
#[cfg(feature = "vulkan")]
mod bridge;
mod contend;
mod cores;
mod counter;
mod crew;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
mod external;
#[cfg(feature = "vulkan")]
mod foreign;
mod frame_cpu;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
mod frames;
mod gate;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
mod graph;
mod held;
mod host;
#[cfg(feature = "cuda")]
mod kernels;
mod partner;
mod process;
#[cfg(feature = "cuda")]
mod roundtrip;
mod scale;
#[cfg(feature = "vulkan")]
mod vulkan;
mod wait;
#[cfg(feature = "cuda")]
mod word;

#[cfg(feature = "cuda")]
pub(crate) use roundtrip::risky;

pub(crate) use partner::partner;

use std::fmt;

use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::{Machine, On, Subject};
use crate::side::Outcome;

/// The limit of rows that look like an application: at most 20 % slower than recorded earlier.
const RECORDED: &[Limit] = &[Limit::Recorded(1.2)];

/// True for a short run (`--quick`). Rows with a large setup make it smaller then.
fn is_short(lab: &Lab) -> bool {
    lab.is_quick()
}

/// One operation of applications, through Syncline and by hand.
#[derive(Debug, Clone)]
pub struct Row {
    /// The id, which does not change.
    pub id: &'static str,
    /// The work of ours.
    pub ours: &'static str,
    /// The same work by hand.
    pub raw: &'static str,
    /// The least work that keeps the contract.
    pub floor: Floor,
    /// The limits of all variants without their own. Without limits a row is only printed.
    pub limits: &'static [Limit],
    /// The kinds of subjects that it runs on.
    pub on: &'static [On],
    /// The variants, which run one after the other. A row without variants runs once.
    pub variants: &'static [Variant],
    /// Measures it.
    pub run: Run,
}

/// The least work that keeps the contract.
#[derive(Debug, Clone, Copy)]
pub enum Floor {
    /// The raw side is the floor, because the contract needs nothing more.
    Raw,
    /// A side of its own, by hand and measured with the other two. The text describes it.
    Side(&'static str),
    /// There is no floor to measure. The text gives the reason.
    Unmeasured(&'static str),
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raw => f.write_str("raw"),
            Self::Side(what) => f.write_str(what),
            Self::Unmeasured(why) => write!(f, "({why})"),
        }
    }
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
    const fn new(name: &'static str, n: u64) -> Self {
        Self {
            name,
            n,
            limits: None,
        }
    }

    #[cfg(feature = "vulkan")]
    const fn with_limits(name: &'static str, n: u64, limits: &'static [Limit]) -> Self {
        Self {
            name,
            n,
            limits: Some(limits),
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
        self.variant
            .and_then(|variant| variant.limits)
            .unwrap_or(self.row.limits)
    }

    /// Measures the row with `lab`.
    ///
    /// # Errors
    /// The reason why it gives no figures.
    pub fn run(&self, machine: &Machine, lab: &mut Lab) -> Outcome<()> {
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
    #[must_use]
    pub fn entries(&self, machine: &Machine) -> (Vec<Entry>, Vec<String>) {
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

/// Every row.
#[must_use]
pub fn all() -> Vec<Row> {
    [
        #[cfg(feature = "cuda")]
        cuda::ROWS,
        #[cfg(feature = "cuda")]
        roundtrip::ROWS,
        #[cfg(feature = "cuda")]
        word::ROWS,
        #[cfg(feature = "vulkan")]
        vulkan::ROWS,
        #[cfg(feature = "vulkan")]
        foreign::ROWS,
        #[cfg(all(feature = "cuda", feature = "vulkan"))]
        external::ROWS,
        #[cfg(all(feature = "cuda", feature = "vulkan"))]
        graph::ROWS,
        #[cfg(all(feature = "cuda", feature = "vulkan"))]
        frames::ROWS,
        any::ROWS,
        host::ROWS,
        counter::ROWS,
        #[cfg(feature = "cuda")]
        counter::CUDA_ROWS,
        #[cfg(feature = "vulkan")]
        bridge::ROWS,
        process::ROWS,
        wait::ROWS,
        cores::ROWS,
        scale::ROWS,
        alloc::ROWS,
        #[cfg(feature = "vulkan")]
        batch::ROWS,
        contend::ROWS,
        #[cfg(feature = "cuda")]
        kernels::ROWS,
        #[cfg(feature = "vulkan")]
        adopt::ROWS,
        frame_cpu::ROWS,
        held::ROWS,
    ]
    .concat()
}

/// The limits of a recorded row; `None` if this build has no such row.
#[must_use]
pub fn limits_of(id: &str, subject: &str) -> Option<&'static [Limit]> {
    let row = all().into_iter().find(|row| row.id == id)?;
    let variant = |variant: &&Variant| subject.ends_with(&format!(", {}", variant.name));
    let own = row.variants.iter().find(variant);
    Some(own.and_then(|own| own.limits).unwrap_or(row.limits))
}
