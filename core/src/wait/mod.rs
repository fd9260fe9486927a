//! Waits of host threads for points of any backends, and what a wait waits for.
//!
//! ```
//! # extern crate syncline_core as syncline;
//! use std::time::Duration;
//! use syncline::backend::{Device as _, Queue as _};
//! use syncline::wait::Signaller;
//! use syncline::{Error, QueueKind, host, wait_any};
//!
//! # fn main() -> syncline::Result<()> {
//! let device = host::Device::new();
//! let (first, second) = (device.timeline("first")?, device.timeline("second")?);
//! second.signal(1)?;
//! let points = [first.at(1), second.at(1)];
//! assert_eq!(wait_any(&points, Duration::from_secs(5))?, 1);
//!
//! // What is missing?
//! let told = first.at(1).wait(Duration::from_millis(1));
//! assert!(matches!(told, Err(Error::TimedOut { .. })));
//! assert_eq!(first.at(1).blockers().steps()[0].by, Signaller::None);
//! # Ok(())
//! # }
//! ```

pub(crate) mod blocking;
pub mod future;
mod lead;
pub(crate) mod notify;
mod point;
mod signal;

pub use crate::base::blockers::{Blockers, Signaller, Step};
pub use crate::base::stage::Stage;
pub(crate) use blocking::wait_pending_or;
pub use notify::Notification;
