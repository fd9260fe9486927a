//! Words of this process, as memory of the host.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

#[allow(unused_imports, reason = "for links, also in the facade")]
use crate::Error;
use crate::backend::kit::require_range;
use crate::{Result, error::Object};

/// A range of words of this process. Cheap to clone.
#[derive(Clone)]
pub struct Buffer {
    all: Arc<[AtomicU32]>,
    range: Range<usize>,
}

impl From<Arc<[AtomicU32]>> for Buffer {
    fn from(all: Arc<[AtomicU32]>) -> Self {
        let range = 0..all.len();
        Self { all, range }
    }
}

impl Buffer {
    /// A range of this range. It keeps all of the words.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless both numbers are multiples of 4, `size` is positive, and the
    /// range ends within this one.
    pub fn view(&self, offset: u64, size: u64) -> Result<Self> {
        let object = Object::new("host memory", "");
        require_range(&object, 4 * self.range.len() as u64, offset, size)?;
        let index = |size: u64| usize::try_from(size / 4).unwrap_or(usize::MAX);
        let start = self.range.start.saturating_add(index(offset));
        let range = start..start.saturating_add(index(size));
        let all = self.all.clone();
        Ok(Self { all, range })
    }
}

impl Deref for Buffer {
    type Target = [AtomicU32];

    fn deref(&self) -> &[AtomicU32] {
        &self.all[self.range.clone()]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host memory ({} bytes)", 4 * self.range.len())
    }
}
