//! Carrying out a plan in several processes. The home exports handles, and the others import them.
//!
//! | file | contents |
//! |---|---|
//! | `make` | offering the object at the home, and taking it elsewhere |
//! | `execution` | one call that carries out a plan |
//! | `parts` | making the timelines of one process, with or without received handles |
//! | `timeline` | the numbers of timelines in messages, and failing a timeline if its signaller dies |
//! | `memory` | shared memory that goes with the timelines |
//! | `binary` | a binary semaphore in each of two processes |
//! | `waits` | waits for a binary semaphore of another device, and their release if it is lost |
//! | `poller` | the thread that looks for such a loss |

mod binary;
mod execution;
mod make;
mod memory;
mod parts;
mod poller;
mod timeline;
mod waits;

pub(crate) use self::binary::DeviceSemaphore;
pub(crate) use self::timeline::NumberedTimelines;
pub(crate) use self::waits::LocalSignaller;
