//! An SVG picture: a lane for each queue with its runs, and arrows from signals to waits.
//!
//! The picture needs nothing else: no scripts, no fonts, no files. It has a background of its own,
//! light or dark as the reader's system prefers, so that it can be read on any page. The colours of
//! APIs differ for the colour-blind, too. No meaning depends on a colour alone: failed, held and
//! unfinished runs look different. A browser shows the times of a run under the pointer.
//!
//! Runs narrower than half a pixel are drawn together with their neighbours. So the size of a
//! picture is bounded by its width. The picture says how many these were, and what else it leaves
//! out.

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

/// Which part of a recording is drawn, and how wide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The title above the picture. By default the number of queues and their APIs.
    pub title: Option<String>,
    /// The begin of the drawn part, in nanoseconds since the recording began. By default see
    /// [`submissions`](Self::submissions).
    pub from: Option<i64>,
    /// The end of the drawn part. If it is not after the begin, one microsecond is drawn.
    pub to: Option<i64>,
    /// The width in pixels, clamped to 480..=8000. By default 1280.
    pub width: u32,
    /// Number of submissions that are drawn, from the middle of a longer recording.
    ///
    /// Ignored if [`from`](Self::from) or [`to`](Self::to) is given. By default 48, and at least 1.
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

/// A recording that [`Display`] writes as a picture.
#[derive(Debug, Clone)]
pub struct Picture<'r> {
    recording: &'r Recording,
    options: Options,
}

impl<'r> Picture<'r> {
    /// Wraps a recording.
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
