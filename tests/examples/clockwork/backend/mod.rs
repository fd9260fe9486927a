//! A complete small backend, from the public contract alone. `docs/write-a-backend.md` walks
//! through it.
//!
//! | file | what it is |
//! |---|---|
//! | `driver.rs` | the artificial driver; nothing there knows of Syncline |
//! | `device.rs` | [`Device`]: `backend::Device`, and the [`Port`](device::Port) and watch of its counters |
//! | `queue.rs` | [`Queue`]: `backend::Queue` over a `SubmissionQueue`, and the [`Channel`] that hands submissions over |
//! | `share.rs` | timelines that two devices of one machine share natively |
//! | `clock.rs` | [`Ticks`](clock::Ticks): the machine's clock, read together with the host's |
//! | `memory.rs` | [`Buffer`]: not part of the contract, but work needs something to work on |
//! | `suite.rs` | the conformance suite for it |

pub(crate) mod clock;
pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod memory;
pub(crate) mod queue;
mod share;
pub(crate) mod suite;

pub(crate) use device::Device;
pub(crate) use memory::Buffer;
pub(crate) use queue::Recorder;
