//! What is written of a recording: Perfetto's JSON and the picture, and the check that documents
//! pass.

mod check;
mod frames;
mod perfetto;
mod random;
mod recorded;
mod svg;
