//! One picture, in SVG: a lane for each queue, what ran there when, and which signal released which
//! wait.
//!
//! The picture stands by itself: no scripts, no fonts, nothing to load. It brings its own ground,
//! light or dark as the reader asks for, so that it can be read on any page. APIs have colours that
//! stay apart for the colour-blind, and no meaning hangs on a colour alone: what failed, was held
//! or had not ended looks different, too, and hovering over a run in a browser tells its times.
//!
//! Runs narrower than half a pixel are drawn together with those beside them, so the size of a
//! picture is bounded by its width. How many these were is said in the picture, as is all else that
//! it leaves out.

mod arrows;
mod axis;
mod draw;
mod runs;
mod style;
mod text;
mod window;
mod words;

use std::fmt::{self, Display, Formatter};

use syncline_core::trace::Recording;

/// What of a recording is drawn, and how wide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What stands above it. By default the number of queues and the APIs they belong to.
    pub title: Option<String>,
    /// The beginning of what is drawn, in nanoseconds since the recording was begun. By default see
    /// [`submissions`](Self::submissions).
    pub from: Option<i64>,
    /// Its end, likewise. If it is not after the beginning, one microsecond is drawn.
    pub to: Option<i64>,
    /// In pixels, from 480 to 8000; others count as the nearest of these. By default 1280.
    pub width: u32,
    /// Of a recording with more submissions than this, those in its middle are drawn, unless
    /// [`from`](Self::from) or [`to`](Self::to) is given. By default 48; at least 1.
    pub submissions: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            title: None,
            from: None,
            to: None,
            width: 1280,
            submissions: 48,
        }
    }
}

/// A recording as a picture; [`Display`] writes it.
#[derive(Debug, Clone)]
pub struct Picture<'r> {
    recording: &'r Recording,
    options: Options,
}

impl<'r> Picture<'r> {
    /// The recording as a picture.
    #[must_use]
    pub const fn new(recording: &'r Recording, options: Options) -> Self {
        Self { recording, options }
    }
}

impl Display for Picture<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&draw::picture(self.recording, &self.options))
    }
}
