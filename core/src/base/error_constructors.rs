//! Constructors of the errors that backends and the facade return.
//!
//! The variants may get more fields, so other crates cannot write them as struct expressions.

use std::borrow::Cow;
use std::time::Duration;

use crate::base::blockers::Blockers;
use crate::base::descriptors::with_shortage;
use crate::base::error::{Error, Failure, Object, WrappedError};
use crate::base::handle::PayloadUse;
use crate::base::info::{BackendKind, Info};
use crate::base::peer::PeerLoss;
use crate::base::stage::Stage;

/// Each constructor makes the variant of its name, and takes the fields in their order.
impl Error {
    /// Makes an [`Error::Unavailable`].
    ///
    /// The reason also tells if the process has few descriptors left.
    #[must_use]
    pub fn unavailable(backend: BackendKind, reason: impl Into<String>) -> Self {
        let reason = with_shortage(reason.into());
        Self::Unavailable { backend, reason }
    }

    /// Makes an [`Error::NoSuchDevice`].
    #[must_use]
    pub fn no_such_device(asked: impl Into<String>, have: impl Into<String>) -> Self {
        Self::NoSuchDevice {
            asked: asked.into(),
            have: have.into(),
        }
    }

    /// Makes an [`Error::MadeBeforeFork`]. `maker` is the id of the process that made the object.
    #[must_use]
    pub fn made_before_fork(object: impl Into<Object>, maker: u32) -> Self {
        Self::MadeBeforeFork {
            object: object.into(),
            maker,
        }
    }

    /// Makes an [`Error::WorkPanicked`].
    #[must_use]
    pub fn work_panicked(queue: impl Into<Object>, message: impl Into<String>) -> Self {
        Self::WorkPanicked {
            queue: queue.into(),
            message: message.into(),
        }
    }

    /// Makes an [`Error::Unsupported`].
    #[must_use]
    pub fn unsupported(
        object: impl Into<Object>,
        asked: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            object: object.into(),
            asked: asked.into(),
            reason: reason.into(),
        }
    }

    /// Makes an [`Error::Native`].
    ///
    /// The name also tells if the process has few descriptors left, because drivers have no code
    /// for that.
    #[must_use]
    pub fn native(
        object: impl Into<Object>,
        call: &'static str,
        code: i64,
        name: impl Into<String>,
    ) -> Self {
        Self::Native {
            object: object.into(),
            call,
            code,
            name: with_shortage(name.into()),
        }
    }

    /// Makes an [`Error::DeviceLost`].
    #[must_use]
    pub fn device_lost(
        object: impl Into<Object>,
        call: &'static str,
        code: i64,
        name: impl Into<String>,
    ) -> Self {
        Self::DeviceLost {
            object: object.into(),
            call,
            code,
            name: name.into(),
        }
    }

    /// Makes an [`Error::WrongDevice`].
    #[must_use]
    pub fn wrong_device(
        object: impl Into<Object>,
        owner: impl Into<Object>,
        asked: impl Into<Object>,
    ) -> Self {
        Self::WrongDevice {
            object: object.into(),
            owner: owner.into(),
            asked: asked.into(),
        }
    }

    /// Makes an [`Error::Reentrant`].
    #[must_use]
    pub fn reentrant(queue: impl Into<Object>) -> Self {
        Self::Reentrant {
            queue: queue.into(),
        }
    }

    /// Makes an [`Error::Closed`].
    #[must_use]
    pub fn closed(object: impl Into<Object>) -> Self {
        Self::Closed {
            object: object.into(),
        }
    }

    /// Makes an [`Error::CannotShare`].
    #[must_use]
    pub fn cannot_share(
        left: impl Into<String>,
        right: impl Into<String>,
        what: &'static str,
        reason: impl Into<Box<str>>,
        conflict: Option<WrappedError>,
    ) -> Self {
        Self::CannotShare {
            left: left.into(),
            right: right.into(),
            what,
            reason: reason.into(),
            conflict,
        }
    }

    /// Makes an [`Error::ValueOutOfRange`].
    #[must_use]
    pub fn value_out_of_range(
        timeline: impl Into<Object>,
        asked: u64,
        reached: u64,
        largest: u64,
    ) -> Self {
        Self::ValueOutOfRange {
            timeline: timeline.into(),
            asked,
            reached,
            largest,
        }
    }

    /// Makes an [`Error::Failed`].
    #[must_use]
    pub fn failed(timeline: impl Into<Object>, value: u64, cause: Failure) -> Self {
        Self::Failed {
            timeline: timeline.into(),
            value,
            cause,
        }
    }

    /// Makes an [`Error::TimedOut`].
    #[must_use]
    pub fn timed_out(
        object: impl Into<Object>,
        stage: Stage,
        value: u64,
        reached: u64,
        pending: u64,
        waited: Duration,
        blockers: Blockers,
    ) -> Self {
        Self::TimedOut {
            object: object.into(),
            stage,
            value,
            reached,
            pending,
            waited,
            blockers,
        }
    }

    /// Makes an [`Error::NotReady`].
    #[must_use]
    pub fn not_ready(fence: impl Into<Object>) -> Self {
        let fence = fence.into();
        Self::NotReady { fence }
    }

    /// Makes an [`Error::NoTime`].
    #[must_use]
    pub fn no_time(timeline: impl Into<Object>, value: u64, reason: impl Into<String>) -> Self {
        Self::NoTime {
            timeline: timeline.into(),
            value,
            reason: reason.into(),
        }
    }

    /// Makes an [`Error::ClockSilent`].
    #[must_use]
    pub fn clock_silent(
        clock: impl Into<Object>,
        waited: Duration,
        reason: impl Into<String>,
    ) -> Self {
        Self::ClockSilent {
            clock: clock.into(),
            waited,
            reason: reason.into(),
        }
    }

    /// Makes an [`Error::Captured`].
    #[must_use]
    pub fn captured(fence: impl Into<Object>) -> Self {
        let fence = fence.into();
        Self::Captured { fence }
    }

    /// Makes an [`Error::CaptureEnded`].
    #[must_use]
    pub fn capture_ended(fence: impl Into<Object>) -> Self {
        let fence = fence.into();
        Self::CaptureEnded { fence }
    }

    /// Makes an [`Error::Capturing`].
    #[must_use]
    pub fn capturing(
        object: impl Into<Object>,
        asked: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::Capturing {
            object: object.into(),
            asked: asked.into(),
            reason: reason.into(),
        }
    }

    /// Makes an [`Error::FailedElsewhere`].
    #[must_use]
    pub fn failed_elsewhere(
        counter: impl Into<Object>,
        code: i64,
        cause: impl Into<String>,
    ) -> Self {
        Self::FailedElsewhere {
            counter: counter.into(),
            code,
            cause: cause.into(),
        }
    }

    /// Makes an [`Error::PeerLost`].
    #[must_use]
    pub fn peer_lost(endpoint: impl Into<Object>, process: u32, how: PeerLoss) -> Self {
        Self::PeerLost {
            endpoint: endpoint.into(),
            process,
            how,
        }
    }

    /// Makes an [`Error::PeerSilent`] without lost devices.
    #[must_use]
    pub fn peer_silent(
        endpoint: impl Into<Object>,
        process: u32,
        awaited: impl Into<Cow<'static, str>>,
        waited: Duration,
    ) -> Self {
        Self::PeerSilent {
            endpoint: endpoint.into(),
            process,
            awaited: awaited.into(),
            waited,
            lost: Box::default(),
        }
    }

    /// Makes an [`Error::Message`].
    #[must_use]
    pub fn message(
        endpoint: impl Into<Object>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Message {
            endpoint: endpoint.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Makes the [`Error::Native`] of an operation on `object` for which the system has no thread.
    #[must_use]
    pub fn no_thread(object: &Object, error: &std::io::Error) -> Self {
        Self::native(
            object,
            "starting a thread",
            error.raw_os_error().map_or(-1, i64::from),
            error.to_string(),
        )
    }

    /// Makes an [`Error::PayloadInUse`].
    #[must_use]
    pub fn payload_in_use(
        semaphore: impl Into<Object>,
        asked: impl Into<String>,
        by: PayloadUse,
    ) -> Self {
        Self::PayloadInUse {
            semaphore: semaphore.into(),
            asked: asked.into(),
            by,
        }
    }

    /// Makes an [`Error::Corrupted`].
    #[must_use]
    pub fn corrupted(counter: impl Into<Object>, found: u64, reason: impl Into<String>) -> Self {
        Self::Corrupted {
            counter: counter.into(),
            found,
            reason: reason.into(),
        }
    }

    /// Makes an [`Error::Import`].
    #[must_use]
    pub fn import(
        object: impl Into<Object>,
        what: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::Import {
            object: object.into(),
            what: what.into(),
            reason: reason.into(),
        }
    }
}

impl Error {
    /// Makes an [`Error::NoSuchDevice`] with a list of all devices, which are `infos`.
    #[must_use]
    pub fn no_device_among<'i>(asked: &str, infos: impl IntoIterator<Item = &'i Info>) -> Self {
        let infos = infos.into_iter().enumerate();
        let lines = infos.map(|(n, info)| format!("{n} {} \"{}\"", info.backend, info.name));
        let have = lines.collect::<Vec<_>>().join(", ");
        Self::no_such_device(asked, if have.is_empty() { "none".into() } else { have })
    }
}
