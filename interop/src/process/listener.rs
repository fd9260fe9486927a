//! Where other processes connect.

use std::path::Path;
use std::time::Duration;

use syncline_core::{Error, Result};

use super::Endpoint;

/// A path at which other processes connect.
#[derive(Debug)]
pub struct Listener;

impl Listener {
    /// Makes it.
    ///
    /// # Errors
    /// If there is something at the path.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self> {
        let _ = path;
        Err(Error::NothingToWaitFor)
    }

    /// The next process.
    ///
    /// # Errors
    /// [`Error::PeerSilent`].
    pub fn accept(&self, label: &str, timeout: Duration) -> Result<Endpoint> {
        let _ = (label, timeout);
        Err(Error::NothingToWaitFor)
    }
}
