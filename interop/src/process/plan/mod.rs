//! Carrying out a plan in several processes. The home exports handles, and the others import them.
//!
//! | file | contents |
//! |---|---|
//! | `make` | offering the object at the home, and taking it elsewhere |
//! | `execution` | one call that carries out a plan |
//! | `parts` | making the timelines of one process, with or without received handles |
//! | `timeline` | the numbers of timelines in messages, and failing a timeline if its signaller dies |
//! | `memory` | shared memory that goes with the timelines |

mod execution;
mod make;
mod memory;
mod parts;
mod timeline;
