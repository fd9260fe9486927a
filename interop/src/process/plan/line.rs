//! A timeline that several processes have, while it lives in this one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(doc)]
use syncline_core::SignalOnly;
use syncline_core::backend::{Counter, RemainingPeers};
use syncline_core::{
    Error, KeptPoint, Object, PeerLoss, Point, Result, Signal, Timeline, WeakTimeline,
};

use super::{Across, End, Waits};
use crate::negotiate::{Made, Process, Timelines};
use crate::process::{Endpoint, Survivor};

/// What one endpoint knows of one timeline: whom to fail if the other process is lost.
pub(super) struct Line {
    endpoint: Object,
    /// The other process, which signals.
    peer: Process,
    /// Its end can be seen.
    watched: bool,
    remaining: RemainingPeers,
    timeline: WeakTimeline,
    counter: Arc<Counter>,
    /// Of a binary semaphore, whose signals it counts.
    waits: Vec<Arc<Waits>>,
}

impl Survivor for Line {
    fn lost(&self, how: &PeerLoss) {
        // Who has left and lives goes on telling by the page what is pending and reached, and when it ends: until it dies, which is told, too.
        let lives = matches!(how, PeerLoss::Left | PeerLoss::ShutOut);
        if lives && self.watched {
            return;
        }
        let cause = Error::PeerLost {
            endpoint: self.endpoint.clone(),
            process: self.peer.id,
            how: *how,
        };
        // First: a thread that hears of the count's failure may go on to wait for the semaphore.
        for waits in &self.waits {
            waits.lose(&cause);
        }
        // What it had said to be pending does not come any more.
        self.timeline.lose(&self.counter, cause, self.remaining);
    }
}

impl Line {
    /// From here on messages can name the timeline, and it is failed if the process that signals it is lost.
    pub(super) fn start(
        across: &Across<'_>,
        lines: Timelines,
        counter: &Arc<Counter>,
        peers: &[(&Endpoint, u32)],
        ends: &[End],
    ) -> Made {
        let home = lines.home();
        let signaller = across.signaller();
        let mut all = Vec::new();
        for &(endpoint, number) in peers {
            let number = Number {
                ours: across.is_home(),
                number,
            };
            let known = lines.all().map(Timeline::downgrade).collect();
            all.push(Registered {
                name: Some(endpoint.names().add(number, known)),
                endpoint: endpoint.clone(),
                line: None,
            });
        }
        // Whoever signals may have died in between: it is told at once then.
        let to_signaller = across.peers.iter();
        let to_signaller = to_signaller.copied().find(|peer| *peer.peer() == signaller);
        if let Some(endpoint) = to_signaller.filter(|_| signaller != across.here) {
            let line = Arc::new(Self {
                endpoint: endpoint.object().clone(),
                peer: signaller,
                watched: endpoint.watches_process().is_ok(),
                remaining: match *across.others() {
                    [_] => RemainingPeers::One,
                    _ => RemainingPeers::Several,
                },
                timeline: home.downgrade(),
                counter: counter.clone(),
                waits: ends.iter().filter_map(End::waits).cloned().collect(),
            });
            let survivor: Arc<dyn Survivor> = line;
            endpoint.survive(survivor.clone());
            all.push(Registered {
                endpoint: endpoint.clone(),
                line: Some(survivor),
                name: None,
            });
        }
        let kept: Arc<Vec<Registered>> = Arc::new(all);
        let is_bridge = matches!(lines, Timelines::Bridge { .. });
        if signaller == across.here || is_bridge {
            return Made::across(across.plan.clone(), lines, Some(kept));
        }
        // For as long as there is a point of it, or a queue waits for it.
        home.follow(kept);
        Made::across(across.plan.clone(), lines, None)
    }
}

/// That an endpoint knows of a timeline.
struct Registered {
    endpoint: Endpoint,
    line: Option<Arc<dyn Survivor>>,
    name: Option<Arc<Named>>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // A forked child has no thread that would use these, and another thread may have held their locks.
        if self.endpoint.is_forked() {
            return;
        }
        if let Some(name) = &self.name {
            self.endpoint.names().remove(name);
        }
        if let Some(line) = &self.line {
            self.endpoint.forget(line);
        }
    }
}

/// An object's name in messages: the sender's numbers and the receiver's are two sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    /// This side has given it.
    ours: bool,
    number: u32,
}

/// In messages: the sender has given the number.
const SENDERS: u32 = 1 << 31;

impl Number {
    const fn sent(self) -> u32 {
        if self.ours {
            self.number | SENDERS
        } else {
            self.number
        }
    }

    const fn received(number: u32) -> Self {
        Self {
            ours: number & SENDERS == 0,
            number: number & !SENDERS,
        }
    }
}

/// What has one name: of a bridge all sides in this process.
pub(crate) struct Named {
    number: Number,
    lines: Vec<WeakTimeline>,
}

/// The timelines that an endpoint can name. A peer may give one number twice: the first that has it is meant, as long as it is there.
#[derive(Default)]
pub(crate) struct Names(Mutex<Vec<Arc<Named>>>);

impl Names {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<Named>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: Number, lines: Vec<WeakTimeline>) -> Arc<Named> {
        let named = Arc::new(Named { number, lines });
        self.list().push(named.clone());
        named
    }

    fn remove(&self, named: &Arc<Named>) {
        self.list().retain(|known| !Arc::ptr_eq(known, named));
    }

    /// The number of a timeline that `is_it`.
    fn number(&self, is_it: impl Fn(&WeakTimeline) -> bool) -> Option<Number> {
        let list = self.list();
        let known = list.iter().find(|named| named.lines.iter().any(&is_it));
        known.map(|named| named.number)
    }

    /// A point of the timeline of that number.
    fn at(&self, number: Number, value: u64) -> Option<KeptPoint> {
        let list = self.list();
        let mut known = list.iter().filter(|named| named.number == number);
        known.find_map(|named| named.lines.iter().find_map(|line| line.at(value)))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No timelines: to look at one may end it, and that takes the list.
        let list = self.list();
        let numbers = list.iter().map(|named| named.number);
        f.debug_list().entries(numbers).finish()
    }
}

impl Endpoint {
    /// Sends a point of a timeline that was [made](crate::negotiate::Plan::make_across) over this endpoint: a small message of fixed size, for which nothing is
    /// allocated (P2). It may be sent before it is pending, as the page beside the timeline tells that.
    ///
    /// Blocks for `timeout` at the most while the other process reads nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a point of another timeline; [`Error::PeerLost`], [`Error::PeerSilent`].
    pub fn send_point(&self, point: Point<'_>, timeout: Duration) -> Result<()> {
        self.name_and_send(point.value(), timeout, |line| line.has(point))
    }

    /// As [`Endpoint::send_point`], by who may [signal](SignalOnly) and nothing else: the point that this signal reaches.
    ///
    /// # Errors
    /// As there.
    pub fn send_signal(&self, signal: Signal<'_>, timeout: Duration) -> Result<()> {
        self.name_and_send(signal.value(), timeout, |line| line.has_signal(signal))
    }

    fn name_and_send(
        &self,
        value: u64,
        timeout: Duration,
        is_it: impl Fn(&WeakTimeline) -> bool,
    ) -> Result<()> {
        match self.names().number(is_it) {
            Some(number) => self.send_point_of(number.sent(), value, timeout),
            None => Err(Error::Unsupported {
                object: self.object().clone(),
                asked: format!("send the value {value} of a timeline"),
                reason: "it was not made over this endpoint, or is gone here".into(),
            }),
        }
    }

    /// The next point that the other process sends, in the order in which it sent them. Nothing is allocated to receive it.
    ///
    /// # Errors
    /// [`Error::PeerSilent`] if none comes in time; [`Error::PeerLost`], once what came before that is received; [`Error::Message`] for a point of a timeline that this
    /// process does not have, or has no more, and the endpoint stays usable; other violations close it.
    pub fn receive_point(&self, timeout: Duration) -> Result<KeptPoint> {
        let (number, value) = self.receive_point_of(timeout)?;
        let number = Number::received(number);
        match self.names().at(number, value) {
            Some(point) => Ok(point),
            None => Err(Error::Message {
                endpoint: self.object().clone(),
                expected: "a point of a timeline that this process has".into(),
                found: format!("one of number {} at {value}", number.number),
            }),
        }
    }
}
