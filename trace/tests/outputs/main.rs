//! Tests of both outputs, Perfetto's JSON and the SVG picture, and of the check for JSON.

mod check;
mod frames;
mod perfetto;
mod random;
mod recorded;
mod svg;
