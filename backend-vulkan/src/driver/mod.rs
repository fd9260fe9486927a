//! The loader, the instance, the validation layer, and errors of driver calls.

pub(crate) mod error;
pub(crate) mod instance;
pub(crate) mod lock;
pub(crate) mod validation;
