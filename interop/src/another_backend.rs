//! The error for an object of another backend than the wanted one.

use syncline_core::{Error, error::Object};

/// The error for an accessor of another backend than the object's.
#[cold]
pub(crate) fn another_backend(object: &Object, wanted: &str) -> Error {
    Error::unsupported(
        object,
        format!("be used as one of {wanted}"),
        "it belongs to another backend. Use a device or queue of the wanted backend",
    )
}
