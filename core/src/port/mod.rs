//! What a timeline needs from a device: a port, a thread that watches its signals, and times.

pub(crate) mod attachment;
mod device_port;
pub(crate) mod parker;
mod stamp;
pub(crate) mod watch;

pub use device_port::{ByEngine, Port, Recovered, SharedPort};
pub use stamp::Stamp;
pub use watch::Watch;
