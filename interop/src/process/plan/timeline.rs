//! Timelines of several processes: their points in messages, and what happens if a peer is lost.

use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use syncline_core::SignalOnly;
use syncline_core::backend::kit::Counter;
use syncline_core::internal::{RecoveryMode, WeakTimeline};
use syncline_core::{
    Error, KeptPoint, Point, Result, Signal, Timeline,
    error::{Object, PeerLoss},
};

use super::execution::Execution;
use crate::negotiate::{DeviceSemaphore, Made, Process, SemaphoreWaits, Timelines};
use crate::process::connection::LossObserver;
use crate::process::endpoint::Endpoint;
use crate::process::numbers::{NumberedTimeline, ObjectNumber};

/// Fails a timeline once the process that signals it is lost.
pub(super) struct SignallerObserver {
    endpoint: Object,
    /// The peer process, which signals.
    peer: Process,
    /// The end of the peer process can be noticed.
    watched: bool,
    recovery: RecoveryMode,
    timeline: WeakTimeline,
    counter: Arc<Counter>,
    /// The waits for a binary semaphore, if the timeline counts its signals.
    waits: Vec<Arc<SemaphoreWaits>>,
}

impl LossObserver for SignallerObserver {
    fn peer_lost(&self, how: &PeerLoss) {
        // A peer that left but lives still signals through the page. Its death is reported later.
        let lives = matches!(how, PeerLoss::Left | PeerLoss::ShutOut);
        if lives && self.watched {
            return;
        }
        let cause = Error::peer_lost(&self.endpoint, self.peer.id, *how);
        if let PeerLoss::GivenUp = how {
            self.timeline.give_up(cause);
            return;
        }
        // Refuse waits first: a thread that sees the count fail may then wait for the semaphore.
        for waits in &self.waits {
            waits.signaller_lost(&cause);
        }
        // The timeline fails, because the peer does not make the signals that it reported as
        // pending.
        self.timeline.lose(&self.counter, cause, self.recovery);
    }
}

impl SignallerObserver {
    /// Registers the timelines at the endpoints.
    ///
    /// From now on messages can refer to them, and they fail if the signalling process is lost.
    pub(super) fn register(
        execution: &Execution<'_>,
        timelines: Timelines,
        counter: &Arc<Counter>,
        peers: &[(&Endpoint, u32)],
        semaphores: &[DeviceSemaphore],
    ) -> Made {
        let home = timelines.home();
        let signaller = execution.signaller();
        let mut all = Vec::new();
        for &(endpoint, number) in peers {
            let number = ObjectNumber::new(number, execution.is_home());
            let registered = timelines.all().map(Timeline::downgrade).collect();
            all.push(Registered {
                name: Some(endpoint.numbered_timelines().add(number, registered)),
                endpoint: endpoint.clone(),
                observer: None,
            });
        }
        // If the signaller has died already, the observer is called at once.
        let to_signaller = execution.peers().iter();
        let to_signaller = to_signaller.copied().find(|peer| *peer.peer() == signaller);
        if let Some(endpoint) = to_signaller.filter(|_| signaller != execution.here()) {
            let observer = Arc::new(Self {
                endpoint: endpoint.object().clone(),
                peer: signaller,
                watched: endpoint.watches_process().is_ok(),
                recovery: match *execution.others() {
                    [_] => RecoveryMode::Alone,
                    _ => RecoveryMode::InTurn,
                },
                timeline: home.downgrade(),
                counter: counter.clone(),
                waits: semaphores
                    .iter()
                    .filter_map(DeviceSemaphore::waits)
                    .cloned()
                    .collect(),
            });
            let observer: Arc<dyn LossObserver> = observer;
            endpoint.observe_loss(observer.clone());
            all.push(Registered {
                endpoint: endpoint.clone(),
                observer: Some(observer),
                name: None,
            });
        }
        let kept: Arc<Vec<Registered>> = Arc::new(all);
        let is_bridge = matches!(timelines, Timelines::Bridge { .. });
        if signaller == execution.here() || is_bridge {
            return Made::across(execution.plan().clone(), timelines, Some(kept));
        }
        // Stay registered while there is a point of the timeline or a queue waits for it.
        home.follow(kept);
        Made::across(execution.plan().clone(), timelines, None)
    }
}

/// The registration of a timeline at an endpoint. Dropping it unregisters.
struct Registered {
    endpoint: Endpoint,
    observer: Option<Arc<dyn LossObserver>>,
    name: Option<Arc<NumberedTimeline>>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // A forked child has no thread that uses the registration, and a thread of the parent may
        // have held the locks during fork(2).
        if self.endpoint.is_forked() {
            return;
        }
        if let Some(name) = &self.name {
            self.endpoint.numbered_timelines().remove(name);
        }
        if let Some(observer) = &self.observer {
            self.endpoint.stop_observing(observer);
        }
    }
}

impl Endpoint {
    /// Sends a point of a timeline that was made over this endpoint.
    ///
    /// See [`Plan::make_across`](crate::negotiate::Plan::make_across). The message has a fixed
    /// size, and sending it does not allocate (P2). The point need not be pending, because the
    /// receiver reads from the page when it is. Blocks up to `timeout` while the socket is full.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a point of another timeline. [`Error::PeerLost`].
    /// [`Error::PeerSilent`].
    pub fn send_point(&self, point: Point<'_>, timeout: Duration) -> Result<()> {
        self.send_value(point.value(), timeout, |timeline| timeline.has(point))
    }

    /// Sends the point that `signal` reaches, for a holder of [`SignalOnly`].
    ///
    /// # Errors
    /// Same errors as [`Endpoint::send_point`].
    pub fn send_signal(&self, signal: Signal<'_>, timeout: Duration) -> Result<()> {
        self.send_value(signal.value(), timeout, |timeline| {
            timeline.has_signal(signal)
        })
    }

    fn send_value(
        &self,
        value: u64,
        timeout: Duration,
        matches: impl Fn(&WeakTimeline) -> bool,
    ) -> Result<()> {
        match self.numbered_timelines().number(matches) {
            Some(number) => self.send_point_of(number.sent(), value, timeout),
            None => Err(Error::unsupported(
                self.object(),
                format!("send the value {value} of a timeline"),
                "it was not made over this endpoint, or is gone here",
            )),
        }
    }

    /// Receives the next point, in the order in which the peer sent them, without allocating.
    ///
    /// With [`Duration::ZERO`], polls, and allocates nothing if there is no point either.
    ///
    /// # Errors
    /// * [`Error::PeerSilent`] if no point comes in time. It names lost devices, unless the call
    ///   polls. To find them, it calls drivers and allocates.
    /// * [`Error::PeerLost`] once all points that the peer had sent are received.
    /// * [`Error::Message`] for a point of a timeline that this process does not have. The endpoint
    ///   stays usable. After any other violation the endpoint is closed.
    pub fn receive_point(&self, timeout: Duration) -> Result<KeptPoint> {
        let (number, value) = self.receive_point_of(timeout)?;
        let number = ObjectNumber::received(number);
        match self.numbered_timelines().at(number, value) {
            Some(point) => Ok(point),
            None => Err(Error::message(
                self.object(),
                "a point of a timeline that this process has",
                format!("one of number {} at {value}", number.number()),
            )),
        }
    }
}
