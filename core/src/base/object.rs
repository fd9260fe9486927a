//! Names and ids of objects.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The next id. All kinds of objects share one sequence, so no two objects have the same number.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The name of an object in errors: its kind, its label if it has one, and its id.
///
/// A clone counts one reference and allocates nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Object(Arc<Name>);

#[derive(PartialEq, Eq)]
struct Name {
    kind: &'static str,
    id: u64,
    label: Box<str>,
}

impl Object {
    /// Names a new object of `kind` (a word such as `"queue"`) with a fresh id.
    #[must_use]
    pub fn new(kind: &'static str, label: &str) -> Self {
        Self(Arc::new(Name {
            kind,
            id: next_id(),
            label: label.into(),
        }))
    }

    /// True if another clone of the name exists.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The id, unique in this process.
    #[must_use]
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The label that its creator gave. May be empty.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0.label
    }
}

impl From<&Self> for Object {
    fn from(object: &Self) -> Self {
        object.clone()
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name { kind, id, label } = &*self.0;
        if label.is_empty() {
            write!(f, "{kind} #{id}")
        } else {
            write!(f, "{kind} \"{label}\" #{id}")
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
