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
mod counter;
mod crew;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(all(feature = "cuda", feature = "vulkan"))]
mod external;
mod frame_cpu;
#[cfg(feature = "vulkan")]
mod frames;
mod gate;
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
pub(crate) use roundtrip::risky;

pub(crate) use partner::partner;

use std::fmt;

use crate::bar::Bar;
use crate::lab::{Lab, Outcome};
use crate::machine::{Machine, On, Subject};
use crate::race::Pace;

/// The bar of rows that look like an application: at most 20 % slower than recorded earlier.
const LIMIT: Bar = Bar::Recorded(1.2);

/// True for a run that is to be short (`--quick`): rows that set up very much do with less then.
fn is_short(lab: &dyn Lab) -> bool {
    lab.rounds() <= Pace::QUICK.rounds
}

/// One thing that applications do, through Syncline and by hand.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name, which does not change.
    pub id: &'static str,
    /// What ours does.
    pub ours: &'static str,
    /// What is written by hand for the same.
    pub raw: &'static str,
    /// What nobody goes below who keeps the contract.
    pub floor: Floor,
    /// What is asked of it, where a variant says nothing else.
    pub bar: Bar,
    /// What it runs on.
    pub on: &'static [On],
    /// What it is run with, one after the other; none is one without a name.
    pub variants: &'static [Variant],
    /// Measures it.
    pub run: Run,
}

/// The least that keeps the contract.
#[derive(Debug, Clone, Copy)]
pub enum Floor {
    /// Raw: the contract asks for nothing more than that does.
    Raw,
    /// A side of its own, by hand, raced with the other two: what it does.
    Side(&'static str),
    /// Nothing that could be measured beside ours: why.
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

/// Sets a row up and has it measured.
pub type Run = fn(&Call<'_>, &mut dyn Lab) -> Outcome<()>;

/// One of several ways to run a row.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// In words.
    pub name: &'static str,
    /// What it means to the row.
    pub n: u64,
    /// What is asked of it, if something else than of the row.
    pub bar: Option<Bar>,
}

impl Variant {
    const fn new(name: &'static str, n: u64) -> Self {
        Self { name, n, bar: None }
    }

    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    const fn asked(name: &'static str, n: u64, bar: Bar) -> Self {
        Self {
            name,
            n,
            bar: Some(bar),
        }
    }
}

/// What a row is measured with.
#[derive(Debug)]
pub struct Call<'m> {
    /// The machine.
    pub machine: &'m Machine,
    /// The devices.
    pub subject: &'m Subject,
    /// The variant's meaning; 0 without one.
    pub n: u64,
}

/// One row on one subject in one variant.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The row.
    pub row: Row,
    /// The devices.
    pub subject: Subject,
    /// How.
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

    /// What is asked of it.
    #[must_use]
    pub fn bar(&self) -> Bar {
        self.variant
            .and_then(|variant| variant.bar)
            .unwrap_or(self.row.bar)
    }

    /// Measures it.
    ///
    /// # Errors
    /// Why it gives no figures.
    pub fn run(&self, machine: &Machine, lab: &mut dyn Lab) -> Outcome<()> {
        let call = Call {
            machine,
            subject: &self.subject,
            n: self.variant.map_or(0, |variant| variant.n),
        };
        (self.row.run)(&call, lab)
    }
}

impl Row {
    /// It on everything that this machine has for it, and why there is no more.
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
        #[cfg(feature = "vulkan")]
        vulkan::ROWS,
        #[cfg(all(feature = "cuda", feature = "vulkan"))]
        external::ROWS,
        #[cfg(feature = "vulkan")]
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
