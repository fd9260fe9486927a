//! Timelines, and the ports that they are made of.

pub(crate) mod access;
pub(crate) mod claim;
pub(crate) mod held_index;
pub(crate) mod host_signals;
pub(crate) mod point;
pub(crate) mod recent_waits;
pub(crate) mod state;
pub(crate) mod times;
pub(crate) mod waiters;

use std::fmt;
use std::sync::Arc;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::port::Port;
use crate::port::attachment::Attachments;
use crate::timeline::claim::Claim;
use crate::timeline::point::{Point, Signal};
use crate::timeline::state::Shared;

/// A 64-bit counter that only grows, which queues of any backend and the host signal and wait for.
///
/// A handle is the right to signal: when the last one goes, waits that no claim covers end with
/// [`Error::Cancelled`]. Points of it own only memory. Dropping that last handle may take a moment, 50 ms at the
/// very most, while the device's watching thread lets go of it.
///
/// See VkSemaphore with `VK_SEMAPHORE_TYPE_TIMELINE` (Vulkan 1.3, 7.4.1) for the semantics this
/// keeps, and `docs/contract.md` (T1–T10) for what is added.
#[derive(Clone)]
pub struct Timeline(Arc<Owner>);

struct Owner {
    of: Arc<Shared>,
    /// If it is a side of a bridge: the right to signal of all sides, which close together.
    joined: Option<Arc<dyn Joined>>,
}

/// The right to signal of all sides of a bridge.
pub(crate) trait Joined: Send + Sync {
    /// The names of all sides.
    fn objects(&self) -> Vec<&Object>;
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.joined.is_none() {
            self.of.close();
        }
    }
}

impl Timeline {
    /// A timeline over the ports that `attach` makes at the given initial value; the first is its home.
    ///
    /// A port that was [imported](crate::backend::Attachment::imported) may be further. The highest value that such a port shows has
    /// been signalled, and is not signalled again. A port that the host cannot read is not checked.
    ///
    /// # Errors
    /// [`Error::ValueOutOfRange`] for `u64::MAX`; [`Error::Unsupported`] without any port, if a port stands at another
    /// value, if an imported home stands below `initial`, or if the host cannot read the first port; what `attach`
    /// returns.
    pub fn new(
        label: &str,
        initial: u64,
        attach: impl FnOnce(u64) -> Result<Attachments>,
    ) -> Result<Self> {
        let object = Object::new("timeline", label);
        if initial == u64::MAX {
            return Err(Error::ValueOutOfRange {
                timeline: object,
                asked: initial,
                reached: 0,
                largest: u64::MAX - 1,
            });
        }
        Self::over(object, initial, attach(initial)?)
    }

    /// As [`Timeline::new`]. Apart, so that it is compiled once and not for each closure.
    fn over(object: Object, initial: u64, attachments: Attachments) -> Result<Self> {
        // The highest value that an imported port shows.
        let mut signalled = initial;
        for (place, attachment) in attachments.iter().enumerate() {
            let shown = attachment.shown();
            let is_wrong = |at: u64| match attachment.at {
                Some(_) => at != initial,
                None => place == 0 && at < initial,
            };
            if let Some(at) = shown.filter(|&at| is_wrong(at)) {
                return Err(Error::Unsupported {
                    object,
                    asked: format!("start at {initial}"),
                    reason: format!("its port on {:?} stands at {at}", attachment.device),
                });
            }
            signalled = signalled.max(shown.unwrap_or(initial));
        }
        let mut attachments = attachments.into_iter();
        let reason = match attachments.next() {
            None => "a timeline needs a port on at least one device",
            Some(home) if !home.port.is_readable() => {
                "nobody would ever see it advance: the host cannot read its first port; put one that it can before it"
            }
            Some(home) => {
                let of = Shared::new(object, initial, home, attachments.collect());
                of.note_signalled(signalled);
                let of = Arc::new(of);
                if of.is_from_afar() {
                    of.know(&of);
                }
                return Ok(Self(Arc::new(Owner { of, joined: None })));
            }
        };
        Err(Error::Unsupported {
            object,
            asked: "exist".into(),
            reason: reason.into(),
        })
    }

    /// Its name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.of.object
    }

    /// The value reached by now. A driver call if something is outstanding, else a load.
    ///
    /// # Errors
    /// [`Error::Failed`]: the timeline failed; the value it froze at is in [`Timeline::frozen_value`].
    #[inline]
    pub fn value(&self) -> Result<u64> {
        self.0.of.value()
    }

    /// The value that the engine knows to be reached, whether or not the timeline has failed since. A load.
    #[must_use]
    #[inline]
    pub fn frozen_value(&self) -> u64 {
        self.0.of.reached()
    }

    /// The point at `value`: something to wait for.
    #[inline]
    pub fn at(&self, value: u64) -> Point<'_> {
        Point {
            of: Some(&self.0.of),
            value,
        }
    }

    /// The signal of `value`: something for a submission to make.
    #[inline]
    pub fn signal_at(&self, value: u64) -> Signal<'_> {
        Signal {
            of: &self.0.of,
            value,
        }
    }

    /// Fails the timeline: it freezes at the value it has, and every present and future wait above
    /// that ends with `cause`. The first failure stays. Work already with a driver still runs.
    pub fn fail(&self, cause: Error) {
        self.0.of.fail(cause.into_cause());
    }

    /// Claims `value` for a submission that the application makes itself.
    /// `own_wait` is the highest value of this timeline that the submission waits for, else 0.
    ///
    /// # Errors
    /// As for a signal in [`Queue::submit`](crate::backend::Queue::submit); [`Error::Unsupported`] for a
    /// timeline with its home on the host, which no driver signals.
    pub fn claim(&self, value: u64, own_wait: u64) -> Result<Claim> {
        if self.0.of.watch().is_none() {
            return Err(Error::Unsupported {
                object: self.object().clone(),
                asked: format!("be claimed up to {value} for a raw submission"),
                reason: "no driver signals it; signal it from the host, or submit to a queue"
                    .into(),
            });
        }
        self.0.of.refresh_if_far(value);
        let interval = self.0.of.claim(value, own_wait)?;
        self.0.of.add_raw_claim();
        Ok(Claim::new(self.0.of.clone(), interval))
    }

    /// The port of this timeline on `device`, if it has one and it is of type `P`. Backends use this
    /// to hand raw semaphores out.
    #[must_use]
    pub fn port<P: Port>(&self, device: DeviceId) -> Option<&P> {
        self.0.of.port_on(device)?.downcast_ref()
    }

    /// The same timeline as one side of a bridge. There must be no other handle of it: one would close the side by itself.
    pub(crate) fn joined(self, joined: &Arc<dyn Joined>) -> Self {
        let of = self.0.of.clone();
        if let Some(mut owner) = Arc::into_inner(self.0) {
            // It is not the last handle that goes here.
            owner.joined = Some(joined.clone());
        }
        let joined = Some(joined.clone());
        Self(Arc::new(Owner { of, joined }))
    }

    /// The names of all sides, its own among them, if it is one side of a [bridge](Timeline::bridged): then what another side's device
    /// signals reaches this one's through the host. Nothing for any other timeline.
    pub fn bridge(&self) -> impl Iterator<Item = &Object> {
        self.0.joined.iter().flat_map(|joined| joined.objects())
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.of
    }

    /// The devices on which queues wait for it and signal it natively; its home comes first.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.0.of.devices()
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.of, f)
    }
}
