//! The kind of time that the records of a fence write.

/// The kind of time that each record of a fence writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timing {
    /// No time.
    None,
    /// A time from which the interval to other times of this kind can be computed.
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
