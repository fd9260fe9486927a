//! What records of fences write besides a position.

/// What the records of a fence write besides its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timing {
    /// Nothing.
    None,
    /// A time that tells what has passed since others of its kind.
    Interval,
    /// A time on the device's [clock](crate::backend::Device::clock).
    Clock,
}

impl std::fmt::Display for Timing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "no times",
            Self::Interval => "timing",
            Self::Clock => "times on a clock",
        })
    }
}
