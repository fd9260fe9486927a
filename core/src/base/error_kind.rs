//! The kinds of errors, for programs that only need to know what to do next.

use crate::base::error::Error;

/// The kind of an [`Error`].
///
/// For an error that reports another one, [`Error::root`] has the kind of the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A driver or device is missing, or cannot be used on this machine.
    Unavailable,
    /// The object or device cannot do this. Another one may.
    Unsupported,
    /// A call of a driver or of the system failed: [`Error::Native`].
    Driver,
    /// The device is lost. Drop what belongs to it.
    DeviceLost,
    /// The object belongs to the parent process. Open devices in the forked child.
    MadeBeforeFork,
    /// The value cannot be signalled or waited for.
    InvalidValue,
    /// The call would never end, or work would wait for itself.
    Deadlock,
    /// Work returned an error or panicked.
    Work,
    /// A timeline or submission failed. [`Error::root`] is the cause if it is known here.
    Failed,
    /// The last handle of the timeline is gone, or another thread has closed the object.
    Cancelled,
    /// The time limit has passed. Nothing has changed, and the call can be repeated.
    TimedOut,
    /// It has not happened yet: a value is not pending or not reached, or a fence is not recorded.
    NotReady,
    /// There is no time, or the times cannot be compared.
    NoTime,
    /// A stream capture is in the way.
    Capture,
    /// The other process has died or has left.
    PeerLost,
    /// The other process has sent or written something invalid.
    PeerInvalid,
}

impl Error {
    /// The kind of this error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unavailable { .. } | Self::NoSuchDevice { .. } => ErrorKind::Unavailable,
            Self::Unsupported { .. }
            | Self::CannotShare { .. }
            | Self::Conflict(_)
            | Self::WrongDevice { .. }
            | Self::ForeignFence { .. }
            | Self::PayloadInUse { .. }
            | Self::Import { .. } => ErrorKind::Unsupported,
            Self::Native { .. } => ErrorKind::Driver,
            Self::DeviceLost { .. } => ErrorKind::DeviceLost,
            Self::MadeBeforeFork { .. } => ErrorKind::MadeBeforeFork,
            Self::SignalNotAboveReached { .. }
            | Self::SignalOverlapsClaim { .. }
            | Self::DuplicateSignal { .. }
            | Self::ValueOutOfRange { .. } => ErrorKind::InvalidValue,
            Self::SignalBehindOwnWait { .. }
            | Self::Circular { .. }
            | Self::Reentrant { .. }
            | Self::NothingToWaitFor => ErrorKind::Deadlock,
            Self::WorkPanicked { .. } | Self::Work(_) => ErrorKind::Work,
            Self::Failed { .. } | Self::Skipped { .. } | Self::FailedElsewhere { .. } => {
                ErrorKind::Failed
            }
            Self::Cancelled { .. } | Self::Closed { .. } => ErrorKind::Cancelled,
            Self::TimedOut { .. } | Self::PeerSilent { .. } => ErrorKind::TimedOut,
            Self::NotPending { .. }
            | Self::NotRecorded { .. }
            | Self::NotReady { .. }
            | Self::NotReached { .. } => ErrorKind::NotReady,
            Self::TimingDisabled { .. }
            | Self::TimesNotEnabled { .. }
            | Self::TimeForgotten { .. }
            | Self::TimeNotTold { .. }
            | Self::NoTime { .. }
            | Self::TimingDiffers { .. }
            | Self::ClockSilent { .. } => ErrorKind::NoTime,
            Self::Captured { .. } | Self::CaptureEnded { .. } | Self::Capturing { .. } => {
                ErrorKind::Capture
            }
            Self::PeerLost { .. } => ErrorKind::PeerLost,
            Self::Corrupted { .. } | Self::Message { .. } => ErrorKind::PeerInvalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::Device as _;
    use crate::host;

    #[test]
    fn an_error_has_the_kind_that_tells_what_to_do() {
        let line = host::Device::new().timeline("line").unwrap();
        line.signal(2).unwrap();
        assert_eq!(line.signal(1).unwrap_err().kind(), ErrorKind::InvalidValue);
        let late = line.at(3).wait(Duration::ZERO).unwrap_err();
        assert!(late.is_timeout());
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        line.fail(Error::work(std::io::Error::other("broken")));
        let failed = line.at(3).wait(Duration::ZERO).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Failed);
        assert_eq!(failed.root().kind(), ErrorKind::Work);
    }
}
