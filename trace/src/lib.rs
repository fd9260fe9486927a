//! Turns recordings of traces into JSON and SVG.
//!
//! A [`Recording`] says when each submission was made, held, released, begun and
//! ended, on every queue of every API, on one axis of time. This crate turns it into
//!
//! * [`perfetto::Trace`]: JSON that <https://ui.perfetto.dev> and `chrome://tracing` open, with a
//!   track for each queue and arrows from signals to the waits that they released, across APIs;
//! * [`svg::Picture`]: one picture without scripts or fonts of its own, for a README, a slide or a
//!   bug report.
//!
//! Both are [`Display`](std::fmt::Display): `to_string()`, or `write!(file, "{trace}")`. Equal
//! recordings give equal text. [`check`] says whether Perfetto's importer accepts a whole text in
//! the JSON format.
//!
//! Any recording is accepted, also with times that contradict each other or lie centuries apart.
//! The output says what it cannot show as recorded.

pub mod check;
pub mod perfetto;
pub mod svg;

mod life;
mod rows;

#[doc(no_inline)]
pub use syncline_core::trace::Recording;
