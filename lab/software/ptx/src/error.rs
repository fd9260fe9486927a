//! Why a text is refused.

use thiserror::Error;

/// Why a module is refused, and at which line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {refusal}")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: u32,
    /// The reason.
    pub refusal: Refusal,
}

/// Why a module is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The text is not PTX.
    #[error("expected {expected}, found {found}")]
    Syntax {
        /// What PTX has in this place.
        expected: &'static str,
        /// What the text has in this place.
        found: String,
    },
    /// The text is written in a version of PTX that the reader does not know.
    ///
    /// A CUDA driver answers `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`, and for all other refusals
    /// `CUDA_ERROR_INVALID_PTX`.
    #[error("PTX {}.{} is not known", .0.0, .0.1)]
    Version((u32, u32)),
    /// The target is not known, or the version of PTX is older than the target.
    #[error("PTX {}.{} has no target sm_{target}", version.0, version.1)]
    Target {
        /// The version of the text.
        version: (u32, u32),
        /// The target of the text.
        target: u32,
    },
    /// The interpreter does not have this instruction, or not with these modifiers.
    #[error("the instruction `{0}` is not supported")]
    Instruction(String),
    /// The interpreter does not have this directive.
    #[error("the directive `{0}` is not supported")]
    Directive(String),
    /// The interpreter has no floating-point numbers: a type or a constant.
    #[error("`{0}`: floating-point numbers are not supported")]
    FloatingPoint(String),
    /// An operand does not fit the instruction.
    #[error("`{instruction}`: {reason}")]
    Operand {
        /// The instruction with its modifiers.
        instruction: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The module's version or target is older than the instruction.
    #[error("`{instruction}` requires PTX {}.{} and sm_{target}", version.0, version.1)]
    Requires {
        /// The instruction with its modifiers.
        instruction: String,
        /// The first version of PTX that has the instruction.
        version: (u32, u32),
        /// The first target that has the instruction.
        target: u32,
    },
    /// A register, a label or a parameter is used and not declared.
    #[error("`{0}` is not declared")]
    Undeclared(String),
    /// Something is declared twice.
    #[error("`{0}` is declared twice")]
    Duplicate(String),
    /// The module exceeds a limit.
    #[error("too many or too large: {0}")]
    Limit(&'static str),
}
