//! A timeline that several processes have, while it lives in this one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(doc)]
use syncline_core::SignalOnly;
use syncline_core::backend::Counter;
use syncline_core::{
    Error, KeptPoint, Object, PeerLoss, Point, Result, Signal, Timeline, WaitOnly,
};

use super::Across;
use crate::negotiate::{Lines as Made, Process};
use crate::process::{Endpoint, Survivor};

/// What one endpoint knows of one timeline: whom to fail if the other process is lost.
pub(super) struct Line {
    endpoint: Object,
    /// The other process.
    peer: Process,
    /// It is the one that signals.
    signals: bool,
    timeline: Timeline,
    counter: Arc<Counter>,
}

impl Survivor for Line {
    fn lost(&self, how: &PeerLoss) {
        if !self.signals {
            return;
        }
        let cause = Error::PeerLost {
            endpoint: self.endpoint.clone(),
            process: self.peer.id,
            how: *how,
        };
        if matches!(how, PeerLoss::Died { .. } | PeerLoss::HungUp) {
            // What it had said to be pending does not come any more.
            self.timeline.lose(&self.counter, cause);
        } else if self.counter.check().is_ok() {
            // It lives: what it has with its drivers comes. But nobody says what is pending, or failed.
            let reached = self.counter.value().unwrap_or(0);
            let told = cause.to_string();
            self.timeline.fail(cause);
            self.counter.fail(reached, 0, &told);
        }
    }
}

impl Line {
    /// From here on everybody is told of what becomes of the other processes.
    pub(super) fn start(
        across: &Across<'_>,
        lines: Made,
        counter: &Arc<Counter>,
        peers: &[(&Endpoint, u32)],
    ) -> crate::negotiate::Made {
        let home = lines.home().clone();
        let ours = across.is_home();
        let mut kept = Vec::new();
        for (endpoint, number) in peers {
            let line = Arc::new(Self {
                endpoint: endpoint.object().clone(),
                peer: *endpoint.peer(),
                signals: *endpoint.peer() == across.signaller(),
                timeline: home.clone(),
                counter: counter.clone(),
            });
            let number = Number {
                ours,
                number: *number,
            };
            for line in lines.all() {
                endpoint.lines().add(number, line.wait_only());
            }
            endpoint.survive(line.clone());
            kept.push(Registered {
                endpoint: (*endpoint).clone(),
                line,
                number,
            });
        }
        crate::negotiate::Made::across(across.plan.clone(), lines, Arc::new(kept))
    }
}

/// That endpoints know of a timeline.
struct Registered {
    endpoint: Endpoint,
    line: Arc<Line>,
    number: Number,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.endpoint.lines().remove(self.number);
        // Queues of this process may wait for what is pending, and have to be let go if it never comes.
        let counter = &self.line.counter;
        let settled = counter.check().is_err()
            || matches!((counter.pending(), counter.value()), (Ok(p), Ok(v)) if p <= v);
        if settled || !self.line.signals {
            let line: Arc<dyn Survivor> = self.line.clone();
            self.endpoint.forget(&line);
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

/// The timelines that an endpoint can name; of a bridge all sides in this process have one name.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Vec<(Number, WaitOnly)>>);

impl Lines {
    fn list(&self) -> MutexGuard<'_, Vec<(Number, WaitOnly)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: Number, line: WaitOnly) {
        self.list().push((number, line));
    }

    fn remove(&self, number: Number) {
        let mut list = self.list();
        let (gone, kept) = std::mem::take(&mut *list)
            .into_iter()
            .partition(|(known, _)| *known == number);
        *list = kept;
        drop(list);
        drop::<Vec<_>>(gone);
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.list();
        f.debug_list().entries(list.iter().map(|(_, l)| l)).finish()
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
        is_it: impl Fn(&WaitOnly) -> bool,
    ) -> Result<()> {
        let number = {
            let list = self.lines().list();
            let known = list.iter().find(|(_, line)| is_it(line));
            known.map(|(number, _)| *number)
        };
        match number {
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
        let list = self.lines().list();
        let known = list.iter().find(|(known, _)| *known == number);
        match known {
            Some((_, line)) => Ok(line.at(value).keep()),
            None => Err(Error::Message {
                endpoint: self.object().clone(),
                expected: "a point of a timeline that this process has".into(),
                found: format!("one of number {} at {value}", number.number),
            }),
        }
    }
}
