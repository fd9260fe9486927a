//! A module that was read, and its kernels.

use std::sync::Arc;

use crate::op::{Instruction, Source};
use crate::parse;
use crate::{Fault, Launch, Machine, ParseError};

/// A text that was read: the kernels in it.
#[derive(Debug)]
pub struct Module {
    pub(crate) version: (u32, u32),
    pub(crate) target: u32,
    pub(crate) entries: Vec<Arc<Entry>>,
}

impl Module {
    /// Reads a text.
    ///
    /// # Errors
    ///
    /// The text is not PTX, or the interpreter cannot run it.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::module(text)
    }

    /// The version of PTX in which the text is written: major and minor.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The GPU for which the text is written, 90 for `sm_90`.
    #[must_use]
    pub fn target(&self) -> u32 {
        self.target
    }

    /// The kernel with this name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.entries
            .iter()
            .find(|entry| entry.name == name)
            .cloned()
    }

    /// The kernels in the order of the text, each with its name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Arc<Entry>)> {
        self.entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry))
    }
}

/// A kernel.
#[derive(Debug)]
pub struct Entry {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    pub(crate) params_size: usize,
    /// The most threads that a block may have: `.maxntid`.
    pub(crate) max_block: Option<u64>,
    /// The threads that a block must have: `.reqntid`.
    pub(crate) required_block: Option<[u32; 3]>,
    pub(crate) code: Vec<Instruction>,
    /// What each slot of a thread's values holds when the thread begins.
    pub(crate) slots: Vec<Source>,
}

impl Entry {
    /// The name of the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters in their order.
    #[must_use]
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The bytes of all parameters: the size of [`Launch::params`].
    #[must_use]
    pub fn params_size(&self) -> usize {
        self.params_size
    }

    /// Runs a grid of this kernel. Returns when all threads have ended.
    ///
    /// # Errors
    ///
    /// A thread faulted, or the machine stopped the kernel. What the kernel has written until then
    /// stays.
    pub fn run(&self, launch: &Launch, machine: &dyn Machine) -> Result<(), Fault> {
        self.check(launch)?;
        crate::run::grid(self, launch, machine)
    }
}

/// Where a parameter of a kernel is in [`Launch::params`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// The first byte.
    pub offset: usize,
    /// The number of bytes.
    pub size: usize,
}
