//! The handle of a timeline.

use std::fmt;
use std::sync::Arc;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::port::Port;
use crate::port::attachment::{Attachment, Attachments};
use crate::timeline::claim::Claim;
use crate::timeline::point::{Point, Signal};
use crate::timeline::state::Shared;

/// A 64-bit counter that only grows. Queues of any backend and the host signal it and wait for it.
///
/// A handle is the right to signal. When the last handle is dropped, waits that no claim covers end
/// with [`Error::Cancelled`]. Points keep only memory alive. The drop of the last handle may wait
/// up to 50 ms for the device's watching thread to release the timeline.
///
/// The semantics are those of a `VkSemaphore` of type `VK_SEMAPHORE_TYPE_TIMELINE` (Vulkan 1.3,
/// 7.4.1) with the additions of `docs/contract.md` (T1–T10).
#[derive(Clone)]
pub struct Timeline(Arc<Owner>);

struct Owner {
    of: Arc<Shared>,
    /// On a side of a bridge: the right to signal all sides. They close together.
    joined: Option<Arc<dyn JoinedSides>>,
}

/// The right to signal all sides of a bridge.
pub(crate) trait JoinedSides: Send + Sync {
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
    /// A timeline over the ports that `attach` makes at `initial`. The first port is its home.
    ///
    /// An [imported](crate::backend::Attachment::imported) port may show a higher value. The
    /// highest value that such a port shows counts as signalled and is not signalled again. A port
    /// that the host cannot read is not checked (T1).
    ///
    /// # Errors
    /// * [`Error::ValueOutOfRange`] for `u64::MAX`.
    /// * [`Error::Unsupported`] without any port, or if a port shows another value. Also if an
    ///   imported home shows a value below `initial`, or the host cannot read the first port. Also
    ///   if a port but the first is [new](crate::backend::Attachment::new): a timeline has one
    ///   counter, which its other ports import. Only a home in shared memory that another process
    ///   signals may have such a port beside it.
    /// * [`Error::Native`] if the system has no thread to watch its device.
    /// * Any error of `attach`.
    pub fn new(
        label: &str,
        initial: u64,
        attach: impl FnOnce(u64) -> Result<Attachments>,
    ) -> Result<Self> {
        let object = Object::new("timeline", label);
        if initial == u64::MAX {
            return Err(Error::value_out_of_range(object, initial, 0, u64::MAX - 1));
        }
        Self::over(object, initial, attach(initial)?)
    }

    /// The part of [`Timeline::new`] that does not depend on the closure's type, to be compiled
    /// once.
    fn over(object: Object, initial: u64, attachments: Attachments) -> Result<Self> {
        let is_of_a_peer = attachments
            .first()
            .is_some_and(Attachment::is_page_of_a_peer);
        let mut others = attachments.iter().skip(1);
        if let Some(other) = others.find(|other| other.is_new() && !is_of_a_peer) {
            return Err(Error::unsupported(
                object,
                "exist",
                format!(
                    "its port on {:?} is a counter of its own, and a timeline has one counter; import that",
                    other.device()
                ),
            ));
        }
        // The highest value that an imported port shows.
        let mut signalled = initial;
        for (index, attachment) in attachments.iter().enumerate() {
            match attachment.signalled(initial, index == 0) {
                Ok(value) => signalled = signalled.max(value),
                Err(at) => {
                    return Err(Error::unsupported(
                        object,
                        format!("start at {initial}"),
                        format!("its port on {:?} stands at {at}", attachment.device()),
                    ));
                }
            }
        }
        let mut attachments = attachments.into_iter();
        let reason = match attachments.next() {
            None => "a timeline needs a port on at least one device",
            Some(home) if !home.is_readable() => {
                "the host cannot read its first port, so it would never advance; put a readable port first"
            }
            Some(home) => {
                let others: Box<[_]> = attachments.collect();
                for watch in [&home]
                    .into_iter()
                    .chain(&others)
                    .filter_map(Attachment::watch)
                {
                    let started = watch.watcher().start();
                    started.map_err(|error| Error::no_thread(&object, &error))?;
                }
                let of = Shared::new(object, initial, home, others);
                // These values are reached from the first query on.
                of.raise_pending(signalled);
                let of = Arc::new(of);
                if of.ports().has_remote_home() {
                    of.set_own();
                }
                return Ok(Self(Arc::new(Owner { of, joined: None })));
            }
        };
        Err(Error::unsupported(object, "exist", reason))
    }

    /// The timeline's name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.0.of.object()
    }

    /// The reached value. Makes a driver call if a signal is outstanding, else a load.
    ///
    /// # Errors
    /// [`Error::Failed`] if the timeline has failed. [`Timeline::frozen_value`] still returns its
    /// value.
    #[inline]
    pub fn value(&self) -> Result<u64> {
        self.0.of.value()
    }

    /// The value that the engine knows to be reached, even if the timeline has failed since. A
    /// load.
    #[must_use]
    #[inline]
    pub fn frozen_value(&self) -> u64 {
        self.0.of.reached()
    }

    /// The point at `value`, to wait for.
    #[inline]
    pub fn at(&self, value: u64) -> Point<'_> {
        Point {
            of: Some(&self.0.of),
            value,
        }
    }

    /// The signal of `value`, for a submission to make.
    #[inline]
    pub fn signal_at(&self, value: u64) -> Signal<'_> {
        Signal {
            of: &self.0.of,
            value,
        }
    }

    /// Fails the timeline with `cause`, unless it has failed already.
    ///
    /// It freezes at its present value. Every present and future wait above that ends with `cause`
    /// (E1). Work that is already with a driver still runs.
    pub fn fail(&self, cause: Error) {
        self.0.of.fail(cause.into_cause());
    }

    /// Claims `value` for a submission that the application makes itself.
    ///
    /// A submission that also waits for a value of this timeline uses [`Timeline::claim_after`].
    /// `vulkan::Queue::submit_raw` claims by itself.
    ///
    /// # Errors
    /// Same errors as for a signal in [`Queue::submit`](crate::backend::Queue::submit).
    /// [`Error::Unsupported`] for a timeline with its home on the host, because no driver signals
    /// it.
    pub fn claim(&self, value: u64) -> Result<Claim> {
        self.claim_after(value, 0)
    }

    /// Claims `value` for a submission that waits for the value `waited` of this timeline itself.
    ///
    /// # Errors
    /// Same errors as [`Timeline::claim`]. [`Error::SignalBehindOwnWait`] if `waited` is not below
    /// `value`.
    pub fn claim_after(&self, value: u64, waited: u64) -> Result<Claim> {
        self.0.of.require_maker()?;
        if self.0.of.watch().is_none() {
            return Err(Error::unsupported(
                self.object(),
                format!("be claimed up to {value} for a raw submission"),
                "no driver signals it; signal it from the host, or submit to a queue",
            ));
        }
        self.0.of.check_signal_range(value)?;
        let claimed = self.0.of.claim(value, waited).map_err(|error| *error)?;
        self.0.of.add_raw_claim();
        Ok(Claim::new(self.0.of.clone(), claimed.interval))
    }

    /// Notes that others, outside this engine, make the signals up to `value`.
    ///
    /// For a semaphore that another library signals, too. Call it under the lock under which that
    /// library submits, such as the lock of a frame. The signals must be with a driver, or must
    /// come without an action of this engine. From now on `value` is pending. Queues may wait for
    /// it, and held submissions that waited for it are released on the calling thread.
    ///
    /// Has no effect if `value` is pending or reached, whatever has signalled it. So the
    /// application may always pass the value that it finds beside the semaphore.
    ///
    /// The engine makes no signal in place of a promised one (E3). If a device of the timeline
    /// makes the signals, use [`Timeline::claim`] and [`Claim::submitted_on`]. Then the loss of
    /// that device ends the waits for them.
    ///
    /// # Errors
    /// * [`Error::Unsupported`] if others do not signal the timeline: its home is not
    ///   [signalled elsewhere](crate::backend::Attachment::signalled_elsewhere). Also if the home
    ///   would not show the value.
    /// * [`Error::SignalOverlapsClaim`] if a signal of this engine that is not pending has claimed
    ///   the value, and [`Error::NotPending`] if one has claimed a lower value. The application has
    ///   given the other library's lock away too early.
    /// * [`Error::ValueOutOfRange`]. The timeline's failure.
    pub fn signalled_by_others(&self, value: u64) -> Result<()> {
        self.0.of.signalled_by_others(value)
    }

    /// The port of this timeline on `device`, if it has one and it is of type `P`.
    ///
    /// Backends use this to hand raw semaphores out.
    #[must_use]
    pub fn port<P: Port>(&self, device: DeviceId) -> Option<&P> {
        self.0.of.port_on(device)?.downcast_ref()
    }

    /// Makes the timeline one side of a bridge. Call it while this is its only handle.
    ///
    /// Another handle would close this side without the others.
    pub(crate) fn joined(self, joined: &Arc<dyn JoinedSides>) -> Self {
        let of = self.0.of.clone();
        if let Some(mut owner) = Arc::into_inner(self.0) {
            // Keeps the drop of `owner` from closing the timeline.
            owner.joined = Some(joined.clone());
        }
        let joined = Some(joined.clone());
        Self(Arc::new(Owner { of, joined }))
    }

    /// The names of all sides, including this one, if it is a side of a
    /// [bridge](Timeline::bridged).
    ///
    /// Empty for any other timeline. On a bridge the host carries signals from one side's device to
    /// the other sides.
    pub fn bridge(&self) -> impl Iterator<Item = &Object> {
        self.0.joined.iter().flat_map(|joined| joined.objects())
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.of
    }

    /// The devices on which queues wait for it and signal it natively, its home first.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.0.of.devices()
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.of, f)
    }
}
