//! The loader, the instance, the validation layer, and typed errors of driver calls.

pub(crate) mod error;
pub(crate) mod instance;
pub(crate) mod validation;
